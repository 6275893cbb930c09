"""Before each load of some size: does what it surely takes fit into what is left?

OOMGUARD_PREFLIGHT=warn (the default) logs one line, `raise` raises `WouldNotFit` into the host, `off` looks at nothing.
It costs one or two milliseconds, and nothing for a load below 64 MiB or one that needs no memory of its own.
"""

from __future__ import annotations

import os
import sys

from guard.refusal import WouldNotFit
from guard.switches import is_off

SWITCH = "OOMGUARD_PREFLIGHT"
_SMALL_BYTES = 64 << 20


def check(label: str, path: str | None, expected: int | None, surely: int | None) -> None:
    """Look, and warn or raise. Raises: `WouldNotFit` where the host asked for it."""
    policy = os.environ.get(SWITCH, "warn").strip().lower()
    if is_off(SWITCH) or (surely is None and not expected):
        return
    from guard.box.load_costs import COSTS, OTHER

    if surely is None:
        surely = int(COSTS.get(label, OTHER).at_least * (expected or 0))
    if surely < _SMALL_BYTES:
        return
    from guard.fit.rooms import binding, rooms
    from guard.fit.units import human
    from guard.kernel.reader import Reader
    from guard.model import Known

    tightest = binding(rooms(Reader()))
    if tightest is None or not isinstance(tightest.left_bytes, Known) or not isinstance(tightest.left_bytes.value, int):
        return
    if surely <= tightest.left_bytes.value:
        return
    text = (
        f"would not fit: {label} of {path or 'what is loaded'} takes at least {human(surely)} "
        f"that cannot be reclaimed, {human(max(0, tightest.left_bytes.value))} left in {tightest.where}"
    )
    if policy == "raise":
        raise WouldNotFit(text)
    _warn(text)


def _warn(text: str) -> None:
    """Say it in the host's log, or on standard error where the host has none yet."""
    import logging

    logger = logging.getLogger("oomguard")
    if logger.hasHandlers():
        logger.warning("%s", text)
    elif sys.stderr is not None:
        sys.stderr.write(f"oomguard: {text}\n")
