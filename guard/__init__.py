"""oomguard's half inside the model server. Importing this package changes nothing; call `install()`."""

from guard.api import Handle, beat, busy, install, loading, on_pressure, report, status

__all__ = ["Handle", "beat", "busy", "install", "loading", "on_pressure", "report", "status"]
