"""`oomguard run` and signals: at a terminal, under a supervisor, as PID 1."""

from __future__ import annotations

import os
import pty
import signal
import sys
import time
from pathlib import Path

import pytest

from guard.box import end_note
from guard.link.protocol import ChildExit, Role
from guard.model import Known
from tests.guard.hosts import environment, run_command
from tests.guard.runner.running import RUN, started
from tests.guard.sidecar_socket import listening
from tests.lab.kit.wait import until

ECHO_SIGNALS = """
import os, signal, sys
numbers = [int(number) for number in sys.argv[1].split(",")]
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
print("ready", os.isatty(0), flush=True)
while True:
    number = signal.sigwait(numbers)
    os.write(1, f"{int(number)}\\n".encode())
    if number == signal.SIGTERM:
        sys.exit(6)
"""


def test_signals_reach_the_server(tmp_path: Path) -> None:
    """Every signal a supervisor may send to the runner is delivered once to the server, in order, and none kills us."""
    numbers = [
        int(number)
        for number in (
            signal.SIGINT,
            signal.SIGHUP,
            signal.SIGQUIT,
            signal.SIGUSR1,
            signal.SIGUSR2,
            signal.SIGWINCH,
            signal.SIGALRM,
            signal.SIGABRT,
            signal.SIGRTMIN + 3,
            signal.SIGTERM,
        )
    ]
    command = [sys.executable, "-c", ECHO_SIGNALS, ",".join(map(str, numbers))]
    with started(command, tmp_path) as runner:
        assert runner.stdout is not None
        for number in numbers:
            runner.send_signal(number)
            assert int(runner.stdout.readline()) == number
        assert runner.wait(30) == 6


def test_the_first_sigterm_is_told_with_the_end(tmp_path: Path) -> None:
    """End note and link say when SIGTERM was passed on, and say nothing of it where there was none."""
    command = [sys.executable, "-c", ECHO_SIGNALS, f"{int(signal.SIGTERM)}"]
    with listening(tmp_path) as sidecar, started(command, tmp_path) as runner:
        taken = [sidecar.accept(), sidecar.accept()]
        before = time.time(), time.monotonic()
        runner.send_signal(signal.SIGTERM)
        assert runner.wait(30) == 6
        (by_runner,) = [one for one in taken if one.hello.role is Role.RUNNER]
        said = by_runner.receive()
    assert isinstance(said, ChildExit)
    (note,) = _notes(tmp_path)
    assert (note.sigterm_wall_s, note.sigterm_monotonic_s) == (said.sigterm_wall_s, said.sigterm_monotonic_s)
    assert said.sigterm_wall_s is not None
    assert said.sigterm_monotonic_s is not None
    assert before[0] <= said.sigterm_wall_s <= note.at_wall_s
    assert before[1] <= said.sigterm_monotonic_s <= note.at_monotonic_s
    for path in (tmp_path / "boxes").glob(f"*{end_note.SUFFIX}"):
        path.unlink()
    assert run_command([*RUN, "sh", "-c", "kill -KILL $$"], environment(tmp_path)).returncode == -signal.SIGKILL
    (note,) = _notes(tmp_path)
    assert (note.sigterm_wall_s, note.sigterm_monotonic_s) == (None, None)


def _notes(shared: Path) -> list[end_note.EndNote]:
    found = [end_note.parse(path.read_bytes(), path.name) for path in (shared / "boxes").glob(f"*{end_note.SUFFIX}")]
    return [one.value for one in found if isinstance(one, Known)]


def test_signals_that_the_caller_ignores(tmp_path: Path) -> None:
    """What the caller ignores (nohup) the server ignores; what only Python ignores has its default again."""
    script = "grep -E 'Sig(Ign|Blk)' /proc/self/status"
    plain = run_command(["sh", "-c", f"trap '' HUP; exec sh -c \"{script}\""], environment(tmp_path))
    ended = run_command(["sh", "-c", f'trap \'\' HUP; exec "$@" sh -c "{script}"', "sh", *RUN], environment(tmp_path))
    assert ended.out == plain.out


IGNORES_CHILDREN = """
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which an interpreter ignores
    signal.signal(number, signal.SIG_DFL)
os.execvp(sys.argv[1], sys.argv[1:])
"""


