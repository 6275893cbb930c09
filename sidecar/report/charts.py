"""Which charts a timeline has. Pure: frames in, curves out; a chart of which nothing was ever known is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from sidecar.report.charts_memory import memory, others
from sidecar.report.curves import ever, known, known_ones, of_level, rates, values
from sidecar.report.frames import Frame
from sidecar.report.rows import Gpu, Key, Level, Row, Stall
from sidecar.report.story import Chart, Curve, Point, Shape, Unit

_MICRO: Final = 1_000_000


def pressure(frames: Sequence[Frame], level: str) -> Chart | None:
    """Draw which share of the time tasks stalled for memory and for the disk; of the node where the level has none."""
    chart = _stalls(
        frames, "Pressure (PSI): share of the time stalled", lambda row, name: _stall(row.level(level), name)
    )
    return chart or _stalls(
        frames, "Pressure (PSI) of the whole node: share of the time stalled", lambda row, name: getattr(row.node, name)
    )


def _stall(level: Level | None, name: str) -> Stall:
    return Stall() if level is None else getattr(level, name)


def _stalls(frames: Sequence[Frame], title: str, stall: Callable[[Row, str], Stall]) -> Chart | None:
    def share(name: str, kind: str) -> tuple[Point, ...]:
        def pick(row: Row) -> float | None:
            total: int | None = getattr(stall(row, name), kind)
            return None if total is None else total / _MICRO

        return tuple((at, None if value is None else min(1.0, value)) for at, value in rates(frames, pick))

    curves = [
        Curve(label=label, style=style, shape=Shape.LINE, points=share(name, kind))
        for label, style, name, kind in (
            ("all tasks, for memory", "memory-full", "memory_psi", "full_us"),
            ("some task, for memory", "memory-some", "memory_psi", "some_us"),
            ("all tasks, for a disk", "io-full", "io_psi", "full_us"),
            ("some task, for a disk", "io-some", "io_psi", "some_us"),
        )
    ]
    drawn = known_ones(curves)
    return Chart(title=title, unit=Unit.SHARE, curves=drawn) if drawn else None


def faults(frames: Sequence[Frame], level: str) -> list[Chart]:
    """Draw how often memory had to come from a disk: major faults, and pages that were evicted shortly before."""

    def refaults(one: Level) -> float | None:
        parts = [_counter(one, f"workingset_refault_{kind}") for kind in ("file", "anon")]
        return None if None in parts else sum(part or 0 for part in parts)

    charts = []
    for title, style, pick in (
        ("Major faults", "faults", lambda one: _counter(one, "pgmajfault")),
        ("Evicted pages read again", "refaults", refaults),
    ):
        points = rates(frames, of_level(level, pick))
        if known(points):
            curve = Curve(label=title.lower(), style=style, shape=Shape.LINE, points=points)
            charts.append(Chart(title=title, unit=Unit.PER_SECOND, curves=(curve,)))
    return charts


def _counter(level: Level, name: str) -> int | None:
    """Give a counter with the groups below it; v1 prints it a second time for that."""
    return level.stat.get(f"total_{name}", level.stat.get(name))


def gpus(frames: Sequence[Frame]) -> list[Chart]:
    """Draw memory in use of each card against what it has."""
    charts = []
    for index in sorted({card.index for frame in frames for card in frame.row.gpus}):

        def used(row: Row, index: int = index) -> float | None:
            card = _card(row, index)
            return None if card is None else card.used

        def total(row: Row, index: int = index) -> float | None:
            card = _card(row, index)
            return None if card is None or card.used is None or card.free is None else card.used + card.free

        charts.append(
            Chart(
                title=f"Memory of GPU {index}",
                unit=Unit.BYTES,
                curves=(
                    Curve(label="in use", style="gpu", shape=Shape.LINE, points=values(frames, used)),
                    Curve(label="the card has", style="max", shape=Shape.LIMIT, points=values(frames, total)),
                ),
                notes=("the card did not answer at times",)
                if any((card := _card(frame.row, index)) is not None and card.lost for frame in frames)
                else (),
            )
        )
    return charts


def _card(row: Row, index: int) -> Gpu | None:
    return next((card for card in row.gpus if card.index == index), None)


def probes(frames: Sequence[Frame]) -> Chart | None:
    """Draw when each probe of the model ended, and after how long; failures apart."""
    seen: dict[float, tuple[float, float, str]] = {}
    for frame in frames:
        probe = frame.row.probe
        if probe is not None:
            ended = frame.at_s - frame.row.monotonic_s + probe.started_monotonic_s + probe.latency_seconds
            seen[probe.started_monotonic_s] = (ended, probe.latency_seconds, probe.outcome)
    shown = [one for one in seen.values() if frames[0].at_s <= one[0]]
    if not shown:
        return None
    good = tuple((at, latency) for at, latency, outcome in shown if outcome == "ok")
    bad = tuple((at, latency) for at, latency, outcome in shown if outcome != "ok")
    curves = [
        Curve(label="answered", style="probe", shape=Shape.DOTS, points=good),
        Curve(label=_failed(Counter(outcome for _, _, outcome in shown)), style="bad", shape=Shape.FAILED, points=bad),
    ]
    drawn = tuple(curve for curve in curves if curve.points)
    return Chart(title="Probe of the model: time to the answer", unit=Unit.SECONDS, curves=drawn)


def _failed(outcomes: Counter[str]) -> str:
    words = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()) if outcome != "ok")
    return f"failed ({words})"


def node(frames: Sequence[Frame]) -> Chart | None:
    """Draw memory that the node had left."""
    points = values(frames, lambda row: row.node.available)
    if not known(points):
        return None
    whole = values(frames, lambda row: row.node.total)
    curves = (
        Curve(label="available", style="node", shape=Shape.LINE, points=points),
        Curve(label="the node has", style="high", shape=Shape.LIMIT, points=whole),
    )
    return Chart(title="Memory available on the node", unit=Unit.BYTES, curves=known_ones(curves))


def work(frames: Sequence[Frame]) -> list[Chart]:
    """Draw how far each load or other work with a known size was."""
    sized = (
        one for frame in frames for one in frame.row.operations if one.bytes_expected and one.bytes_done is not None
    )
    charts = []
    for key, name in dict.fromkeys((one.key, one.name) for one in sized):

        def done(row: Row, key: Key = key) -> float | None:
            found = row.operation(key)
            return None if found is None else found.bytes_done

        def expected(row: Row, key: Key = key) -> float | None:
            found = row.operation(key)
            return None if found is None else found.bytes_expected

        points = values(frames, done)
        if not ever(points):  # it loads without saying how far it is
            continue
        curves = (
            Curve(label="done", style="node", shape=Shape.LINE, points=points),
            Curve(label="expected", style="high", shape=Shape.LIMIT, points=values(frames, expected)),
        )
        charts.append(Chart(title=f"Progress of {name}", unit=Unit.BYTES, curves=curves))
    return charts


def all_charts(frames: Sequence[Frame], level: str | None) -> tuple[Chart, ...]:
    """Give every chart that has anything to show, the one of the level in question first."""
    if not frames:
        return ()
    found: list[Chart | None] = []
    if level is not None:
        found += [memory(frames, level), *others(frames, level), pressure(frames, level), *faults(frames, level)]
    found += [*work(frames), *gpus(frames), probes(frames), node(frames)]
    return tuple(chart for chart in found if chart is not None)
