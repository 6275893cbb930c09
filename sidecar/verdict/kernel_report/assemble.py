"""Lines of a kernel log in, OOM reports out, in one pass. Reports may be cut, mixed, repeated and rate limited."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from guard.kernel.values import KmsgRecord
from sidecar.verdict.kernel_report import lines as shapes
from sidecar.verdict.kernel_report.values import OomReport, Scope

STORM_SECONDS: Final = 2.0
"""Kills without a head of their own this soon after one another are one incident: rate limiting hid the heads."""
LONGEST_GAP: Final = 300
"""Foreign lines after which a report is over: other subjects print between its lines."""
_KERNEL_FACILITY: Final = 0

Handler = Callable[["Assembler", "KernelLine"], bool]


@dataclass(frozen=True, slots=True)
class KernelLine:
    """One line of a kernel log without its prefix. `caller` tells apart who printed it, where the log says so."""

    text: str
    at_seconds: float | None
    number: int
    caller: str = ""


class Assembler:
    """Puts lines into reports. A report is over when the next one of the same caller begins, or at the end."""

    def __init__(self) -> None:
        self._open: dict[str, OomReport] = {}
        self._over: list[OomReport] = []
        self._newest: OomReport | None = None

    @property
    def busy(self) -> bool:
        """Tell whether lines that mean nothing by themselves may belong to a report now."""
        return self._newest is not None

    def feed(self, line: KernelLine) -> bool:
        """Take one line; tell whether it belongs to a report."""
        newest = self._newest
        if newest is not None and line.number - newest.last > LONGEST_GAP:
            self._newest = None
        return any(handler(self, line) for handler in _HANDLERS) or self._context(line)

    def finish(self) -> list[OomReport]:
        """Give every report, oldest first, each once even where the log was pasted twice."""
        reports = sorted((*self._over, *self._open.values()), key=lambda report: report.sequence)
        self._over, self._open, self._newest = [], {}, None
        kept: dict[object, OomReport] = {}
        for report in reports:
            if _says_something(report):
                kept.setdefault(_identity(report), report)
        return list(kept.values())

    def _report(self, line: KernelLine, kind: str, *, new: bool) -> OomReport:
        """Give the report that a line belongs to, a new one where it begins one."""
        report = self._open.get(line.caller)
        if report is None or new:
            if report is not None:
                self._over.append(report)
            report = OomReport(at_seconds=line.at_seconds, sequence=line.number)
            self._open[line.caller] = report
        if not report.lines:
            report.at_seconds = line.at_seconds  # of the first statement, not of stray context before it
        report.last = line.number
        report.lines.setdefault(kind, line.number)
        self._newest = report
        return report

    def _current(self, line: KernelLine) -> OomReport | None:
        return self._open.get(line.caller)

    def _invoked(self, line: KernelLine) -> bool:
        found = shapes.INVOKED.match(line.text) if "invoked oom-killer" in line.text else None
        if found is None:
            return False
        current = self._current(line)
        headless = current is not None and not _says_something(current)
        shapes.put_invoked(self._report(line, "invoked", new=not headless), found)
        return True

    def _oom_kill(self, line: KernelLine) -> bool:
        at = line.text.find(shapes.OOM_KILL)
        if at < 0:
            return False
        current = self._current(line)
        new = current is not None and (current.constraint is not None or bool(current.killed or current.selected_pid))
        shapes.put_oom_kill(self._report(line, "oom_kill", new=new), line.text[at:])
        return True

    def _task_in(self, line: KernelLine) -> bool:
        found = shapes.TASK_IN.match(line.text)
        if found is None:
            return False
        current = self._current(line)
        new = current is not None and bool(current.killed or current.oom_memcg or current.selected_pid)
        report = self._report(line, "task_in", new=new)
        report.task_memcg, report.oom_memcg = found[1], found[2]
        return True

    def _group(self, line: KernelLine) -> bool:
        found = shapes.GROUP.match(line.text)
        if found is None:
            return False
        report = self._report(line, "group", new=False)
        report.group = True
        report.stats_memcg = report.stats_memcg or found[1]
        return True

    def _usage(self, line: KernelLine) -> bool:
        found = shapes.USAGE.match(line.text)
        stats = None if found is not None else shapes.STATS.match(line.text)
        if found is None and stats is None:
            return False
        current = self._current(line)
        report = self._report(line, "usage" if found else "stats", new=current is not None and bool(current.killed))
        if found is not None:
            shapes.put_usage(report, found)
        elif stats is not None:
            shapes.put_stats(report, line.text, stats)
        return True

    def _selected(self, line: KernelLine) -> bool:
        found = shapes.SELECTED.search(line.text) if "ill process " in line.text else None
        if found is None:
            return False
        scope = shapes.scope_of_prefix(line.text)
        current = self._current(line)
        new = current is not None and (
            bool(current.killed) or current.selected_pid is not None or _is_other(current, scope)
        )
        report = self._report(line, "selected", new=new)
        report.prefix = report.prefix or scope
        shapes.put_selected(report, found)
        return True

    def _killed(self, line: KernelLine) -> bool:
        found = shapes.KILLED.search(line.text) if "Killed process " in line.text else None
        if found is None:
            return False
        scope = shapes.scope_of_prefix(line.text)
        report = self._report(line, "killed", new=self._is_next_kill(line, scope, int(found[1])))
        report.prefix = report.prefix or scope
        shapes.put_killed(report, line.text, found)
        return True

    def _is_next_kill(self, line: KernelLine, scope: Scope | None, pid: int) -> bool:
        current = self._current(line)
        if current is None or _is_other(current, scope):
            return current is not None
        if not current.killed or current.group or pid in current.pids:
            return False
        return not _is_soon(current, line)

    def _notes(self, line: KernelLine) -> bool:
        text = line.text
        if (found := shapes.SKIPPED.search(text)) is not None:
            report = self._report(line, "skipped", new=False)
            report.prefix = report.prefix or shapes.scope_of_prefix(text)
            report.skipped.append(int(found[1]))
        elif (found := shapes.SUPPRESSED.match(text)) is not None:
            current = self._current(line)
            report = self._report(line, "suppressed", new=current is not None and _says_something(current))
            report.suppressed = int(found[1])
        elif "ut of memory and no killable processes" in text or "panic_on_oom is " in text:
            report = self._report(line, "no_killable", new=False)
            report.no_killable, report.panic = "killable" in text, "panic" in text
        else:
            return False
        return True

    def _reaped(self, line: KernelLine) -> bool:
        found = shapes.REAPED.match(line.text)
        if found is None:
            return False
        pid = int(found[1])
        everyone = [*self._open.values(), *reversed(self._over)]
        owner = next((one for one in everyone if pid in one.pids), self._newest)
        if owner is not None:
            owner.reaped.setdefault(pid, None if found[2] is None else int(found[2]))
        return owner is not None

    def _context(self, line: KernelLine) -> bool:
        report = self._open.get(line.caller)
        if report is None:
            # A table, a call trace or a slab's group before the first line that begins a report.
            report = OomReport(at_seconds=line.at_seconds, sequence=line.number, last=line.number)
            if not shapes.put_context(report, line.text):
                return False
            self._open[line.caller] = self._newest = report
            return True
        if line.number - report.last > LONGEST_GAP or not shapes.put_context(report, line.text):
            return False
        report.last = line.number
        return True


_HANDLERS: Final[tuple[Handler, ...]] = (
    Assembler._invoked,  # noqa: SLF001 - the table of this class's own handlers
    Assembler._oom_kill,  # noqa: SLF001
    Assembler._task_in,  # noqa: SLF001
    Assembler._usage,  # noqa: SLF001
    Assembler._selected,  # noqa: SLF001
    Assembler._killed,  # noqa: SLF001
    Assembler._group,  # noqa: SLF001
    Assembler._notes,  # noqa: SLF001
    Assembler._reaped,  # noqa: SLF001
)


def parse(records: Iterable[KmsgRecord]) -> tuple[OomReport, ...]:
    """Give the reports in records of the live kernel log. Records that a program wrote do not count."""
    assembler = Assembler()
    for record in records:
        if record.facility == _KERNEL_FACILITY:
            text = record.text.partition("\n")[0]
            assembler.feed(KernelLine(text, record.timestamp_us / 1e6, record.sequence))
    return tuple(assembler.finish())


def _says_something(report: OomReport) -> bool:
    """Tell a report from stray context, such as a call trace of another subject."""
    return bool(set(report.lines) - {"suppressed"}) or report.memcg_frames


def _is_other(report: OomReport, scope: Scope | None) -> bool:
    return scope is not None and report.scope is not None and scope is not report.scope


def _is_soon(report: OomReport, line: KernelLine) -> bool:
    if report.at_seconds is None or line.at_seconds is None:
        return True
    return 0 <= line.at_seconds - report.at_seconds <= STORM_SECONDS


def _identity(report: OomReport) -> object:
    """Give the same value for copies of one report only."""
    if report.at_seconds is None:
        return report.sequence
    return (report.at_seconds, report.oom_memcg, report.invoker, tuple(report.pids), report.selected_pid)
