"""The GPU side of a preflight, on pretend cards. No GPU is involved: the figures are those of the stand-in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.guard.hosts import ROOT
from tests.guard.preflight import checkpoint_files as write
from tests.stubs.pretend import PretendCards

pytestmark = pytest.mark.torch

_MIB = 1 << 20
_ASK = f"""
import json, sys
sys.path.insert(0, {str(ROOT)!r})
import guard
from guard.fit.rooms import card_room
path = {{path!r}}
{{before}}
found = guard.preflight(path, {{device!r}})
print(json.dumps([found.fits, found.card.need_bytes, found.card.context_bytes, found.card.room.left_bytes.value,
                  "torch" in sys.modules and sys.modules["torch"].cuda.is_initialized()]))
"""


def _ask(folder: Path, *, total: str, before: str = "", device: str = "cuda:1", **environment: str) -> list[object]:
    cards = PretendCards(folder / "cards", {"count": 2, "gpu0.total": "1G", "gpu1.total": total})
    path = write.safetensors(folder / "m.safetensors", {"a": ("F32", 64 * _MIB)})
    done = cards.python(_ASK.format(path=str(path), before=before, device=device), **environment)
    assert done.returncode == 0, done.stderr
    answer: list[object] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize("total", ["500M", "900M"])
def test_card_by_nvml(total: str, tmp_path: Path) -> None:
    """Without CUDA in this process NVML is asked, no context is made, and one to come is counted."""
    fits, size, context, left, initialised = _ask(tmp_path, total=total)
    assert (size, context, initialised) == (576 * _MIB, 512 * _MIB, False)
    assert isinstance(left, int)
    assert fits is (left >= 576 * _MIB)
    assert fits is (total == "900M")


def test_card_by_the_hosts_own_torch(tmp_path: Path) -> None:
    """Once the host uses CUDA, free memory and what torch keeps unused count, and no context is to come."""
    before = "import torch; held = torch.empty(128 << 20, dtype=torch.uint8, device='cuda:1'); del held"
    fits, size, context, left, initialised = _ask(tmp_path, total="900M", before=before)
    assert (fits, size, context, initialised) == (True, 64 * _MIB, 0, True)
    assert isinstance(left, int)
    assert left == 900 * _MIB


def test_visible_devices_are_counted_as_cuda_counts(tmp_path: Path) -> None:
    """`cuda:0` is the first card that CUDA_VISIBLE_DEVICES names, by number or by UUID."""
    _, _, _, left, _ = _ask(tmp_path, total="700M", device="cuda", CUDA_VISIBLE_DEVICES="1")
    assert isinstance(left, int)
    assert left <= 700 * _MIB
