"""Readers of one tick on real files: levels, processes, node, kernel log, exit status."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from guard.box.writer import BoxAbout, BoxWriter
from guard.kernel.reader import KeptFile, Reader
from guard.kernel.values import CgroupVersion, KmsgRecord
from guard.model import UNLIMITED, Known, LifeId, OperationKind, Unknown, Why
from sidecar.collect import exit_status, node_pid
from sidecar.collect.cgroup import LevelReader
from sidecar.collect.kmsg import KernelLog, Lag
from sidecar.collect.model import ModelReader
from sidecar.collect.node import NodeReader, counter
from sidecar.collect.processes import ProcessReader
from sidecar.sample import LevelId, SightKind
from sidecar.sight.seen import SeenLevel, SeenModel, SeenProcess
from sidecar.verdict.values import WaitStatus
from tests.sidecar.clocks import VirtualClock
from tests.sidecar.trees import build

MIB = 1 << 20


class LevelFiles:
    """A v2 level made of plain files that can be rewritten."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write(anon=10 * MIB, limit="104857600", peak=1)
        reader = Reader()
        kept = {path.name: reader.keep(str(path)) for path in folder.iterdir()}
        files = {name: file for name, file in kept.items() if isinstance(file, KeptFile)}
        self.seen = SeenLevel(id=LevelId(1, 2), name="/m", depth=0, version=CgroupVersion.V2, files=files)

    def write(self, *, anon: int, limit: str, peak: int, kills: int = 0) -> None:
        """Print the files."""
        build(
            self.folder,
            {
                "memory.current": f"{anon}\n",
                "memory.max": f"{limit}\n",
                "memory.high": "max\n",
                "memory.peak": f"{peak}\n",
                "memory.stat": f"anon {anon}\nshmem 0\n",
                "memory.events": f"oom_kill {kills}\n",
            },
        )

    def close(self) -> None:
        """Close the descriptors."""
        for file in self.seen.files.values():
            file.close()


@pytest.fixture
def files(tmp_path: Path) -> Iterator[LevelFiles]:
    """One level."""
    level = LevelFiles(tmp_path)
    yield level
    level.close()


def test_a_lean_read_renews_what_headroom_and_kills_are_made_of(files: LevelFiles) -> None:
    """Between full reads memory, limit and kill counter move; the rest keeps its value."""
    reader = LevelReader(files.seen, hidden_ancestors=False)
    reader.read(full=True)
    files.write(anon=20 * MIB, limit="209715200", peak=99, kills=1)
    lean = reader.read(full=False).memory
    assert lean.max_bytes == Known(200 * MIB)
    assert lean.events == Known({"oom_kill": 1})
    assert lean.peak_bytes == Known(1)
    assert reader.read(full=True).memory.peak_bytes == Known(99)


def test_a_glance_tells_the_room_from_memory_stat_alone(files: LevelFiles) -> None:
    """Growth shows in the room at once."""
    reader = LevelReader(files.seen, hidden_ancestors=False)
    reader.read(full=True)
    assert reader.glance() == Known(90 * MIB)
    files.write(anon=60 * MIB, limit="104857600", peak=1)
    assert reader.glance() == Known(40 * MIB)


def test_a_glance_passes_over_memory_stat_while_usage_does_not_grow(files: LevelFiles) -> None:
    """What was seen at the last look stands until usage has grown by more than the kernel charges ahead."""
    reader = LevelReader(files.seen, hidden_ancestors=False)
    reader.read(full=True)
    stat = files.folder / "memory.stat"
    stat.write_text(f"anon {40 * MIB}\nshmem 0\n")
    (files.folder / "memory.current").write_text(f"{10 * MIB + 4096}\n")
    assert reader.glance() == Known(90 * MIB)
    (files.folder / "memory.current").write_text(f"{11 * MIB}\n")
    assert reader.glance() == Known(60 * MIB)


def test_a_glance_looks_each_time_where_usage_stands_at_a_limit(files: LevelFiles) -> None:
    """There page cache can make place for memory that reclaim cannot take, and usage would not tell."""
    files.write(anon=10 * MIB, limit="104857600", peak=1)
    (files.folder / "memory.current").write_text(f"{99 * MIB}\n")
    reader = LevelReader(files.seen, hidden_ancestors=False)
    reader.read(full=True)
    (files.folder / "memory.stat").write_text(f"anon {40 * MIB}\nshmem 0\n")
    assert reader.glance() == Known(60 * MIB)


def test_a_glance_without_usage_looks_each_time(files: LevelFiles) -> None:
    """A usage file that cannot be read saves nothing and hides nothing."""
    reader = LevelReader(files.seen, hidden_ancestors=False)
    reader.read(full=True)
    (files.folder / "memory.current").write_text("odd\n")
    (files.folder / "memory.stat").write_text(f"anon {40 * MIB}\nshmem 0\n")
    assert reader.glance() == Known(60 * MIB)


