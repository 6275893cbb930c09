"""Events of the kubelet about probes. Failures alone end nothing; a Killing event for a probe does, or means to."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from typing import Final

from sidecar.explain.patterns import quote
from sidecar.explain.values import Field, Line, Role, Sign, part_keys, seen
from sidecar.verdict.values import Confidence, EndClass

_FAILED: Final = re.compile(r"\b(Liveness|Readiness|Startup) probe (?:failed|errored)(?:: ?(.{0,1000}))?")
_KILL: Final = re.compile(r"[Cc]ontainer \"?([\w.-]{1,253})\"? failed (liveness|startup) probe, will be restarted")
_UNHEALTHY: Final = re.compile(
    r"pod \"?(\S+?)\"? container \"?(\S+?)\"? is unhealthy, it will be killed and re-created"
)
_OLD_KILL: Final = re.compile(
    r"(?:[Kk]illing container with id \w{3,16}://|[Cc]ontainer \")([\w.-]{1,253})(?:[\" (].{0,400}?)?: ?"
    r"Container failed (liveness|startup) probe\.\. "
)
"""Kubernetes 1.13 to 1.15."""
_KILLING: Final = re.compile(
    r"\b[Kk]illing\s+Killing (?:container with (?:docker )?id )?(?:docker://)?([0-9a-f]{12,64})\b"
)
_GRACEFULLY: Final = re.compile(r"[Kk]illing container with a grace period")
_KLOG: Final = re.compile(r'\b(pod|containerName)="?([\w./-]{1,300})')
_CREATED: Final = re.compile(r"\b[Cc]reated\s+Created (?:container )?with (?:docker )?id\b")
_COUNT: Final = re.compile(r"\(x(\d{1,9}) over ([\w.]{1,20})\)")
_CONTAINER: Final = re.compile(r"spec\.containers\{([\w.-]{1,253})\}")
_OBJECT: Final = re.compile(r"\bpods?/([\w.-]{1,253})")
_DOCKER_HEALTH: Final = re.compile(r"container health_status: unhealthy ([0-9a-f]{12,64})")
_DOCKER_KILL: Final = re.compile(r"container kill ([0-9a-f]{12,64})")
_SOON_SECONDS: Final = 60.0
"""The engine only marks a container as unhealthy; Swarm or a watcher that ends it for that does so at once."""
_JSON_COUNT: Final = re.compile(r'"[Cc]ount":\s?(\d{1,9})')
_SOURCE: Final = re.compile(r'"(?:EventSource|reportingComponent|component)":\s?"([^"]{1,80})"')
_REASON: Final = re.compile(r'"[Rr]eason":\s?"([^"]{1,80})"')
_TIME: Final = re.compile(r'"(?:TimeStamp|lastTimestamp|eventTime)":\s?"([^"]{1,60})"')
_ERRORS: Final = (
    ("connection refused", "connection refused"),
    ("awaiting headers", "timeout awaiting headers"),
    ("deadline exceeded", "timeout"),
    ("timed out", "timeout"),
    ("timeout", "timeout"),
    ("statuscode", "bad status code"),
    ("connection reset", "connection reset"),
    ("no such host", "no such host"),
    ("no route", "no route to host"),
)
_CADENCE: Final = 2


@dataclass(slots=True)
class _Probe:
    """Failures of one kind of probe so far."""

    kind: str
    first: Line
    count: int = 0
    window: str | None = None
    detail: str | None = None


@dataclass(slots=True)
class _State:
    probes: dict[str, _Probe] = field(default_factory=dict)
    signs: list[Sign] = field(default_factory=list)
    killing: list[tuple[Line, str]] = field(default_factory=list)
    created: list[Line] = field(default_factory=list)
    stopped: list[Line] = field(default_factory=list)
    unhealthy: dict[str, Line] = field(default_factory=dict)  # by the container's id


class ProbeParser:
    """Counts failures and waits for the kill that they lead to."""

    def __init__(self) -> None:
        self._state = _State()

    def feed(self, line: Line) -> bool:
        """Take one line; tell whether it is about a probe or a kill for one."""
        text = line.text
        if (found := _DOCKER_HEALTH.search(line.whole) or _DOCKER_HEALTH.search(text)) is not None:
            self._state.unhealthy.setdefault(found[1], line)
            return True
        if self._state.unhealthy and (found := _DOCKER_KILL.search(text)) is not None:
            self._engine_kill(found[1], line)
            return False  # the kill is a sign of its own as well
        text = line.whole
        if (found := _KILL.search(text) or _OLD_KILL.search(text)) is not None:
            self._state.signs.append(self._kill(line, found[1], found[2]))
        elif (found := _UNHEALTHY.search(text)) is not None:
            self._state.signs.append(self._kill(line, found[2], "liveness"))
        elif (found := _FAILED.search(text)) is not None:
            self._fail(line, found)
        elif _GRACEFULLY.search(text) is not None:
            self._state.stopped.append(line)
        elif (found := _KILLING.search(text)) is not None:
            self._state.killing.append((line, found[1]))
        elif self._state.killing and _CREATED.search(text) is not None:
            self._state.created.append(line)
        else:
            return False
        return True

    def finish(self) -> list[Sign]:
        """Give the kills as causes and what failed without a kill as context."""
        signs = list(self._state.signs)
        if not signs and self._state.killing and self._state.created:
            signs.append(self._bare_kill())
        if not signs and self._state.stopped:
            signs.append(self._stop(self._state.stopped[0]))
        killed = {str(sign.fields["probe"]) for sign in signs}
        return [*signs, *(_context(probe) for probe in self._state.probes.values() if probe.kind not in killed)]

    def _fail(self, line: Line, found: re.Match[str]) -> None:
        kind = found[1].lower()
        count = _COUNT.search(line.whole)
        probe = self._state.probes.get(kind)
        if probe is None:
            probe = self._state.probes[kind] = _Probe(kind, line)
        probe.count += int(count[1]) if count else 1
        probe.window = count[2] if count else probe.window
        probe.detail = (found[2] or "").strip()

    def _kill(self, line: Line, container: str, kind: str) -> Sign:
        probe = self._state.probes.get(kind)
        detail = None if probe is None else probe.detail
        evidence = [seen(quote(line.text), line.file, line.number)]
        if probe is not None:
            evidence.insert(0, seen(quote(probe.first.text), probe.first.file, probe.first.number))
        fields: dict[str, Field] = {
            "probe": kind,
            "container": container,
            "failures": None if probe is None else probe.count,
            "error_kind": _kind_of(detail),
            "message_empty": None if probe is None else not detail,
            "killing_event": True,
            "memory_related": False if _kind_of(detail) == "connection refused" else None,
            "kill_at": None if line.stamp is None else line.stamp.text,
            **_record(line.whole),
        }
        return Sign(
            role=Role.CAUSE,
            source="Kubernetes events",
            file=line.file,
            line=line.number,
            end_class=EndClass.HEALTH_CHECK,
            confidence=Confidence.HIGH,
            subject="probe",
            summary=f"the kubelet killed container {container} because its {kind} probe failed"
            + ("" if probe is None else f" {_times(probe.count)}")
            + ("" if _kind_of(detail) is None else f" ({_kind_of(detail)})"),
            stamp=line.stamp,
            keys=part_keys(line.part) | _keys(container, line.whole),
            fields=fields,
            evidence=tuple(evidence),
            missing=("whether the kill was carried out: an event is intent; the container's last state tells",),
        )

    def _engine_kill(self, container_id: str, line: Line) -> None:
        """Tell a kill right after the engine found the container unhealthy."""
        before = self._state.unhealthy.pop(container_id, None)
        apart = None if before is None or before.stamp is None else before.stamp.apart(line.stamp)
        if before is None or (apart is not None and apart > _SOON_SECONDS):
            return
        self._state.signs.append(
            Sign(
                role=Role.CAUSE,
                source="container events",
                file=before.file,
                line=before.number,
                end_class=EndClass.HEALTH_CHECK,
                confidence=Confidence.MEDIUM,
                subject="probe",
                summary="the container was found unhealthy and ended right after it",
                stamp=before.stamp,
                keys=part_keys(before.part) | {f"container:{container_id}"},
                fields={"probe": "engine", "container_id": container_id, "inferred": True},
                evidence=tuple(seen(quote(one.text), one.file, one.number) for one in (before, line)),
                missing=("who ended it: the log of the orchestrator, or of the watcher",),
            )
        )

    def _stop(self, line: Line) -> Sign:
        """The kubelet's own log gives no reason beside the kill: a liveness probe of that pod that failed is one."""
        named = dict(_KLOG.findall(line.whole))
        probe = self._state.probes.get("liveness")
        mine = probe is not None and dict(_KLOG.findall(probe.first.whole)).get("pod") == named.get("pod")
        container = named.get("containerName")
        evidence = [*([probe.first] if mine and probe is not None else []), line]
        return Sign(
            role=Role.CAUSE,
            source="kubelet log",
            file=line.file,
            line=line.number,
            end_class=EndClass.HEALTH_CHECK if mine else EndClass.DELETION,
            confidence=Confidence.MEDIUM if mine else Confidence.LOW,
            subject="probe" if mine else "stopping",
            summary=f"the kubelet killed container {container or '(unnamed)'} "
            + ("after its liveness probe failed" if mine else "as it was told to; the line gives no reason"),
            stamp=line.stamp,
            keys=part_keys(line.part) | (frozenset() if container is None else _keys(container, line.whole)),
            fields={"container": container, "probe": "liveness" if mine else None, "inferred": True},
            evidence=tuple(seen(quote(one.text), one.file, one.number) for one in evidence),
            missing=("the reason for the kill: events of the pod (kubectl get events)",),
        )

    def _bare_kill(self) -> Sign:
        """Old kubelets gave no reason: killed and created again by the kubelet itself speaks for a probe, weakly."""
        line, container_id = self._state.killing[0]
        container = _CONTAINER.search(line.whole)
        times = [seconds for one, _ in self._state.killing if (seconds := _seconds(one.whole)) is not None]
        gaps = [round(later - sooner) for sooner, later in itertools.pairwise(times)]
        fields: dict[str, Field] = {
            "probe": "liveness",
            "inferred": True,
            "container": None if container is None else container[1],
            "container_id": container_id,
            "kill_interval_s": min(gaps, default=None) if len(times) >= _CADENCE else None,
            "failures": None,
        }
        return Sign(
            role=Role.CAUSE,
            source="Kubernetes events",
            file=line.file,
            line=line.number,
            end_class=EndClass.HEALTH_CHECK,
            confidence=Confidence.LOW,
            subject="probe",
            summary="the kubelet killed the container and created it again; the event gives no reason, a probe "
            "is the usual one",
            keys=frozenset({f"container:{container_id}"}),
            fields=fields,
            evidence=tuple(seen(quote(one.text), one.file, one.number) for one, _ in self._state.killing[:4]),
            missing=("the Unhealthy events before it, or the container's probe settings",),
        )


