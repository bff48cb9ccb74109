"""The trainers that run ``fit()``, and how a process is started that has one of them imported and has not used it yet."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
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
_AT_ONCE = ("tensorflow", "torch", "torch._dynamo", "torchdata.stateful_dataloader", "datasets", "grain", "pandas")
"""What Keras and data sets import when they first need it; imported once, it need not be imported in each run."""
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


def environment(trainer: str, cache: str) -> dict[str, str]:
    """The environment of a process for one trainer, with a directory for what JAX compiles."""
    backend = TRAINERS[trainer].backend
    return {**os.environ, **_QUICKLY, "KERAS_BACKEND": backend, "JAX_COMPILATION_CACHE_DIR": cache}


def imported(trainer: str) -> tuple[Any, Any]:
    """The package of Keras, and milepost's module for it."""
    package = TRAINERS[trainer].package
    keras, callbacks = importlib.import_module(package), importlib.import_module(f"milepost.{package}")
    for name in _AT_ONCE:
        if is_installed(name.partition(".")[0]):
            importlib.import_module(name)
    adapter_of(keras)  # imports the adapters
    gc.freeze()  # else each run copies what it only looks at
    return keras, callbacks
