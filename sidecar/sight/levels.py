"""From the paths of a chain to kept descriptors of its levels."""

from __future__ import annotations

from guard.kernel import memcg
from guard.kernel.reader import KeptFile, Reader
from guard.kernel.values import Chain, LevelPath
from guard.model import Reading, Unknown
from sidecar.sample import LevelId
from sidecar.sight.seen import SeenLevel


def open_levels(reader: Reader, chain: Chain) -> tuple[SeenLevel, ...]:
    """Open every level that still exists, own first; a file that cannot be opened is left out."""
    opened = (_open(reader, depth, path) for depth, path in enumerate(chain.levels))
    return tuple(level for level in opened if level is not None)


def close_levels(levels: tuple[SeenLevel, ...]) -> None:
    """Close all their descriptors."""
    for level in levels:
        for file in level.files.values():
            file.close()


def _open(reader: Reader, depth: int, path: LevelPath) -> SeenLevel | None:
    identity: Reading[tuple[int, int]] = reader.identity(path.memory_dir)
    if isinstance(identity, Unknown):
        return None
    trees = {memcg.MEMORY: path.memory_dir, memcg.UNIFIED: path.unified_dir, memcg.CPU: path.cpu_dir}
    files: dict[str, KeptFile] = {}
    for file in memcg.FILES[path.version]:
        directory = trees[file.tree]
        kept = None if directory is None else reader.keep(f"{directory}/{file.name}")
        if isinstance(kept, KeptFile):
            files[file.name] = kept
    return SeenLevel(id=LevelId(*identity.value), name=path.name, depth=depth, version=path.version, files=files)
