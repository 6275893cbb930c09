"""The tick of the main thread's event loop, seen from outside in the black box."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.guard.hosts import only_box, run_host

RUN = """
import asyncio, guard, threading
guard.install()
async def work():
    await asyncio.sleep(0)
"""


def beats(shared: Path) -> dict[str, int]:
    """Give the beats of the one box."""
    return {beat.name: beat.count for beat in only_box(shared).beats}


def test_a_loop_that_ends_says_so(tmp_path: Path) -> None:
    """Each run of the loop is begun and ended; a loop that only starts a server is not held for its serving loop."""
    ended = run_host(RUN + "asyncio.run(work())\nasyncio.run(work())", tmp_path)
    assert ended.returncode == 0, ended.err
    found = beats(tmp_path)
    assert found["asyncio.begun"] == found["asyncio.ended"] > 0


def test_a_running_loop_ticks_until_the_end(tmp_path: Path) -> None:
    """While it runs it ticks once a second, and a process that dies inside leaves it as begun."""
    code = RUN + "async def long():\n    await asyncio.sleep(1.5)\n    import os; os._exit(0)\nasyncio.run(long())"
    assert run_host(code, tmp_path).returncode == 0
    found = beats(tmp_path)
    assert found["asyncio"] == 2
    assert (found["asyncio.begun"], found.get("asyncio.ended", 0)) == (1, 0)


UVLOOP = (
    RUN
    + """
import uvloop
async def long():
    await asyncio.sleep(1.5)
    import os; os._exit(0)
"""
)


@pytest.mark.parametrize("run", ["uvloop.run(long())", "uvloop.install(); asyncio.run(long())"])
def test_uvloop_ticks_too(tmp_path: Path, run: str) -> None:
    """The real uvloop ticks once a second, whether it is asked for itself or is asyncio's policy."""
    ended = run_host(UVLOOP + run, tmp_path)
    assert ended.returncode == 0, ended.err
    found = beats(tmp_path)
    assert (found["asyncio"], found["asyncio.begun"], found.get("asyncio.ended", 0)) == (2, 1, 0)


def test_uvloop_gets_its_class_back(tmp_path: Path) -> None:
    """Uninstall leaves nothing on uvloop's class, and its loops run as before."""
    code = (
        RUN
        + """
import uvloop
before = 'run_forever' in vars(uvloop.Loop)
guard.install().uninstall()
uvloop.run(work())
print(before, 'run_forever' in vars(uvloop.Loop))
"""
    )
    assert run_host(code, tmp_path).out == "True False\n"


def test_a_loop_of_another_thread_does_not_tick(tmp_path: Path) -> None:
    """A helper's loop says nothing about the serving one."""
    code = RUN + "t = threading.Thread(target=lambda: asyncio.run(work()))\nt.start(); t.join()\nguard.beat('x')"
    assert run_host(code, tmp_path).returncode == 0
    assert set(beats(tmp_path)) == {"x"}


@pytest.mark.parametrize("word", ["off", "0"])
def test_the_off_switch(word: str, tmp_path: Path) -> None:
    """OOMGUARD_LOOP=off leaves the loop alone."""
    ended = run_host(RUN + "asyncio.run(work())\nguard.beat('x')", tmp_path, {"OOMGUARD_LOOP": word})
    assert ended.returncode == 0, ended.err
    assert set(beats(tmp_path)) == {"x"}


@pytest.mark.parametrize(
    "misuse",
    [
        "loop = asyncio.new_event_loop()\nloop.close()\nloop.run_forever()",
        "async def nested():\n    asyncio.get_running_loop().run_forever()\nasyncio.run(nested())",
    ],
)
def test_misuse_fails_as_without_us(tmp_path: Path, misuse: str) -> None:
    """A closed or running loop raises the interpreter's own error, from its own code."""
    ended = run_host(RUN + misuse, tmp_path)
    assert ended.returncode == 1
    assert "RuntimeError" in ended.own_err
    assert "asyncio_loop.py" not in ended.own_err.splitlines()[-2]


def test_uninstall_gives_the_method_back(tmp_path: Path) -> None:
    """After uninstall the class is as it was, and a loop that runs meanwhile goes on."""
    code = """
import asyncio, asyncio.selector_events as events, guard
before = dict(vars(events.BaseSelectorEventLoop))
handle = guard.install()
async def main():
    handle.uninstall()
    await asyncio.sleep(1.2)
    return 'done'
print(asyncio.run(main()), dict(vars(events.BaseSelectorEventLoop)) == before)
"""
    assert run_host(code, tmp_path).out == "done True\n"
