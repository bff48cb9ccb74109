"""`tf.train.Checkpoint` and `tf.train.CheckpointManager`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from benchmarks.peers.libraries import keras
from benchmarks.peers.peer import Late, Live, Peer, Values


class _Late(tf.Module):  # type: ignore[misc]
    """A layer that makes its kernel when it is first called."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = tf.Variable(tf.random.normal([8]))

    def __call__(self, x: Any) -> Any:
        if not hasattr(self, "kernel"):
            self.kernel = tf.Variable(tf.random.normal([x.shape[-1], 8]))
        return x @ self.kernel + self.bias


class _Net(tf.keras.Model):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layer = tf.keras.layers.Dense(8)

    def call(self, x: Any) -> Any:
        return self.layer(x)


class _Training(tf.Module):  # type: ignore[misc]
    """A model and an optimizer, which both make their variables late."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.optimizer = _Net(), tf.keras.optimizers.Adam(0.1)

    def __call__(self, x: Any) -> None:
        """Has both make their variables, without a step."""
        self.net(x)
        if not self.optimizer.built:
            self.optimizer.build(self.net.trainable_variables)

    @property
    def variables(self) -> Any:
        return [*self.net.variables, *self.optimizer.variables]


def unbuilt() -> dict[str, Late]:
    """Models of TensorFlow and Keras whose variables come late."""

    def call(model: Any) -> None:
        model(tf.ones([2, 4]))

    return {
        "a tf.Module": Late(_Late, call),
        "a Keras 3 model": Late(keras.unbuilt, call),
        "a Keras 3 model of an own class, with its optimizer": Late(_Training, call),
    }


def _attached(make: Callable[[], Any]) -> Callable[[], Live]:
    return lambda: tf.train.Checkpoint(model=make())


def _to_model(call: Callable[[Any], object]) -> Callable[[Live], object]:
    return lambda live: call(live.model)


class TensorFlow(Peer):
    """Variables, and models of TensorFlow and Keras."""

    title = "tf.train.Checkpoint"
    packages = ("tensorflow", "keras")
    shares = None

    def hold(self, values: Values) -> Live:
        return tf.train.Checkpoint(**{name: tf.Variable(value, name=name) for name, value in values.items()})

    def values(self, live: Live) -> Values:
        if hasattr(live, "model"):
            weights = live.model.weights if hasattr(live.model, "weights") else live.model.variables
            return {str(number): weight.numpy() for number, weight in enumerate(weights)}
        held = {name: value for name, value in vars(live).items() if isinstance(value, tf.Variable)}
        return {name: value.numpy() for name, value in held.items() if name != "_save_counter"}

    def write(self, live: Live, path: Path) -> None:
        live.write(str(path))

    def read(self, live: Live, path: Path) -> None:
        live.read(str(path))

    def tell(self, live: Live, path: Path) -> str:
        status = live.read(str(path))
        said = []
        for check in (status.assert_consumed, status.assert_existing_objects_matched):
            try:
                check()
            except AssertionError as error:
                said.append(str(error))
        return "\n".join(said)

    def save_next(self, live: Live, folder: Path, number: int) -> None:
        tf.train.CheckpointManager(live, str(folder), max_to_keep=5).save(checkpoint_number=number)

    def restore_newest(self, live: Live, folder: Path) -> None:
        if tf.train.CheckpointManager(live, str(folder), max_to_keep=5).restore_or_initialize() is None:
            raise FileNotFoundError(folder)

    def unbuilt(self) -> Mapping[str, Late]:
        return {kind: Late(_attached(make), _to_model(call)) for kind, (make, call) in unbuilt().items()}