def _context(probe: _Probe) -> Sign:
    line = probe.first
    return Sign(
        role=Role.CONTEXT,
        source="Kubernetes events",
        file=line.file,
        line=line.number,
        end_class=EndClass.HEALTH_CHECK,
        subject="probe",
        summary=f"the {probe.kind} probe failed {_times(probe.count)}, with no kill for it",
        stamp=line.stamp,
        fields={
            "probe": probe.kind,
            "failures": probe.count,
            "window": probe.window,
            "error_kind": _kind_of(probe.detail),
            "killing_event": False,
        },
        evidence=(seen(quote(line.text), line.file, line.number),),
    )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _keys(container: str, text: str) -> frozenset[str]:
    pod = _OBJECT.search(text)
    return frozenset({f"name:{container}", *([f"object:{pod[1]}"] if pod else [])})


def _kind_of(detail: str | None) -> str | None:
    lowered = (detail or "").lower()
    return next((kind for word, kind in _ERRORS if word in lowered), None)


def _record(text: str) -> dict[str, Field]:
    """Read the fields that an event written as JSON has beside its message."""
    found = {"event_source": _SOURCE.search(text), "reason": _REASON.search(text), "timestamp": _TIME.search(text)}
    fields: dict[str, Field] = {name: hit[1] for name, hit in found.items() if hit is not None}
    count = _JSON_COUNT.search(text)
    return {**fields, **({} if count is None else {"count": int(count[1])})}


def _seconds(text: str) -> int | None:
    found = re.search(r"\b(\d{2}):(\d{2}):(\d{2})\b", text)
    return None if found is None else int(found[1]) * 3600 + int(found[2]) * 60 + int(found[3])
