"""Black boxes that lie around: when their process counts as ended, and when."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from guard.box import end_note
from guard.box.end_note import EndNote
from guard.box.reader import parse_box
from guard.box.writer import BoxAbout, BoxWriter
from guard.kernel import identity
from guard.kernel.reader import Reader
from guard.model import Known, LifeId, OperationKind, Unknown
from sidecar.begun import Begun
from sidecar.boxes import GRACE_SECONDS, Accounts, Boxes, Found, last_sign, scan
from sidecar.leavings import Left, scan_notes
from sidecar.verdict.classify import classify
from sidecar.verdict.values import EndClass, EndEvidence, WaitStatus
from tests.sidecar.clocks import SteppedClock, VirtualClock
from tests.sidecar.hubs import make_hub
from tests.sidecar.making import at


class Ledger:
    """Who lives, what is recorded, and what was found to have ended."""

    def __init__(self) -> None:
        self.in_sight: set[str] = set()
        self.recorded: set[str] = set()
        self.ended: list[EndEvidence] = []
        self.names: list[str | None] = []
        self.begun: list[Begun] = []
        self.known: dict[str, list[Left]] = {}

    def end(self, name: str | None, evidence: EndEvidence) -> None:
        """Record an end."""
        self.names.append(name)
        self.recorded.add(evidence.life.session)
        self.ended.append(evidence)

    def find(self, life: LifeId, _name: str | None, left: Left) -> bool:
        """Hear what was left by a process, whose end may be known."""
        if life.session not in self.known:
            return False
        self.known[life.session].append(left)
        return True


@asynccontextmanager
async def looking(tmp_path: Path, clock: VirtualClock, ledger: Ledger, *, boot: str = "boot") -> AsyncIterator[Boxes]:
    """Look through the directory in virtual time."""
    hub = make_hub(tmp_path, clock, boot=boot)
    await hub.recorder.load()
    accounts = Accounts(
        in_sight=lambda: ledger.in_sight,
        recorded=ledger.recorded,
        ended=ledger.end,
        found=ledger.find,
        begun=lambda: ledger.begun,
    )
    boxes = Boxes(hub, accounts)
    task = asyncio.create_task(boxes.run())
    try:
        yield boxes
    finally:
        task.cancel()
        await asyncio.wait({task})
        await hub.recorder.close()


def files(tmp_path: Path) -> list[str]:
    """Name the boxes that lie there."""
    return [path.name for path in (tmp_path / "boxes").glob("*.box")]


def box(tmp_path: Path, session: str, *, boot: str = "boot") -> BoxWriter:
    """Make the box of a process."""
    life = LifeId(boot, os.getpid(), 1, session)
    return BoxWriter.create(str(tmp_path / "boxes"), life, BoxAbout(None, "1", "serve.py", "server"))


async def test_a_box_whose_lock_is_free_is_of_an_ended_process(tmp_path: Path) -> None:
    """A killed process, which left no mark, is told of at the first look, under its model's name; its file goes."""
    clock, ledger = SteppedClock(), Ledger()
    box(tmp_path, "killed").close()
    async with looking(tmp_path, clock, ledger):
        await clock.step()
    assert [evidence.life.session for evidence in ledger.ended] == ["killed"]
    assert ledger.names == ["server"]
    assert files(tmp_path) == []


async def test_a_process_that_holds_its_lock_lives(tmp_path: Path) -> None:
    """A box that nobody hands over is left alone while its lock is held, however long nothing moves in it."""
    clock, ledger, writer = SteppedClock(), Ledger(), box(tmp_path, "silent")
    async with looking(tmp_path, clock, ledger):
        while sum(clock.slept) < 3 * GRACE_SECONDS:
            await clock.step()
    assert ledger.ended == []
    assert files(tmp_path) == ["silent.box"]
    writer.close()


async def test_an_end_that_is_noticed_otherwise_is_left_to_that(tmp_path: Path) -> None:
    """While the end of a process in sight is being looked into, its box is not taken for an orphan's."""
    clock, ledger = SteppedClock(), Ledger()
    box(tmp_path, "seen").close()
    ledger.in_sight.add("seen")
    async with looking(tmp_path, clock, ledger):
        await clock.step()
        assert ledger.ended == []
        assert files(tmp_path) == ["seen.box"]
        ledger.recorded.add("seen")
        await clock.step()
    assert files(tmp_path) == []


