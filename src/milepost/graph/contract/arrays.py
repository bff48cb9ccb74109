"""Arrays that programs compute, and values that never change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from milepost.graph.contract.values import Array
from milepost.tensor import TensorSpec


class Arrays:
    """What an adapter of arrays states, so that lists and dicts of arrays are restored with their saved length.

    An adapter of layers, variables and optimizers overrides nothing here.
    """

    functional: bool = False
    """Set for values that never change. A program replaces them, together with the containers that hold them
    (`milepost.graph.trees.places`). Two places that hold the same value are saved as two values."""

    array_type: str = ""
    """The name in the object graph for arrays that a restore can make (`new_array`). Empty if there are none."""

    def is_value(self, obj: Any) -> bool:
        """Whether this is an array that a program computes, and not a variable that holds one."""
        return False

    def is_new_array(self, obj: Any) -> bool:
        """Whether a list that held this array is a list of arrays, which a restore or `milepost.load` makes again. Called if `array_type` is
        set."""
        return False

    def new_array(self, spec: TensorSpec, hints: Mapping[str, Array]) -> Any:
        """Makes an array that can take a saved value.

        Args:
            spec: The element type and shape of the value.
            hints: What `hints_to_save` returned for the saved array.

        Returns:
            The array, or None if it cannot be made before there is a value.
        """
        raise NotImplementedError
