"""What the record keeps of one tick: a compact row on one clock, from which a cause can be read afterwards.

Absent keys were unknown at that tick; no key is ever 0 for unknown. No limit is the word "unlimited". A row is made at
every tick and stored once a second: each key costs CPU and a share of the 64 MiB.
"""

from __future__ import annotations

from collections.abc import Mapping

from guard.kernel.headroom import unreclaimable_bytes
from guard.kernel.values import Psi
from guard.model import Known, Limit, Reading, Unlimited
from sidecar.health.values import Judgement
from sidecar.outputs.shape import Json
from sidecar.outputs.status import in_flight
from sidecar.sample import (
    GpuCard,
    GpuMemory,
    GpuProcess,
    LevelSample,
    NodeSample,
    ProcessSample,
    Sample,
)


def row(sample: Sample, judgement: Judgement | None) -> dict[str, Json]:
    """One tick: clocks, state, levels (own first), node, processes, probe, operations in flight."""
    kept: dict[str, Json] = {
        "wall_s": round(sample.at.wall_s, 3),
        "monotonic_s": round(sample.at.monotonic_s, 3),
        "sight": sample.sight.value,
        "levels": [_level(level) for level in sample.levels],
        "node": _node(sample.node),
        "processes": [_process(process) for process in sample.processes],
    }
    if sample.hidden_ancestors:
        kept["hidden_ancestors"] = True
    if isinstance(sample.gpu, Known):
        kept["gpus"] = [_gpu(card) for card in sample.gpu.value.cards]
    if judgement is not None:
        kept |= {"state": judgement.state.value, "live": judgement.live, "ready": judgement.ready}
    if isinstance(sample.probe, Known):
        probe = sample.probe.value
        kept["probe"] = {
            "started_monotonic_s": round(probe.started.monotonic_s, 3),
            "latency_seconds": round(probe.latency_seconds, 4),
            "outcome": probe.outcome.value,
        }
    if sample.probe_in_flight_since is not None:
        kept["probe_in_flight_since_monotonic_s"] = round(sample.probe_in_flight_since.monotonic_s, 3)
    works = in_flight(sample)
    if works:
        kept["operations"] = [
            _known(
                kind=work.kind.value,
                label=work.label,
                file=work.file,
                item=work.item,
                bytes_done=work.bytes_done,
                bytes_expected=work.bytes_expected,
            )
            for work in works
        ]
    return kept


def _known(**values: Json) -> dict[str, Json]:
    return {key: value for key, value in values.items() if value is not None}


def _number(reading: Reading[int] | Reading[Limit]) -> Json:
    """A reading as a JSON value; None, which `_known` drops, where it is unknown."""
    if not isinstance(reading, Known):
        return None
    return "unlimited" if isinstance(reading.value, Unlimited) else reading.value


def _table(reading: Reading[Mapping[str, int]], names: tuple[str, ...]) -> dict[str, Json]:
    if not isinstance(reading, Known):
        return {}
    return {name: reading.value[name] for name in names if name in reading.value}


def _psi(reading: Reading[Psi]) -> Json:
    """Total stall times in microseconds, some and full."""
    if not isinstance(reading, Known):
        return None
    full = reading.value.full
    return _known(some_us=reading.value.some.total_us, full_us=None if full is None else full.total_us)


_STAT = (
    *("anon", "file", "shmem", "file_mapped", "file_dirty", "unevictable", "kernel"),
    *("total_rss", "total_cache", "total_shmem", "total_mapped_file", "total_unevictable"),
    *("pgmajfault", "workingset_refault_file", "workingset_refault_anon", "pgscan", "pgsteal", "total_pgmajfault"),
)


_SAME = "same"  # as `events`: at a level without children, which the own level is nearly always


def _level(level: LevelSample) -> Json:
    memory = level.memory
    events = memory.events.value if isinstance(memory.events, Known) else None
    local = memory.events_local.value if isinstance(memory.events_local, Known) else None
    control = memory.oom_control.value if isinstance(memory.oom_control, Known) else None
    return _known(
        name=level.name,
        version=memory.version.value,
        gone=level.gone or None,
        current=_number(memory.current_bytes),
        peak=_number(memory.peak_bytes),
        unreclaimable=_number(unreclaimable_bytes(memory)),
        max=_number(memory.max_bytes),
        high=_number(memory.high_bytes),
        swap_current=_number(memory.swap_current_bytes),
        swap_max=_number(memory.swap_max_bytes),
        memsw_current=_number(memory.memsw_current_bytes),
        memsw_max=_number(memory.memsw_limit_bytes),
        events=None if events is None else dict(events),
        events_local=None if local is None else _SAME if local == events else dict(local),
        failcnt=_number(memory.failcnt),
        oom_kill=control.oom_kill if control else None,
        stat=_table(memory.stat, _STAT) or None,
        memory_psi=_psi(memory.memory_pressure),
        io_psi=_psi(memory.io_pressure),
    )


def _gpu(card: GpuCard) -> Json:
    xids = card.xids.value if isinstance(card.xids, Known) else ()
    slices = card.slices.value if isinstance(card.slices, Known) else ()
    return _known(
        index=card.index,
        uuid=_text(card.uuid),
        lost=True if isinstance(card.lost, Known) and card.lost.value else None,
        load=card.load.value.compute_ratio if isinstance(card.load, Known) else None,
        xids={str(xid.code): xid.count for xid in xids} or None,
        slices=[_known(index=one.index, uuid=_text(one.uuid), **_gpu_use(one.memory, one.processes)) for one in slices]
        or None,
        **_gpu_use(card.memory, card.processes),
    )


def _gpu_use(memory: Reading[GpuMemory], processes: Reading[tuple[GpuProcess, ...]]) -> dict[str, Json]:
    found = memory.value if isinstance(memory, Known) else None
    held = processes.value if isinstance(processes, Known) else ()
    return {
        "used": None if found is None else found.used_bytes,
        "free": None if found is None else found.free_bytes,
        "processes": {str(one.pid): _number(one.used_bytes) for one in held} or None,
    }


def _text(reading: Reading[str]) -> Json:
    return reading.value if isinstance(reading, Known) else None


_MEMINFO = ("MemTotal", "MemAvailable", "MemFree", "SwapFree")


def _node(node: NodeSample) -> Json:
    return {
        **_table(node.meminfo, _MEMINFO),
        **_table(node.vmstat, ("oom_kill",)),
        **_known(
            memory_psi=_psi(node.memory_pressure),
            io_psi=_psi(node.io_pressure),
            cpu_psi=_psi(node.cpu_pressure),
        ),
    }


def _process(process: ProcessSample) -> Json:
    status = process.status.value if isinstance(process.status, Known) else None
    stat = process.stat.value if isinstance(process.stat, Known) else None
    kept: dict[str, Json] = {"pid": process.life.pid, "main": process.main, "alive": process.alive}
    if status is not None:
        sizes = _known(anon=status.rss_anon_bytes, file=status.rss_file_bytes, shmem=status.rss_shmem_bytes)
        kept |= {"rss": sizes} | _known(swap=status.vm_swap_bytes)
    if stat is not None:
        kept |= {"majflt": stat.majflt, "cpu_ticks": stat.utime_ticks + stat.stime_ticks}
    return kept
