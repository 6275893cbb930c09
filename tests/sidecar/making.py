"""Samples for the pure core, made from kernel files in the kernel's own print, through the real parsers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from guard.kernel import memcg
from guard.kernel.values import CgroupVersion, MemoryLevel, ProcIo, ProcStat, ProcStatus
from guard.model import Beat, BoxState, Known, LifeId, Operation, OperationKind, Reading, Unknown, Why
from sidecar.health.values import NO_PROBE
from sidecar.sample import Instant, LevelId, LevelSample, NodeSample, ProbeResult, ProcessSample, Sample, SightKind

MIB = 1 << 20
LIFE = LifeId("boot", 100, 5000, "s1")
NOT_SAMPLED = Unknown(Why.NOT_SAMPLED, "test")


def psi(some_us: int, full_us: int) -> bytes:
    """Print a pressure file."""
    head = "avg10=0.00 avg60=0.00 avg300=0.00 total="
    return f"some {head}{some_us}\nfull {head}{full_us}\n".encode()


def table(lines: Mapping[str, int]) -> bytes:
    """Print a flat keyed file."""
    return "".join(f"{name} {value}\n" for name, value in lines.items()).encode()


def line(value: object) -> bytes:
    """Print a file of one value."""
    return f"{value}\n".encode()


def at(seconds: float, *, wall: float | None = None) -> Instant:
    """Make an instant; the wall clock runs along unless given."""
    return Instant(seconds, 1.7e9 + seconds if wall is None else wall)


@dataclass(frozen=True, kw_only=True)
class V2:
    """A v2 level: sizes in bytes, counters raw."""

    anon: int = 0
    cache: int = 0
    dirty: int = 0
    shmem: int = 0
    limit: str = "max"
    high: str = "max"
    swap_max: str = "0"
    refaults: int = 0
    majfaults: int = 0
    events: Mapping[str, int] = field(default_factory=dict)
    local: Mapping[str, int] = field(default_factory=dict)
    memory_us: tuple[int, int] | None = (0, 0)
    io_us: tuple[int, int] | None = (0, 0)

    def memory(self) -> MemoryLevel:
        """Print the files and parse them."""
        return memcg.parse_level(CgroupVersion.V2, {name: Known(data) for name, data in self._files().items()})

    def _files(self) -> dict[str, bytes]:
        stat = {
            "anon": self.anon,
            "file": self.cache + self.shmem,
            "kernel": 0,
            "sock": 0,
            "shmem": self.shmem,
            "file_dirty": self.dirty,
            "file_writeback": 0,
            "inactive_anon": self.anon + self.shmem,
            "active_anon": 0,
            "unevictable": 0,
            "slab_reclaimable": 0,
            "workingset_refault_anon": 0,
            "workingset_refault_file": self.refaults,
            "pgmajfault": self.majfaults,
            "pgscan": 0,
        }
        zero = dict.fromkeys(("low", "high", "max", "oom", "oom_kill", "oom_group_kill"), 0)
        files = {
            "memory.current": line(self.anon + self.cache + self.shmem),
            "memory.max": line(self.limit),
            "memory.high": line(self.high),
            "memory.swap.max": line(self.swap_max),
            "memory.swap.current": line(0),
            "memory.stat": table(stat),
            "memory.events": table({**zero, **self.events}),
            "memory.events.local": table({**zero, **self.local}),
        }
        if self.memory_us is not None:
            files["memory.pressure"] = psi(*self.memory_us)
        if self.io_us is not None:
            files["io.pressure"] = psi(*self.io_us)
        return files


@dataclass(frozen=True, kw_only=True)
class V1:
    """A v1 level: sizes in bytes, counters raw. Pressure files only where a v2 tree lies beside."""

    rss: int = 0
    cache: int = 0
    limit: int = 9223372036854771712
    failcnt: int = 0
    oom_kill: int = 0
    under_oom: int = 0
    oom_kill_disable: int = 0
    refaults: int = 0
    majfaults: int = 0
    memory_us: tuple[int, int] | None = None

    def memory(self) -> MemoryLevel:
        """Print the files and parse them."""
        lines = {
            "cache": self.cache,
            "rss": self.rss,
            "shmem": 0,
            "dirty": 0,
            "writeback": 0,
            "workingset_refault_file": self.refaults,
            "pgmajfault": self.majfaults,
            "inactive_anon": self.rss,
            "active_anon": 0,
            "unevictable": 0,
        }
        stat = {**lines, **{f"total_{name}": value for name, value in lines.items()}}
        control = {
            "oom_kill_disable": self.oom_kill_disable,
            "under_oom": self.under_oom,
            "oom_kill": self.oom_kill,
        }
        files = {
            "memory.usage_in_bytes": line(self.rss + self.cache),
            "memory.limit_in_bytes": line(self.limit),
            "memory.stat": table(stat),
            "memory.failcnt": line(self.failcnt),
            "memory.oom_control": table(control),
            "memory.kmem.usage_in_bytes": line(0),
        }
        if self.memory_us is not None:
            files["memory.pressure"] = psi(*self.memory_us)
        return memcg.parse_level(CgroupVersion.V1, {name: Known(data) for name, data in files.items()})


def level(made: V2 | V1, *, depth: int = 0, name: str | None = None, inode: int | None = None) -> LevelSample:
    """Make a level's sample; each depth is another cgroup."""
    found = ("/pod/model", "/pod", "/")[depth] if name is None else name
    return LevelSample(
        id=LevelId(1, depth + 10 if inode is None else inode), name=found, depth=depth, memory=made.memory()
    )


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a process has consumed, and what its black box says."""

    life: LifeId = LIFE
    main: bool = True
    alive: bool = True
    cpu_ticks: int = 0
    majflt: int = 0
    rss: int = 50 * MIB
    read_bytes: int = 0
    box: bool = False
    beats: Mapping[str, int] = field(default_factory=dict)
    operations: tuple[Operation, ...] = ()

    def sample(self) -> ProcessSample:
        """Make the process's sample."""
        box: Reading[BoxState] = Unknown(Why.MISSING, "black box")
        if self.box or self.beats or self.operations:
            box = Known(
                BoxState(
                    life=self.life,
                    parent_session=None,
                    release="1",
                    created_wall_s=0.0,
                    command="serve",
                    operations=self.operations,
                    beats=tuple(Beat(name=n, count=c, at_monotonic_s=0.0) for n, c in self.beats.items()),
                )
            )
        return ProcessSample(
            life=self.life,
            main=self.main,
            alive=self.alive,
            status=Known(_status(self.life.pid, self.rss)),
            stat=Known(_stat(self)),
            io=Known(ProcIo(0, 0, 0, 0, self.read_bytes, 0)),
            box=box,
        )


