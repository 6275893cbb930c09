"""Container runtimes and schedulers, as single lines: OOM events, evictions, deletions, ECS, batch systems."""

from __future__ import annotations

import re
from typing import Final

from sidecar.explain.ends import signal_name
from sidecar.explain.patterns import Pattern
from sidecar.explain.sizes import ONE, size
from sidecar.explain.values import Field, Role
from sidecar.verdict.values import Confidence, EndClass

_CGROUP: Final = EndClass.CGROUP_OOM
_KERNEL_LOG: Final = ("the kernel log of the node at that moment",)
_ATTRIBUTES: Final = re.compile(
    r"(io\.kubernetes\.[\w.]{1,60}|[\w.]{0,80}restartCount|exitCode|image|name)=([^,)\s]{1,256})"
)


_TABLE: Final = r"^(?:[a-z0-9-]{1,63}\s+)?(\S{1,253})\s+\d{1,3}/\d{1,3}\s+(?:Init:)?"
"""A row of `kubectl get pods`, with a namespace before it or without."""
_POD: Final = re.compile(r"\bpods?/([a-z0-9][\w.-]{0,252})")


def _pod(text: str) -> list[str]:
    """Name the pod of a row of `kubectl get events`."""
    found = _POD.search(text)
    return [] if found is None else [f"object:{found[1]}"]


def _named_pod(_text: str, found: re.Match[str]) -> dict[str, Field]:
    return {"pod": found[1], "keys": [f"object:{found[1].removeprefix('pod/')}"]} if found[1] else {}


def _attribute(text: str, ending: str) -> str | None:
    return next((value for name, value in _ATTRIBUTES.findall(text) if name.endswith(ending)), None)


def _docker_oom(text: str, found: re.Match[str]) -> dict[str, Field]:
    container, pod = found[1] or found[2], _attribute(text, "pod.uid")
    restarts = _attribute(text, "restartCount")
    return {
        "event": "container oom",
        "container_id": container,
        "pod_uid": pod,
        "container_name": _attribute(text, "container.name"),
        "restart_count": int(restarts) if restarts and restarts.isdigit() else None,
        "keys": [f"container:{container}", *([f"pod:{pod}"] if pod else [])],
    }


def _task_oom(text: str, _found: re.Match[str]) -> dict[str, Field]:
    container = re.search(r"container[_-]?id\\?[\"=: ]{1,4}\\?\"?([0-9a-f]{12,64})", text)
    space = re.search(r"\b(?:ns|namespace)=(\S{1,64})", text)
    return {
        "event": "TaskOOM",
        "topic": "/tasks/oom",
        "namespace": None if space is None else space[1],
        "container_id": None if container is None else container[1],
        "kill_confirmed": False,
        "keys": [] if container is None else [f"container:{container[1]}"],
    }


def _eviction(text: str, found: re.Match[str]) -> dict[str, Field]:
    resource = re.search(r"low on resource: ([\w.-]{1,64})", text)
    name = None if resource is None else resource[1].rstrip(".")
    using = re.search(rf"[Cc]ontainer (\S{{1,253}}) was using ({ONE})", text)
    request = re.search(rf"(?:exceeds its request of|request is) ({ONE}|\d+)", text)
    threshold = re.search(rf"Threshold quantity: ({ONE}|\d+)", text)
    available = re.search(rf"available: ({ONE}|\d+)", text)
    qos = re.search(r"qosClass: (\w{4,12})", text)
    return {
        "resource": name,
        "qos": None if qos is None else qos[1],
        "not_memory": None if name is None else name != "memory",
        "container": None if using is None else using[1],
        "usage_bytes": None if using is None else size(using[2]),
        "request_bytes": None if request is None else _quantity(request[1]),
        "threshold_bytes": None if threshold is None else _quantity(threshold[1]),
        "available_bytes": None if available is None else _quantity(available[1]),
        "keys": [*_pod(found.string)],
    }


