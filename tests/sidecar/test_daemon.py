"""The daemon as a process: its start and stop, bad surroundings, and models that come and go."""

from __future__ import annotations

import fcntl
import signal
import socket
import sqlite3
import time
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

from tests.lab.kit.ports import free_port
from tests.lab.kit.wait import until
from tests.sidecar.daemons import Daemon, let_go, model

EXIT_3 = "sys.stdin.readline(); sys.exit(3)"


def test_sigterm_ends_it_in_order(tmp_path: Path) -> None:
    """On SIGTERM everything is written, the socket is gone and the status is 0."""
    with Daemon(tmp_path / "shared", tmp_path / "log") as daemon:
        until((tmp_path / "shared/link.sock").exists, 30, "the socket")
        assert daemon.stop() == 0
        assert not (tmp_path / "shared/link.sock").exists()
        assert daemon.events()[-1]["event"] == "sidecar_stopped"
    with closing(sqlite3.connect(tmp_path / "shared/record.sqlite")) as record:
        assert record.execute("SELECT count(*) FROM events WHERE kind='sidecar_stopped'").fetchone() == (1,)


def test_a_busy_port_is_said_in_one_line(tmp_path: Path) -> None:
    """An address that is taken ends the start with status 2 and a line that names it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        daemon = Daemon(tmp_path, tmp_path / "log", port=port)
        assert daemon.process.wait(30) == 2
    said = (tmp_path / "log").read_text()
    assert str(port) in said
    assert said.count("\n") == 1
    assert "Traceback" not in said


def test_a_grpc_probe_without_its_extra_ends_the_start(tmp_path: Path) -> None:
    """Each such probe would fail, and a well server with them: one line instead, which says what to install."""
    (tmp_path / "grpc.py").write_text("raise ModuleNotFoundError(\"No module named 'grpc'\", name='grpc')")
    under = f'PYTHONPATH="{tmp_path}:$PYTHONPATH" exec "$@"'
    daemon = Daemon(tmp_path / "shared", tmp_path / "log", "--probe", "llm=grpc://127.0.0.1:8001/llm", under=under)
    assert daemon.process.wait(30) == 2
    said = (tmp_path / "log").read_text()
    assert "grpc://127.0.0.1:8001/llm" in said
    assert "oomguard[sidecar,grpc]" in said
    assert said.count("\n") == 1


def test_without_its_directory_it_runs_degraded_and_recovers(tmp_path: Path) -> None:
    """No shared directory: it answers and says what is missing; once it is there, record and socket work."""
    blocked = tmp_path / "parent"
    blocked.write_text("a file where the parent of the directory should be")
    with Daemon(blocked / "shared", tmp_path / "log") as daemon:

        def degraded() -> set[str]:
            return {words.split(":")[0] for words in daemon.get("/livez?verbose")["sidecar_degraded"]}

        assert daemon.get("/livez")["passed"]
        until(lambda: {"record", "handover"} <= degraded(), 30, "the missing directory to be said")
        blocked.unlink()
        (blocked / "shared").mkdir(parents=True)
        until((blocked / "shared/link.sock").exists, 40, "the socket to be made")
        until(lambda: not degraded() & {"record", "handover"}, 40, "to work again")
        kinds = [event["event"] for event in daemon.events()]
        assert {"degraded", "recovered"} <= set(kinds)


def test_an_end_is_told_soon_and_lives_are_counted(tmp_path: Path) -> None:
    """Two lives of one name are one model with two ends, and each verdict comes soon (bench: within a second)."""
    with Daemon(tmp_path, tmp_path / "log") as daemon:
        for life in (1, 2):
            with model(tmp_path, "server", EXIT_3) as process:
                until(lambda: _state(daemon) not in {None, "dead"}, 30, "the model to be seen alive")
                assert let_go(process) == 3
            incidents = until(partial(_incidents, daemon, life), 30, "the incident")
            assert incidents[0]["class"] == "application_exit"
            assert incidents[0]["fields"]["exit_code"] == 3
            assert incidents[0]["verdict_after_seconds"] < 10
            until(lambda: _state(daemon) == "dead", 30, "the model to be dead")
        until(lambda: _ends(daemon) == {"application_exit": 2}, 40, "both ends to be counted")


def _ends(daemon: Daemon) -> object:
    return daemon.get("/status")["models"]["server"]["ends"]


def test_an_ended_model_with_a_successor_fails_nobody_else(tmp_path: Path) -> None:
    """The plain pages ask about the model that came after it alone; its own page says that it is dead."""
    with Daemon(tmp_path, tmp_path / "log") as daemon:
        with model(tmp_path, "convert", EXIT_3) as process:
            until(lambda: _is_seen(daemon, "convert"), 30, "the first model")
            let_go(process)
        until(partial(_incidents, daemon, 1), 30, "its end")
        assert "convert" in daemon.get("/readyz")["models"]
        with model(tmp_path, "llm", EXIT_3):
            until(lambda: daemon.get("/readyz")["left_out"] == ["convert"], 30, "the successor")
            assert list(daemon.get("/livez")["models"]) == ["llm"]
            assert daemon.get("/livez/convert")["models"]["convert"]["state"] == "dead"


def test_one_probe_for_two_models_is_said_and_proves_no_life(tmp_path: Path) -> None:
    """The answer of one server is not taken for that of another which was killed."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        rules = ("--health-period-seconds", "0.5", "--health-failure-threshold", "2")
        probe = ("--probe", f"tcp://127.0.0.1:{server.getsockname()[1]}")
        with (
            Daemon(tmp_path, tmp_path / "log", *probe, *rules) as daemon,
            model(tmp_path, "llm", EXIT_3),
            model(tmp_path, "embed", EXIT_3) as killed,
        ):
            until(lambda: _is_seen(daemon, "llm") and _is_seen(daemon, "embed"), 30, "both models")
            until(lambda: "is asked for" in daemon.text("/livez?verbose"), 30, "the shared probe to be said")
            killed.kill()
            until(lambda: not daemon.get("/livez/embed")["passed"], 30, "the end of one")
            answered = _probes(daemon, "embed")
            until(lambda: _probes(daemon, "embed") > answered + 2, 30, "more answers of the other one")
            assert daemon.get("/livez/embed")["models"]["embed"]["state"] == "dead"
            assert daemon.get("/livez/llm")["passed"]


