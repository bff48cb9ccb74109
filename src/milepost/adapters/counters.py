"""Counters of steps in variables of any framework."""

from __future__ import annotations

from typing import Any

import numpy as np

from milepost.graph.adapter import adapter_of, values_of


def has_counted(counter: Any) -> bool:
    """Whether a counter is above 0, read as a save reads it.

    Args:
        counter: A variable of any framework that holds one number.

    Example:
        >>> import milepost
        >>> has_counted(milepost.Variable(0)), has_counted(milepost.Variable(3))
        (False, True)
    """
    adapter = adapter_of(counter)
    return adapter is not None and any(np.any(np.asarray(each.read()) > 0) for each in values_of(adapter, counter))
