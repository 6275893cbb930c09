"""Loads through the libraries that people use: one mark each, by the outermost call, with what it reads told inside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from guard.model import Operation, OperationKind
from tests.guard.hosts import boxes, only_box, run_host

pytestmark = [pytest.mark.torch, pytest.mark.slow]

_START = """
import guard, io, json, os, sys, warnings
guard.install()
warnings.simplefilter("ignore")
folder = {folder!r}
import torch
"""
_END = """
print(json.dumps([guard.status().trouble_count, guard.status().troubles]))
"""


def _operations(code: str, folder: Path) -> list[Operation]:
    ended = run_host(_START.format(folder=str(folder)) + code + _END, folder, {"HF_HUB_OFFLINE": "1"})
    assert ended.returncode == 0, ended.err
    assert json.loads(ended.out.splitlines()[-1]) == [0, []]
    operations = sorted(only_box(folder).operations, key=lambda operation: operation.started_monotonic_s)
    assert all(operation.done for operation in operations)
    return operations


def _told(operation: Operation) -> tuple[str, str | None, str | None, bool]:
    """Label, file, item, and whether all bytes were done in the end."""
    whole = operation.bytes_done is not None and operation.bytes_done == operation.bytes_expected
    return operation.label, operation.file and Path(operation.file).name, operation.item, whole


def test_torch(tmp_path: Path) -> None:
    """`torch.load` in all its ways, TorchScript, exported programs, and what moves or fills a model."""
    operations = _operations(
        """
model = torch.nn.Sequential(torch.nn.Linear(8, 8, bias=False), torch.nn.Linear(8, 8))
def path(name): return os.path.join(folder, name)
torch.save(model.state_dict(), path("zip.pt"))
torch.save(model.state_dict(), path("legacy.pt"), _use_new_zipfile_serialization=False)
torch.jit.script(model).save(path("script.pt"))
torch.export.save(torch.export.export(model.eval(), (torch.zeros(1, 8),)), path("exported.pt2"))
weights = torch.load(path("zip.pt"))
torch.load(path("zip.pt"), weights_only=False)
torch.load(path("zip.pt"), mmap=True)
torch.load(path("zip.pt"), map_location="meta")
torch.load(io.BytesIO(open(path("zip.pt"), "rb").read()))
torch.load(path("legacy.pt"))
torch.jit.load(path("script.pt"))
torch.export.load(path("exported.pt2"))
model.load_state_dict(weights)
model.half(); model.float(); model.to(torch.float64)
try: torch._inductor.aoti_load_package(path("zip.pt"))
except Exception: pass
""",
        tmp_path,
    )
    assert [_told(one) for one in operations] == [
        ("torch.load", "zip.pt", "1.bias (data/2)", True),
        ("torch.load", "zip.pt", "data/2", True),
        ("torch.load(mmap=True)", "zip.pt", None, True),
        ("torch.load(map_location=device)", "zip.pt", None, True),
        ("torch.load(BytesIO)", None, "1.bias (data/2)", True),
        ("torch.load", "legacy.pt", None, True),
        ("torch.jit.load", "script.pt", None, True),
        ("torch.export.load", "exported.pt2", operations[7].item, True),
        ("load_state_dict", None, "1.weight, bias", True),
        ("Sequential.half", None, "1", True),
        ("Sequential.float", None, "1", True),
        ("Sequential.to", None, "1", True),
        ("torch.aoti_load_package", "zip.pt", None, False),
    ]
    assert {one.kind for one in operations[9:12]} == {OperationKind.MOVE}


def test_safetensors(tmp_path: Path) -> None:
    """`load_model` tells what it copies, slices count when they are read, and each call is one mark."""
    operations = _operations(
        """
import safetensors.torch as st
from safetensors import safe_open
model = torch.nn.Sequential(torch.nn.Linear(8, 8, bias=False), torch.nn.Linear(8, 8, bias=False))
path = os.path.join(folder, "m.safetensors")
st.save_model(model, path)
st.load_model(model, path)
st.load_file(path, backend="pread")
with safe_open(path, "pt") as opened:
    slices = {name: opened.get_slice(name) for name in opened.keys()}
    slices["0.weight"][:4]
    slices["1.weight"][...]
