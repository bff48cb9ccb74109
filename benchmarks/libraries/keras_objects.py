"""Every layer, optimizer and metric of Keras 3, on TensorFlow; the tests know how to make and use them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras

from benchmarks.libraries.specimen import Specimen, UntriedError
from tests.zoo import compare
from tests.zoo.checks import KINDS
from tests.zoo.namespaces import cases

_CASES = {str(case): case for case in cases()}


def names() -> Iterable[str]:
    """What is public, by its namespace and name."""
    return _CASES


def make(name: str, seed: int) -> Specimen:
    """One object; a layer stands in a model where it can, as a model is what Keras saves."""
    case = _CASES[name]
    if case.recipe.requires:
        raise UntriedError(f"it needs {case.recipe.requires}")
    compare.seed_frameworks(seed)
    kinds = KINDS[case.namespace]
    kind = kinds[-1][1] if not case.recipe.alone and not case.recipe.variant else kinds[0][1]
    return KerasObject(kind(case.recipe), seed)


class KerasObject(Specimen):
    """An object that the tests know how to use, built."""

    def __init__(self, subject: Any, seed: int) -> None:
        self.subject = subject
        if seed == 1:
            subject.learn()
        else:
            subject.use_otherwise()

    def tracked(self) -> dict[str, Any]:
        return dict(self.subject.tracked())

    def use(self, step: int) -> Any:
        compare.seed_frameworks(step)
        return [output for output, _ in zip(self.subject.outputs(), range(2), strict=False)]

    def account(self) -> Any:
        return self.subject.values()

    def save(self, path: Path) -> None:
        saver = self._saver()
        if hasattr(saver, "save_weights"):
            saver.save_weights(f"{path}.weights.h5")
            if saver is not self.subject.obj:
                _store(self.subject.obj, path)
        else:
            _store(saver, path)

    def load(self, path: Path) -> None:
        saver = self._saver()
        if hasattr(saver, "load_weights"):
            saver.load_weights(f"{path}.weights.h5")
            if saver is not self.subject.obj:
                _fetch(self.subject.obj, path)
        else:
            _fetch(saver, path)

    def _saver(self) -> Any:
        """The model that Keras would save; else the object."""
        return getattr(self.subject, "model", self.subject.obj)


def _store(each: Any, path: Path) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        keras.src.saving.saving_lib._save_state(each, _H5(file), None, "", set())


def _fetch(each: Any, path: Path) -> None:
    import h5py

    with h5py.File(path) as file:
        keras.src.saving.saving_lib._load_state(each, _H5(file), None, "", visited_saveables=set())


class _H5:
    """The groups of a file, as Keras' own functions ask for them."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def make(self, path: str, metadata: Any = None) -> Any:
        return self.file.require_group(path or "all")

    def get(self, path: str) -> Any:
        return self.file.get(path or "all", {})
