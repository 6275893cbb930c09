"""Ports on loopback for servers of the tests."""

from __future__ import annotations

import socket


def free_port() -> int:
    """Return a port on loopback that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
