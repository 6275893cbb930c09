"""A pod's JSON, as far as it says how its containers ended. Pure.

The kubelet writes the last end of a container into `lastState.terminated` when it starts it again, until then into
`state.terminated`. "ContainerStatusUnknown" and "ContainerCannotRun" come with an exit code that the kubelet made up.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

import msgspec

from sidecar.supervisors.kubernetes_words import Event, words_of
from sidecar.supervisors.values import Container
from sidecar.verdict.supervisor_values import SupervisorEnd, SupervisorWord, SupervisorWordKind

_OOM: Final = "OOMKilled"
_INVENTED: Final = ("ContainerStatusUnknown", "ContainerCannotRun", "StartError")
_FAILED_PODS: Final = {"Evicted": SupervisorWordKind.EVICTION, "DeadlineExceeded": SupervisorWordKind.DELETION}
_DISRUPTIONS: Final = {  # reasons of the condition DisruptionTarget, Kubernetes 1.26 and newer
    "PreemptionByScheduler": SupervisorWordKind.EVICTION,
    "TerminationByKubelet": SupervisorWordKind.EVICTION,
    "EvictionByEvictionAPI": SupervisorWordKind.EVICTION,
    "DeletionByTaintManager": SupervisorWordKind.EVICTION,
    "DeletionByPodGC": SupervisorWordKind.DELETION,
}


class _Struct(msgspec.Struct, rename="camel"):
    """What a pod's JSON has more is passed over."""


class _Meta(_Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: float | None = None


class _Mount(_Struct):
    name: str
    mount_path: str


class _Spec(_Struct):
    name: str
    volume_mounts: list[_Mount] = []


class _PodSpec(_Struct):
    containers: list[_Spec] = []
    init_containers: list[_Spec] = []


class _Terminated(_Struct):
    exit_code: int | None = None
    signal: int | None = None
    reason: str | None = None
    message: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None


class _Running(_Struct):
    started_at: datetime | None = None


class _State(_Struct):
    running: _Running | None = None
    terminated: _Terminated | None = None


class _Status(_Struct):
    name: str
    container_id: str | None = msgspec.field(default=None, name="containerID")
    restart_count: int | None = None
    ready: bool | None = None
    state: _State = msgspec.field(default_factory=_State)
    last_state: _State = msgspec.field(default_factory=_State)


class _Condition(_Struct):
    type: str
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: datetime | None = None


class _PodStatus(_Struct):
    reason: str | None = None
    message: str | None = None
    container_statuses: list[_Status] = []
    init_container_statuses: list[_Status] = []
    conditions: list[_Condition] = []


class Pod(_Struct):
    """One pod."""

    metadata: _Meta
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)

    @property
    def ended(self) -> bool:
        """Whether any container has ended, or the pod is told to."""
        states = [one.last_state.terminated or one.state.terminated for one in self.status.container_statuses]
        return any(one is not None for one in states) or self.metadata.deletion_timestamp is not None


def containers_of(pod: Pod, events: Iterable[Event], *, own: str | None, directory: str) -> tuple[Container, ...]:
    """Give what the API says of every container but our own; `directory` is the one we share with our models."""
    specs = [*pod.spec.init_containers, *pod.spec.containers]
    shared = next((_volume(one, directory) for one in specs if one.name == own), None)
    sharing = {one.name for one in specs if shared is not None and any(m.name == shared for m in one.volume_mounts)}
    told = tuple(events)
    return tuple(
        _container(pod, one, told, shares=one.name in sharing)
        for one in (*pod.status.init_container_statuses, *pod.status.container_statuses)
        if one.name != own
    )


def _volume(spec: _Spec, directory: str) -> str | None:
    """Name the volume that the directory lies on."""
    above = [m for m in spec.volume_mounts if f"{directory}/".startswith(m.mount_path.rstrip("/") + "/")]
    return max(above, key=lambda m: len(m.mount_path)).name if above else None


def _container(pod: Pod, status: _Status, events: tuple[Event, ...], *, shares: bool) -> Container:
    terminated = status.state.terminated or status.last_state.terminated
    return Container(
        supervisor="kubernetes",
        name=status.name,
        id=None if not status.container_id else status.container_id.rpartition("//")[2] or None,
        shares=shares,
        running=status.state.running is not None,
        ready=status.ready,
        restart_count=status.restart_count,
        end=None if terminated is None else _end(pod, status, terminated, events),
        stopping=_stopping(pod, status),
    )


def _stopping(pod: Pod, status: _Status) -> SupervisorEnd | None:
    """Say why a container is to end that still runs: a sidecar that ends with its pod will not hear of it later."""
    running = status.state.running
    if running is None:
        return None
    began = _seconds(running.started_at)
    words = tuple(word for word in _pod_words(pod) if _is_of_life(word, began, None))
    return SupervisorEnd(source=_source(pod, status), started_wall_s=began, words=words) if words else None


def _source(pod: Pod, status: _Status) -> str:
    return f"Kubernetes API, pod {pod.metadata.namespace}/{pod.metadata.name}, container {status.name}"


def _end(pod: Pod, status: _Status, ended: _Terminated, events: tuple[Event, ...]) -> SupervisorEnd:
    """Give the container's last end. Words are those of its life alone."""
    invented = ended.reason in _INVENTED
    began, finished = _seconds(ended.started_at), _seconds(ended.finished_at)
    words = (*_pod_words(pod), *words_of(events, status.name))
    return SupervisorEnd(
        source=_source(pod, status),
        exit_code=None if invented or ended.signal else ended.exit_code,
        signal=ended.signal or None,
        oom_killed=True if ended.reason == _OOM else None,
        reason=ended.reason,
        message=ended.message,
        started_wall_s=began,
        finished_wall_s=finished,
        restart_count=status.restart_count,
        words=tuple(word for word in words if _is_of_life(word, began, finished)),
    )


_SLACK_SECONDS: Final = 2.0
"""Times of the API are whole seconds, of one node's clock."""


def _is_of_life(word: SupervisorWord, began: float | None, finished: float | None) -> bool:
    if word.at_wall_s is None:
        return True
    early = began is not None and word.at_wall_s < began - _SLACK_SECONDS
    late = finished is not None and word.at_wall_s > finished + _SLACK_SECONDS
    return not early and not late


def _pod_words(pod: Pod) -> list[SupervisorWord]:
    """What the pod as a whole says of the end of its containers."""
    words, status, meta = [], pod.status, pod.metadata
    if (kind := _FAILED_PODS.get(status.reason or "")) is not None:
        words.append(SupervisorWord(kind=kind, text=_said(f"the pod is {status.reason}", status.message)))
    for one in status.conditions:
        kind = _DISRUPTIONS.get(one.reason or "")
        if one.type == "DisruptionTarget" and one.status == "True" and kind is not None:
            text = _said(f"the pod is to be disrupted ({one.reason})", one.message)
            words.append(SupervisorWord(kind=kind, text=text, at_wall_s=_seconds(one.last_transition_time)))
    due = _seconds(meta.deletion_timestamp)
    if due is not None:  # the deadline; it was asked for a grace period earlier
        grace = meta.deletion_grace_period_seconds or 0.0
        text = f"the deletion of the pod was asked for, with a grace of {grace:g} s"
        words.append(SupervisorWord(kind=SupervisorWordKind.DELETION, text=text, at_wall_s=due - grace))
    return words


def _said(text: str, message: str | None) -> str:
    return f"{text}: {' '.join(message.split())[:300]}" if message else text


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
