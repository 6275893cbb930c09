"""A load that cannot fit is told at its start, one that may fit is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from guard.model import Operation, OperationKind, Unknown, Why
from sidecar.detect import load_fit
from sidecar.detect.values import Answer, CannotTell, Finding, Quiet, Severity
from sidecar.history import History
from tests.sidecar import making as make
from tests.sidecar.making import MIB


def at_start(operation: Operation, *, held: int = 100 * MIB, limit: str = str(256 * MIB)) -> tuple[Answer, ...]:
    """Ask at the first sample that sees the load."""
    level = make.level(make.V2(anon=held, limit=limit))
    return load_fit.detect(History.start(make.sample(0.0, level, work=make.Work(operations=(operation,)))))


def test_a_load_that_cannot_fit_is_told_at_its_start() -> None:
    """500 MiB of anonymous copies do not fit into 156 MiB: said with the numbers before a byte is read."""
    answers = at_start(make.load("torch.load", 500 * MIB))
    assert len(answers) == 1
    found = answers[0]
    assert isinstance(found, Finding)
    assert found.severity is Severity.CRITICAL
    assert (found.observed, found.threshold, found.unit) == (500 * MIB, 156 * MIB, "bytes")
    assert "model.safetensors" in found.text


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param(make.load("torch.load", 100 * MIB), id="fits"),
        pytest.param(make.load("safetensors.torch.load_file", 500 * MIB), id="mapped"),
        pytest.param(make.load("torch.load(mmap=True)", 500 * MIB), id="mapped-torch"),
        pytest.param(make.load("safetensors.safe_open", 500 * MIB), id="cloned-perhaps"),
        pytest.param(make.load("my.loader", 500 * MIB), id="unknown-path"),
        pytest.param(make.load("torch.load", None), id="size-unknown"),
        pytest.param(make.load("torch.load", 500 * MIB, done=400 * MIB), id="rest-fits"),
        pytest.param(replace(make.load("torch.load", 500 * MIB), kind=OperationKind.MOVE), id="a-move"),
    ],
)
def test_a_load_that_may_fit_is_not_told(operation: Operation) -> None:
    """Mapped pages cost nothing that must fit, and what is not known to cost anything claims nothing."""
    assert at_start(operation) == (Quiet("load_fit"),)


def test_what_the_load_has_taken_already_does_not_count_twice() -> None:
    """A load that counts no bytes is followed by the memory that its cgroup has gained since it began."""
    work = make.Work(operations=(make.load("torch.load", 150 * MIB),))
    history = History.start(make.sample(0.0, make.level(make.V2(anon=50 * MIB, limit=str(256 * MIB))), work=work))
    for tick in range(1, 15):
        level = make.level(make.V2(anon=(50 + 10 * tick) * MIB, limit=str(256 * MIB)))
        history = history.append(make.sample(float(tick), level, work=work))
    assert load_fit.detect(history) == (Quiet("load_fit"),)


def test_a_load_in_a_cgroup_that_is_not_seen_cannot_be_told() -> None:
    """With a load in flight and no level in sight the detector says that it cannot tell."""
    history = History.start(make.sample(0.0, work=make.Work(operations=(make.load("torch.load", MIB),))))
    hidden = Unknown(Why.HIDDEN, "the model's cgroup")
    assert load_fit.detect(history) == (CannotTell("load_fit", (hidden,)),)


def test_without_a_limit_every_load_fits() -> None:
    """No limit, no claim."""
    assert at_start(make.load("torch.load", 500 * MIB), limit="max") == (Quiet("load_fit"),)


def test_a_limit_that_cannot_be_read_is_not_quiet() -> None:
    """A load in flight below a limit whose memory cannot be read: the detector cannot tell, and claims nothing."""
    level = make.level(make.V2(limit=str(256 * MIB)))
    gone = Unknown(Why.DENIED, "memory.stat")
    blind = replace(level, memory=replace(level.memory, stat=gone))
    work = make.Work(operations=(make.load("torch.load", 500 * MIB, done=MIB),))
    assert load_fit.detect(History.start(make.sample(0.0, blind, work=work))) == (CannotTell("load_fit", (gone,)),)
    silent = make.Work(operations=(make.load("torch.load", 500 * MIB),))
    assert load_fit.detect(History.start(make.sample(0.0, blind, work=silent))) == (Quiet("load_fit"),)
