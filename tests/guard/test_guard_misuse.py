"""The public functions called as nobody meant them: no exception that is not documented, no mark that stays behind."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.guard.hosts import boxes, run_host

START = """
import json, os, sys, threading, guard
handle = guard.install()
def box():
    from guard.box.reader import parse_box
    with open(guard.status().box, "rb") as file:
        return parse_box(file.read(), "box").value
def tell(value):
    print(json.dumps([value, [o.label for o in box().operations if not o.done], guard.status().troubles]))
class Mute:
    def __str__(self): raise OSError("mute")
class Folder:
    def __init__(self, path): self.path = path
    def __fspath__(self): return self.path
"""


def _told(code: str, folder: Path) -> Any:  # noqa: ANN401 - JSON
    """Run a host whose guard swallows its own errors; what it tells, after a look that nothing is in flight."""
    ended = run_host(START + code, folder, {"OOMGUARD_FENCE": ""})
    assert (ended.returncode, ended.err) == (0, "")
    value, in_flight, troubles = json.loads(ended.out)
    assert in_flight == []
    return value, troubles


def test_any_kind_of_path(tmp_path: Path) -> None:
    """A path object of the host's own, of text or bytes, and a path in bytes are told as the path they stand for."""
    value, troubles = _told(
        """
for what in ("a", b"/models/b", Folder("/models/c"), Folder(b"/models/d"), None, Mute()):
    with guard.loading(what): pass
tell([one.file for one in box().operations])
""",
        tmp_path,
    )
    assert value == ["a", "/models/b", "/models/c", "/models/d", "None", None]
    assert troubles == ["loading: OSError: mute"]


def test_a_label_in_a_folder_that_is_gone(tmp_path: Path) -> None:
    """A load is marked although the working directory was removed."""
    value, troubles = _told(
        f"""
gone = {str(tmp_path / "gone")!r}
os.mkdir(gone); os.chdir(gone); os.rmdir(gone)
with guard.loading("weights"): pass
tell([one.file for one in box().operations])
""",
        tmp_path,
    )
    assert value == ["weights"]
    assert [one.partition(":")[0] for one in troubles] == ["loaded file"]


def test_a_beat_of_no_whole_number(tmp_path: Path) -> None:
    """A counter goes on after it was given a fraction, a text, a number past 64 bits."""
    value, troubles = _told(
        """
class Tensor:
    def __int__(self): return 3
for n in (1.5, "x", None, Tensor(), 1): guard.beat("tokens", n)
guard.beat("large", 1 << 70)
guard.beat("large")
tell({one.name: one.count for one in box().beats})
""",
        tmp_path,
    )
    assert value == {"tokens": 5, "large": (1 << 63) - 1}
    assert len(troubles) == 2


def test_a_mark_that_is_entered_twice(tmp_path: Path) -> None:
    """One mark entered again, or by many threads at once, is one mark; none stays behind."""
    value, troubles = _told(
        """
mark = guard.busy("compile", at_most=60)
barrier = threading.Barrier(4)
def work():
    with mark: barrier.wait()
threads = [threading.Thread(target=work) for _ in range(4)]
for one in threads: one.start()
for one in threads: one.join()
with mark:
    with mark: pass
tell(len(box().operations))
""",
        tmp_path,
    )
    assert value in (1, 2)  # a finished one's cell is taken again
    assert troubles == []


def test_a_tag_without_a_text(tmp_path: Path) -> None:
    """A tag that has no text is none; what runs inside it runs."""
    value, troubles = _told("with guard.tag(Mute()): ran = True\ntell(ran)", tmp_path)
    assert (value, troubles) == (True, ["tag: OSError: mute"])


def test_an_exception_without_a_text_in_the_guard(tmp_path: Path) -> None:
    """An error inside the guard whose own text cannot be had is named by its type."""
    value, troubles = _told(
        """
class Wordless(Exception):
    def __str__(self): raise OSError("mute")
from guard.fence import fence
with fence("here"): raise Wordless
tell(True)
""",
        tmp_path,
    )
    assert (value, troubles) == (True, ["here: Wordless: (no text: __str__ raised OSError)"])


