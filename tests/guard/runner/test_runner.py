"""`oomguard run`: a parent that nobody notices."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from guard.box import end_note
from guard.kernel.locate import locate
from guard.kernel.reader import Reader
from guard.link.protocol import ChildExit, Role
from guard.model import Known
from tests.guard.hosts import Ended, environment, only_box, run_command
from tests.guard.runner.running import RUN, started
from tests.guard.sidecar_socket import listening
from tests.lab.kit.wait import until


@pytest.mark.parametrize(
    "program",
    [
        "exit 0",
        "exit 3",
        "exit 255",
        "echo out; echo err >&2",
        "kill -TERM $$",
        "kill -SEGV $$",
        "kill -KILL $$",
        "kill -ABRT $$",
        "kill -40 $$",
        "exec sleep 0",
        "(sleep 0.05; exit 4) & exit 5",
    ],
)
def test_ends_as_without_the_runner(program: str, tmp_path: Path) -> None:
    """Wait status and output of any server are those of the server run by itself."""
    command = ["sh", "-c", f"ulimit -c 0; {program}"]
    plain = run_command(command, environment(tmp_path))
    assert run_command([*RUN, *command], environment(tmp_path)) == plain


@pytest.mark.parametrize(
    ("command", "status", "says"),
    [
        (["no-such-command"], 127, "oomguard run: no-such-command: no such command"),
        (["/etc/passwd"], 126, "oomguard run: /etc/passwd: Permission denied"),
        (["/"], 126, "oomguard run: /: Permission denied"),
        (["/etc/passwd/x"], 127, "oomguard run: /etc/passwd/x: no such command"),
        ([], 2, "oomguard run: error: there is no command to run"),
    ],
)
def test_command_that_cannot_run(command: list[str], status: int, says: str, tmp_path: Path) -> None:
    """A command that cannot be started gives a shell's status and one clear line."""
    ended = run_command([*RUN, *command], environment(tmp_path))
    assert (ended.returncode, ended.err.splitlines()[-1]) == (status, says)


@pytest.mark.parametrize("outputs", [">&- 2>&-", ">/dev/full 2>/dev/full"])
def test_outputs_that_take_nothing_change_no_end(outputs: str, tmp_path: Path) -> None:
    """With its outputs closed or full the server runs and ends as ever, also where we have to complain."""
    for program, status in (("exit 3", 3), ("kill -KILL $$", -9)):
        command = ["sh", "-c", f'exec "$@" {outputs}', "sh", *RUN, "sh", "-c", program]
        assert run_command(command, environment(tmp_path, {"OOMGUARD": "bogus"})).returncode == status
    command = ["sh", "-c", f'exec "$@" {outputs}', "sh", *RUN, "no-such-command"]
    assert run_command(command, environment(tmp_path)).returncode == 127


def test_script_without_its_interpreter(tmp_path: Path) -> None:
    """A script whose interpreter is missing is not called missing itself, by path and by name on PATH."""
    script = tmp_path / "serve"
    script.write_text("#!/nonexistent/python\n")
    script.chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for name in (str(script), "serve"):
        ended = run_command([*RUN, name], environment(tmp_path, path))
        assert ended.returncode == 127
        assert ended.err == f"oomguard run: {name}: the interpreter that it names is missing\n"


def test_large_command_line(tmp_path: Path) -> None:
    """Thousands of arguments with spaces, quotes and line ends arrive as they are; too many are refused clearly."""
    words = [f"word '{i}'\n" for i in range(5000)]
    ended = run_command([*RUN, "sh", "-c", 'echo $#; printf %s "${5000}"', "sh", *words], environment(tmp_path))
    assert (ended.out, ended.err) == ("5000\nword '4999'\n", "")
    exact = run_command([*RUN, "printf", "%s,", "--", "-x", "--name", "", "é"], environment(tmp_path))
    assert exact.out == "--,-x,--name,,é,"


def test_a_removed_working_directory_stops_no_server(tmp_path: Path) -> None:
    """Where a relative shared directory lies nowhere, the server runs all the same."""
    (tmp_path / "gone").mkdir()
    script = f'cd "{tmp_path}/gone"; rmdir "{tmp_path}/gone"; exec "$@"'
    command = ["sh", "-c", script, "sh", *RUN, sys.executable, "-c", "print('served'); raise SystemExit(3)"]
    ended = run_command(command, environment(tmp_path, {"OOMGUARD_DIR": "relative"}))
    assert (ended.returncode, ended.out) == (3, "served\n")
    assert "Traceback" not in ended.err


def test_an_end_that_nobody_can_hear_of_is_said(tmp_path: Path) -> None:
    """Without the shared directory, as where its volume was forgotten, one line names it; with it there is none."""
    absent = tmp_path / "absent"
    command = [*RUN, "sh", "-c", "exit 3"]
    ended = run_command(command, environment(absent))
    assert (ended.returncode, ended.out, ended.err.count("\n")) == (3, "", 1)
    assert ended.err.startswith(
        f"oomguard run: no sidecar hears of this end: {absent}: No such file or directory; share"
    )
    assert run_command(command, environment(tmp_path)) == Ended(3, "", "")
    assert run_command(command, environment(absent, {"OOMGUARD": "off"})) == Ended(3, "", "")


@pytest.mark.parametrize("letter", ["x", "é", "😀", "\udcff", "\x01"])
def test_the_note_of_an_end_is_never_too_long_to_be_read(letter: str, tmp_path: Path) -> None:
    """Long names and commands in any script, and of bytes that are no text, leave a note that is read."""
    env = environment(tmp_path, {"OOMGUARD_NAME": letter * 300})
    assert run_command([*RUN, "sh", "-c", "exit 3", letter * 300], env).returncode == 3
    [path] = (tmp_path / "boxes").glob(f"*{end_note.SUFFIX}")
    raw = path.read_bytes()
    note = end_note.parse(raw, path.name)
    assert len(raw) <= end_note.LIMIT_BYTES
    assert isinstance(note, Known)
    assert note.value.name[:200] == letter * 200


