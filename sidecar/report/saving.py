"""A text into a file: whole or not at all, and never over another one by surprise."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path


class ExistsError(Exception):
    """The file is there already."""


def save(path: Path, text: str, *, replace: bool) -> None:
    """Write the file in UTF-8. Raises `ExistsError`, or `OSError` with nothing left behind.

    What is there and no ordinary file, a terminal or a pipe, is written to, never replaced.
    """
    try:
        special = not stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        special = False
    if special:
        path.write_text(text, "utf-8")
        return
    place = path.with_name(f".{path.name}.{os.getpid()}") if replace else path
    try:
        file = place.open("x", encoding="utf-8")
    except FileExistsError as error:
        raise ExistsError from error
    try:
        with file:
            file.write(text)
        if replace:
            place.replace(path)
    except BaseException:
        with suppress(OSError):
            place.unlink()
        raise
