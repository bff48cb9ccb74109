"""The trainers that run ``fit()``, and how a process is started that has one of them imported and has not used it yet."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from milepost.graph.adapter import adapter_of


@dataclass(frozen=True)
class Trainer:
    """A Keras and its backend.

    Attributes:
        package: The package of Keras.
        backend: Its backend.
        compiled: Further arguments of ``compile()``: compiling takes most of the time.
    """

    package: str
    backend: str
    compiled: tuple[tuple[str, Any], ...] = ()


TRAINERS = {
    "tensorflow": Trainer("keras", "tensorflow", (("jit_compile", False),)),
    "jax": Trainer("keras", "jax"),
    "torch": Trainer("keras", "torch", (("jit_compile", False),)),
    "tf_keras": Trainer("tf_keras", "tensorflow"),
}
_LATE = {"torch": "torch._dynamo", "torchdata": "torchdata.stateful_dataloader"}
"""Modules of packages which Keras and data sets import when they first need them."""
_QUICKLY = {
    "CUDA_VISIBLE_DEVICES": "-1",
    "JAX_PLATFORMS": "cpu",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    "OMP_NUM_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_NUM_INTEROP_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
}


def is_installed(*packages: str) -> bool:
    """Whether all these packages can be imported."""
    return all(importlib.util.find_spec(package) is not None for package in packages)


def installed() -> list[str]:
    """The trainers that can be run here."""
    return [name for name, trainer in TRAINERS.items() if is_installed(trainer.package, trainer.backend)]


def environment(backend: str, cache: str) -> dict[str, str]:
    """The environment of a process for one backend, with a directory for what JAX compiles."""
    return {**os.environ, **_QUICKLY, "KERAS_BACKEND": backend, "JAX_COMPILATION_CACHE_DIR": cache}


def imported(trainer: str, needs: Iterable[str] = ()) -> tuple[Any, Any]:
    """The package of Keras, and milepost's module for it.

    Args:
        trainer: The trainer.
        needs: Packages that the runs need. They are imported here, so that they need not be imported in each run.
    """
    package, backend = TRAINERS[trainer].package, TRAINERS[trainer].backend
    keras, callbacks = importlib.import_module(package), importlib.import_module(f"milepost.{package}")
    for name in sorted({backend, "tensorflow", *needs}):  # keras.utils.set_random_seed() imports TensorFlow
        if is_installed(name):
            importlib.import_module(name)
            importlib.import_module(_LATE.get(name, name))
    adapter_of(keras)  # imports the adapters
    gc.freeze()  # else each run copies what it only looks at
    return keras, callbacks
