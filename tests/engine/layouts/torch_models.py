"""Two models of PyTorch that compute the same, with q, k and v apart and in one, with experts apart and stacked."""

from __future__ import annotations

import torch

from milepost.layouts import Concatenate, Stack, Transpose

WIDTH, QUERIES, KEYS, EXPERTS = 8, 8, 4, 3
STEPS = [
    Concatenate([f"model/blocks/*/{name}" for name in "qkv"], "model/blocks/*/qkv", sizes=(QUERIES, KEYS, KEYS)),
    Transpose("model/blocks/*/experts/*/weight"),
    Stack("model/blocks/*/experts/#/weight", "model/blocks/*/experts"),
]
"""From `Apart` to `Fused`."""


class _Block(torch.nn.Module):
    def forward(self, x):
        q, k, v = self.three(x)
        x = x + self.out(q.reshape(*q.shape[:-1], 2, KEYS).sum(-2) * torch.sigmoid(k) * v)
        return x + sum(x @ weight for weight in self.matrices())


class ApartBlock(_Block):
    def __init__(self):
        super().__init__()
        self.q = torch.nn.Linear(WIDTH, QUERIES)
        self.k, self.v = (torch.nn.Linear(WIDTH, KEYS) for _ in range(2))
        self.out = torch.nn.Linear(KEYS, WIDTH)
        self.experts = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(EXPERTS))

    def three(self, x):
        return self.q(x), self.k(x), self.v(x)

    def matrices(self):
        return [each.weight.T for each in self.experts]


class FusedBlock(_Block):
    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(WIDTH, QUERIES + 2 * KEYS)
        self.out = torch.nn.Linear(KEYS, WIDTH)
        self.experts = torch.nn.Parameter(torch.zeros(EXPERTS, WIDTH, WIDTH))

    def three(self, x):
        return self.qkv(x).split([QUERIES, KEYS, KEYS], -1)

    def matrices(self):
        return list(self.experts)


class Model(torch.nn.Module):
    """A model of two blocks."""

    def __init__(self, block):
        super().__init__()
        self.blocks = torch.nn.ModuleList([block(), block()])
        self.head = torch.nn.Linear(WIDTH, 3)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Other(torch.optim.Optimizer):
    """An optimizer with state of another shape than that of the parameter, as Adafactor has."""

    def __init__(self, parameters):
        super().__init__(parameters, {})

    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["rows"] = parameter.detach().reshape(parameter.shape[0], -1).sum(-1)[:2].clone()


class Tied(torch.nn.Module):
    """A model with a normalisation, and a head that has the weight of the embedding."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(5, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.q, self.k = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.head = torch.nn.Linear(4, 5, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        x = self.norm(self.embed(tokens))
        return self.head(self.q(x) * torch.sigmoid(self.k(x)))


class TiedAndFused(Tied):
    """The same with q and k in one."""

    def __init__(self):
        super().__init__()
        del self.q, self.k
        self.qk = torch.nn.Linear(4, 8)

    def forward(self, tokens):
        q, k = self.qk(self.norm(self.embed(tokens))).chunk(2, -1)
        return self.head(q * torch.sigmoid(k))


class WithBuffer(torch.nn.Module):
    """A square weight, and a buffer that no optimizer has."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.first, self.second = torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False)


class Linears(torch.nn.Module):
    """The block of a GPT with Linear, in which q, k and v are apart."""

    def __init__(self, width):
        super().__init__()
        self.q, self.k, self.v, self.out = (torch.nn.Linear(width, width) for _ in range(4))


def adamw(parameters):
    """An optimizer with two moments, whose results do not depend on the order of parameters."""
    return torch.optim.AdamW(parameters, lr=0.01)


def made(block, make=adamw, seed=0):
    """A model and its optimizer."""
    torch.manual_seed(seed)
    model = Model(block)
    return model, make(model.parameters())


def trained(block, make=adamw, seed=0, steps=2):
    """A model and its optimizer after some steps."""
    model, optimizer = made(block, make, seed)
    for number in range(steps):
        train(model, optimizer, number)
    return model, optimizer


def train(model, optimizer, number):
    """Makes a step."""
    generator = torch.Generator().manual_seed(number)
    optimizer.zero_grad()
    model(torch.randn(5, WIDTH, generator=generator)).square().mean().backward()
    optimizer.step()


def output(model):
    """What a model computes."""
    return model(torch.linspace(-1, 1, 4 * WIDTH).reshape(4, WIDTH)).detach()
