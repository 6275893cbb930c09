"""systemd as a supervisor: two short commands behind an end, each with a deadline. Nothing runs in between."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from sidecar.clock import Clock
from sidecar.supervisors.systemd_unit import FIELDS, PROPERTIES, Moment, properties_of, records_of, unit, unit_of
from sidecar.supervisors.values import Container, Subject, Take, Trouble

_DEADLINE_SECONDS: Final = 5.0
_BACK_SECONDS: Final = 600
"""How far back the journal is read: the longest usual stop, and some."""
_LINES: Final = 500


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
        units = {unit_of(one, self._names) for one in self._subjects()}
        containers = [await self._unit(name) for name in sorted(name for name in units if name is not None)]
        take([one for one in containers if one is not None], None)

    async def _unit(self, name: str) -> Container | None:
        show = await _run("systemctl", "show", f"--property={PROPERTIES}", "--", name)
        since = f"--since=-{_BACK_SECONDS}s"
        where = ("--output=json", f"--output-fields={FIELDS}", since, f"--lines={_LINES}", "--no-pager", "--quiet")
        journal = await _run("journalctl", *where, "_PID=1", f"UNIT={name}")
        now = self._clock.now()
        moment = Moment(monotonic_s=now.monotonic_s, wall_s=now.wall_s)
        return unit(properties_of(show.decode("utf-8", "replace")), records_of(journal), moment)


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
    if process.returncode != 0:
        words = " ".join(err.decode("utf-8", "replace").split())[:200]
        raise Trouble(f"{command[0]} ended with status {process.returncode}: {words}", lasting=True)
    return out
