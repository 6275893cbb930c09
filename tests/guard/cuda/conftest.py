"""A host program with torch's CUDA allocator: on pretend cards, or on a real GPU with `make test-gpu`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.guard.cuda.host import REAL, CudaHost
from tests.stubs.pretend import PretendCards


@pytest.fixture
def host(tmp_path: Path) -> CudaHost:
    """One card of which the program may take 1 GiB. Whether it is real is up to OOMGUARD_TEST_GPU alone."""
    (tmp_path / "termination-log").touch()
    if os.environ.get(REAL):
        return CudaHost(tmp_path, None)
    return CudaHost(tmp_path, PretendCards(tmp_path / "cards", {"gpu0.total": "1G", "gpu0.context": "12M"}))


@pytest.fixture
def pretend(host: CudaHost) -> Callable[..., CudaHost]:
    """Script faults of the pretend card: `pretend({"fail.cudaMalloc": 2})`. Skipped on a real one."""
    cards = host.cards
    if cards is None:
        pytest.skip("a fault can be scripted on pretend cards alone")

    def script(settings: dict[str, object]) -> CudaHost:
        cards.set({"gpu0.total": "1G", "gpu0.context": "12M", **settings})
        return host

    return script
