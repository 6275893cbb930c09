"""Verdicts that are judged anew, what is kept of them, and when an end is counted."""

from __future__ import annotations

import asyncio
import json
import os
import select
import sqlite3
from pathlib import Path

import pytest

from guard.box import end_note
from guard.box.end_note import EndNote
from guard.model import Known, LifeId, Unknown
from sidecar.collect import exit_status
from sidecar.leavings import left_by
from sidecar.outputs.record_store import EVIDENCE_KEPT
from sidecar.refining import LOOKS_SECONDS
from sidecar.sight.seen import SeenProcess
from sidecar.verdict.supervisor_values import SupervisorWordKind as Kind
from sidecar.verdict.values import Confidence, EndClass, EndEvidence
from tests.sidecar.clocks import SteppedClock, VirtualClock
from tests.sidecar.eventually import eventually
from tests.sidecar.making import at
from tests.sidecar.refinements import desk, end, told
from tests.sidecar.verdict.ending import KILLED, OWN_OOM, ended

LAST_PAUSE_SECONDS = LOOKS_SECONDS[-1] - LOOKS_SECONDS[-2]


async def test_a_later_word_refines_the_same_incident(tmp_path: Path) -> None:
    """It keeps its id, says what was thought before and why no longer, and an event tells of it."""
    async with desk(tmp_path) as one:
        first = one.publish(end(wait_status=KILLED))
        assert (first.verdict.end_class, first.history) == (EndClass.EXTERNAL_KILL, ())
        assert one.endings.refine("llm", told(Kind.EVICTION))
        now = one.only()
        assert (now.id, now.verdict.end_class, now.verdict.confidence) == (first.id, EndClass.EVICTION, Confidence.HIGH)
        assert [judged.end_class for judged in now.history] == [EndClass.EXTERNAL_KILL, EndClass.EVICTION]
        assert now.history[1].because == "Kubernetes API told of it"
        assert len(one.refined()) == 1


async def test_the_same_word_again_changes_nothing_and_more_of_it_does(tmp_path: Path) -> None:
    """A supervisor that is watched says the same thing many times; what it says more of one end joins it."""
    async with desk(tmp_path) as one:
        one.publish(end(wait_status=KILLED))
        for _ in range(3):
            assert one.endings.refine("llm", told(None, reason="Error"))
        assert one.refined() == []
        assert one.only().verdict.fields["supervisor_reason"] == "Error"
        assert one.endings.refine("llm", told(Kind.LIVENESS_KILL, reason="Error"))
        assert one.endings.refine("llm", told(None, reason="Error"))
        assert one.only().verdict.end_class is EndClass.HEALTH_CHECK
        assert len(one.only().history) == 2


async def test_a_word_that_comes_before_the_end_waits_for_it(tmp_path: Path) -> None:
    """A supervisor says that it stops a container before that ends: the first verdict knows it."""
    async with desk(tmp_path) as one:
        assert not one.endings.refine("llm", told(Kind.DELETION, None))
        other = one.publish(end("other", wait_status=KILLED), "other")
        assert other.verdict.end_class is EndClass.EXTERNAL_KILL
        incident = one.publish(end(after=45.0, wait_status=KILLED))
        assert (incident.verdict.end_class, incident.history) == (EndClass.DELETION, ())
        assert one.publish(end("next", after=46.0)).verdict.end_class is EndClass.UNKNOWN


async def test_each_word_finds_its_end(tmp_path: Path) -> None:
    """In a crash loop each word goes to the nearest end that its supervisor has not told of; a stale one to none."""
    async with desk(tmp_path) as one:
        for number in range(3):
            one.publish(end(f"s{number}", after=10.0 * number))
        for code, finished in ((3, 1021.0), (2, 1011.0), (1, 1001.0)):
            assert one.endings.refine("llm", told(None, finished, exit_code=code))
        codes = {incident.id: incident.verdict.fields["exit_code"] for incident in one.hub.board.incidents()}
        assert codes == {"s0": 1, "s1": 2, "s2": 3}
        assert not one.endings.refine("llm", told(None, 1500.0, exit_code=9))
        assert not one.endings.refine("nobody", told(None, 1001.0, exit_code=9))


