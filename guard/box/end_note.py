"""A note that `oomguard run` leaves of every end, for the sidecar that did not hear of it: how its server ended.

`boxes/SESSION.end` in the shared directory, JSON of at most 4 KiB: `v`, `life`, `name`, `command`, `wait_status` (as
wait(2) gave it), `at_wall_s`, `at_monotonic_s`; when the first SIGTERM was passed on to it, `sigterm_wall_s` and
`sigterm_monotonic_s` (null or absent: none was); and the kernel's counter of kills in the cgroup that runner and server
are in, before the start and at the end, `oom_kills_before` and `oom_kills_after` (null or absent: not known). The
sidecar removes it once the end is recorded; without a sidecar the newest `KEPT` stay.
"""

# ruff: noqa: PTH105, PTH108, PTH118 - pathlib is memory that the runner does not need

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from dataclasses import dataclass
from typing import Final

from guard.box.folder import make_folder
from guard.model import Known, LifeId, Reading, Unknown, Why

SUFFIX: Final = ".end"
LIMIT_BYTES: Final = 4096
KEPT: Final = 64
VERSION: Final = 1
_MODE: Final = 0o644
_TEXT_LENGTH: Final = 256
_MOST_STATUS: Final = 0xFFFF
_MOST_NUMBER: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EndNote:
    """How one process ended. Both times are of the same moment, right after its parent reaped it."""

    life: LifeId
    name: str  # of the model
    command: str
    wait_status: int
    at_wall_s: float
    at_monotonic_s: float
    sigterm_wall_s: float | None = None  # of the first SIGTERM that was passed on to it
    sigterm_monotonic_s: float | None = None
    oom_kills_before: int | None = None  # of the runner's own cgroup, before the start; None: not known
    oom_kills_after: int | None = None  # at the end


def write(directory: str, note: EndNote) -> None:
    """Leave a note, whole or not at all, and remove the oldest beyond `KEPT`.

    Raises:
        OSError: it cannot be written there; nothing is left behind.
    """
    make_folder(directory)
    short = dataclasses.replace(note, name=note.name[:_TEXT_LENGTH], command=note.command[:_TEXT_LENGTH])
    said = {"v": VERSION, **dataclasses.asdict(short)}
    raw = json.dumps(said, ensure_ascii=False).encode("utf-8", "surrogatepass")  # escaped, two emojis take 24 bytes
    path = os.path.join(directory, note.life.session + SUFFIX)
    temporary = os.path.join(directory, f".{note.life.session}{SUFFIX}.new")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, _MODE)
    try:
        with open(fd, "wb") as file:  # noqa: PTH123 - a descriptor
            os.fchmod(fd, _MODE)
            file.write(raw)
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise
    _prune(directory)


def parse(raw: bytes, where: str) -> Reading[EndNote]:
    """Read a note. Total: what is not one is MALFORMED."""
    try:
        fields = json.loads(raw)
        life = fields["life"]
        note = EndNote(
            life=LifeId(
                boot_id=_text(life["boot_id"]),
                pid=_number(life["pid"]),
                start_ticks=_number(life["start_ticks"]),
                session=_text(life["session"]),
            ),
            name=_text(fields["name"]),
            command=_text(fields["command"]),
            wait_status=_number(fields["wait_status"], _MOST_STATUS),
            at_wall_s=_seconds(fields["at_wall_s"]),
            at_monotonic_s=_seconds(fields["at_monotonic_s"]),
            sigterm_wall_s=_seconds_or_none(fields.get("sigterm_wall_s")),
            sigterm_monotonic_s=_seconds_or_none(fields.get("sigterm_monotonic_s")),
            oom_kills_before=_number_or_none(fields.get("oom_kills_before")),
            oom_kills_after=_number_or_none(fields.get("oom_kills_after")),
        )
    except (ValueError, TypeError, KeyError, RecursionError) as exc:
        return Unknown(Why.MALFORMED, where, detail=str(exc)[:_TEXT_LENGTH])
    if fields.get("v") != VERSION:
        return Unknown(Why.UNSUPPORTED, where, detail="an end note of another version")
    return Known(note)


def _text(found: object) -> str:
    if not isinstance(found, str) or len(found) > _TEXT_LENGTH:
        raise ValueError("not a text of at most 256 characters")
    return found


def _number(found: object, most: int = _MOST_NUMBER) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found <= most:
        raise ValueError(f"not a whole number from 0 to {most}")
    return found


def _seconds(found: object) -> float:
    if not isinstance(found, int | float) or isinstance(found, bool) or not 0 <= found <= _MOST_NUMBER:
        raise ValueError("not a time")
    return float(found)


def _number_or_none(found: object) -> int | None:
    return None if found is None else _number(found)


def _seconds_or_none(found: object) -> float | None:
    return None if found is None else _seconds(found)


def _prune(directory: str) -> None:
    """Remove the oldest notes; another user's stays where the folder is sticky."""
    aged = []
    for entry in os.scandir(directory):
        if entry.name.endswith(SUFFIX):
            with contextlib.suppress(OSError):  # removed meanwhile
                aged.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
    for _, path in sorted(aged)[:-KEPT]:
        with contextlib.suppress(OSError):
            os.unlink(path)
