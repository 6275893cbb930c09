"""Real loads with real torch and safetensors: what is in flight, and that the host sees no difference."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from guard.model import OperationKind
from tests.guard.hosts import boxes, only_box, run_host

pytestmark = pytest.mark.torch

MODEL = """
import json, os, pickle, signal, sys, threading, guard
{install}
import torch
from safetensors import safe_open
import safetensors.torch
from safetensors.torch import load_file, save_file
folder = {folder!r}
path = folder + "/m.safetensors"
save_file({{f"layer.{{i}}": torch.full((256, 256), float(i)) for i in range(5)}}, path)
def in_flight():
    from guard.box.reader import parse_box
    with open(guard.status().box, "rb") as file:
        box = parse_box(file.read(), "box").value
    return [[o.label, o.item, o.bytes_done, o.bytes_expected] for o in box.operations if not o.done]
"""
SIZE = 256 * 256 * 4


def _run(code: str, folder: Path, install: str = "guard.install()") -> str:
    ended = run_host(MODEL.format(install=install, folder=str(folder)) + code, folder)
    assert (ended.err, ended.returncode) == ("", 0)
    return ended.out


@pytest.mark.parametrize("when", ["before", "after"])
def test_tensor_in_flight(when: str, tmp_path: Path) -> None:
    """Inside `safe_open` the box tells file, tensor and bytes that came before, whether torch came first or we did."""
    loop = """
seen = []
with safe_open(path, framework="pt") as file:
    assert isinstance(file, safe_open)
    for name in file.keys():
        tensor = file.get_tensor(name)
        assert tensor[0, 0] == float(name[-1])
        seen.append(in_flight())
    file.get_slice("layer.0")[:, :2]
print(json.dumps([seen, in_flight()]))
"""
    install, code = ("guard.install()", loop) if when == "before" else ("", "guard.install()\n" + loop)
    seen, after = json.loads(_run(code, tmp_path, install))
    expected = [[["safetensors.safe_open", f"layer.{i}", i * SIZE, 5 * SIZE]] for i in range(5)]
    assert expected == seen
    assert after == []
    last = max(only_box(tmp_path).operations, key=lambda operation: operation.started_monotonic_s)
    assert (str(tmp_path / "m.safetensors"), 5 * SIZE) == (last.file, last.bytes_done)


def test_killed_while_loading(tmp_path: Path) -> None:
    """After SIGKILL in the middle of a load the box says which file and tensor, and how many bytes were done."""
    code = MODEL.format(install="guard.install()", folder=str(tmp_path)) + (
        "with safe_open(path, framework='pt') as file:\n"
        "    for name in file.keys():\n"
        "        copy = file.get_tensor(name).clone()\n"
        "        if name == 'layer.3': os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = run_host(code, tmp_path)
    assert ended.returncode == -signal.SIGKILL
    box = only_box(tmp_path)
    (operation,) = [one for one in box.operations if not one.done]
    assert (OperationKind.LOAD, str(tmp_path / "m.safetensors"), "layer.3", 3 * SIZE, 5 * SIZE) == (
        operation.kind,
        operation.file,
        operation.item,
        operation.bytes_done,
        operation.bytes_expected,
    )
    assert box.exit_mark is None


def test_every_load_is_marked_once(tmp_path: Path) -> None:
    """`load_file`, `load_model`, `load`, `torch.load`, `Module.to` and a lone `get_tensor` are one mark each."""
    _run(
        """
weights = load_file(path)
safetensors.torch.load(open(path, "rb").read())
model = torch.nn.Sequential(torch.nn.Linear(4, 4))
safetensors.torch.save_model(model, folder + "/model.safetensors")
safetensors.torch.load_model(model, folder + "/model.safetensors")
torch.save(weights, folder + "/m.pt")
torch.load(folder + "/m.pt")
with open(folder + "/m.pt", "rb") as file: torch.load(f=file, weights_only=True)
model.to(torch.float64)
safe_open(path, framework="pt").get_tensor("layer.1")
assert in_flight() == []
""",
        tmp_path,
    )
    operations = sorted(only_box(tmp_path).operations, key=lambda operation: operation.started_monotonic_s)
    whole = (tmp_path / "m.safetensors").stat().st_size
    assert [
        ("safetensors.torch.load_file", "m.safetensors", 5 * SIZE),
        ("safetensors.torch.load", None, whole),
        ("safetensors.torch.load_model", "model.safetensors", 80),
        ("torch.load", "m.pt", 5 * SIZE),
        ("torch.load", "m.pt", 5 * SIZE),
        ("Sequential.to", None, 80),
        ("safetensors.safe_open", "m.safetensors", 5 * SIZE),
    ] == [(one.label, one.file and Path(one.file).name, one.bytes_expected) for one in operations]
    assert operations[0].bytes_done == 5 * SIZE


def test_a_load_from_memory_copies_nothing_more(tmp_path: Path) -> None:
    """A BytesIO that was made of bytes still shares them after it was loaded from: nobody asked for its buffer."""
    code = """