async def test_a_gpu_that_is_read_late(tmp_path: Path) -> None:
    """An Xid that is told seconds after the end, or shortly before it, is evidence; one of long ago is none."""
    async with desk(tmp_path) as one:
        fields = {"gpu": 0, "uuid": None, "code": 79, "count": 1}
        one.hub.journal.say(at(500.0), "", "gpu_xid", "GPU 0: Xid 79", {**fields, "code": 48})
        incident = one.publish(end(wait_status=ended(1)))
        assert incident.verdict.end_class is EndClass.APPLICATION_EXIT
        one.hub.journal.say(at(1002.0), "", "gpu_xid", "GPU 0: Xid 79", fields)
        assert one.only().verdict.end_class is EndClass.DEVICE_RESET
        assert one.only().history[1].because == "a GPU failed"
        assert one.publish(end("s2", after=3.0, wait_status=ended(1))).verdict.end_class is EndClass.DEVICE_RESET


def _note(folder: Path, session: str, status: int) -> None:
    (folder / "boxes").mkdir(exist_ok=True)
    life = LifeId("boot", 100, 5000, session)
    note = EndNote(life=life, name="llm", command="x", wait_status=status, at_wall_s=1000.5, at_monotonic_s=1000.5)
    end_note.write(str(folder / "boxes"), note)


@pytest.mark.parametrize("session", ["s1", "runner's"])
async def test_a_note_that_comes_late_is_looked_for(tmp_path: Path, session: str) -> None:
    """The runner was starved and noted the end a second late, under a session of its own: its status refines."""
    clock = SteppedClock()
    async with desk(tmp_path, clock) as one:
        one.publish(end())
        _note(tmp_path, session, 3 << 8)
        await clock.step()
        assert one.only().verdict.fields["exit_code"] == 3
        assert one.only().history[1].because == "how it ended became known"


def _zombie() -> tuple[int, int]:
    child = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 3"], {})
    pidfd = os.pidfd_open(child)
    assert select.select([pidfd], [], [], 30)[0]
    return child, pidfd


def _reaped(child: int, pidfd: int) -> object:
    os.waitpid(child, 0)
    return exit_status.from_pidfd(pidfd)


@pytest.mark.parametrize("main", [True, False])
async def test_an_end_whose_parent_reaps_late_is_known_then(tmp_path: Path, main: bool) -> None:  # noqa: FBT001 - a case
    """A zombie tells nobody how it ended; once its parent has reaped it, the kernel tells who holds its pidfd.

    What was seen of a child is closed by then.
    """
    clock = SteppedClock()
    child, pidfd = _zombie()
    try:
        life = LifeId("boot", 100, 5000, "s1")
        fields = {"parent_session": None, "command": "sh", "uid": 0, "files": {}, "box": None}
        process = SeenProcess(life=life, pidfd=pidfd, **fields)
        async with desk(tmp_path, clock) as one:
            one.endings.publish("llm", end(main=main, others_alive=0 if main else 1), process=process)
            assert one.only().verdict.end_class is EndClass.UNKNOWN
            if not main:
                process.pidfd = None
            if isinstance(_reaped(child, pidfd), Unknown):
                pytest.skip("needs kernel 6.15")
            await clock.step()
            assert one.only().verdict.fields["exit_code"] == 3
    finally:
        os.close(pidfd)


async def test_what_lies_there_of_a_known_end_makes_no_second_one(tmp_path: Path) -> None:
    """A note of the same process under another session belongs to its end; that of another process to none."""
    async with desk(tmp_path) as one:
        one.publish(end())
        life = LifeId("boot", 100, 5000, "runner's")
        _note(tmp_path, life.session, 9)
        assert one.refining.found(life, "llm", left_by(str(tmp_path / "boxes"), life))
        assert one.only().verdict.fields["signal"] == "SIGKILL"
        stranger = LifeId("boot", 100, 5001, "stranger")
        assert not one.refining.found(stranger, "llm", left_by(str(tmp_path / "boxes"), stranger))


