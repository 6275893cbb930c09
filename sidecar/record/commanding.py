"""What the commands that read a record have in common: how each of them ends."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

from sidecar.record.output import EXIT_INTERRUPTED, OutputError
from sidecar.record.reading import RecordError

EXIT_BAD_INPUT: Final = 2


class RequestError(Exception):
    """One line that says what is wrong with what was asked for."""


def exit_status(name: str, work: Callable[[], object]) -> int:
    """Do the work of a command; give its exit status. What is wrong is one line on standard error."""
    try:
        work()
    except (RecordError, OutputError, RequestError) as error:
        sys.stderr.write(f"oomguard: {name}: {error}\n")
        return EXIT_BAD_INPUT
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        sys.stderr.write(f"oomguard: {name}: interrupted, nothing is left behind\n")
        return EXIT_INTERRUPTED
    return 0
