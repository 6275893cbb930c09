"""`python -m bench.demo`. Exit status: 0 all promises held, 1 one did not, 2 the rights are missing."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Import the demo, which takes a moment; until then there is nothing to clean up, so Ctrl-C just ends it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from bench.demo.performance import perform

    return perform()


if __name__ == "__main__":
    sys.exit(main())
