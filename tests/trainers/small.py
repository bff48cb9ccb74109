"""A small model, and data that depends on every global random generator."""

from __future__ import annotations

import random

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

torch.set_num_threads(1)

ROWS = 22
BATCH = 4
BATCHES = 6


class Rows(torch.utils.data.Dataset):
    """Rows with noise of PyTorch, NumPy and Python, as augmentations have it."""

    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        noise = 0.1 * torch.rand(4) + 0.1 * random.random() + 0.1 * float(np.random.rand())
        return torch.full((4,), index / ROWS) + noise


class KilledError(Exception):
    """Ends a run, as a kill does."""


def seed_all(seed=0):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def network():
    parts = torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1)
    return torch.nn.Sequential(*parts)


def loader(workers=0, kind=None):
    return (kind or torch.utils.data.DataLoader)(Rows(), batch_size=BATCH, shuffle=True, num_workers=workers)


def same(one, other):
    """Whether two modules have the same values, to the bit."""
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)
