"""Steps and numbers of checkpoints, from variables, tensors, arrays and numbers."""

from __future__ import annotations

from typing import Any

from milepost.errors import UnsupportedError
from milepost.graph.frameworks import usable


def whole_number(value: Any) -> int:
    """The integer in a variable, tensor, array or number. For a graph of TensorFlow 1, it is the value in the default session.

    Raises:
        UnsupportedError: The value is not a whole number, or belongs to a graph and there is no session.

    Example:
        >>> import numpy as np
        >>> whole_number(np.float32(3.0))
        3
    """
    number = _of_session(value)
    number = number.numpy() if hasattr(number, "numpy") else number
    try:
        if isinstance(number, (str, bytes)) or int(number) != number:
            raise ValueError(number)
        return int(number)
    except (TypeError, ValueError, OverflowError):
        raise UnsupportedError(
            "a step or the number of a checkpoint must be a whole number",
            expected="an integer, or a variable, array or tensor that holds one",
            found=f"{number!r:.80} of type {type(number).__name__}",
            remedy="pass a variable that counts steps, or call int() on the value",
        ) from None


def _of_session(value: Any) -> Any:
    """The value itself, or the value of a variable or tensor of a graph in the default session."""
    if not usable("tensorflow"):
        return value
    from milepost.adapters.tensorflow import session

    return session.evaluate(value) if session.is_symbolic(value) else value
