"""All watched models by name, and which way of seeing belongs to which.

Rules
    * A model is a cgroup and a name; the same name in a new cgroup is the next life of that model, if the old one has
      ended. While it lives, the newcomer gets a name of its own.
    * Hand-over wins. Until the first one there is one model under the name of the settings, seen by the best other way;
      the first hand-over takes its place.
    * A model that ended stays as it was last seen until something better is seen: a worse sight tells less about it.
    * A model whose process ended but whose probe succeeds afterwards lives in a process that nobody handed over: then
      the old sight is laid down, so that a dead process is not held against a living server. The answer may as well be
      that of a model which began after the end, or of one that is asked at the same place: then it proves nothing.
    * A model that ended is history once another one began after its end, or lives that goes by its name in another
      cgroup (a new server that was started before the old one was stopped), or when it exited with 0 and its cgroup is
      gone: a job that has done its work, or a server that has a successor, fails nobody else. Only the last
      `KEPT_HISTORY` of them are watched: names cost nothing, the descriptors of ended models do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from guard.model import Known
from sidecar.sample import ProbeOutcome, SightKind
from sidecar.sight.seen import SeenModel
from sidecar.watch import Release, Watch

_ORDER: Final = tuple(SightKind)  # best first

KEPT_HISTORY: Final = 16


class Watches:
    """See the module's docstring. `make` builds a watch for a name; `on_gone` hears of one that is dropped."""

    def __init__(self, name: str, make: Callable[[str], Watch], on_gone: Callable[[Watch], None]) -> None:
        self._name = name
        self._make = make
        self._on_gone = on_gone
        self._by_name: dict[str, Watch] = {}

    def __iter__(self) -> Iterator[Watch]:
        """Give them in the order they appeared."""
        return iter(tuple(self._by_name.values()))

    def handed_over(self, seen: SeenModel, release: Release) -> Watch:
        """Take a handed-over model in, or find it again."""
        for watch in self:
            if watch.reader is not None and watch.reader.seen is seen:
                return watch
        name = self._free_name(seen.name)
        if name not in self._by_name:
            self._drop_stand_in()
        watch = self._get(name)
        watch.look_through(seen, release)
        self._thin_out(watch)
        return watch

    def fallback(self, seen: SeenModel | None, release: Release) -> Watch | None:
        """See the model by another way while none hands over. Give the watch whose sight changed, if one did."""
        if any(watch.sight is SightKind.HANDOVER for watch in self):
            return None
        watch = self.first()
        if seen is None:
            if watch.reader is None or watch.died is not None:
                return None
            watch.look_away()
            return watch
        if watch.reader is not None and (watch.reader.seen is seen or self._tells_less(seen, watch)):
            return None
        watch.look_through(seen, release)
        return watch

    def first(self) -> Watch:
        """Give the model that appeared first, or the one that stands for it until it does."""
        return next(iter(self), None) or self._get(self._name)

    def find(self, name: str) -> Watch | None:
        """Give the model of this name, if it is watched."""
        return self._by_name.get(name)

    def lay_down_outlived(self, watch: Watch) -> bool:
        """Stop to see a dead process once its model answers again; tell whether that was so."""
        probe = watch.prober.last
        if watch.died is None or not isinstance(probe, Known) or self._has_successor(watch):
            return False
        if any(_lives(other) and other.prober.asked == watch.prober.asked for other in self if other is not watch):
            return False
        result = probe.value
        if result.outcome is not ProbeOutcome.OK or result.started.monotonic_s <= watch.died.monotonic_s:
            return False
        died = watch.died
        watch.look_away()
        watch.begin_life(None, died)
        return True

    def sharing_a_probe(self) -> dict[str, list[str]]:
        """Give each place that is asked for several living models: whose answer it is cannot be told."""
        places: dict[str, list[str]] = {}
        for watch in self:
            if watch.prober.asked is not None and _lives(watch):
                places.setdefault(watch.prober.asked, []).append(watch.name)
        return {place: names for place, names in places.items() if len(names) > 1}

    def is_history(self, watch: Watch) -> bool:
        """Tell a model that ended and is not missed: the plain health pages do not ask about it."""
        if watch.died is None:
            return False
        levels = () if watch.reader is None else watch.reader.levels
        return self._has_successor(watch) or (watch.left_well and bool(levels) and levels[0].gone)

    def _has_successor(self, watch: Watch) -> bool:
        """Whether another model began after the end of this one, or took over under its name while it lived."""
        died = watch.died
        if died is None:
            return False
        others = [other for other in self if other is not watch]
        began_after = any(one.born is not None and one.born.monotonic_s > died.monotonic_s for one in others)
        return began_after or any(_lives(one) and _goes_by_the_same_name(one, watch) for one in others)

    def look_away_from(self, kind: SightKind) -> tuple[SeenModel, ...]:
        """Lay down every sight of a kind, before its descriptors are closed; but those of models that ended, given."""
        mine = [watch for watch in self if watch.reader is not None and watch.sight is kind]
        for watch in mine:
            if watch.died is None:
                watch.look_away()
        return tuple(watch.reader.seen for watch in mine if watch.reader is not None)

    def _get(self, name: str) -> Watch:
        watch = self._by_name.get(name)
        if watch is None:
            watch = self._by_name[name] = self._make(name)
        return watch

    def _free_name(self, wanted: str) -> str:
        """Give the name itself, or with a number while another living model has it."""
        name, number = wanted, 1
        while (taken := self._by_name.get(name)) is not None and _lives_handed_over(taken):
            number += 1
            name = f"{wanted}-{number}"
        return name

    def _drop_stand_in(self) -> None:
        """Drop the model that stood for the one that now hands over under a name of its own."""
        stand_in = self._by_name.get(self._name)
        if stand_in is not None and stand_in.sight is not SightKind.HANDOVER:
            self._drop(stand_in)

    def _thin_out(self, newest: Watch) -> None:
        """Drop the models that have been history for longest; the newest has a life to begin, whatever was before."""
        others = (watch for watch in self if watch is not newest)
        history = [(watch.died.monotonic_s, watch) for watch in others if watch.died and self.is_history(watch)]
        history.sort(key=lambda one: one[0])
        for _, watch in history[:-KEPT_HISTORY]:
            self._drop(watch)

    def _drop(self, watch: Watch) -> None:
        del self._by_name[watch.name]
        watch.look_away()
        self._on_gone(watch)

    @staticmethod
    def _tells_less(seen: SeenModel, watch: Watch) -> bool:
        return watch.died is not None and _ORDER.index(seen.kind) > _ORDER.index(watch.sight)


def _lives(watch: Watch) -> bool:
    return watch.reader is not None and watch.died is None


def _goes_by_the_same_name(one: Watch, other: Watch) -> bool:
    """Tell models that called themselves alike; while both lived the later one got a number."""
    return one.reader is not None and other.reader is not None and one.reader.seen.name == other.reader.seen.name


def _lives_handed_over(watch: Watch) -> bool:
    return watch.sight is SightKind.HANDOVER and watch.died is None and watch.reader is not None
