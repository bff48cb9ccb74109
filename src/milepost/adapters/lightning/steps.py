"""The moments of ``fit()`` at which a run is complete up to a batch or an epoch. Lightning has no hooks there.

Hooks of callbacks are called while a batch or an epoch is not yet complete: hooks of the model, the schedulers and counters follow.
So the methods of Lightning's loops are replaced, for one run, by methods that also call an observer.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol


class Observer(Protocol):
    """What is called. A method that raises ``StopIteration`` ends the run, as Lightning's own hooks can."""

    def loaders(self, kind: str, loop: Any) -> AbstractContextManager[None]:
        """Surrounds the making of the loaders for ``"train"`` or ``"val"``, if the loop makes new ones."""
        ...

    def before_iterators(self, loaders: list[Any]) -> None:
        """Training loaders were made, and have no iterators yet."""
        ...

    def before_epoch(self) -> None:
        """An epoch begins, or one that was saved continues. No hook of it was called."""
        ...

    def before_batches(self) -> None:
        """The next batch of the epoch is read next."""
        ...

    def after_batch(self) -> None:
        """A batch was trained. The validation, the schedulers and all hooks that follow it have run."""
        ...

    def after_batches(self) -> None:
        """The batches of an epoch have ended, and none of the hooks of its end were called."""
        ...

    def after_run(self) -> None:
        """All hooks of the end of training were called."""
        ...


def observe(trainer: Any, observer: Observer) -> Callable[[], None]:
    """Calls an observer during the next run.

    Returns:
        A function that ends this.
    """
    fit_loop = trainer.fit_loop
    epoch_loop = fit_loop.epoch_loop
    val_loop = epoch_loop.val_loop
    replaced: list[tuple[Any, str]] = []

    def replace(loop: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        method = getattr(type(loop), name)
        vars(loop)[name] = make(lambda *arguments: method(loop, *arguments))
        replaced.append((loop, name))

    replace(fit_loop, "setup_data", lambda method: _with_loaders(observer, "train", fit_loop, method))
    replace(val_loop, "setup_data", lambda method: _with_loaders(observer, "val", val_loop, method))
    replace(
        fit_loop,
        "_load_combined_loader_states",
        lambda _: lambda: observer.before_iterators(fit_loop._combined_loader.flattened),
    )
    replace(fit_loop, "on_advance_start", lambda method: _in_turn(observer.before_epoch, method))
    replace(epoch_loop, "on_run_start", lambda method: _in_turn(method, lambda _: observer.before_batches()))
    replace(epoch_loop, "on_advance_end", lambda method: _in_turn(method, lambda _: observer.after_batch()))
    replace(fit_loop, "on_advance_end", lambda method: _in_turn(observer.after_batches, method))
    replace(fit_loop, "on_run_end", lambda method: _in_turn(method, observer.after_run))

    def release() -> None:
        for loop, name in replaced:
            vars(loop).pop(name, None)

    return release


def _in_turn(*functions: Callable[..., Any]) -> Callable[..., None]:
    def call(*arguments: Any) -> None:
        for function in functions:
            function(*arguments)

    return call


def _with_loaders(observer: Observer, kind: str, loop: Any, method: Callable[[], Any]) -> Callable[[], None]:
    def call() -> None:
        with observer.loaders(kind, loop):
            method()

    return call
