"""One run of ``fit()``: what it read, trained and left behind."""

from __future__ import annotations

import os
import shutil
import signal
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import milepost
from milepost.errors import MilepostError, MilepostWarning
from tests.zoo_fit.data import DATA, EPOCHS, X, Y
from tests.zoo_fit.models import make_model
from tests.zoo_fit.others import OTHERS, state_of_others
from tests.zoo_fit.trainers import TRAINERS

STOPS = ("kill", "raise", "term")
EVENTS = (
    *("on_train_batch_begin", "on_train_batch_end", "on_epoch_begin", "on_epoch_end"),
    *("on_test_begin", "on_test_batch_end", "on_test_end", "on_train_begin", "on_train_end"),
)


@dataclass(frozen=True)
class Plan:
    """A program that calls ``fit()``.

    Attributes:
        data: The kind of data.
        others: The other callbacks.
        model: The kind of model.
        options: Arguments of the callback.
        compiled: Arguments of ``compile()``.
        epochs: How many there are in all.
        last: Whether milepost's callback is the last in the list, else the first.
        validation: Whether there is validation.
    """

    data: str = "arrays, shuffled"
    others: str = "none"
    model: str = "built"
    options: dict[str, Any] = field(default_factory=lambda: {"every_steps": 1})
    compiled: dict[str, Any] = field(default_factory=dict)
    epochs: int = EPOCHS
    last: bool = True
    validation: bool = True


@dataclass(frozen=True)
class Stop:
    """How a run is interrupted.

    Attributes:
        how: One of `STOPS`.
        event: In which method of a callback.
        count: At which of the calls of this method that do not come while catching up.
        before: Whether that callback comes before milepost's.
        catching_up: Whether to count the calls that come while catching up instead.
        again: How often ``fit()`` is called again in the same process.
        anew: Whether that is with another model and another callback.
    """

    how: str
    event: str = "on_train_batch_end"
    count: int = 1
    before: bool = False
    catching_up: bool = False
    again: int = 0
    anew: bool = False


class Interrupted(BaseException):
    """Ends a run as an exception of the program does."""


def run(trainer: str, packages: tuple[Any, Any], plan: Plan, directory: Path, stop: Stop | None, keep: str) -> Any:
    """Trains, and tells what came out.

    Args:
        trainer: Its name.
        packages: What `imported` returned.
        plan: The program.
        directory: Where it saves, below ``directory/run``.
        stop: How it is interrupted, if it is.
        keep: Of which of its saves copies of ``directory`` are made beside it: ``"all"``, the ``"first"``, or ``""``.
    """
    keras, callbacks = packages
    outcome: dict[str, Any] = {"losses": [], "places": [], "error": None, "terminated": False}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            _train(keras, callbacks, TRAINERS[trainer].compiled, plan, directory, stop, keep, outcome)
        except Exception as error:
            outcome["foreign"] = not isinstance(error, MilepostError)
            outcome["error"] = f"{type(error).__name__}: {error}" if outcome["foreign"] else str(error)
    said = [str(each.message) for each in caught if issubclass(each.category, MilepostWarning)]
    outcome["warnings"] = sorted(set(said))
    return outcome