def _status(pid: int, rss: int) -> ProcStatus:
    return ProcStatus(
        name="serve",
        state="S",
        pid=pid,
        ppid=1,
        ns_pids=(pid,),
        uid=0,
        threads=4,
        vm_rss_bytes=rss,
        rss_anon_bytes=rss,
        rss_file_bytes=0,
        rss_shmem_bytes=0,
        vm_swap_bytes=0,
    )


def _stat(work: Work) -> ProcStat:
    return ProcStat(
        pid=work.life.pid,
        comm="serve",
        state="S",
        ppid=1,
        minflt=0,
        majflt=work.majflt,
        utime_ticks=work.cpu_ticks,
        stime_ticks=0,
        num_threads=4,
        starttime_ticks=work.life.start_ticks,
        delayacct_blkio_ticks=None,
    )


def load(label: str, expected: int | None, *, done: int | None = None, started: float = 0.0) -> Operation:
    """Make a load in flight."""
    return Operation(
        kind=OperationKind.LOAD,
        label=label,
        file="model.safetensors",
        item="layer.0",
        bytes_done=done,
        bytes_expected=expected,
        started_monotonic_s=started,
        updated_monotonic_s=started,
    )


def sample(
    seconds: float, *levels: LevelSample, work: Work | None = None, probe: Reading[ProbeResult] = NO_PROBE
) -> Sample:
    """Make a sample with no swap on the node."""
    node = NodeSample(
        meminfo=Known({"SwapFree": 0, "MemTotal": 1 << 35, "MemAvailable": 1 << 34}),
        vmstat=NOT_SAMPLED,
        memory_pressure=NOT_SAMPLED,
        io_pressure=NOT_SAMPLED,
        cpu_pressure=NOT_SAMPLED,
    )
    return Sample(
        at=at(seconds),
        model="m",
        sight=SightKind.HANDOVER,
        hidden_ancestors=False,
        levels=levels,
        processes=((Work() if work is None else work).sample(),),
        node=node,
        probe=probe,
    )
