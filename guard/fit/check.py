"""Read the headers, work out the need, look at the rooms, and act on it as asked: the edge of `guard.fit`."""

from __future__ import annotations

import logging
import os
import posixpath
import sys
import time
from dataclasses import dataclass
from typing import Final

from guard.fit.need import cheaper, need, wanted_bytes
from guard.fit.paths import IMPORT_BYTES, PATHS, LoadPath, default_path, paths_for
from guard.fit.rooms import card_room, rooms
from guard.fit.units import MIB
from guard.fit.values import Answer, Card, Preflight
from guard.footprint import Footprint, dtype_name, footprint
from guard.kernel.reader import Reader
from guard.refusal import WouldNotFit

WARN, RAISE, WAIT = "warn", "raise", "wait"
POLICIES: Final = (WARN, RAISE, WAIT)
DEFAULT_WAIT_SECONDS: Final = 300.0
_PAUSE_SECONDS: Final = 0.5
_CONTEXT_BYTES: Final = 512 * MIB
"""A CUDA context and its libraries, where this process has none yet: 0.3 to 0.6 GiB by common report, not measured."""

_logger = logging.getLogger("oomguard")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is to be loaded, how, and where to. `card`: CUDA index, None for the host."""

    found: Footprint
    path: LoadPath
    dtype: str | None
    card: int | None


def ask(
    what: str | bytes | os.PathLike[str] | os.PathLike[bytes],
    *,
    device: object = None,
    path: str | None = None,
    dtype: object = None,
) -> Question:
    """Read the headers and settle how it is loaded.

    Raises:
        FootprintError: there is no checkpoint, or it cannot be read.
        ValueError: no such path, device or element type, or the path does not read such files.
    """
    found = footprint(what)
    chosen = _path(found, path)
    wanted = None if dtype is None else dtype_name(str(dtype))
    if dtype is not None and wanted is None:
        raise ValueError(f"no element type of floating point: {dtype}")
    wanted_bytes(found, wanted)
    return Question(found=found, path=chosen, dtype=wanted, card=_card(device))


def answer(question: Question, reader: Reader | None = None) -> Preflight:
    """Work it out against what is left at this moment."""
    found, path = question.found, question.path
    on_device = question.card is not None
    to_import = 0 if path.library in sys.modules else IMPORT_BYTES[path.library]
    here = need(found, path, dtype=question.dtype, on_device=on_device, import_bytes=to_import)
    return Preflight(
        checkpoint=found.path,
        format=found.format.value,
        file_count=len(found.files),
        tensor_bytes=found.tensor_bytes,
        path=path.name,
        path_note=path.note,
        need=here,
        rooms=rooms(reader or Reader()),
        card=_card_side(question),
        cheaper=cheaper(found, path, here, dtype=question.dtype),
    )


def enforce(question: Question, policy: str, wait_seconds: float = DEFAULT_WAIT_SECONDS) -> Preflight:
    """Answer, and act on it: log, raise `WouldNotFit`, or wait until it fits and raise it after `wait_seconds`."""
    if policy not in POLICIES:
        raise ValueError(f"no such policy: {policy!r}; there are {', '.join(POLICIES)}")
    found = answer(question)
    deadline = time.monotonic() + wait_seconds
    if policy == WAIT and found.answer is Answer.WOULD_NOT_FIT:
        _logger.warning("waiting up to %.0f s for room: %s", wait_seconds, found.short())
        while found.answer is Answer.WOULD_NOT_FIT and time.monotonic() < deadline:
            time.sleep(min(_PAUSE_SECONDS, max(0.0, deadline - time.monotonic())))
            found = answer(question)
    if found.answer is Answer.WOULD_NOT_FIT:
        if policy != WARN:
            raise WouldNotFit(str(found))
        _logger.warning("%s", found.short())
    return found


def _path(found: Footprint, name: str | None) -> LoadPath:
    if name is None:
        return _usual(found)
    path = PATHS.get(name)
    if path is None or found.format not in path.formats:
        what = "no such load path" if path is None else f"it does not read {found.format}"
        raise ValueError(f"{name}: {what}; for this checkpoint there are: {', '.join(paths_for(found))}")
    return path


def _usual(found: Footprint) -> LoadPath:
    """A folder of a library's own making is loaded by that library, other files by the usual call for their format."""
    for marker, name in (
        ("model_index.json", "diffusers.from_pretrained"),
        ("config.json", "transformers.from_pretrained"),
    ):
        path = PATHS[name]
        if found.format in path.formats and os.path.isfile(posixpath.join(found.path, marker)):  # noqa: PTH113 - as above
            return path
    return default_path(found)


def _card(device: object) -> int | None:
    """CUDA index of "cuda", "cuda:1", 1 or a torch.device; None for the host."""
    if device is None:
        return None
    if isinstance(device, int) and not isinstance(device, bool) and device >= 0:
        return device
    kind, _, index = str(device).partition(":")
    if kind == "cpu" or (kind == "cuda" and (index or "0").isdecimal()):
        return None if kind == "cpu" else int(index or 0)
    raise ValueError(f"no such device: {device} (cpu, cuda or cuda:N)")


def _card_side(question: Question) -> Card | None:
    if question.card is None:
        return None
    torch = sys.modules.get("torch")
    has_context = torch is not None and bool(torch.cuda.is_initialized())
    context = 0 if has_context else _CONTEXT_BYTES
    size = wanted_bytes(question.found, question.dtype)
    return Card(need_bytes=size + context, context_bytes=context, room=card_room(question.card))


__all__ = ["DEFAULT_WAIT_SECONDS", "POLICIES", "RAISE", "WAIT", "WARN", "Question", "answer", "ask", "enforce"]
