"""Which CUDA symbols an installed torch wants from which library, read from its ELF files with binutils."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_DRIVER = "libcuda.so.1"
_CUDA_LIBRARY = re.compile(r"lib(cu[a-z]+|nv[a-z_-]+|nccl)\.so\.", re.IGNORECASE)
_NEEDED = re.compile(r"\(NEEDED\).*\[(?P<soname>[^\]]+)\]")
_VERSION_FILE = re.compile(r"Version: \d+\s+File: (?P<soname>\S+)\s+Cnt:")
_VERSION_NAME = re.compile(r"Name: (?P<version>\S+)\s+Flags:")


@dataclass(slots=True)
class Need:
    """What one absent library must export. `version` is its symbol version node, None where it has none."""

    soname: str
    version: str | None = None
    symbols: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Library:
    """What one ELF file says: libraries it names, their version nodes, its undefined and defined symbols."""

    needed: set[str]
    version_of: dict[str, str]  # version node to soname
    versioned: set[tuple[str, str]]  # (symbol, version node)
    plain: set[str]
    defined: set[str]


def _tool(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _versions(path: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    soname = ""
    for line in _tool("readelf", "-VW", str(path)).splitlines():
        if match := _VERSION_FILE.search(line):
            soname = match["soname"]
        elif (match := _VERSION_NAME.search(line)) and soname:
            found[match["version"]] = soname
    return found


def _inspect(path: Path) -> _Library:
    versioned, plain, defined = set(), set(), set()
    for line in _tool("nm", "-D", "--with-symbol-versions", str(path)).splitlines():
        *_, kind, symbol = line.split()
        name, _, version = symbol.partition("@")
        if kind not in "Uwv":
            defined.add(name)
        elif kind == "U" and version:
            versioned.add((name, version.lstrip("@")))
        elif kind == "U":
            plain.add(name)
    needed = {match["soname"] for match in _NEEDED.finditer(_tool("readelf", "-dW", str(path)))}
    return _Library(needed, _versions(path), versioned, plain, defined)


def _owner(symbol: str, sonames: Iterable[str]) -> str | None:
    """The library whose name begins the symbol (ncclSend: libnccl). What else begins with `cu` is the driver's."""
    stems = {soname: soname.removeprefix("lib").split(".")[0].lower() for soname in sonames if soname != _DRIVER}
    fitting = [soname for soname, stem in stems.items() if symbol.lower().startswith(stem)]
    if fitting:
        return max(fitting, key=len)
    return _DRIVER if symbol.startswith("cu") else None


def torch_files(site: Path) -> list[Path]:
    """The ELF files of torch below a site-packages folder; empty when torch is not installed there."""
    patterns = ("torch/lib/*.so*", "torch/_C*.so", "functorch/_C*.so")
    return sorted(path for pattern in patterns for path in site.glob(pattern))


def cuda_needs(files: Iterable[Path]) -> Mapping[str, Need]:
    """By soname, each CUDA library that `files` (torch's libraries) name, with the symbols it must have.

    A CUDA toolkit that the loader finds elsewhere on this machine counts for nothing: torch alone decides.
    """
    libraries = {path.name: _inspect(path) for path in files}
    named = {soname for library in libraries.values() for soname in library.needed}
    needs = {soname: Need(soname) for soname in sorted(named) if _CUDA_LIBRARY.match(soname)}
    defined = {symbol for library in libraries.values() for symbol in library.defined}
    unversioned: defaultdict[str, set[str]] = defaultdict(set)
    for library in libraries.values():
        for symbol, version in library.versioned:
            need = needs.get(library.version_of.get(version, ""))
            if need is not None:
                need.version = version
                need.symbols.add(symbol)
        for symbol in library.plain - defined:
            if owner := _owner(symbol, needs):
                unversioned[owner].add(symbol)
    for soname, symbols in unversioned.items():
        if soname in needs:
            needs[soname].symbols |= symbols
    return needs
