"""A progress bar on a terminal; nothing anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(doing: str, total: int | None, *, shown: bool = True) -> Iterator[Callable[[int], None]]:
    """Give what to call with how much more is done. The bar is on standard error, and is gone at the end.

    `shown` false: not worth one, or the result itself goes to the terminal.
    """
    if shown and sys.stderr.isatty():
        try:
            from rich.console import Console
            from rich.progress import Progress
        except ImportError:  # the result does not need it
            pass
        else:
            with Progress(console=Console(stderr=True), transient=True) as progress:
                task = progress.add_task(doing, total=total)
                yield lambda count: progress.advance(task, count)
                return
    yield lambda _count: None
