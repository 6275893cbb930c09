"""What a verdict says around its class: the work in flight, what is missing, what to do next."""

from __future__ import annotations

from typing import Final

from guard.model import Failure, Known, Operation, Unknown, Why
from sidecar.units import human_bytes, human_seconds, human_share
from sidecar.verdict.facts import SHORT_NODE_RATIO, Facts, signal_name
from sidecar.verdict.owner import Owner, limit_and_held
from sidecar.verdict.values import EndClass, LevelsBefore, Statement

_BLIND: Final = (Why.HIDDEN, Why.UNSUPPORTED, Why.NOT_SAMPLED)
_FOR_MEMORY: Final = (EndClass.CGROUP_OOM, EndClass.GLOBAL_OOM, EndClass.USERSPACE_OOM)
Field = str | int | float | None


def process_words(facts: Facts) -> str:
    """Name the process whose end it is."""
    if facts.evidence.main:
        return "the model"
    if not facts.evidence.seen:
        return "a process of the model that was not handed over"
    return f"a child process (pid {facts.evidence.life.pid})"


def status_words(facts: Facts) -> str:
    """Say how it ended, as wait(2) tells it."""
    if facts.signal is not None:
        return f"by {signal_name(facts.signal)}"
    return "in a way that could not be observed" if facts.exit_code is None else f"with exit code {facts.exit_code}"


def status_statements(facts: Facts) -> tuple[Statement, ...]:
    """Say how it ended, and who said so."""
    if facts.is_unseen:
        return ()
    source = facts.status_source or "wait status"
    return (Statement(supports=True, text=f"it ended {status_words(facts)}", source=source),)


def failure_statements(facts: Facts) -> tuple[Statement, ...]:
    """Name the fatal failure before the end, and one about memory that was caught."""
    said = (facts.failure, facts.caught)
    return tuple(failure_statement(facts, one) for one in said if one is not None)


def failure_words(failure: Failure) -> str:
    """Quote a failure as an interpreter does: one without a message is its type alone."""
    return f"{failure.exception}: {failure.message}" if failure.message else failure.exception


def failure_statement(facts: Facts, failure: Failure) -> Statement:
    """Name one failure before the end."""
    ago = human_seconds(max(0.0, facts.evidence.ended.monotonic_s - failure.at_monotonic_s))
    how = "" if failure.fatal else " was caught"
    said = f": {failure.message}" if failure.message else ""
    text = f"{failure.exception}{how} {ago} before the end{said}"
    return Statement(supports=True, text=text, source="black box")


def child_words(facts: Facts) -> str:
    """Say that the main process followed one of its own, or nothing."""
    child = facts.child
    if child is None:
        return ""
    ago = human_seconds(max(0.0, facts.evidence.ended.monotonic_s - child.at.monotonic_s))
    what = "was killed for memory" if child.end_class in _FOR_MEMORY else f"had ended ({child.end_class.value})"
    return f", {ago} after a process of it {what}"


def child_statements(facts: Facts) -> tuple[Statement, ...]:
    """Name the end that it followed."""
    child = facts.child
    if child is None:
        return ()
    text = f"a process of the model ended before: {child.summary}"
    return (Statement(supports=True, text=text, source=f"incident {child.incident}"),)


def survivors_words(facts: Facts) -> str:
    """After a child's end: does the model live on."""
    if facts.evidence.main:
        return ""
    alive = facts.evidence.others_alive
    return f"; the model lives on ({alive} processes)" if alive else "; no other process of the model is left"


def in_flight_words(operation: Operation | None) -> str:
    """Say " while loading FILE, tensor T, A of B", or nothing."""
    if operation is None:
        return ""
    parts = [operation.file or operation.label]
    if operation.item:
        parts.append(f"tensor {operation.item}")
    if operation.bytes_done is not None and operation.bytes_expected:
        share = human_share(operation.bytes_done / operation.bytes_expected)
        done, expected = human_bytes(operation.bytes_done), human_bytes(operation.bytes_expected)
        parts.append(f"{done} of {expected} ({share})")
    elif operation.bytes_expected:
        parts.append(f"{human_bytes(operation.bytes_expected)} in all")
    verb = {"load": "loading", "move": "moving", "busy": "busy with"}[operation.kind.value]
    return f" while {verb} {', '.join(parts)}"


