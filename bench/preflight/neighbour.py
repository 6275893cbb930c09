"""A process in the same cgroup that takes the last memory, at once.

    python -m bench.preflight.neighbour

Prints "ready". Each line on standard input is a number of bytes: it gives back what it has, takes so many, and says
"took".
"""

from __future__ import annotations

import mmap
import sys

_POPULATED = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE


def main() -> None:
    """Serve until standard input ends."""
    held: mmap.mmap | None = None
    _say("ready")
    for line in sys.stdin:
        if held is not None:
            held.close()
        held = mmap.mmap(-1, int(line), _POPULATED) if int(line) else None
        _say("took")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
