"""Data that depends on random numbers and on counters, and saves that are moments too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch._dynamo  # which optimizers import, and which takes seconds in each forked process
from torch.utils.data import DataLoader

from milepost.manager import CheckpointManager
from tests.zoo_trainers.trace import Trace

ROWS = 18
BATCH = 4
UNSAVED = "Counters and generators in the data of an evaluation are not saved"
"""What the page says of trainers that do not know this data."""


class Rows(torch.utils.data.Dataset):
    """Rows with noise, and a counter of what was read, on which they depend if they are counted."""

    def __init__(self, rows: int = ROWS, *, counted: bool = True) -> None:
        self.rows, self.counted, self.reads = rows, counted, 0

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> torch.Tensor:
        self.reads += self.counted
        return torch.full((4,), index / ROWS) + 0.1 * torch.rand(4) + 0.001 * self.reads


class Unsized(torch.utils.data.IterableDataset):
    """Rows of a stream without length, which depend on the pass."""

    def __init__(self, rows: int = ROWS) -> None:
        self.rows, self.passes = rows, 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        self.passes += 1
        for _ in range(self.rows):
            yield torch.rand(4) + 0.01 * self.passes


def rows(size: int = BATCH, *, counted: bool = True, **settings: Any) -> Any:
    return DataLoader(Rows(counted=counted), size, **{"shuffle": True, **settings})


def generated() -> Any:
    return rows(generator=torch.Generator().manual_seed(5))


def of_torchdata(**settings: Any) -> Any:
    from torchdata.stateful_dataloader import StatefulDataLoader

    return StatefulDataLoader(Rows(), BATCH, shuffle=True, **settings)


def reach_saves(trace: Trace) -> None:
    """Makes the end of each save a moment."""
    save = CheckpointManager.save

    def saved(*arguments: Any, **settings: Any) -> Any:
        path = save(*arguments, **settings)
        trace.reach("after a save")
        return path

    CheckpointManager.save = saved  # type: ignore[method-assign]
