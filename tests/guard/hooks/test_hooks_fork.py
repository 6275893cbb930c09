"""Forked and spawned processes are processes of their own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.guard.hosts import boxes, run_command, run_host
from tests.guard.hosts import environment as environment_of

WORKERS = """
import multiprocessing, sys, guard

def work(how):
    guard.beat("worker")
    if how == "raise":
        raise MemoryError("worker")
    if how == "exit":
        sys.exit(5)

if __name__ == "__main__":
    {install}
    context = multiprocessing.get_context(sys.argv[1])
    for how in ("raise", "exit", "ok"):
        process = context.Process(target=work, args=(how,))
        process.start()
        process.join()
        print(how, process.exitcode)
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_of_multiprocessing(method: str, tmp_path: Path) -> None:
    """Every worker has a box of its own that names its parent and its exit status; output is as without the guard."""
    script = tmp_path / "workers.py"
    script.write_text(WORKERS.format(install="guard.install()"))
    plain_script = tmp_path / "plain" / "workers.py"
    plain_script.parent.mkdir()
    plain_script.write_text(WORKERS.format(install="pass"))
    environment = environment_of(tmp_path, {"PYTHONHASHSEED": "0"}, activated=True)
    guarded = run_command([sys.executable, str(script), method], environment)
    plain = run_command([sys.executable, str(plain_script), method], environment_of(tmp_path))
    assert ("raise 1\nexit 5\nok 0\n", plain.returncode) == (guarded.out, guarded.returncode)
    assert plain.err.replace("/plain/", "/").splitlines()[2:] == guarded.own_err.splitlines()[2:]
    parent, *workers = boxes(tmp_path)
    marks = [worker.exit_mark.status for worker in workers if worker.exit_mark is not None]
    if method == "forkserver":
        workers = [worker for worker in workers if worker.beats]
        marks = marks[-len(workers) :]
    assert marks == [1, 5, 0]
    assert [failure.kind for worker in workers for failure in worker.failures] == ["memory_error"]
    assert len({parent.life.session, *(worker.life.session for worker in workers)}) == 4
    if method != "forkserver":
        assert {parent.life.session} == {worker.parent_session for worker in workers}


STATES = {
    "not installed": "",
    "installed": "handle = guard.install()",
    "loading": "guard.install(); load = guard.loading('f'); load.__enter__(); load.progress('t', 1)",
    "busy threads": (
        "guard.install(); import threading\n"
        "def spin():\n"
        "    while True: guard.beat('spin')\n"
        "for _ in range(4): threading.Thread(target=spin, daemon=True).start()"
    ),
    "uninstalled": "guard.install().uninstall()",
}


@pytest.mark.parametrize("state", STATES)
def test_fork_in_every_state(state: str, tmp_path: Path) -> None:
    """A fork at any moment neither hangs nor writes to the parent's box, in child and grandchild."""
    ended = run_host(
        f"""
import guard, os
{STATES[state]}
session = guard.status().session
for _ in range(20):
    child = os.fork()
    if child == 0:
        grandchild = os.fork()
        guard.beat("child")
        with guard.loading("child file") as inner: inner.progress("x", 2)
        if grandchild:
            os.waitpid(grandchild, 0)
        mine = guard.status()
        own = mine.session != session if session else mine.session is None
        os._exit(0 if own else 1)
    assert os.waitpid(child, 0)[1] == 0
print("ok")
""",
        tmp_path,
    )
    assert (ended.out, ended.err) == ("ok\n", "")
    found = boxes(tmp_path)
    children = [box for box in found if any(beat.name == "child" for beat in box.beats)]
    assert len(children) == (0 if state in {"not installed", "uninstalled"} else 40)
    for box in found:
        if box not in children:
            assert all(operation.file != "child file" for operation in box.operations)


def test_subprocess_of_a_server_knows_its_parent(tmp_path: Path) -> None:
    """A Python that the server starts by `subprocess` names the server as its parent."""
    run_host(
        "import guard, subprocess, sys; guard.install()\n"
        "subprocess.run([sys.executable, '-c', 'import guard; guard.install()'], check=True)",
        tmp_path,
    )
    parent, child = boxes(tmp_path)
    assert (None, parent.life.session) == (parent.parent_session, child.parent_session)


def test_a_fork_waits_for_an_import_of_ours(tmp_path: Path) -> None:
    """A module that a thread of ours imports during a fork could never be imported in the child; so the fork waits."""
    ended = run_host(
        """
import guard, os, threading
from guard.threads import importing
guard.install()
inside, forked = threading.Event(), []
def import_slowly():
    with importing:
        inside.set()
        threading.Event().wait(0.2)
        forked.append("not yet")
threading.Thread(target=import_slowly).start()
inside.wait()
child = os.fork()
if child == 0:
    os._exit(0 if forked and importing.acquire(timeout=30) else 1)
print(forked, os.waitpid(child, 0)[1], importing.locked())
""",
        tmp_path,
    )
    assert (ended.out, ended.err) == ("['not yet'] 0 False\n", "")


def test_a_start_leaves_the_hand_over_for_later(tmp_path: Path) -> None:
    """Where no sidecar listens yet, what a hand-over needs is not imported: it is half of what a start would cost."""
    ended = run_host("import guard, sys; guard.install(); print('guard.kernel.values' in sys.modules)", tmp_path)
    assert ended.out == "False\n"
