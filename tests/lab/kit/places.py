"""Where the checkout and its interpreter are."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

CHECKOUT: Final = Path(__file__).resolve().parents[3]
PYTHON: Final = sys.executable  # not resolved: the link inside the virtual environment is what finds its packages

NEEDED: Final = tuple(dict.fromkeys((str(CHECKOUT), sys.prefix, sys.base_prefix)))
"""Directories that a Python process of this project reads, wherever it runs."""

ALONE: Final = bool(os.environ.get("LAB_ALONE"))
"""Whether this is the machine of `tests.lab.vm`, whose memory nobody else needs."""
