"""A small model like GPT, spread over processes in all ways that the tests need."""

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

VOCABULARY, WIDTH, HEAD, LENGTH = 11, 8, 4, 6
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
    "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
    "norm": SequenceParallel(),
    "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
}


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        query, key, value = (
            part(x).unflatten(-1, (-1, HEAD)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        weights = (query @ key.transpose(-2, -1) / HEAD**0.5).softmax(-1)
        return self.out((weights @ value).transpose(1, 2).flatten(2))


class Feed(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 12), nn.Linear(12, WIDTH)

    def forward(self, x):
        return self.down(self.up(x).relu())


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_1, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.norm_2, self.feed = nn.LayerNorm(WIDTH), Feed()

    def forward(self, x):
        x = x + self.attention(self.norm_1(x))
        return x + self.feed(self.norm_2(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.scale = nn.Parameter(torch.ones(2))  # some processes hold nothing of this

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        scale = self.scale.prod() if not hasattr(self.scale, "full_tensor") else self.scale.full_tensor().prod()
        return self.head(self.norm(x)) * scale


def build(kind, size, seed=0, device="cpu"):
    """A model and its mesh.

    Args:
        kind: "fsdp", "hsdp" (2 replicas), "tensor" (2 along tensor parallelism, FSDP2 over the rest) or "plain".
        size: How many processes there are.
        seed: Of the parameters.
        device: Where they are made.
    """
    torch.manual_seed(seed)
    with torch.device(device):
        model = Model()
    if kind == "plain":
        return model
    if kind == "fsdp":
        mesh = data = init_device_mesh("cpu", (size,), mesh_dim_names=("data",))
    elif kind == "hsdp":
        mesh = data = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("replica", "data"))
    else:
        mesh = init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("data", "tensor"))
        data = mesh["data"]
        parallelize_module(model, mesh["tensor"], MODEL_PLAN)
        for block in model.blocks:
            parallelize_module(block, mesh["tensor"], BLOCK_PLAN)
    for block in model.blocks:
        fully_shard(block, mesh=data)
    return fully_shard(model, mesh=data)


def step(model, optimizer, seed):
    """Trains one step; returns the loss."""
    loss = loss_of(model, seed)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def loss_of(model, seed):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(VOCABULARY, (4, LENGTH), generator=generator)
    return nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.roll(-1, 1).flatten())


def whole(tensor):
    """A tensor as a whole, gathered by PyTorch."""
    tensor = tensor.detach()
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def state(model, optimizer=None):
    """All tensors of a model, and of its optimizer, as wholes, under the keys that a checkpoint of both has."""
    found = {}
    for name, parameter in model.named_parameters():
        key = "model/" + name.replace(".", "/")
        found[key + "/.ATTRIBUTES/VARIABLE_VALUE"] = whole(parameter).numpy().copy()
        for slot, value in (optimizer.state[parameter] if optimizer else {}).items():
            found[f"{key}/.OPTIMIZER_SLOT/optimizer/{slot}/.ATTRIBUTES/VARIABLE_VALUE"] = whole(value).numpy().copy()
    return found


def same(one, other):
    """Whether two states are equal bit for bit."""
    return one.keys() == other.keys() and all(
        one[key].dtype == other[key].dtype and one[key].tobytes() == other[key].tobytes() for key in one
    )
