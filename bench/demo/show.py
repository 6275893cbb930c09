"""What the demo prints: headings, sentences, and one row a second with both opinions side by side."""

from __future__ import annotations

import shutil
import sys

from bench.demo.probes import Round

_BOLD, _RED, _GREEN, _DIM, _PLAIN = "\033[1m", "\033[31m", "\033[32m", "\033[2m", "\033[0m"
_PLAIN_COLUMN = 20


class Show:
    """Colours on a terminal, plain lines elsewhere."""

    def __init__(self) -> None:
        self._colours = sys.stdout.isatty()
        self._columns = shutil.get_terminal_size((120, 24)).columns if self._colours else 160

    def heading(self, text: str) -> None:
        """Begin a part."""
        print(f"\n{self._in(_BOLD, text)}", flush=True)

    def say(self, text: str) -> None:
        """Say a sentence."""
        print(f"  {text}", flush=True)

    def columns(self) -> None:
        """Name the columns of `row`."""
        print(self._in(_DIM, f"  {'s':>4}  {'plain probe':<{_PLAIN_COLUMN}}sidecar /livez"), flush=True)

    def row(self, number: int, seen: Round) -> None:
        """Print what both said in one second."""
        plain = f"{seen.plain.text:<{_PLAIN_COLUMN}}"
        verdict = "alive" if seen.sidecar.ok else "FAILED"
        words = f"{verdict}, {seen.sidecar.text}"[: max(20, self._columns - 8 - _PLAIN_COLUMN)]
        print(f"  {number:>4}  {self._judged(seen.plain.ok, plain)}{self._judged(seen.sidecar.ok, words)}", flush=True)

    def _judged(self, passed: bool, text: str) -> str:  # noqa: FBT001 - private
        return self._in(_GREEN if passed else _RED, text)

    def _in(self, colour: str, text: str) -> str:
        return f"{colour}{text}{_PLAIN}" if self._colours else text
