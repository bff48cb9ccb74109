"""What must hold of each object of Keras: saved, and restored into one that is built or one that is not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import milepost
from tests.zoo.compare import (
    DifferenceError,
    array,
    arrays,
    as_input,
    require_all_changed,
    require_same,
    same,
    seed_frameworks,
)
from tests.zoo.recipe import Recipe, keras

STAGES = ("built", "deferred")
_TARGETS = np.linspace(-1, 1, 8, dtype="float32").reshape(4, 2)


class Subject:
    """What is the same for layers, optimizers and metrics: how to make one, use it, and look at it."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.obj = self.make()

    def make(self) -> Any:
        return self.recipe.make()

    def tracked(self) -> dict[str, Any]:
        """The arguments of the checkpoint."""
        return {"object": self.obj}

    def variables(self) -> list[Any]:
        return list(self.obj.variables)

    def values(self) -> list[np.ndarray]:
        return [array(variable.value) for variable in self.variables()]

    def learn(self) -> None:
        """Gives it the state that is saved."""
        raise NotImplementedError

    def use_otherwise(self) -> None:
        """Builds it and gives it another state."""
        raise NotImplementedError

    def outputs(self) -> Iterator[list[np.ndarray]]:
        """What it computes next, step by step; changes it."""
        raise NotImplementedError

    def wake(self) -> None:
        """What has to be done to a restored, unbuilt object before its outputs are those of the saved one."""


class Layer(Subject):
    """A layer alone."""

    def subject(self) -> Any:
        return self.obj

    def call(self, number: int) -> list[np.ndarray]:
        seed_frameworks(number)
        return arrays(self.obj(*self._inputs(), **self._options(number)))

    def _inputs(self) -> tuple[Any, ...]:
        return tuple(map(as_input, self.recipe.inputs))

    def _options(self, number: int) -> dict[str, bool]:
        """Training and inference in turn, for layers that make a difference between them."""
        return {"training": number % 2 == 0} if self.recipe.trains else {}

    def _adapt(self, saved: bool) -> None:
        if self.recipe.adapt is not None:
            self.recipe.adapt(self.subject(), saved)

    def _then(self) -> None:
        if self.recipe.then is not None:
            self.recipe.then(self.subject())

    def learn(self) -> None:
        self._adapt(True)
        self.call(1)
        self._then()
        own = {id(variable) for variable in self.subject().variables}
        _shift([each for each in self.variables() if id(each) not in own or self.recipe.shifts(each)])
        self.call(2)

    def use_otherwise(self) -> None:
        self._adapt(False)
        self.call(1)
        self._then()

    def outputs(self) -> Iterator[list[np.ndarray]]:
        for number in (4, 5, 6) if self.recipe.trains else (4, 5):
            yield self.call(number)

    def wake(self) -> None:
        if self.recipe.then is not None:
            self.call(1)
            self._then()


class Scale(keras.layers.Layer):
    """A neighbour with state for layers of any shape."""

    def build(self, shape):
        self.factor = self.add_weight(shape=(), initializer="random_normal", name="factor")

    def call(self, x):
        return keras.ops.cast(x, "float32") * (self.factor + 2.0)