def test_a_level_without_a_limit_is_left_alone_between_full_reads(files: LevelFiles) -> None:
    """There is no room to watch, so the last full reading stands."""
    files.write(anon=MIB, limit="max", peak=1)
    reader = LevelReader(files.seen, hidden_ancestors=False)
    first = reader.read(full=True)
    files.write(anon=50 * MIB, limit="max", peak=1)
    assert reader.read(full=False) is first
    assert reader.glance() == Known(UNLIMITED)


def test_a_file_that_fails_is_unknown_and_comes_back(files: LevelFiles) -> None:
    """A cut file in the middle of a run is malformed for that tick, never an old or a zero value."""
    reader = LevelReader(files.seen, hidden_ancestors=False)
    reader.read(full=True)
    (files.folder / "memory.stat").write_bytes(b"anon 1")
    broken = reader.read(full=False).memory.stat
    assert isinstance(broken, Unknown)
    assert broken.why is Why.MALFORMED
    files.write(anon=MIB, limit="104857600", peak=1)
    assert reader.read(full=False).memory.stat == Known({"anon": MIB, "shmem": 0})


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A real process that waits."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def see(pid: int, *, session: str = "s", pidfd: int | None = None, parent: str | None = None) -> SeenProcess:
    """Open the files of a process."""
    reader = Reader()
    kept = {name: reader.keep(f"/proc/{pid}/{name}") for name in ("status", "stat", "io")}
    return SeenProcess(
        life=LifeId("b", pid, pid, session),
        parent_session=parent,
        command="",
        uid=None,
        pidfd=pidfd,
        files={name: file for name, file in kept.items() if isinstance(file, KeptFile)},
        box=None,
    )


def close(process: SeenProcess) -> None:
    """Close the files of a process."""
    for file in process.files.values():
        file.close()
    if process.box is not None:
        process.box.close()


def test_a_process_keeps_its_last_readings_after_its_end(child: subprocess.Popen[bytes]) -> None:
    """After the reap /proc says ESRCH; the sample shows the last values and that it is dead."""
    seen = see(child.pid)
    reader = ProcessReader(seen)
    before = reader.read(full=True)
    assert before.alive
    assert isinstance(before.status, Known)
    child.kill()
    child.wait()
    after = reader.read(full=True)
    assert not after.alive
    assert (after.status, after.stat, after.io) == (before.status, before.stat, before.io)
    close(seen)


def test_a_lean_look_at_a_process_sees_a_load_begin_but_waits_with_beats(tmp_path: Path) -> None:
    """Operations matter at once, tokens once a second."""
    life = LifeId("b", os.getpid(), 1, "session1")
    box = BoxWriter.create(str(tmp_path), life, BoxAbout(None, "1", "test"))
    seen = see(os.getpid())
    kept = Reader().keep(box.path)
    assert isinstance(kept, KeptFile)
    seen.box = kept
    reader = ProcessReader(seen)
    first = reader.read(full=True)
    box.beat("loop")
    assert reader.read(full=False) is first
    box.begin(OperationKind.LOAD, "torch.load", file="/w", bytes_expected=5)
    lean = reader.read(full=False)
    assert isinstance(lean.box, Known)
    assert [operation.label for operation in lean.box.value.operations] == ["torch.load"]
    full = reader.read(full=True)
    assert isinstance(full.box, Known)
    assert [(beat.name, beat.count) for beat in full.box.value.beats] == [("loop", 1)]
    box.remove()
    close(seen)


def lives(*processes: tuple[int, str, str | None]) -> list[SeenProcess]:
    """Processes by start, session and parent's session, without files."""
    return [
        SeenProcess(
            life=LifeId("b", start, start, session),
            parent_session=parent,
            command="",
            uid=None,
            pidfd=None,
            files={},
            box=None,
        )
        for start, session, parent in processes
    ]


def test_the_oldest_process_is_main_whoever_came_first() -> None:
    """A worker that hands over before its parent gives way to it."""
    seen = SeenModel(name="m", kind=SightKind.HANDOVER, levels=(), hidden_ancestors=False)
    reader = ModelReader(seen)
    for process, main in zip(lives((20, "worker", "server"), (10, "server", None)), ("worker", "server"), strict=True):
        seen.processes.append(process)
        reader.join()
        assert reader.main is not None
        assert reader.main.seen.life.session == main


def test_a_late_child_of_a_dead_main_process_is_no_new_life() -> None:
    """Only a stranger that joins after the end begins the next life."""
    seen = SeenModel(name="m", kind=SightKind.HANDOVER, levels=(), hidden_ancestors=False)
    reader = ModelReader(seen)
    seen.processes += lives((10, "server", None))
    reader.join()
    assert reader.main is not None
    reader.main.alive = False
    seen.processes += lives((30, "orphan", "server"))
    reader.join()
    assert reader.main.seen.life.session == "server"
    seen.processes += lives((40, "next", None))
    reader.join()
    assert reader.main.seen.life.session == "next"


