"""Pretend cards for a test. No GPU is involved.

torch's own CUDA caching allocator, observers and messages run on a stand-in CUDA runtime (csrc/): memory is counted
and copied, kernels are accepted and not run. So it tests how a failure is handled, never how much a model needs and
never a result.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

LIBRARIES: Final = Path(sysconfig.get_path("platlib"), "nvidia", "cu13", "lib")
"""Where build.py puts the stubs. torch finds them itself; pynvml needs the folder in LD_LIBRARY_PATH."""

_WANTED = "OOMGUARD_PRETEND_GPU"


class PretendCards:
    """Cards that live in a folder, seen by every process that has `environment` in its own.

    Settings are those of csrc/card/card.h, for example `{"gpu0.total": "1G", "gpu0.context": "12M"}`. A value that is a
    list gives one line for each of its elements (`"xid": ["0:79"]`).
    """

    def __init__(self, folder: Path, settings: Mapping[str, object] | None = None) -> None:
        self.folder: Final = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.set(settings or {})

    def set(self, settings: Mapping[str, object]) -> None:
        """Replace all settings at once; running processes see it at their next call."""
        lines = [f"{key}={one}\n" for key, value in settings.items() for one in _values(value)]
        partial = self.folder / "cards.partial"
        partial.write_text("".join(lines))
        partial.rename(self.folder / "cards")

    @property
    def environment(self) -> dict[str, str]:
        """Return the whole environment for a process that has these cards."""
        return {**os.environ, _WANTED: str(self.folder), "LD_LIBRARY_PATH": str(LIBRARIES)}

    def python(self, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run Python code with these cards; Python's warnings are errors. Does not raise for a status that is not 0."""
        return subprocess.run(
            [sys.executable, "-W", "error", "-c", code],
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )


def _values(value: object) -> Iterable[object]:
    return value if isinstance(value, list | tuple) else (value,)