class Around(keras.Model):
    """A model around a layer that takes or returns several tensors."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.before = Scale()
        self.inner = inner
        self.side = keras.layers.Dense(2)

    def call(self, inputs, **options):
        return self.inner(*inputs, **options), self.side(self.before(keras.ops.ones((2, 3))))


class AroundInTraining(Around):
    """The same, around a layer that makes a difference between training and inference."""

    def call(self, inputs, training=False):
        return super().call(inputs, training=training)


class LayerInModel(Layer):
    """A layer between others in a Sequential model, or in a subclassed one if it takes several tensors."""

    def make(self) -> Any:
        inner = self._subject = self.recipe.make()
        if not self._is_sequential():
            return (AroundInTraining if self.recipe.trains else Around)(inner)
        before = [Scale()] if self.recipe.inputs[0].dtype == np.float32 else []
        return keras.Sequential([*before, inner, Scale()])

    def _is_sequential(self) -> bool:
        return len(self.recipe.inputs) == 1 and isinstance(self.recipe.inputs[0], np.ndarray)

    def _inputs(self) -> tuple[Any, ...]:
        inputs = super()._inputs()
        return inputs if self._is_sequential() else (inputs,)

    def subject(self) -> Any:
        return self._subject


class Optimizer(Subject):
    """An optimizer, and the model that it trains."""

    _made = 0

    def make(self) -> Any:
        Optimizer._made += 1
        keras.utils.set_random_seed(Optimizer._made)
        layers = keras.layers
        self.model = keras.Sequential([layers.Dense(3, activation="tanh"), layers.Dense(2)])
        optimizer = self.recipe.make()
        self.model.compile(optimizer, "mse", run_eagerly=not _is_compiled(optimizer))
        return self.model.optimizer

    def tracked(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.obj}

    def variables(self) -> list[Any]:
        own = [*self.obj.variables, *getattr(getattr(self.obj, "inner_optimizer", None), "variables", ())]
        return [*self.model.variables, *own, *_held_by_schedule(self.obj)]

    def _train(self, number: int) -> list[np.ndarray]:
        inputs = self.recipe.inputs[0] * (1 + number / 8)
        self.model.reset_metrics()
        return [np.array(self.model.train_on_batch(inputs, _TARGETS))]

    def learn(self) -> None:
        self._train(1)
        first = self.values()
        for number in (2, 3):
            self._train(number)
        now = zip(self.variables(), self.values(), first, strict=True)
        _shift([variable for variable, value, old in now if same(value, old)])

    def use_otherwise(self) -> None:
        self._train(9)

    def outputs(self) -> Iterator[list[np.ndarray]]:
        for number in (4, 5, 6):  # the second step of an accumulation, then both of the next
            yield self._train(number)


class Metric(Subject):
    """A metric, also before it knows how many classes there are."""

    def learn(self) -> None:
        self.obj.update_state(*self.recipe.inputs[0])
        self.obj.update_state(*self.recipe.inputs[1])

    def use_otherwise(self) -> None:
        for _ in range(3):
            self.obj.update_state(*self.recipe.inputs[2])

    def outputs(self) -> Iterator[list[np.ndarray]]:
        for inputs in self.recipe.inputs[::-1]:
            self.obj.update_state(*inputs)
            yield arrays(self.obj.result())


KINDS: dict[str, list[tuple[str, Callable[[Recipe], Subject]]]] = {
    "layers": [("", Layer), ("in a model", LayerInModel)],
    "optimizers": [("", Optimizer)],
    "optimizers.schedules": [("", Optimizer)],
    "metrics": [("", Metric)],
}


def refusal(kind: Callable[[Recipe], Subject], recipe: Recipe) -> str:
    """Why Keras itself cannot do on this backend what the check does, or nothing; milepost has no part in it."""
    try:
        for prepare in ("learn", "use_otherwise"):
            subject = kind(recipe)
            getattr(subject, prepare)()
            list(subject.outputs())
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    return ""


def check(
    kind: Callable[[Recipe], Subject], recipe: Recipe, directory: Path, stages: Iterable[str] = STAGES
) -> dict[str, int | str | None]:
    """Runs the check.

    Returns:
        For each stage, the number of values that were restored, None if there is no such stage, or what was wrong.
    """
    source = kind(recipe)
    source.learn()
    path = milepost.Checkpoint(**source.tracked()).write(directory / "ckpt")
    saved = source.values()
    expected = list(source.outputs())
    at_the_end = source.values()
    results: dict[str, int | str | None] = {}
    for stage in stages:
        if stage == "deferred" and recipe.then_first:
            results[stage] = None
            continue
        try:
            results[stage] = _restore(kind(recipe), stage, path, saved, expected, at_the_end)
        except Exception as error:
            results[stage] = f"{type(error).__name__}: {error}"
    return results


def _restore(
    fresh: Subject,
    stage: str,
    path: str,
    saved: list[np.ndarray],
    expected: list[list[np.ndarray]],
    at_the_end: list[np.ndarray],
) -> int:
    if stage == "built":
        fresh.use_otherwise()
        names = [variable.path for variable in fresh.variables()]
        require_all_changed("before restoring", names, saved, fresh.values())
    status = milepost.Checkpoint(**fresh.tracked()).read(path)
    if stage == "built":
        status.assert_consumed()
    else:
        fresh.wake()
    if stage == "built" or (fresh.recipe.then is None and len(fresh.variables()) == len(saved)):
        require_same("variables right after restoring", fresh.values(), saved)
    for number, (found, wanted) in enumerate(zip(fresh.outputs(), expected, strict=True)):
        require_same(f"output {number} after restoring", found, wanted)
    require_same("variables after further steps", fresh.values(), at_the_end)
    status.assert_consumed()
    report = status.report()
    if not report.complete:
        raise DifferenceError(f"incomplete: {report}")
    return len(report.matched)


def _is_compiled(optimizer: Any) -> bool:
    """Whether the step is compiled: JAX compiles branches each time they are met, unless all of it is compiled once."""
    branches = optimizer.gradient_accumulation_steps or isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    return bool(branches) and keras.backend.backend() == "jax"


def _held_by_schedule(optimizer: Any) -> list[Any]:
    schedule = optimizer._learning_rate
    if not isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
        return []
    return [each for each in vars(schedule).values() if isinstance(each, keras.Variable)]


def _shift(variables: list[Any]) -> None:
    """Gives variables other values, so that none is as it was made."""
    for number, variable in enumerate(variables):
        old = array(variable.value)
        if old.dtype.kind in "iu":
            new = (old + 3 + np.arange(old.size).reshape(old.shape)).astype(old.dtype)
        elif old.dtype == bool:
            new = ~old
        else:
            step = 0.05 + 0.01 * ((np.arange(old.size).reshape(old.shape) + number) % 7)
            new = (old.astype("float32") * 1.1 + step).astype(old.dtype)
        variable.assign(new)
