"""Do the packages `guard` and `sidecar` that were imported belong to this distribution?

Both names also exist on PyPI in other hands, so installing a stranger can overwrite or shadow them. Allowed are an
ordinary install (the files match the hashes of RECORD), an editable one, and a plain checkout on PYTHONPATH.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

DISTRIBUTION: Final = "oomguard"
PACKAGES: Final = ("guard", "sidecar")


def imported_packages() -> Mapping[str, Path]:
    """Say where the two packages were imported from."""
    import guard
    import sidecar

    return {
        package.__name__: Path(package.__file__ or f"{package.__name__} without a file").resolve()
        for package in (guard, sidecar)
    }


def release() -> str:
    """Give the release that is installed; empty in a plain checkout."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return ""


def complaint(files: Mapping[str, Path]) -> str | None:
    """Say in one line which package is not ours and whose it is; None if all is well."""
    roots = {file.parent.parent for file in files.values()}
    try:
        ours = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        if len(roots) == 1:  # a checkout on PYTHONPATH: both lie side by side
            return None
        return "the packages guard and sidecar come from different places: " + ", ".join(map(str, sorted(roots)))
    checkout = _editable_root(ours)
    for name, file in files.items():
        if not (_installed(ours, name, file) or file.parent.parent in {checkout, _checkout(file)}):
            return _named(name, file)
    return None


def _named(name: str, file: Path) -> str:
    owners = sorted(set(metadata.packages_distributions().get(name, ())) - {DISTRIBUTION})
    whose = f"the distribution {', '.join(owners)} claims it" if owners else "no installed distribution claims it"
    return (
        f"the package {name!r} in {file.parent} is not oomguard's: {whose}; "
        f"uninstall that and run: pip install --force-reinstall {DISTRIBUTION}"
    )


def _installed(ours: metadata.Distribution, name: str, file: Path) -> bool:
    """Tell whether the file is the one that RECORD lists, unchanged since."""
    for entry in ours.files or ():
        if entry.as_posix() == f"{name}/__init__.py" and Path(str(entry.locate())).resolve() == file:
            return entry.hash is None or entry.hash.value == _digest(file, entry.hash.mode)
    return False


def _digest(file: Path, mode: str) -> str:
    digest = hashlib.new(mode, file.read_bytes()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _editable_root(ours: metadata.Distribution) -> Path | None:
    """Give the checkout of an editable install (PEP 610, direct_url.json)."""
    try:
        url = json.loads(ours.read_text("direct_url.json") or "{}")["url"]
    except (ValueError, KeyError):
        return None
    return Path(unquote(urlsplit(url).path)).resolve()


def _checkout(file: Path) -> Path | None:
    """Give the checkout that the file lies in, if its pyproject names this distribution."""
    root = file.parent.parent
    try:
        text = (root / "pyproject.toml").read_text()
    except OSError:
        return None
    return root if f'name = "{DISTRIBUTION}"' in text else None
