"""The libraries, and what has to be installed for each."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any, Final, NamedTuple


class Library(NamedTuple):
    """A library.

    Attributes:
        module: The module of `benchmarks.libraries` that knows it.
        packages: What it needs, as names of distributions.
        imports: What must be importable.
        own: Its own way of saving, which milepost's is compared with.
        together: How many objects one process tries.
    """

    module: str
    packages: tuple[str, ...]
    imports: str
    own: str
    together: int = 200


LIBRARIES: Final = {
    "torchmetrics": Library(
        "metrics",
        ("torchmetrics", "lightning-utilities", "torch"),
        "torchmetrics",
        "`torch.save(state_dict())` after `persistent(True)`",
    ),
    "pytorch_optimizer": Library(
        "pytorch_optimizers", ("pytorch_optimizer", "torch"), "pytorch_optimizer", "`torch.save(state_dict())`"
    ),
    "torch_optimizer": Library(
        "torch_optimizers",
        ("torch_optimizer", "pytorch_ranger", "torch"),
        "torch_optimizer",
        "`torch.save(state_dict())`",
    ),
    "timm.optim": Library("timm_optimizers", ("timm", "torchvision", "torch"), "timm", "`torch.save(state_dict())`"),
    "timm": Library("timm_models", ("timm", "torchvision", "torch"), "timm", "`torch.save(state_dict())`", 16),
    "torchvision": Library(
        "torchvision_models", ("torchvision", "torch"), "torchvision", "`torch.save(state_dict())`", 16
    ),
    "transformers": Library(
        "transformers_models", ("transformers", "tokenizers", "torch"), "transformers", "`torch.save(state_dict())`", 16
    ),
    "peft": Library(
        "peft_models", ("peft", "transformers", "accelerate", "torch"), "peft", "`torch.save(state_dict())`", 16
    ),
    "diffusers": Library("diffusers_models", ("diffusers", "torch"), "diffusers", "`torch.save(state_dict())`", 16),
    "optax.contrib": Library("optax_contrib", ("optax", "jax"), "optax", "`pickle` of the tree", 30),
    "keras": Library("keras_objects", ("keras", "tensorflow"), "keras", "`save_weights`, and `save_own_variables`", 60),
    "tf_keras": Library("tf_keras_objects", ("tf_keras", "tensorflow"), "tf_keras", "`tf.train.Checkpoint`", 60),
}


def load(name: str) -> Any:
    """The module that knows a library: ``names()``, and ``make(name, seed)``."""
    return importlib.import_module(f"benchmarks.libraries.{LIBRARIES[name].module}")


def is_installed(name: str) -> bool:
    """Whether a library can be tried here."""
    return importlib.util.find_spec(LIBRARIES[name].imports) is not None
