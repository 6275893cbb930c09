"""Hooks in servers that do odd but valid things: what stands for standard error, streams, mappings, function modes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.guard.hosts import only_box, run_host

pytestmark = pytest.mark.torch

START = """
import io, json, os, sys, tarfile, zipfile, guard
from collections.abc import Mapping
guard.install()
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
folder = {folder!r}
path = folder + "/m.safetensors"
save_file({{"a": torch.zeros(64), "b": torch.zeros(64)}}, path)
"""


def _run(code: str, folder: Path) -> str:
    ended = run_host(START.format(folder=str(folder)) + code, folder)
    assert (ended.err, ended.returncode) == ("", 0)
    assert all(one.done for one in only_box(folder).operations)
    return ended.out


def test_whatever_stands_for_standard_error(tmp_path: Path) -> None:
    """More loads than the box has cells: each is marked and ends, whatever the server has put in place of stderr."""
    out = _run(
        """
class Writer:
    def write(self, text): pass
class Closed(Writer):
    def isatty(self): raise ValueError("I/O operation on closed file")
class Headless(Writer):
    def isatty(self): return True
stderr, sizes = sys.stderr, []
for sys.stderr in (None, Writer(), Closed(), Headless()):
    for _ in range(40): load_file(path)
    with safe_open(path, "pt") as file:
        file.get_tensor("a"); file.get_tensor("b")
        with open(guard.status().box, "rb") as box: sizes.append(b"safetensors.safe_open" in box.read())
sys.stderr = stderr
print(json.dumps([sizes, guard.status().troubles]))
""",
        tmp_path,
    )
    assert json.loads(out) == [[True] * 4, []]


def test_a_member_of_an_archive_is_no_file(tmp_path: Path) -> None:
    """A stream out of an archive has the name of its member: a file of that name beside it is not what is loaded."""
    _run(
        """
os.chdir(folder)
torch.save({"w": torch.zeros(64)}, "w.pt")
with zipfile.ZipFile("all.zip", "w") as archive: archive.write("w.pt")
with zipfile.ZipFile("all.zip") as archive, archive.open("w.pt") as member: torch.load(member)
with open("w.pt", "rb") as file: torch.load(file)
with open("w.pt", "rb", buffering=0) as file: torch.load(file)
with os.fdopen(os.open("w.pt", os.O_RDONLY), "rb") as file: torch.load(file)
""",
        tmp_path,
    )
    found = sorted(only_box(tmp_path).operations, key=lambda one: one.started_monotonic_s)
    path = str(tmp_path / "w.pt")
    assert [one.file for one in found if one.label == "torch.load"] == [None, path, path, None]


def test_nobody_sees_us_ask_for_sizes(tmp_path: Path) -> None:
    """A function mode of the server counts the same calls with and without us; a layer without a shape moves."""
    out = _run(
        """
from torch.overrides import TorchFunctionMode
seen = []
class Watch(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        seen.append(str(function))
        return function(*args, **(kwargs or {}))
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
weights = model.state_dict()
def all_that_is_seen():
    seen.clear()
    with Watch(), safe_open(path, "pt") as file:
        file.get_slice("a")[:2]
        model.half()
        model.load_state_dict(weights)
    return list(seen)
guarded = all_that_is_seen()
torch.nn.Sequential(torch.nn.LazyLinear(4)).to("cpu")
troubles = guard.status().troubles
guard.install().uninstall()
model.float()
print(json.dumps([guarded == all_that_is_seen(), len(guarded) > 0, troubles]))
""",
        tmp_path,
    )
    assert json.loads(out) == [True, True, []]


def test_a_lazy_mapping_is_read_once(tmp_path: Path) -> None:
    """A mapping that reads each tensor when it is asked for is asked as often as without us."""
    out = _run(
        """
reads = []
class Lazy(Mapping):
    def __init__(self, found): self.found = found
    def __getitem__(self, name): reads.append(name); return self.found[name]
    def __iter__(self): return iter(self.found)
    def __len__(self): return len(self.found)
model = torch.nn.Linear(4, 4)
weights = Lazy(model.state_dict())
model.load_state_dict(weights)
guarded = list(reads); reads.clear()
troubles = guard.status().troubles
guard.install().uninstall()
model.load_state_dict(weights)
print(json.dumps([guarded == reads, troubles]))
""",
        tmp_path,
    )
    assert json.loads(out) == [True, []]
    (load,) = [one for one in only_box(tmp_path).operations if one.label == "load_state_dict"]
    assert (load.item, load.bytes_expected) == ("weight, bias", None)


def test_files_that_are_entered_and_never_left(tmp_path: Path) -> None:
    """Of files that a server opens by hundreds and leaves open the oldest are in flight no more; closing them works."""
    out = _run(
        """
names = [f"{folder}/{number}.safetensors" for number in range(300)]
for name in names: os.link(path, name)
kept = [safe_open(name, "pt").__enter__() for name in names]
for file in kept: file.get_tensor("a")
for file in kept[-256:]: file.__exit__(None, None, None)
with safe_open(path, "pt") as file: file.get_tensor("a")
for file in kept[:-256]: file.__exit__(None, None, None)
print(json.dumps(guard.status().troubles))
""",
        tmp_path,
    )
    assert json.loads(out) == []
