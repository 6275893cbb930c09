"""Every metric of `/metrics`: name, kind, labels, meaning. docs/metrics.md is made from this table.

Base units, `_total` for counters, and one rule: what is not known has no series, what is unlimited is +Inf.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Kind: TypeAlias = Literal["gauge", "counter", "histogram"]


@dataclass(frozen=True, slots=True)
class Row:
    """One metric. A counter's name is shown with `_total`."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    text: str


_LEVEL: Final = ("model", "depth", "level")
_MODEL: Final = ("model",)
_GPU: Final = ("gpu", "uuid")
_GPU_PART: Final = (*_GPU, "slice")

TABLE: Final[tuple[Row, ...]] = (
    Row("oomguard_memory_current_bytes", "gauge", _LEVEL, "Memory charged to the level (memory.current)."),
    Row("oomguard_memory_peak_bytes", "gauge", _LEVEL, "Highest charge so far (memory.peak)."),
    Row("oomguard_memory_limit_bytes", "gauge", _LEVEL, "Hard limit (memory.max); +Inf is unlimited."),
    Row("oomguard_memory_high_bytes", "gauge", _LEVEL, "Throttling limit (memory.high, v2); +Inf is unlimited."),
    Row("oomguard_memory_unreclaimable_bytes", "gauge", _LEVEL, "What the kernel cannot take back from the level."),
    Row(
        "oomguard_memory_headroom_bytes", "gauge", _LEVEL, "What can still grow before the limit kills; +Inf: no limit."
    ),
    Row("oomguard_memory_swap_bytes", "gauge", _LEVEL, "Swap used by the level (memory.swap.current, v2)."),
    Row("oomguard_memory_swap_limit_bytes", "gauge", _LEVEL, "Swap limit (memory.swap.max, v2); +Inf is unlimited."),
    Row("oomguard_memory_kind_bytes", "gauge", (*_LEVEL, "kind"), "Charged memory by kind, from memory.stat."),
    Row("oomguard_memory_events", "counter", (*_LEVEL, "event"), "memory.events by name; v1: failcnt."),
    Row("oomguard_oom_kills", "counter", _LEVEL, "Processes that the kernel killed for this level or below it."),
    Row("oomguard_refaults", "counter", (*_LEVEL, "kind"), "Pages read again soon after they were reclaimed."),
    Row("oomguard_major_faults", "counter", _LEVEL, "Page faults that had to read from disk."),
    Row("oomguard_scanned_pages", "counter", _LEVEL, "Pages that reclaim looked at (pgscan)."),
    Row("oomguard_reclaimed_pages", "counter", _LEVEL, "Pages that reclaim took (pgsteal)."),
    Row("oomguard_pressure_stall_seconds", "counter", (*_LEVEL, "resource", "kind"), "PSI stall time of the level."),
    Row("oomguard_node_memory_available_bytes", "gauge", (), "MemAvailable of the node."),
    Row("oomguard_node_memory_total_bytes", "gauge", (), "MemTotal of the node."),
    Row("oomguard_node_swap_free_bytes", "gauge", (), "SwapFree of the node."),
    Row("oomguard_node_oom_kills", "counter", (), "oom_kill of /proc/vmstat: kills on the node, of cgroups as well."),
    Row("oomguard_node_pressure_stall_seconds", "counter", ("resource", "kind"), "PSI stall time of the node."),
    Row("oomguard_gpu_memory_total_bytes", "gauge", _GPU_PART, "Memory of the card, or of a MIG slice of it."),
    Row("oomguard_gpu_memory_used_bytes", "gauge", _GPU_PART, "Memory in use, without what the driver reserves."),
    Row("oomguard_gpu_memory_free_bytes", "gauge", _GPU_PART, "Memory that is free."),
    Row("oomguard_gpu_memory_reserved_bytes", "gauge", _GPU_PART, "Memory that the driver keeps for itself."),
    Row("oomguard_gpu_process_used_bytes", "gauge", (*_GPU_PART, "pid"), "Memory of a process, by its host pid."),
    Row("oomguard_gpu_load_ratio", "gauge", (*_GPU, "kind"), "Share of time that kernels ran, or memory was accessed."),
    Row("oomguard_gpu_temperature_celsius", "gauge", _GPU, "Temperature of the card."),
    Row("oomguard_gpu_lost", "gauge", _GPU, "1 where the card does not answer on the bus any more."),
    Row("oomguard_gpu_xids", "counter", (*_GPU, "code"), "Xid errors since the sidecar began to listen."),
    Row("oomguard_model_state", "gauge", ("model", "state"), "1 for the state the model is in, 0 for the others."),
    Row("oomguard_model_answer", "gauge", ("model", "question"), "1 where the health route would pass now, else 0."),
    Row("oomguard_model_credit_left_seconds", "gauge", _MODEL, "How long pressure may still excuse missing answers."),
    Row(
        "oomguard_model_time_to_limit_seconds",
        "gauge",
        _MODEL,
        "Until the binding limit at this growth; +Inf: no growth.",
    ),
    Row("oomguard_model_sight", "gauge", ("model", "sight"), "1 for the way in which the model's cgroup is seen."),
    Row("oomguard_model_hidden_ancestors", "gauge", _MODEL, "1 where limits above the last visible level may exist."),
    Row("oomguard_model_processes", "gauge", _MODEL, "Living processes of the model."),
    Row(
        "oomguard_process_resident_bytes", "gauge", ("model", "pid", "kind"), "RssAnon, RssFile, RssShmem of a process."
    ),
    Row("oomguard_operations", "gauge", ("model", "kind"), "Marked operations in flight."),
    Row("oomguard_operation_done_bytes", "gauge", ("model", "kind", "label"), "Bytes done by operations in flight."),
    Row("oomguard_operation_expected_bytes", "gauge", ("model", "kind", "label"), "Bytes these operations will need."),
    Row("oomguard_finding_severity", "gauge", ("model", "detector"), "0 quiet, 1 notice, 2 warning, 3 critical."),
    Row("oomguard_warnings", "counter", ("model", "detector"), "Times a detector began to fire."),
    Row("oomguard_model_missing_inputs", "gauge", _MODEL, "Inputs that the judge or a detector has to do without."),
    Row("oomguard_probe_latency_seconds", "histogram", _MODEL, "Latency of the sidecar's own probes of the model."),
    Row("oomguard_probes", "counter", ("model", "outcome"), "Finished probes of the model."),
    Row(
        "oomguard_restarts", "counter", ("model", "cause"), "Ends of the model by class, 10 s after each; survives all."
    ),
    Row(
        "oomguard_container_restarts",
        "gauge",
        ("model", "supervisor"),
        "Restarts of the container, as its supervisor counts them; a new container starts from 0.",
    ),
    Row("oomguard_last_end_timestamp_seconds", "gauge", _MODEL, "When the model last ended, since 1970."),
    Row("oomguard_sidecar_tick_age_seconds", "gauge", (), "Age of the sidecar's last tick."),
    Row("oomguard_sidecar_tick_interval_seconds", "gauge", (), "Pause between ticks in force."),
    Row("oomguard_sidecar_ticks", "counter", (), "Ticks since the sidecar started."),
    Row("oomguard_sidecar_resident_bytes", "gauge", (), "Resident memory of the sidecar."),
    Row("oomguard_sidecar_cpu_seconds", "counter", (), "CPU time of the sidecar."),
    Row("oomguard_sidecar_start_time_seconds", "gauge", (), "When the sidecar started, since 1970."),
    Row("oomguard_sidecar_degraded", "gauge", (), "Things that do not work now; /status says which."),
)


def shown(row: Row) -> str:
    """The name as a query uses it."""
    return f"{row.name}_total" if row.kind == "counter" else row.name


def markdown() -> str:
    """The table for docs/metrics.md."""
    lines = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for row in TABLE:
        labels = ", ".join(f"`{label}`" for label in row.labels) or "none"
        lines.append(f"| `{shown(row)}` | {row.kind} | {labels} | {row.text} |")
    return "\n".join(lines) + "\n"
