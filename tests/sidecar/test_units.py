"""Numbers in words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.units import human_bytes, human_seconds, human_share


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (268435456, "256.0 MiB"),
        (-(3 << 30), "-3.0 GiB"),
        ((1 << 20) - 1, "1.0 MiB"),
        (1 << 62, "4.0 EiB"),
        (1 << 72, "4096.0 EiB"),
    ],
)
def test_sizes(count: int, words: str) -> None:
    """Sizes are in powers of 1024, never "1024.0" of a unit."""
    assert words == human_bytes(count)


@given(st.integers(0, 1 << 60))
def test_sizes_are_near(count: int) -> None:
    """The words say the number to a twentieth of the unit, or to the byte."""
    number, unit = human_bytes(count).split()
    factor = 1024 ** ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"].index(unit)
    assert abs(float(number) * factor - count) <= 0.0501 * factor


@pytest.mark.parametrize(("seconds", "words"), [(0.345, "0.34 s"), (12.34, "12.3 s"), (310.2, "310 s")])
def test_times(seconds: float, words: str) -> None:
    """Times have about three figures."""
    assert words == human_seconds(seconds)


def test_shares() -> None:
    """Shares are percent."""
    assert human_share(0.216) == "21.6 %"
