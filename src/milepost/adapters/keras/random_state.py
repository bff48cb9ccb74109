"""Keras' global seed generator, which random functions use if they are given no seed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from milepost.adapters.keras.backends import backend
from milepost.adapters.keras.private import get_global_attribute, global_seed_generator
from milepost.adapters.keras.variables import value_of


def global_state() -> dict[str, Any]:
    """The state as plain data; empty if the generator was never used."""
    generator = get_global_attribute("global_seed_generator")
    return {} if generator is None else {"seed": np.array(value_of(generator.state))}


def set_global_state(state: Mapping[str, Any]) -> None:
    """Sets the state that `global_state` returned."""
    variable = global_seed_generator().state
    with backend.eagerly():
        backend.write(variable, state["seed"].astype(value_of(variable).dtype))
