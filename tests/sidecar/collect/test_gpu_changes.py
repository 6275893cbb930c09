"""What changed on the GPUs, as events and as words. Pure."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from guard.model import Reading, Unknown, Why
from sidecar.gpu_changes import GpuChange, changes, trouble
from sidecar.outputs import record_rows
from sidecar.sample import NO_GPU, GpuSample
from tests.sidecar.collect.gpu_cards import MIB, card, lost_card, sample
from tests.sidecar.making import sample as model_sample

DENIED = Unknown(Why.DENIED, "nvmlDeviceGetMemoryInfo", 4, "Insufficient Permissions")


def test_a_card_is_lost_and_comes_back() -> None:
    """Each is said once, with the name that the card had while it answered."""
    seen = [sample(card()), sample(lost_card()), sample(lost_card()), sample(card())]
    kinds = [[(one.kind, one.uuid) for one in changes(*pair)] for pair in pairwise(seen)]
    assert kinds == [[("gpu_lost", "GPU-0")], [], [("gpu_back", "GPU-0")]]


def test_a_card_that_is_lost_from_the_start_is_said() -> None:
    """It is news to who has never seen it."""
    assert [one.kind for one in changes(NO_GPU, sample(lost_card()))] == ["gpu_lost"]


def test_new_xids_are_told_with_their_number() -> None:
    """What came before the first reading is history; a lost card's last Xid is not missed."""
    before, after = sample(card(xids={13: 1})), sample(lost_card(xids={13: 1, 79: 2}))
    assert list(changes(NO_GPU, before)) == []
    assert [one for one in changes(before, after) if one.kind == "gpu_xid"] == [
        GpuChange("gpu_xid", "GPU 0 (GPU-0): Xid 79", 0, "GPU-0", 79, 2)
    ]


def test_what_cannot_be_read_changes_nothing() -> None:
    """A card without permission is neither lost nor back; a reading that hangs tells nothing."""
    blind = sample(replace(card(), lost=DENIED, memory=DENIED, xids=DENIED))
    assert [*changes(sample(card()), blind), *changes(blind, sample(card())), *changes(blind, DENIED)] == []


@pytest.mark.parametrize(
    ("reading", "words"),
    [
        (NO_GPU, None),
        (Unknown(Why.MISSING, "libnvidia-ml.so.1"), None),
        (Unknown(Why.FAILED, "nvmlDeviceGetMemoryInfo", detail="no answer of the driver for 5 s"), "no answer"),
        (sample(card()), None),
        (sample(card(), replace(card(1), memory=DENIED)), "GPU 1: nvmlDeviceGetMemoryInfo: denied"),
        (sample(lost_card()), "GPU is lost"),
    ],
)
def test_trouble_in_words(reading: Reading[GpuSample], words: str | None) -> None:
    """No GPU is no trouble; a driver that hangs, a lost card and a missing permission are."""
    said = trouble(reading)
    assert said is None if words is None else said is not None and words in said


def test_row_of_the_record() -> None:
    """A row holds what is known of each card and slice, and no key for what is not."""
    gpus = record_rows.row(replace(model_sample(1), gpu=sample(card(xids={79: 1}), lost_card(1))), None)["gpus"]
    assert gpus == [
        {
            "index": 0,
            "uuid": "GPU-0",
            "load": 0.37,
            "xids": {"79": 1},
            "slices": [{"index": 2, "uuid": "MIG-2", "used": MIB, "free": (2048 - 256 - 1) * MIB}],
            "used": 1024 * MIB,
            "free": (8192 - 256 - 1024) * MIB,
            "processes": {"4242": 1024 * MIB},
        },
        {"index": 1, "lost": True},
    ]
    assert "gpus" not in record_rows.row(model_sample(1), None)
