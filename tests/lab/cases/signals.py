"""Ends by a signal: what the process did itself, and what others sent."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.lab.cases.stage import Model, Stage
from tests.lab.cases.verdicts import ended
from tests.lab.kit.wait import until


def case_abort(stage: Stage) -> None:
    """The process aborts itself, as C++ does on an uncaught exception: crash_signal, and SIGABRT is named."""
    _crashes(stage, "abort", "SIGABRT")


def case_illegal_instruction(stage: Stage) -> None:
    """A library built for another processor: crash_signal, and SIGILL is named."""
    _crashes(stage, "illegal", "SIGILL")


def case_weights_cut_off_while_mapped(stage: Stage) -> None:
    """A mapped file is truncated under the reader: crash_signal, and SIGBUS is named; shared memory is not blamed."""
    _crashes(stage, f"truncated path={stage.shared}/cut-off", "SIGBUS")


def case_stack_overflow(stage: Stage) -> None:
    """Recursion through C to the end of the stack: crash_signal, and SIGSEGV is named."""
    _crashes(stage, "overflow", "SIGSEGV")


def case_processor_time_limit(stage: Stage) -> None:
    """RLIMIT_CPU: crash_signal, and SIGXCPU is named."""
    _crashes(stage, "burn", "SIGXCPU")


def case_file_size_limit(stage: Stage) -> None:
    """RLIMIT_FSIZE: crash_signal, and SIGXFSZ is named."""
    _crashes(stage, f"write_past path={stage.shared}/too-large", "SIGXFSZ")


def case_watchdog_of_the_server(stage: Stage) -> None:
    """The main thread hangs and the server's own watchdog aborts: crash_signal, and SIGABRT is named."""
    _crashes(stage, "watchdog", "SIGABRT")


def case_worker_of_a_fork_server_crashes(stage: Stage) -> None:
    """A worker aborts, which its parent alone is told: crash_signal by the trace it left, and no end of the model."""
    with stage.model("forkserver", f"forkserver when={stage.cue('forkserver')}") as model:
        stage.give_cue(model, processes=2)
        incident = ended(stage, model, "crash_signal", "medium", main=False)
        assert "crashed with Aborted" in incident["summary"], incident
        assert model.runner.poll() is None
        assert [one["main"] for one in stage.incidents(model)] == [False]


def case_terminated(stage: Stage) -> None:
    """SIGTERM to a server that does nothing about it: external_kill, and SIGTERM is named."""
    _is_sent(stage, signal.SIGTERM)


def case_hung_up(stage: Stage) -> None:
    """SIGHUP, as when the terminal closes: external_kill, and SIGHUP is named."""
    _is_sent(stage, signal.SIGHUP)


def case_interrupted(stage: Stage) -> None:
    """SIGINT, which Python turns into KeyboardInterrupt and back: external_kill, and SIGINT is named."""
    _is_sent(stage, signal.SIGINT)


def case_terminated_and_exits_with_0(stage: Stage) -> None:
    """An operator stops a server that shuts down in order: external_kill, although its exit code is 0."""
    _obeys(stage, 0)


def case_terminated_and_exits_with_143(stage: Stage) -> None:
    """The same, of a server that reports the signal in its exit code: external_kill."""
    _obeys(stage, 143)


def case_program_that_took_the_place_of_python(stage: Stage) -> None:
    """Exec is no end; the kill -9 of the program that came is one: external_kill, once."""
    cue = stage.cue("exec")
    with stage.model("exec", f"become when={cue}") as model:
        stage.give_cue(model)
        _until_it_is(model, "sleep")
        assert not stage.incidents(model)
        os.kill(model.main_pid(), signal.SIGKILL)
        ended(stage, model, "external_kill", "high")
        assert len(stage.incidents(model)) == 1


def _crashes(stage: Stage, load: str, name: str) -> None:
    """Have a model bring a signal on itself."""
    title = load.split(maxsplit=1)[0].replace("_", "-")
    with stage.model(title, f"{load} when={stage.cue(title)}") as model:
        stage.give_cue(model)
        incident = ended(stage, model, "crash_signal", "high")
        assert incident["fields"]["signal"] == name, incident
        assert name in incident["summary"], incident
        assert model.wait() == -signal.Signals[name]


def _is_sent(stage: Stage, number: signal.Signals) -> None:
    """Send a signal to a healthy model, by way of the runner, as a container runtime would."""
    with stage.model(f"sent-{number.name.lower()}", "beat") as model:
        stage.wait_seen(model)
        until(lambda: b"beating" in model.log.read_bytes(), 30, f"{model.name} to have started")
        os.kill(model.runner.pid, number)
        incident = ended(stage, model, "external_kill", "high")
        assert incident["fields"]["signal"] == number.name, incident
        assert model.wait() == -number


def _obeys(stage: Stage, code: int) -> None:
    """Send SIGTERM to a model that exits with `code` in its own time."""
    with stage.model(f"obeys-{code}", f"obey code={code}") as model:
        stage.wait_seen(model)
        _until_it_catches(model, signal.SIGTERM)
        os.kill(model.runner.pid, signal.SIGTERM)
        incident = ended(stage, model, "external_kill")
        assert incident["fields"]["exit_code"] == code, incident
        assert model.wait() == code


def _until_it_is(model: Model, program: str) -> None:
    name = Path(f"/proc/{model.main_pid()}/comm")
    until(lambda: name.read_text().strip() == program, 20, f"{model.name} to execute {program}")


def _until_it_catches(model: Model, number: signal.Signals) -> None:
    def caught() -> bool:
        status = Path(f"/proc/{model.main_pid()}/status").read_text()
        mask = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
        return bool(int(mask.split()[1], 16) >> (number - 1) & 1)

    until(caught, 20, f"{model.name} to catch {number.name}")
