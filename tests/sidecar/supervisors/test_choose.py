"""Which supervisors are asked, by the settings and by what is here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from socket import AF_UNIX
from socket import socket as make_socket

import pytest

from sidecar.settings import Settings, SupervisedName, SupervisedSettings, SupervisorChoice
from sidecar.supervisors import choose
from sidecar.supervisors.examine import examine

IN_CLUSTER = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1", "HOSTNAME": "llm-0"}


def settings(folder: Path, choice: SupervisorChoice = SupervisorChoice.AUTO, socket: str | None = None) -> Settings:
    """Settings with the service account in this folder."""
    return Settings(supervisor=choice, supervised=SupervisedSettings(service_account=str(folder), socket=socket))


@pytest.fixture
def nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A place without sockets and without systemd."""
    monkeypatch.setattr(choose, "SOCKETS", (str(tmp_path / "docker.sock"),))
    monkeypatch.setattr(choose, "_SYSTEMD", str(tmp_path / "systemd"))
    return tmp_path


@pytest.fixture
def engine(nothing: Path) -> Iterator[Path]:
    """A socket at one of the usual paths."""
    path = nothing / "docker.sock"
    with make_socket(AF_UNIX) as listener:
        listener.bind(str(path))
        yield path


def found(chosen: Settings, environ: dict[str, str]) -> dict[str, bool]:
    """Say which were found, and whether each can be asked."""
    return {one.name: one.make is not None for one in choose.find(chosen, environ)}


def test_nothing_here_asks_nobody(nothing: Path) -> None:
    """By default a sidecar without token and socket asks nobody and complains of nothing."""
    assert found(settings(nothing), IN_CLUSTER) == {}


def test_a_token_is_enough(nothing: Path) -> None:
    """In a pod with a token the API is asked; with `none` it is not."""
    (nothing / "token").write_text("x")
    assert found(settings(nothing), IN_CLUSTER) == {"Kubernetes API": True}
    assert found(settings(nothing, SupervisorChoice.NONE), IN_CLUSTER) == {}


def test_a_socket_is_enough(engine: Path) -> None:
    """A socket at a usual path, DOCKER_HOST and the setting each lead to the engine."""
    assert found(settings(engine.parent), {}) == {"container engine": True}
    engine.unlink()
    assert found(settings(engine.parent), {"DOCKER_HOST": "tcp://127.0.0.1:1"}) == {"container engine": True}
    assert found(settings(engine.parent, socket="/x.sock"), {}) == {"container engine": True}


@pytest.mark.parametrize("choice", [SupervisorChoice.KUBERNETES, SupervisorChoice.DOCKER, SupervisorChoice.SYSTEMD])
def test_one_that_was_asked_for_and_is_not_here_is_named(nothing: Path, choice: SupervisorChoice) -> None:
    """What was set and cannot be is said, not passed over."""
    missing = choose.find(settings(nothing, choice), {})
    assert [(one.make, bool(one.words)) for one in missing] == [(None, True)]


def test_names_are_kept_by_model() -> None:
    """`[MODEL=]NAME`, None for any model."""
    named = SupervisedSettings(names=(SupervisedName.parse("llm=server"), SupervisedName.parse("web.service")))
    assert choose.names(Settings(supervised=named)) == {"llm": "server", None: "web.service"}


def test_the_doctor_says_that_nobody_listens(nothing: Path) -> None:
    """A socket without a service is no success."""
    said = examine(settings(nothing, SupervisorChoice.DOCKER, socket=str(nothing / "none.sock")), {})
    assert not said.good
    assert "none.sock" in said.text
    assert said.advice