def test_node_values_are_read_and_a_missing_file_is_unknown(tmp_path: Path) -> None:
    """What there is is parsed, what there is not says so."""
    tree = {"proc/meminfo": "MemTotal: 4 kB\n", "proc/vmstat": "oom_kill 3\n"}
    node = NodeReader(Reader(str(build(tmp_path, tree))))
    sample = node.read()
    assert counter(sample.meminfo, "MemTotal") == Known(4096)
    assert node.oom_kills() == Known(3)
    assert isinstance(sample.memory_pressure, Unknown)
    assert sample.memory_pressure.why is Why.MISSING
    assert not node.lxcfs
    node.close()


def test_lxcfs_is_noticed(tmp_path: Path) -> None:
    """A fuse mount over /proc/meminfo is named: it shows the container as if it were the node."""
    mounts = "50 30 0:40 /proc/meminfo /proc/meminfo rw - fuse.lxcfs lxcfs rw\n"
    node = NodeReader(Reader(str(build(tmp_path, {"proc/self/mountinfo": mounts}))))
    assert node.lxcfs
    node.close()


async def test_the_kernel_log_that_cannot_be_opened_is_unknown(tmp_path: Path) -> None:
    """Without the device there is a reason instead of an empty list."""
    log = KernelLog(Reader(str(tmp_path)), VirtualClock())
    log.start()
    found = log.since(0)
    assert isinstance(found, Unknown)
    assert found.why is Why.MISSING
    log.close()


async def test_the_kernel_log_gives_records_by_when_they_came(tmp_path: Path) -> None:
    """Old records have the kernel's stamp, later ones the time at which they were read here.

    A FIFO stands in for the device: it can be polled and gives what was written at once in one read.
    """
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    clock = VirtualClock()
    log = KernelLog(Reader(), clock, str(path))
    with path.open("wb", buffering=0) as device:
        device.write(b"6,1,2000000,-;old\n")
        log.start()
        assert [record.text for record in _records(log, 0)] == ["old"]
        assert _records(log, 3) == []
        device.write(b"6,2,1,-;new\n")
        clock.at_s += 5
        assert [record.text for record in _records(log, 1000)] == ["new"]
        log.close()


def test_a_record_that_is_read_late_keeps_its_time() -> None:
    """Stamps of a clock that is off by 7 s are put right; a reader that stood still for 4 s changes nothing."""
    lag = Lag()
    assert lag.put_right(100.0, 107.0) == 107.0
    assert lag.put_right(110.0, 121.0) == pytest.approx(117.0, abs=0.01)
    assert lag.put_right(120.0, 126.999) == 126.999
    assert lag.put_right(130.0, 237.0) == 237.0  # a clock has jumped


@pytest.fixture
def living() -> Iterator[int]:
    """The pidfd of a real child that lives."""
    child = subprocess.Popen(["sleep", "60"])
    pidfd = os.pidfd_open(child.pid)
    yield pidfd
    child.kill()
    child.wait()
    os.close(pidfd)


def test_the_pid_of_the_kernel_log(living: int) -> None:
    """In the initial namespace the pidfd tells the pid, anywhere else and without one nobody can."""
    info = Path(f"/proc/self/fdinfo/{living}").read_text().split("Pid:")[1].split()[0]
    reader = Reader()
    assert node_pid.of(reader, living) == (int(info) if node_pid.is_initial(reader) else None)
    assert node_pid.of(reader, None) is None


def test_a_process_that_is_reaped_has_no_pid(tmp_path: Path) -> None:
    """The kernel writes -1 for it, and 0 for one of a namespace that is not below ours."""
    inode = build(tmp_path, {"proc/self/ns/pid": ""})
    assert node_pid.is_initial(Reader(str(inode))) is False
    gone = subprocess.Popen(["true"])
    pidfd = os.pidfd_open(gone.pid)
    gone.wait()
    assert node_pid.of(Reader(), pidfd) is None
    os.close(pidfd)


def _records(log: KernelLog, since_s: float) -> list[KmsgRecord]:
    found = log.since(since_s)
    assert isinstance(found, Known)
    return list(found.value)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (0, WaitStatus(exit_code=0, signal=None)),
        (3 << 8, WaitStatus(exit_code=3, signal=None)),
        (signal.SIGKILL, WaitStatus(exit_code=None, signal=9)),
        (signal.SIGSEGV | 0x80, WaitStatus(exit_code=None, signal=11, core_dumped=True)),
    ],
)
def test_raw_wait_statuses(raw: int, expected: WaitStatus) -> None:
    """A status of wait(2) is an exit code or a signal, never both."""
    assert exit_status.from_raw(raw) == expected


def test_a_pidfd_of_a_living_process_has_no_status_yet(child: subprocess.Popen[bytes]) -> None:
    """The answer says that asking again may help, or that this kernel never tells."""
    pidfd = os.pidfd_open(child.pid)
    found = exit_status.from_pidfd(pidfd)
    os.close(pidfd)
    assert isinstance(found, Unknown)
    assert found.why in {Why.NOT_SAMPLED, Why.UNSUPPORTED}


def test_a_descriptor_that_is_no_pidfd_is_unknown(tmp_path: Path) -> None:
    """A wrong descriptor gives a reason, no exception."""
    with (tmp_path / "x").open("wb") as file:
        assert isinstance(exit_status.from_pidfd(file.fileno()), Unknown)
