"""oomguard's half inside the model server. Importing this package changes nothing; call `install()`."""

from guard.admission import UnderPressureError
from guard.api import (
    Handle,
    admit,
    beat,
    busy,
    cuda_memory,
    install,
    loading,
    on_pressure,
    relieve,
    report,
    status,
)
from guard.fit.front import preflight
from guard.refusal import WouldNotFit
from guard.tags import tag

__all__ = [
    "Handle",
    "UnderPressureError",
    "WouldNotFit",
    "admit",
    "beat",
    "busy",
    "cuda_memory",
    "install",
    "loading",
    "on_pressure",
    "preflight",
    "relieve",
    "report",
    "status",
    "tag",
]
