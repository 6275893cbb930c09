"""Settings: sources, their order, and what is said about bad ones."""

from __future__ import annotations

import ast
import contextlib
import inspect
import os
import threading
from pathlib import Path

import pytest

from sidecar import settings as module
from sidecar.health import values as health_values
from sidecar.settings import Address, LogLevel, ProbeKind, ProbeTarget, Settings, SightChoice
from sidecar.settings_load import SettingsError, keys, load


def test_defaults_without_any_source() -> None:
    """No file, variable or flag gives the defaults."""
    assert Settings() == load(None, {}, {})


def test_later_sources_win(tmp_path: Path) -> None:
    """A flag beats a variable, which beats the file, which beats the default."""
    file = tmp_path / "oomguard.toml"
    file.write_text('name = "file"\ndir = "/file"\nlog_level = "debug"\n[health]\nfailure_threshold = 7\n')
    read = load(str(file), {"OOMGUARD_DIR": "/env", "OOMGUARD_NAME": "env"}, {"name": "flag"})
    assert (read.name, read.dir, read.log_level, read.health.failure_threshold) == ("flag", "/env", LogLevel.DEBUG, 7)


def test_every_kind_of_value_from_the_environment_alone() -> None:
    """A container without a file can set numbers, lists, choices, addresses and None."""
    read = load(
        None,
        {
            "OOMGUARD_LISTEN": ":1234",
            "OOMGUARD_PROBE": "http://127.0.0.1:8000/health, b=tcp://127.0.0.1:9",
            "OOMGUARD_PEER_UIDS": "0,1000",
            "OOMGUARD_SIGHT": "own",
            "OOMGUARD_TICK_FIXED_SECONDS": "0.1",
            "OOMGUARD_TARGET_POD_UID": "none",
            "OOMGUARD_HEALTH_PERIOD_SECONDS": "2.5",
        },
        {},
    )
    assert Address("0.0.0.0", 1234) == read.listen
    assert read.peer_uids == (0, 1000)
    assert SightChoice.OWN is read.sight
    assert (read.tick.fixed_seconds, read.target.pod_uid, read.health.period_seconds) == (0.1, None, 2.5)
    assert ProbeTarget("b", ProbeKind.TCP, "127.0.0.1:9") == read.probe_for("b")
    assert ProbeTarget(None, ProbeKind.HTTP, "http://127.0.0.1:8000/health") == read.probe_for("a")


def test_variables_of_others_are_left_alone() -> None:
    """The guard's variables and the links of a Service called oomguard are no settings and no errors."""
    foreign = {
        "OOMGUARD": "on",
        "OOMGUARD_PARENT": "x",
        "OOMGUARD_FENCE": "raise",
        "OOMGUARD_TERMINATION_LOG": "/t",
        "OOMGUARD_SERVICE_HOST": "10.0.0.1",
        "OOMGUARD_SERVICE_PORT_HTTP": "9475",
        "OOMGUARD_PORT": "tcp://10.0.0.1:9475",
        "OOMGUARD_PORT_9475_TCP_ADDR": "10.0.0.1",
        "OOMGUARD_METRICS_SERVICE_HOST": "10.0.0.2",
        "OOMGUARD_METRICS_SERVICE_PORT": "9475",
        "OOMGUARD_METRICS_PORT": "tcp://10.0.0.2:9475",
        "OOMGUARD_METRICS_PORT_9475_TCP_PROTO": "tcp",
    }
    assert Settings() == load(None, foreign, {})


def test_an_empty_variable_sets_nothing(tmp_path: Path) -> None:
    """A Compose file's `${NAME:-}` is empty where nobody has said anything; a name that nobody knows is told still."""
    file = tmp_path / "oomguard.toml"
    file.write_text('probe = "tcp://x:1"\n')
    environ = {key.variable: "" for key in keys()}
    assert load(None, environ, {}) == Settings()
    assert load(str(file), environ, {}).probe == (ProbeTarget(None, ProbeKind.TCP, "x:1"),)
    with pytest.raises(SettingsError, match="OOMGUARD_PROB"):
        load(None, {"OOMGUARD_PROB": ""}, {})


