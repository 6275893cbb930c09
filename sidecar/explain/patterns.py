"""What a recognisable message is: a table row. The rows stand in the modules of `messages`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sidecar.explain.values import Field, Line, Role, Sign, part_keys, seen
from sidecar.explain.words import WordIndex
from sidecar.verdict.values import Confidence, EndClass

Read = Callable[[str, re.Match[str]], dict[str, Field]]
LONGEST_LINE: Final = 16_384
"""Characters of a line that are looked at. Longer ones are cut in the middle: the two ends say what it is."""


def nothing(_text: str, _found: re.Match[str]) -> dict[str, Field]:
    """Read no fields."""
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """One message. `words`: lower case, one of them is in every line that `start` matches; a cheap gate.

    `after`: how many following lines may hold the rest of the message. `read` gets the whole window. The fields
    `end_class`, `confidence` and `role` that it gives replace the row's own.
    """

    subject: str
    end_class: EndClass
    words: tuple[str, ...]
    start: re.Pattern[str]
    summary: str
    read: Read = nothing
    after: int = 0
    again: bool = True  # a second start is a new message, not the rest of the first
    role: Role = Role.CAUSE
    confidence: Confidence = Confidence.HIGH
    unless: re.Pattern[str] | None = None
    missing: tuple[str, ...] = ()
    source: str = "server log"


@dataclass(slots=True)
class Window:
    """A message whose rest may still come."""

    pattern: Pattern
    first: Line
    found: re.Match[str]
    texts: list[str]
    left: int

    def sign(self) -> Sign | None:
        """Make the sign of it. None where the fields say that it is none."""
        text = " ".join(part.strip() for part in self.texts)
        fields = self.pattern.read(text, self.found)
        role = Role(str(fields.pop("role", self.pattern.role)))
        summary = str(fields.pop("summary", self.pattern.summary))
        pids = fields.pop("pids", None)
        keys = fields.pop("keys", None)
        return Sign(
            role=role,
            source=self.pattern.source,
            file=self.first.file,
            line=self.first.number,
            end_class=EndClass(str(fields.pop("end_class", self.pattern.end_class))),
            confidence=Confidence(str(fields.pop("confidence", self.pattern.confidence))),
            subject=self.pattern.subject,
            summary=summary,
            stamp=self.first.stamp,
            keys=part_keys(self.first.part) | frozenset(map(str, keys) if isinstance(keys, list) else ()),
            pids=frozenset(one for one in pids if isinstance(one, int)) if isinstance(pids, list) else frozenset(),
            fields=fields,
            evidence=(seen(quote(self.first.text), self.first.file, self.first.number),),
            missing=self.pattern.missing,
        )


def quote(text: str) -> str:
    """Shorten a line for showing."""
    words = " ".join(text.split())
    return words if len(words) <= 240 else f"{words[:200]} ... {words[-30:]}"  # noqa: PLR2004 - about three lines


class MessageParser:
    """Matches lines against a table of patterns, first match first, and gathers the lines that belong to a match."""

    def __init__(self, patterns: tuple[Pattern, ...]) -> None:
        self._patterns = patterns
        self._index = WordIndex((word, at) for at, pattern in enumerate(patterns) for word in pattern.words)
        self._open: list[Window] = []
        self._signs: list[Sign] = []

    @property
    def busy(self) -> bool:
        """Tell whether the next line may belong to a message that began before."""
        return bool(self._open)

    def feed(self, line: Line) -> bool:
        """Take one line; tell whether it said something."""
        text = line.text
        lowered = text.lower()
        match = self._match(text, lowered)
        used = match is not None or bool(self._open)
        if match is not None:
            self._close(lambda window: _is_of(window, line) and not _goes_on(window.pattern, match[0]))
        mine = [window for window in self._open if _is_of(window, line)]
        absorbed = match is not None and any(_takes_in(window.pattern, match[0]) for window in mine)
        for window in mine:
            window.texts.append(text)
            window.left -= 1
        if match is not None and not absorbed:
            self._open.append(Window(match[0], line, match[1], [text], match[0].after))
        self._close(lambda window: window.left <= 0)
        return used

    def _match(self, text: str, lowered: str) -> tuple[Pattern, re.Match[str]] | None:
        """Give the first pattern of the table that matches; only those are tried that have a word in the line."""
        for at in sorted(self._index.find(lowered)):
            pattern = self._patterns[at]
            found = pattern.start.search(text)
            if found is not None and (pattern.unless is None or not pattern.unless.search(text)):
                return pattern, found
        return None

    def finish(self) -> list[Sign]:
        """Give the signs, in the order of their first lines."""
        self._close(lambda _window: True)
        signs, self._signs = sorted(self._signs, key=lambda sign: sign.line), []
        return signs

    def _close(self, over: Callable[[Window], bool]) -> None:
        for window in [one for one in self._open if over(one)]:
            self._open.remove(window)
            sign = window.sign()
            if sign is not None:
                self._signs.append(sign)


def _is_of(window: Window, line: Line) -> bool:
    """Tell whether a line may go on with a message: not where another of several writers wrote it."""
    return line.part in (0, window.first.part)


def _goes_on(first: Pattern, then: Pattern) -> bool:
    """Tell whether a message may go on behind a match of another pattern: of advice, or of more words for the same."""
    return then.role is Role.CONTEXT or _takes_in(first, then)


def _takes_in(first: Pattern, then: Pattern) -> bool:
    """Tell whether a match is only the rest of an earlier one."""
    return not first.again and then.end_class is first.end_class and then.role is first.role
