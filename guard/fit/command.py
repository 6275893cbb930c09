"""`oomguard preflight PATH`: will this checkpoint fit here, and how could it be loaded for less?"""

from __future__ import annotations

import argparse
import contextlib
import json
from typing import Final

from guard.fit.check import DEFAULT_WAIT_SECONDS, POLICIES, RAISE, WAIT, answer, ask, enforce
from guard.fit.paths import PATHS
from guard.fit.values import Answer
from guard.refusal import WouldNotFit
from guard.saying import complain, say

EXIT_FITS, EXIT_WOULD_NOT_FIT, EXIT_BAD_INPUT, EXIT_CANNOT_TELL = 0, 1, 2, 3
_STATUS: Final = {
    Answer.FITS: EXIT_FITS,
    Answer.WOULD_NOT_FIT: EXIT_WOULD_NOT_FIT,
    Answer.CANNOT_TELL: EXIT_CANNOT_TELL,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Reads the headers of a checkpoint and says whether loading it fits into what is left here. "
        "Exit status: 0 it fits, 1 it would not fit, 2 bad input, 3 it cannot be told."
    )
    parser.add_argument("checkpoint", metavar="PATH", help="a weight file, an index of shards, or a folder with either")
    parser.add_argument("--path", metavar="NAME", help=f"how it is loaded: {'; '.join(PATHS)}")
    parser.add_argument("--device", help="where the tensors end up: cpu (default), cuda, cuda:N")
    parser.add_argument("--dtype", help="element type that the model will have (default: as stored)")
    parser.add_argument(
        "--policy", choices=POLICIES, default=RAISE, help="wait: wait for room first. warn, raise: answer at once"
    )
    parser.add_argument("--wait-seconds", type=float, default=DEFAULT_WAIT_SECONDS, help="how long to wait at most")
    parser.add_argument("--json", action="store_true", help="the answer as one JSON object")
    parser.set_defaults(act=run)


def run(arguments: argparse.Namespace) -> int:
    """Answer on standard output; give the exit status."""
    try:
        question = ask(arguments.checkpoint, device=arguments.device, path=arguments.path, dtype=arguments.dtype)
        if arguments.policy == WAIT:
            with contextlib.suppress(WouldNotFit):  # the answer that follows says so
                enforce(question, WAIT, arguments.wait_seconds)
        found = answer(question)
    except ValueError as error:
        complain(f"oomguard preflight: {error}\n")
        return EXIT_BAD_INPUT
    text = json.dumps(found.document()) if arguments.json else str(found)
    with contextlib.suppress(OSError):  # the status is the answer
        say(text + "\n")
    return _STATUS[found.answer]
