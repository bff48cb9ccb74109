"""Keras 3: files of weights and of models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from benchmarks.peers.peer import Late, Live, Peer, Values


def unbuilt() -> Any:
    """A model whose layers make their weights when it is first called."""
    return keras.Sequential([keras.layers.Dense(8), keras.layers.Dense(1)])


class _Model:
    """A model, in a place where another can be put."""

    def __init__(self, model: Any) -> None:
        self.model = model


class _Keras(Peer):
    packages = ("keras", "tensorflow")

    def hold(self, values: Values) -> Live:
        x = keras.Input((128,))
        layers = [
            keras.layers.Dense(value.shape[1], use_bias=False, name=name, dtype=str(value.dtype))
            for name, value in values.items()
        ]
        model = keras.Model(x, [layer(x) for layer in layers])
        for layer, value in zip(layers, values.values(), strict=True):
            layer.kernel.assign(value)
        return _Model(model)

    def values(self, live: Live) -> Values:
        if isinstance(live.model, keras.Sequential):
            return {str(number): np.array(weight) for number, weight in enumerate(live.model.weights)}
        return {layer.name: np.array(layer.kernel) for layer in live.model.layers if hasattr(layer, "kernel")}

    def unbuilt(self) -> Mapping[str, Late]:
        return {
            "a Keras 3 model": Late(lambda: _Model(unbuilt()), lambda live: live.model(np.ones((2, 4), np.float32)))
        }

    def tell(self, live: Live, path: Path) -> str:
        self.read(live, path)
        return ""


class KerasWeights(_Keras):
    """`save_weights` and `load_weights`."""

    title = "Keras 3 weights"
    name = "model.weights.h5"
    numbered = "model-{}.weights.h5"

    def write(self, live: Live, path: Path) -> None:
        live.model.save_weights(path)

    def read(self, live: Live, path: Path) -> None:
        live.model.load_weights(path)


class KerasModel(_Keras):
    """`save` and `load_model`, which makes the whole model anew."""

    title = "Keras 3 models"
    name = "model.keras"
    numbered = "model-{}.keras"

    def write(self, live: Live, path: Path) -> None:
        live.model.save(path)

    def read(self, live: Live, path: Path) -> None:
        live.model = keras.saving.load_model(path)

    def exploits(self, path: Path, code: str) -> list[tuple[str, Callable[[], object]]]:
        def load(file: Path, **options: Any) -> Callable[[], object]:
            def run() -> None:
                scope: dict[str, Any] = {}
                exec(f"layer = lambda x: (exec({code!r}), x)[1]", scope)
                keras.Sequential([keras.Input((4,)), keras.layers.Lambda(scope["layer"], output_shape=(4,))]).save(file)
                Path(code.split("'")[1]).unlink(missing_ok=True)
                keras.saving.load_model(file, **options)(np.ones((1, 4)))

            return run

        return [
            ("a Lambda layer in .keras", load(path)),
            ("a Lambda layer in .h5", load(path.with_suffix(".h5"))),
            ("trusting: safe_mode=False", load(path, safe_mode=False)),
        ]
