"""What passes between a supervisor's reader and the daemon."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from sidecar.verdict.supervisor_values import SupervisorEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """What a supervisor says now of one container (for systemd: of one unit). None: it does not say.

    `shares`: it uses the directory that we share with our models, so it may be a model's.
    """

    supervisor: str  # "kubernetes", "docker", "podman", "systemd"
    name: str
    id: str | None = None
    shares: bool = False
    running: bool | None = None
    ready: bool | None = None
    restart_count: int | None = None
    end: SupervisorEnd | None = None  # the last one
    stopping: SupervisorEnd | None = None  # why it, running yet, is to end: words without a time of the end


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model, as far as its container can be told by it. `groups`: paths of its cgroups, own first."""

    model: str
    groups: tuple[str, ...]
    alive: bool


Take: TypeAlias = Callable[[Sequence[Container], str | None], None]
"""Takes what is said of all containers, and in words what could not be asked for want of a right (None: nothing)."""


class Trouble(Exception):  # noqa: N818 - a state of the other side, in words for people
    """The supervisor cannot be asked now. `lasting`: it will not change by itself, as a right is missing."""

    def __init__(self, words: str, *, lasting: bool = False) -> None:
        super().__init__(words)
        self.lasting = lasting


class Source(Protocol):
    """A supervisor that can be asked. Both calls raise `Trouble`, and nothing else that is to be expected."""

    name: str
    """For people: "Kubernetes API", "Docker socket"."""

    async def follow(self, take: Take) -> None:
        """Pass on what it says, now and at every change, for ever."""
        ...

    async def look(self, take: Take) -> None:
        """Ask once, and pass on what it says."""
        ...
