"""Every load path below a real limit: what it takes at its peak, and what its box says when it is killed.

The table of bench/preflight, with fewer kills. Checkpoints are some 130 MiB, made here and kept in build/.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.preflight.cases import CASES, EVERYTHING, Case, case_named
from bench.preflight.checkpoints import write_all
from bench.preflight.children import Zygote, zygote
from bench.preflight.kills import KILLED, kill
from bench.preflight.measure import measure
from bench.preflight.oom_kills import starve
from tests.guard.hosts import ROOT
from tests.lab.kit.cgroups import MIB, Limits

pytestmark = [pytest.mark.lab, pytest.mark.torch, pytest.mark.slow]

_LIMIT = 1400 * MIB
_KILLS = 2
_STARVED = (
    "torch.load of zip.pt",
    "torch.load(BytesIO) of zip.pt",
    "torch.load + load_state_dict of zip.pt",
    "safetensors.torch.load_file of model.safetensors",
    "safetensors.safe_open + clone of model.safetensors",
    "transformers.from_pretrained of llama-sharded as F16",
)
"""Of each kind one: the benchmark has them all."""


@pytest.fixture(scope="module")
def folder() -> Path:
    """Give the checkpoints."""
    made = ROOT / "build" / "bench" / "preflight-checkpoints"
    write_all(made)
    return made


@pytest.fixture(scope="module")
def forks(folder: Path) -> Iterator[Zygote]:
    """Give one interpreter with every library, in a cgroup of its own."""
    assert folder.is_dir()
    with zygote(
        EVERYTHING,
        Limits(memory_max_bytes=_LIMIT),
        {"TQDM_DISABLE": "1", "HF_HUB_OFFLINE": "1", "OOMGUARD_PREFLIGHT": "off"},
    ) as made:
        yield made


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_peak_is_as_said(case: Case, forks: Zygote, folder: Path) -> None:
    """The peak of anonymous memory is at most 10 % above what the preflight says, and what it says is no fantasy."""
    (measured,) = measure(forks, folder, [case])
    assert measured.held, f"{measured.anon_bytes / MIB:.0f} MiB, said {measured.said.anon_bytes / MIB:.0f} MiB"
    assert measured.said.anon_bytes <= 1.2 * measured.anon_bytes + 16 * MIB


@pytest.mark.parametrize("case", KILLED, ids=lambda case: case.name)
def test_killed_at_a_random_moment(case: Case, forks: Zygote, folder: Path) -> None:
    """The box names the operation in flight and its file, and the tensor where one was in flight."""
    (killed,) = kill(forks, folder, [case], _KILLS)
    assert (killed.named, killed.wrong) == (_KILLS, ())


@pytest.mark.parametrize("name", _STARVED)
def test_killed_by_the_kernel(name: str, forks: Zygote, folder: Path) -> None:
    """A real kill for want of memory in the midst of the load leaves the same."""
    (killed,) = starve(forks, folder, [case_named(name)], 1)
    assert (killed.named, killed.wrong) == (1, ())
