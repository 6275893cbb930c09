"""How a container of Docker or Podman ended: from the engine's events, and from its state. Pure.

Theory
    * The state says how the last life ended only until the next one starts, which with a restart policy is at once:
      then ExitCode is 0 again and OOMKilled false, FinishedAt stays. So an end is told by its `die` event, and by the
      state where no such event was heard. Engines keep events for a while and give them again (`since`).
    * `docker stop` gives kill, die, stop. Podman 4.3 gives die alone; `podman kill` and a health check whose action
      is a kill give kill, die. (Both tried.)
    * Podman 4.3 leaves OOMKilled false whatever happened (tried on v1 and v2): a false of Podman says nothing.
    * Podman's `health_status` event does not say how the check went; the `exec_died` behind it does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from sidecar.verdict.supervisor_values import SupervisorEnd, SupervisorWord, SupervisorWordKind

_STARTS: Final = frozenset({"start", "restart", "create", "init"})
_HEALTH_SECONDS: Final = 30.0
"""From the last failed health check to the kill: as long as Docker's longest usual stop."""
_ONE_END_SECONDS: Final = 2.0
_NO_TIME_YEAR: Final = 1971  # Go's zero time is the year 1
_SHOWN: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineEvent:
    """One event about one container."""

    container_id: str
    action: str  # "die", "oom", "kill", "stop", "health_status: unhealthy", ...
    at_wall_s: float
    attributes: Mapping[str, str]


class _Check(msgspec.Struct, rename="pascal"):
    exit_code: int = 0
    output: str = ""


class _Health(msgspec.Struct, rename="pascal"):
    status: str = ""
    failing_streak: int = 0
    log: list[_Check] | None = None


class _State(msgspec.Struct, rename="pascal"):
    running: bool | None = None
    exit_code: int | None = None
    oom_killed: bool | None = msgspec.field(default=None, name="OOMKilled")
    error: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    health: _Health | None = None


class _Mount(msgspec.Struct, rename="pascal"):
    source: str = ""
    destination: str = ""


class Inspected(msgspec.Struct, rename="pascal"):
    """What `inspect` says of a container; the rest of it is passed over."""

    id: str
    name: str = ""
    restart_count: int | None = None
    state: _State = msgspec.field(default_factory=_State)
    mounts: list[_Mount] = []

    def source_of(self, directory: str) -> str | None:
        """Give the host's path of a directory in the container; None where it is on no mount."""
        above = [m for m in self.mounts if f"{directory}/".startswith(m.destination.rstrip("/") + "/")]
        best = max(above, key=lambda m: len(m.destination), default=None)
        return None if best is None else best.source.rstrip("/") + directory[len(best.destination.rstrip("/")) :]

    def uses(self, host_path: str) -> bool:
        """Whether it has this path of the host, or one above it, mounted."""
        return any(f"{host_path}/".startswith(m.source.rstrip("/") + "/") for m in self.mounts if m.source)


def end_of(source: str, events: Sequence[EngineEvent], now: Inspected, *, podman: bool) -> SupervisorEnd | None:
    """Give the last end of a container, by its events (oldest first) and its state now."""
    last = next((at for at in range(len(events) - 1, -1, -1) if events[at].action == "die"), None)
    state, finished = now.state, _seconds(now.state.finished_at)
    fresh = state.running is False and finished is not None  # the state is that of the end
    if last is None:
        return _end(source, now, podman=podman) if fresh else None
    die = events[last]
    life = _life(events, last)
    code = die.attributes.get("exitCode") or die.attributes.get("containerExitCode") or ""
    flag = state.oom_killed if fresh and not (podman and not state.oom_killed) else None
    return SupervisorEnd(
        source=source,
        exit_code=int(code) if code.isdigit() else None,
        oom_killed=True if any(one.action == "oom" for one in life) else flag,
        message=(state.error or None) if fresh else None,
        started_wall_s=next((one.at_wall_s for one in life if one.action == "start"), None),
        finished_wall_s=finished if finished is not None and _is_of(die, finished) else die.at_wall_s,
        restart_count=now.restart_count,
        words=_words(life, die, now),
    )


def _is_of(die: EngineEvent, finished: float) -> bool:
    """Whether FinishedAt, which comes milliseconds earlier and stays, is of this event: one end has one time."""
    return abs(die.at_wall_s - finished) < _ONE_END_SECONDS


def _end(source: str, now: Inspected, *, podman: bool) -> SupervisorEnd:
    state = now.state
    return SupervisorEnd(
        source=source,
        exit_code=state.exit_code,
        oom_killed=None if podman and not state.oom_killed else state.oom_killed,
        message=state.error or None,
        started_wall_s=_seconds(state.started_at),
        finished_wall_s=_seconds(state.finished_at),
        restart_count=now.restart_count,
    )


def _life(events: Sequence[EngineEvent], last: int) -> list[EngineEvent]:
    """Give the events of the life that a `die` ended, with those behind it that go with that end."""
    first = next((at for at in range(last - 1, -1, -1) if events[at].action in {"start", "die"}), 0)
    behind = next((at for at in range(last + 1, len(events)) if events[at].action in _STARTS), len(events))
    return list(events[first:behind])


def _words(life: Sequence[EngineEvent], die: EngineEvent, now: Inspected) -> tuple[SupervisorWord, ...]:
    before = [one for one in life if one.at_wall_s <= die.at_wall_s and one is not die]
    kill = next((one for one in reversed(before) if one.action == "kill"), None)
    stop = next((one for one in life if one.action == "stop"), None)
    check = _failed_check(before)
    asked = kill or stop
    if asked is not None and check is not None and die.at_wall_s - check.at_wall_s <= _HEALTH_SECONDS:
        text = f"its health check failed, and the container was told to end{_signal(kill)}{_output(now)}"
        return (SupervisorWord(kind=SupervisorWordKind.LIVENESS_KILL, text=text, at_wall_s=asked.at_wall_s),)
    if stop is not None:
        text = f"the engine was asked to stop it{_signal(kill)}"
        return (SupervisorWord(kind=SupervisorWordKind.DELETION, text=text, at_wall_s=stop.at_wall_s),)
    return ()


def _failed_check(before: Sequence[EngineEvent]) -> EngineEvent | None:
    """Give the last health check, if it failed."""
    for at in range(len(before) - 1, -1, -1):
        one = before[at]
        if one.action.startswith("health_status"):
            said = one.action.partition(": ")[2] or one.attributes.get("health_status", "")
            probe = next((later for later in before[at:] if later.action == "exec_died"), None)
            code = "" if probe is None else probe.attributes.get("containerExitCode", "")
            return one if said == "unhealthy" or (not said and code not in {"", "0"}) else None
    return None


def _signal(kill: EngineEvent | None) -> str:
    signal = None if kill is None else kill.attributes.get("signal")
    return "" if signal is None else f" (signal {signal})"


def _output(now: Inspected) -> str:
    log = (now.state.health.log if now.state.health is not None else None) or []
    failed = [one for one in log if one.exit_code != 0]
    words = "" if not failed else " ".join(failed[-1].output.split())[:_SHOWN]
    return f": {words}" if words else ""


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None or moment.year < _NO_TIME_YEAR else moment.timestamp()
