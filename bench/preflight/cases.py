"""The load paths as code, each against checkpoints of `checkpoints.py`.

A case names the path as `guard.preflight` knows it, so that its prediction and the measurement are of the same thing.
`touch` reads every weight afterwards: only then are mapped pages really there. `label` is what the box must say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_TOUCH: Final = "for value in weights.values(): value.sum()"
_TOUCH_MODEL: Final = "for value in model.parameters(): value.sum()"
_MODEL: Final = "model = checkpoints.layers()"
_META: Final = "model = checkpoints.layers(device='meta')"
_LLAMA: Final = "from transformers import LlamaConfig, LlamaForCausalLM as Llama"
_EMPTY_LLAMA: Final = (
    "with accelerate.init_empty_weights(): "
    "model = Llama(LlamaConfig.from_pretrained(folder + '/llama')).to(torch.bfloat16)"
)
_OPEN: Final = "with safe_open(file, 'pt') as opened: "

BASIC: Final = ("torch", "safetensors.torch", "safetensors.numpy")
EVERYTHING: Final = (*BASIC, "transformers", "accelerate", "diffusers", "onnxruntime", "gguf", "ctranslate2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One way of loading one checkpoint."""

    path: str
    file: str  # relative to the folder of checkpoints
    code: tuple[str, ...]  # with `folder` and `file` as absolute paths
    labels: tuple[str, ...]  # what the box says of it: one label for each call that may be in flight
    setup: tuple[str, ...] = ()  # what comes before, and counts as part of the path
    touch: str = "pass"
    modules: tuple[str, ...] = ("torch", "io")
    dtype: str | None = None
    item: bool = False  # whether single tensors are told

    @property
    def name(self) -> str:
        """Path, file and type: unlike any other case's."""
        return f"{self.path} of {self.file}" + (f" as {self.dtype}" if self.dtype else "")

    def head(self, folder: str) -> list[str]:
        """Imports and names that the rest uses."""
        imports = [f"import {module}" for module in self.modules]
        return [*imports, f"folder = {folder!r}", f"file = {folder + '/' + self.file!r}"]

    def program(self, folder: str) -> str:
        """The code as one text: imports, load, touch."""
        return "\n".join([*self.head(folder), *self.setup, *self.code, self.touch])


_ST: Final = ("torch", "safetensors.torch as st")

TORCH_CASES: Final = (
    Case(path="torch.load", file="zip.pt", code=("weights = torch.load(file)",), labels=("torch.load",), item=True),
    Case(path="torch.load", file="legacy.pt", code=("weights = torch.load(file)",), labels=("torch.load",)),
    Case(
        path="torch.load",
        file="bf16.pt",
        dtype="F32",
        labels=("torch.load",),
        item=True,
        code=("weights = torch.load(file)", "weights = {name: value.float() for name, value in weights.items()}"),
    ),
    Case(
        path="torch.load(mmap=True)",
        file="zip.pt",
        code=("weights = torch.load(file, mmap=True)",),
        labels=("torch.load(mmap=True)",),
        touch=_TOUCH,
    ),
    Case(
        path="torch.load(BytesIO)",
        file="zip.pt",
        labels=("torch.load(BytesIO)",),
        item=True,
        setup=("data = open(file, 'rb').read()",),
        code=("weights = torch.load(io.BytesIO(data))",),
    ),
    Case(
        path="torch.load + load_state_dict",
        file="zip.pt",
        labels=("torch.load", "load_state_dict"),
        item=True,
        setup=(_MODEL,),
        code=("model.load_state_dict(torch.load(file))",),
    ),
    Case(
        path="torch.load(mmap=True) + load_state_dict",
        file="zip.pt",
        labels=("torch.load(mmap=True)", "load_state_dict"),
        item=True,
        setup=(_MODEL,),
        code=("model.load_state_dict(torch.load(file, mmap=True))",),
    ),
    Case(
        path="torch.load + assign",
        file="zip.pt",
        labels=("torch.load", "load_state_dict"),
        item=True,
        setup=(_META,),
        code=("model.load_state_dict(torch.load(file), assign=True)",),
    ),
    Case(
        path="torch.load + assign",
        file="zip.pt",
        dtype="F16",
        labels=("torch.load", "load_state_dict", "Sequential.half"),
        item=True,
        setup=(_META,),
        code=("weights = torch.load(file)", "model.load_state_dict(weights, assign=True)", "model.half()"),
    ),
    Case(
        path="torch.load(mmap=True) + assign",
        file="zip.pt",
        labels=("torch.load(mmap=True)", "load_state_dict"),
        setup=(_META,),
        code=("model.load_state_dict(torch.load(file, mmap=True), assign=True)",),
        touch=_TOUCH_MODEL,
    ),
    Case(path="torch.jit.load", file="script.pt", code=("model = torch.jit.load(file)",), labels=("torch.jit.load",)),
    Case(
        path="torch.export.load",
        file="exported.pt2",
        code=("model = torch.export.load(file)",),
        labels=("torch.export.load",),
    ),
    Case(
        path="safetensors.torch.load_file",
        file="model.safetensors",
        code=("weights = st.load_file(file)",),
        labels=("safetensors.torch.load_file",),
        touch=_TOUCH,
        modules=_ST,
    ),
    Case(
        path="safetensors.torch.load_file(backend='pread')",
        file="model.safetensors",
        modules=_ST,
        code=("weights = st.load_file(file, backend='pread')",),
        labels=("safetensors.torch.load_file(backend='pread')",),
    ),
    Case(
        path="safetensors.torch.load_file + load_state_dict",
        file="model.safetensors",
        modules=_ST,
        setup=(_MODEL,),
        code=("model.load_state_dict(st.load_file(file))",),
        labels=("safetensors.torch.load_file", "load_state_dict"),
        item=True,
    ),
    Case(
        path="safetensors.torch.load_file + assign",
        file="model.safetensors",
        modules=_ST,
        setup=(_META,),
        code=("model.load_state_dict(st.load_file(file), assign=True)",),
        labels=("safetensors.torch.load_file", "load_state_dict"),
        touch=_TOUCH_MODEL,
    ),
    Case(
        path="safetensors.torch.load_model",
        file="model.safetensors",
        modules=_ST,
        setup=(_MODEL,),
        code=("st.load_model(model, file)",),
        labels=("safetensors.torch.load_model",),
        item=True,
    ),
    Case(
        path="safetensors.torch.load",
        file="model.safetensors",
        modules=_ST,
        setup=("data = open(file, 'rb').read()",),
        code=("weights = st.load(data)",),
        labels=("safetensors.torch.load",),
    ),
    Case(
        path="safetensors.safe_open",
        file="model.safetensors",
        modules=_ST,
        setup=("from safetensors import safe_open",),
        code=(_OPEN + "weights = {k: opened.get_tensor(k) for k in opened.keys()}",),
        labels=("safetensors.safe_open",),
        item=True,
        touch=_TOUCH,
    ),
    Case(
        path="safetensors.safe_open + clone",
        file="model.safetensors",
        modules=_ST,
        setup=("from safetensors import safe_open",),
        code=(_OPEN + "weights = {k: opened.get_tensor(k).clone() for k in opened.keys()}",),
        labels=("safetensors.safe_open",),
        item=True,
    ),
)

