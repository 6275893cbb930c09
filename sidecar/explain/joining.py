"""Which signs tell of the same incident. Cause before consequence; what differs in ids or is far apart never joins.

A cause explains the ends that can follow from it. Two causes join where they are two views of one (a kernel report and
a runtime's flag), or where the later can follow from the earlier (a server out of GPU memory fails its probe).
"""

from __future__ import annotations

from typing import Final

from sidecar.explain.values import Role, Sign
from sidecar.verdict.values import Confidence, EndClass

HORIZON_SECONDS: Final = 900.0
"""A cause and its last consequence: a grace period, a crash loop's back-off, a probe's patience."""
SAME_FAILURE_SECONDS: Final = 60.0
SAME_KILL_SECONDS: Final = 2.0
_ONE_KILL: Final = ("comm", "oom_memcg", "task_memcg", "anon_rss_kb")
NEAR_LINES: Final = 400
"""Without times, signs of different parsers join only this near to one another."""

ALLOCATION: Final = (EndClass.GPU_ALLOCATION_FAILURE, EndClass.HOST_ALLOCATION_FAILURE, EndClass.SHM_EXHAUSTED)
_OOM: Final = (EndClass.CGROUP_OOM, EndClass.GLOBAL_OOM)
_KILLING: Final = (
    *_OOM,
    EndClass.USERSPACE_OOM,
    EndClass.HEALTH_CHECK,
    EndClass.EVICTION,
    EndClass.DELETION,
    EndClass.EXTERNAL_KILL,
)
_KEY_KINDS: Final = ("container:", "pod:", "unit:", "name:", "object:")
_PART: Final = "part:"
_ABRT, _BUS, _KILL, _TERM = 6, 7, 9, 15
_BROKEN: Final = (*ALLOCATION, EndClass.DEVICE_RESET, EndClass.APPLICATION_EXIT)
_BY_SIGNAL: Final = {
    _KILL: _KILLING,
    _TERM: tuple(one for one in _KILLING if one not in _OOM),
    _BUS: (EndClass.SHM_EXHAUSTED,),
}
"""Which causes end in which signal; every other signal is a crash, after something broke."""
_STOPS: Final = ("unit_stop", "docker_kill")
"""What one who found it unhealthy does next."""


def joins(group: list[Sign], sign: Sign) -> bool:
    """Tell whether a sign belongs to an incident that others tell of."""
    if any(_differ(one, sign) for one in group) or not any(_near(one, sign) for one in group):
        return False
    causes = [one for one in group if one.role is Role.CAUSE]
    if sign.role is Role.CAUSE:
        if causes:
            return any(_same_cause(one, sign) or _follows(one, sign) for one in causes)
        return all(_explains(sign, one) for one in group)
    if causes:
        return any(_explains(one, sign) for one in causes) or (_gave_up(group) and _killed_by_itself(sign))
    return any(_same_end(one, sign) for one in group)


def _differ(one: Sign, other: Sign) -> bool:
    """Tell whether two signs name different containers, pods or units, or stand in different objects of one list."""
    if _is_strange(one, other) or _is_strange(other, one):
        return True
    for kind in (*_KEY_KINDS, *([_PART] if one.file == other.file else [])):
        mine = {key for key in one.keys if key.startswith(kind)}
        theirs = {key for key in other.keys if key.startswith(kind)}
        if mine and theirs and not mine & theirs:
            return True
    return False


def _is_strange(one: Sign, other: Sign) -> bool:
    """Tell whether one names a container that the other is surely not about."""
    named = {key for key in one.keys if key.startswith("container:")}
    return bool(named) and named <= other.not_of


def _near(one: Sign, other: Sign) -> bool:
    if one.file != other.file and any(not key.startswith(_PART) for key in one.keys & other.keys):
        return _apart(one, other) in (None, 0.0) or (_apart(one, other) or 0.0) <= HORIZON_SECONDS
    apart = _apart(one, other)
    if apart is not None:
        return apart <= HORIZON_SECONDS
    return one.file != other.file or abs(one.line - other.line) <= NEAR_LINES


def _apart(one: Sign, other: Sign) -> float | None:
    return None if one.stamp is None else one.stamp.apart(other.stamp)


def _same_cause(one: Sign, other: Sign) -> bool:
    """Tell whether two causes are one: told twice, or by two witnesses."""
    if one.source == other.source == "kernel log":
        return _one_report(one, other) or (bool(other.fields.get("no_killable_processes")) and not other.pids)
    if one.end_class in ALLOCATION and other.end_class in ALLOCATION:
        return _same_allocation(one, other)
    if one.subject == other.subject or (one.end_class is other.end_class and _one_unit(one, other)):
        return _same_subject(one, other)
    if _same_card(one, other):
        return True
    kernel = "kernel" in (one.subject, other.subject)
    if (
        kernel
        and {one.end_class, other.end_class} & set(_OOM)
        and EndClass.USERSPACE_OOM in (one.end_class, other.end_class)
    ):
        return bool(one.pids & other.pids)
    return one.end_class in _OOM and other.end_class in _OOM and one.source != other.source


def _one_report(one: Sign, other: Sign) -> bool:
    """Tell whether two logs have the same kill: `dmesg` and the journal stamp it by clocks that cannot be compared."""
    alike = all(one.fields.get(name) == other.fields.get(name) for name in _ONE_KILL)
    return bool(one.pids) and one.pids == other.pids and alike and (_apart(one, other) or 0.0) <= SAME_KILL_SECONDS


def _same_card(one: Sign, other: Sign) -> bool:
    """Tell whether the driver and a program tell of one fault; on a card that fails a program sees its own first."""
    if "gpu_fault" in (one.subject, other.subject) and EndClass.DEVICE_RESET in (one.end_class, other.end_class):
        return True
    return (
        one.end_class is other.end_class and one.source != other.source and "GPU driver" in (one.source, other.source)
    )


