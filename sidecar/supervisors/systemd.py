"""systemd as a supervisor: two short commands behind an end, each with a deadline. Nothing runs in between."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from sidecar.clock import Clock
from sidecar.supervisors.systemd_unit import FIELDS, PROPERTIES, Moment, properties_of, records_of, unit, unit_of
from sidecar.supervisors.values import Subject, Take, Trouble

_DEADLINE_SECONDS: Final = 5.0
_JOURNAL: Final = (
    *("journalctl", "--no-pager", "--quiet", "--output=json", f"--output-fields={FIELDS}"),
    *("--since=-600s", "--lines=500", "_PID=1"),
)
"""systemd's own lines of the last ten minutes: the longest usual stop, and some."""


class SystemdSource:
    """See `values.Source`."""

    name = "systemd"

    def __init__(
        self, clock: Clock, *, names: Mapping[str | None, str], subjects: Callable[[], Sequence[Subject]]
    ) -> None:
        self._clock = clock
        self._names = names
        self._subjects = subjects

    async def follow(self, take: Take) -> None:
        """Wait: systemd is asked behind an end alone."""
        del take
        await asyncio.Event().wait()

    async def look(self, take: Take) -> None:
        """Ask about the unit of every model that has one."""
        names = {unit_of(one, self._names) for one in self._subjects()}
        containers, lacking = [], None
        for name in sorted(name for name in names if name is not None):
            show = await _run("systemctl", "show", f"--property={PROPERTIES}", "--", name)
            try:
                records = records_of(await _run(*_JOURNAL, f"UNIT={name}"))
            except Trouble as exc:  # `show` alone tells the last end until the next start
                records, lacking = [], str(exc)
            now = self._clock.now()
            moment = Moment(monotonic_s=now.monotonic_s, wall_s=now.wall_s)
            containers.append(unit(properties_of(show.decode("utf-8", "replace")), records, moment))
        take([one for one in containers if one is not None], lacking)


async def _run(*command: str) -> bytes:
    """Give what a command prints."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as exc:
        raise Trouble(f"{command[0]}: {exc.strerror}", lasting=True) from exc
    try:
        out, err = await asyncio.wait_for(process.communicate(), _DEADLINE_SECONDS)
    except TimeoutError as exc:
        raise Trouble(f"{command[0]} gave no answer within {_DEADLINE_SECONDS:g} s") from exc
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if process.returncode != 0:
        words = " ".join(err.decode("utf-8", "replace").split())[:200]
        raise Trouble(f"{command[0]} ended with status {process.returncode}: {words}", lasting=True)
    return out
