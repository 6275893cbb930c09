"""What single messages stand for, over the shapes of many programs and versions."""

from __future__ import annotations

import pytest

from tests.sidecar.explain.explain_texts import TEXTS
from tests.sidecar.explain.explain_texts_endings import ENDINGS_TEXTS
from tests.sidecar.explain.explain_texts_kernel import KERNEL_TEXTS
from tests.sidecar.explain.explain_texts_servers import SERVERS_TEXTS
from tests.sidecar.explain.explain_texts_states import STATES_TEXTS
from tests.sidecar.explain.explaining import classes, explained

_CASES = [(kind, text) for kind, texts in TEXTS.items() for text in texts]
_LATE = (*ENDINGS_TEXTS, *KERNEL_TEXTS, *SERVERS_TEXTS, *STATES_TEXTS)


@pytest.mark.parametrize(
    ("kind", "text"), _CASES, ids=[f"{kind or 'none'}-{at}" for at, (kind, _) in enumerate(_CASES)]
)
def test_a_text_has_its_class(kind: str, text: str) -> None:
    """One text gives one incident of its class, and none where nothing ended."""
    assert classes(file=text) == ([kind] if kind else [])


@pytest.mark.parametrize(("kinds", "text"), _LATE, ids=[f"late-{at}" for at in range(len(_LATE))])
def test_a_late_text_has_its_incidents(kinds: tuple[str, ...], text: str) -> None:
    """A text gives one incident for each end that it tells of, in its order, and none where nothing ended."""
    assert classes(file=text) == list(kinds)


def test_torch_before_2_1() -> None:
    """The older message has its numbers in parentheses, in another order."""
    (one,) = explained(
        file="RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 3; 15.78 GiB total capacity; "
        "14.20 GiB already allocated; 11.75 MiB free; 14.60 GiB reserved in total by PyTorch)"
    )
    names = ("gpu_index", "requested_bytes", "total_bytes", "allocated_bytes", "free_bytes", "reserved_bytes")
    expected = (
        3,
        20 << 20,
        int(15.78 * (1 << 30)),
        int(14.2 * (1 << 30)),
        int(11.75 * (1 << 20)),
        int(14.6 * (1 << 30)),
    )
    assert tuple(one.fields[name] for name in names) == expected


def test_what_torch_does_not_say_is_unknown() -> None:
    """A message without numbers leaves every size unknown, none 0."""
    (one,) = explained(file="torch.OutOfMemoryError: CUDA out of memory.")
    sizes = {name: value for name, value in one.fields.items() if name.endswith("_bytes")}
    assert sizes
    assert set(sizes.values()) == {None}


def test_repeats_are_one_incident() -> None:
    """The same failure printed by every rank and every layer is told once, with a count."""
    line = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 4 GiB"
    (one,) = explained(file="\n".join([line] * 5))
    assert one.fields["occurrences"] == 5


def test_another_failure_later_is_another_incident() -> None:
    """Two failures an hour apart are two."""
    text = "2024-01-01 {}:00:00 CUDA out of memory. Tried to allocate 2.00 GiB"
    assert len(explained(file=f"{text.format('01')}\n{text.format('02')}")) == 2
