"""Variables that nobody knows are named, and the server starts all the same."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from guard.switches import OFF, ON, is_off
from guard.variables import GUARDS, warning
from sidecar.settings import Settings
from sidecar.settings_load import keys, load
from tests.guard.hosts import ROOT, Ended, environment, run_command, run_host
from tests.guard.runner.running import RUN


def test_each_side_knows_the_variables_of_the_other() -> None:
    """One block of variables may serve both: neither side complains about what is the other's."""
    assert warning({key.variable: "x" for key in keys()}) is None
    assert load(None, dict.fromkeys(GUARDS - {"OOMGUARD_DIR", "OOMGUARD_NAME"}, "x"), {}) == Settings()


def test_every_variable_of_the_guard_is_listed() -> None:
    """What the guard's sources name is known."""
    sources = "".join(path.read_text() for path in (ROOT / "guard").rglob("*.py") if path.name != "variables.py")
    assert set(re.findall(r'"(OOMGUARD_[A-Z_]+)"', sources)) == GUARDS


def test_service_links_and_both_positions_are_well() -> None:
    """What Kubernetes adds for a Service of our name is no mistake, nor is either position of the switch."""
    links = {"OOMGUARD_SERVICE_HOST": "10.0.0.1", "OOMGUARD_PORT_9475_TCP": "x", "OOMGUARD_SERVICE_PORT_HTTP": "1"}
    links |= {"OOMGUARD_METRICS_PORT": "tcp://10.0.0.1:9475", "OOMGUARD_METRICS_PORT_9475_TCP_ADDR": "10.0.0.1"}
    assert {warning({**links, "OOMGUARD": position}) for position in ("on", "off", " OFF ", "", *ON, *OFF)} == {None}


@pytest.mark.parametrize("text", [*sorted(OFF), " False "])
def test_who_writes_a_word_for_off_means_off(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever word for off is taken, for the runner and for a guard that the server installs itself."""
    env = environment(tmp_path, {"OOMGUARD": text})
    code = "import os, guard; print(guard.install().active, os.environ.get('OOMGUARD_PARENT'))"
    assert run_command([*RUN, sys.executable, "-c", code], env) == Ended(0, "False None\n", "")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("OOMGUARD_RELIEF", text)
    assert is_off("OOMGUARD_RELIEF")


@pytest.mark.parametrize("text", [*sorted(ON), "ON", "1 "])
def test_who_writes_a_word_for_on_gets_the_guard(text: str, tmp_path: Path) -> None:
    """Without the runner our folder on PYTHONPATH and any word for on activate the guard."""
    ended = run_host("import sys; print('_oomguard' in sys.modules)", tmp_path, {"OOMGUARD": text}, activated=True)
    assert ended == Ended(0, "True\n", "")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"OOMGUARD_FOO": "1", "OOMGUARD_BAR": ""}, "nobody knows OOMGUARD_BAR, OOMGUARD_FOO"),
        ({"OOMGUARD": "bogus"}, "OOMGUARD='bogus' is neither on nor off and counts as on"),
        (
            {"OOMGUARD": "of", "OOMGUARD_DIRR": "/x"},
            "OOMGUARD='of' is neither on nor off and counts as on; nobody knows OOMGUARD_DIRR",
        ),
        ({"OOMGUARD_PORT": "8000"}, "nobody knows OOMGUARD_PORT"),
    ],
)
def test_a_misspelt_variable_is_one_line(more: dict[str, str], said: str, tmp_path: Path) -> None:
    """The runner warns in one line on standard error; the server's output and exit status are its own."""
    ended = run_command([*RUN, "sh", "-c", "echo served; exit 3"], environment(tmp_path, more))
    assert (ended.returncode, ended.out) == (3, "served\n")
    assert ended.err == f"oomguard run: {said}\n"
