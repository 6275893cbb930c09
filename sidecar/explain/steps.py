"""What to do next, as concretely as the fields of an incident allow."""

from __future__ import annotations

from collections.abc import Mapping

from sidecar.explain.values import Field
from sidecar.units import human_bytes
from sidecar.verdict.values import EndClass


def next_steps(end_class: EndClass, fields: Mapping[str, Field]) -> tuple[str, ...]:
    """Give the steps for a class, the one that helps most first."""
    make = {
        EndClass.CGROUP_OOM: _cgroup,
        EndClass.GLOBAL_OOM: _node,
        EndClass.USERSPACE_OOM: _killer,
        EndClass.GPU_ALLOCATION_FAILURE: _gpu,
        EndClass.HOST_ALLOCATION_FAILURE: _host,
        EndClass.SHM_EXHAUSTED: _shm,
        EndClass.HEALTH_CHECK: _probe,
        EndClass.EVICTION: _eviction,
        EndClass.DEVICE_RESET: _device,
    }.get(end_class)
    return make(fields) if make is not None else _PLAIN.get(end_class, _UNKNOWN)


_UNKNOWN = (
    "look at the kernel log of the node around that moment (journalctl -k, dmesg -T) for an OOM kill",
    "look at the container's memory.events (oom_kill) and at the pod's events before they expire (about an hour)",
    "run the server with oomguard beside it: it keeps the counters, the probes and the last allocation of every end",
)
_PLAIN: Mapping[EndClass, tuple[str, ...]] = {
    EndClass.CRASH_SIGNAL: (
        "look at the stack in the server's log (PYTHONFAULTHANDLER=1 prints one), or take a core dump",
    ),
    EndClass.APPLICATION_EXIT: ("look at the first error in the server's log, not the last",),
    EndClass.EXTERNAL_KILL: ("find who sent the signal: events of the pod, docker events, the journal of the node",),
    EndClass.DELETION: ("see who deleted or replaced it: rollout history, events of the owner, the audit log",),
}


def _int(fields: Mapping[str, Field], name: str) -> int | None:
    value = fields.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _cgroup(fields: Mapping[str, Field]) -> tuple[str, ...]:
    owner, limit = fields.get("oom_memcg"), _int(fields, "memory_limit_kb")
    limit = None if fields.get("memory_limit_is_unlimited") else limit
    task = fields.get("task_memcg")
    where = f"of {owner}" if owner else "of the container (or of its pod, if several containers share one)"
    size = "" if limit is None else f" above {human_bytes(limit << 10)}"
    steps = [f"raise the memory limit {where}{size}, or make the load smaller"]
    if owner and task and owner != task:
        steps.append(f"the limit was hit above the victim ({task}): look for what else runs below {owner}")
    if fields.get("cause_hint"):
        steps.append(
            "the memory was page cache: write less at once, or flush (fsync, O_DIRECT), rather than raise the limit"
        )
    if fields.get("oom_group"):
        steps.append(
            "memory.oom.group is set, so every process of the group dies together; see singleProcessOOMKill of "
            "the kubelet"
        )
    if fields.get("comm") == "pause":
        steps.append("the victim was the pod's sandbox: the limit is the pod's own, and all its containers restart")
    steps.append("while loading a model: safetensors, or torch.load(mmap=True) with assign=True, needs no second copy")
    return tuple(steps)


def _node(fields: Mapping[str, Field]) -> tuple[str, ...]:
    if fields.get("subtype") in ("cpuset", "numa_mempolicy"):
        return (
            "one NUMA node was full while others had room: widen cpuset.mems or the memory policy, or spread the load",
            "the victim need not be the largest process of the host: see numactl -H at the time",
        )
    return (
        "give the node more memory, or set limits so that all containers together fit on it",
        "set the model's memory request to what it needs, so that the scheduler keeps room for it",
    )