import io
torch.save({"w": torch.zeros(1 << 18)}, folder + "/m.pt")
data = open(folder + "/m.pt", "rb").read()
source = io.BytesIO(data)
source.seek(0)
seen = []
def look(storage, place):
    seen.extend(in_flight())
    return storage
torch.load(source, map_location=look)
print(json.dumps([sys.getsizeof(source) < len(data), seen[0][0], seen[0][3] == len(data)]))
"""
    assert json.loads(_run(code, tmp_path)) == [True, "torch.load(BytesIO)", True]


def test_errors_of_loads_are_the_hosts_own(tmp_path: Path) -> None:
    """Missing files, wrong names and wrong arguments raise the same type and text with and without the guard."""
    code = """
def tell(call):
    try:
        call()
    except BaseException as error:
        print(type(error), str(error)[:200])
tell(lambda: torch.load(folder + "/nowhere"))
tell(lambda: torch.load())
tell(lambda: load_file(folder + "/nowhere"))
tell(lambda: load_file(path, nonsense=1))
tell(lambda: safe_open(folder + "/nowhere", framework="pt"))
tell(lambda: safe_open(path))
tell(lambda: safe_open(path, framework="pt").get_tensor("no such"))
tell(lambda: safe_open(path, framework="pt").get_tensor())
tell(lambda: torch.nn.Linear(2, 2).to("no such device"))
def stop():
    with safe_open(path, framework="pt") as file:
        file.get_tensor("layer.0")
        raise KeyboardInterrupt("stop")
tell(stop)
"""
    guarded = _run(code, tmp_path)
    assert _run(code, tmp_path, "") == guarded
    assert len(guarded.splitlines()) == 10
    assert all(operation.done for operation in only_box(tmp_path).operations)


def test_wrappers_look_like_the_originals(tmp_path: Path) -> None:
    """Names, signatures and pickles are unchanged; uninstall gives every attribute back, and later loads still work."""
    _run(
        """
import inspect
handle = guard.install()
for function in (torch.load, torch.serialization.load, load_file, safetensors.torch.load_file, torch.nn.Module.to):
    assert inspect.signature(function) == inspect.signature(function.__wrapped__)
    assert pickle.loads(pickle.dumps(function)) is function
assert torch.load is torch.serialization.load
assert torch.load.__name__ == "load" and torch.load.__module__ == "torch.serialization"
with safe_open(path, framework="pt") as file:
    handle.uninstall()
    file.get_tensor("layer.0")
    for owner, names in ((torch, ["load"]), (safetensors.torch, ["load_file", "load", "load_model"]),
                         (torch.nn.Module, ["to"])):
        for name in names:
            assert not hasattr(vars(owner)[name], "__wrapped__"), name
    assert "__init__" not in vars(safe_open) and not hasattr(safe_open.get_tensor, "__wrapped__")
assert load_file(path).keys() == {f"layer.{i}" for i in range(5)}
torch.nn.Linear(2, 2).to(torch.float64)
again = guard.install()
with safe_open(path, framework="pt") as file:
    file.get_tensor("layer.2")
    assert in_flight()[0][1] == "layer.2"
""",
        tmp_path,
    )


def test_loads_in_parallel_threads(tmp_path: Path) -> None:
    """Threads that load different files at once have marks of their own, and each finishes."""
    out = _run(
        """
from concurrent.futures import ThreadPoolExecutor
files = [folder + f"/shard{i}.safetensors" for i in range(4)]
for i, name in enumerate(files): save_file({f"t{i}.{k}": torch.zeros(64, 64) for k in range(20)}, name)
barrier = threading.Barrier(4)
def load(name):
    with safe_open(name, framework="pt") as file:
        for key in file.keys(): file.get_tensor(key)
        barrier.wait()
        seen = in_flight() if name == files[0] else None
        barrier.wait()
    return seen
with ThreadPoolExecutor(4) as pool: seen = list(pool.map(load, files))[0]
print(json.dumps([seen, in_flight()]))
""",
        tmp_path,
    )
    seen, after = json.loads(out)
    assert [["safetensors.safe_open", f"t{i}.", 19 * 64 * 64 * 4, 20 * 64 * 64 * 4] for i in range(4)] == sorted(
        [label, item[:3], done, expected] for label, item, done, expected in seen
    )
    assert after == []


def test_torch_wakes_a_waiting_process(tmp_path: Path) -> None:
    """An activated helper opens nothing until it imports torch."""
    run_host("import json", tmp_path, activated=True)
    assert boxes(tmp_path) == []
    run_host("import torch", tmp_path, activated=True)
    assert len(boxes(tmp_path)) == 1
