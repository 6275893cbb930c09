"""Writes small checkpoints of every format with the libraries' own writers. Nothing is downloaded.

The sizes are a few times 32 MiB: large enough that the weights, not the library's bookkeeping, decide the peak.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Final

LAYERS: Final = 32
WIDTH: Final = 1024  # a layer is WIDTH x WIDTH float32: 4 MiB


def layers(dtype: Any = None, device: str = "cpu") -> Any:  # noqa: ANN401 - torch is imported by those who call
    """Make a model of LAYERS equal linear layers without bias, its weights written to once."""
    import torch

    with torch.device(device):
        made = [torch.nn.Linear(WIDTH, WIDTH, bias=False, dtype=dtype or torch.float32) for _ in range(LAYERS)]
    return torch.nn.Sequential(*made)


def write_all(folder: Path) -> None:
    """Write every checkpoint that is not there yet. A folder that was finished has the file `ready`."""
    if (folder / "ready").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated; servers still load it
        write_torch(folder)
        write_transformers(folder)
        _write_diffusers(folder)
        _write_onnx(folder)
        _write_gguf(folder)
        _write_ctranslate2(folder)
    (folder / "ready").touch()


def write_torch(folder: Path) -> None:
    """Write what torch and safetensors alone can: zip, legacy pickle, TorchScript, exported program, safetensors."""
    import torch
    from safetensors.torch import save_file

    model = layers()
    weights = model.state_dict()
    torch.save(weights, folder / "zip.pt")
    torch.save(weights, folder / "legacy.pt", _use_new_zipfile_serialization=False)
    torch.save({name: value.bfloat16() for name, value in weights.items()}, folder / "bf16.pt")
    save_file(weights, folder / "model.safetensors")
    torch.jit.script(model).save(folder / "script.pt")
    example = (torch.zeros(1, WIDTH),)
    torch.export.save(torch.export.export(model.eval(), example), folder / "exported.pt2")


def write_transformers(folder: Path) -> None:
    """Write a small Llama as transformers does: in one file, and in several."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=1024, intermediate_size=2816, num_hidden_layers=4, num_attention_heads=8, vocab_size=8192
    )
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(folder / "llama")
    model.save_pretrained(folder / "llama-sharded", max_shard_size="40MB")


def _write_diffusers(folder: Path) -> None:
    from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel

    model = UNet2DModel(
        sample_size=16,
        block_out_channels=(128, 256, 512),
        down_block_types=("DownBlock2D",) * 3,
        up_block_types=("UpBlock2D",) * 3,
    )
    DDPMPipeline(unet=model, scheduler=DDPMScheduler()).save_pretrained(folder / "diffusion")


def _write_onnx(folder: Path) -> None:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(1)
    names = [f"weight.{i}" for i in range(LAYERS)]
    weights = [
        numpy_helper.from_array(random.standard_normal((WIDTH, WIDTH), dtype=np.float32), name) for name in names
    ]
    nodes = [
        helper.make_node("MatMul", ["x" if i == 0 else f"h{i - 1}", name], ["y" if i == LAYERS - 1 else f"h{i}"])
        for i, name in enumerate(names)
    ]
    shape = [1, WIDTH]
    graph = helper.make_graph(
        nodes,
        "layers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, folder / "whole.onnx")
    (folder / "onnx").mkdir(exist_ok=True)
    onnx.save(model, folder / "onnx" / "model.onnx", save_as_external_data=True, location="model.onnx.data")


def _write_gguf(folder: Path) -> None:
    import gguf
    import numpy as np

    random = np.random.default_rng(1)
    writer = gguf.GGUFWriter(folder / "model.gguf", "llama")
    writer.add_block_count(LAYERS)
    for i in range(LAYERS):
        writer.add_tensor(f"blk.{i}.ffn_up.weight", random.standard_normal((WIDTH, WIDTH), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_ctranslate2(folder: Path) -> None:
    import numpy as np
    from ctranslate2 import specs

    random = np.random.default_rng(1)
    spec = specs.TransformerDecoderModelSpec.from_config(8, 8)
    width, words = 1024, 512

    def fill(part: Any, inputs: int, outputs: int) -> None:  # noqa: ANN401 - specs are untyped
        part.weight = random.standard_normal((outputs, inputs), dtype=np.float32)
        part.bias = np.zeros(outputs, dtype=np.float32)

    def norm(part: Any) -> None:  # noqa: ANN401
        part.gamma, part.beta = np.ones(width, dtype=np.float32), np.zeros(width, dtype=np.float32)

    decoder = spec.decoder
    decoder.embeddings.weight = random.standard_normal((words, width), dtype=np.float32)
    decoder.position_encodings.encodings = np.zeros((64, width), dtype=np.float32)
    decoder.scale_embeddings = False
    norm(decoder.layer_norm)
    fill(decoder.projection, width, words)
    for layer in decoder.layer:
        norm(layer.self_attention.layer_norm)
        fill(layer.self_attention.linear[0], width, 3 * width)
        fill(layer.self_attention.linear[1], width, width)
        norm(layer.ffn.layer_norm)
        fill(layer.ffn.linear_0, width, 2 * width)
        fill(layer.ffn.linear_1, 2 * width, width)
    spec.register_vocabulary([f"word{i}" for i in range(words - 3)] + ["<s>", "</s>", "<unk>"])
    (folder / "ctranslate2").mkdir(exist_ok=True)
    spec.validate()
    spec.save(str(folder / "ctranslate2"))
