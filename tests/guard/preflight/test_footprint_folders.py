"""Which files of a folder count as its weights."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from guard.footprint import FootprintError, footprint
from guard.footprint.hub import cached
from tests.guard.preflight import checkpoint_files as write


def _index(folder: Path, shards: Mapping[str, int], name: str = "model.safetensors.index.json") -> Path:
    for shard, size in shards.items():
        write.safetensors(folder / shard, {shard: ("BF16", size)})
    weight_map = {f"tensor {shard} {part}": shard for shard in shards for part in range(2)}
    path = folder / name
    path.write_text(json.dumps({"metadata": {"total_size": sum(shards.values())}, "weight_map": weight_map}))
    return path


def test_shards_of_an_index(tmp_path: Path) -> None:
    """Every shard counts once, through the folder or through the index itself; other files do not."""
    index = _index(tmp_path, {"model-00001-of-00002.safetensors": 100, "model-00002-of-00002.safetensors": 50})
    write.safetensors(tmp_path / "consolidated.safetensors", {"all": ("BF16", 150)})
    assert [footprint(tmp_path).tensor_bytes, footprint(index).tensor_bytes] == [150, 150]
    assert len(footprint(tmp_path).files) == 2


def test_many_shards_are_quick(tmp_path: Path) -> None:
    """Past the first shards sizes are enough, and the others count as a like mix: 200 shards in a few milliseconds."""
    _index(tmp_path, {f"model-{i:05}-of-00200.safetensors": 1000 for i in range(200)})
    footprint(tmp_path)
    started = time.process_time()
    found = footprint(tmp_path)
    spent = time.process_time() - started
    wanted = found.bytes_as("F32")
    assert wanted is not None
    assert abs(wanted - 2 * found.tensor_bytes) <= 2 * 200
    assert spent < 0.1


def test_first_kind_wins(tmp_path: Path) -> None:
    """Safetensors are taken before pickles, a whole model before its variants, and no optimizer."""
    write.safetensors(tmp_path / "model.safetensors", {"a": ("F32", 40)})
    write.safetensors(tmp_path / "model.fp16.safetensors", {"a": ("F16", 20)})
    (tmp_path / "pytorch_model.bin").write_bytes(write.LEGACY)
    (tmp_path / "optimizer.bin").write_bytes(write.LEGACY + bytes(1000))
    assert footprint(tmp_path).tensor_bytes == 40
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model.fp16.safetensors").unlink()
    assert len(write.LEGACY) == footprint(tmp_path).tensor_bytes


def test_pipeline_of_components(tmp_path: Path) -> None:
    """A pipeline of diffusers is the sum of its components."""
    (tmp_path / "model_index.json").write_text("{}")
    for name, file in (("unet", "diffusion_pytorch_model.safetensors"), ("text_encoder", "model.safetensors")):
        (tmp_path / name).mkdir()
        write.safetensors(tmp_path / name / file, {"a": ("F32", 40)})
    (tmp_path / "scheduler").mkdir()
    assert footprint(tmp_path).tensor_bytes == 80


def test_pipeline_whose_parts_cannot_be_looked_at(tmp_path: Path) -> None:
    """Names in a folder that lead nowhere, here since they are too long together, are no components."""
    path = str(tmp_path)
    while len(path) < 4000:
        path += "/" + "d" * min(200, 4090 - len(path) - 1)
        Path(path).mkdir()
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    os.close(os.open("model_index.json", os.O_WRONLY | os.O_CREAT, dir_fd=folder))
    os.close(folder)
    with pytest.raises(FootprintError, match="a folder without weights"):
        footprint(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "without a weight_map"),
        ('{"weight_map": []}', "without a weight_map"),
        ('{"weight_map": {"a": "../secret.safetensors"}}', "outside its folder"),
        ('{"weight_map": {"a": "gone.safetensors"}}', "No such file"),
        ("[" * 100_000, "without a weight_map"),
    ],
    ids=["no-json", "no-map", "leads-out", "shard-missing", "deep"],
)
def test_bad_index(text: str, says: str, tmp_path: Path) -> None:
    """An index that cannot be followed is said in one line."""
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(FootprintError, match=says):
        footprint(tmp_path)


def test_repository_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshot of a repository that was downloaded before is found; one that was not, or that leads out, is not."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    folder = tmp_path / "models--org--name"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc123")
    (folder / "snapshots" / "abc123").mkdir(parents=True)
    assert [str(folder / "snapshots" / "abc123"), None, None] == [
        cached("org/name"),
        cached("org/other"),
        cached("../name"),
    ]
