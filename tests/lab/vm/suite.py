"""Run in the machine: every case once, one line each that `test_v2_machine` reads.

    PASS name seconds
    FAIL name reason      (the traceback follows as plain lines)
    SKIP name reason

One boot and one interpreter for all cases, because a Python start costs seconds under emulation; no pytest, whose
import alone costs half a minute there.
"""

from __future__ import annotations

import sys
import time
import traceback

from tests.lab.cases import Case, cases_of, ends, readings, restart
from tests.lab.cases.stage import Stage
from tests.lab.kit.cgroups import NotOfferedError, left_behind
from tests.lab.kit.offer import offer

READINGS = cases_of(readings)
ENDS = cases_of(ends)
RESTARTS = cases_of(restart)
CASES = (*READINGS, *ENDS, *RESTARTS)


def main() -> int:
    """Return how many cases failed."""
    _say(str(offer()))
    failed = [case for case in READINGS if not _passes(case)]
    with Stage() as stage:
        failed += [case for case in ENDS if not _passes(case, stage)]
    failed += [case for case in RESTARTS if not _passes(case)]
    left = left_behind()
    if left:
        _say(f"left behind: {sorted(left)}")
    return len(failed)


def _passes(case: Case, *stage: Stage) -> bool:
    started = time.monotonic()
    try:
        case.run(*stage)
    except NotOfferedError as error:
        _say(f"SKIP {case.name} {error}")
    except Exception as error:  # noqa: BLE001 - whatever a case raises is its failure, and the next one runs
        _say(f"FAIL {case.name} {type(error).__name__}: {' '.join(str(error).split())}")
        _say(traceback.format_exc())
        return False
    else:
        _say(f"PASS {case.name} {time.monotonic() - started:.1f}")
    return True


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
