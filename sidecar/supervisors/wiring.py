"""The supervisors put into the daemon: their tasks, and what they say on the board, in the journal and in verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sidecar.board import Event
from sidecar.hub import Hub
from sidecar.supervise import Supervisor
from sidecar.supervisors import choose
from sidecar.supervisors.asking import Asking, Models
from sidecar.supervisors.values import Container, Subject
from sidecar.verdict.supervisor_values import SupervisorEnd
from sidecar.watch import Watch

_WAKING: Final = frozenset({"model_ended", "model_started", "end_found"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the supervisors need of the daemon. `refine(model, end)` tells whether the end was matched."""

    hub: Hub
    watches: Iterable[Watch]
    refine: Callable[[str, SupervisorEnd], bool]


class Supervisors:
    """All that are asked; none where nothing was found or set."""

    def __init__(self, parts: Parts, environ: Mapping[str, str]) -> None:
        self._parts = parts
        self._askings: list[Asking] = []
        self._missing: dict[str, str] = {}
        hub = parts.hub
        models = Models(
            names=choose.names(hub.settings), subjects=self._subjects, told=self._told, stopping=self._stopping
        )
        for found in choose.find(hub.settings, environ):
            if found.make is None:
                self._missing[found.name] = f"{found.words}; {found.advice}".strip("; ")
                continue
            try:
                source = found.make(hub.clock, self._subjects)
            except ImportError as exc:  # a client that is there, and does not fit what is beside it
                self._missing[found.name] = str(exc)
            else:
                self._askings.append(Asking(source, hub.clock, hub.degraded, models))

    def start(self, supervisor: Supervisor) -> None:
        """Start the tasks of each, and have each hear of ends and starts. Say which was wanted and cannot be asked."""
        for name, words in self._missing.items():
            self._parts.hub.degraded.set(name, words)
        for asking in self._askings:
            supervisor.start(f"following {asking.name}", asking.follow)
            supervisor.start(f"asking {asking.name} again", asking.look_again)
        if self._askings:
            self._parts.hub.journal.listen(self._heard)

    def _heard(self, event: Event) -> None:
        if event.kind in _WAKING:
            for asking in self._askings:
                asking.wake()

    def _subjects(self) -> Sequence[Subject]:
        return [
            Subject(
                model=watch.name,
                groups=() if watch.reader is None else tuple(level.name for level in watch.reader.seen.levels),
                alive=watch.died is None,
            )
            for watch in self._parts.watches
        ]

    def _told(self, model: str, container: Container, end: SupervisorEnd | None) -> bool:
        """Put it on the board, and an end that is new into verdict and journal."""
        watch = next((one for one in self._parts.watches if one.name == model), None)
        if watch is None:
            return False
        others = [one for one in watch.supervised if one.supervisor != container.supervisor]
        watch.supervised = (*others, container)
        if end is None or not self._parts.refine(model, end):
            return False
        hub = self._parts.hub
        fields = {
            "supervisor": container.supervisor,
            "exit_code": end.exit_code,
            "signal": end.signal,
            "reason": end.reason,
            "oom_killed": end.oom_killed,
            "restart_count": end.restart_count,
        }
        words = [f"{name.replace('_', ' ')} {value}" for name, value in fields.items() if value is not None]
        words += [word.text for word in end.words]
        hub.journal.say(hub.clock.now(), model, "supervisor_told", f"{end.source}: {'; '.join(words[1:])}", fields)
        return True

    def _stopping(self, model: str, why: SupervisorEnd) -> None:
        """Say why a container is to end; its end, when it is noticed, is judged by that."""
        hub = self._parts.hub
        self._parts.refine(model, why)
        text = f"{why.source}: {'; '.join(word.text for word in why.words)}"
        hub.journal.say(hub.clock.now(), model, "supervisor_stopping", text)
