"""Letting requests in, or not while memory is critical; and how many are inside.

The count also tells relief when nobody would feel an emptied GPU cache. It is kept by whoever calls `guard.admit()` as
a context manager, the adapters among them. Light: this is imported with the package and runs once a request.
"""

from __future__ import annotations

import _thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

RETRY_AFTER_SECONDS = 10
"""The sidecar calls pressure over after ten calm seconds (`sidecar.pressure`); sooner there is nothing to hope for."""


class UnderPressureError(RuntimeError):
    """Memory is critical: this request is better tried later, or elsewhere. `retry_after_seconds` for the answer."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.retry_after_seconds = RETRY_AFTER_SECONDS


class Requests:
    """How many requests are inside. `counted` is false until the first one: then zero means nothing."""

    __slots__ = ("_inside", "_lock", "counted")

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Start from nothing: in a forked child the parent's requests are the parent's."""
        self._lock = _thread.allocate_lock()
        self._inside = 0
        self.counted = False

    @property
    def inside(self) -> int:
        """Requests in flight."""
        return self._inside

    def enter(self) -> None:
        """Count one in."""
        with self._lock:
            self.counted = True
            self._inside += 1

    def leave(self) -> None:
        """Count one out; one that a fork took the count of is not there any more."""
        with self._lock:
            self._inside = max(0, self._inside - 1)


class Admission:
    """The answer for one request: true where it may come in. As a context manager it raises, else it counts.

    Made by `guard.admit()`. The decision falls when it is made, and whoever is in stays in.
    """

    __slots__ = ("_requests", "reason")

    def __init__(self, requests: Requests, reason: str | None) -> None:
        self._requests = requests
        self.reason = reason
        """Why not, in words; None where admitted."""

    def __bool__(self) -> bool:
        """Whether the request may come in."""
        return self.reason is None

    def __enter__(self) -> Admission:  # noqa: PYI034 - not made for subclassing; `typing` stays unimported
        """Count the request in.

        Raises:
            UnderPressureError: memory is critical.
        """
        if self.reason is not None:
            raise UnderPressureError(self.reason)
        self._requests.enter()
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        """Count it out; an exception of the request passes."""
        self._requests.leave()


requests = Requests()