def _train(
    keras: Any,
    callbacks: Any,
    compiled: tuple[tuple[str, Any], ...],
    plan: Plan,
    directory: Path,
    stop: Stop | None,
    keep: str,
    outcome: dict[str, Any],
) -> None:
    def program() -> tuple[Any, Any, list[Any], Any]:
        keras.utils.set_random_seed(1)
        model = make_model(keras, plan.model, DATA[plan.data].dict_inputs)
        other = OTHERS[plan.others]
        optimizer = keras.optimizers.SGD(0.01, momentum=0.9, **other.optimizer)
        model.compile(
            optimizer=optimizer,
            loss="mse",
            metrics=[] if plan.model == "linear" else ["mae"],
            **dict(compiled),
            **plan.compiled,
        )
        options = dict(plan.options)
        if options.pop("asynchronous", False):
            options["options"] = milepost.CheckpointOptions(enable_async=True)
        callback = _watched(callbacks.CheckpointCallback)(directory / "run", **options)
        others = other.make(keras, directory)
        data = DATA[plan.data].make(keras, callback)
        return model, callback, others, data

    model, callback, others, (x, arguments) = program()
    calls = 1 + (stop.again if stop else 0)
    for call in range(calls):
        outcome["losses"].clear()
        if call and stop and stop.anew:
            keras.backend.clear_session()
            model, callback, others, (x, arguments) = program()
        recorder = _recorder(keras, callback, outcome)
        interrupt = _interrupter(callback, stop if not call else None)
        callback.afterwards = [_copier(callback, directory, keep, outcome)]
        before = []
        if stop and stop.before:
            before = [_calling(keras.callbacks.Callback, [interrupt])]
        else:
            callback.afterwards.append(interrupt)
        ours = [*others, *before, callback] if plan.last else [*before, callback, *others]
        if plan.validation:
            other_x = {"a": X, "b": X[:, :1] * 2} if DATA[plan.data].dict_inputs else X
            arguments = {**arguments, "validation_data": (other_x, Y), "validation_batch_size": 7}
        try:
            history = model.fit(x, epochs=plan.epochs, verbose=0, callbacks=[recorder, *ours], **arguments)
            break
        except Interrupted:
            outcome["interrupted"] = call
            if call == calls - 1:
                return
    if not model.built:  # nothing was left to train; what is deferred comes with the first call
        model.predict(X, verbose=0)
    outcome["terminated"] = callback.was_terminated
    outcome["history"] = {name: [_number(each) for each in values] for name, values in history.history.items()}
    outcome["epochs"] = list(history.epoch)
    outcome["weights"] = [np.asarray(weight).tobytes().hex() for weight in model.get_weights()]
    outcome["optimizer"] = [np.asarray(_numpy(each)).tobytes().hex() for each in _variables(model.optimizer)]
    outcome["iterations"] = int(_numpy(model.optimizer.iterations))
    outcome["learning rate"] = float(_numpy(model.optimizer.learning_rate))
    outcome["others"] = state_of_others(others, directory)
    outcome["step"] = _saved_step(callback)


def _saved_step(callback: Any) -> int | None:
    path = callback.manager.latest_checkpoint
    return None if path is None else int(milepost.load_variable(path, "step/.ATTRIBUTES/VARIABLE_VALUE"))


def _variables(optimizer: Any) -> list[Any]:
    found = optimizer.variables
    return list(found() if callable(found) else found)


def _numpy(variable: Any) -> Any:
    if hasattr(variable, "detach"):
        return variable.detach().cpu().numpy()
    value = getattr(variable, "value", None)
    if value is not None and hasattr(value, "detach"):
        return value.detach().cpu().numpy()
    return variable.numpy() if hasattr(variable, "numpy") else np.asarray(variable)


def _number(value: Any) -> Any:
    return np.asarray(value).tolist()


def _recorder(keras: Any, callback: Any, outcome: dict[str, Any]) -> Any:
    class Recorder(keras.callbacks.Callback):
        epoch = 0

        def on_epoch_begin(self, epoch, logs=None):
            self.epoch = epoch

        def on_train_batch_end(self, batch, logs=None):
            if not callback.is_catching_up:
                outcome["losses"].append([self.epoch, batch, float(logs["loss"])])

    return Recorder()


def _watched(callback: Any) -> Any:
    """The class of milepost's callback, which calls functions when it has done its part, wherever it is in the list."""
    return _calling(callback, None)


def _calling(base: Any, functions: list[Callable[[str], None]] | None) -> Any:
    """A class or, with functions, an object, that calls functions with the name of each event after it."""

    def method(event: str) -> Callable[..., None]:
        def call(self, *arguments, **named):
            getattr(super(kind, self), event)(*arguments, **named)
            for function in self.afterwards:
                function(event)

        return call

    kind = type("Watched", (base,), {event: method(event) for event in EVENTS} | {"afterwards": functions or []})
    return kind if functions is None else kind()


def _copier(callback: Any, directory: Path, keep: str, outcome: dict[str, Any]) -> Callable[[str], None]:
    """Copies the directory after each save, as a process finds it that follows one which is killed then."""
    seen: set[str | None] = {None}

    def copy(event: str) -> None:
        path = callback.manager.latest_checkpoint
        if event == "on_train_begin":
            seen.add(path)
        if path in seen or not keep or (keep == "first" and outcome["places"]):
            return
        seen.add(path)
        name = f"{directory.name}+{len(outcome['places'])}"
        shutil.copytree(directory, directory.with_name(name))
        outcome["places"].append([name, len(outcome["losses"])])

    return copy


def _interrupter(callback: Any, stop: Stop | None) -> Callable[[str], None]:
    count = 0

    def reached(event: str) -> None:
        nonlocal count
        if stop is None or event != stop.event or callback.is_catching_up != stop.catching_up:
            return
        count += 1
        if count != stop.count:
            return
        if stop.how == "raise":
            raise Interrupted
        os.kill(os.getpid(), signal.SIGTERM if stop.how == "term" else signal.SIGKILL)

    return reached