def fields(facts: Facts, owner: Owner | None) -> dict[str, Field]:
    """Give the numbers; None where they are not known."""
    operation, failure, report, fault = facts.in_flight, facts.failure, facts.report, facts.fault
    told = facts.evidence.supervisor
    pair = facts.evidence.levels[0] if facts.evidence.levels else None
    if owner is not None and owner.level is not None:
        pair = owner.level
    limit, held = (None, None) if pair is None else limit_and_held(pair.before.memory)
    return {
        "exit_code": facts.exit_code,
        "signal": None if facts.signal is None else signal_name(facts.signal),
        "oom_kills": None if isinstance(facts.kills, Unknown) or facts.kills.value.before is None else facts.counted,
        "limit_bytes": limit,
        "unreclaimable_bytes": held,
        "oom_memcg": None if report is None else report.oom_memcg,
        "task_memcg": None if report is None else report.task_memcg,
        "victim_pids": None if report is None or not report.pids else ",".join(map(str, sorted(report.pids))),
        "failure_kind": None if failure is None else failure.kind,
        "failure_exception": None if failure is None else failure.exception,
        "failure_message": None if failure is None else failure.message,
        "caught_exception": None if facts.caught is None else facts.caught.exception,
        "native_error": None if fault is None else fault.error,
        "crash_stack": None if fault is None or not fault.stack else " < ".join(reversed(fault.stack)),
        "supervisor_reason": next((one.reason for one in told if one.reason is not None), None),
        "restart_count": next((one.restart_count for one in told if one.restart_count is not None), None),
        "liveness_failures": facts.evidence.liveness_failures_answered,
        "others_alive": facts.evidence.others_alive,
        "in_flight_label": None if operation is None else operation.label,
        "in_flight_file": None if operation is None else operation.file,
        "in_flight_tensor": None if operation is None else operation.item,
        "in_flight_bytes_done": None if operation is None else operation.bytes_done,
        "in_flight_bytes_expected": None if operation is None else operation.bytes_expected,
    }


def missing(facts: Facts) -> tuple[str, ...]:
    """List what could not be observed."""
    evidence = facts.evidence
    named = (
        ("how it ended (wait status)", evidence.wait_status),
        ("OOM kills of its cgroup", facts.kills),
        ("kernel log", evidence.kmsg),
        ("black box of the guard", evidence.box),
        ("OOM kills of the node", evidence.node_oom_kill_delta),
        ("available memory of the node", evidence.node_available_ratio),
    )
    said = [f"{name}: {value}" for name, value in named if isinstance(value, Unknown)]
    if not evidence.seen and facts.report is None:
        said.append("which process it was: the counters do not tell")
    if evidence.hidden_ancestors:
        said.append("levels above the visible ones are hidden: a limit there cannot be seen")
    return tuple(said)


def memory_statement(pair: LevelsBefore) -> Statement | None:
    """Say how near to its limit a level was in the last sample."""
    limit, held = limit_and_held(pair.before.memory)
    if limit is None or held is None:
        return None
    text = (
        f"limit of {pair.before.name} {limit} bytes ({human_bytes(limit)}), "
        f"{human_bytes(held)} not reclaimable in the last sample before the end"
    )
    return Statement(supports=True, text=text, source=f"memory.stat of {pair.before.name}")


