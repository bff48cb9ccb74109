"""Arrays as programs compute them, and values that never change."""

from __future__ import annotations

from typing import Any

from milepost.tensor import TensorSpec


class Arrays:
    """What an adapter of a library's arrays says, so that lists and dicts of them come back with their saved length.

    An adapter of layers, variables and optimizers overrides nothing here.
    """

    functional: bool = False
    """Set for values of a program without side effects, which are never changed but succeeded by others, together with
    the containers that hold them (`milepost.graph.trees.places`). Two places that hold the same one are still two."""

    array_type: str = ""
    """The name that the object graph has for the type of arrays that a restore can make anew (`new_array`), if there are any."""

    def is_value(self, obj: Any) -> bool:
        """Whether this is an array as a program computes them, and no variable that holds one."""
        return False

    def is_new_array(self, obj: Any) -> bool:
        """Whether `new_array` makes an array that is like this one but for its elements; asked where `array_type` is set."""
        return False

    def new_array(self, spec: TensorSpec) -> Any:
        """Makes an array that takes a saved value of this element type and shape."""
        raise NotImplementedError
