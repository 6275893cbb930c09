"""Ends of systemd units, by what a real systemd 252 printed and wrote into its journal."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidecar.supervisors.systemd_unit import Moment, properties_of, records_of, unit, unit_of
from sidecar.supervisors.values import Container, Subject
from sidecar.verdict.supervisor_values import SupervisorEnd

RECORDED = Path(__file__).parent / "recorded" / "systemd-252"
"""Units that exit with 3 (Restart=on-failure), hit MemoryMax, are killed by `systemctl kill` (Restart=always), miss
their watchdog, are stopped, and are killed by systemd-oomd (in the lab's machine, at another time)."""
NOW = Moment(monotonic_s=749.38, wall_s=1796046353.7)
"""When they were recorded, on both clocks."""


def read(name: str, *, journal: bool = True) -> Container:
    """Give what both say of a unit; without the journal, `show` alone."""
    records = records_of((RECORDED / f"{name}.jsonl").read_bytes()) if journal else []
    found = unit(properties_of((RECORDED / f"{name}.show").read_text()), records, NOW)
    assert found is not None
    return found


def end_of(name: str, *, journal: bool = True) -> SupervisorEnd:
    """Give the end, which must be there."""
    end = read(name, journal=journal).end
    assert end is not None
    return end


def words(end: SupervisorEnd) -> list[str]:
    """Give the kinds of its words."""
    return [word.kind.value for word in end.words]


@pytest.mark.parametrize(
    ("name", "code", "signal", "reason", "kinds"),
    [
        ("m-exit", 3, None, "exit-code", []),
        ("m-oom", None, 9, "oom-kill", []),
        ("m-kill", None, 9, "signal", []),
        ("m-dog", None, 6, "watchdog", ["watchdog"]),
        ("m-stop", None, None, None, ["deletion"]),
        ("m-oomd", None, 9, "oom-kill", ["userspace_oom"]),
    ],
)
def test_an_end_is_told(name: str, code: int | None, signal: int | None, reason: str | None, kinds: list[str]) -> None:
    """Exit code or signal, result, and why, also where the unit runs again by now or was unloaded."""
    end = end_of(name)
    assert (end.exit_code, end.signal, end.reason, words(end)) == (code, signal, reason, kinds)


def test_an_oom_kill_is_told() -> None:
    """The unit's result says so; nothing of the kind is said of the others."""
    assert end_of("m-oom").oom_killed is True
    assert end_of("m-kill").oom_killed is None


def test_a_kill_by_systemd_oomd_is_no_oom_kill_of_the_kernel() -> None:
    """The result is the same; only the journal tells them apart."""
    assert end_of("m-oomd").oom_killed is None
    assert end_of("m-oomd", journal=False).oom_killed is True


def test_restarts_are_counted() -> None:
    """NRestarts, as systemd counts them, and whether it runs."""
    again = read("m-exit")
    assert (again.restart_count, again.running, again.name) == (5, True, "m-exit.service")
    assert not read("m-dog").running


def test_who_asked_for_a_signal_is_told() -> None:
    """`systemctl kill` leaves a line that says so."""
    assert "on client request" in (end_of("m-kill").message or "")


def test_the_last_end_is_told_of_several() -> None:
    """A crash loop: the end behind the last start, at its own time."""
    assert end_of("m-exit").finished_wall_s == pytest.approx(1796046355.505336)


@pytest.mark.parametrize(("name", "signal"), [("m-oom", 9), ("m-dog", 6)])
def test_without_the_journal_show_is_enough_until_the_next_start(name: str, signal: int) -> None:
    """Its monotonic times come out on the wall clock where the journal has them."""
    end = end_of(name, journal=False)
    assert (end.exit_code, end.signal) == (None, signal)
    assert end.finished_wall_s == pytest.approx(end_of(name).finished_wall_s or 0, abs=1)


@pytest.mark.parametrize("name", ["m-exit", "m-kill", "m-stop"])
def test_without_the_journal_a_unit_that_runs_again_has_no_end(name: str) -> None:
    """`show` has forgotten it; nothing is made up."""
    assert read(name, journal=False).end is None


def test_a_watchdog_is_told_without_the_journal() -> None:
    """The result alone says it."""
    assert words(end_of("m-dog", journal=False)) == ["watchdog"]


def test_a_unit_that_is_not_there_is_none() -> None:
    """An unknown name, or no answer at all, gives no container."""
    assert unit({"Id": "x.service", "LoadState": "not-found"}, [], NOW) is None
    assert unit({}, [], NOW) is None


def test_a_damaged_journal_is_read_as_far_as_it_goes() -> None:
    """Lines that are no records, and messages that are bytes, are passed over."""
    assert records_of(b'{"MESSAGE": 7}\nnot JSON\n') == []
    assert len(records_of(b'{"MESSAGE": [104, 105], "__REALTIME_TIMESTAMP": "x"}\n')) == 1


@pytest.mark.parametrize(
    ("group", "names", "expected"),
    [
        ("/system.slice/llm.service", {}, "llm.service"),
        ("/system.slice/llm.service/workers", {}, "llm.service"),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/llm.service", {}, None),
        ("/docker/0123", {}, None),
        ("/", {}, None),
        ("/", {None: "llm"}, "llm.service"),
        ("/system.slice/a.service", {"m": "b.scope"}, "b.scope"),
    ],
)
def test_the_unit_is_told_by_the_path_or_the_settings(
    group: str, names: dict[str | None, str], expected: str | None
) -> None:
    """The last service in the path; units of a user's own systemd are not the system's."""
    assert unit_of(Subject(model="m", groups=(group,), alive=True), names) == expected
