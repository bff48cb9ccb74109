"""A reader that converts some tensors to other element types.

A conversion that loses more than precision is refused: a finite number that would become infinite, an integer that the new type does
not have, an integer that would be rounded. Everything is checked when a tensor is verified, so before any value is assigned.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from milepost.bundle.catalogue import Catalogue
from milepost.bundle.format.entry import Entry
from milepost.bundle.interface import BundleReader
from milepost.bundle.memory import Array
from milepost.bundle.transfer import CHUNK
from milepost.bundle.wrapping import WrappingReader
from milepost.errors import MismatchError, UnsupportedError
from milepost.storage import ReadableFile
from milepost.tensor import DType, TensorSlice, TensorSpec
from milepost.tensor.dtype import STRING

_FLOATING: Final = "fc"


class CastingReader(WrappingReader):
    """An open checkpoint, some tensors of which are read as other element types.

    Args:
        reader: The open checkpoint.

    Attributes:
        loss: By key, the largest relative error of a conversion that was carried out.
    """

    def __init__(self, reader: BundleReader) -> None:
        super().__init__(reader)
        self._dtypes: dict[str, DType] = {}
        self.loss: dict[str, float] = {}

    def cast(self, key: str, dtype: DType) -> None:
        """Makes all later reads of a tensor return another element type; see `is_castable`."""
        self._dtypes[key] = dtype

    def saved(self, key: str) -> TensorSpec:
        """Element type and shape of a tensor in the file."""
        return self._reader.spec(key)

    def spec(self, key: str) -> TensorSpec:
        spec = self._reader.spec(key)
        return TensorSpec(self._dtypes[key], spec.shape) if key in self._dtypes else spec

    def entry(self, key: str) -> Entry:
        if key not in self._dtypes:
            return self._reader.entry(key)
        spec = self.spec(key)
        return Entry(spec.dtype, spec.shape, size=spec.nbytes)

    def catalogue(self) -> Catalogue:
        catalogue = self._reader.catalogue()
        cast = {position: self.entry(key) for position, key in enumerate(catalogue.keys) if key in self._dtypes}
        is_run = catalogue.is_run.copy()
        is_run[[*cast]] = False
        return catalogue.with_entries(cast)._replace(is_run=is_run)

    def extent(self, key: str) -> tuple[ReadableFile, Entry] | None:
        return None if key in self._dtypes else self._reader.extent(key)

    def runs(self, key: str, box: TensorSlice | None = None) -> list[tuple[ReadableFile, Entry]] | None:
        return None if key in self._dtypes else self._reader.runs(key, box)

    def read(self, key: str, box: TensorSlice | None = None) -> Array:
        read = self._reader.read(key, box)
        return read if key not in self._dtypes else self._converted(key, read)

    def read_into(self, key: str, destination: Array, box: TensorSlice | None = None) -> None:
        if key in self._dtypes:
            destination[...] = self.read(key, box)
        else:
            self._reader.read_into(key, destination, box)

    def check(self, key: str, box: TensorSlice | None = None) -> None:
        if key in self._dtypes:
            self.read(key, box)
        else:
            self._reader.check(key, box)

    def map(self, key: str) -> Array:
        return self.read(key) if key in self._dtypes else self._reader.map(key)

    def _converted(self, key: str, array: Array) -> Array:
        dtype = self._dtypes[key]
        converted = np.empty(array.shape, dtype.numpy)
        source, target = array.reshape(-1), converted.reshape(-1)
        step = max(1, CHUNK // array.dtype.itemsize)
        for start in range(0, array.size, step):
            part = source[start : start + step]
            with np.errstate(all="ignore"):
                target[start : start + step] = part.astype(dtype.numpy)
                self._account(key, part, target[start : start + step], self.saved(key).dtype, dtype)
        return converted

    def _account(self, key: str, source: Array, target: Array, saved: DType, dtype: DType) -> None:
        """Refuses conversions that would lose numbers, and records the largest rounding error."""
        lost, rounded = loss(source, target, saved, dtype)
        if lost.any():
            first, count = source[lost][0], int(lost.sum())
            raise MismatchError(
                "a saved value cannot be converted to the element type of the live object; nothing was changed",
                key=key,
                file=self.prefix,
                expected=f"numbers that {dtype} can hold",
                found=f"{first!s} in {saved}" + (f", and {count - 1} more" if count > 1 else ""),
                remedy="give the live object an element type that holds them, or leave this value out with ignore",
            )
        self.loss[key] = max(self.loss.get(key, 0.0), rounded)


def loss(source: Array, target: Array, saved: DType, dtype: DType) -> tuple[Array, float]:
    """The numbers that a conversion loses, and the largest relative error of the others.

    Args:
        source: The numbers.
        target: The converted numbers.
        saved: The element type of ``source``.
        dtype: The element type of ``target``.

    Returns:
        Which numbers are lost, as an array of truth values, and the largest relative error of the others.

    Example:
        >>> numbers = np.float32([1, 1e30])
        >>> lost, _ = loss(numbers, np.float16([1, np.inf]), DType.of("float32"), DType.of("float16"))
        >>> lost.tolist()
        [False, True]
    """
    if not may_round(saved, dtype):
        back = target.astype(saved.numpy)
        return (back != source) | ((target < 0) != (source < 0)), 0.0
    wide: Any = np.complex128 if "c" in (_kind(saved), _kind(dtype)) else np.float64
    with np.errstate(all="ignore"):
        old, new = source.astype(wide), target.astype(wide)
        error = np.abs(new - old) / np.abs(old)
    return np.isfinite(old) & ~np.isfinite(new), float(np.nanmax(np.where(np.isfinite(error), error, 0), initial=0.0))


def is_castable(saved: DType, wanted: DType) -> bool:
    """Whether numbers of one element type may be converted to another, if each of them fits.

    Floating-point numbers may become other floating-point numbers, and integers other integers or floating-point numbers. Complex
    numbers stay complex. Text and truth values are not converted.
    """
    kinds = _kind(saved), _kind(wanted)
    if kinds[0] in "iu":
        return kinds[1] in "iuf"
    return kinds[0] in _FLOATING and kinds[0] == kinds[1]


def may_round(saved: DType, wanted: DType) -> bool:
    """Whether a conversion from one element type to another may round numbers. Integers are equal afterwards, or refused."""
    return _is_floating(saved) and _is_floating(wanted)


def is_real(dtype: DType) -> bool:
    """Whether elements are floating-point numbers, and not complex."""
    return _kind(dtype) == "f"


def floating(given: Any, argument: str) -> DType:
    """The element type of floating-point numbers that a user names.

    Args:
        given: The name, or the type of milepost, NumPy, PyTorch, JAX or TensorFlow.
        argument: The argument, for the error.

    Raises:
        UnsupportedError: It is none.

    Example:
        >>> floating(np.float16, "dtype"), floating("bfloat16", "dtype")
        (float16, bfloat16)
    """
    name = given if isinstance(given, str) else given.__name__ if isinstance(given, type) else _name_of(given)
    try:
        dtype = DType.of(name)
    except (TypeError, UnsupportedError):
        dtype = STRING
    if not is_real(dtype):
        known = [each.name for each in DType.all() if is_real(each)]
        raise UnsupportedError(
            "this is not an element type of floating-point numbers, and only such numbers are converted",
            key=argument,
            expected=f"one of {', '.join(known)}",
            found=repr(given),
            remedy=f"pass one of these names as {argument}",
        )
    return dtype


def _name_of(dtype: Any) -> str:
    name = getattr(dtype, "name", None)
    return name if isinstance(name, str) else str(dtype).removeprefix("torch.")


def _is_floating(dtype: DType) -> bool:
    return _kind(dtype) in _FLOATING


def _kind(dtype: DType) -> str:
    """``i``, ``u``, ``f`` or ``c`` for numbers."""
    if dtype.is_bytes or dtype.numpy.names:
        return "O"
    name = dtype.name
    if name.startswith(("float", "bfloat", "half", "double")):
        return "f"
    if name.startswith("complex"):
        return "c"
    return "i" if name.startswith("int") else "u" if name.startswith("uint") else "O"