async def test_without_locks_a_minute_of_silence_is_an_end(tmp_path: Path) -> None:
    """Where the volume has no locks a box counts as ended a minute after the last thing that moved in it."""
    clock, ledger, writer = SteppedClock(), Ledger(), box(tmp_path, "unlocked")

    def found() -> Found:
        (one,) = scan(str(tmp_path / "boxes"))
        return replace(one, held=None)

    async with looking(tmp_path, clock, ledger) as boxes:
        assert not boxes._has_ended(found(), set())
        clock.at_s += GRACE_SECONDS - 1
        writer.beat("loop")
        assert not boxes._has_ended(found(), set())
        clock.at_s += GRACE_SECONDS - 1
        assert not boxes._has_ended(found(), set())
        clock.at_s += 1
        assert boxes._has_ended(found(), set())
    writer.close()


async def test_another_boot_and_an_exit_mark_are_ends_at_once(tmp_path: Path) -> None:
    """Nobody waits for a process of another boot, or for one that said it exits."""
    clock, ledger = SteppedClock(), Ledger()
    old, left = box(tmp_path, "old", boot="before"), box(tmp_path, "left")
    left.exit(3)
    async with looking(tmp_path, clock, ledger):
        await clock.step()
    assert {evidence.life.session for evidence in ledger.ended} == {"old", "left"}
    assert files(tmp_path) == []
    old.close()
    left.close()


async def test_where_the_boot_is_not_known_none_is_another(tmp_path: Path) -> None:
    """A sidecar that cannot read the boot's id takes no living process for one of an earlier boot."""
    clock, ledger, writer = SteppedClock(), Ledger(), box(tmp_path, "living")
    async with looking(tmp_path, clock, ledger, boot=""):
        await clock.step()
        await clock.step()
    assert ledger.ended == []
    assert files(tmp_path) == ["living.box"]
    writer.close()


async def test_a_recorded_end_is_not_told_again(tmp_path: Path) -> None:
    """Only the file is still to be removed."""
    clock, ledger, writer = SteppedClock(), Ledger(), box(tmp_path, "known")
    ledger.recorded.add("known")
    async with looking(tmp_path, clock, ledger):
        await clock.step()
    assert ledger.ended == []
    assert files(tmp_path) == []
    writer.close()


def test_only_whole_boxes_under_their_own_name_are_found(tmp_path: Path) -> None:
    """Strange files, pipes, damage and a box under another name are left alone."""
    writer = box(tmp_path, "good")
    boxes = tmp_path / "boxes"
    (boxes / "cut.box").write_bytes(Path(writer.path).read_bytes()[:100])
    (boxes / "renamed.box").write_bytes(Path(writer.path).read_bytes())
    (boxes / "notes.txt").write_text("x")
    os.mkfifo(boxes / "pipe.box")
    assert [found.state.life.session for found in scan(str(boxes))] == ["good"]
    assert scan(str(tmp_path / "absent")) == []
    writer.close()


def test_the_last_sign_of_life_is_the_latest_thing_in_the_box(tmp_path: Path) -> None:
    """The end is put at the last moment that the box knows of, and never into the future."""
    writer = box(tmp_path, "s")
    writer.begin(OperationKind.LOAD, "torch.load")
    state = parse_box(Path(writer.path).read_bytes(), "box")
    assert isinstance(state, Known)
    operation = state.value.operations[0]
    now = at(operation.updated_monotonic_s + 50, wall=state.value.created_wall_s + 50)
    assert abs(last_sign(state.value, now).monotonic_s - operation.updated_monotonic_s) < 1
    assert last_sign(state.value, at(1, wall=5.0)).wall_s == 5.0
    writer.close()


def note(tmp_path: Path, session: str, status: int, *, boot: str = "boot") -> None:
    """Leave the note of an end, as `oomguard run` does."""
    (tmp_path / "boxes").mkdir(exist_ok=True)
    end = EndNote(
        life=LifeId(boot, os.getpid(), 1, session),
        name="server",
        command="serve.py",
        wait_status=status,
        at_wall_s=1000.0,
        at_monotonic_s=1.0,
    )
    end_note.write(str(tmp_path / "boxes"), end)


def notes(tmp_path: Path) -> list[str]:
    """Name the notes that lie there."""
    return [path.name for path in (tmp_path / "boxes").glob("*.end")]


async def test_a_note_alone_tells_of_an_end_with_its_status(tmp_path: Path) -> None:
    """A server without a black box that ended unseen is told of by name, with its exact status; the note goes."""
    clock, ledger = SteppedClock(), Ledger()
    note(tmp_path, "plain", 3 << 8)
    async with looking(tmp_path, clock, ledger):
        await clock.step()
    (evidence,) = ledger.ended
    assert (ledger.names, evidence.main) == (["server"], True)
    assert evidence.wait_status == Known(WaitStatus(exit_code=3, signal=None))
    assert notes(tmp_path) == []


