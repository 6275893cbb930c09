"""Black boxes in the shared directory: of processes that ended while no sidecar ran, and of ones accounted for.

A box says whose it is, not whether its process lives, which is in another PID namespace. The process has ended when
its boot is another one, when the box holds an exit mark, or when nobody holds the box's lock (docs/box-format.md).
Where the volume has no locks it is taken for ended when nobody has handed it over for `GRACE_SECONDS`, although a
guard tries again at least every half minute, and nothing in the box has moved meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from guard.box import format as box_format
from guard.box.prune import is_held
from guard.box.reader import parse_box
from guard.kernel.reader import Reader
from guard.model import BoxState, Known, Unknown, Why
from sidecar.hub import Hub
from sidecar.sample import Instant
from sidecar.verdict.values import EndEvidence

GRACE_SECONDS: Final = 60.0
_SCAN_SECONDS: Final = 20.0
_FIRST_SECONDS: Final = 3.0  # a living model hands over first, so that an end is told under its name
_MOST_BOXES: Final = 256  # a scan; 64 KiB each
_SUFFIX: Final = ".box"


@dataclass(frozen=True, slots=True)
class Found:
    """One box file. `held`: whether its writer lives, by the lock; None where locks cannot tell."""

    path: str
    state: BoxState
    held: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """What is known elsewhere.

    `in_sight` gives the sessions whose ends are noticed otherwise, `recorded` are those whose ends are known; `ended`
    makes the incident of an orphan, given its model's name if the box holds one.
    """

    in_sight: Callable[[], set[str]]
    recorded: Collection[str]
    ended: Callable[[str | None, EndEvidence], None]


class Boxes:
    """Looks through the directory now and then, in a thread."""

    def __init__(self, hub: Hub, accounts: Accounts) -> None:
        self._hub = hub
        self._accounts = accounts
        self._directory = f"{hub.settings.dir}/boxes"
        self._unmoved: dict[str, tuple[float, BoxState]] = {}

    async def run(self) -> None:
        """Scan for ever. A file goes once the end of its process is on disk."""
        await self._hub.clock.sleep(_FIRST_SECONDS)
        while True:
            found = await asyncio.to_thread(scan, self._directory)
            in_sight = self._accounts.in_sight()
            ended = [box for box in found if self._has_ended(box, in_sight)]
            for box in ended:
                if box.state.life.session not in self._accounts.recorded:
                    self._accounts.ended(box.state.name, self._evidence(box.state))
            if ended and await self._hub.recorder.flush():
                await asyncio.to_thread(_remove, [box.path for box in ended])
            await self._hub.clock.sleep(_SCAN_SECONDS)

    def _has_ended(self, box: Found, in_sight: set[str]) -> bool:
        state, session = box.state, box.state.life.session
        if session in self._accounts.recorded:
            return True
        if session in in_sight:
            self._unmoved.pop(session, None)
            return False
        other_boot = bool(self._hub.boot_id) and state.life.boot_id != self._hub.boot_id
        if other_boot or state.exit_mark is not None:
            return True
        return not box.held if box.held is not None else self._is_silent(state)

    def _is_silent(self, state: BoxState) -> bool:
        session = state.life.session
        now_s = self._hub.clock.now().monotonic_s
        since_s, before = self._unmoved.get(session, (now_s, state))
        if before != state:
            since_s = now_s
        self._unmoved[session] = (since_s, state)
        return now_s - since_s >= GRACE_SECONDS

    def _evidence(self, state: BoxState) -> EndEvidence:
        unseen = Unknown(Why.NOT_SAMPLED, "sidecar", detail="no sidecar saw this end")
        same_boot = state.life.boot_id == self._hub.boot_id
        began_s = state.life.start_ticks / os.sysconf("SC_CLK_TCK")
        return EndEvidence(
            life=state.life,
            main=state.parent_session is None,
            ended=last_sign(state, self._hub.clock.now()),
            wait_status=unseen,
            levels=(),
            hidden_ancestors=True,
            node_oom_kill_delta=unseen,
            node_available_ratio=unseen,
            kmsg=self._hub.kmsg.since(began_s) if same_boot else unseen,
            box=Known(state),
            liveness_failures_answered=0,
            others_alive=0,
        )


def scan(directory: str) -> list[Found]:
    """Read the boxes there are; what is no box, or damaged, is left alone."""
    reader = Reader()
    names = reader.listdir(directory)
    found = []
    for name in () if isinstance(names, Unknown) else [n for n in names.value if n.endswith(_SUFFIX)][:_MOST_BOXES]:
        path = f"{directory}/{name}"
        data = reader.read(path, box_format.SIZE)
        state = data if isinstance(data, Unknown) else parse_box(data.value, path)
        if isinstance(state, Known) and name == state.value.life.session + _SUFFIX:
            found.append(Found(path, state.value, is_held(path)))
    return found


def last_sign(state: BoxState, now: Instant) -> Instant:
    """Give the last moment the process is known to have lived, by the box alone."""
    walls = [state.created_wall_s, *(failure.at_wall_s for failure in state.failures)]
    walls += [] if state.sigterm_wall_s is None else [state.sigterm_wall_s]
    walls += [] if state.exit_mark is None else [state.exit_mark.at_wall_s]
    offset_s = now.wall_s - now.monotonic_s
    walls += [operation.updated_monotonic_s + offset_s for operation in state.operations]
    walls += [beat.at_monotonic_s + offset_s for beat in state.beats]
    wall_s = min(max(walls), now.wall_s)  # times of another boot may lie ahead
    return Instant(monotonic_s=wall_s - offset_s, wall_s=wall_s)


def _remove(paths: list[str]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):  # another user's file in a sticky directory: the pod takes it with it
            os.unlink(path)  # noqa: PTH108 - a path as text is all there is
