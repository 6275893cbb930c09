"""Recording a live process, and reading the record as if it were the system."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

import pytest

from guard.kernel.locate import locate
from guard.kernel.reader import Reader
from guard.kernel.tree import record
from guard.model import Known, Unknown
from tests.guard.kernel.conftest import Grow
from tests.recorded.summary import summary

ID = "3ca333cfd1aab08fb8971ea93861c4c13ca333cfd1aab08fb8971ea93861c4c1"
UID = "1a2b3c4d-0001-4002-8003-1a2b3c4d5e6f"
POD = f"/kubepods/burstable/pod{UID}/{ID}"
MOUNT = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n40 23 8:1 / /home/alice rw - ext4 /dev/sda1 rw\n"
LIVE = {
    "proc/self/cgroup": f"0::{POD}\n",
    "proc/self/mountinfo": MOUNT,
    "proc/self/environ": "SECRET=1",
    "proc/self/cmdline": "secret",
    "proc/meminfo": "MemTotal: 8 kB\n",
    "proc/sys/kernel/random/boot_id": "55914ad4-23c4-4fd2-b29b-93f1601dca12\n",
    "proc/sys/kernel/osrelease": "6.12.0\n",
    "etc/os-release": 'NAME=x\nPRETTY_NAME="Debian \u00fc"\n',
    f"sys/fs/cgroup{POD}/memory.max": "4096\n",
    f"sys/fs/cgroup{POD}/cgroup.events": "populated 1\n",
    "sys/fs/cgroup/kubepods/memory.max": "8192\n",
}


def _files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def test_this_process_can_be_recorded(tmp_path: Path) -> None:
    """A record of a live process has the chain of the live process, or the same reason why there is none."""
    recorded = record(Reader(), str(tmp_path / "tree"), command="oomguard record-tree tree")
    live, copy = locate(Reader()), locate(Reader(str(tmp_path / "tree")))
    assert copy == live or (isinstance(copy, Unknown) and isinstance(live, Unknown) and copy.why is live.why)
    origin = tomllib.loads(recorded.origin.read_text())
    assert (origin["kernel"], origin["command"]) == (os.uname().release, "oomguard record-tree tree")
    assert recorded.files == len(_files(tmp_path / "tree")) - 1


def test_another_process_is_recorded_as_self(tmp_path: Path, grow: Grow) -> None:
    """A process seen through its own root is recorded with its mounts, at the places that it sees."""
    sibling = "/../x"
    grow({"live/proc/self/cgroup": "0::/\n", "live/proc/self/mountinfo": MOUNT, "live/proc/self/status": "mine\n"})
    grow(
        {
            "live/proc/12/cgroup": f"0::{sibling}\n",
            "live/proc/12/mountinfo": MOUNT.replace(" / /sys", f" {sibling} /sys"),
            "live/proc/12/status": "its\n",
            "live/proc/12/stat": "12 (its) S 1 12 12 0 -1 4194560 0\n",
            "live/proc/12/root/sys/fs/cgroup/memory.max": "4096\n",
            "live/proc/12/root/sys/fs/cgroup/cgroup.events": "populated 1\n",
        }
    )
    record(Reader(str(tmp_path / "live")), str(tmp_path / "tree"), 12)
    copy = Reader(str(tmp_path / "tree"))
    chain = locate(copy)
    assert isinstance(chain, Known)
    assert (chain.value.levels[0].name, chain.value.hidden_ancestors) == (sibling, True)
    assert copy.read(f"{chain.value.levels[0].memory_dir}/memory.max") == Known(b"4096\n")
    assert copy.read("/proc/self/status") == Known(b"its\n")


def test_a_record_of_a_record_says_the_same(tmp_path: Path) -> None:
    """Nothing that the parsers use is lost."""
    source = Path(__file__).parents[2] / "recorded/k6.18-hybrid-nested"
    record(Reader(str(source)), str(tmp_path / "tree"))
    assert summary(tmp_path / "tree") == summary(source)


def test_secrets_and_other_mounts_are_not_recorded(tmp_path: Path, grow: Grow) -> None:
    """Environment, command line and mounts of other kinds stay out."""
    grow({f"live/{path}": text for path, text in LIVE.items()})
    record(Reader(str(tmp_path / "live")), str(tmp_path / "tree"))
    assert not {name for name in _files(tmp_path / "tree") if "environ" in name or "cmdline" in name}
    everything = b"".join((tmp_path / "tree" / name).read_bytes() for name in _files(tmp_path / "tree"))
    assert b"alice" not in everything
    assert b"SECRET" not in everything
    assert f"sys/fs/cgroup{POD}/memory.max" in _files(tmp_path / "tree")


def test_ids_are_replaced_on_request(tmp_path: Path, grow: Grow) -> None:
    """Container ids and pod uids get stand-ins of the same shape everywhere, and the tree still reads."""
    grow({f"live/{path}": text for path, text in LIVE.items()})
    recorded = record(Reader(str(tmp_path / "live")), str(tmp_path / "tree"), redact=True, command=f"x {ID}")
    copy = Reader(str(tmp_path / "tree"))
    everything = "".join((tmp_path / "tree" / n).read_text() + n for n in _files(tmp_path / "tree"))
    assert ID not in everything
    assert UID not in everything
    assert "proc/sys/kernel/random/boot_id" not in _files(tmp_path / "tree")
    chain, live = locate(copy), locate(Reader(str(tmp_path / "live")))
    assert isinstance(chain, Known)
    assert isinstance(live, Known)
    assert [level.scope for level in chain.value.levels] == [level.scope for level in live.value.levels]
    assert re.sub("[0-9a-f]", "0", chain.value.levels[0].name) == re.sub("[0-9a-f]", "0", POD)
    assert copy.read(f"{chain.value.levels[0].memory_dir}/memory.max") == Known(b"4096\n")
    assert tomllib.loads(recorded.origin.read_text())["redactions"] == "container ids and pod uids, boot id"


def test_what_cannot_be_read_is_named(tmp_path: Path, grow: Grow) -> None:
    """A file that fails is in origin.toml with its reason; one that is missing is just not there."""
    grow({f"live/{path}": text for path, text in LIVE.items()})
    (tmp_path / "live/proc/vmstat").mkdir()
    recorded = record(Reader(str(tmp_path / "live")), str(tmp_path / "tree"))
    assert recorded.errors == {"/proc/vmstat": "/proc/vmstat: failed (EISDIR)"}
    origin = tomllib.loads(recorded.origin.read_text())
    assert origin["errors"] == recorded.errors
    assert (origin["distro"], origin["cgroup_mode"]) == ("Debian \u00fc", "v2")


def test_a_process_without_cgroups_is_recorded_still(tmp_path: Path, grow: Grow) -> None:
    """Without a cgroup mount the rest is recorded, and the reason with it."""
    grow({"live/proc/self/cgroup": "0::/\n", "live/proc/meminfo": "MemTotal: 8 kB\n"})
    recorded = record(Reader(str(tmp_path / "live")), str(tmp_path / "tree"))
    assert "proc/meminfo" in _files(tmp_path / "tree")
    assert set(recorded.errors) == {"locate", "/proc/self/mountinfo"}
    origin = tomllib.loads(recorded.origin.read_text())
    assert (origin["kernel"], origin["cgroup_mode"]) == ("unknown", "not found")


def test_odd_text_is_valid_toml(tmp_path: Path, grow: Grow) -> None:
    """Whatever the command line holds, origin.toml can be read."""
    grow({"live/proc/meminfo": "MemTotal: 8 kB\n"})
    odd = 'a\x7f"\\\n\u0001 \U0001f600 \udcff'
    recorded = record(Reader(str(tmp_path / "live")), str(tmp_path / "tree"), command=odd)
    text = tomllib.loads(recorded.origin.read_text(encoding="utf-8"))["command"]
    assert text.startswith('a\x7f"\\\n\u0001 \U0001f600 ')


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    """Nothing is written among other files."""
    (tmp_path / "mine").write_text("x")
    with pytest.raises(FileExistsError, match="not empty"):
        record(Reader(), str(tmp_path))
    assert _files(tmp_path) == {"mine"}