def _ecs_oom(text: str, found: re.Match[str]) -> dict[str, Field]:
    code = re.search(r'"exitCode": ?(\d{1,3})', text)
    return {"reason": found[0], "exit_code": None if code is None else int(code[1])}


def _metric(text: str, _found: re.Match[str]) -> dict[str, Field]:
    """Read the labels of a sample in the format of Prometheus."""
    labels = dict(re.findall(r'(\w{1,60})="([^"]{1,253})"', text))
    container, pod = labels.get("container"), labels.get("pod")
    keys: list[Field] = [*([f"name:{container}"] if container else []), *([f"object:{pod}"] if pod else [])]
    return {"container": container, "pod": pod, "keys": keys}


def _docker_kill(_text: str, found: re.Match[str]) -> dict[str, Field]:
    number = int(found[2] or found[3])
    return {"signal": signal_name(number), "keys": [f"container:{found[1]}"] if found[1] else []}


def _quantity(text: str) -> int | None:
    return int(text) if text.isdigit() else size(text)


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _system_oom(_text: str, found: re.Match[str]) -> dict[str, Field]:
    pid = int(found[2] or found[3])
    return {"comm": found[1] or found[4], "victim_pid": pid, "pids": [pid]}


def _stopping(_text: str, found: re.Match[str]) -> dict[str, Field]:
    return {"container": found[1], "keys": [*_pod(found.string)]}


def _row(subject: str, words: tuple[str, ...], start: str, summary: str, **more: object) -> Pattern:
    given: dict[str, object] = {"end_class": _CGROUP, "source": "container events", **more}
    return Pattern(subject=subject, words=words, start=re.compile(start), summary=summary, **given)  # type: ignore[arg-type]


