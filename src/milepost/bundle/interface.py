"""The methods of an open checkpoint of any format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol, Self

from milepost.bundle.catalogue import Catalogue
from milepost.bundle.format.entry import Entry
from milepost.bundle.memory import Array
from milepost.storage import ReadableFile
from milepost.tensor import TensorSlice, TensorSpec


class Origin(NamedTuple):
    """Who wrote a file, and how its names are read.

    Attributes:
        library: The library or format of a file of another library, as users know it, such as ``PyTorch``; empty for a checkpoint.
        tensors: The registered kind of the library's tensors in plain state; empty for arrays.
        dotted: Whether names are paths with dots, such as those of PyTorch's modules.
        metadata: What a file of another library has beside its tensors; None if there is nothing. A checkpoint has a tensor for it.
    """

    library: str = ""
    tensors: str = ""
    dotted: bool = False
    metadata: Mapping[str, Any] | None = None

    @property
    def is_checkpoint(self) -> bool:
        """Whether this is a checkpoint, which has escaped paths as keys, and may have an object graph and metadata."""
        return not self.library


CHECKPOINT: Final = Origin()
"""The origin of every checkpoint, whether milepost or TensorFlow wrote it."""


class BundleReader(Protocol):
    """An open checkpoint. Opening it reads its index only; a tensor is read when it is asked for.

    Errors name the key and the file. All reading methods raise `CorruptCheckpointError` for damaged bytes,
    `CheckpointNotFoundError` for a missing data file, `KeyNotFoundError` for an unknown key, `StorageError` if the
    operating system cannot read, and `UnsupportedError` for element types that have no values.
    """

    @property
    def prefix(self) -> str:
        """The checkpoint's prefix."""
        ...

    @property
    def shard_paths(self) -> list[str]:
        """The files that hold tensors.

        Raises:
            CorruptCheckpointError: The index says which of very many files there are, and is damaged.
        """
        ...

    @property
    def origin(self) -> Origin:
        """Who wrote the file."""
        ...

    def keys(self) -> list[str]:
        """The names of all tensors, sorted."""
        ...

    def __contains__(self, key: object) -> bool: ...

    def spec(self, key: str) -> TensorSpec:
        """Element type and shape of a tensor."""
        ...

    def entry(self, key: str) -> Entry:
        """The entry of a tensor in the index. In checkpoints of version 1 it has no position and no checksum."""
        ...

    def catalogue(self) -> Catalogue:
        """All tensors in columns, sorted by key. Errors are those of `entry`."""
        ...

    def extent(self, key: str) -> tuple[ReadableFile, Entry] | None:
        """The file and the entry of a tensor whose bytes lie in one run, as they would in memory. None for other tensors."""
        ...

    def runs(self, key: str, box: TensorSlice | None = None) -> list[tuple[ReadableFile, Entry]] | None:
        """The runs of bytes that `check` reads, each with its checksum. None for tensors that `check` must read itself."""
        ...

    def read(self, key: str, box: TensorSlice | None = None) -> Array:
        """Reads and verifies a tensor, or a box cut from it.

        Args:
            key: The tensor.
            box: The part to read. It may differ from the pieces in which the tensor was saved.

        Returns:
            A new array. Strings and variants are arrays of ``bytes`` objects.

        Raises:
            MismatchError: The box reaches outside the tensor.
        """
        ...

    def read_into(self, key: str, destination: Array, box: TensorSlice | None = None) -> None:
        """Reads and verifies a tensor like `read`, into an array of the right type and shape.

        If the bytes are damaged, the destination has changed when the error is raised.
        """
        ...

    def check(self, key: str, box: TensorSlice | None = None) -> None:
        """Checks that `read` would succeed, without the memory for the tensor."""
        ...

    def map(self, key: str) -> Array:
        """Maps a verified tensor from its file, without a copy.

        Returns:
            A read-only array. It stays valid when the reader is closed and the file is removed, but not if another
            program truncates the file.

        Raises:
            UnsupportedError: The bytes of the tensor are not stored as they would be in memory. Use `read`.
        """
        ...

    def verify(self) -> tuple[int, int]:
        """Reads the whole checkpoint and verifies all of it.

        Returns:
            How many tensors have checksums, and how many tensors are stored.
        """
        ...

    def check_files(self) -> None:
        """Checks that all files exist and are long enough, without reading them."""
        ...

    def hold(self) -> None:
        """Opens all files now, so that they stay readable if they are removed."""
        ...

    def is_replaced(self) -> bool:
        """Whether another checkpoint has this prefix now. A checkpoint that was removed is not replaced."""
        ...

    def release(self, *, for_good: bool) -> None:
        """Closes files. Keys, element types and shapes stay known.

        Args:
            for_good: Whether no tensor will be read again. Otherwise reading a tensor opens its file again, and files that
                cannot be opened again stay open.
        """
        ...

    def close(self) -> None:
        """Closes all files. Closing twice does nothing."""
        ...

    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...
