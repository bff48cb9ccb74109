"""Adapters of the random generators of Python and NumPy."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from milepost.adapters.packed import PackedAdapter
from milepost.graph.adapter import register


class PythonGeneratorAdapter(PackedAdapter):
    """`random.Random`."""

    each_process = "random"

    def handles(self, kind: type) -> bool:
        return issubclass(kind, random.Random) and not issubclass(kind, random.SystemRandom)

    def state(self, obj: random.Random) -> Any:
        return python_state(obj)

    def load(self, obj: random.Random, state: Any) -> None:
        set_python_state(obj, state)


class NumPyGeneratorAdapter(PackedAdapter):
    """`numpy.random.Generator`, and the bit generators below it.

    NumPy imports `numpy.random` when it is first used. Before that, no object of these classes exists.
    """

    each_process = "random"

    def handles(self, kind: type) -> bool:
        module = sys.modules.get("numpy.random")
        return module is not None and issubclass(kind, (module.Generator, module.BitGenerator))

    def state(self, obj: Any) -> Any:
        return getattr(obj, "bit_generator", obj).state

    def load(self, obj: Any, state: Any) -> None:
        getattr(obj, "bit_generator", obj).state = state


def python_state(generator: Any) -> dict[str, Any]:
    """The state of a `random.Random`, or of the module `random`, with its 624 words as one array."""
    state = generator.getstate()
    if len(state) == 3 and isinstance(state[1], tuple) and len(state[1]) == 625:
        version, numbers, gauss = state
        words = np.array(numbers[:-1], np.uint32)
        return {"version": version, "state": words, "position": numbers[-1], "gauss_next": gauss}
    return {"state": state}


def set_python_state(generator: Any, state: Mapping[str, Any]) -> None:
    """Sets the state that `python_state` returned."""
    if "version" in state:
        numbers = (*map(int, state["state"]), state["position"])
        generator.setstate((state["version"], numbers, state["gauss_next"]))
    else:
        generator.setstate(state["state"])


register(PythonGeneratorAdapter())
register(NumPyGeneratorAdapter())
