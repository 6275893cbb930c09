"""Entry points of vLLM and SGLang, which cannot be installed without a GPU's libraries: found and called as they do."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.guard.hosts import ROOT, boxes, only_box, run_host

GROUPS = ("vllm.general_plugins", "sglang.srt.plugins")
LOAD = """
from importlib.metadata import entry_points
import guard
for plugin in entry_points(group={group!r}):
    if plugin.name == "oomguard":
        result = plugin.load()()
print(result, guard.status().active, guard.status().trouble_count)
"""


@pytest.mark.parametrize("group", GROUPS)
def test_plugin_installs_the_guard(group: str, tmp_path: Path) -> None:
    """The entry point is a function without arguments that installs the guard in the process that runs it."""
    ended = run_host(LOAD.format(group=group), tmp_path)
    assert (ended.out, ended.err) == ("None True 0\n", "")
    assert only_box(tmp_path).release


@pytest.mark.parametrize("group", GROUPS)
def test_plugin_in_a_server_that_was_started_by_us(group: str, tmp_path: Path) -> None:
    """Under `oomguard run` it finds the guard that is active already."""
    code = f"import sys; sys.path.append({str(ROOT)!r})\n" + LOAD.format(group=group)
    code += "import sys; print(guard is sys.modules['_oomguard'])"
    ended = run_host(code, tmp_path, activated=True)
    assert (ended.out, ended.err) == ("None True 0\nTrue\n", "")
    assert len(boxes(tmp_path)) == 1


@pytest.mark.parametrize("group", GROUPS)
def test_plugin_raises_nothing(group: str, tmp_path: Path) -> None:
    """A guard that cannot be installed is said in `status()`; the off switch holds."""
    broken = "import guard.api\ndef fail(**_): raise OSError('broken')\nimport guard\nguard.install = fail\n"
    ended = run_host(broken + LOAD.format(group=group), tmp_path, {"OOMGUARD_FENCE": ""})
    assert ended.out == "None False 1\n"
    ended = run_host(LOAD.format(group=group), tmp_path, {"OOMGUARD": "off"})
    assert (ended.out, list(tmp_path.iterdir())) == ("None False 0\n", [])


def test_both_are_declared() -> None:
    """The installed distribution names both, once."""
    for group in GROUPS:
        assert [one.value for one in entry_points(group=group) if one.name == "oomguard"] == [
            f"guard.adapters.{group.partition('.')[0]}:plugin"
        ]
