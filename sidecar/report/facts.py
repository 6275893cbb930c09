"""The few numbers that a reader compares, and where it happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sidecar.report.rows import Document, Level, Limit, Row
from sidecar.report.story import Chart, Fact, Happening, LevelFacts, Shape
from sidecar.units import human_bytes, human_seconds, human_share
from sidecar.verdict.values import EndClass


def facts(document: Document, last: Row | None, events: Sequence[Happening]) -> tuple[Fact, ...]:
    """Give at most six numbers; what is not known is left out here and said under `missing`."""
    found = (
        _ending(document),
        _held(document),
        _available(last),
        _work(document),
        _warned(events),
        _probe_failures(document),
        _gpu(last),
    )
    return tuple(fact for fact in found if fact is not None)[:6]


def _ending(document: Document) -> Fact | None:
    signal, code = document.word("signal"), document.count("exit_code")
    if signal is None and code is None:
        return None
    value = signal if signal is not None else f"exit code {code}"
    return Fact(label="It ended by", value=value, note=f"process {document.life.pid}")


def _held(document: Document) -> Fact | None:
    limit, held = document.count("limit_bytes"), document.count("unreclaimable_bytes")
    if limit is None or held is None:
        return None
    share = f"{human_share(held / limit)} of " if limit else ""
    return Fact(label="Could not be reclaimed", value=human_bytes(held), note=f"{share}the limit, {human_bytes(limit)}")


def _available(last: Row | None) -> Fact | None:
    if last is None or last.node.available is None:
        return None
    available, total = last.node.available, last.node.total
    note = f"{human_share(available / total)} of {human_bytes(total)}" if total else "available"
    return Fact(label="The node still had", value=human_bytes(available), note=note)


def _work(document: Document) -> Fact | None:
    expected, done = document.count("in_flight_bytes_expected"), document.count("in_flight_bytes_done")
    file = document.word("in_flight_file") or document.word("in_flight_label")
    if file is None:
        return None
    value = human_share(done / expected) if done is not None and expected else "in flight"
    of = f" of {human_bytes(expected)}" if expected else ""
    return Fact(label="It was loading", value=value, note=f"{file.rpartition('/')[2]}{of}")


def _warned(events: Sequence[Happening]) -> Fact | None:
    warnings = [one.at_s for one in events if one.kind == "warning" and one.weight == "warning" and one.at_s <= 0]
    if not warnings:
        return None
    return Fact(label="First warning", value=f"{human_seconds(-warnings[0])} before", note=f"{len(warnings)} in all")


def _probe_failures(document: Document) -> Fact | None:
    failures = document.count("liveness_failures")
    if not failures:
        return None
    return Fact(label="/livez failed", value=f"{failures} in a row", note="as answered by the sidecar, up to the end")


def _gpu(last: Row | None) -> Fact | None:
    cards = [] if last is None else [card for card in last.gpus if card.used is not None and card.free is not None]
    if not cards:
        return None
    fullest = min(cards, key=lambda card: card.free or 0)
    total = (fullest.used or 0) + (fullest.free or 0)
    return Fact(
        label=f"GPU {fullest.index} in use", value=human_bytes(fullest.used or 0), note=f"of {human_bytes(total)}"
    )


def levels(document: Document, last: Row | None, after: Row | None) -> tuple[LevelFacts, ...]:
    """Say of each level, own first, what it held and allowed just before the end, and what it counted since."""
    return tuple(
        LevelFacts(
            name=level.name,
            current=_size(level.current),
            max=_size(level.max),
            high="none on v1" if level.version == 1 else _size(level.high),
            kills=_kills(level, None if after is None else after.level(level.name)),
            culprit=document.end_class is EndClass.CGROUP_OOM and level.name == document.level,
        )
        for level in (() if last is None else last.levels)
    )


def _size(value: Limit | None) -> str:
    if value is None:
        return "unknown"
    return value if isinstance(value, str) else human_bytes(value)


def _kills(before: Level, after: Level | None) -> str:
    then, now = before.killed, None if after is None else after.killed
    if then is None or now is None:
        return "unknown"
    return str(now - then if now >= then else now)


def known(document: Document) -> tuple[Fact, ...]:
    """Give every field of the verdict that is known, by its name in /incidents."""
    return tuple(
        Fact(label=name, value=_field(name, value)) for name, value in document.fields.items() if value is not None
    )


def _field(name: str, value: object) -> str:
    if name.endswith("_bytes") and isinstance(value, int | float):
        return f"{human_bytes(value)} ({value})"
    return str(value)


def unseen(last: Row | None, charts: Sequence[Chart]) -> tuple[str, ...]:
    """Say what the timeline does not show, and why."""
    said = []
    if not charts:
        said.append("The record holds no sample around this end: no sidecar saw it, or its samples have made room.")
    if last is not None and last.hidden_ancestors:
        said.append("Levels above the last one are hidden by a cgroup namespace: a limit there cannot be seen.")
    has_gpu = any(chart.title.startswith("Memory of GPU") for chart in charts)
    if charts and not has_gpu:
        said.append("GPU memory: no reading in the record.")
    if charts and not any(curve.shape in (Shape.DOTS, Shape.FAILED) for chart in charts for curve in chart.curves):
        said.append("Probes: none was made in this time, or no probe is set (OOMGUARD_PROBE).")
    return tuple(said)


def surroundings(document: Document, last: Row | None, meta: Mapping[str, str]) -> tuple[Fact, ...]:
    """Say where it happened and what wrote it down."""
    after = document.verdict_after_seconds
    version = last.levels[0].version if last is not None and last.levels else None
    found = (
        ("Incident", document.id),
        ("Process", f"{document.life.pid}{'' if document.main else ', a child of the model'}"),
        ("Verdict after", None if after is None else human_seconds(after)),
        ("Model seen by", None if last is None else last.sight),
        ("Cgroups", None if version is None else f"v{version}"),
        ("Kernel", meta.get("kernel")),
        ("Machine", meta.get("machine")),
        ("Release of the sidecar", meta.get("release")),
        ("Sidecar started", meta.get("opened")),
        ("Boot", document.life.boot_id or None),
    )
    return tuple(Fact(label=label, value=value or "not recorded") for label, value in found)