def test_python_server_is_activated(tmp_path: Path) -> None:
    """A Python server gets an open box at once, under the session that the runner reports, and its children follow."""
    code = (
        "import json, os, subprocess, sys; s = sys.modules['_oomguard'].status()\n"
        "child = subprocess.run([sys.executable, '-c', 'import os; print(os.environ[\"OOMGUARD_PARENT\"])'],\n"
        "                       capture_output=True, text=True).stdout\n"
        "print(json.dumps([s.session, s.parent_session, os.environ['OOMGUARD_NAME'], child]))"
    )
    script = tmp_path / "serve.py"
    script.write_text(code)
    ended = run_command([*RUN, sys.executable, str(script)], environment(tmp_path))
    assert ended.err == ""
    session, parent, name, child = json.loads(ended.out)
    assert (parent, name) == (None, "serve.py")
    box = only_box(tmp_path)
    assert (box.life.session, box.parent_session) == (session, None)
    assert len(child.strip()) == 16


@pytest.mark.parametrize("word", ["off", "0"])
def test_off_switch_leaves_the_environment_alone(word: str, tmp_path: Path) -> None:
    """With OOMGUARD=off the server gets the environment as it is, and nothing is opened."""
    env = environment(tmp_path, {"OOMGUARD": word})
    assert run_command([*RUN, "env"], env).out == run_command(["env"], env).out
    assert list(tmp_path.iterdir()) == []


def test_hand_over_and_end_of_a_server_not_in_python(tmp_path: Path) -> None:
    """The sidecar gets the kernel files of the server itself, and at its end the raw wait status."""
    with listening(tmp_path) as sidecar, started(["sh", "-c", "echo ready; read line; exit 3"], tmp_path) as runner:
        taken = sidecar.accept()
        hello = taken.hello
        assert (hello.role, hello.name, hello.command.split()[0]) == (Role.RUNNER, "sh", "sh")
        assert hello.life.pid != runner.pid
        assert f"Pid:\t{hello.life.pid}\n" in taken.read("proc/status")
        assert "pidfd" in taken.descriptors
        assert runner.stdin is not None
        runner.stdin.write("\n")
        runner.stdin.flush()
        assert taken.receive() == ChildExit(hello.life, 3 << 8)
        assert runner.wait(30) == 3


def test_guard_and_runner_report_one_life(tmp_path: Path) -> None:
    """A Python server behind the runner is handed over by both, as one life; the guard adds the box."""
    with listening(tmp_path) as sidecar, started([sys.executable, "-c", "print('ready'); input()"], tmp_path):
        hellos = [sidecar.accept(), sidecar.accept()]
        assert {one.hello.role for one in hellos} == {Role.GUARD, Role.RUNNER}
        assert len({one.hello.life for one in hellos}) == 1
        assert len({one.hello.name for one in hellos}) == 1
        (by_guard,) = [one for one in hellos if one.hello.role is Role.GUARD]
        assert (
            os.pread(by_guard.descriptors["box"], 1 << 16, 0) == next((tmp_path / "boxes").glob("*.box")).read_bytes()
        )


def test_stuck_sidecar_does_not_hold_the_end_up(tmp_path: Path) -> None:
    """A sidecar that listens and never answers delays the end of the server by a fraction of a second only."""
    with listening(tmp_path):
        ended = run_command([*RUN, "sh", "-c", "exit 3"], environment(tmp_path))
        assert ended.returncode == 3


def test_out_of_memory_score_is_left_alone(tmp_path: Path) -> None:
    """Neither the server nor the runner changes how the kernel rates them."""
    show = "cat /proc/self/oom_score_adj /proc/$PPID/oom_score_adj"
    ended = run_command([*RUN, "sh", "-c", show], environment(tmp_path))
    own = Path("/proc/self/oom_score_adj").read_text()
    assert ended.out == own * 2


def test_runner_is_small(tmp_path: Path) -> None:
    """The runner stays below 24 MiB resident, all of it beside the server's own memory."""
    with started(["sh", "-c", "echo ready; exec sleep 60"], tmp_path) as runner:
        status = Path(f"/proc/{runner.pid}/status").read_text()
        resident_kib = int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])
        assert resident_kib < 24 << 10
        (server,) = until(
            lambda: Path(f"/proc/{runner.pid}/task/{runner.pid}/children").read_text().split(), 5, "the server"
        )
        os.kill(int(server), signal.SIGKILL)
        assert runner.wait(30) == -signal.SIGKILL


@pytest.mark.parametrize("program", ["exit 3", "kill -KILL $$"])
def test_an_end_right_after_the_start_is_handed_over_whole(program: str, tmp_path: Path) -> None:
    """A server that ends at once is handed over like any other: its files, pidfd, cgroup, and status."""
    with listening(tmp_path) as sidecar:
        for _ in range(5):
            runner = subprocess.Popen([*RUN, "sh", "-c", program], env=environment(tmp_path))
            taken = sidecar.accept()
            assert {"proc/stat", "proc/status", "pidfd"} <= set(taken.descriptors)
            own = locate(Reader())
            assert isinstance(own, Known)
            assert [level.name for level in taken.hello.levels] == [level.name for level in own.value.levels]
            said = taken.receive()
            assert isinstance(said, ChildExit)
            assert said.life == taken.hello.life
            assert runner.wait(30) in (3, -signal.SIGKILL)