async def test_a_server_that_followed_its_worker_names_that(tmp_path: Path) -> None:
    """Whichever of the two is judged first, the exit of the server points to the end of its worker."""

    def worker(session: str, after: float) -> EndEvidence:
        return end(session, after, main=False, wait_status=KILLED, levels=OWN_OOM, node_oom_kill_delta=Known(1))

    async with desk(tmp_path) as one:
        one.publish(worker("worker", 0.0))
        server = one.publish(end("server", after=0.5, wait_status=ended(1)))
        assert (server.verdict.end_class, server.history) == (EndClass.APPLICATION_EXIT, ())
        assert "0.50 s after a process of it was killed for memory" in server.verdict.summary
        assert "worker" in server.verdict.next_steps[0]
        one.publish(end("server2", after=2.0, wait_status=ended(1)), "other")
        one.publish(worker("worker2", 1.9), "other")
        late = next(incident for incident in one.hub.board.incidents() if incident.id == "server2")
        assert any(said.source == "incident worker2" for said in late.verdict.statements)
        assert len(late.history) == 2
        alone = one.publish(end("alone", after=70.0, wait_status=ended(1)))
        assert not any(said.source.startswith("incident") for said in alone.verdict.statements)


async def test_an_end_is_counted_once_its_verdict_has_settled(tmp_path: Path) -> None:
    """Not under the first guess, not before, and never again, whatever is found out later."""
    clock = SteppedClock()
    async with desk(tmp_path, clock) as one:
        one.publish(end(wait_status=KILLED))
        await clock.step()
        assert one.past.ends_of("llm") == {}
        one.endings.refine("llm", told(Kind.LIVENESS_KILL))
        await clock.step()
        await clock.let_go()
        await eventually(lambda: one.past.ends_of("llm"), "the end to be counted")
        assert one.past.ends_of("llm") == {"health_check": 1}
        one.endings.refine("llm", told(Kind.EVICTION))
        assert one.past.ends_of("llm") == {"health_check": 1}
        assert (one.only().verdict.end_class, one.only().counted_as) == (EndClass.EVICTION, EndClass.HEALTH_CHECK)
        await one.hub.recorder.flush()
    assert _counters(tmp_path) == {"health_check": 1}


def _counters(folder: Path) -> dict[str, int]:
    with sqlite3.connect(folder / "record.sqlite") as record:
        return dict(record.execute("SELECT cause, count FROM counters WHERE model='llm'").fetchall())


async def test_the_next_sidecar_goes_on_where_the_last_one_died(tmp_path: Path) -> None:
    """It knows the evidence, so a later word refines the same incident, and it counts what was not counted."""
    async with desk(tmp_path) as one:
        one.publish(end(wait_status=KILLED))
        one.publish(end("child", main=False, wait_status=KILLED))
        await one.hub.recorder.flush()
    assert _counters(tmp_path) == {}
    async with desk(tmp_path, VirtualClock()) as two:
        assert two.endings.refine("llm", told(Kind.EVICTION))
        await eventually(lambda: two.past.ends_of("llm"), "the end to be counted")
        await two.hub.recorder.flush()
        assert two.past.ends_of("llm") == {"eviction": 1}
    async with desk(tmp_path) as three:
        incident = next(one for one in three.hub.board.incidents() if one.main)
        assert [judged.end_class for judged in incident.history] == [EndClass.EXTERNAL_KILL, EndClass.EVICTION]
        assert incident.counted_as is EndClass.EVICTION
        assert three.past.ends_of("llm") == {"eviction": 1}
    assert _counters(tmp_path) == {"eviction": 1}


