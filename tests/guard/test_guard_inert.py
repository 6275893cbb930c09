"""Importing the guard changes nothing; uninstalling it leaves nothing."""

from __future__ import annotations

import json
from pathlib import Path

from tests.guard.hosts import boxes, run_host

PICTURE = """
import atexit, json, os, signal, sys, threading
def picture():
    return {
        "threads": [t.name for t in threading.enumerate()],
        "excepthook": sys.excepthook is sys.__excepthook__,
        "thread hook": threading.excepthook is threading.__excepthook__,
        "signals": {int(n): str(signal.getsignal(n)) for n in signal.valid_signals()},
        "atexit": atexit._ncallbacks(),
        "meta_path": [repr(finder) for finder in sys.meta_path],
        "path": list(sys.path),
        "path_hooks": len(sys.path_hooks),
        "environment": dict(os.environ),
        "descriptors": sorted(os.listdir("/proc/self/fd")),
    }
"""


def test_import_changes_nothing(tmp_path: Path) -> None:
    """`import guard` loads light standard modules and itself, and leaves every global of the interpreter alone."""
    ended = run_host(
        PICTURE
        + """
before, modules = picture(), set(sys.modules)
import guard
after = picture()
new = sorted(set(sys.modules) - modules)
print(json.dumps([before == after, new]))
""",
        tmp_path,
    )
    same, new = json.loads(ended.out)
    assert same
    assert {name for name in new if not name.startswith("guard")} <= {"__future__", "_thread"}
    assert list(tmp_path.iterdir()) == []


def test_uninstall_restores_everything(tmp_path: Path) -> None:
    """After install, use and uninstall the interpreter looks as before, also after fifty rounds."""
    ended = run_host(
        PICTURE
        + """
import asyncio.base_events, multiprocessing.util, time, guard
import guard.opening, guard.failure, guard.hooks.libraries
before, own = picture(), dict(vars(asyncio.base_events.BaseEventLoop))
for _ in range(50):
    handle = guard.install()
    assert handle.active and threading.excepthook is not threading.__excepthook__
    guard.beat("loop")
    handle.uninstall()
    assert not handle.active
    handle.uninstall()
deadline = time.monotonic() + 20
while threading.active_count() > 1 and time.monotonic() < deadline:
    time.sleep(0.01)
after = picture()
del before["atexit"], after["atexit"]  # unregister leaves an empty slot behind that still counts (CPython 3.11)
assert dict(vars(asyncio.base_events.BaseEventLoop)) == own
print(json.dumps([before, after]))
""",
        tmp_path,
    )
    assert ended.err == ""
    before, after = json.loads(ended.out)
    assert before == after
    assert all(box.exit_mark is None for box in boxes(tmp_path)), "its exit handler is gone"


def test_children_inherit_the_models_name(tmp_path: Path) -> None:
    """A worker that is started as another command is a process of the same model; a name that was given stays."""
    ended = run_host(
        """
import os, subprocess, sys, guard
def name(): return os.environ.get("OOMGUARD_NAME")
worker = "import os, guard.place as p; print(p.model_name(['worker']), flush=True)"
for given in (None, "llm"):
    os.environ.pop("OOMGUARD_NAME", None)
    if given: os.environ["OOMGUARD_NAME"] = given
    handle = guard.install()
    subprocess.run([sys.executable, "-c", worker], check=True)
    handle.uninstall()
    print(name(), flush=True)
""",
        tmp_path,
    )
    own, after, given, kept = ended.out.split()
    assert own.startswith("python")
    assert (after, given, kept) == ("None", "llm", "llm")


def test_off_switch(tmp_path: Path) -> None:
    """With OOMGUARD=off nothing is installed, opened or started, and every call works."""
    ended = run_host(
        PICTURE
        + """
import guard
before = picture()
handle = guard.install()
guard.beat("loop")
with guard.loading("file") as load:
    load.progress("tensor", 1)
with guard.busy("compile", at_most=1):
    pass
guard.report(ValueError("x"))
assert before == picture()
print(handle.active, guard.status().active)
""",
        tmp_path,
        {"OOMGUARD": "off"},
    )
    assert (ended.out, ended.err) == ("False False\n", "")
    assert list(tmp_path.iterdir()) == []


def test_without_install_calls_do_nothing(tmp_path: Path) -> None:
    """Every public function is a no-op before `install`."""
    ended = run_host(
        "import guard\n"
        "guard.beat('a'); guard.report(MemoryError()); guard.on_pressure(print)\n"
        "with guard.loading('f') as load: load.progress('t', 1)\n"
        "print(guard.status().session)",
        tmp_path,
    )
    assert (ended.out, ended.err) == ("None\n", "")
    assert list(tmp_path.iterdir()) == []
