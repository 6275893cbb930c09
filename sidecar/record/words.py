"""The words that we publish ourselves: what a redacted text may keep, as it stands in our own sources."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from sidecar.record.redact import words_of


@cache
def public_words() -> frozenset[str]:
    """Read them from the sources beside us, about 0.2 s once. Where there are none (compiled only), less is kept."""
    packages = Path(__file__).resolve().parents[2]
    sources = (path for name in ("guard", "sidecar") for path in (packages / name).rglob("*.py"))
    return frozenset().union(*(words_of(path.read_text(encoding="utf-8")) for path in sources))