PATTERNS: Final = (
    _row(
        "ecs",
        ("container killed due to memory",),
        r"OutOfMemoryError: Container killed due to memory usage",
        "ECS says that the container's memory limit was hit and a process in it killed",
        confidence=Confidence.MEDIUM,
        read=_ecs_oom,
        missing=_KERNEL_LOG,
    ),
    _row(
        "docker_oom",
        ("container oom", '"oom"'),
        r'\bcontainer oom ([0-9a-f]{12,64})|"(?:status|Action)":\s?"oom".{0,400}?"(?:id|ID)":\s?"([0-9a-f]{12,64})"',
        "the kernel killed a process inside the container for its memory limit; the container may live on",
        read=_docker_oom,
        missing=("whether the main process was the victim (a die event, or the exit code)",),
    ),
    _row(
        "task_oom",
        ("/tasks/oom", "taskoom"),
        r"topic=\"?/tasks/oom|TaskOOM\b",
        "the runtime saw an out of memory event in a container's cgroup; it does not say that a process was killed",
        read=_task_oom,
        confidence=Confidence.LOW,
        missing=("which process was killed, if any: the kernel log, or memory.events of the container",),
    ),
    _row(
        "flag",
        ("oomkilled=true", "oomkilled:true"),
        r"(?:\bExitCode[=:](\d{1,3})\b.{0,200}?)?\bOOMKilled[=:]true\b(?:.{0,200}?\bExitCode[=:](\d{1,3}))?",
        "the runtime says that the container was killed at its memory limit",
        confidence=Confidence.MEDIUM,
        read=lambda _text, found: {"oom_killed_flag": True, "exit_code": _number(found[1] or found[2])},
        missing=_KERNEL_LOG,
    ),
    _row(
        "conmon_oom",
        ("oom event received",),
        r"conmon ([0-9a-f]{12,64}).{0,40}OOM event received",
        "the container's monitor saw the kernel kill a process in it for its memory limit",
        confidence=Confidence.MEDIUM,
        read=lambda _text, found: {"container_id": found[1]},
        missing=_KERNEL_LOG,
    ),
    _row(
        "init_oom",
        ("container init was oom-killed",),
        r"container init was OOM-killed",
        "the runtime says that the container's first process was killed at its memory limit before it ran anything",
    ),
    _row(
        "cloud_run",
        ("memory limit of",),
        rf"Memory limit of ({ONE}) exceeded with ({ONE}) used",
        "the platform says that the instance passed its memory limit and was ended",
        confidence=Confidence.MEDIUM,
        read=lambda _text, found: {"limit_bytes": size(found[1]), "usage_bytes": size(found[2])},
    ),
    _row(
        "oom_metric",
        ('reason="oomkilled"', "container_oom_events_total"),
        r'_terminated_reason\{[^}]{0,2000}reason="OOMKilled"[^}]{0,2000}\} 1\b'
        r"|container_oom_events_total\{[^}]{0,2000}\} [1-9]",
        "a metric says that the kernel killed a process of the container at its memory limit",
        confidence=Confidence.MEDIUM,
        read=_metric,
        missing=("when it was and which process: the kernel log, or events of the pod",),
    ),
    _row(
        "sacct",
        ("out_of_me",),
        r"^\S{1,40}\s.{0,200}\bOUT_OF_ME(?:MORY|\+)",
        "the batch system says that the job was ended at its memory limit",
        confidence=Confidence.MEDIUM,
        again=False,
        missing=_KERNEL_LOG,
    ),
    _row(
        "nomad",
        ("oom killed",),
        r"[Ee]xit [Mm]essage: \"[^\"]{0,200}OOM [Kk]illed|OOM Killed: true",
        "Nomad says that the task was killed at its memory limit",
        confidence=Confidence.MEDIUM,
        missing=_KERNEL_LOG,
    ),
    _row(
        "backoff",
        ("failed container",),
        r"\bBack-off restarting failed container\b",
        "a container of the pod ended again and again; the event does not say of what",
        end_class=EndClass.UNKNOWN,
        role=Role.END,
        confidence=Confidence.LOW,
        read=lambda _text, found: {"keys": [*_pod(found.string)]},
        missing=("how it ended: kubectl describe pod, or kubectl logs --previous",),
    ),
    _row(
        "system_oom",
        ("system oom encountered", "sys oom event"),
        r"System OOM encountered, victim process: (.{1,64}?), pid: (\d{1,10})"
        r"|Got sys oom event.{0,40}?\bPid:(\d{1,10}) ProcessName:(\S{1,64})",
        "the node was out of memory and the kernel killed a process",
        end_class=EndClass.GLOBAL_OOM,
        read=_system_oom,
    ),
    _row(
        "oomkilled_table",
        ("oomkilled",),
        rf"{_TABLE}OOMKilled\b|[Cc]ontainer \S{{1,253}} (?:was|has been|got) OOMKilled\b"
        r"|\bOOMKilled (?:\(exit code )?137\b|\breported OOMKilled\b|termination reason: OOMKilled\b"
        r"|^\S{1,253}\s+OOMKilled\s+137\b",
        "the cluster says that a container was killed at its memory limit",
        confidence=Confidence.MEDIUM,
        read=_named_pod,
        missing=_KERNEL_LOG,
    ),
    _row(
        "evicted_table",
        ("evicted",),
        rf"{_TABLE}Evicted\b",
        "the node evicted the pod",
        end_class=EndClass.EVICTION,
        read=_named_pod,
    ),
    _row(
        "failed_table",
        ("crashloopbackoff", "0/1 "),
        rf"{_TABLE}(?:CrashLoopBackOff|Error|ContainerStatusUnknown)\s+\d{{1,9}}"
        r"(?: \(|\s+\d{1,4}[smhdy])",
        "a container of the pod ended; the table does not say of what",
        end_class=EndClass.UNKNOWN,
        role=Role.END,
        confidence=Confidence.LOW,
        read=_named_pod,
        missing=("how it ended: kubectl describe pod, or kubectl logs --previous",),
    ),
    _row(
        "eviction",
        (
            *("low on resource", "evict", "preempt", "emptydir volume", "ephemeral local storage", "ephemeral storage"),
            *("imminent node shutdown", "task was interrupted", "deletionbytaint"),
        ),
        r"node was low on resource: |eviction manager: (?:pod )?\S+ (?:is )?evicted"
        r"|Eviction manager: pod is evicted successfully|imminent node shutdown|[Ss]pot Task was interrupted"
        r"|[Rr]eason\"?: \"?(?:DeletionByTaintManager|EvictionByEvictionAPI|PreemptionByScheduler)\b"
        r"|Usage of EmptyDir volume \S+ exceeds the limit"
        r"|[Ee]phemeral local storage usage exceeds|exceeded its local ephemeral storage limit"
        r"|^pod/\S{1,253} evicted\b"
        r"|\bTaintManagerEviction\b|\bPreempted\s+\S|[Rr]eason\"?:\s+\"?(?:Evicted|Preempt\w*)\b",
        "the node evicted the pod",
        end_class=EndClass.EVICTION,
        read=_eviction,
        after=4,
        again=False,
    ),
    _row(
        "docker_kill",
        ("container kill", '"kill"'),
        r"\bcontainer kill ([0-9a-f]{12,64}).{0,4000}?\bsignal=(\d{1,2})"
        r'|"(?:status|Action)":\s?"kill".{0,4000}?"signal":\s?"(\d{1,2})"',
        "a client of the container engine sent it a signal (docker stop, kill or rm, or an orchestrator)",
        end_class=EndClass.EXTERNAL_KILL,
        confidence=Confidence.MEDIUM,
        read=_docker_kill,
        again=False,
        missing=("which client sent it: the log of the engine, or of the orchestrator",),
    ),
    _row(
        "node_lost",
        ("nodelost",),
        r"\b[Rr]eason\"?:\s+\"?NodeLost\b",
        "the node did not answer any more; what became of the pod on it is not known",
        end_class=EndClass.UNKNOWN,
        role=Role.END,
        confidence=Confidence.LOW,
        missing=("what happened to the node: its journal, or the cloud's events",),
    ),
    _row(
        "time_limit",
        ("due to time limit",),
        r"\bCANCELLED AT .{0,60}DUE TO TIME LIMIT",
        "the batch job ran past its time limit and was stopped",
        end_class=EndClass.DELETION,
    ),
    _row(
        "deadline",
        ("deadlineexceeded",),
        r"\b[Rr]eason\"?:\s+\"?DeadlineExceeded\b",
        "the pod ran past its deadline and was stopped",
        end_class=EndClass.DELETION,
    ),
    _row(
        "stopping",
        ("stopping container",),
        r"\bKilling\b.{0,200}?Stopping container (\S{1,253})",
        "the pod was being deleted or replaced: its containers were told to stop",
        end_class=EndClass.DELETION,
        read=_stopping,
        confidence=Confidence.MEDIUM,
        missing=("who deleted the pod: audit log, rollout status, events of its owner",),
    ),
    _row(
        "ecs_health",
        ("health checks",),
        r"[Tt]ask failed (?:ELB|container) health checks",
        "ECS stopped the task because its health checks failed",
        end_class=EndClass.HEALTH_CHECK,
    ),
    _row(
        "restarted_unhealthy",
        ("to be unhealthy - restarting", "unhealthy"),
        r"found to be unhealthy - Restarting container|healthcheck: check \"[^\"]{1,200}\" unhealthy",
        "a watcher restarted the container because its health checks failed",
        end_class=EndClass.HEALTH_CHECK,
    ),
    _row(
        "uwsgi",
        ("harakiri on worker",),
        r"HARAKIRI ON WORKER \d{1,6} \(pid: (\d{1,10})",
        "uWSGI killed a worker that did not answer in time",
        end_class=EndClass.HEALTH_CHECK,
        read=lambda _text, found: {"subtype": "uwsgi harakiri", "worker_pid": int(found[1])},
        after=2,
        again=False,
    ),
    _row(
        "ecs_scaling",
        ("scaling activity",),
        r"Scaling activity initiated by",
        "the service was scaled in",
        end_class=EndClass.DELETION,
        role=Role.CAUSE,
    ),
)