def _killer(fields: Mapping[str, Field]) -> tuple[str, ...]:
    killer = str(fields.get("killer") or "the userspace killer")
    steps = {
        "earlyoom": "raise the server above others with earlyoom --avoid, or move earlyoom's thresholds (-m, -s)",
        "systemd-oomd": "set ManagedOOMPreference=avoid or ManagedOOMMemoryPressure=auto on the unit, or raise "
        "its pressure limit",
        "ray memory monitor": "give the tasks memory= so that Ray schedules fewer a node, or move "
        "RAY_memory_usage_threshold",
    }
    return (
        steps.get(killer, f"see the settings of {killer}: whom it spares and when it acts"),
        "or give the host more memory",
    )


def _gpu(fields: Mapping[str, Field]) -> tuple[str, ...]:
    steps = []
    requested, free = _int(fields, "requested_bytes"), _int(fields, "free_bytes")
    if fields.get("requested_implausible"):
        return ("the size asked for is impossible: look for a corrupt model file or shape, not for more memory",)
    if fields.get("subtype") == "per_process_cap":
        steps.append("the cap of this process was hit, not the card: see set_per_process_memory_fraction")
    if fields.get("subtype") == "insufficient_at_startup":
        steps.append(
            "free the card before the start (nvidia-smi shows who holds it), or lower gpu-memory-utilization or "
            "max-model-len"
        )
    if fields.get("implied_other_usage") or fields.get("other_processes"):
        steps.append("another process holds memory of this GPU: nvidia-smi on the host names it")
    if fields.get("cap_is_user_set"):
        steps.append(
            "the limit is a setting, not the card: see set_virtual_device_configuration or the memory fraction"
        )
    if requested is not None and free is not None and free >= requested:
        steps.append("enough was free in sum: fragmentation, try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")
    elif requested is not None and free is not None:
        steps.append(
            f"{human_bytes(requested - free)} were short: lower batch size, context length or the share reserved "
            f"for the cache"
        )
    if not steps:
        steps.append("lower batch size, context length or the share of GPU memory that the server reserves")
    return tuple(steps)


def _host(fields: Mapping[str, Field]) -> tuple[str, ...]:
    if fields.get("subtype") == "pinned_host":
        return (
            "this is host memory, not the card's: lower the pinned pool, or raise ulimit -l and the container's memory",
        )
    requested = _int(fields, "requested_bytes")
    size = "" if requested is None else f" ({human_bytes(requested)} in one piece)"
    return (
        f"the allocation{size} was refused, not killed for: check ulimit -v, vm.overcommit_memory and the memory limit",
        "load with mmap or in shards, so that no second copy is needed",
    )


def _shm(_fields: Mapping[str, Field]) -> tuple[str, ...]:
    return (
        "give the container more than the usual 64 MiB of /dev/shm: --shm-size, or a memory-backed emptyDir there",
        "such memory counts against the container's limit, and an emptyDir keeps it over restarts",
    )


def _probe(fields: Mapping[str, Field]) -> tuple[str, ...]:
    subtype = str(fields.get("subtype") or "")
    if "gunicorn" in subtype:
        return (
            "raise gunicorn's --timeout, or serve from async or threaded workers that a long request does not block",
        )
    if "systemd" in subtype:
        return (
            "raise WatchdogSec (or TimeoutStartSec) above the longest pause of the service, or find what it hung on",
        )
    probe = fields.get("probe") or "liveness"
    steps = [f"raise failureThreshold or timeoutSeconds of the {probe} probe, or let the sidecar answer it"]
    if fields.get("error_kind") == "connection refused" and probe == "liveness":
        steps.insert(
            0, "the port was not open yet: a startup probe keeps the liveness probe away until the model is loaded"
        )
    return tuple(steps)


def _eviction(fields: Mapping[str, Field]) -> tuple[str, ...]:
    if fields.get("not_memory"):
        return (f"this is {fields.get('resource')}, not memory: set a request and limit for it, or clean it up",)
    return ("set the memory request to what the pod needs: pods above their request are evicted first",)


def _device(fields: Mapping[str, Field]) -> tuple[str, ...]:
    return (
        "take the card out of service and reset it (nvidia-smi -r) or restart the node; have it replaced if it recurs",
        f"keep the output of nvidia-bug-report.sh for the vendor, card {fields.get('pci') or 'unknown'}",
    )
