"""The contents of a file of another library: a tree of dicts, lists, plain values, and tensors that are still in the file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from milepost.bundle.catalogue import Catalogue, numbered
from milepost.bundle.format.slices import Box
from milepost.bundle.memory import Array
from milepost.storage import ReadableFile
from milepost.tensor import TensorSpec


class Stored:
    """A tensor in a file.

    Attributes:
        spec: The element type and shape.
        place: The place in the file. Only the reader of the format interprets it.
        generator: The generator, if the tensor is a key of JAX's random numbers.
    """

    __slots__ = ("generator", "place", "spec")

    def __init__(self, spec: TensorSpec, place: Any, generator: str = "") -> None:
        self.generator = generator
        self.spec = spec
        self.place = place


class ForeignFile(Protocol):
    """An open file or directory of another library.

    Errors of all methods are those of `BundleReader`, but do not name the key.
    """

    @property
    def path(self) -> str:
        """The path that was opened."""
        ...

    @property
    def paths(self) -> list[str]:
        """The files that hold tensors."""
        ...

    @property
    def tree(self) -> Any:
        """The contents: dicts, lists, tuples, plain values and `Stored`."""
        ...

    @property
    def dotted(self) -> bool:
        """Whether names are paths with dots, such as those of PyTorch's modules."""
        ...

    @property
    def kind(self) -> str:
        """The registered kind of this library's tensors in plain state (`milepost.plain_state.kinds`); empty for arrays."""
        ...

    @property
    def library(self) -> str:
        """The name of the library or format, as users know it."""
        ...

    def read_into(self, tensor: Stored, destination: Array) -> None:
        """Reads a tensor into a contiguous array of its type and shape."""
        ...

    def extent(self, tensor: Stored) -> tuple[ReadableFile, int] | None:
        """The file and the position of a tensor, if it is one run of bytes there as in memory; otherwise None."""
        ...

    def check(self, tensor: Stored) -> None:
        """Verifies the checksum of a tensor, if the format has any."""
        ...

    def has_checksum(self, tensor: Stored) -> bool:
        """Whether `check` compares a checksum of all bytes of a tensor. It has been called before."""
        ...

    def close(self) -> None:
        """Closes all files."""
        ...


@runtime_checkable
class BoxedFile(Protocol):
    """A `ForeignFile` that can read a box of a tensor without the rest of it."""

    def read_box(self, tensor: Stored, box: Box, destination: Array) -> None:
        """Reads a box of a tensor into a contiguous array of its type and the shape of the box."""
        ...

    def check_box(self, tensor: Stored, box: Box) -> None:
        """Verifies the checksums of everything that a box of a tensor is read from."""
        ...


@runtime_checkable
class CataloguedFile(Protocol):
    """A `ForeignFile` that tells of many tensors together what `extent` and `check` tell of each. This takes less time."""

    def catalogue(self, tensors: Mapping[str, Stored]) -> Catalogue:
        """The columns of some tensors of the file, by name."""
        ...


@runtime_checkable
class ListedFile(Protocol):
    """A `ForeignFile` that can list its tensors without an object for each."""

    def listing(self) -> Catalogue | None:
        """All that is in the file; None if there is anything else than tensors by name."""
        ...

    def tensors(self) -> dict[str, Stored]:
        """The tensors by name."""
        ...


@runtime_checkable
class DescribedFile(Protocol):
    """A `ForeignFile` of a format that has metadata."""

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata."""
        ...


@runtime_checkable
class CheckedFile(Protocol):
    """A `ForeignFile` that has checksums of more than its tensors."""

    def check_rest(self) -> None:
        """Verifies the checksums of everything that `check` has not verified."""
        ...


def catalogue_of(file: ForeignFile, tensors: Mapping[str, Stored]) -> Catalogue:
    """The columns of some tensors of a file, by name, with checksums as far as they are known of many tensors together."""
    if isinstance(file, CataloguedFile):
        return file.catalogue(tensors)
    specs, spec = numbered(tensor.spec for tensor in tensors.values())
    return Catalogue.of_extents([*tensors], specs, spec, map(file.extent, tensors.values()))
