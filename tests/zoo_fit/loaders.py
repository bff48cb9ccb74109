"""Loaders of PyTorch and torchdata."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.zoo_fit.kinds import BATCH, BATCHES, ROWS, WEIGHT, X, Y, kind


def _pairs() -> Any:
    import torch

    return torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))


def loader_of(data: Any = None, **arguments: Any) -> Any:
    import torch

    torch.manual_seed(1)
    return torch.utils.data.DataLoader(_pairs() if data is None else data, batch_size=BATCH, **arguments)


def _generator() -> Any:
    import torch

    return torch.Generator().manual_seed(3)


@kind("`DataLoader`, in order", "torch")
def _loader_in_order(keras, callback):
    return callback.resumable(loader_of())


@kind("`DataLoader`, shuffled", "torch")
def _loader_shuffled(keras, callback):
    return callback.resumable(loader_of(shuffle=True))


@kind("`DataLoader` with `generator`", "torch")
def _loader_generator(keras, callback):
    return callback.resumable(loader_of(shuffle=True, generator=_generator()))


@kind("`DataLoader`, sampler with a generator", "torch")
def _loader_sampler(keras, callback):
    import torch

    return callback.resumable(loader_of(sampler=torch.utils.data.RandomSampler(_pairs(), generator=_generator())))


@kind("`DataLoader`, weighted sampler with a generator", "torch")
def _loader_weighted(keras, callback):
    import torch

    sampler = torch.utils.data.WeightedRandomSampler(WEIGHT.tolist(), ROWS, generator=_generator())
    return callback.resumable(loader_of(sampler=sampler))


@kind("`DataLoader`, sampler of the user's that counts passes", "torch")
def _loader_counting(keras, callback):
    class Sampler:
        passes = 0

        def __len__(self):
            return ROWS

        def __iter__(self):
            self.passes += 1
            return iter(np.random.default_rng(self.passes).permutation(ROWS).tolist())

    return callback.resumable(loader_of(sampler=Sampler()))


@kind("`DataLoader`, `num_workers=2`", "torch")
def _loader_workers(keras, callback):
    return callback.resumable(loader_of(shuffle=True, num_workers=2))


@kind("`DataLoader`, data set that draws random numbers", "torch")
def _loader_augmenting(keras, callback):
    import torch

    class Noisy(torch.utils.data.Dataset):
        def __len__(self):
            return ROWS

        def __getitem__(self, row):
            return torch.from_numpy(X[row]) + torch.rand(3), torch.from_numpy(Y[row]) + float(np.random.rand())

    return callback.resumable(loader_of(Noisy(), shuffle=True))


@kind("`DataLoader` of an `IterableDataset`", "torch")
def _loader_iterable(keras, callback):
    import torch

    class Rows(torch.utils.data.IterableDataset):
        def __iter__(self):
            yield from zip(X, Y, strict=True)

    return callback.resumable(loader_of(Rows()))


@kind("`DataLoader` of an `IterableDataset` that counts passes", "torch")
def _loader_iterable_counting(keras, callback):
    import torch

    class Rows(torch.utils.data.IterableDataset):
        passes = 0

        def __iter__(self):
            self.passes += 1
            for row in np.random.default_rng(self.passes).permutation(ROWS):
                yield X[row], Y[row]

    return callback.resumable(loader_of(Rows()))


@kind("`DataLoader`, `steps_per_epoch` less than a pass", "torch")
def _loader_steps(keras, callback):
    return callback.resumable(loader_of(shuffle=True)), {"steps_per_epoch": BATCHES - 1}


def _stateful(**arguments: Any) -> Any:
    from torchdata.stateful_dataloader import StatefulDataLoader

    return StatefulDataLoader(_pairs(), batch_size=BATCH, shuffle=True, generator=_generator(), **arguments)


@kind("`StatefulDataLoader`", "torchdata")
def _stateful_loader(keras, callback):
    return callback.resumable(_stateful())


@kind("`StatefulDataLoader`, `num_workers=2`", "torchdata")
def _stateful_loader_workers(keras, callback):
    return callback.resumable(_stateful(num_workers=2))
