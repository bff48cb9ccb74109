"""A small GPT of our own, with causal attention, and the ways to spread it over processes."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

VOCABULARY, WIDTH, HEAD, LENGTH, BLOCKS = 13, 16, 4, 8, 2
BATCH = 12
"""Sequences in a batch of all processes, which one, two, three and four of them divide."""
BLOCK_PLAN = {
    "norm_1": SequenceParallel(),
    "attention": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
    "attention.query": ColwiseParallel(),
    "attention.key": ColwiseParallel(),
    "attention.value": ColwiseParallel(),
    "attention.out": RowwiseParallel(output_layouts=Shard(1)),
    "norm_2": SequenceParallel(),
    "feed": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
    "feed.up": ColwiseParallel(),
    "feed.down": RowwiseParallel(output_layouts=Shard(1)),
}
MODEL_PLAN = {
    "tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
    "positions": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(0)),
    "norm": SequenceParallel(),
    "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
}


class Layout(NamedTuple):
    """How a model is spread.

    Attributes:
        kind: "plain", "fsdp", "hsdp" (two replicas), "tp" (tensor and sequence parallel alone), or "2-d" (that over two processes,
            FSDP over the rest).
        size: How many processes.
    """

    kind: str
    size: int

    def __str__(self) -> str:
        return f"{self.kind} on {self.size}"

    @property
    def parts(self) -> int:
        """Into how many parts a batch is divided."""
        return {"plain": 1, "tp": 1, "2-d": self.size // 2}.get(self.kind, self.size)

    def part(self, rank: int) -> int:
        """Which of them a process takes."""
        return rank * self.parts // self.size


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x: Any) -> Any:
        query, key, value = (
            part(x).unflatten(-1, (-1, HEAD)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        later = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
        weights = (query @ key.transpose(-2, -1) / HEAD**0.5).masked_fill(later, -torch.inf).softmax(-1)
        return self.out((weights @ value).transpose(1, 2).flatten(2))


class Feed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        return self.down(nn.functional.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.norm_1, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.norm_2, self.feed = nn.LayerNorm(WIDTH), Feed()
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Any) -> Any:
        x = x + self.dropout(self.attention(self.norm_1(x)))
        return x + self.dropout(self.feed(self.norm_2(x)))


class Model(nn.Module):
    def __init__(self, dropout: float, tied: bool) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList([Block(dropout) for _ in range(BLOCKS)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Any) -> Any:
        x = self.tokens(tokens) + self.positions(torch.arange(LENGTH))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def mesh_of(layout: Layout) -> Any:
    """The mesh of a layout, or None if it has none."""
    size = layout.size
    shape = {"hsdp": (2, size // 2), "2-d": (size // 2, 2)}.get(layout.kind, (size,))
    names = {"hsdp": ("replica", "data"), "2-d": ("data", "tensor"), "tp": ("tensor",)}.get(layout.kind, ("data",))
    return None if layout.kind == "plain" else init_device_mesh("cpu", shape, mesh_dim_names=names)


def build(layout: Layout, mesh: Any, seed: int, dropout: float = 0.0, tied: bool = False, device: str = "cpu") -> Any:
    """A model, spread over the processes."""
    torch.manual_seed(seed)
    with torch.device(device):
        model = Model(dropout, tied)
    if layout.kind == "plain":
        return model
    data = mesh
    if "tensor" in mesh.mesh_dim_names:
        parallelize_module(model, mesh["tensor"], MODEL_PLAN)
        for block in model.blocks:
            parallelize_module(block, mesh["tensor"], BLOCK_PLAN)
        if tied:
            model.head.weight = model.tokens.weight
        if layout.kind == "tp":
            return model
        data = mesh["data"]
    for block in model.blocks:
        fully_shard(block, mesh=data)
    return fully_shard(model, mesh=data)


def batch(order: torch.Generator, layout: Layout, rank: int) -> Any:
    """The part of one process of the next batch; the generator draws the whole batch on all."""
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH), generator=order)
    each = BATCH // layout.parts
    return tokens[layout.part(rank) * each :][:each]


def loss_of(model: Any, tokens: Any) -> Any:
    """How well each token and the one before it tell the sum of both, which is the next."""
    expected = (tokens + tokens.roll(1, 1)) % VOCABULARY
    return nn.functional.cross_entropy(model(tokens).flatten(0, 1), expected.flatten())


def local(tensor: Any) -> Any:
    """The part of a tensor that this process holds."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def whole(tensor: Any) -> Any:
    """A tensor as a whole, gathered by PyTorch."""
    tensor = tensor.detach()
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def state(model: Any, optimizer: Any) -> dict[str, Any]:
    """All tensors of a model and its optimizer, as wholes, under the keys that a checkpoint of both has."""
    found = {}
    for name, parameter in model.named_parameters():
        key = "model/" + name.replace(".", "/")
        found[key + "/.ATTRIBUTES/VARIABLE_VALUE"] = whole(parameter).numpy().copy()
        for slot, value in optimizer.state.get(parameter, {}).items():
            found[f"{key}/.OPTIMIZER_SLOT/optimizer/{slot}/.ATTRIBUTES/VARIABLE_VALUE"] = whole(value).numpy().copy()
    return found
