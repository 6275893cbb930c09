"""Do the packages `guard` and `sidecar` that were imported belong to this distribution?

Both names also exist on PyPI in other hands, so installing a stranger can overwrite or shadow them. Allowed are an
ordinary install (the files match the hashes of RECORD), an editable one, and a plain checkout on PYTHONPATH.

The `.dist-info` folder is read here and not with importlib.metadata: its import (zipfile, tempfile, bz2, lzma) would
take 0.8 MiB for the life of the daemon. That is asked only for the name of a stranger.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

DISTRIBUTION: Final = "oomguard"
PACKAGES: Final = ("guard", "sidecar")
_INFO: Final = ".dist-info"


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
    ours = _info_folder()
    return "" if ours is None else ours.name.removeprefix(f"{DISTRIBUTION}-").removesuffix(_INFO)


def complaint(files: Mapping[str, Path]) -> str | None:
    """Say in one line which package is not ours and whose it is; None if all is well."""
    roots = {file.parent.parent for file in files.values()}
    ours = _info_folder()
    if ours is None:
        if len(roots) == 1:  # a checkout on PYTHONPATH: both lie side by side
            return None
        return "the packages guard and sidecar come from different places: " + ", ".join(map(str, sorted(roots)))
    checkout = _editable_root(ours)
    for name, file in files.items():
        if not (_installed(ours, name, file) or file.parent.parent in {checkout, _checkout(file)}):
            return _named(name, file)
    return None


def _info_folder() -> Path | None:
    """Give what the installer wrote about this distribution: the first such folder on the path, as for an import."""
    folders = (folder for entry in sys.path for folder in sorted(Path(entry).glob(f"{DISTRIBUTION}-*{_INFO}")))
    return next(folders, None)


def _named(name: str, file: Path) -> str:
    from importlib import metadata

    owners = sorted(set(metadata.packages_distributions().get(name, ())) - {DISTRIBUTION})
    whose = f"the distribution {', '.join(owners)} claims it" if owners else "no installed distribution claims it"
    return (
        f"the package {name!r} in {file.parent} is not oomguard's: {whose}; "
        f"uninstall that and run: pip install --force-reinstall {DISTRIBUTION}"
    )


def _installed(ours: Path, name: str, file: Path) -> bool:
    """Tell whether the file is the one that RECORD lists (`path,algorithm=digest,size`), unchanged since."""
    listed = f"{name}/__init__.py"
    if (ours.parent / listed).resolve() != file:
        return False
    for line in _text(ours / "RECORD").splitlines():
        path, _, rest = line.partition(",")
        if path == listed:
            algorithm, _, digest = rest.partition(",")[0].partition("=")
            return not digest or digest == _digest(file, algorithm)
    return False


def _digest(file: Path, mode: str) -> str:
    digest = hashlib.new(mode, file.read_bytes()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _editable_root(ours: Path) -> Path | None:
    """Give the checkout of an editable install (PEP 610, direct_url.json)."""
    try:
        url = json.loads(_text(ours / "direct_url.json") or "{}")["url"]
    except (ValueError, KeyError):
        return None
    return Path(unquote(urlsplit(url).path)).resolve()


def _checkout(file: Path) -> Path | None:
    """Give the checkout that the file lies in, if its pyproject names this distribution."""
    root = file.parent.parent
    return root if f'name = "{DISTRIBUTION}"' in _text(root / "pyproject.toml") else None


def _text(file: Path) -> str:
    """Read a file; one that is not there says nothing."""
    try:
        return file.read_text()
    except OSError:
        return ""