def _probes(daemon: Daemon, name: str) -> float:
    series = f'oomguard_probe_latency_seconds_count{{model="{name}"'
    line = next(one for one in daemon.text("/metrics").splitlines() if series in one)
    return float(line.split()[-1])


def _is_seen(daemon: Daemon, name: str) -> bool:
    return name in daemon.get("/status")["models"]


def test_the_next_life_has_no_part_in_the_end_of_the_last(tmp_path: Path) -> None:
    """A server that is restarted before a stalled sidecar looks is one model, and its incident knows the old life."""
    with Daemon(tmp_path, tmp_path / "log") as daemon, model(tmp_path, "server", EXIT_3) as first:
        began = time.monotonic()
        until(lambda: _main_pid(daemon) == first.pid, 30, "the first life")
        daemon.process.send_signal(signal.SIGSTOP)
        try:
            let_go(first)
            with model(tmp_path, "server", EXIT_3) as second:
                until(lambda: _connects(second.pid), 30, "the second life to hand over")
                until(lambda: time.monotonic() > began + 4, 30, "the sidecar's look at black boxes to be due as well")
                daemon.process.send_signal(signal.SIGCONT)
                (incident,) = until(lambda: _incidents(daemon, 1), 30, "the incident")
                until(lambda: _main_pid(daemon) == second.pid, 30, "the second life")
                assert list(daemon.get("/status")["models"]) == ["server"]
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        full = daemon.get(f"/incidents/{incident['id']}")
        assert [process["life"]["pid"] for process in full["last_sample"]["processes"]] == [first.pid]
        assert full["fields"]["others_alive"] == 0


def test_a_second_sidecar_of_a_directory_never_says_that_its_record_works(tmp_path: Path) -> None:
    """It did not hold the file for a moment; what does not work is said at level warning."""
    with Daemon(tmp_path, tmp_path / "log"), Daemon(tmp_path, tmp_path / "log2", "--log-level", "warning") as second:
        until(lambda: second.get("/status")["sidecar"]["ticks"] >= 4, 30, "some seconds of work")
        assert any("another sidecar keeps" in words for words in second.get("/status")["sidecar"]["degraded"])
        said = second.events()
        assert not [one for one in second.get("/events?since=0")["events"] if "recovered" in one["kind"]]
    assert {"degraded", "record_degraded"} <= {one["event"] for one in said}
    assert {one["level"] for one in said} <= {"warning", "error"}


def _connects(pid: int) -> bool:
    """Whether a process has a socket: it has connected, which a stopped sidecar has not accepted yet."""
    with suppress(FileNotFoundError):  # a file was closed while we looked
        return any(str(link.readlink()).startswith("socket:") for link in Path(f"/proc/{pid}/fd").iterdir())
    return False


