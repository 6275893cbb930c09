"""Relief and admission in host processes: built-in actions, the environment, forks, what the sidecar is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from guard.link.protocol import Pressure, ProtocolError, Relieved, decode, encode
from guard.runner import child_environment
from tests.guard.hosts import environment, run_host
from tests.guard.sidecar_socket import Taken, listening
from tests.stubs.pretend import PretendCards

MIB = 1 << 20
HOST = """
import guard, sys
guard.install()
print("ready", flush=True)
for line in sys.stdin:
    exec(line)
"""


@contextmanager
def _pressed(shared: Path, more: dict[str, str], level: str) -> Iterator[Taken]:
    """Run a host, and tell it a level."""
    with listening(shared) as sidecar:
        process = subprocess.Popen(
            [sys.executable, "-u", "-c", HOST],
            env=environment(shared, {"OOMGUARD_FENCE": "", **more}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with process:
            assert process.stdout is not None
            assert process.stdin is not None
            assert process.stdout.readline() == "ready\n"
            taken = sidecar.accept()
            taken.send(Pressure(level, "test"))
            yield taken
            process.stdin.close()
            assert process.wait(30) == 0


def _effects(taken: Taken, count: int) -> list[Relieved]:
    found = [taken.receive() for _ in range(count)]
    assert all(isinstance(one, Relieved) for one in found), found
    return [one for one in found if isinstance(one, Relieved)]


def test_relief_by_the_environment(tmp_path: Path) -> None:
    """What OOMGUARD_RELIEF lists runs at its level, and the sidecar hears what it gave back, or why nothing."""
    with _pressed(tmp_path, {"OOMGUARD_RELIEF": "malloc_trim, host_cache,cuda_cache"}, "critical") as taken:
        effects = _effects(taken, 3)
    assert [(one.action, one.level, one.said) for one in effects] == [
        ("malloc_trim", "critical", ""),
        ("host_cache", "critical", "CUDA is not in use"),
        ("cuda_cache", "critical", "CUDA is not in use"),
    ]
    assert effects[0].anon_freed_bytes is not None


def test_costly_relief_waits_for_critical(tmp_path: Path) -> None:
    """At a warning only what costs the server nothing runs."""
    with _pressed(tmp_path, {"OOMGUARD_RELIEF": "all"}, "warning") as taken:
        assert [one.action for one in _effects(taken, 2)] == ["malloc_trim", "page_cache"]


def test_malloc_trim_gives_free_heap_back(tmp_path: Path) -> None:
    """A heap that is free but for its top is given back, and measured."""
    code = """
import ctypes, guard, json, time
from guard.keeper import keeper
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes, libc.memset.argtypes = ctypes.c_void_p, [ctypes.c_void_p], [
    ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
blocks = [libc.malloc(60_000) for _ in range(1000)]
for block in blocks:
    libc.memset(block, 1, 60_000)
for block in blocks[:-1]:
    libc.free(block)
guard.relieve("malloc_trim")
keeper.relieving().hear("test", "warning", "test", 60)
deadline = time.monotonic() + 20
while not guard.status().relieved and time.monotonic() < deadline:
    time.sleep(0.01)
[effect] = guard.status().relieved
print(effect.action, effect.anon_freed_bytes > 30 << 20, guard.status().pressure)
"""
    ended = run_host(code, tmp_path)
    assert (ended.out, ended.err) == ("malloc_trim True warning\n", "")


PAGE_CACHE = """
import ctypes, guard, json, os, torch
from safetensors.torch import load_file, save_file
from guard.keeper import keeper
from guard.link.protocol import Pressure
from guard.relief_actions import BUILT_IN
path = {path!r}
save_file({{"w": torch.ones(32 << 20, dtype=torch.uint8)}}, path)
os.sync()
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]

