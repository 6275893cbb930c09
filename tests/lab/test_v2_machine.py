"""The lab's cases on pure cgroup v2, in a machine that is booted once; each case shows here as its own test."""

from __future__ import annotations

import compileall
import json
import sys

import pytest

from tests.lab.cases.verdicts import write_table
from tests.lab.kit.places import CHECKOUT
from tests.lab.vm.kernel import NotAvailableError
from tests.lab.vm.machine import Job, Outcome, run
from tests.lab.vm.suite import CASES, UNDER_SYSTEMD

LIMIT_SECONDS = 1500
PACE = "10"
SUITE = ("python", "-m", "tests.lab.vm.suite")

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(LIMIT_SECONDS + 60)]


@pytest.fixture(scope="module")
def machine() -> Outcome:
    """Run the whole suite in the machine, once."""
    outcome = _booted(Job(command=SUITE, env={"LAB_PACE": PACE}, timeout_seconds=LIMIT_SECONDS))
    told = next((line for line in outcome.output.splitlines() if line.startswith("TOLD ")), "TOLD []")
    write_table("v2-machine", json.loads(told.removeprefix("TOLD ")))
    return outcome


@pytest.fixture(scope="module")
def systemd_machine() -> Outcome:
    """Run what needs systemd as the first process, in a second boot."""
    command = [*SUITE, *(case.name for case in UNDER_SYSTEMD)]
    return _booted(Job(command=command, systemd=True, env={"LAB_PACE": PACE}, timeout_seconds=LIMIT_SECONDS))


@pytest.mark.parametrize("name", [case.name for case in CASES])
def test_case_on_cgroup_v2(machine: Outcome, name: str) -> None:
    """See the docstring of the case of this name in `tests.lab.cases`."""
    _passed(machine, name)


@pytest.mark.parametrize("name", [case.name for case in UNDER_SYSTEMD])
def test_case_under_systemd(systemd_machine: Outcome, name: str) -> None:
    """See the docstring of the case of this name in `tests.lab.cases`."""
    _passed(systemd_machine, name)


def test_machine_ends_in_order(machine: Outcome) -> None:
    """The suite runs to its end in the machine and leaves no cgroup behind."""
    assert machine.status == 0, machine.output[-3000:] or machine.console[-3000:]
    assert "left behind" not in machine.output


def _booted(job: Job) -> Outcome:
    for package in ("guard", "sidecar", "tests/lab"):
        compileall.compile_dir(CHECKOUT / package, quiet=2)  # the checkout is read-only there
    try:
        outcome = run(job)
    except NotAvailableError as error:
        pytest.skip(f"no v2 machine: {error}")
    sys.stdout.write(f"boot {outcome.boot_seconds} s, all {outcome.seconds:.0f} s\n{outcome.output}")
    return outcome


def _passed(machine: Outcome, name: str) -> None:
    words = next((line.split(" ", 2) for line in machine.output.splitlines() if line.split(" ")[1:2] == [name]), None)
    assert words is not None, f"the machine ended before this case\n{machine.output[-2000:]}\n{machine.console[-2000:]}"
    verdict, _, detail = words
    if verdict == "SKIP":
        pytest.skip(f"on v2: {detail}")
    assert verdict == "PASS", f"{detail}\n{machine.output}"