""",
        tmp_path,
    )
    assert [_told(one) for one in operations] == [
        ("safetensors.torch.load_model", "m.safetensors", "1.weight", True),
        ("safetensors.torch.load_file(backend='pread')", "m.safetensors", None, True),
        ("safetensors.safe_open", "m.safetensors", "1.weight", False),
    ]
    assert operations[2].bytes_done == 4 * 8 * 4 + 8 * 8 * 4


def test_host_code_in_a_block_is_its_own(tmp_path: Path) -> None:
    """What the host does with other things inside `with safe_open` has marks of its own."""
    operations = _operations(
        """
import safetensors.torch as st
from safetensors import safe_open
path = os.path.join(folder, "m.safetensors")
st.save_file({"a": torch.zeros(8)}, path)
torch.save({"b": torch.zeros(8)}, os.path.join(folder, "other.pt"))
with safe_open(path, "pt") as opened:
    opened.get_tensor("a")
    torch.load(os.path.join(folder, "other.pt"))
    torch.nn.Linear(2, 2).half()
""",
        tmp_path,
    )
    assert [one.label for one in operations] == ["safetensors.safe_open", "torch.load", "Linear.half"]


def test_transformers_accelerate_diffusers(tmp_path: Path) -> None:
    """A model of many files is one mark: the folder, the shard and tensor in flight, and every byte once."""
    pytest.importorskip("transformers")
    pytest.importorskip("diffusers")
    operations = _operations(
        """
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
config = LlamaConfig(hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, vocab_size=64)
model = LlamaForCausalLM(config).to(torch.bfloat16)
llama = os.path.join(folder, "llama")
model.save_pretrained(llama, max_shard_size="5KB")
AutoModelForCausalLM.from_pretrained(llama, dtype=torch.float32)
import accelerate
with accelerate.init_empty_weights(): empty = LlamaForCausalLM(config)
accelerate.load_checkpoint_and_dispatch(empty, llama, device_map={"": "cpu"})
accelerate.load_checkpoint_in_model(model, llama)
from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel
unet = UNet2DModel(sample_size=8, block_out_channels=(32,), down_block_types=("DownBlock2D",),
                   up_block_types=("UpBlock2D",), norm_num_groups=8)
DDPMPipeline(unet=unet, scheduler=DDPMScheduler()).save_pretrained(os.path.join(folder, "pipe"))
DDPMPipeline.from_pretrained(os.path.join(folder, "pipe"))
UNet2DModel.from_pretrained(os.path.join(folder, "pipe"), subfolder="unet")
LlamaForCausalLM.from_pretrained(pretrained_model_name_or_path=folder, subfolder="llama", dtype=torch.float32)
""",
        tmp_path,
    )
    told = [_told(one) for one in operations if not one.label.endswith(".to")]
    assert [(label, file, whole) for label, file, _, whole in told] == [
        ("transformers.from_pretrained", "llama", True),
        ("accelerate.load_checkpoint", "llama", True),
        ("accelerate.load_checkpoint", "llama", True),
        ("diffusers.from_pretrained", "pipe", True),
        ("diffusers.from_pretrained", "unet", True),
        ("transformers.from_pretrained", "llama", True),
    ]
    items = [item or "" for _, _, item, _ in told]
    assert items[0].startswith("model-0000")
    assert ".safetensors: " in items[0]
    assert all(item.endswith(".weight") or "weight" in item or "bias" in item for item in items[1:])


def test_native_constructors(tmp_path: Path) -> None:
    """Constructors of onnxruntime, gguf and CTranslate2 tell file and size, also where they fail."""
    for package in ("onnxruntime", "gguf", "ctranslate2"):
        pytest.importorskip(package)
    operations = _operations(
        f"""
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from pathlib import Path
from tests.guard.preflight import checkpoint_files as write
def tried(call, *arguments):
    try: call(*arguments)
    except Exception: pass
