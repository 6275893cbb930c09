"""The lines as a picture: for each scenario how long each judge took to fail it, with its bound; SVG by hand."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Final

from bench.health.line import Line

_COLOURS: Final = {"A": "#888", "B": "#1f77b4", "C": "#2ca02c"}
_LEFT, _WIDTH, _ROW, _BAR = 330, 560, 40, 9
_LONGEST_SECONDS: Final = 70.0
_TITLE: Final = "seconds until a judge failed it; | its bound; A plain prober, B sidecar, C sidecar and guard"


def write_chart(lines: Sequence[Line], path: Path) -> None:
    """Write the picture."""
    names = list(dict.fromkeys(line.scenario for line in lines))
    height = len(names) * _ROW + 60
    size = f'width="{_LEFT + _WIDTH + 40}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_LEFT}" y="16">{_TITLE}</text>',
    ]
    for row, name in enumerate(names):
        top = 30 + row * _ROW
        mine = [line for line in lines if line.scenario == name]
        well = "well" if mine[0].healthy else "hang"
        parts.append(f'<text x="{_LEFT - 8}" y="{top + 20}" text-anchor="end">{escape(name)} ({well})</text>')
        parts += [_bar(line, top + 4 + "ABC".index(line.judge) * (_BAR + 2)) for line in mine]
    path.write_text("\n".join([*parts, "</svg>\n"]))


def _bar(line: Line, top: int) -> str:
    if line.failed_after_s is None:
        drawn = f'<text x="{_LEFT + 2}" y="{top + _BAR}" font-size="9">{line.judge}: not failed</text>'
    else:
        width = max(2.0, _x(line.failed_after_s))
        stroke = "" if line.right else ' stroke="red" stroke-width="2"'
        colour = _COLOURS[line.judge]
        drawn = f'<rect x="{_LEFT}" y="{top}" width="{width:.0f}" height="{_BAR}" fill="{colour}"{stroke}/>'
    if line.bound_s is not None:
        x = _LEFT + _x(line.bound_s)
        drawn += f'<line x1="{x:.0f}" y1="{top}" x2="{x:.0f}" y2="{top + _BAR}" stroke="black"/>'
    return drawn


def _x(seconds: float) -> float:
    return min(max(seconds, 0.0), _LONGEST_SECONDS) / _LONGEST_SECONDS * _WIDTH
