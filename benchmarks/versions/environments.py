"""Which versions are installed together, and which programs are run with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

_JAX: Final = ("optax", "linen", "nnx", "equinox", "grain", "orbax", "safetensors", "h5py")
_TORCH: Final = ("torch", "torchdata", "accelerate", "ignite", "lightning", "transformers")
_KERAS: Final = ("keras on TensorFlow", "keras on JAX", "keras on PyTorch", "tf_keras", "tensorflow")

LIBRARIES: Final[Mapping[str, Sequence[str]]] = {
    "optax": ("jax", "optax"),
    "linen": ("flax", "jax"),
    "nnx": ("flax", "jax"),
    "equinox": ("equinox", "jax"),
    "grain": ("grain",),
    "orbax": ("orbax-checkpoint", "jax"),
    "safetensors": ("safetensors",),
    "h5py": ("h5py",),
    "torch": ("torch",),
    "torchdata": ("torchdata", "torch"),
    "accelerate": ("accelerate", "torch"),
    "ignite": ("pytorch-ignite", "torch"),
    "lightning": ("lightning", "torch"),
    "transformers": ("transformers", "accelerate", "torch"),
    "keras": ("keras", "tensorflow"),
    "keras on TensorFlow": ("keras", "tensorflow"),
    "keras on JAX": ("keras", "jax"),
    "keras on PyTorch": ("keras", "torch"),
    "tf_keras": ("tf_keras", "tensorflow"),
    "tensorflow": ("tensorflow",),
}
"""The packages that each program uses, the one that it is about first."""


class Environment(NamedTuple):
    """What is installed together.

    Attributes:
        python: The version of Python.
        packages: What is installed, in the words of pip.
        programs: The programs that are run.
    """

    python: str
    packages: Sequence[str]
    programs: Sequence[str]


ENVIRONMENTS: Final[Mapping[str, Environment]] = {
    "jax-oldest": Environment(
        "3.11",
        (
            "jax==0.6.2",
            "jaxlib==0.6.2",
            "flax==0.10.7",
            "optax==0.2.5",
            "equinox==0.12.2",
            "grain==0.2.9",
            "orbax-checkpoint==0.11.16",
            "safetensors==0.5.3",
            "h5py==3.13.0",
        ),
        _JAX,
    ),
    "jax-0.7": Environment(
        "3.11", ("jax==0.7.2", "jaxlib==0.7.2", "flax==0.11.2", "optax==0.2.6", "equinox==0.13.2"), _JAX[:4]
    ),
    "jax-0.8": Environment(
        "3.11", ("jax==0.8.1", "jaxlib==0.8.1", "flax==0.12.0", "optax==0.2.6", "equinox==0.13.2"), _JAX[:4]
    ),
    "jax-0.9": Environment(
        "3.12", ("jax==0.9.2", "jaxlib==0.9.2", "flax==0.12.5", "optax==0.2.6", "equinox==0.13.4"), _JAX[:4]
    ),
    "jax-newest": Environment(
        "3.13", ("jax", "flax", "optax", "equinox", "grain", "orbax-checkpoint", "safetensors", "h5py"), _JAX
    ),
    "torch-oldest": Environment(
        "3.11",
        (
            "torch==2.13.0",
            "torchdata==0.11.0",
            "accelerate==1.9.0",
            "pytorch-ignite==0.5.2",
            "lightning==2.5.3",
            "transformers==4.50.3",
        ),
        _TORCH,
    ),
    "torch-newest": Environment(
        "3.11", ("torch==2.13.0", "torchdata", "accelerate", "pytorch-ignite", "lightning", "transformers"), _TORCH[1:]
    ),
    "tensorflow-2.15": Environment("3.11", ("tensorflow==2.15.*",), ("keras", "tensorflow")),
    "keras-oldest": Environment(
        "3.11",
        ("keras==3.10.0", "tensorflow==2.19.0", "tf_keras==2.19.0", "torch==2.13.0", "jax==0.6.2", "jaxlib==0.6.2"),
        _KERAS,
    ),
    "keras-newest": Environment("3.11", ("keras", "tensorflow==2.21.*", "tf_keras", "torch==2.13.0", "jax"), _KERAS),
}
"""From the oldest to the newest of each group. torch has one version, of which there is a build without CUDA wherever the others are."""
