"""Wait in a running loop for what another thread or process does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def eventually(condition: Callable[[], T], what: str) -> T:
    """Let the loop run until a condition is true, and give it; half a minute at most."""
    try:
        async with asyncio.timeout(30):
            while not (value := condition()):  # noqa: ASYNC110 - what changes sets no event here
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"waited in vain for {what}") from None
    return value
