"""The loaders of a run of Lightning: where they are in their data, and when they were made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from milepost.adapters.iterators.pytorch import is_loader
from milepost.adapters.lightning import loaders as private
from milepost.callbacks.data.own_state import OwnState
from milepost.errors import MismatchError, UnsupportedError
from milepost.trainers.loaders import LoaderPosition, host_state, set_host_state, watchable


class RunLoaders:
    """Makes the loaders of a run as they were made when it was saved, and returns them to their positions.

    Args:
        trainer: The trainer.
        saved: What `state` returned, or None.
    """

    def __init__(self, trainer: Any, saved: Any) -> None:
        self._trainer = trainer
        self._saved = {"train": saved} if isinstance(saved, list) else saved  # version 0.1 saved the list
        self._sources: dict[str, Any] = dict((self._saved or {}).get("sources", {}))
        self._saved_validation: list[Any] = (self._saved or {}).get("val", [])
        self._made: dict[str, Any] = {}
        self._positions: list[LoaderPosition] = []
        self._validation: list[OwnState] = []

    @contextmanager
    def being_made(self, kind: str, loop: Any) -> Iterator[None]:
        """Surrounds the making of loaders: they are made in the epoch and with the random state in which they were made before."""
        before, now = private.loaders_of(loop), host_state()
        source = self._sources.pop(kind, None) if not before else None
        if source is None:
            yield
        else:
            set_host_state(source["random"])
            with private.in_epoch(self._trainer, source["epoch"]):
                yield
            private.set_epoch_of_loaders(loop, kind, source["counted"])
            set_host_state(now)
        loaders = private.loaders_of(loop)
        if [id(each) for each in loaders] != [id(each) for each in before]:
            counted = private.epoch_of_loaders(loop, kind)
            self._made[kind] = source or {"epoch": self._trainer.current_epoch, "counted": counted, "random": now}
            if kind == "val":
                self._validation = [OwnState(each, trusted=True) for each in loaders if is_loader(each)]
                if self._saved is None:
                    self._put_validation()

    def watch(self, loaders: list[Any]) -> None:
        """Records the training loaders before they are read.

        Raises:
            MismatchError: There are more or fewer than in the saved run.
            UnsupportedError: One of them cannot return to a position.
        """
        if len({id(each) for each in loaders}) < len(loaders):
            raise UnsupportedError(
                "a loader is read several times at once, so it has several positions",
                key="data",
                expected="loaders that are different objects",
                found="one object twice",
                remedy="make a DataLoader for each",
            )
        private.put_loaders(self._trainer, [watchable(each) for each in loaders])
        self._positions = [LoaderPosition(each) for each in private.loaders_of(self._trainer.fit_loop)]
        if self._saved is None:
            return
        if len(self._saved["train"]) != len(loaders):
            raise MismatchError(
                "the data is not that of the saved run",
                key="data",
                expected=f"{len(self._saved['train'])} loaders",
                found=f"{len(loaders)} loaders",
                remedy="resume with the same loaders, or use another directory",
            )
        for each in self._positions:
            each.wait()

    def arrive(self, random: dict[str, Any], *, within: bool) -> None:
        """Returns the training loaders to their positions.

        Args:
            random: The saved random state.
            within: Whether an epoch continues. Otherwise Lightning makes the iterators when the next one begins.

        Raises:
            MismatchError: A loader has a different number of batches than the saved one, or a different kind of state.
        """
        saved, self._saved = self._saved, None
        for position, state in zip(self._positions, saved["train"], strict=True):
            position.load(state, random)
            position.arrived()  # the random state is set after all of them
        self._put_validation()
        if within:
            private.make_iterators(self._trainer, saved.get("consumed", []))

    def state(self, *, ended: bool) -> dict[str, Any]:
        """The positions, as plain data.

        Args:
            ended: Whether the epoch has ended.
        """
        ahead = 0 if ended else private.batches_ahead(self._trainer)
        return {
            "train": [each.state(ahead, ended=ended) for each in self._positions],
            "val": [each.now() for each in self._validation],
            "consumed": [] if ended else private.consumed(self._trainer),
            "sources": self._made,
        }

    def forget(self) -> None:
        """Makes the loaders forget the saved positions."""
        for each in self._positions:
            each.forget()
        self._positions = []

    def _put_validation(self) -> None:
        if self._validation:
            saved, self._saved_validation = self._saved_validation, []
            for own, state in zip(self._validation, saved, strict=False):
                own.put(state)
