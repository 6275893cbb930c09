"""Ends about a GPU, on pretend cards (tests/stubs): torch's own allocator and NVML's own binding, no GPU."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.lab.cases.stage import Model, Sidecar, Stage, Way
from tests.lab.cases.verdicts import ended
from tests.lab.kit.cgroups import MIB, Limits
from tests.lab.kit.wait import until
from tests.stubs.pretend import _WANTED as VARIABLE
from tests.stubs.pretend import LIBRARIES, PretendCards

CARD: Final[Mapping[str, object]] = {"count": 1, "gpu0.total": "1G", "gpu0.uuid": "GPU-lab", "driver": "580.65.06"}
_AS_DAEMON: Final = """
import ctypes, sys
# Not in the environment: the sidecar refuses variables of its prefix that it does not know.
ctypes.CDLL(None).setenv({variable!r}, {folder!r}, 1)
sys.argv = ["oomguard", "sidecar"]
from sidecar.start import main
sys.exit(main())
"""


@dataclass(frozen=True, slots=True)
class CardStage:
    """A stage with a card in it."""

    stage: Stage
    cards: PretendCards

    @contextmanager
    def model(self, name: str, *parts: str) -> Iterator[Model]:
        """Run a model that has the card."""
        env = {VARIABLE: str(self.cards.folder), "LD_LIBRARY_PATH": str(LIBRARIES)}
        way = Way(limits=Limits(memory_max_bytes=1024 * MIB), env=env)
        with self.stage.model(name, *parts, way=way) as model:
            yield model


@contextmanager
def card_stage() -> Iterator[CardStage]:
    """Start a sidecar that sees the card too, and wait until it has read it."""
    with tempfile.TemporaryDirectory(prefix="oomguard-cards-") as name:
        folder = Path(name)
        folder.chmod(0o1777)  # a process keeps its account in it, and nobody removes that of another
        cards = PretendCards(folder, CARD)
        code = _AS_DAEMON.format(variable=VARIABLE.encode(), folder=name.encode())
        sidecar = Sidecar(
            env={"LD_LIBRARY_PATH": str(LIBRARIES)}, command=(sys.executable, "-c", code), reachable=(name,)
        )
        with Stage(sidecar) as stage:
            yield CardStage(stage, cards)
            assert not stage.complaints()


def case_cuda_out_of_memory(there: CardStage) -> None:
    """A card is full and nobody catches it: gpu_allocation_failure, with what was asked for."""
    with there.model("cuda-oom", f"cuda_oom size=2048 when={there.stage.cue('cuda-oom')}") as model:
        there.stage.give_cue(model, guarded=True)
        incident = ended(there.stage, model, "gpu_allocation_failure", "high")
        assert incident["fields"]["failure_kind"] == "cuda_out_of_memory"
        assert "2.00 GiB" in incident["fields"]["failure_message"], incident


def case_cuda_out_of_memory_that_was_survived(there: CardStage) -> None:
    """The failure is caught, the server goes on and exits with 3 of its own will: application_exit, no GPU blamed."""
    cue = there.stage.cue("survived")
    with there.model("survived", f"cuda_oom_survived size=2048 code=3 when={cue}") as model:
        until(lambda: b"retrying" in model.log.read_bytes(), 30, "the failure to be caught")
        there.stage.give_cue(model, guarded=True)
        incident = ended(there.stage, model, "application_exit")
        assert incident["fields"]["exit_code"] == 3


def case_cuda_out_of_memory_that_was_given_up(there: CardStage) -> None:
    """The failure is caught and the process ends itself with `os._exit`: gpu_allocation_failure, less surely."""
    cue = there.stage.cue("given-up")
    with there.model("given-up", f"cuda_oom_given_up size=2048 code=1 when={cue}") as model:
        there.stage.give_cue(model, guarded=True)
        incident = ended(there.stage, model, "gpu_allocation_failure", "medium")
        assert incident["fields"]["exit_code"] == 1


def case_lost_card(there: CardStage) -> None:
    """Xid 79 and a card that answers no more, then the server's CUDA error: device_reset, with the Xid's number."""
    _ends_after(there, "lost", {"xid": ["0:79"], "gpu0.lost": 1, "gpu0.error": 719}, "Xid 79")


def case_xid(there: CardStage) -> None:
    """Xid 48, a double-bit error, on a card that still answers: device_reset, with the Xid's number."""
    _ends_after(there, "xid", {"xid": ["0:79", "0:48"], "gpu0.error": 214}, "Xid 48")


def _ends_after(there: CardStage, name: str, trouble: Mapping[str, object], words: str) -> None:
    """Have a card fail under a model, and wait until these words are evidence: the driver may tell them later."""
    stage, cue = there.stage, there.stage.cue(name)
    with there.model(name, f"use_card when={cue}") as model:
        until(lambda: b"on the card" in model.log.read_bytes(), 30, "the model to use the card")
        until(lambda: _sees_card(stage, model), 30, "the sidecar to see the card")
        there.cards.set({**CARD, **trouble})
        stage.give_cue(model, guarded=True)
        try:
            ended(stage, model, "device_reset")
            until(lambda: words in str(stage.incident(model)["evidence"]), 30, f"{words} to be evidence")
        finally:
            there.cards.set({**CARD, "xid": trouble["xid"]})


def _sees_card(stage: Stage, model: Model) -> bool:
    gpu = stage.wait_seen(model)["sample"]["gpu"]
    return "value" in gpu and bool(gpu["value"]["cards"][0]["lost"].get("value") is False)