MISUSES = {
    "guard.on_pressure(5)": "TypeError: what hears of pressure is a function, not 5",
    "guard.on_pressure('critical')(None)": "TypeError: what hears of pressure is a function, not None",
    "guard.on_pressure(later)": "TypeError: later would not run",
    "guard.on_pressure('warning')(steps)": "TypeError: steps would not run",
    "guard.on_pressure('warning', cooldown_seconds='60')(print)": "ValueError: cooldown_seconds is a number",
    "guard.on_pressure('warning', cooldown_seconds=float('nan'))(print)": "ValueError: cooldown_seconds is a number",
    "guard.relieve('malloc_trim', cooldown_seconds=-1)": "ValueError: cooldown_seconds is a number",
    "guard.relieve(['malloc_trim'])": "ValueError: no such relief: ['malloc_trim']; there is malloc_trim",
}


@pytest.mark.parametrize("call", MISUSES)
def test_pressure_that_nobody_would_hear(call: str, tmp_path: Path) -> None:
    """What could never run is refused where it is said, not found out under pressure."""
    value, troubles = _told(
        f"""
async def later(notice): pass
def steps(notice): yield
try:
    {call}
except (TypeError, ValueError) as error:
    tell(f"{{type(error).__name__}}: {{error}}")
""",
        tmp_path,
    )
    assert value.startswith(MISUSES[call])
    assert troubles == []


def test_installed_by_many_threads_at_once(tmp_path: Path) -> None:
    """Threads that install at one moment share one installation, and one `uninstall` takes it back."""
    value, troubles = _told(
        """
handle.uninstall()
hook = sys.excepthook
sys.setswitchinterval(1e-6)
for _ in range(50):
    barrier, handles = threading.Barrier(8), []
    def install():
        barrier.wait()
        handles.append(guard.install())
    threads = [threading.Thread(target=install) for _ in range(8)]
    for one in threads: one.start()
    for one in threads: one.join()
    assert len(set(map(id, handles))) == 1
    handles[0].uninstall()
    assert sys.excepthook is hook
guard.install()
tell(guard.status().active)
""",
        tmp_path,
    )
    assert (value, troubles) == (True, [])


def test_installed_and_taken_out_by_many_threads(tmp_path: Path) -> None:
    """Threads that take each other's installation out again leave a whole one, as the last call of each puts it in."""
    value, troubles = _told(
        """
sys.setswitchinterval(1e-6)
def often():
    for _ in range(20):
        guard.install().uninstall()
        with guard.loading("x"): guard.beat("y")
        guard.install()
threads = [threading.Thread(target=often) for _ in range(6)]
for one in threads: one.start()
for one in threads: one.join()
status = guard.status()
tell([status.active, status.session is not None, set(status.hooks.values()) & {"failed"} == set()])
""",
        tmp_path,
    )
    assert (value, troubles) == ([True, True, True], [])


@pytest.mark.parametrize("installed", ["guard.install()", ""])
def test_it_stays_out_of_subinterpreters(installed: str, tmp_path: Path) -> None:
    """A second interpreter in the process (mod_wsgi) ends in peace: a thread of ours in it would abort the process."""
    name = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
    how = "'legacy'" if sys.version_info >= (3, 13) else "isolated=False"
    inside = (
        "import guard, sys\nhandle = guard.install()\nguard.beat('inner')\n"
        "print(handle.active, guard.status().active, guard.status().troubles)\nsys.stdout.flush()"
    )
    ended = run_host(
        f"""
import guard, {name} as interpreters
{installed}
inner = interpreters.create({how})
interpreters.run_string(inner, {inside!r})
interpreters.destroy(inner)
print("alive")
""",
        tmp_path,
        {"OOMGUARD_FENCE": ""},
    )
    assert (ended.returncode, ended.err) == (0, "")
    assert ended.out == "False False ('install: it stays out of subinterpreters',)\nalive\n"
    assert [box.beats for box in boxes(tmp_path)] == ([()] if installed else [])
