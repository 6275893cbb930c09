"""Where the Hugging Face cache keeps a repository that was downloaded before (huggingface_hub, "Cache system")."""

from __future__ import annotations

import os
import posixpath
from pathlib import Path

_NAME_BYTES = 200


def cached(repository: str, revision: str = "main") -> str | None:
    """Give the folder of a repository's snapshot; None if it is not there. Nothing is asked of a network."""
    home = os.environ.get("HF_HOME") or posixpath.join(os.path.expanduser("~"), ".cache", "huggingface")  # noqa: PTH111 - as below
    cache = os.environ.get("HF_HUB_CACHE") or posixpath.join(home, "hub")
    parts = [*repository.split("/"), revision]
    if any(part in ("", ".", "..") or len(part) > _NAME_BYTES or "\0" in part for part in parts):
        return None
    folder = posixpath.join(cache, "models--" + repository.replace("/", "--"))
    try:
        with open(posixpath.join(folder, "refs", revision), encoding="ascii") as file:  # noqa: PTH123 - read with a limit
            commit = file.read(_NAME_BYTES).strip()
    except (OSError, ValueError):
        commit = revision  # a commit by its own name
    snapshot = posixpath.join(folder, "snapshots", commit)
    return snapshot if "/" not in commit and Path(snapshot).is_dir() else None
