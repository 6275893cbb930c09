"""States of containers, as `kubectl describe`, pod YAML and JSON, `docker inspect` and `podman inspect` print them.

One reader for all: a state is a block of `key: value` lines below a head such as "Last State:", "lastState:" or
"State": {. A block ends where its braces close, or, without braces, where a line is indented no deeper than its head.
Fragments are as good as whole documents, and quotes around keys may be missing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Final

from sidecar.explain.status_words import CONTAINER, SEVERAL_LINES, Block, sign_of
from sidecar.explain.values import Line, Sign, part_keys

_PAIR: Final = re.compile(r"""^(\s*)(?:- )?["']?([A-Za-z][\w .-]{0,60}?)["']?\s*[:=](.*)$""")
_TRIM: Final = " \t,"
_HEALTH: Final = "Health"  # the log of an engine's health checks: its exit codes end nothing
_HEADS: Final = {
    "state": "State",
    "laststate": "Last State",
    "lastterminationstate": "Last State",
    "terminated": "terminated",
    "termination": "terminated",
    "health": _HEALTH,
    "lastfailureinfo": "Last State",
    "currentstate": "State",
    "previousstate": "Last State",
}
_POD_ROW: Final = re.compile(r"^\S{1,253}\s+\d{1,3}/\d{1,3}\s+([A-Z]\w{2,40})\s+(\d{1,9})\b")
_LONGEST: Final = 400  # lines of one block
_CRI: Final = "CONTAINER_"  # crictl: "state": "CONTAINER_EXITED", its fields stand beside it
_PATIENCE: Final = 16  # lines behind a block that may name its container or its limits
_NAMES: Final = ("name", "id", "restartcount", "image", "memory", "oomscoreadj", "containerid", "podname", "uid")
_PARTS: Final = (
    *("args", "command", "devices", "environment", "environmentvariablesfrom"),
    *("hostports", "limits", "mounts", "ports", "requests"),
)
"""Heads within a container of `kubectl describe` that are no container's name."""
_DELETION: Final = ("deletiontimestamp", "deletiongraceperiodseconds")
_TERMINATING: Final = "Terminating"  # what `kubectl describe` says of a pod with a deletionTimestamp


@dataclass(slots=True)
class _Open:
    block: Block
    indent: int
    braces: int | None  # depth of open braces, None for blocks that are indented
    lines: int = 0
    multiline: int | None = None  # indent of a folded value that is being skipped


@dataclass(slots=True)
class _Around:
    """What stood before and after the blocks: names, restart counts, limits."""

    seen: dict[str, str] = field(default_factory=dict)
    container: str | None = None
    name: str | None = None  # the last "name" outside of a state
    instance: str | None = None  # the last container id outside of a state
    waits: bool = False  # that container waits to be started: its id is of the instance that ended
    instances: set[str] = field(default_factory=set)
    loose: Block | None = None  # key: value lines of a state whose head is missing
    checks: bool = False  # within the log of an engine's health checks, whose head is missing


class StatusParser:
    """Finds blocks of states and gives a sign for each that tells an end."""

    def __init__(self) -> None:
        self.part = 0
        """Which object of a list is being read, from 1; 0 where nothing says that one has begun."""
        self._signs: list[Sign] = []
        self._open: list[_Open] = []
        self._done: list[Block] = []
        self._around = _Around()
        self._behind = _PATIENCE

    @property
    def busy(self) -> bool:
        """Tell whether a block is open, or what stands behind one may come."""
        return bool(self._open) or self._behind < _PATIENCE

    def feed(self, line: Line) -> bool:
        """Take one line; tell whether it belongs to a state."""
        self._behind += 1
        found = _PAIR.match(line.whole)
        for one in list(self._open):
            self._extend(one, line, found)
        used = bool(self._open)
        if found is None:
            if (row := _POD_ROW.match(line.whole)) is not None:
                self._around.seen.setdefault("podstatus", row[1])
                self._around.seen.setdefault("restartcount", row[2])
            return used
        key, value = _key(found[2]), found[3].strip(_TRIM).strip("\"'")
        if self._begins_object(key, value, line.whole):
            self._next_object()
        if key in _HEADS and not value.startswith(_CRI) and not self._inside_state(key):
            self._begin(found[2], value, line, found.start(2))
            return True
        if not self._open:
            self._note(key, value, line, len(found[1]))
        return used or self._around.loose is not None

    def skip(self) -> None:
        """Pass over a line that cannot be of a state: a log's, with its time."""
        self._behind += 1

    def finish(self) -> list[Sign]:
        """Give the signs of every block that tells an end."""
        self._conclude()
        signs, self._signs = self._signs, []
        return signs

    def _conclude(self) -> None:
        """Judge the blocks of the object that was read last."""
        for one in self._open:
            self._done.append(one.block)
        self._open = []
        if self._around.loose is not None and "exitcode" in self._around.loose.pairs:
            self._done.append(self._around.loose)
        for block in _inner([one for one in self._done if one.head != _HEALTH]):
            sign = sign_of(block, self._around.seen)
            if sign is not None:
                others = self._around.instances - sign.keys - {block.instance or ""}
                self._signs.append(replace(sign, keys=sign.keys | part_keys(self.part), not_of=frozenset(others)))
        self._done = []

    def _next_object(self) -> None:
        """Begin anew where a list of pods or containers goes on to its next one."""
        self._conclude()
        self._around, self._behind = _Around(), _PATIENCE
        self.part += 1

    def _begins_object(self, key: str, value: str, text: str) -> bool:
        """Tell the first lines of a Kubernetes object, an inspected container, and a described pod."""
        if any(one.braces is not None for one in self._open):
            return False
        if key == "metadata":
            return value in ("", "{")
        again = key in self._around.seen
        return again and ((key == "id" and value != "") or (key == "name" and text.startswith("Name:  ")))

    def _inside_state(self, key: str) -> bool:
        """A "terminated:" below "lastState:" is the same block."""
        return _HEADS[key] == "terminated" and bool(self._open)

    def _begin(self, written: str, value: str, line: Line, indent: int) -> None:
        head = _HEADS[_key(written)]
        current = next((one.block for one in self._open if one.block.head == "Last State"), None)
        if current is not None and head == "State":
            return
        around = self._around
        around.waits = value.startswith("Waiting") if head == "State" else around.waits
        block = Block(
            head=head,
            file=line.file,
            line=line.number,
            container=self._owner(written),
            instance=around.instance,
            is_of_instance=head == "State" or around.waits,
        )
        if value and value not in "{[":
            block.pairs["state"] = value
        braces = 1 if value.startswith("{") and not value.endswith("}") else None
        self._open.append(_Open(block, indent, braces))
        self._around.loose = None

    def _owner(self, written: str) -> str | None:
        """Name the container: before its states in `kubectl describe`; in pod objects between lastState and state."""
        if not written[:1].islower():
            return self._around.container
        return self._around.name if _key(written) == "state" else None

    def _extend(self, one: _Open, line: Line, found: re.Match[str] | None) -> None:
        text = line.whole
        one.lines += 1
        if one.braces is not None:
            one.braces += text.count("{") - text.count("}")
        indent = len(text) - len(text.lstrip())
        outside = one.braces is None and text.strip() != "" and indent <= one.indent
        if outside or (one.braces is not None and one.braces <= 0) or one.lines > _LONGEST:
            self._open.remove(one)
            self._done.append(one.block)
            self._behind = 0
            return
        if found is None or (one.multiline is not None and indent > one.multiline):
            return
        one.multiline = None
        key, value = _key(found[2]), found[3].strip(_TRIM).strip("\"'")
        if value in ("|", ">", "|-", ">-"):
            one.multiline = indent
            one.block.pairs.setdefault(key, SEVERAL_LINES)
        elif value not in ("{", "["):
            one.block.pairs.setdefault(key, value)
            one.block.where.setdefault(key, line.number)

    def _take_name(self, name: str) -> None:
        self._around.name = name
        if self._behind < _PATIENCE and self._done[-1].container is None:
            self._done[-1].container = name.lstrip("/")

    def _note(self, key: str, value: str, line: Line, indent: int) -> None:
        """Keep what a state needs from around it: the container's name before it, counts and limits after it."""
        around = self._around
        if not value and indent > 0 and key not in _PARTS:
            around.container = key if around.container is None or indent <= 4 else around.container  # noqa: PLR2004
        if key in _DELETION and value:
            around.seen.setdefault(key, value)
        if key == "status" and value.startswith(_TERMINATING):
            around.seen.setdefault("deletiontimestamp", "")
        if key in _NAMES and value:
            around.seen.setdefault(key, value)
            if key == "containerid" and (found := CONTAINER.search(value)) is not None:
                around.instance, around.waits = f"container:{found[0]}", False
                around.instances.add(around.instance)
            if key == "name":
                self._take_name(value)
            if self._done and key == "restartcount":
                self._done[-1].after.setdefault(key, value)
            if key == "memory" and self._done:
                self._done[-1].after.setdefault(key, value)
        if key == "failingstreak":
            around.checks = True
        self._take_loose(key, value, line)

    def _take_loose(self, key: str, value: str, line: Line) -> None:
        """Keep the pairs of a state whose head is missing."""
        around = self._around
        ends = key in ("oomkilled", "exitcode", "finishedat", "startedat", "status")
        said = key == "reason" and around.loose is not None and "exitcode" in around.loose.pairs
        if (ends or said) and not around.checks:
            if around.loose is None:
                around.loose = Block(head="State", file=line.file, line=line.number, container=around.container)
            around.loose.pairs.setdefault(key, value)
            around.loose.where.setdefault(key, line.number)


def _key(written: str) -> str:
    return re.sub(r"[ _-]", "", written).lower()


def _inner(blocks: list[Block]) -> list[Block]:
    """Leave out blocks that hold the same state as one inside them."""
    kept: dict[tuple[str, str, str, str | None], Block] = {}
    for block in blocks:
        pairs = block.pairs
        identity = (
            pairs.get("exitcode", ""),
            pairs.get("finishedat", pairs.get("finished", "")),
            block.head,
            block.container,
        )
        kept.setdefault(identity if identity[0] else ("", "", str(block.line), None), block)
    return list(kept.values())
