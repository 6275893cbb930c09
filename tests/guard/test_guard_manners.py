"""The guest's manners: how the host ends is the same with and without the guard."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.guard.hosts import boxes, environment, only_box, run_host

ENDS = {
    "returns": "pass",
    "exit 0": "import sys; sys.exit(0)",
    "exit 3": "import sys; sys.exit(3)",
    "exit text": "import sys; sys.exit('a reason')",
    "exception": "raise ValueError('v')",
    "chained": "try:\n    1/0\nexcept ZeroDivisionError as e:\n    raise RuntimeError('r') from e",
    "group": "raise ExceptionGroup('g', [ValueError(1), OSError(2)])",
    "memory": "raise MemoryError('m')",
    "recursion": "f = lambda: f()\nf()",
    "base": "raise BaseException('b')",
    "generator exit": "raise GeneratorExit",
    "cancelled": "import asyncio\nraise asyncio.CancelledError",
    "interrupt": "raise KeyboardInterrupt",
    "no text": "class Mute(Exception):\n    def __str__(self): raise OSError('mute')\nraise Mute",
    "os._exit": "import os; os._exit(4)",
    "abort": "import os; os.abort()",
    "SIGTERM": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "SIGINT": "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(9)",
    "SIGKILL": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "thread": "import threading\nt = threading.Thread(target=lambda: 1/0, name='worker'); t.start(); t.join()",
    "thread exit": "import threading, sys\nt = threading.Thread(target=sys.exit); t.start(); t.join()",
    "asyncio run": "import asyncio\nasync def main(): raise OSError('a')\nasyncio.run(main())",
    "syntax": "exec('1 +')",
}
NOT_FATAL = {"returns", "exit 0", "exit 3", "exit text", "interrupt", "SIGINT", "thread exit"}


@pytest.mark.parametrize("name", ENDS)
def test_ends_as_without_the_guard(name: str, tmp_path: Path) -> None:
    """Status and standard error of every kind of end are the host's own; the guard only adds a line of its own."""
    program = "import guard\n{}\n" + ENDS[name]
    plain = run_host(program.format("guard"), tmp_path)
    guarded = run_host(program.format("guard.install()"), tmp_path)
    assert (plain.returncode, plain.out, plain.err) == (guarded.returncode, guarded.out, guarded.own_err)


@pytest.mark.parametrize("name", sorted(NOT_FATAL))
def test_orderly_ends_are_no_failures(name: str, tmp_path: Path) -> None:
    """An exit, a request to stop and a thread that exits leave no failure, only the mark of an orderly end."""
    ended = run_host("import guard; guard.install()\n" + ENDS[name], tmp_path)
    box = only_box(tmp_path)
    assert box.failures == ()
    assert ended.lines == []
    assert box.exit_mark is not None
    assert box.exit_mark.status is None


def test_fatal_exception_is_told_three_ways(tmp_path: Path) -> None:
    """An uncaught exception leaves a line on standard error, a termination message and a failure in the box."""
    log = tmp_path / "termination-log"
    log.touch()
    ended = run_host("import guard; guard.install()\ndef load(): raise MemoryError('no room')\nload()", tmp_path)
    (line,) = ended.lines
    assert '"kind":"memory_error"' in line
    first, second, third = log.read_text().splitlines()
    assert first == "oomguard: memory_error: MemoryError: no room"
    assert second.startswith("what to do: host memory ran out: raise the memory limit")
    assert line == third
    (failure,) = only_box(tmp_path).failures
    assert (
        failure.kind,
        failure.exception,
        failure.message,
        failure.fatal,
    ) == ("memory_error", "MemoryError", "no room", True)
    assert failure.stack == ("<string>:3 <module>", "<string>:2 load")
    mark = only_box(tmp_path).exit_mark
    assert mark is not None
    assert mark.status == 1


