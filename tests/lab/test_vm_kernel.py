"""Where the machine cannot be had, the reason is advice."""

from __future__ import annotations

import pytest

from tests.lab.vm.kernel import NotAvailableError, ensure


def test_missing_tools_are_named_as_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without qemu and busybox in PATH the error says which Debian packages to install."""
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(NotAvailableError, match=r"apt-get install .*busybox-static.*qemu-system-x86"):
        ensure()
