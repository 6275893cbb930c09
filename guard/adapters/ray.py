"""Ray: the guard in every worker process, and a Serve health check that asks the sidecar.

    ray.init(runtime_env={"worker_process_setup_hook": "guard.adapters.ray.setup"})

Ray imports this module by name before a worker's first task; a module that cannot be imported there keeps the worker
from starting, so it is standard library alone and `guard` must be installed in the workers' environment.
"""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from typing import Final

from guard.fence import fence

_FAILED: Final = 503
_TEXT_LIMIT: Final = 500


def setup() -> None:
    """Install the guard in this worker; raises nothing."""
    with fence("ray setup"):
        import guard

        guard.install()


class UnhealthyError(RuntimeError):
    """The sidecar says that this replica's model is not alive."""


class ServeHealth:
    """Mixin for a Serve deployment: unhealthy exactly where the sidecar's liveness answer fails.

    So a replica that is dead or hung past every excuse is replaced, for the reason that stands in the error. A sidecar
    that does not answer says nothing: ignorance must not kill a replica. Serve asks in the replica's own event loop,
    so leniency that the loop itself does not have (a blocked loop) cannot be added here; set
    `health_check_timeout_s` for that.
    """

    oomguard_livez = "http://127.0.0.1:9475/livez"
    """The sidecar's answer about this replica; of several models add the name: `/livez/NAME`."""
    oomguard_timeout_seconds = 1.0

    async def check_health(self) -> None:
        """Ask the sidecar, in a thread.

        Raises:
            UnhealthyError: it says that the model is not alive.
        """
        reason = await asyncio.to_thread(_why_not_alive, self.oomguard_livez, self.oomguard_timeout_seconds)
        if reason is not None:
            raise UnhealthyError(reason)


def _why_not_alive(url: str, timeout_seconds: float) -> str | None:
    try:
        with urllib.request.urlopen(url, timeout=timeout_seconds):  # noqa: S310 - the deployment's own setting
            return None
    except urllib.error.HTTPError as answer:
        with answer:
            return answer.read(_TEXT_LIMIT).decode(errors="replace") if answer.code == _FAILED else None
    except (OSError, ValueError):
        return None
