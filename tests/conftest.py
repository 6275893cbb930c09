"""What every test run gets: leak checks, a merciless fence, and an account of what was skipped."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

from tests.lab.kit.cgroups import left_behind, sweep
from tests.lab.kit.offer import offer
from tests.lab.kit.wait import until

pytest.register_assert_rewrite("tests.lab.cases")

# How long an example takes says something about the machine, not about the code.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

# Started by multiprocessing on first use and kept for the life of the interpreter.
_HELPERS: Final = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


def pytest_sessionstart() -> None:
    """Remove what an earlier run left behind when it was killed, and take back what `nohup` or a shell's `&` ignores.

    Ignored signals are handed down to every program that a test starts, which then does not end by them.
    """
    sweep()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def merciless_fence(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let errors of our own come out of `guard.fence`, here and in child processes.

    Lab tests pass the switch to their models themselves: a sidecar refuses variables that are not its own.
    """
    if request.node.get_closest_marker("lab") is None:
        monkeypatch.setenv("OOMGUARD_FENCE", "raise")


@pytest.fixture(autouse=True)
def no_leaks() -> Iterator[None]:
    """Fail a test that leaves a child process or a lab cgroup behind. Fixtures of wider scope are not its own."""
    children, groups = _children(), left_behind()
    yield
    until(lambda: _children() <= children, 30, f"children to be gone: {_children() - children}")
    assert groups == left_behind(), "every lab cgroup must be removed"


def pytest_report_header() -> str:
    """Say in one line what the real kernel offers here."""
    return str(offer())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests were skipped, and why."""
    reports = terminalreporter.stats.get("skipped", [])
    reasons = Counter(_reason(report) for report in reports)
    listed = "; ".join(f"{count}x {reason}" for reason, count in reasons.most_common())
    terminalreporter.write_line(f"skipped: {len(reports)} ({listed or 'nothing'})")


def _reason(report: pytest.TestReport) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def _children() -> frozenset[int]:
    """Pids of our children, zombies included (an unreaped child is a leak as well)."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            found.update(int(pid) for pid in (task / "children").read_text().split())
        except FileNotFoundError:  # the thread has ended
            continue
    return frozenset(pid for pid in found if not _is_helper(pid))


def _is_helper(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return True  # gone by now
    return any(name in command for name in _HELPERS)
