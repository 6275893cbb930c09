"""What the real kernel must show, written once and run twice: by pytest on the host, by `tests.lab.vm.suite` on v2.

A case is a function `case_*` that makes its own cgroups, asserts with plain asserts, and raises `NotOfferedError` for
what this kernel cannot show. `readings` needs the kernel readers alone, all others the whole product: a running
sidecar and the models beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any


@dataclass(frozen=True, slots=True)
class Case:
    """One case; `says` is the behaviour in a sentence."""

    name: str
    says: str
    run: Callable[..., Any]


def cases_of(module: ModuleType) -> tuple[Case, ...]:
    """Return the cases of a module in the order in which they are written."""
    return tuple(
        Case(name.removeprefix("case_"), (function.__doc__ or "").strip(), function)
        for name, function in vars(module).items()
        if name.startswith("case_")
    )
