"""Which tensors are saved with hints besides their values, because a restore needs them to make the tensors again: `layouts` and `leaves`.

The state of a DTensor parameter may be a plain tensor, which no mesh divides. That is a hint, too: ``plain``, which is true.
"""

from __future__ import annotations

from typing import Final

import torch

from milepost.adapters.optimizer_settings import STRIDES
from milepost.facts import Fact

GRADIENT: Final = "gradient"
PLAIN: Final = "plain"
HINTS: Final = frozenset({STRIDES, GRADIENT, PLAIN})
"""The names of all hints that a tensor may have."""
hints_of: Final[Fact[frozenset[str]]] = Fact()
"""The names of what `keep_hint` was called with, for each tensor that it was called for."""


def keep_hint(tensor: torch.Tensor, name: str) -> None:
    """Makes later saves and restores keep what this name stands for."""
    hints_of[tensor] = (hints_of.get(tensor) or frozenset()) | {name}
