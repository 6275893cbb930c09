"""Messages between guard and sidecar, as values and as bytes. Pure.

One message is one SOCK_SEQPACKET record: a JSON object with `"v"` (the major version, an integer) and `"kind"`, at most
`LIMIT_BYTES` long. Rules for both sides:

    * Unknown kinds and unknown fields are ignored, so a newer release may say more within one major version.
    * Another major version is answered with `Refused` (itself in the receiver's version) and the connection ends.
    * Descriptors travel with `Hello` alone, in the order of its `descriptors`; their names are
      `levels/DEPTH/KERNEL_FILE_NAME`, `proc/NAME`, `pidfd` and `box`.
    * Nothing else is trusted: every field has one type and one bound, a message that breaks them is malformed.

Guard to sidecar: Hello, ChildExit, Relieved. Sidecar to guard: Welcome, Refused, Pressure.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from guard.model import LifeId

if TYPE_CHECKING:
    from guard.kernel.values import CgroupVersion

VERSION: Final = 1
LIMIT_BYTES: Final = 32 << 10
MOST_DESCRIPTORS: Final = 250
"""SCM_RIGHTS carries at most 253 descriptors a message (SCM_MAX_FD, include/net/scm.h)."""
MOST_LEVELS: Final = 64
_NAME_LENGTH: Final = 256
_TEXT_LENGTH: Final = 4096  # of cgroup paths and reasons
_COMMAND_LENGTH: Final = 1024
_MOST_NUMBER: Final = 2**63 - 1


class ProtocolError(ValueError):
    """These bytes are no message of this protocol. The text is fit for a `Refused`."""


class VersionError(ProtocolError):
    """The other side speaks another major version."""


class Role(StrEnum):
    """Who hands over: the process itself, or the runner that started it."""

    GUARD = "guard"
    RUNNER = "runner"


@dataclass(frozen=True, slots=True)
class LevelNote:
    """One handed-over cgroup level: its path as the model sees it, and its distance from the model's own cgroup."""

    name: str
    version: CgroupVersion
    depth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """The first message of a connection. `life` is the process that the descriptors are about."""

    name: str  # of the model
    life: LifeId
    parent_session: str | None
    command: str
    role: Role
    levels: tuple[LevelNote, ...]
    hidden_ancestors: bool
    descriptors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Welcome:
    """The hand-over was taken. `release` of the sidecar."""

    release: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The hand-over was not taken, or the connection ends, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class ChildExit:
    """From a runner: how the process it handed over ended, as wait(2) gave it, and the first SIGTERM it passed on."""

    life: LifeId
    wait_status: int
    sigterm_wall_s: float | None = None
    sigterm_monotonic_s: float | None = None


@dataclass(frozen=True, slots=True)
class Pressure:
    """From the sidecar: memory gets short (a `Severity` name, or "none" once it is over), and why."""

    level: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Relieved:
    """From a guard: what one relief action gave back, by its own measure. Negative where memory grew, None: unknown."""

    action: str
    level: str  # of pressure, that it ran for
    seconds: float
    anon_freed_bytes: int | None  # of the process
    cgroup_freed_bytes: int | None  # of its own level, page cache included
    gpu_freed_bytes: int | None  # of torch's caching allocator, all cards
    said: str = ""  # why it did nothing, or the error it raised; empty where it did its work


Message: TypeAlias = Hello | Welcome | Refused | ChildExit | Pressure | Relieved


def encode(message: Message) -> bytes:
    """One record.

    Raises:
        ProtocolError: it would be longer than `LIMIT_BYTES`.
    """
    kind = _KINDS[type(message)]
    fields = {"v": VERSION, "kind": kind, **dataclasses.asdict(message)}
    if isinstance(message, Hello):
        fields["levels"] = [{**fields_of, "version": fields_of["version"].value} for fields_of in fields["levels"]]
    raw = json.dumps(fields, separators=(",", ":")).encode()
    if len(raw) > LIMIT_BYTES:
        raise ProtocolError(f"a message of {len(raw)} bytes is longer than {LIMIT_BYTES}")
    return raw


def decode(raw: bytes) -> Message | None:
    """The message of one record, or None for a kind that this release does not know.

    Raises:
        VersionError: another major version.
        ProtocolError: anything else that is no message.
    """
    try:
        fields = json.loads(raw)
    except (ValueError, RecursionError) as exc:
        raise ProtocolError("the message is not JSON") from exc
    if not isinstance(fields, dict) or type(fields.get("v")) is not int:  # true is no version
        raise ProtocolError("the message has no version")
    if fields["v"] != VERSION:
        raise VersionError(f"this side speaks version {VERSION} of the protocol, the other one {str(fields['v'])[:20]}")
    read = _DECODERS.get(_text(fields, "kind", _NAME_LENGTH))
    return None if read is None else read(fields)


def cut_name(name: str) -> str:
    """A model's name that fits a `Hello`."""
    return name[:_NAME_LENGTH]


def cut_command(command: str) -> str:
    """A command line that fits a `Hello`."""
    return command[:_COMMAND_LENGTH]


