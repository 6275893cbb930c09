"""A Python traceback that nothing follows: the last words of a server that ended by an exception.

One in the middle of a log is somebody's report of an error that was caught, and ends nothing.
"""

from __future__ import annotations

import re
from typing import Final

from sidecar.explain.ends import end_fields
from sidecar.explain.patterns import quote
from sidecar.explain.values import Field, Line, Role, Sign, part_keys, seen
from sidecar.verdict.values import Confidence, EndClass

_HEAD: Final = "Traceback (most recent call last):"
_LAST: Final = re.compile(r"([A-Za-z_][\w.]{0,200})(?:: (.{0,2000}))?$")
_INTERRUPT: Final = "KeyboardInterrupt"
_CHAINED: Final = ("During handling of the above exception", "The above exception was the direct cause")


class TracebackParser:
    """Holds the last traceback for as long as nothing else comes behind it."""

    def __init__(self) -> None:
        self._head: Line | None = None
        self._last: Line | None = None

    @property
    def busy(self) -> bool:
        """Tell whether the next line matters whatever it says."""
        return self._head is not None

    def feed(self, line: Line) -> None:
        """Take one line."""
        text = line.text
        if text.startswith(_HEAD):
            self._head, self._last = line, None
        elif self._head is None or not text.strip() or text.startswith((" ", "\t", *_CHAINED)):
            return
        elif self._last is None and _LAST.match(text) is not None:
            self._last = line
        else:
            self._head = self._last = None

    def finish(self) -> list[Sign]:
        """Give the end by the exception, if the text ends with one."""
        head, last = self._head, self._last
        found = None if last is None else _LAST.match(last.text)
        if head is None or last is None or found is None:
            return []
        name = found[1].rpartition(".")[2]
        interrupted = name == _INTERRUPT
        ended = end_fields(code=None, signal="SIGINT") if interrupted else {}
        fields: dict[str, Field] = {"exception": found[1], "message": found[2], "signal": ended.get("signal")}
        return [
            Sign(
                role=Role.END,
                source="server log",
                file=last.file,
                line=last.number,
                end_class=EndClass.EXTERNAL_KILL if interrupted else EndClass.APPLICATION_EXIT,
                confidence=Confidence.LOW,
                subject="traceback",
                summary="Python was interrupted by SIGINT"
                if interrupted
                else f"Python ended with an exception that nobody caught ({name})",
                stamp=head.stamp,
                keys=part_keys(last.part),
                fields=fields,
                evidence=(seen(quote(last.text), last.file, last.number),),
                missing=("whether the process ended with it: exit code or container state",),
            )
        ]