@pytest.mark.parametrize(
    ("environ", "flags", "names", "allowed"),
    [
        ({"OOMGUARD_PROB": "x"}, {}, "OOMGUARD_PROB", "OOMGUARD_PROBE"),
        ({}, {"colour": "red"}, "colour", "--help"),
        ({}, {"supervised.name": "x"}, "supervised.name", "supervised.names"),
        ({"OOMGUARD_SUPERVISED_NAMES": "a=b,a=c"}, {}, "supervised.names", "two for 'a'"),
        ({"OOMGUARD_SUPERVISED_NAMES": "=b"}, {}, "supervised.names", "[MODEL=]NAME"),
        ({"OOMGUARD_SUPERVISOR": "nomad"}, {}, "supervisor", "kubernetes"),
        ({"OOMGUARD_LISTEN": "nowhere"}, {}, "listen", "HOST:PORT"),
        ({"OOMGUARD_LISTEN": "h:70000"}, {}, "listen", "HOST:PORT"),
        ({"OOMGUARD_PROBE": "ftp://x"}, {}, "probe", "http://HOST:PORT/PATH"),
        ({"OOMGUARD_PROBE": "tcp://x"}, {}, "probe", "a port"),
        ({"OOMGUARD_PROBE": "http://x:99999/health"}, {}, "probe", "http://HOST:PORT/PATH"),
        ({"OOMGUARD_PROBE": "grpc://x:0"}, {}, "probe", "grpc://HOST:PORT"),
        ({"OOMGUARD_PROBE": "http://[::1/health"}, {}, "probe", "http://HOST:PORT/PATH"),
        ({"OOMGUARD_PROBE": "http://a..b/"}, {}, "probe", "a host that can be"),
        ({"OOMGUARD_PROBE": f"m=tcp://{'a' * 64}:1"}, {}, "probe", "a host that can be"),
        ({"OOMGUARD_PROBE": "http://x/health http://y/health"}, {}, "probe", "a host that can be"),
        ({"OOMGUARD_PROBE": "grpc://user@x:1"}, {}, "probe", "only http takes a user"),
        ({"OOMGUARD_PROBE": f"grpc://x:1/{'s' * 128}"}, {}, "probe", "at most 127 letters"),
        ({"OOMGUARD_HEALTH_PERIOD_SECONDS": "0.001"}, {}, "health.period_seconds", "at least 0.05"),
        ({"OOMGUARD_PORT": "8000"}, {}, "OOMGUARD_PORT", "--help"),
        ({"OOMGUARD_SIGHT": "xray"}, {}, "sight", "shared_pid"),
        ({"OOMGUARD_HEALTH_FAILURE_THRESHOLD": "0"}, {}, "health.failure_threshold", "above zero"),
        ({"OOMGUARD_HEALTH_FAILURE_THRESHOLD": "1.5"}, {}, "health.failure_threshold", "whole number"),
        ({"OOMGUARD_HEALTH_TIMEOUT_SECONDS": "nan"}, {}, "health.timeout_seconds", "a number"),
        ({"OOMGUARD_HEALTH_TIMEOUT_SECONDS": "-1"}, {}, "health.timeout_seconds", "above zero"),
        ({"OOMGUARD_TICK_FIXED_SECONDS": "0.001"}, {}, "tick.fixed_seconds", "between 0.05 and 60"),
        ({"OOMGUARD_PEER_UIDS": "root"}, {}, "peer_uids", "whole number"),
        ({"OOMGUARD_DIR": " "}, {}, "dir", "text"),
        ({"OOMGUARD_TICK_SHORTEST_SECONDS": "5"}, {}, "shortest_seconds", "longest_seconds"),
        ({"OOMGUARD_HEALTH_PERIOD_SECONDS": "1e308"}, {}, "health.period_seconds", "at most 31622400"),
        ({"OOMGUARD_HEALTH_FAILURE_THRESHOLD": "1" * 19}, {}, "health.failure_threshold", "at most 1000000"),
        ({"OOMGUARD_PROBE": "a=tcp://x:1,b=none,a=none"}, {}, "probe", "two targets for 'a'"),
        ({"OOMGUARD_PROBE": "tcp://x:1,none"}, {}, "probe", "two targets for any model"),
    ],
)
def test_bad_settings_give_one_line(environ: dict[str, str], flags: dict[str, str], names: str, allowed: str) -> None:
    """A bad key or value is named together with what is allowed, in one line."""
    with pytest.raises(SettingsError) as caught:
        load(None, environ, flags)
    text = str(caught.value)
    assert names in text
    assert allowed in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("name = ", "not valid TOML"),
        ("[helth]\nperiod_seconds = 1\n", "helth.period_seconds"),
        ("[health]\nperiod = 1\n", "health.period"),
        ("health = 3\n", "unknown setting 'health'"),
        ("peer_uids = 7\n", "a list"),
        ("name = 7\n", "text"),
        (f"name = 0x{'f' * 9999}\n", "this number is not text"),
        (f"name = {'9' * 9999}\n", "not valid TOML"),
        (f"name = {'[' * 9999}\n", "nested too deeply"),
        (f"sight = '{'x' * 9999}'\n", "xxx... is not one of"),
        ("#" * (1 << 20) + "\n", "larger than 1 MiB"),
    ],
)
def test_bad_files_give_one_line(tmp_path: Path, content: str, expected: str) -> None:
    """A broken file says which file and what is wrong with it."""
    file = tmp_path / "bad.toml"
    file.write_text(content)
    with pytest.raises(SettingsError, match=r"bad\.toml") as caught:
        load(str(file), {}, {})
    assert expected in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/urandom", "/dev/null", "/proc"])
