"""`python -m tests.lab.vm [--memory MIB] [--timeout SECONDS] [--systemd] -- COMMAND`: run a command in the machine."""

from __future__ import annotations

import argparse
import sys

from tests.lab.vm.kernel import NotAvailableError
from tests.lab.vm.machine import Job, run


def main() -> int:
    """Return the command's exit status; 125 when the machine did not come that far, 2 when there is none."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.vm", description="Run a command on pure cgroup v2.")
    parser.add_argument("--memory", type=int, default=1024, metavar="MIB", help="size of the machine")
    parser.add_argument("--timeout", type=float, default=300, metavar="SECONDS", help="power off after this long")
    parser.add_argument("--systemd", action="store_true", help="with systemd as the first process")
    parser.add_argument("command", nargs="+", help="runs as root in the checkout")
    options = parser.parse_args()
    job = Job(
        command=options.command,
        systemd=options.systemd,
        memory_mib=options.memory,
        timeout_seconds=options.timeout,
    )
    try:
        outcome = run(job, _say)
    except NotAvailableError as error:
        sys.stderr.write(f"no machine: {error}\n")
        return 2
    if outcome.status is None:
        sys.stderr.write(f"the command did not end; console:\n{outcome.console[-3000:]}\n")
        return 125
    sys.stderr.write(f"[boot {outcome.boot_seconds:.1f} s, all {outcome.seconds:.1f} s]\n")
    return outcome.status


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
