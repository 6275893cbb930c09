"""Run in the machine: every case once, one line each that `test_v2_machine` reads.

    PASS name seconds
    FAIL name reason      (the traceback follows as plain lines)
    SKIP name reason
    TOLD [...]            (the verdicts as a table in JSON, once)

    python -m tests.lab.vm.suite [NAME ...]      (these cases only)

One boot and one interpreter for all cases, because a Python start costs seconds under emulation; no pytest, whose
import alone costs half a minute there.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence

from tests.lab.cases import Case, cases_of, ends, killers, memory, oomd, readings, restart, unpressed
from tests.lab.cases.stage import Stage
from tests.lab.cases.verdicts import table
from tests.lab.kit.cgroups import NotOfferedError, left_behind
from tests.lab.kit.offer import offer

READINGS = cases_of(readings)
ENDS = (*cases_of(ends), *cases_of(memory), *cases_of(killers), *cases_of(unpressed))
RESTARTS = cases_of(restart)
CASES = (*READINGS, *ENDS, *RESTARTS)
UNDER_SYSTEMD = cases_of(oomd)
"""They run in a machine of their own, where they are asked for by name."""


def main(names: Sequence[str]) -> int:
    """Return how many cases failed."""
    _say(str(offer()))
    failed = [case for case in _wanted(READINGS, names) if not _passes(case)]
    staged = tuple(_wanted(ENDS, names))
    if staged:
        with Stage() as stage:
            failed += [case for case in staged if not _passes(case, stage)]
            _say(f"TOLD {json.dumps(table(stage.told))}")
    failed += [case for case in _wanted(RESTARTS, names) if not _passes(case)]
    failed += [case for case in UNDER_SYSTEMD if case.name in names and not _passes(case)]
    left = left_behind()
    if left:
        _say(f"left behind: {sorted(left)}")
    return len(failed)


def _wanted(cases: Iterable[Case], names: Sequence[str]) -> Iterator[Case]:
    return (case for case in cases if not names or case.name in names)


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
    sys.exit(main(sys.argv[1:]))
