"""NVIDIA's kernel messages: Xids and lost cards. The first line is often not the root: the gravest one is."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Final

from sidecar.explain.patterns import quote
from sidecar.explain.values import Field, Line, Role, Sign, seen
from sidecar.verdict.values import Confidence, EndClass
from sidecar.verdict.xids import CONSEQUENCES, MEANINGS

CASCADE_SECONDS: Final = 120.0
"""Xids of one card this soon after one another are one incident."""
_XID: Final = re.compile(
    r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]{4,20})\): (\d{1,4})(?:, pid='?(<unknown>"
    r"|\d{1,10})'?)?(?:, name=([^,]{1,64}))?"
)
_TOLD: Final = re.compile(
    r"XidCriticalError: Xid=(\d{1,4}) on Device=(GPU-[0-9a-f-]{36})"
    r"|DCGM_FI_DEV_XID_ERRORS\{[^}]{0,400}\bUUID=\"(GPU-[0-9a-f-]{1,36})\"[^}]{0,2000}\} ([1-9]\d{0,3})\b"
)
"""What Kubernetes' device plugins and NVIDIA's exporter pass on, without the driver's words."""
_LOST: Final = re.compile(
    r"\bhas fallen off the bus|fallen off the bus and is not responding|GPU is lost|RmInitAdapter failed"
    r"|rm_init_adapter failed"
    r"|Unable to determine the device handle for (?:GPU|gpu)|NVRM: .{0,80}probe routine failed"
    r"|GPU(?: \S+)? .{0,20}requires reset"
    r"|NVRM: The NVIDIA GPU [0-9a-fA-F:.]{4,20}\s*$|amdgpu.{0,80}GPU reset (?:begin|succeeded|failed)"
    r"|amdgpu.{0,60}device lost|\bas wedged\b|\b(?:amdgpu|xe|i915)\b.{0,80}\bdevice wedged"
)
_PCI: Final = re.compile(
    r"(?:\b|(?<=GPU))([0-9a-fA-F]{3,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?)(?![0-9a-fA-F]|:[0-9a-fA-F])"
)
_PCI_ID: Final = re.compile(r"PCI ID: ([0-9a-fA-F]{4}:[0-9a-fA-F]{4})")
_UUID: Final = re.compile(r"\b(GPU-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})")
_ERROR: Final = re.compile(r"(RmInitAdapter failed! \([0-9a-fA-Fx:]{3,40}\))")
_MINOR: Final = re.compile(r"bearing minor number (\d{1,4})")

_DEVICE: Final = EndClass.DEVICE_RESET
_LOST_XID: Final = 79


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    line: Line
    xid: int | None
    pci: str | None
    pid: int | None
    name: str | None


