"""What a kind of data is, for runs of ``fit()``, and the rows that all of them hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

ROWS, BATCH, EPOCHS = 14, 4, 3
BATCHES = -(-ROWS // BATCH)
X = np.random.RandomState(0).rand(ROWS, 3).astype("float32")
Y = (X.sum(axis=1, keepdims=True) * 3 - 1).astype("float32")
WEIGHT = np.linspace(0.5, 2, ROWS).astype("float32")


@dataclass(frozen=True)
class Data:
    """A kind of data.

    Attributes:
        make: Called with the package of Keras and the callback; returns what is passed to ``fit()`` as ``x``, and its
            other arguments.
        needs: Packages without which there is no such data.
        said: A sentence of ``docs/keras_fit.md`` which says that it is inexact, and why.
        dict_inputs: Whether the model gets a dict.
        resumable: Whether it can be resumed within an epoch, too.
    """

    make: Callable[[Any, Any], tuple[Any, dict[str, Any]]]
    needs: tuple[str, ...] = ()
    said: str = ""
    dict_inputs: bool = False
    resumable: bool = True


DATA: dict[str, Data] = {}
"""All kinds, by what the table calls them."""


def kind(name: str, *needs: str, **settings: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function that makes the data; it returns ``x``, or ``x`` and arguments of ``fit()``."""

    def register(make: Callable[..., Any]) -> Callable[..., Any]:
        def both(keras: Any, callback: Any) -> tuple[Any, dict[str, Any]]:
            made = make(keras, callback)
            return made if isinstance(made, tuple) else (made, {})

        DATA[name] = Data(both, needs, **settings)
        return make

    return register


# Arrays and what is like them.


def batches_of(order: Any) -> Any:
    """The rows in this order, in batches."""
    for start in range(0, ROWS, BATCH):
        rows = np.asarray(order)[start : start + BATCH]
        yield X[rows], Y[rows]