_SN: Final = ("safetensors.numpy as sn",)
NUMPY_CASES: Final = (
    Case(
        path="safetensors.numpy.load_file",
        file="model.safetensors",
        modules=_SN,
        code=("weights = sn.load_file(file)",),
        labels=("safetensors.numpy.load_file",),
        touch=_TOUCH,
    ),
    Case(
        path="safetensors.numpy.load",
        file="model.safetensors",
        modules=_SN,
        setup=("data = open(file, 'rb').read()",),
        code=("weights = sn.load(data)",),
        labels=("safetensors.numpy.load",),
    ),
    Case(
        path="safetensors.safe_open(framework='np')",
        file="model.safetensors",
        modules=_SN,
        setup=("from safetensors import safe_open",),
        code=("with safe_open(file, 'np') as opened: weights = {k: opened.get_tensor(k) for k in opened.keys()}",),
        labels=("safetensors.safe_open",),
        item=True,
    ),
)

_HUB_PATH: Final = "transformers.from_pretrained"
LIBRARY_CASES: Final = (
    *(
        Case(
            path=_HUB_PATH,
            file=file,
            dtype=dtype,
            labels=(_HUB_PATH,),
            item=True,
            touch=_TOUCH_MODEL,
            setup=(_LLAMA,),
            code=(f"model = Llama.from_pretrained(file, dtype={wanted})",),
        )
        for file, dtype, wanted in (
            ("llama", None, "'auto'"),
            ("llama-sharded", None, "'auto'"),
            ("llama", "F32", "torch.float32"),
            ("llama-sharded", "F16", "torch.float16"),
        )
    ),
    Case(
        path="accelerate.load_checkpoint_and_dispatch",
        file="llama-sharded",
        labels=("accelerate.load_checkpoint",),
        modules=("torch", "accelerate"),
        item=True,
        setup=(_LLAMA, _EMPTY_LLAMA),
        code=("accelerate.load_checkpoint_and_dispatch(model, file, device_map={'': 'cpu'})",),
    ),
    Case(
        path="diffusers.from_pretrained",
        file="diffusion",
        labels=("diffusers.from_pretrained",),
        item=True,
        setup=("from diffusers import DDPMPipeline",),
        code=("model = DDPMPipeline.from_pretrained(file).unet",),
        touch=_TOUCH_MODEL,
    ),
    Case(
        path="diffusers.from_pretrained",
        file="diffusion",
        dtype="F16",
        labels=("diffusers.from_pretrained",),
        item=True,
        setup=("from diffusers import DDPMPipeline",),
        code=("model = DDPMPipeline.from_pretrained(file, torch_dtype=torch.float16).unet",),
        touch=_TOUCH_MODEL,
    ),
    *(
        Case(
            path="onnxruntime.InferenceSession",
            file=file,
            labels=("onnxruntime.InferenceSession",),
            modules=("onnxruntime",),
            code=("session = onnxruntime.InferenceSession(file)",),
        )
        for file in ("whole.onnx", "onnx/model.onnx")
    ),
    Case(
        path="onnxruntime.InferenceSession(bytes)",
        file="whole.onnx",
        modules=("onnxruntime",),
        setup=("data = open(file, 'rb').read()",),
        code=("session = onnxruntime.InferenceSession(data)",),
        labels=("onnxruntime.InferenceSession(bytes)",),
    ),
    Case(
        path="gguf.GGUFReader",
        file="model.gguf",
        labels=("gguf.GGUFReader",),
        modules=("gguf",),
        code=("reader = gguf.GGUFReader(file)",),
        touch="for one in reader.tensors: one.data.sum()",
    ),
    Case(
        path="ctranslate2",
        file="ctranslate2",
        labels=("ctranslate2",),
        modules=("ctranslate2",),
        code=("model = ctranslate2.Generator(file)",),
    ),
)

CASES: Final = (*TORCH_CASES, *NUMPY_CASES, *LIBRARY_CASES)


def case_named(name: str) -> Case:
    """Give the case of this name; KeyError if there is none."""
    return {case.name: case for case in CASES}[name]
