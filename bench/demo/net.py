"""A small decoder-only transformer, as plain as it gets: enough for a model server to have real weights to touch.

python -m bench.demo.net FILE: writes a checkpoint with random weights, unless it exists.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
import torch
from torch import nn
from torch.nn import functional

CONTEXT_TOKENS = 8  # the window that is recomputed for each token: there is no key-value cache to keep


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of the network. The default has 109 million parameters: 418 MiB of float32."""

    width: int = 1024
    heads: int = 16
    layers: int = 8
    vocabulary: int = 8192


class Block(nn.Module):
    """Attention and feed-forward, each behind a norm and around a residual."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.before_attention = nn.LayerNorm(shape.width)
        self.query_key_value = nn.Linear(shape.width, 3 * shape.width)
        self.attention_out = nn.Linear(shape.width, shape.width)
        self.before_feed_forward = nn.LayerNorm(shape.width)
        self.up = nn.Linear(shape.width, 4 * shape.width)
        self.down = nn.Linear(4 * shape.width, shape.width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Take and return `(tokens, width)`."""
        tokens, width = hidden.shape
        packed = self.query_key_value(self.before_attention(hidden))
        query, key, value = packed.view(tokens, 3, self.heads, width // self.heads).permute(1, 2, 0, 3)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.attention_out(attended.transpose(0, 1).reshape(tokens, width))
        fed: torch.Tensor = self.down(functional.gelu(self.up(self.before_feed_forward(hidden))))
        return hidden + fed


class Transformer(nn.Module):
    """Token ids in, scores of the next token out."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Take `(tokens,)` ids, return `(vocabulary,)` scores of the one that follows."""
        hidden = self.embedding(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        scores: torch.Tensor = functional.linear(self.norm(hidden[-1]), self.embedding.weight)
        return scores


def empty(shape: Shape) -> Transformer:
    """Make the network without memory for its weights: `load_state_dict(..., assign=True)` brings them."""
    with torch.device("meta"):
        return Transformer(shape).eval()


def write_checkpoint(path: Path, shape: Shape) -> None:
    """Write random weights as safetensors, whole or not at all, readable for every user."""
    torch.manual_seed(7)
    weights = {name: torch.randn(weight.shape) * 0.02 for name, weight in empty(shape).state_dict().items()}
    partial = path.with_suffix(".partial")
    safetensors.torch.save_file(weights, partial)
    partial.chmod(0o644)
    partial.rename(path)


if __name__ == "__main__":
    checkpoint = Path(sys.argv[1])
    if not checkpoint.exists():
        write_checkpoint(checkpoint, Shape())
