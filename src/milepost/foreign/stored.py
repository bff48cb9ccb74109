"""What a file of another library holds: a tree of dicts, lists, plain values, and tensors that are still in the file."""

from __future__ import annotations

from typing import Any, Protocol

from milepost.bundle.memory import Array
from milepost.graph.keys import VARIABLE_VALUE
from milepost.storage import ReadableFile
from milepost.tensor import DType, TensorSpec

_UINT8 = DType.of("uint8")


class Stored:
    """A tensor in a file.

    Attributes:
        spec: Element type and shape of the value that it is to milepost.
        local: Local name of that value. Element types that TensorFlow has no number for are bytes under their own name.
        place: Where it is; known to the format that made this only.
        generator: For keys of JAX's random numbers, the generator that they are for.
    """

    __slots__ = ("generator", "local", "place", "spec")

    def __init__(self, spec: TensorSpec, place: Any, local: str = VARIABLE_VALUE, generator: str = "") -> None:
        self.generator = generator
        self.spec = spec
        self.place = place
        self.local = local


def raw_bytes(name: str, width: int, shape: tuple[int, ...]) -> tuple[TensorSpec, str]:
    """How tensors of an element type that has no number are stored: as bytes, under the type's name.

    Args:
        name: PyTorch's name of the type.
        width: Bytes of an element.
        shape: The tensor's shape.
    """
    return TensorSpec(_UINT8, (*shape, width) if width > 1 else shape), name


class Source(Protocol):
    """An open file or directory of another library.

    Errors of all methods are those of `BundleReader`, without the key.
    """

    @property
    def path(self) -> str:
        """What was opened."""
        ...

    @property
    def paths(self) -> list[str]:
        """The files that hold tensors."""
        ...

    @property
    def tree(self) -> Any:
        """Everything there is: dicts, lists, tuples, plain values and `Stored`."""
        ...

    @property
    def dotted(self) -> bool:
        """Whether names are paths with dots, as those of PyTorch's modules."""
        ...

    @property
    def kind(self) -> str:
        """The kind of plain state (`milepost.plain_state.encoding`) that tensors of this library are; empty for arrays."""
        ...

    def read_into(self, tensor: Stored, destination: Array) -> None:
        """Reads a tensor into a contiguous array of its type and shape."""
        ...

    def extent(self, tensor: Stored) -> tuple[ReadableFile, int] | None:
        """The file and the first byte of a tensor that lies in one run of bytes, as it would in memory; else None."""
        ...

    def check(self, tensor: Stored) -> None:
        """Makes sure that a tensor can be read, as far as the format tells."""
        ...

    def close(self) -> None:
        """Lets go of all files."""
        ...
