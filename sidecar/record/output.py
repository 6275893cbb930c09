"""Writing a result: whole or not at all, and never over something that is there."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import BinaryIO, Final

STANDARD_OUTPUT: Final = "-"
EXIT_INTERRUPTED: Final = 130
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class OutputError(Exception):
    """The result cannot be written. One line that says why and what to do."""


class InterruptedOutputError(KeyboardInterrupt):
    """Ctrl-C or SIGTERM came.

    A class of its own: where a plain KeyboardInterrupt passes through exec() of a text, as in many an import, CPython
    ends the process by SIGINT even if it was caught (3.11, Python/pythonrun.c, unhandled_keyboard_interrupt).
    """


@contextmanager
def writing(name: str, *, replace: bool = False) -> Iterator[BinaryIO]:
    """Give a file to write to; at the end of the block it is there under its name, after an exception nothing is.

    "-" is standard output; what is not a regular file (a pipe, a device) is written to directly. A new file may be read
    by its owner alone. SIGTERM and SIGHUP end the block as Ctrl-C does: with a `KeyboardInterrupt`.

    Raises:
        OutputError: it is there already (without `replace`); it cannot be written. A closed pipe raises
            `BrokenPipeError` as ever.
    """
    with _orderly_end():
        try:
            if name == STANDARD_OUTPUT:
                yield sys.stdout.buffer
                sys.stdout.buffer.flush()
            elif _is_special(Path(name)):
                with Path(name).open("wb") as file:
                    yield file
            else:
                with _new_file(Path(name), replace=replace) as file:
                    yield file
        except OSError as error:
            if name == STANDARD_OUTPUT:
                _forget_standard_output()
            if isinstance(error, BrokenPipeError):
                raise
            where = "standard output" if name == STANDARD_OUTPUT else name
            raise OutputError(f"{where}: {error.strerror or error}") from error


def say(text: str) -> None:
    """Print: also where the terminal has fewer letters than the text, and into a pipe that closes early.

    Raises:
        OutputError: standard output takes nothing.
    """
    with contextlib.suppress(BrokenPipeError), writing(STANDARD_OUTPUT) as file:
        file.write(text.encode(sys.stdout.encoding or "ascii", "backslashreplace"))


def _forget_standard_output() -> None:
    """Let the interpreter's last flush go nowhere, or it complains at its exit and changes the status."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _new_file(path: Path, *, replace: bool) -> Iterator[BinaryIO]:
    """A file beside the path under another name, which takes the path's name at the end."""
    if not replace and path.exists():
        raise _taken(path)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)  # or one in between would leave the file
    try:
        descriptor, made = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.", suffix=".part")
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            with os.fdopen(descriptor, "wb") as file:
                yield file
            _give_name(Path(made), path, replace=replace)
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
            Path(made).unlink(missing_ok=True)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _give_name(made: Path, path: Path, *, replace: bool) -> None:
    """Rename; a link instead fails where somebody made the same file meanwhile. Not every file system has links."""
    if replace:
        made.replace(path)
        return
    try:
        path.hardlink_to(made)
    except FileExistsError:
        raise _taken(path) from None
    except OSError:
        made.replace(path)


def _taken(path: Path) -> OutputError:
    return OutputError(f"{path} is there already; give another name, or --force to replace it")


def _is_special(path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        mode = path.stat().st_mode
        return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)
    return False


@contextmanager
def _orderly_end() -> Iterator[None]:
    """Turn the signals that end a command into an exception, for the time of the block."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise InterruptedOutputError

    before = {number: signal.signal(number, stop) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
