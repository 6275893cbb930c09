"""Reporting memory failures that pass through an adapter on their way to the framework, which survives them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import guard
from guard.failure import memory_kind
from guard.fence import fence

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def reporting() -> Iterator[None]:
    """Report a memory failure of the block; every exception passes."""
    try:
        yield
    except Exception as exc:
        with fence("adapter"):
            if memory_kind(exc) is not None:
                guard.report(exc)
        raise