def test_a_caller_that_ignores_its_childrens_ends_is_told_the_servers(tmp_path: Path) -> None:
    """With SIGCHLD ignored the kernel reaps by itself: the runner hears of the end all the same, the server ignores."""
    ignoring = [sys.executable, "-c", IGNORES_CHILDREN]
    no_line = ["grep", "-q", "no such line", "/proc/self/status"]
    assert run_command([*ignoring, *RUN, *no_line], environment(tmp_path)).returncode == 1
    ignored = ["grep", "SigIgn", "/proc/self/status"]
    plain = run_command([*ignoring, *ignored], environment(tmp_path)).out
    assert int(plain.split()[1], 16) & 1 << (signal.SIGCHLD - 1)
    assert run_command([*ignoring, *RUN, *ignored], environment(tmp_path)).out == plain


def test_job_control_stop_and_continue(tmp_path: Path) -> None:
    """A server that job control stops makes the runner stop, so that a shell sees it; SIGCONT wakes both."""
    with started([sys.executable, "-c", ECHO_SIGNALS, str(int(signal.SIGCONT))], tmp_path) as runner:
        runner.send_signal(signal.SIGTSTP)
        pid, status = os.waitpid(runner.pid, os.WUNTRACED)
        assert (pid, os.WIFSTOPPED(status)) == (runner.pid, True)
        runner.send_signal(signal.SIGCONT)
        assert runner.stdout is not None
        assert runner.stdout.readline() == "18\n"
        until(lambda: _state(runner.pid) == "S", 30, "the runner to wait for its server again")


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0]


def test_terminal_interrupt_arrives_once(tmp_path: Path) -> None:
    """Ctrl-C at a terminal reaches the server once, from the terminal, and is not passed on a second time."""
    numbers = ",".join(str(int(number)) for number in (signal.SIGINT, signal.SIGUSR1, signal.SIGTERM))
    child, terminal = pty.fork()
    if child == 0:
        os.execve(sys.executable, [*RUN, sys.executable, "-c", ECHO_SIGNALS, numbers], environment(tmp_path))
    with os.fdopen(terminal, "r+b", buffering=0) as screen:
        seen = _read_until(screen.fileno(), b"ready True\r\n")
        screen.write(b"\x03")
        seen = _read_until(screen.fileno(), b"2\r\n")
        os.kill(child, signal.SIGUSR1)  # whatever was passed on before comes out before this one
        seen += _read_until(screen.fileno(), b"10\r\n")
        os.kill(child, signal.SIGTERM)
        _, status = os.waitpid(child, 0)
    assert os.WEXITSTATUS(status) == 6
    assert seen.count(b"2\r\n") == 1


def _read_until(terminal: int, text: bytes) -> bytes:
    seen = b""
    while text not in seen:
        seen += os.read(terminal, 4096)
    return seen


INIT = """
import os, subprocess, sys
print(os.getppid(), os.getpid(), flush=True)
for _ in range(20):
    subprocess.run(["sh", "-c", "(sleep 0.05; exit 7) &"])
import time
from pathlib import Path
def zombies():
    return sum(") Z " in Path(f"/proc/{p}/stat").read_text() for p in os.listdir("/proc") if p.isdigit())
deadline = time.monotonic() + 20
def orphans():
    return [p for p in os.listdir("/proc") if p.isdigit() and int(p) > os.getpid()]
while orphans() and time.monotonic() < deadline:
    time.sleep(0.01)
print(orphans(), flush=True)
os.kill(os.getpid(), int(sys.argv[1])) if sys.argv[1] != "0" else sys.exit(9)
"""


@pytest.mark.lab
@pytest.mark.parametrize(("number", "status"), [(0, 9), (int(signal.SIGTERM), 143), (int(signal.SIGKILL), 137)])
def test_as_pid_1(number: int, status: int, tmp_path: Path) -> None:
    """As PID 1 orphans are reaped, and a signal's death becomes 128 + signal, since PID 1 cannot kill itself."""
    command = [*RUN, sys.executable, "-c", INIT, str(number)]
    ended = run_command(["unshare", "-p", "-f", "--mount-proc", *command], environment(tmp_path))
    assert (ended.out, ended.err, ended.returncode) == ("1 2\n[]\n", "", status)


@pytest.mark.lab
def test_signals_as_pid_1(tmp_path: Path) -> None:
    """PID 1 passes SIGTERM on although it has no handler for it: a blocked signal is not dropped by the kernel."""
    server = [sys.executable, "-c", ECHO_SIGNALS, str(int(signal.SIGTERM))]
    with started(server, tmp_path, before=["unshare", "-p", "-f", "--kill-child", "--mount-proc"]) as outer:
        assert outer.stdout is not None
        (runner,) = map(int, Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split())
        os.kill(runner, signal.SIGTERM)
        assert outer.stdout.read() == "15\n"
        assert outer.wait(30) == 6