async def test_a_note_and_a_box_of_one_process_are_one_end(tmp_path: Path) -> None:
    """The box tells what it was doing, the note how it ended, although the box's lock may still be held."""
    clock, ledger, writer = SteppedClock(), Ledger(), box(tmp_path, "both")
    note(tmp_path, "both", 9)
    async with looking(tmp_path, clock, ledger):
        await clock.step()
    (evidence,) = ledger.ended
    assert evidence.wait_status == Known(WaitStatus(exit_code=None, signal=9))
    assert isinstance(evidence.box, Known)
    assert (notes(tmp_path), files(tmp_path)) == ([], [])
    writer.close()


async def test_a_note_of_an_end_that_is_known_or_being_looked_into_makes_none(tmp_path: Path) -> None:
    """It stays while the end is being looked into, and goes once that is recorded."""
    clock, ledger = SteppedClock(), Ledger()
    note(tmp_path, "seen", 9)
    ledger.in_sight.add("seen")
    async with looking(tmp_path, clock, ledger):
        await clock.step()
        assert notes(tmp_path) == ["seen.end"]
        ledger.recorded.add("seen")
        await clock.step()
    assert (ledger.ended, notes(tmp_path)) == ([], [])


def test_only_notes_under_their_own_name_are_read(tmp_path: Path) -> None:
    """Damage, another version, strange values and another name are left alone."""
    note(tmp_path, "good", 9)
    boxes = tmp_path / "boxes"
    raw = (boxes / "good.end").read_bytes()
    (boxes / "renamed.end").write_bytes(raw)
    for number, bad in enumerate([raw[:50], b"[]", b"[" * 4000, raw.replace(b'"v": 1', b'"v": 2')]):
        (boxes / f"bad{number}.end").write_bytes(bad.replace(b"good", b"bad%d" % number))
    (boxes / "status.end").write_bytes(
        raw.replace(b"good", b"status").replace(b'"wait_status": 9', b'"wait_status": -1')
    )
    os.mkfifo(boxes / "pipe.end")
    assert [found.life.session for found in scan_notes(str(boxes))] == ["good"]


def test_only_the_newest_notes_stay(tmp_path: Path) -> None:
    """A server that crashes for ever beside no sidecar does not fill the volume."""
    for number in range(end_note.KEPT + 5):
        note(tmp_path, f"{number:03d}", 9)
        os.utime(tmp_path / "boxes" / f"{number:03d}.end", (number, number))
    note(tmp_path, "last", 9)
    assert len(notes(tmp_path)) == end_note.KEPT
    assert "last.end" in notes(tmp_path)
    assert "000.end" not in notes(tmp_path)


async def test_a_life_that_left_nothing_is_closed_after_a_minute(tmp_path: Path) -> None:
    """What the record saw begin, and nobody hands over again, has ended; nobody can say how. It is told once."""
    clock, ledger = SteppedClock(), Ledger()
    ledger.begun.append(Begun("server", LifeId("boot", 2**22, 1, "lost"), 1000.0))
    async with looking(tmp_path, clock, ledger):
        while sum(clock.slept) < GRACE_SECONDS:
            assert ledger.ended == []
            await clock.step()
        await clock.step()
        await clock.step()
    (evidence,) = ledger.ended
    assert (ledger.names, evidence.life.session) == (["server"], "lost")
    assert isinstance(evidence.wait_status, Unknown)
    assert classify(evidence).end_class is EndClass.UNKNOWN


async def test_a_life_that_shows_itself_otherwise_is_not_closed(tmp_path: Path) -> None:
    """A box that is there speaks for its process, and a process that /proc shows lives, however silent."""
    clock, ledger, writer = SteppedClock(), Ledger(), box(tmp_path, "boxed")
    for session, pid, ticks in (("boxed", 2**22, 1), ("frozen", os.getpid(), _own_ticks())):
        ledger.begun.append(Begun("server", LifeId("boot", pid, ticks, session), 1000.0))
    async with looking(tmp_path, clock, ledger):
        while sum(clock.slept) < 2 * GRACE_SECONDS:
            await clock.step()
    assert ledger.ended == []
    writer.close()


def _own_ticks() -> int:
    ticks = identity.start_ticks(Reader())
    assert isinstance(ticks, Known)
    return ticks.value