def test_termination_log_of_the_server_stays(tmp_path: Path) -> None:
    """What the server wrote to the termination log is not overwritten, and none is made where none is."""
    log = tmp_path / "termination-log"
    run_host("import guard; guard.install(); raise ValueError", tmp_path)
    assert not log.exists()
    log.write_text("mine")
    run_host("import guard; guard.install(); raise ValueError", tmp_path)
    assert log.read_text() == "mine"


def test_thread_and_task_failures_are_not_fatal(tmp_path: Path) -> None:
    """Exceptions of threads and of lost tasks are recorded as survived; the server's own handler still runs."""
    ended = run_host(
        """
import asyncio, guard, threading
guard.install()
thread = threading.Thread(target=lambda: bytearray(1 << 62), name="worker")
thread.start(); thread.join()
async def lost(): raise MemoryError("task")
async def main():
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: print("server saw", context["exception"]))
    task = asyncio.ensure_future(lost())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    del task
asyncio.run(main())
""",
        tmp_path,
    )
    assert ended.out == "server saw task\n"
    box = only_box(tmp_path)
    assert [(failure.kind, failure.fatal, failure.thread) for failure in box.failures] == [
        ("memory_error", False, "worker"),
        ("memory_error", False, ""),
    ]
    assert box.exit_mark is not None
    assert box.exit_mark.status is None


def test_cancelled_task_ends(tmp_path: Path) -> None:
    """A task inside `loading` and `busy` can be cancelled at the first try."""
    ended = run_host(
        """
import asyncio, guard
guard.install()
async def work():
    with guard.loading("file"), guard.busy("compile", at_most=1):
        await asyncio.sleep(60)
async def main():
    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        print("cancelled")
asyncio.run(main())
""",
        tmp_path,
    )
    assert (ended.out, ended.err) == ("cancelled\n", "")
    assert all(operation.done for operation in only_box(tmp_path).operations)


def test_foreign_hooks_on_top_stay_and_work(tmp_path: Path) -> None:
    """Hooks that the server sets after ours see every exception, also after uninstall in another order."""
    ended = run_host(
        """
import guard, sys, threading
first = guard.install()
below, below_thread = sys.excepthook, threading.excepthook
def mine(kind, exc, tb):
    print("mine", exc)
    below(kind, exc, tb)
def mine_thread(args):
    print("mine", args.exc_value)
    below_thread(args)
sys.excepthook, threading.excepthook = mine, mine_thread
second = guard.install()
assert first is second
first.uninstall()
second.uninstall()
assert (sys.excepthook, threading.excepthook) == (mine, mine_thread)
thread = threading.Thread(target=lambda: 1/0); thread.start(); thread.join()
raise ValueError("last")
""",
        tmp_path,
    )
    assert ended.returncode == 1
    assert ended.out == "mine division by zero\nmine last\n"
    assert "ValueError: last" in ended.err
    assert ended.lines == []
    assert only_box(tmp_path).failures == ()


def test_previous_hook_that_raises(tmp_path: Path) -> None:
    """A hook of the host that raises is the host's own matter; our record is made before."""
    program = """
import guard, sys
def broken(kind, exc, tb): raise OSError("broken hook")
sys.excepthook = broken
{}
raise ValueError("v")
"""
    plain = run_host(program.format(""), tmp_path)
    guarded = run_host(program.format("guard.install()"), tmp_path)
    assert plain.returncode == guarded.returncode == 1
    assert [line for line in guarded.own_err.splitlines() if line.endswith(("broken hook", ": v"))] == [
        "OSError: broken hook",
        "ValueError: v",
    ]
    assert only_box(tmp_path).failures[0].kind == "exception"


def test_error_of_our_own_stays_inside(tmp_path: Path) -> None:
    """A guard that fails inside (its box is broken here) is told in the status and by no other sign."""
    ended = run_host(
        """
import guard
guard.install()
from guard.keeper import keeper
class Broken:
    path = "broken"
    def __getattr__(self, name): raise RuntimeError("broken box")
keeper.box = Broken()
guard.beat("loop")
with guard.loading("file") as load: load.progress("tensor", 1)
guard.report(ValueError("v"))
print(guard.status().trouble_count, guard.status().troubles[0])
""",
        tmp_path,
        {"OOMGUARD_FENCE": ""},
    )
    assert (ended.out, ended.err, ended.returncode) == ("3 beat: RuntimeError: broken box\n", "", 0)


