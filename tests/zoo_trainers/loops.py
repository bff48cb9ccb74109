"""The set-ups of loops of a program's own, with `milepost.accelerate`: with Accelerate, and without."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import accelerate
import torch
from torch.utils.data import DataLoader, WeightedRandomSampler

import milepost
import milepost.accelerate
from tests.trainers.small import network, seed_all
from tests.zoo_trainers.data import BATCH, ROWS, Rows, Unsized, generated, of_torchdata, reach_saves, rows
from tests.zoo_trainers.trace import Trace
from tests.zoo_trainers.verdicts import Row

EPOCHS = 3
LEFT = 3
"""The batches after which a loop leaves a pass."""


def broken(loaders: list[Any]) -> Iterable[list[Any]]:
    for number, batch in enumerate(loaders[0]):
        if number == LEFT:
            break
        yield [batch]


def sliced(loaders: list[Any]) -> Iterable[list[Any]]:
    return ([batch] for batch in itertools.islice(loaders[0], LEFT))


def zipped(loaders: list[Any]) -> Iterable[list[Any]]:
    return map(list, zip(*loaders, strict=False))


def chained(loaders: list[Any]) -> Iterable[list[Any]]:
    return ([batch] for loader in loaders for batch in loader)


def cycled(loaders: list[Any]) -> Iterable[list[Any]]:
    """The batches of the first loader, each with one of the second, which may be shorter."""
    others = iter(loaders[1])
    for batch in loaders[0]:
        other = next(others, None)
        if other is None:
            others = iter(loaders[1])
            other = next(others)
        yield [batch, other]


def setup(
    *loaders: Callable[[], Any],
    read: Callable[[list[Any]], Iterable[list[Any]]] = zipped,
    prepared: dict[str, Any] | None = None,
    within: bool = True,
    said: str = "",
) -> Row:
    """A set-up.

    Args:
        *loaders: Make the loaders.
        read: The batches of an epoch.
        prepared: Arguments of the ``Accelerator``, or None to do without.
        within: Whether the run is also saved within epochs.
        said: What the page says of it if it is inexact.
    """

    def run(trace: Trace, directory: str | None, options: dict[str, Any]) -> None:
        seed_all()
        torch.set_num_threads(1)
        model = network()
        optimizer = torch.optim.AdamW(model.parameters(), 0.01)
        accelerator, parts = _made(model, optimizer, [make() for make in loaders], prepared)
        model, optimizer, *read_from = parts
        epoch, step = milepost.Variable(0), milepost.Variable(0)
        manager = None
        if directory is not None:
            reach_saves(trace)
            checkpoint = _checkpoint(accelerator, parts, epoch=epoch, step=step)
            manager = milepost.CheckpointManager(checkpoint, directory, max_to_keep=2, on_sigterm=True)
            manager.restore_or_initialize()
        while int(epoch) < EPOCHS:
            trace.reach("epoch's start")
            for batches in read(read_from):
                trace.reach("batch", "SIGTERM")
                loss = torch.stack([model(each).pow(2).mean() for each in batches]).mean()
                accelerator.backward(loss) if accelerator else loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                trace.note(f"batch {int(step)}", {"batch": batches, "loss": loss})
                step.assign_add(1)
                if manager is not None and within and _is_due(manager, int(step), options):
                    manager.save()
                    if manager.reached_preemption(int(step)):
                        return
                trace.reach("end of a batch")
            epoch.assign_add(1)
            trace.reach("epoch's end")
            if manager is not None:
                manager.save()
                if manager.reached_preemption(int(step)):
                    return
        trace.reach("run's end")
        trace.note("end: weights", model.state_dict())
        trace.note("end: random", torch.rand(()))

    return Row(run, said)


def _is_due(manager: Any, step: int, options: dict[str, Any]) -> bool:
    every = options.get("every_steps")
    return bool((every and step % every == 0) or manager.reached_preemption(step))


def _made(model: Any, optimizer: Any, loaders: list[Any], settings: dict[str, Any] | None) -> tuple[Any, list[Any]]:
    if settings is None:
        return None, [model, optimizer, *loaders]
    accelerator = accelerate.Accelerator(
        cpu=True, dataloader_config=accelerate.utils.DataLoaderConfiguration(**settings)
    )
    return accelerator, list(accelerator.prepare(model, optimizer, *loaders))


def _checkpoint(accelerator: Any, parts: list[Any], **objects: Any) -> milepost.Checkpoint:
    if accelerator is not None:
        return milepost.accelerate.checkpoint(accelerator, **objects)
    model, optimizer, *loaders = parts
    positions = [milepost.accelerate.DataPosition(each) for each in loaders]
    return milepost.Checkpoint(
        model=model, optimizer=optimizer, data=positions, random=milepost.RandomState(), **objects
    )


def weighted() -> Any:
    return DataLoader(Rows(), BATCH, sampler=WeightedRandomSampler([1.0 + row % 3 for row in range(ROWS)], ROWS))


def unsized() -> Any:
    return DataLoader(Unsized(), BATCH)


def short() -> Any:
    return rows(8)


_BREAK: dict[str, Any] = {"read": broken, "within": False}
_TORCHDATA = "Only torchdata's `StatefulDataLoader`, which keeps its iterator, continues such a pass"
PLAIN = {
    "a shuffled loader": setup(rows),
    "a loader in order, the last batch left out": setup(lambda: rows(shuffle=False, drop_last=True)),
    "workers": setup(lambda: rows(num_workers=1)),
    "a loader with a generator": setup(generated),
    "a weighted sampler": setup(weighted),
    "data without length": setup(unsized),
    "`StatefulDataLoader`": setup(of_torchdata),
    "a pass that is left by `break`": setup(rows, **_BREAK),
    "a pass that is left by `break`, data without length": setup(unsized, **_BREAK),
    "a pass that is left by `break`, workers": setup(lambda: rows(num_workers=1), **_BREAK),
    "a pass that is left by `break`, `StatefulDataLoader`": setup(of_torchdata, **_BREAK, said=_TORCHDATA),
    "a pass that is left by `islice()`": setup(rows, read=sliced, within=False),
    "`zip()` of two loaders": setup(rows, rows),
    "`zip()` with a shorter loader": setup(rows, short),
    "`zip()` with a longer loader": setup(short, rows),
    "`zip()` with data without length": setup(short, unsized),
    "one loader after the other": setup(rows, short, read=chained, within=False),
    "a loader that begins again when it has ended": setup(rows, short, read=cycled),
}
ACCELERATE = {
    "a shuffled loader": setup(rows, prepared={}),
    "workers": setup(lambda: rows(num_workers=1), prepared={}),
    "a loader with a generator": setup(generated, prepared={}),
    "a weighted sampler": setup(weighted, prepared={}),
    "data without length": setup(unsized, prepared={}),
    "data without length, `dispatch_batches=False`": setup(unsized, prepared={"dispatch_batches": False}),
    "`split_batches`": setup(rows, prepared={"split_batches": True}),
    "`use_stateful_dataloader`": setup(rows, prepared={"use_stateful_dataloader": True}),
    "`use_seedable_sampler`": setup(rows, prepared={"use_seedable_sampler": True}),
    "a pass that is left by `break`": setup(rows, prepared={}, **_BREAK),
    "a pass that is left by `break`, data without length": setup(unsized, prepared={}, **_BREAK),
    "`zip()` of two loaders": setup(rows, rows, prepared={}),
    "`zip()` of two loaders, saved after the loop": setup(rows, rows, prepared={}, within=False),
    "`zip()` with a shorter loader": setup(rows, short, prepared={}),
    "`zip()` with a longer loader": setup(short, rows, prepared={}),
    "`zip()` with data without length": setup(short, unsized, prepared={}),
    "`zip()` of three loaders, `use_seedable_sampler`": setup(
        rows, short, rows, prepared={"use_seedable_sampler": True}
    ),
    "`zip()` of two loaders, `use_stateful_dataloader`": setup(short, rows, prepared={"use_stateful_dataloader": True}),
    "a loader that begins again when it has ended": setup(rows, short, read=cycled, prepared={}),
}