def test_a_killed_sidecar_goes_on_with_its_record_and_counts_no_life_twice(tmp_path: Path) -> None:
    """After SIGKILL the next one has the incidents, sees the same living process, and counts its end once."""
    with model(tmp_path, "server", EXIT_3) as process:
        with Daemon(tmp_path, tmp_path / "log") as daemon:
            with model(tmp_path, "server-two", EXIT_3) as other:
                until(lambda: len(daemon.get("/status")["models"]) >= 1, 30, "a model")
                let_go(other)
            daemon.process.send_signal(signal.SIGKILL)
            daemon.process.wait()
        with Daemon(tmp_path, tmp_path / "log2") as daemon:
            until(lambda: _main_pid(daemon) == process.pid, 30, "the living model to hand over again")
            let_go(process)
            until(lambda: daemon.get("/incidents")["incidents"], 30, "the incident")
            ids = [incident["id"] for incident in daemon.get("/incidents")["incidents"]]
            assert len(ids) == len(set(ids))
            mine = [one for one in daemon.get("/incidents")["incidents"] if one["life"]["pid"] == process.pid]
            assert len(mine) == 1


def test_an_end_without_a_sidecar_is_found_in_its_black_box(tmp_path: Path) -> None:
    """A model that ended while no sidecar ran gives an incident at the next start, once, and its box goes away."""
    boxes = tmp_path / "boxes"
    with model(tmp_path, "server", EXIT_3) as process:
        until(lambda: boxes.is_dir() and list(boxes.glob("*.box")), 30, "the black box")
        let_go(process)
    with Daemon(tmp_path, tmp_path / "log") as daemon:
        (incident,) = until(lambda: daemon.get("/incidents")["incidents"], 30, "the end to be found")
        assert incident["life"]["pid"] == process.pid
        assert incident["model"] == "server"
        assert incident["class"] == "application_exit"
        assert incident["confidence"] != "high"
        until(lambda: not list(boxes.glob("*.box")), 40, "the box to be removed")
    with Daemon(tmp_path, tmp_path / "log2") as daemon:
        assert [one["id"] for one in daemon.get("/incidents")["incidents"]] == [incident["id"]]


def test_a_killed_model_that_no_sidecar_saw_is_told_of_at_once(tmp_path: Path) -> None:
    """SIGKILL leaves no mark, but the lock of the black box is free: no minute of waiting at the next start."""
    with model(tmp_path, "server", "sys.stdin.readline()") as process:
        until(lambda: list((tmp_path / "boxes").glob("*.box")), 30, "the black box")
        process.kill()
        process.wait()
    with Daemon(tmp_path, tmp_path / "log") as daemon:
        (incident,) = until(lambda: daemon.get("/incidents")["incidents"], 30, "the end to be found")
        assert (incident["model"], incident["life"]["pid"]) == ("server", process.pid)


def test_a_record_that_opens_late_is_caught_up_with(tmp_path: Path) -> None:
    """Ends of before and ends of meanwhile add up once the record can be opened, and event numbers never go back."""
    with Daemon(tmp_path, tmp_path / "log") as daemon:
        _one_life(daemon, tmp_path)
        old = _incidents(daemon, 1)[0]["id"]
        assert daemon.stop() == 0
    last = _last_event_on_disk(tmp_path)
    with (tmp_path / "record.sqlite.lock").open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with Daemon(tmp_path, tmp_path / "log2") as daemon:
            _one_life(daemon, tmp_path)
            until(lambda: _ends(daemon) == {"application_exit": 1}, 40, "the end to be counted")
            new = _incidents(daemon, 1)[0]["id"]
            fcntl.flock(held, fcntl.LOCK_UN)
            until(lambda: len(_incidents(daemon, 2)) == 2, 40, "the record to be read")
            assert [new, old] == [one["id"] for one in _incidents(daemon, 2)]
            until(lambda: _ends(daemon) == {"application_exit": 2}, 40, "the end of before to be counted")
            until(lambda: daemon.get("/events?since=0")["events"][-1]["id"] > last, 30, "numbers to go on")
            assert daemon.stop() == 0
    with Daemon(tmp_path, tmp_path / "log3") as daemon:
        assert [new, old] == [one["id"] for one in _incidents(daemon, 2)]