def _hello(fields: Mapping[str, Any]) -> Hello:
    try:
        role = Role(_text(fields, "role", _NAME_LENGTH))
    except ValueError as exc:
        raise ProtocolError("the role is neither guard nor runner") from exc
    parent = fields.get("parent_session")
    return Hello(
        name=_line(fields, "name"),
        life=_life(fields),
        parent_session=None if parent is None else _text(fields, "parent_session", _NAME_LENGTH),
        command=_text(fields, "command", _COMMAND_LENGTH),
        role=role,
        levels=tuple(_level(item) for item in _list(fields, "levels", MOST_LEVELS)),
        hidden_ancestors=fields.get("hidden_ancestors") is not False,
        descriptors=tuple(
            _text({"descriptors": item}, "descriptors", _NAME_LENGTH)
            for item in _list(fields, "descriptors", MOST_DESCRIPTORS)
        ),
    )


def _level(item: object) -> LevelNote:
    if not isinstance(item, dict):
        raise ProtocolError("a level is no object")
    from guard.kernel.values import CgroupVersion  # only the sidecar reads levels; its import is dear to a guard

    try:
        version = CgroupVersion(_number(item, "version"))
    except ValueError as exc:
        raise ProtocolError("a level has no cgroup version that this side knows") from exc
    return LevelNote(_text(item, "name", _TEXT_LENGTH), version, _number(item, "depth", MOST_LEVELS))


def _life(fields: Mapping[str, Any]) -> LifeId:
    found = fields.get("life")
    if not isinstance(found, dict):
        raise ProtocolError("life is no object")
    return LifeId(
        boot_id=_text(found, "boot_id", _NAME_LENGTH),
        pid=_number(found, "pid"),
        start_ticks=_number(found, "start_ticks"),
        session=_text(found, "session", _NAME_LENGTH),
    )


def _line(fields: Mapping[str, Any], key: str) -> str:
    text = _text(fields, key, _NAME_LENGTH)
    if text.splitlines() not in ([text], []):
        raise ProtocolError(f"{key} is more than one line")
    return text


def _text(fields: Mapping[str, Any], key: str, longest: int) -> str:
    found = fields.get(key)
    if not isinstance(found, str) or len(found) > longest:
        raise ProtocolError(f"{key} is no text of at most {longest} characters")
    return found


def _number(fields: Mapping[str, Any], key: str, most: int = _MOST_NUMBER) -> int:
    found = fields.get(key)
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found <= most:
        raise ProtocolError(f"{key} is no whole number from 0 to {most}")
    return found


def _difference(fields: Mapping[str, Any], key: str) -> int | None:
    found = fields.get(key)
    if found is not None and (not isinstance(found, int) or isinstance(found, bool) or abs(found) > _MOST_NUMBER):
        raise ProtocolError(f"{key} is no difference of bytes")
    return found


def _relieved(fields: Mapping[str, Any]) -> Relieved:
    return Relieved(
        action=_text(fields, "action", _NAME_LENGTH),
        level=_text(fields, "level", _NAME_LENGTH),
        seconds=_seconds(fields, "seconds"),
        anon_freed_bytes=_difference(fields, "anon_freed_bytes"),
        cgroup_freed_bytes=_difference(fields, "cgroup_freed_bytes"),
        gpu_freed_bytes=_difference(fields, "gpu_freed_bytes"),
        said=_text(fields, "said", _NAME_LENGTH),
    )


def _child_exit(fields: Mapping[str, Any]) -> ChildExit:
    wall, monotonic = (
        None if fields.get(key) is None else _seconds(fields, key) for key in ("sigterm_wall_s", "sigterm_monotonic_s")
    )
    return ChildExit(_life(fields), _number(fields, "wait_status", 0xFFFF), wall, monotonic)


def _seconds(fields: Mapping[str, Any], key: str) -> float:
    found = fields.get(key)
    if not isinstance(found, int | float) or isinstance(found, bool) or not 0 <= found <= _MOST_NUMBER:
        raise ProtocolError(f"{key} is no time in seconds")
    return float(found)


def _list(fields: Mapping[str, Any], key: str, most: int) -> list[object]:
    found = fields.get(key)
    if not isinstance(found, list) or len(found) > most:
        raise ProtocolError(f"{key} is no list of at most {most} items")
    return found


_KINDS: Final[Mapping[type, str]] = {
    Hello: "hello",
    Welcome: "welcome",
    Refused: "refused",
    ChildExit: "child_exit",
    Pressure: "pressure",
    Relieved: "relieved",
}
_DECODERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Message]]] = {
    "hello": _hello,
    "welcome": lambda fields: Welcome(_text(fields, "release", _NAME_LENGTH)),
    "refused": lambda fields: Refused(_text(fields, "reason", _TEXT_LENGTH)),
    "child_exit": _child_exit,
    "pressure": lambda fields: Pressure(_text(fields, "level", _NAME_LENGTH), _text(fields, "reason", _TEXT_LENGTH)),
    "relieved": _relieved,
}