def cached():
    size, fd = os.path.getsize(path), os.open(path, os.O_RDONLY)
    at, pages = libc.mmap(None, size, 1, 1, fd, 0), (ctypes.c_ubyte * (size // 4096 + 1))()
    libc.mincore(ctypes.c_void_p(at), ctypes.c_size_t(size), pages)
    libc.munmap(ctypes.c_void_p(at), ctypes.c_size_t(size))
    os.close(fd)
    return sum(page & 1 for page in pages) >> 8

guard.install()
relieve = lambda: BUILT_IN["page_cache"][0](Pressure("warning", "test"))
weights = load_file(path)
said = [relieve()]
on_card = {{name: tensor.to("cuda") for name, tensor in weights.items()}}
before = cached()
with guard.loading("another"):
    said.append(relieve())
said.append(relieve())
still_mapped = cached()
del weights
said.append(relieve())
print(json.dumps([said, before, still_mapped, cached(), path in keeper.loaded_files]))
"""

CUDA = """
import guard, json, os, time, torch
from guard.keeper import keeper
from guard.relief_actions import BUILT_IN
from guard.link.protocol import Pressure
guard.install()
run = lambda name: BUILT_IN[name][0](Pressure("critical", "test"))
said = [run("cuda_cache")]
weights = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
spare = torch.empty(128 << 20, dtype=torch.uint8, device="cuda")
del spare
reserved = lambda: torch.cuda.memory_reserved() >> 20
before = reserved()
said.append(run("cuda_cache"))
with guard.admit():
    said.append(run("cuda_cache"))
with guard.busy("compile", at_most=60):
    said.append(run("cuda_cache"))
during = reserved()
said += [run("cuda_cache"), run("host_cache"), run("page_cache")]
print(json.dumps([said, before, during, reserved()]))
"""


def _with_a_card(code: str, tmp_path: Path) -> Any:  # noqa: ANN401 - JSON
    """Run code that prints JSON, with a pretend card. No GPU is involved."""
    cards = PretendCards(tmp_path / "cards", {"count": 1, "gpu0.total": "1G"})
    added = {key: value for key, value in cards.environment.items() if os.environ.get(key) != value}
    ended = run_host(code, tmp_path, added)
    assert ended.returncode == 0, ended.err
    return json.loads(ended.out)


@pytest.mark.torch
def test_cuda_cache_only_when_nobody_would_feel_it(tmp_path: Path) -> None:
    """Not uncounted, not in a request, not in marked work; then the allocator's spare memory goes."""
    said, before, during, after = _with_a_card(CUDA, tmp_path)
    assert said == [
        "CUDA is not in use",
        "requests are not counted: use an adapter or guard.admit()",
        "1 requests are in flight",
        "work is in flight",
        None,
        None,
        "no weight files",
    ]
    assert (before, during, after) == (192, 192, 64)


@pytest.mark.torch
def test_page_cache_of_weights_that_are_on_the_card(tmp_path: Path) -> None:
    """Not before they are, not while something loads; and what is still mapped stays cached until it is let go."""
    kind = subprocess.run(["stat", "-f", "-c", "%T", str(tmp_path)], capture_output=True, text=True, check=True)
    if kind.stdout.strip() in ("tmpfs", "ramfs"):
        pytest.skip(f"{tmp_path} is in memory: its pages are no cache of anything")
    path = tmp_path / "model.safetensors"
    said, before, mapped, after, noted = _with_a_card(PAGE_CACHE.format(path=str(path)), tmp_path)
    assert said == ["nothing is on a GPU", "work is in flight", None, None]
    assert (before, mapped) == (32, 32)
    assert after <= 1
    assert noted


def test_admission(tmp_path: Path) -> None:
    """While critical `with guard.admit()` raises and `if guard.admit()` is false; who is in stays in and is counted."""
    code = """
import guard
from guard.keeper import keeper
def press(level): keeper.relieving().hear("test", level, "limit near", 60)
print(bool(guard.admit()), guard.status().requests_inside)
with guard.admit():
    press("critical")
    print(bool(guard.admit()), guard.admit().reason, guard.status().requests_inside)
    try:
        with guard.admit():
            print("in")
    except guard.UnderPressureError as error:
        print(error, error.retry_after_seconds)
press("warning")
with guard.admit() as inside:
    print(bool(inside), guard.status().requests_inside)
print(guard.status().requests_inside)
"""
    ended = run_host(code, tmp_path)
    assert ended.out.splitlines() == ["True None", "False limit near 1", "limit near 10", "True 1", "0"]


def test_a_forked_child_starts_calm(tmp_path: Path) -> None:
    """Neither the parent's pressure nor its requests are the child's; its callbacks are."""
    code = """
import guard, os
from guard.keeper import keeper
guard.install()
heard = []
guard.on_pressure("warning")(heard.append)
with guard.admit():
    keeper.relieving().hear("test", "critical", "parent", 60)
    child = os.fork()
    if child == 0:
        print(guard.status().pressure, guard.status().requests_inside, bool(guard.admit()))
        import threading
        done = threading.Event()
        guard.on_pressure("critical")(lambda notice: (print(notice.reason), done.set()))
        keeper.relieving().hear("test", "critical", "child", 60)
        print(done.wait(30), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
print(guard.status().pressure, guard.status().requests_inside)
"""
    ended = run_host(code, tmp_path)
    assert ended.out.splitlines() == ["none None True", "child", "True", "critical 0"]


@pytest.mark.parametrize(
    "code",
    [
        "guard.on_pressure('none')",
        "guard.on_pressure('sometimes')",
        "guard.relieve('gc')",
        "guard.relieve('malloc_trim', level='x')",
    ],
)
def test_misuse_is_told(code: str, tmp_path: Path) -> None:
    """A level or an action that does not exist is an error at once, and names those that do."""
    ended = run_host(f"import guard\ntry:\n    {code}\nexcept ValueError as error:\n    print(error)", tmp_path)
    assert "warning" in ended.out or "malloc_trim" in ended.out


def test_a_wrong_variable_is_said(tmp_path: Path) -> None:
    """An unknown name in OOMGUARD_RELIEF is a trouble in `status()`, not an error of the host."""
    ended = run_host(
        "import guard; guard.install(); print(guard.status().troubles)", tmp_path, {"OOMGUARD_RELIEF": "magic"}
    )
    assert "OOMGUARD_RELIEF: ValueError: no such relief: magic" in ended.out


def test_the_runner_points_its_server_at_the_sidecar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where the socket is there, and never over what a service manager has set."""
    monkeypatch.setenv("OOMGUARD_DIR", str(tmp_path))
    assert "MEMORY_PRESSURE_WATCH" not in child_environment({}, "s", "llm")
    (tmp_path / "pressure.sock").touch()
    own = str(tmp_path / "pressure.sock")
    assert child_environment({}, "s", "llm")["MEMORY_PRESSURE_WATCH"] == own
    assert child_environment({"MEMORY_PRESSURE_WATCH": ""}, "s", "llm")["MEMORY_PRESSURE_WATCH"] == own
    for theirs in ("/dev/null", "/sys/fs/cgroup/x/memory.pressure"):
        assert child_environment({"MEMORY_PRESSURE_WATCH": theirs}, "s", "llm")["MEMORY_PRESSURE_WATCH"] == theirs


EFFECT = Relieved(
    action="drop",
    level="critical",
    seconds=0.5,
    anon_freed_bytes=-5,
    cgroup_freed_bytes=None,
    gpu_freed_bytes=64 * MIB,
    said="",
)


def test_an_effect_travels_whole() -> None:
    """Unknown stays unknown, and memory that grew stays negative."""
    assert decode(encode(EFFECT)) == EFFECT


@pytest.mark.parametrize(
    "wrong",
    [
        *({"seconds": wrong} for wrong in (-1, True, float("nan"), None)),
        *({"anon_freed_bytes": wrong} for wrong in (1.5, "1", True, 1 << 70)),
        *({"said": None}, {"action": 3}, {"level": "x" * 300}),
    ],
)
def test_an_effect_of_wrong_types_is_malformed(wrong: dict[str, object]) -> None:
    """Every field has one type and one bound."""
    fields = json.loads(encode(EFFECT)) | wrong
    with pytest.raises(ProtocolError):
        decode(json.dumps(fields).encode())
