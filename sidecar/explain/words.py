"""Which of many words stand in a line: a gate before any expression is tried.

Words are looked for only where a shorter root of theirs is found, so that a line that says nothing costs a few dozen
searches by the C library.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Generic, TypeVar

Target = TypeVar("Target", int, str)
Tree = tuple[tuple[str, tuple[tuple[str, tuple[Target, ...]], ...]], ...]
"""Roots, each with its words, each with what it points to."""

_ROOTS: Final = (
    *("memory", "alloc", "oom", "kill", "cuda", "error", "exit", "signal", "shared", "worker", "container", "evict"),
    *("process", "fault", "status", "result", "abort", "corrupt", "outof", "buffer", "health", "timed out", "device"),
)


class WordIndex(Generic[Target]):
    """Gives what a line's words point to."""

    def __init__(self, targets: Iterable[tuple[str, Target]]) -> None:
        words: dict[str, list[Target]] = {}
        for word, target in targets:
            words.setdefault(word, []).append(target)
        self._tree: Final[Tree[Target]] = _tree(words)

    def find(self, lowered: str) -> set[Target]:
        """Give the targets of all words in a line in lower case."""
        return {
            target
            for root, words in self._tree
            if root in lowered
            for word, targets in words
            if word in lowered
            for target in targets
        }


def _tree(words: Mapping[str, list[Target]]) -> Tree[Target]:
    """Put each word below the first root that it holds; a word without one is its own."""
    below: dict[str, list[str]] = {}
    for word in words:
        root = next((one for one in _ROOTS if one in word), word)
        below.setdefault(root, []).append(word)
    return tuple((root, tuple((word, tuple(words[word])) for word in held)) for root, held in below.items())