import onnxruntime, gguf, ctranslate2
here = Path(folder)
onnxruntime.set_default_logger_severity(4)
tried(onnxruntime.InferenceSession, str(write.onnx(here / "m.onnx", 64)))
tried(onnxruntime.InferenceSession, (here / "m.onnx").read_bytes())
gguf.GGUFReader(write.gguf(here / "m.gguf", [("a", 64)]))
(here / "ct").mkdir()
write.ctranslate2(here / "ct" / "model.bin", 100)
tried(ctranslate2.Translator, str(here / "ct"))
tried(ctranslate2.models.Whisper, str(here / "ct"))
""",
        tmp_path,
    )
    assert [(one.label, one.file and Path(one.file).name, bool(one.bytes_expected)) for one in operations] == [
        ("onnxruntime.InferenceSession", "m.onnx", True),
        ("onnxruntime.InferenceSession(bytes)", None, True),
        ("gguf.GGUFReader", "m.gguf", True),
        ("ctranslate2", "ct", True),
        ("ctranslate2", "ct", True),
    ]


def test_llama_cpp_by_a_stand_in(tmp_path: Path) -> None:
    """`llama_cpp.Llama` is told with its file. PyPI has no wheel of it: a package of the same shape stands in."""
    package = tmp_path / "llama_cpp"
    package.mkdir()
    (package / "__init__.py").write_text("from .llama import Llama\n")
    (package / "llama.py").write_text(
        "class Llama:\n    def __init__(self, model_path, *, use_mmap=True):\n        open(model_path, 'rb').close()\n"
    )
    (operation,) = _operations(
        f"""
sys.path[:0] = [folder, {str(Path(__file__).parents[3])!r}]
from pathlib import Path
from tests.guard.preflight import checkpoint_files as write
import llama_cpp
llama_cpp.Llama(model_path=str(write.gguf(Path(folder) / "m.gguf", [("a", 64)])))
""",
        tmp_path,
    )
    assert _told(operation) == ("llama_cpp.Llama", "m.gguf", None, True)


def test_uninstall_gives_everything_back(tmp_path: Path) -> None:
    """After `uninstall` no function of a library is a wrapper, in whichever package it is looked up."""
    ended = run_host(
        """
import warnings; warnings.simplefilter("ignore")
import torch, guard
handle = guard.install()
import torch.jit, torch.export, accelerate, safetensors, onnxruntime
from transformers.modeling_utils import PreTrainedModel
from diffusers import DDPMPipeline, UNet2DModel
import accelerate.utils.modeling, diffusers.models.model_loading_utils as loading
def places():
    return [
        torch.load, torch.jit.load, torch.export.load, accelerate.load_checkpoint_in_model,
        accelerate.load_checkpoint_and_dispatch, loading.set_module_tensor_to_device,
        PreTrainedModel.from_pretrained.__func__, DDPMPipeline.from_pretrained.__func__,
        UNet2DModel.from_pretrained.__func__, torch.nn.Module._apply, torch.nn.Module.load_state_dict,
        onnxruntime.InferenceSession.__init__,
    ]
def ours(one): return "guard" in getattr(getattr(one, "__code__", None), "co_filename", "")
print([ours(one) for one in places()])
handle.uninstall()
print([ours(one) for one in places()])
""",
        tmp_path,
    )
    assert ended.returncode == 0, ended.err
    wrapped, after = ended.out.splitlines()[-2:]
    assert (wrapped, after) == (str([True] * 12), str([False] * 12))


def test_fork_within_a_load(tmp_path: Path) -> None:
    """A child that is forked in the middle of a load leaves its parent's mark alone and has marks of its own."""
    ended = run_host(
        """
import guard, os, sys
guard.install()
import torch
from safetensors import safe_open
from safetensors.torch import save_file

folder = os.environ["OOMGUARD_DIR"]
path, other = folder + "/m.safetensors", folder + "/other.pt"
save_file({"a": torch.zeros(8), "b": torch.zeros(8)}, path)
torch.save({"c": torch.zeros(8)}, other)
with safe_open(path, "pt") as opened:
    opened.get_tensor("a")
    pid = os.fork()
    if pid == 0:
        torch.load(other)
    opened.get_tensor("b")
if pid:
    assert os.waitpid(pid, 0)[1] == 0
""",
        tmp_path,
    )
    assert (ended.returncode, ended.err) == (0, "")
    parent, child = boxes(tmp_path)
    assert [(one.label, one.item, one.done) for one in parent.operations] == [("safetensors.safe_open", "b", True)]
    assert ("torch.load", "c (data/0)", True) in [(one.label, one.item, one.done) for one in child.operations]
    assert ("safetensors.safe_open", "b", True) in [(one.label, one.item, one.done) for one in child.operations]
    assert all(one.done for one in child.operations)