class XidParser:
    """Gathers what the driver says of each card."""

    def __init__(self) -> None:
        self._events: list[_Event] = []
        self._tail: list[Line] = []  # continuation lines of a message that the driver split
        self._uuids: dict[str, str] = {}

    @property
    def busy(self) -> bool:
        """Tell whether the next line may go on with a split message."""
        return bool(self._events) and len(self._tail) < 3  # noqa: PLR2004 - the longest split message

    def feed(self, line: Line) -> bool:
        """Take one line; tell whether the driver says something of a card in it."""
        text = line.text
        if (found := _XID.search(text)) is not None:
            pid = int(found[3]) if found[3] and found[3].isdigit() else None
            name = None if found[4] is None or found[4].startswith("<") else found[4]
            self._add(_Event(line=line, xid=int(found[2]), pci=found[1], pid=pid, name=name))
            return True
        if (found := _TOLD.search(text)) is not None:
            self._add(_Event(line=line, xid=int(found[1] or found[4]), pci=None, pid=None, name=None))
            return True
        if (uuid := _UUID.search(text)) is not None and (pci := _PCI.search(text)) is not None:
            self._uuids[_short(pci[1])] = uuid[1]
        if _LOST.search(text) is not None:
            pci = _PCI.search(text)
            self._add(_Event(line=line, xid=None, pci=None if pci is None else pci[1], pid=None, name=None))
            return True
        if self._events and len(self._tail) < 3:  # noqa: PLR2004 - see busy
            self._tail.append(line)
        return False

    def _add(self, event: _Event) -> None:
        if not self._events or self._events[-1].xid is not None:
            self._tail = []
        self._events.append(event)

    def finish(self) -> list[Sign]:
        """Give one sign for each cascade of each card."""
        # A card that the driver names at boot is no incident by itself.
        return [
            self._sign(cascade)
            for cascade in self._cascades()
            if any(one.xid is not None or "The NVIDIA GPU" not in one.line.text for one in cascade)
        ]

    def _cascades(self) -> list[list[_Event]]:
        done: list[list[_Event]] = []
        for event in self._events:
            home = next((one for one in reversed(done) if _belongs(one[-1], event)), None)
            if home is None:
                done.append([event])
            else:
                home.append(event)
        return done

    def _sign(self, events: list[_Event]) -> Sign:
        xids = [one.xid for one in events if one.xid is not None]
        root = _root(xids)
        lost = root is None or any(one.xid is None for one in events)
        end_class = _DEVICE if lost and root is None else MEANINGS.get(root or 0, (_DEVICE, ""))[0]
        first = next((one for one in events if one.xid == root), events[0])
        texts = " ".join(one.text for one in (*(event.line for event in events), *self._tail))
        meaning = MEANINGS.get(root or 0, (_DEVICE, "the driver reports an error of the card"))[1]
        pci = next((one.pci for one in events if one.pci), None)
        uuid = self._uuids.get(_short(pci or "")) or next(iter(_UUID.findall(texts)), None)
        card = "a GPU" if pci is None else f"GPU {pci}"
        return Sign(
            role=Role.CAUSE,
            source="GPU driver",
            file=first.line.file,
            line=first.line.number,
            end_class=end_class,
            confidence=_confidence(events, root),
            subject=f"xid {_short(pci or '')}",
            summary=f"{card}: {meaning} (Xid {root})"
            if root is not None
            else f"{card} was lost: the driver cannot reach it",
            stamp=first.line.stamp,
            pids=frozenset(one.pid for one in events if one.pid is not None),
            fields={**_fields(events, xids, root, texts), "pci": pci, "gpu_uuid": uuid},
            evidence=tuple(seen(quote(one.line.text), one.line.file, one.line.number) for one in events[:6]),
            missing=("what the server said when it failed: its log",),
        )


def _fields(events: list[_Event], xids: list[int], root: int | None, texts: str) -> dict[str, Field]:
    pci_id, error, minor = _PCI_ID.search(texts), _ERROR.search(texts), _MINOR.search(texts)
    counts = Counter(xids)
    named = next((one for one in events if one.name is not None), None)
    lost = not xids or _LOST_XID in xids
    return {
        "xid": root,
        "xids": list(xids) or None,
        "root_xid": root,
        "first_xid": xids[0] if xids else None,
        "equivalent_xid": _LOST_XID if not xids and "fallen off the bus" in texts else None,
        "events_by_xid": {str(code): count for code, count in counts.items()} or None,
        "pid": next((one.pid for one in events if one.pid is not None), None),
        "name": None if named is None else named.name,
        "pci_id": None if pci_id is None else pci_id[1],
        "error": None if error is None else error[1],
        "minor": None if minor is None else int(minor[1]),
        "repeats": max(Counter(_shape(one.line.text) for one in events).values()),
        "meanings": {str(code): MEANINGS[code][1] for code in counts if code in MEANINGS} or None,
        "device_lost": lost,
    }


def _shape(text: str) -> str:
    """Give the same value for repeats of one message."""
    return re.sub(r"\d+", "0", text)


def _root(xids: list[int]) -> int | None:
    """Pick the gravest, earliest Xid: faults of the card before those of a program, consequences last."""

    def grave(code: int) -> int:
        end_class = MEANINGS.get(code, (_DEVICE, ""))[0]
        return 2 if code in CONSEQUENCES else 0 if end_class is _DEVICE else 1

    return min(xids, key=grave, default=None)


def _confidence(events: list[_Event], root: int | None) -> Confidence:
    if root is not None:
        return Confidence.HIGH if root in MEANINGS and root not in CONSEQUENCES else Confidence.MEDIUM
    return (
        Confidence.HIGH
        if any("fallen off" in one.line.text or "lost" in one.line.text for one in events)
        else Confidence.MEDIUM
    )


def _belongs(last: _Event, event: _Event) -> bool:
    same = last.pci is None or event.pci is None or _short(last.pci) == _short(event.pci)
    apart = None if last.line.stamp is None else last.line.stamp.apart(event.line.stamp)
    return same and (apart is None or apart <= CASCADE_SECONDS)


def _short(pci: str) -> str:
    """Give bus and device, without domain and function: the driver prints all forms."""
    return ":".join(pci.lower().split(".")[0].split(":")[-2:])
