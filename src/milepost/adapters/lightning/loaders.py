"""The loaders and iterators of a run of Lightning."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

_EPOCHS: Final = {"train": "_last_train_dl_reload_epoch", "val": "_last_val_dl_reload_epoch"}


def loaders_of(loop: Any) -> list[Any]:
    """The loaders of a loop, which may be combined ones; none if it has not made any."""
    return [] if loop._combined_loader is None else list(loop._combined_loader.flattened)


def put_loaders(trainer: Any, loaders: list[Any]) -> None:
    """Makes the training loop read other loaders, which stand for those that it has."""
    combined = trainer.fit_loop._combined_loader
    if any(each is not other for each, other in zip(loaders, combined.flattened, strict=True)):
        combined.flattened = loaders


def epoch_of_loaders(loop: Any, kind: str) -> int | None:
    """The epoch from which ``reload_dataloaders_every_n_epochs`` counts; None before the first one."""
    epoch = getattr(loop, _EPOCHS[kind])
    return None if epoch == float("-inf") else int(epoch)


def set_epoch_of_loaders(loop: Any, kind: str, epoch: int | None) -> None:
    """Restores what `epoch_of_loaders` returned."""
    setattr(loop, _EPOCHS[kind], float("-inf") if epoch is None else epoch)


@contextmanager
def in_epoch(trainer: Any, epoch: int) -> Iterator[None]:
    """Gives ``trainer.current_epoch`` another value while loaders are made that were made in an earlier epoch."""
    progress = trainer.fit_loop.epoch_progress.current
    now, progress.completed = progress.completed, epoch
    try:
        yield
    finally:
        progress.completed = now


def batches_ahead(trainer: Any) -> int:
    """How many batches were read and are not trained yet."""
    return len(getattr(trainer.fit_loop._data_fetcher, "batches", ()))


def consumed(trainer: Any) -> list[bool]:
    """Which of the loaders that are read in cycles have ended once in this epoch."""
    iterator = trainer.fit_loop._combined_loader._iterator
    return list(getattr(iterator, "_consumed", ()))


def make_iterators(trainer: Any, ended: list[bool]) -> None:
    """Makes the iterators of an epoch that continues.

    Args:
        trainer: The trainer.
        ended: What `consumed` returned.
    """
    loop = trainer.fit_loop
    fetcher = loop._data_fetcher
    iter(fetcher)
    if ended:
        loop._combined_loader._iterator._consumed = list(ended)
    fetcher.fetched += loop.epoch_loop.batch_progress.current.ready
    loop._combined_loader._iterator._idx = fetcher.fetched


def let_iterators_be_made(trainer: Any) -> None:
    """Makes Lightning make the iterators when the next epoch begins, as it does in a run that was not resumed."""
    loop = trainer.fit_loop
    loop._resuming_from_checkpoint = False
    begin_like_others(trainer)


def begin_like_others(trainer: Any) -> None:
    """Ends the time in which Lightning counts an epoch as a restarted one.

    Such an epoch would validate or step schedulers again, or not step those that depend on a metric.
    """
    loop = trainer.fit_loop
    loop._restarting = loop.epoch_loop._restarting = loop.epoch_loop.val_loop._restarting = False
