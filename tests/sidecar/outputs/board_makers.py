"""Boards for the tests of the outputs: values as the tick would put them, from real file contents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from guard.kernel import memcg, psi
from guard.kernel.values import CgroupVersion, ProcStatus
from guard.model import BoxState, Known, LifeId, Operation, OperationKind, Reading, Unknown, Why
from sidecar.board import Board, Event, Incident, ModelView, OwnView
from sidecar.detect.values import CannotTell, Finding, Quiet, Severity
from sidecar.health.values import Judgement, State
from sidecar.outputs.shape import pack
from sidecar.sample import (
    Instant,
    LevelId,
    LevelSample,
    NodeSample,
    ProbeOutcome,
    ProbeResult,
    ProcessSample,
    Sample,
    SightKind,
)
from sidecar.verdict.values import Confidence, EndClass, Statement, Verdict

NOW = Instant(1000.0, 1_760_000_000.0)
DENIED = Unknown(Why.DENIED, "/proc/vmstat", 13)
PSI = b"some avg10=1.00 avg60=2.00 avg300=3.00 total=1500000\nfull avg10=0.50 avg60=0.20 avg300=0.10 total=500000\n"
V2_FILES = {
    "memory.current": b"104857600\n",
    "memory.peak": b"204857600\n",
    "memory.max": b"268435456\n",
    "memory.high": b"max\n",
    "memory.swap.current": b"0\n",
    "memory.swap.max": b"0\n",
    "memory.stat": (
        b"anon 52428800\nfile 41943040\nkernel 4194304\nshmem 1048576\nfile_mapped 4096\nfile_dirty 0\n"
        b"file_writeback 0\nunevictable 0\ninactive_anon 52428800\nactive_anon 1048576\ninactive_file 20971520\n"
        b"active_file 20971520\nslab_reclaimable 1048576\nslab_unreclaimable 1048576\nslab 2097152\n"
        b"workingset_refault_anon 3\nworkingset_refault_file 77\npgscan 9000\npgsteal 8000\npgmajfault 42\n"
    ),
    "memory.events": b"low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\noom_group_kill 0\n",
    "memory.pressure": PSI,
    "io.pressure": PSI,
}


def level(name: str = "/pod/model", depth: int = 0, **changed: bytes) -> LevelSample:
    """A v2 level; `changed` replaces files, with "_" for "." in their names."""
    files: dict[str, bytes] = V2_FILES | {key.replace("_", "."): value for key, value in changed.items()}
    readings: Mapping[str, Reading[bytes]] = {key: Known(value) for key, value in files.items()}
    memory = memcg.parse_level(CgroupVersion.V2, readings)
    return LevelSample(id=LevelId(25, 100 + depth), name=name, depth=depth, memory=memory)


V1_FILES = {
    "memory.usage_in_bytes": b"104857600\n",
    "memory.limit_in_bytes": b"9223372036854771712\n",
    "memory.failcnt": b"5\n",
    "memory.oom_control": b"oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
    "memory.stat": (
        b"cache 0\nrss 0\nshmem 0\nmapped_file 0\npgmajfault 0\ntotal_cache 41943040\ntotal_rss 52428800\n"
        b"total_shmem 1048576\ntotal_mapped_file 4096\ntotal_pgmajfault 42\ntotal_inactive_anon 52428800\n"
        b"total_active_anon 0\ntotal_inactive_file 0\ntotal_active_file 0\ntotal_unevictable 0\n"
    ),
}


def v1_level() -> LevelSample:
    """A v1 level whose own processes hold nothing, those below it something."""
    readings: Mapping[str, Reading[bytes]] = {key: Known(value) for key, value in V1_FILES.items()}
    return LevelSample(
        id=LevelId(25, 300), name="/pod/model", depth=0, memory=memcg.parse_level(CgroupVersion.V1, readings)
    )


def node() -> NodeSample:
    """A node whose vmstat may not be read."""
    stall = psi.parse(PSI, "/proc/pressure/memory")
    return NodeSample(
        meminfo=Known({"MemTotal": 8 << 30, "MemAvailable": 4 << 30, "SwapFree": 0}),
        vmstat=DENIED,
        memory_pressure=stall,
        io_pressure=stall,
        cpu_pressure=DENIED,
    )


def life(session: str = "s1", pid: int = 7) -> LifeId:
    """A process life."""
    return LifeId("boot-1", pid, 1234, session)


def operation(done: int | None = 3 << 20, label: str = "safetensors.torch.load_file") -> Operation:
    """A load in flight."""
    return Operation(
        kind=OperationKind.LOAD,
        label=label,
        file="/models/<b>.safetensors",
        bytes_done=done,
        bytes_expected=100 << 20,
        started_monotonic_s=990.0,
        updated_monotonic_s=999.0,
    )


def process(*works: Operation) -> ProcessSample:
    """The main process, alive, with a black box."""
    status = ProcStatus(
        name="python3",
        state="S",
        pid=7,
        ppid=1,
        ns_pids=(7,),
        uid=1000,
        threads=9,
        vm_rss_bytes=60 << 20,
        rss_anon_bytes=50 << 20,
        rss_file_bytes=10 << 20,
        rss_shmem_bytes=None,
        vm_swap_bytes=0,
    )
    box = BoxState(
        life=life(), parent_session=None, release="0.1.0", created_wall_s=NOW.wall_s, command="serve", operations=works
    )
    return ProcessSample(
        life=life(), main=True, alive=True, status=Known(status), stat=DENIED, io=DENIED, box=Known(box)
    )


def sample(at: Instant = NOW, model: str = "llm") -> Sample:
    """One tick of one model: own level limited, its parent not."""
    probe = ProbeResult(started=at, latency_seconds=0.02, outcome=ProbeOutcome.OK)
    return Sample(
        at=at,
        model=model,
        sight=SightKind.HANDOVER,
        hidden_ancestors=False,
        levels=(level(), level("/pod", 1, memory_max=b"max\n")),
        processes=(process(operation()),),
        node=node(),
        probe=Known(probe),
    )


def judgement(state: State = State.OK, **changed: object) -> Judgement:
    """What the judge said; passing unless changed."""
    said = Judgement(
        at=NOW,
        state=state,
        live=True,
        ready=True,
        started=True,
        reasons=("answers in 20 ms",),
        credit_left_seconds=60.0,
    )
    return replace(said, **changed)  # type: ignore[arg-type] # keyword changes of one dataclass


def view(name: str = "llm", **changed: object) -> ModelView:
    """One model, well, with one detector of each answer."""
    finding = Finding(
        detector="time_to_limit",
        severity=Severity.WARNING,
        level="/pod/model",
        observed=12.0,
        threshold=30.0,
        unit="seconds",
        window_seconds=10.0,
        text="the limit is reached in 12 s",
    )
    made = ModelView(
        name=name,
        sample=sample(model=name),
        judgement=judgement(),
        answers=(finding, Quiet("reclaim"), CannotTell("node", (DENIED,))),
        ends={"cgroup_oom": 2},
        incidents=(),
    )
    return replace(made, **changed)  # type: ignore[arg-type] # keyword changes of one dataclass


def board(*views: ModelView, at: Instant = NOW, events: tuple[Event, ...] = ()) -> Board:
    """A board whose last tick is `at`."""
    own = OwnView(started=Instant(900.0, at.wall_s - 100), last_tick=at, tick_seconds=0.1, ticks=1000, degraded=())
    return Board(own=own, models={one.name: one for one in views}, events=events)


def event(number: int, text: str = "something", model: str = "llm") -> Event:
    """An event."""
    return Event(id=number, at=NOW, model=model, kind="state_changed", text=text, fields={"to": "slow", "n": number})


def incident(
    name: str = "i-1", model: str = "llm", *, main: bool = True, end: EndClass = EndClass.CGROUP_OOM
) -> Incident:
    """The kernel killed the model."""
    verdict = Verdict(
        end_class=end,
        confidence=Confidence.HIGH,
        summary="the kernel killed it for the limit of /pod/model",
        level="/pod/model",
        statements=(Statement(True, "oom_kill rose from 0 to 1", "memory.events of /pod/model"),),  # noqa: FBT003
        missing=("kernel log: denied",),
        next_steps=("raise the limit",),
        fields={"limit_bytes": 268435456, "file": None},
    )
    return Incident(
        id=name,
        at=NOW,
        model=model,
        life=life(name),
        main=main,
        verdict=verdict,
        verdict_after_seconds=0.12,
        last_sample=pack(sample(model=model)),
        counted_as=end if main else None,
    )


class FrozenClock:
    """A clock that stands where the test puts it."""

    def __init__(self, now: Instant = NOW) -> None:
        self.at = now

    def now(self) -> Instant:
        """Give the time."""
        return self.at

    async def sleep(self, seconds: float) -> None:
        """Move on at once."""
        self.at = Instant(self.at.monotonic_s + seconds, self.at.wall_s + seconds)
