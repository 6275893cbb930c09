"""One failure is one record, however often it is seen."""

from __future__ import annotations

import json
from pathlib import Path
from types import MappingProxyType

import pytest

from guard.box.reader import parse_box
from guard.box.texts import BoxAbout
from guard.box.writer import BoxWriter
from guard.model import Failure, Known, LifeId
from guard.telling import Teller

MIB = 1 << 20


@pytest.fixture
def box(tmp_path: Path) -> BoxWriter:
    """A box of its own."""
    return BoxWriter.create(str(tmp_path / "boxes"), LifeId("boot", 1, 1, "session"), BoxAbout(None, "0", "c"))


class Lines:
    """What has gone to standard error so far."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd
        self._said: list[dict[str, object]] = []

    @property
    def all(self) -> list[dict[str, object]]:
        """Every line, parsed."""
        self._said += [json.loads(line) for line in self._capfd.readouterr().err.splitlines()]
        return self._said


@pytest.fixture
def lines(capfd: pytest.CaptureFixture[str]) -> Lines:
    """The real descriptor 2 of this process."""
    return Lines(capfd)


def in_box(box: BoxWriter) -> list[Failure]:
    """What a reader finds."""
    state = parse_box(Path(box.path).read_bytes(), box.path)
    assert isinstance(state, Known)
    return list(state.value.failures)


def failure(at: float = 1.0, *, message: str = "", fatal: bool = False, **fields: str | float) -> Failure:
    """A memory failure."""
    return Failure(
        at_wall_s=at,
        at_monotonic_s=at,
        kind="cuda_out_of_memory",
        exception="torch.OutOfMemoryError",
        message=message,
        fatal=fatal,
        thread="t",
        stack=("a.py:1 f",),
        fields=MappingProxyType(fields),
    )


def test_seen_reported_fatal(box: BoxWriter, lines: Lines) -> None:
    """Seen by the allocator, reported by the server, ending the process: one record, exact and fatal, and two lines."""
    teller = Teller("session")
    told = teller.observed(box, failure(device=0, requested_bytes=100 * MIB + 512))
    teller.say(told.failure)
    teller.caught(box, failure(1.1, message="m", device=0, requested_bytes=100 * MIB, figures="rounded"), loud=True)
    (kept,) = in_box(box)
    assert (kept.message, kept.fatal, dict(kept.fields)) == ("m", False, {"device": 0, "requested_bytes": 104858112})
    teller.caught(box, failure(1.2, message="m", fatal=True), loud=True)
    (kept,) = in_box(box)
    assert (kept.fatal, kept.at_monotonic_s, kept.fields["requested_bytes"]) == (True, 1.2, 104858112)
    assert [line["fatal"] for line in lines.all] == [False, True]


@pytest.mark.parametrize(
    ("seconds", "fields"),
    [
        (0.1, {"device": 1, "requested_bytes": 100 * MIB}),
        (0.1, {"device": 0, "requested_bytes": 101 * MIB}),
        (61.0, {}),
    ],
    ids=["other card", "other size", "much later"],
)
def test_others_are_records_of_their_own(seconds: float, fields: dict[str, int], box: BoxWriter, lines: Lines) -> None:
    """Another card, another size, or the same a minute later is another failure."""
    teller = Teller("session")
    teller.observed(box, failure(device=0, requested_bytes=100 * MIB))
    same = {"device": 0, "requested_bytes": 100 * MIB}
    teller.caught(box, failure(1.0 + seconds, message="m", **(fields or same)), loud=True)
    assert len(in_box(box)) == 2
    assert len(lines.all) == 1


def test_a_loop_of_failures(box: BoxWriter, lines: Lines) -> None:
    """A thousand survived ones are one record with their number and a few lines; a fatal one is always said."""
    teller = Teller("session")
    for i in range(1000):
        told = teller.observed(box, failure(1 + i / 1000, device=0, requested_bytes=MIB))
        teller.say(told.failure)
    (kept,) = in_box(box)
    assert kept.fields["times"] == 1000
    assert len(lines.all) == 8
    teller.caught(box, failure(2.5, message="m", fatal=True, device=0, requested_bytes=MIB), loud=True)
    assert (lines.all[-1]["fatal"], lines.all[-1]["lines_left_out"], len(lines.all)) == (True, 992, 9)
    assert [one.fatal for one in in_box(box)] == [True]


def test_other_failures_stay(box: BoxWriter) -> None:
    """However often a record is renewed, it takes the place of one other in the box and of no more."""
    teller = Teller("session")
    for number in range(3):
        box.fail(failure(0.1 * number, message=f"other {number}"))
    for i in range(50):
        teller.observed(box, failure(1.0 + i, device=0, requested_bytes=MIB))
    assert [one.message for one in in_box(box)] == ["other 1", "other 2", ""]
    assert in_box(box)[-1].fields["times"] == 50


def test_without_a_box(lines: Lines) -> None:
    """Without a box the lines are the record."""
    teller = Teller("session")
    told = teller.observed(None, failure(device=0, requested_bytes=MIB))
    teller.add(told, None, {"snapshot": "s"})
    teller.say(told.failure)
    assert lines.all[0]["snapshot"] == "s"
