"""`guard.preflight`. Light: what it needs is imported when it is called."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from guard.fit.values import Preflight


def preflight(  # noqa: PLR0913 - one call asks one question; all but the first two have names
    what: str | bytes | os.PathLike[str] | os.PathLike[bytes],
    device: object = None,
    *,
    path: str | None = None,
    dtype: object = None,
    policy: str = "warn",
    wait_seconds: float = 300.0,
) -> Preflight:
    """Say whether loading a checkpoint fits into what is left here, from its headers alone (<= 10 ms).

    Args:
        what: a weight file, an index of shards, or a folder with either.
        device: where the tensors end up: None or "cpu", "cuda", "cuda:N", a torch.device.
        path: how it is loaded, a name of docs/preflight.md such as "torch.load(mmap=True) + assign"; None: the usual
            way for its format.
        dtype: element type that the model will have, for example torch.float32; None: as stored.
        policy: what happens when it would not fit: "warn" logs it, "raise" raises, "wait" waits until it fits.
        wait_seconds: how long "wait" waits before it raises.

    Returns:
        The answer with its arithmetic; `str()` of it is for people, `.fits` is None where it cannot be told.

    Raises:
        WouldNotFit: it would not fit, and the policy says so.
        guard.footprint.FootprintError: missing, cut off, a folder without weights, an unknown format (a ValueError).
        ValueError: no such path, policy, device or element type.
    """
    from guard.fit.check import ask, enforce

    return enforce(ask(what, device=device, path=path, dtype=dtype), policy, wait_seconds)
