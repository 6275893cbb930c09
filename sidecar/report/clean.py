"""Texts without what could move a cursor, hide letters or break a page."""

from __future__ import annotations

import re
from typing import Any, Final

_UNSAFE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def clean(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Give JSON with each control letter, half of a surrogate pair and change of direction replaced, keys included."""
    if isinstance(value, str):
        return _UNSAFE.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    return value