def next_steps(end_class: EndClass, facts: Facts, owner: Owner | None) -> tuple[str, ...]:
    """Say what to do, as concretely as the evidence allows."""
    if end_class is EndClass.CGROUP_OOM:
        return (*_raise_limit(owner), *_lighter_load(facts.in_flight))
    steps = {
        EndClass.GLOBAL_OOM: (
            "give the node more memory, or set limits so that all containers together fit on it",
            "set the model's memory request to what it needs, so that the scheduler keeps room for it",
        ),
        EndClass.GPU_ALLOCATION_FAILURE: (
            "lower batch size, context length or the share of GPU memory that the server reserves",
            "see failure_message for what was asked for and what was free on the device",
        ),
        EndClass.HOST_ALLOCATION_FAILURE: (
            "see failure_message for the size asked for; check ulimit -v and vm.overcommit_memory",
            *_lighter_load(facts.in_flight),
        ),
        EndClass.SHM_EXHAUSTED: ("give the container more /dev/shm (an emptyDir with medium Memory, or --shm-size)",),
        EndClass.HEALTH_CHECK: (
            "look at the model's state and reasons before the end: a hung server needs its own fix",
            "if it was only slow, raise the probe's timeoutSeconds or failureThreshold",
        ),
        EndClass.CRASH_SIGNAL: (
            "look at the stack in the server's log (PYTHONFAULTHANDLER=1 prints one), or take a core dump",
        ),
        EndClass.APPLICATION_EXIT: ("look at the last lines of the server's log",),
        EndClass.USERSPACE_OOM: (
            "give the host more memory, or have the killer spare the server (earlyoom --avoid, ManagedOOMPreference=)",
        ),
        EndClass.EVICTION: (
            "set the memory request to what the pod needs: pods above their request are evicted first",
        ),
        EndClass.DELETION: ("see who stopped or replaced it: rollout history, events of the owner, the audit log",),
        EndClass.DEVICE_RESET: (
            "take the card out of service and reset it (nvidia-smi -r) or restart the node; if it recurs, replace it",
        ),
        EndClass.EXTERNAL_KILL: (
            "look for who sent the signal: events of the pod, docker events, the journal of the node",
        ),
    }
    if end_class is EndClass.APPLICATION_EXIT and facts.child is not None:
        return (f"look at incident {facts.child.incident} first: a process of it ended before", *steps[end_class])
    if end_class is EndClass.APPLICATION_EXIT and facts.exit_code != 0 and facts.counted:
        return ("look at the memory limit first: a process in its cgroup was killed before", *steps[end_class])
    if end_class is EndClass.UNKNOWN:
        return _deciders(facts)
    node = facts.evidence.node_available_ratio
    if end_class is EndClass.EXTERNAL_KILL and isinstance(node, Known) and node.value <= SHORT_NODE_RATIO:
        killer = "the node was short of memory: look for earlyoom, systemd-oomd or nohang in its journal first"
        return (killer, *steps[end_class])
    return (*_what_a_trace_says(facts), *steps[end_class])


def _what_a_trace_says(facts: Facts) -> tuple[str, ...]:
    return () if facts.fault is None or not facts.fault.do else (facts.fault.do,)


def _deciders(facts: Facts) -> tuple[str, ...]:
    """Name what would have decided, for the next time."""
    evidence, steps = facts.evidence, []
    if facts.is_unseen:
        if evidence.main:
            steps.append(
                "how it ended would decide: start the server under `oomguard run`, which notes its exact status"
            )
        else:
            steps.append("how it ended would decide: the log of its parent, which waits for it, may say")
        if isinstance(evidence.wait_status, Unknown) and evidence.wait_status.why in _BLIND:
            steps.append("or share the PID namespace (shareProcessNamespace), on kernel 6.15 or newer")
        if evidence.main and not evidence.supervisor:
            steps.append(
                "or let the sidecar ask the supervisor: the Kubernetes API, a Docker or Podman socket, systemd"
            )
    if isinstance(facts.kills, Unknown) or isinstance(evidence.kmsg, Unknown):
        steps.append("an OOM kill would show in the kernel log of the node (journalctl -k, dmesg -T) at that moment")
    if isinstance(evidence.box, Unknown):
        steps.append("the guard's black box would say what it was doing: start it under `oomguard run`, or install it")
    return tuple(steps) or ("see the server's own log and the node's journal at that moment",)


def _raise_limit(owner: Owner | None) -> tuple[str, ...]:
    if owner is None or owner.level is None:
        where = "an ancestor of the model's cgroup" if owner is None or owner.name is None else owner.name
        return (f"raise the memory limit of {where} (pod or slice), or use less memory beside the model",)
    limit, _ = limit_and_held(owner.level.before.memory)
    size = "" if limit is None else f" above {human_bytes(limit)}"
    if owner.level.after.depth == 0:
        return (f"raise the memory limit of the model's container{size}",)
    return (
        f"raise the memory limit of {owner.level.after.name}{size}, or use less memory in the other cgroups below it",
    )


def _lighter_load(operation: Operation | None) -> tuple[str, ...]:
    if operation is None or operation.kind.value != "load":
        return ()
    need = "" if not operation.bytes_expected else f" ({human_bytes(operation.bytes_expected)} on disk)"
    return (f"load{need} without copies: safetensors with load_file, or torch.load(mmap=True) and assign=True",)
