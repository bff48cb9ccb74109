"""The tensors of a file of another library in columns. Objects for hundreds of thousands of tensors take time and memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np

from milepost.coding.varints import Column
from milepost.foreign.places import Places
from milepost.foreign.stored import Stored
from milepost.tensor import TensorSpec


class Listing:
    """Tensors by name.

    Args:
        names: The names, each once.
        specs: As the attribute.
        spec: As the attribute.
        places: As the attribute.

    Attributes:
        names: The names.
        specs: Every element type and shape that occurs.
        spec: For each tensor, which of ``specs`` is its own.
        places: Where the tensors are.
    """

    def __init__(self, names: Sequence[str], specs: Sequence[TensorSpec], spec: Column, places: Places) -> None:
        self.names = names
        self.specs = specs
        self.spec = spec
        self.places = places

    @cached_property
    def keys(self) -> list[str]:
        """The names, sorted."""
        return sorted(self.names)

    def positions(self, names: Sequence[str]) -> Column:
        """The positions of some tensors in the columns."""
        return np.array([*map(self._position.__getitem__, names)], np.int64)

    @cached_property
    def _position(self) -> dict[str, int]:
        return dict(zip(self.names, range(len(self.names)), strict=True))

    @property
    def nbytes(self) -> int:
        """The bytes of all tensors together."""
        counts = np.bincount(self.spec, minlength=len(self.specs)).tolist()
        return sum(count * spec.nbytes for count, spec in zip(counts, self.specs, strict=True))


@runtime_checkable
class ListedFile(Protocol):
    """A `ForeignFile` that can list its tensors without an object for each."""

    def listing(self) -> Listing | None:
        """All that is in the file; None if there is anything else than tensors by name."""
        ...

    def tensors(self) -> dict[str, Stored]:
        """The tensors by name."""
        ...
