"""The report as text: in colour and as wide as the terminal, plain where it is none."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sidecar.report import scale
from sidecar.report.story import Chart, Curve, Shape, Statement, Story, Weight

_COLOURS: Final = {Weight.BAD: "red", Weight.WARNING: "yellow", Weight.PLAIN: "cyan"}
_LABEL_COLUMNS: Final = 25
_VALUE_COLUMNS: Final = 12
_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_ASCII: Final = "_.:-=+*#"
_DOTS: Final = (Shape.DOTS, Shape.FAILED)


def text(story: Story, *, columns: int, colours: bool, unicode: bool) -> str:
    """Give the report as text, `columns` wide."""
    out = io.StringIO()
    console = Console(file=out, width=columns, force_terminal=colours, highlight=False, markup=False, emoji=False)
    _head(console, story)
    _answers(console, story)
    _reasons(console, story)
    _timeline(console, story, unicode=unicode)
    _events(console, story)
    said = out.getvalue().replace("\N{MINUS SIGN}", "-")
    return "\n".join(line.rstrip() for line in said.splitlines()) + "\n"


def _head(console: Console, story: Story) -> None:
    verdict = story.verdict
    console.print(Text(f"{story.model} ended {story.at}   incident {story.id}", style="dim"))
    console.print(Text(verdict.headline, style=f"bold {_COLOURS[verdict.tone]}"))
    console.print(Text(f"{verdict.end_class}, {verdict.confidence}: {verdict.confidence_words}"))
    console.print()
    console.print(Text(verdict.summary))


def _answers(console: Console, story: Story) -> None:
    verdict = story.verdict
    group = f" ({verdict.group})" if verdict.group else ""
    rows = [("Whose limit", f"{verdict.whose}{group}")]
    rows += [("To change" if place == 0 else "", step) for place, step in enumerate(verdict.steps)]
    rows += [(fact.label, f"{fact.value}   {fact.note}".rstrip()) for fact in story.facts]
    console.print()
    console.print(_grid(rows))


def _grid(rows: Sequence[Sequence[str]]) -> Table:
    grid = Table.grid(padding=(0, 2))
    for row in rows:
        grid.add_row(
            *(Text(cell, style="bold" if place == 0 else "", overflow="fold") for place, cell in enumerate(row))
        )
    return grid


def _reasons(console: Console, story: Story) -> None:
    verdict = story.verdict
    _said(console, "For", [_sourced(one) for one in verdict.supporting])
    _said(console, "Against", [_sourced(one) for one in verdict.against])
    _said(console, "Missing", verdict.missing)
    _said(
        console,
        "How the verdict came about",
        [
            f"{one.at} {one.verdict}: {one.summary}{f' ({one.because})' if one.because else ''}"
            for one in verdict.history
        ],
    )
    _said(
        console,
        "Levels, own first: in use, limit, throttling, OOM kills",
        [f"{one.name}: {one.current}, {one.max}, {one.high}, {one.kills}" for one in story.levels],
    )


def _sourced(one: Statement) -> str:
    return f"{one.text}  [{one.source}]"


def _said(console: Console, title: str, texts: Sequence[str]) -> None:
    if not texts:
        return
    console.print()
    console.print(Text(title, style="bold"))
    console.print(Padding(_grid([("-", one) for one in texts]), (0, 0, 0, 2)))


def _timeline(console: Console, story: Story, *, unicode: bool) -> None:
    console.print()
    console.print(Text(f"Timeline, from {scale.from_end(story.start_s)} to the end", style="bold"))
    cells = max(10, console.width - _LABEL_COLUMNS - _VALUE_COLUMNS - 6)
    for chart in story.charts:
        where = "" if chart.where is None else f" ({chart.where})"
        notes = "".join(f"; {note}" for note in chart.notes)
        console.print(Padding(Text(f"{chart.title}{where}{notes}", style="cyan"), (0, 0, 0, 2)))
        grid = Table.grid(padding=(0, 2))
        grid.add_column(width=_LABEL_COLUMNS)
        grid.add_column(width=cells, no_wrap=True)
        for curve, drawn in _lines(chart, story.start_s, cells, unicode=unicode):
            value = "" if curve.shape in _DOTS else scale.words(curve.last_known(story.quiet_s), chart.unit)
            grid.add_row(curve.label, drawn, value)
        console.print(Padding(grid, (0, 0, 0, 2)))
    for lane in story.lanes:
        spans = [(f"{scale.from_end(round(one.start_s, 2))}", one.text) for one in lane.spans]
        console.print(Padding(Text(lane.title, style="cyan"), (0, 0, 0, 2)))
        console.print(Padding(_grid(spans), (0, 0, 0, 2)))
    _said(console, "Not in the record", story.unseen)


def _lines(chart: Chart, start_s: float, cells: int, *, unicode: bool) -> Iterator[tuple[Curve, str]]:
    values = [value for curve in chart.curves for _, value in curve.points if value is not None]
    top = scale.top_of(values, chart.unit)
    for curve in chart.curves:
        letters = _letters(curve, top, unicode=unicode)
        yield curve, "" if curve.shape is Shape.LIMIT else _spark(curve, start_s, cells, letters)


def _letters(curve: Curve, top: float, *, unicode: bool) -> list[tuple[float, str]]:
    """Give a letter for each height, lowest first; of dots one for all heights."""
    if curve.shape is Shape.FAILED:
        return [(0.0, "x")]
    if curve.shape is Shape.DOTS:
        return [(0.0, "•" if unicode else "o")]
    blocks = _BLOCKS if unicode else _ASCII
    return [(top * place / len(blocks), letter) for place, letter in enumerate(blocks)]


def _spark(curve: Curve, start_s: float, cells: int, letters: Sequence[tuple[float, str]]) -> str:
    """Draw the highest value of each cell of time; where nothing is known it stays empty."""
    highest: dict[int, float] = {}
    last: int | None = None  # the cell of the point before, where a line is drawn from it
    for at, value in curve.points:
        if value is None or not start_s <= at <= 0:
            last = None
            continue
        cell = min(cells - 1, int((at - start_s) / -start_s * cells))
        for place in range(cell if last is None else min(last + 1, cell), cell + 1):
            highest[place] = max(value, highest.get(place, value))
        last = None if curve.shape in _DOTS else cell
    return "".join(_letter(highest.get(cell), letters) for cell in range(cells))


def _letter(value: float | None, letters: Sequence[tuple[float, str]]) -> str:
    return " " if value is None else [letter for height, letter in letters if height <= value][-1]


def _events(console: Console, story: Story) -> None:
    if not story.happenings:
        return
    console.print()
    console.print(Text("Events", style="bold"))
    grid = Table.grid(padding=(0, 2))
    grid.add_column(justify="right", no_wrap=True)
    for one in story.happenings:
        colour = "" if one.weight is Weight.PLAIN else _COLOURS[one.weight]
        kind, said = Text(one.kind, style=colour), Text(one.text, overflow="fold")
        grid.add_row(scale.from_end(round(one.at_s, 2)), kind, said)
    console.print(Padding(grid, (0, 0, 0, 2)))