def test_what_has_no_end_is_not_read(path: str) -> None:
    """A device or a folder in place of a file is refused before anything is read."""
    with pytest.raises(SettingsError, match=f"^{path}: neither a file nor a pipe$"):
        load(path, {}, {})


def test_a_pipe_is_read_as_far_as_a_file(tmp_path: Path) -> None:
    """Settings may come from a pipe, as shells make of `<(command)`; an endless one ends with the limit."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=('name = "vllm"\n',))
    writer.start()
    assert load(str(pipe), {}, {}).name == "vllm"
    writer.join()

    def pour() -> None:
        with contextlib.suppress(BrokenPipeError), pipe.open("wb", buffering=0) as file:
            while True:
                file.write(b"#" * 65536)

    writer = threading.Thread(target=pour)
    writer.start()
    with pytest.raises(SettingsError, match="larger than 1 MiB"):
        load(str(pipe), {}, {})
    writer.join()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A file that was asked for and is not there is an error, never silently the defaults."""
    with pytest.raises(SettingsError, match="No such file"):
        load(str(tmp_path / "absent.toml"), {}, {})


def test_every_setting_is_documented_and_reachable() -> None:
    """Each field has a docstring right after it, and each key has its own variable and flag."""
    for source in (module, health_values):
        for node in ast.walk(ast.parse(inspect.getsource(source))):
            if isinstance(node, ast.ClassDef) and node.name.endswith(("Settings", "Rules")):
                for member, after in zip(node.body, [*node.body[1:], ast.Pass()], strict=True):
                    if isinstance(member, ast.AnnAssign) and "default_factory" not in ast.unparse(member):
                        assert isinstance(after, ast.Expr), f"{node.name}: {ast.unparse(member)} has no docstring"
    assert len(keys()) == len({key.variable for key in keys()}) == len({key.flag for key in keys()})


@pytest.mark.parametrize("text", ["0.0.0.0:9475", "[::1]:80", "localhost:0"])
def test_addresses_round_trip(text: str) -> None:
    """An address prints as it was written."""
    assert text == str(Address.parse(text))