def test_failures_that_a_kubelet_was_answered_explain_the_stop_that_follows(tmp_path: Path) -> None:
    """A server that answers no probe: the failing answers are counted and told, and SIGTERM after them is theirs."""
    quick = "--health-period-seconds 0.2 --health-timeout-seconds 0.2 --health-startup-seconds 1"
    flags = f"--probe tcp://127.0.0.1:{free_port()} {quick}"
    with (
        Daemon(tmp_path, tmp_path / "log", *flags.split()) as daemon,
        model(tmp_path, "server", "sys.stdin.readline()") as process,
    ):
        until(lambda: _main_pid(daemon) == process.pid, 30, "the model")

        def failed_as_often() -> bool:
            return not daemon.get("/livez", program="kube-probe/1.31")["passed"]

        until(failed_as_often, 30, "liveness to fail")
        for _ in range(2):
            assert failed_as_often()
            daemon.get("/livez", program="curl/8")
        until(lambda: "livez_failing" in {event["event"] for event in daemon.events()}, 30, "the event")
        process.terminate()
        (incident,) = until(partial(_incidents, daemon, 1), 30, "the incident")
        assert incident["class"] == "health_check"
        assert incident["fields"]["liveness_failures"] == 3
        assert any("the last 3 liveness probes" in one["text"] for one in incident["evidence"])


def test_a_stall_of_its_own_is_said_and_fails_nobody(tmp_path: Path) -> None:
    """A sidecar that was stopped for longer than its model may take says so, and the model stays as it was."""
    handler = "class A(h.BaseHTTPRequestHandler):\n def do_GET(self): self.send_response(200); self.end_headers()"
    serve = f"import http.server as h\n{handler}"
    port = free_port()
    flags = ("--probe", f"http://127.0.0.1:{port}/", "--health-period-seconds", "1", "--health-timeout-seconds", "0.5")
    with (
        Daemon(tmp_path, tmp_path / "log", *flags) as daemon,
        model(tmp_path, "server", f"{serve}\nh.HTTPServer(('127.0.0.1', {port}), A).serve_forever()"),
    ):
        until(lambda: _state(daemon) == "ok", 30, "the model to be well")
        daemon.process.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        until(lambda: time.monotonic() - began > 5, 30, "three periods and more to pass")
        daemon.process.send_signal(signal.SIGCONT)
        until(lambda: "sidecar_stalled" in [one["event"] for one in daemon.events()], 30, "the stall to be said")
        for _ in range(20):
            assert daemon.get("/livez")["passed"]
        assert "hung" not in [one.get("to") for one in daemon.events()]


def test_a_removed_socket_is_made_anew(tmp_path: Path) -> None:
    """Whoever empties the directory does not cut models off for good, and one that has ended stays dead."""
    with Daemon(tmp_path, tmp_path / "log") as daemon:
        sock = tmp_path / "link.sock"
        with model(tmp_path, "server", EXIT_3) as process:
            until(lambda: _main_pid(daemon) == process.pid, 30, "a model to hand over")
            let_go(process)
        until(lambda: _state(daemon) == "dead", 30, "it to have ended")
        files = Path(f"/proc/{daemon.process.pid}/fd")
        before = len(list(files.iterdir()))
        sock.unlink()
        until(sock.exists, 30, "a new socket")
        ticks = _ticks(daemon)
        until(lambda: _ticks(daemon) > ticks + 1, 30, "it to be judged without the old socket")
        assert _state(daemon) == "dead"
        with model(tmp_path, "server", EXIT_3) as process:
            until(lambda: _main_pid(daemon) == process.pid, 30, "the next one to hand over")
        until(lambda: len(list(files.iterdir())) < before + 8, 30, "what was kept of the dead one to be closed")


def test_wrong_settings_end_the_start(tmp_path: Path) -> None:
    """A bad value is one line and status 2, before anything is touched."""
    daemon = Daemon(tmp_path / "shared", tmp_path / "log", "--health-period-seconds", "soon")
    assert daemon.process.wait(30) == 2
    assert "health.period_seconds" in (tmp_path / "log").read_text()
    assert not (tmp_path / "shared").exists()


def _one_life(daemon: Daemon, folder: Path) -> None:
    """Let a model live and exit with 3."""
    with model(folder, "server", EXIT_3) as process:
        until(lambda: _main_pid(daemon) == process.pid, 30, "the model")
        assert let_go(process) == 3
    until(lambda: _state(daemon) == "dead", 30, "the model to be dead")
    until(lambda: _incidents(daemon, 1), 30, "the incident")


def _last_event_on_disk(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "record.sqlite")) as record:
        return int(record.execute("SELECT max(id) FROM events").fetchone()[0])


def _ticks(daemon: Daemon) -> int:
    return int(daemon.get("/status")["sidecar"]["ticks"])


def _state(daemon: Daemon) -> str | None:
    view = daemon.get("/status")["models"].get("server")
    return None if view is None else str(view["judgement"]["state"])


def _incidents(daemon: Daemon, at_least: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = daemon.get("/incidents")["incidents"]
    return found if len(found) >= at_least else []


def _main_pid(daemon: Daemon) -> int | None:
    for view in daemon.get("/status")["models"].values():
        for process in view["sample"]["processes"]:
            if process["main"]:
                return int(process["life"]["pid"])
    return None