def _one_unit(one: Sign, other: Sign) -> bool:
    return any(key.startswith("unit:") for key in one.keys & other.keys)


def _same_subject(one: Sign, other: Sign) -> bool:
    if one.pids and other.pids and not one.pids & other.pids and one.subject != "systemd-oomd":
        return False
    apart = _apart(one, other)
    return one.end_class is other.end_class and (apart is None or apart <= HORIZON_SECONDS)


def _same_allocation(one: Sign, other: Sign) -> bool:
    """Repeats, and the same failure as several layers word it. Without times, another size is another failure."""
    apart = _apart(one, other)
    if apart is not None:
        return one.end_class is other.end_class and apart <= SAME_FAILURE_SECONDS
    sizes = (one.fields.get("requested_bytes"), other.fields.get("requested_bytes"))
    if one.subject == other.subject:
        return one.end_class is other.end_class and sizes[0] == sizes[1]
    return one.file == other.file and (None in sizes or sizes[0] == sizes[1])


def _follows(cause: Sign, later: Sign) -> bool:
    """Tell whether the later cause can be a consequence of the earlier one."""
    if later.file == cause.file and later.line < cause.line:
        return False
    if cause.end_class in ALLOCATION or cause.end_class is EndClass.DEVICE_RESET:
        fallen = (EndClass.HEALTH_CHECK, EndClass.APPLICATION_EXIT)
        gpu = cause.end_class is EndClass.DEVICE_RESET and later.end_class is EndClass.GPU_ALLOCATION_FAILURE
        return later.end_class in fallen or gpu
    if cause.end_class is EndClass.EVICTION:
        return later.end_class is EndClass.DELETION  # its containers are told to stop
    if cause.end_class is EndClass.HEALTH_CHECK:
        return later.subject in _STOPS
    return cause.subject == "ambiguous" and later.end_class in ALLOCATION


def _explains(cause: Sign, end: Sign) -> bool:
    """Tell whether an end, or a consequence, can follow from a cause."""
    kind = cause.end_class
    if end.end_class is EndClass.CGROUP_OOM:
        return kind in (*_OOM, EndClass.USERSPACE_OOM)
    if end.end_class is EndClass.EVICTION:
        return kind is EndClass.EVICTION
    if end.role is Role.CONSEQUENCE:
        return True
    number = end.fields.get("signal_number")
    if end.subject == "state" and number is None and end.end_class is EndClass.UNKNOWN:
        number = _KILL
    if isinstance(number, int):
        return kind in _BY_SIGNAL.get(number, _BROKEN) or (number == _ABRT and _is_watchdog(cause))
    return kind is not EndClass.UNKNOWN or cause.subject == "ambiguous"


def _is_watchdog(cause: Sign) -> bool:
    return cause.subject == "watchdog" or (cause.source == "systemd" and cause.end_class is EndClass.HEALTH_CHECK)


def _gave_up(group: list[Sign]) -> bool:
    """Tell a server that takes itself down after a worker's failure, all its processes by SIGKILL (SGLang, vLLM)."""
    return any(one.subject in ("sigquit", "engine_dead") for one in group)


def _killed_by_itself(end: Sign) -> bool:
    return end.source == "server log" and end.fields.get("signal_number") == _KILL


def _same_end(one: Sign, other: Sign) -> bool:
    """Tell whether two ends are one: by the same signal or code, told twice."""
    if other.role is Role.CONSEQUENCE:
        return True
    apart = _apart(one, other)
    if one.subject == other.subject == "state":
        return (
            apart in (None, 0.0)
            and one.end_class is other.end_class
            and one.fields.get("container") == other.fields.get("container")
        )
    numbers = (one.fields.get("signal_number"), other.fields.get("signal_number"))
    codes = (one.fields.get("exit_code"), other.fields.get("exit_code"))
    if None not in numbers:
        return numbers[0] == numbers[1]
    if None not in codes:
        return codes[0] == codes[1]
    return one.end_class is other.end_class or EndClass.UNKNOWN in (one.end_class, other.end_class)


_RANKS: Final = {
    EndClass.DEVICE_RESET: 0,
    EndClass.USERSPACE_OOM: 2,
    EndClass.GLOBAL_OOM: 2,
    EndClass.CGROUP_OOM: 3,
    EndClass.EVICTION: 3,
    EndClass.GPU_ALLOCATION_FAILURE: 4,
    EndClass.HOST_ALLOCATION_FAILURE: 4,
    EndClass.SHM_EXHAUSTED: 4,
    EndClass.APPLICATION_EXIT: 4,
    EndClass.HEALTH_CHECK: 5,
    EndClass.DELETION: 6,
    EndClass.EXTERNAL_KILL: 7,
}


_END_RANKS: Final = {
    EndClass.HEALTH_CHECK: 5,
    EndClass.DELETION: 6,
    EndClass.SHM_EXHAUSTED: 7,
    EndClass.CRASH_SIGNAL: 7,
    EndClass.APPLICATION_EXIT: 8,
}


def rank(sign: Sign) -> int:
    """Order the signs of one incident: the lowest names the class. A guess never beats a statement."""
    if sign.role is Role.CONSEQUENCE:
        return 12
    if sign.subject == "kernel" and sign.end_class is not EndClass.UNKNOWN:
        return 1
    if sign.role is Role.END and sign.end_class not in (EndClass.CGROUP_OOM, EndClass.EVICTION):
        return _END_RANKS.get(sign.end_class, 10)
    if sign.end_class is EndClass.CGROUP_OOM and sign.confidence is Confidence.LOW:
        return 6
    return _RANKS.get(sign.end_class, 9)
