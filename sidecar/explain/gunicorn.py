"""gunicorn's arbiter: "was sent SIGKILL! Perhaps out of memory?" is its own doing after a WORKER TIMEOUT."""

from __future__ import annotations

import re
from typing import Final

from sidecar.explain.ends import end_fields
from sidecar.explain.patterns import quote
from sidecar.explain.values import Field, Line, Role, Sign, seen
from sidecar.verdict.values import Confidence, EndClass

_BOOT: Final = re.compile(r"Booting worker with pid: (\d{1,10})")
_TIMEOUT: Final = re.compile(r"WORKER TIMEOUT \(pid:(\d{1,10})\)")
_SENT: Final = re.compile(r"Worker \(pid:(\d{1,10})\) was sent (SIG[A-Z]+|code (\d{1,3}))!")


class GunicornParser:
    """Keeps which worker began, timed out and was killed; one sign for all kills of one kind."""

    def __init__(self) -> None:
        self._began: dict[int, Line] = {}
        self._late: dict[int, Line] = {}
        self._killed: dict[int, Line] = {}
        self._codes: dict[str, Field] = {}

    def feed(self, line: Line) -> bool:
        """Take one line; tell whether the arbiter wrote it."""
        if (found := _BOOT.search(line.text)) is not None:
            self._began[int(found[1])] = line
        elif (found := _TIMEOUT.search(line.text)) is not None:
            self._late[int(found[1])] = line
        elif (found := _SENT.search(line.text)) is not None:
            self._killed[int(found[1])] = line
            if found[3]:
                self._codes[found[1]] = int(found[3])
        else:
            return False
        return True

    def finish(self) -> list[Sign]:
        """Give the signs: timeouts with their kills, and kills that nobody explains."""
        told = [pid for pid in self._killed if pid in self._late]
        silent = [pid for pid in self._killed if pid not in self._late]
        signs = []
        if self._late:
            signs.append(self._timeout(told))
        kills = [pid for pid in silent if "SIGKILL" in self._killed[pid].text]
        if kills:
            signs.append(self._kill(kills))
        signs.extend(self._other(pid) for pid in silent if pid not in kills)
        return signs

    def _timeout(self, told: list[int]) -> Sign:
        first = next(iter(self._late.values()))
        fields: dict[str, Field] = {
            "subtype": "gunicorn worker timeout",
            "workers": list(told or self._late),
            "timeout_s": self._patience(),
            "codes": dict(self._codes) or None,
        }
        lines = [*self._late.values(), *(self._killed[pid] for pid in told)]
        summary = "gunicorn's arbiter killed workers that did not answer in time; lack of memory is only its guess"
        return _sign(first, lines, EndClass.HEALTH_CHECK, Confidence.HIGH, (summary, fields))

    def _kill(self, kills: list[int]) -> Sign:
        lines = [self._killed[pid] for pid in kills]
        began: list[Field] = [pid for pid in self._began if pid in kills or pid not in self._killed]
        workers: list[Field] = [*kills]
        fields: dict[str, Field] = {
            "scope": "child worker only",
            "workers": workers,
            "workers_started": began,
            "container_restarts": False,
            "signal": "SIGKILL",
        }
        summary = "workers of gunicorn got SIGKILL with no timeout before: most likely the container's memory limit"
        return _sign(lines[0], lines, EndClass.CGROUP_OOM, Confidence.LOW, (summary, fields))

    def _other(self, pid: int) -> Sign:
        line = self._killed[pid]
        found = _SENT.search(line.text)
        assert found is not None
        fields = end_fields(code=int(found[3])) if found[3] else end_fields(code=None, signal=found[2])
        end_class, confidence = EndClass(str(fields.pop("end_class"))), Confidence(str(fields.pop("confidence")))
        return _sign(line, [line], end_class, confidence, (str(fields.pop("summary")), {**fields, "worker_pid": pid}))

    def _patience(self) -> int | None:
        """Give the timeout: from a worker's start to its timeout, where the clock allows."""
        for pid, line in self._late.items():
            began = self._began.get(pid)
            if began is not None and began.stamp is not None and line.stamp is not None:
                apart = began.stamp.apart(line.stamp)
                return None if apart is None else round(apart)
        return None


def _sign(
    first: Line, lines: list[Line], end_class: EndClass, confidence: Confidence, said: tuple[str, dict[str, Field]]
) -> Sign:
    guessed = confidence is Confidence.LOW
    return Sign(
        role=Role.CAUSE,
        source="gunicorn",
        file=first.file,
        line=first.number,
        end_class=end_class,
        confidence=confidence,
        subject="gunicorn",
        summary=said[0],
        stamp=first.stamp,
        fields=said[1],
        evidence=tuple(seen(quote(one.text), one.file, one.number) for one in lines[:8]),
        missing=("an OOM kill to prove it: oom_kill in memory.events of the container, or the kernel log",)
        if guessed
        else (),
    )
