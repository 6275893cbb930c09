"""What a process leaves in the shared directory: its black box, the note of its end, the trace of a native fault. IO.

Everything here reads a volume that may hang or be full of strange files: it belongs into a thread, and what is no such
file, or damaged, is as good as absent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from guard.box import end_note, faults
from guard.box import format as box_format
from guard.box.end_note import EndNote
from guard.box.faults import NativeFault
from guard.box.prune import FAULTS_SUFFIX
from guard.box.reader import parse_box
from guard.kernel.reader import Reader
from guard.model import BoxState, Known, LifeId, Reading, Unknown, Why

BOX_SUFFIX: Final = ".box"
_MOST_FILES: Final = 256  # of each kind a scan; a box is 64 KiB


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What one process left. `note` None: none by now."""

    note: EndNote | None
    box: Reading[BoxState]
    fault: Reading[NativeFault]


def left_by(directory: str, life: LifeId) -> Left:
    """Read what a process has left by now."""
    box = Reader().read(f"{directory}/{life.session}{BOX_SUFFIX}", box_format.SIZE)
    state = box if isinstance(box, Unknown) else parse_box(box.value, f"{life.session}{BOX_SUFFIX}")
    if isinstance(state, Known) and state.value.life.session != life.session:
        state = Unknown(Why.MALFORMED, "black box", detail="it lies under the name of another")
    return Left(note=note_of(directory, life), box=state, fault=fault_of(directory, life.session))


def note_of(directory: str, life: LifeId) -> EndNote | None:
    """Find the note of its end: by session, or as one of the same process, whose runner may have another session."""
    own = _note(Reader(), directory, life.session + end_note.SUFFIX)
    others = () if own is not None or not life.pid else scan_notes(directory)
    return own or next((one for one in others if _is_same_process(one.life, life)), None)


def fault_of(directory: str, session: str) -> Reading[NativeFault]:
    """Read the trace of a native fault beside its box."""
    name = session + FAULTS_SUFFIX
    data = Reader().read(f"{directory}/{name}", faults.LIMIT_BYTES)
    return data if isinstance(data, Unknown) else faults.parse_faults(data.value, name)


def scan_notes(directory: str) -> list[EndNote]:
    """Read the end notes there are."""
    reader = Reader()
    found = (_note(reader, directory, name) for name in names(reader, directory, end_note.SUFFIX))
    return [note for note in found if note is not None]


def names(reader: Reader, directory: str, suffix: str) -> list[str]:
    """Name the files of one kind."""
    every = reader.listdir(directory)
    return [] if isinstance(every, Unknown) else [name for name in every.value if name.endswith(suffix)][:_MOST_FILES]


def _note(reader: Reader, directory: str, name: str) -> EndNote | None:
    data = reader.read(f"{directory}/{name}", end_note.LIMIT_BYTES)
    note = data if isinstance(data, Unknown) else end_note.parse(data.value, name)
    return note.value if isinstance(note, Known) and name == note.value.life.session + end_note.SUFFIX else None


def _is_same_process(one: LifeId, other: LifeId) -> bool:
    return (one.boot_id, one.pid, one.start_ticks) == (other.boot_id, other.pid, other.start_ticks)