async def test_only_the_newest_ends_are_held(tmp_path: Path) -> None:
    """A crash loop fills neither memory nor record; who has no place any more is counted soon."""
    async with desk(tmp_path) as one:
        for number in range(EVIDENCE_KEPT + 5):
            one.publish(end(f"s{number}", after=float(number), wait_status=KILLED))
            one.publish(end(f"worker{number}", after=float(number), main=False, wait_status=KILLED))
        expected = {"external_kill": EVIDENCE_KEPT + 5 - 8}
        await eventually(lambda: one.past.ends_of("llm") == expected, "those without a place to be counted")
        await one.hub.recorder.flush()
    with sqlite3.connect(tmp_path / "record.sqlite") as record:
        (kept,) = record.execute("SELECT count(*) FROM evidence").fetchone()
    assert kept == EVIDENCE_KEPT


async def test_a_burst_of_ends_loses_no_note(tmp_path: Path) -> None:
    """Who has no place any more before its runner's note was looked for is looked at once more, then counted."""
    async with desk(tmp_path) as one:
        for number in range(12):
            _note(tmp_path, f"s{number}", 3 << 8)
            one.publish(end(f"s{number}", after=float(number)))
        await eventually(lambda: one.past.ends_of("llm"), "those without a place to be counted")
        await eventually(lambda: one.past.ends_of("llm").get("application_exit") == 4, "all four to be counted")
        assert one.past.ends_of("llm") == {"application_exit": 4}
        codes = {incident.id: incident.verdict.fields.get("exit_code") for incident in one.hub.board.incidents()}
        assert [codes[f"s{number}"] for number in range(4)] == [3, 3, 3, 3]


async def test_an_end_that_nobody_has_told_of_outstays_those_that_are_known(tmp_path: Path) -> None:
    """The note of the oldest may be about to come; of the others it is known how they ended."""
    async with desk(tmp_path) as one:
        one.publish(end("waits"))
        for number in range(12):
            one.publish(end(f"s{number}", after=float(number), wait_status=KILLED))
        life = LifeId("boot", 100, 5000, "waits")
        _note(tmp_path, "waits", 3 << 8)
        assert one.refining.found(life, "llm", left_by(str(tmp_path / "boxes"), life))
        waits = next(incident for incident in one.hub.board.incidents() if incident.id == "waits")
        assert waits.verdict.end_class is EndClass.APPLICATION_EXIT


async def test_an_end_that_loses_its_place_while_it_is_looked_at_is_counted_once(tmp_path: Path) -> None:
    """The last look and the one for want of room meet: one count on the board and in the record, and both stay."""
    clock = VirtualClock()
    async with desk(tmp_path, clock) as one:
        one.publish(end("first", wait_status=KILLED))
        while LAST_PAUSE_SECONDS not in clock.slept:  # noqa: ASYNC110 - each turn of the loop counts
            await asyncio.sleep(0)
        await asyncio.sleep(0)  # now it reads, in a thread
        for number in range(9):
            one.publish(end(f"s{number}", after=float(number), wait_status=KILLED))
        await eventually(lambda: sum(one.past.ends_of("llm").values()) >= 10, "all ten to be counted")
        await eventually(lambda: all(incident.counted_as for incident in one.hub.board.incidents()), "all to say so")
        await one.hub.recorder.flush()
        assert one.past.ends_of("llm") == {"external_kill": 10}
    assert _counters(tmp_path) == {"external_kill": 10}


async def test_evidence_that_somebody_spoilt_is_none(tmp_path: Path) -> None:
    """Whoever shares the directory can write the record: what is no evidence is passed over, and the start goes on."""
    async with desk(tmp_path) as one:
        for number in range(4):
            one.publish(end(f"s{number}"))
        await one.hub.recorder.flush()
    with sqlite3.connect(tmp_path / "record.sqlite") as record:
        for number, bad in enumerate((b"", b"\x78\x9c", json.dumps({"life": 1}).encode())):
            record.execute("UPDATE evidence SET packed=? WHERE id=?", (bad, f"s{number}"))
        record.execute("UPDATE evidence SET packed=7 WHERE id='s3'")
    async with desk(tmp_path) as two:
        assert len(two.hub.board.incidents()) == 4
        assert not two.endings.refine("llm", told(Kind.EVICTION))
        assert two.past.ends_of("llm") == {"unknown": 4}
