"""torch's own limit and reserve, set on request. On pretend cards no GPU is involved."""

from __future__ import annotations

import pytest

from tests.guard.cuda.host import MIB, CudaHost

pytestmark = [pytest.mark.torch, pytest.mark.gpu]


def test_limit_reserve_and_back(host: CudaHost) -> None:
    """Limit and reserve are in force after the call, counted in `status()`, and the limit is gone after uninstall."""
    code = """
early = guard.cuda_memory(fraction=0.5)
total = torch.cuda.get_device_properties(0).total_memory
torch.zeros(1).cuda()
part = min(0.5, (512 << 20) / total)
said = guard.cuda_memory(fraction=part, reserve_bytes=100 * MIB)
again = guard.cuda_memory(reserve_bytes=100 * MIB)
def counters():
    found = guard.status().cuda
    return [found["reserve_bytes"], found["reserve_used_bytes"]]
before, kept = counters(), []
try:
    while True:
        kept.append(take(40))
except torch.OutOfMemoryError:
    pass
used, count = counters(), len(kept)
(failure,) = failures()
del kept
guard.install().uninstall()
after = torch.cuda.get_per_process_memory_fraction(0)
print(json.dumps([early.refused, [said.device, said.fraction == part, said.reserve_bytes, said.refused],
                  again.reserve_bytes, before, used, count, failure[3]["limit_bytes"], after]))
"""
    early, said, again, before, used, count, limit, after = host.told(code)
    assert early == ["CUDA is not up: call this after torch.cuda.set_device"]
    assert said == [0, True, 100 * MIB, []]
    assert again == 100 * MIB
    assert before == [100 * MIB, 0]
    assert used == [100 * MIB, 80 * MIB]
    assert count == 12  # (512 - 2 - 100) // 40 = 10 beside the reserve, and 2 from it
    assert abs(limit - 512 * MIB) < MIB
    assert after == 1.0


def test_what_cannot_be_set_is_said(host: CudaHost) -> None:
    """A fraction out of range and a reserve that does not fit are refused with the reason; uninstalled, all is."""
    code = """
torch.zeros(1).cuda()
free = torch.cuda.mem_get_info()[0]
said = guard.cuda_memory(fraction=1.5, reserve_bytes=free + 1)
guard.install().uninstall()
off = guard.cuda_memory(fraction=0.5)
print(json.dumps([said.fraction, said.reserve_bytes, said.refused, off.refused]))
"""
    fraction, reserve, refused, off = host.told(code)
    assert (fraction, reserve) == (None, None)
    assert [reason.split(":")[0] for reason in refused] == ["fraction", "reserve_bytes"]
    assert off == ["the guard is not installed"]