@pytest.mark.parametrize("directory", ["missing/too/deep", "a-file", "/proc/sys"])
def test_shared_directory_that_cannot_be_used(directory: str, tmp_path: Path) -> None:
    """Without a usable shared directory the server runs as ever; status and one log line say why there is no box."""
    (tmp_path / "a-file").touch()
    ended = run_host(
        "import guard, time\nfrom guard import keeper\n"
        "guard.install(); guard.install(); guard.beat('a')\n"
        "with guard.loading('f') as load: load.progress('t', 1)\n"
        "s = guard.status(); print(s.box, s.troubles[0].startswith('box: BoxError'))",
        tmp_path,
        {"OOMGUARD_DIR": str(tmp_path / directory)},
    )
    assert (ended.out, ended.returncode) == ("None True\n", 0)
    assert ended.err.count("the guard runs without its black box") == 1, ended.err
    assert len(ended.err.splitlines()) == 1


def test_survived_failures_of_a_busy_server_are_thinned(tmp_path: Path) -> None:
    """A thousand reported exceptions in a row cost one record; a memory failure among them is always kept."""
    run_host(
        "import guard; guard.install()\n"
        "for i in range(1000): guard.report(ConnectionResetError(i))\n"
        "guard.report(MemoryError('kept'))",
        tmp_path,
    )
    assert [failure.kind for failure in only_box(tmp_path).failures] == ["reported", "memory_error"]


SIGTERM_HOST = """
import guard, os, signal, sys, time
{before}
guard.install(note_sigterm=True)
{after}
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(0.01)
print("alive")
"""


@pytest.mark.parametrize(
    ("before", "after", "status", "out", "noted"),
    [
        ("", "", -15, "", True),
        ("signal.signal(signal.SIGTERM, lambda *_: print('server'))", "", 0, "server\nalive\n", True),
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", "", 0, "alive\n", False),
        ("", "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))", 7, "", False),
    ],
    ids=["default", "handler before", "ignored", "handler after"],
)
def test_sigterm_note(before: str, after: str, status: int, out: str, noted: bool, tmp_path: Path) -> None:  # noqa: FBT001, PLR0913, PLR0917 - a table
    """The optional note of SIGTERM leaves the outcome as it was: death by the signal, or the server's handler."""
    ended = run_host(SIGTERM_HOST.format(before=before, after=after), tmp_path)
    assert (status, out) == (ended.returncode, ended.out), ended.err
    assert noted == (only_box(tmp_path).sigterm_wall_s is not None)


def test_signals_that_the_server_waits_for(tmp_path: Path) -> None:
    """A server that blocks its signals and waits for them gets every one, none is lost to a thread of ours."""
    ended = run_host(
        """
import guard, os, signal
guard.install()
numbers = [signal.SIGTERM, signal.SIGINT, signal.SIGCONT]
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
for number in numbers * 20:
    os.kill(os.getpid(), number)
    assert signal.sigwait(numbers) == number
print("all", signal.pthread_sigmask(signal.SIG_BLOCK, []) == set(numbers))
""",
        tmp_path,
    )
    assert (ended.out, ended.err, ended.returncode) == ("all True\n", "", 0)


def test_closed_standard_error(tmp_path: Path) -> None:
    """Where descriptor 2 was closed at the start and belongs to a file now, nothing of ours goes into that file."""
    data = tmp_path / "data"
    code = f"f = open({str(data)!r}, 'wb'); print(f.fileno()); import guard; guard.install(); raise ValueError"
    ended = subprocess.run(
        ["sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-c", code],
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=30,
    )
    assert (ended.returncode, ended.stdout) == (1, "2\n")
    assert data.read_bytes() == b""
    assert len(boxes(tmp_path)[0].failures) == 1
