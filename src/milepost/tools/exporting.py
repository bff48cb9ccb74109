"""Which tensors of a checkpoint go into a file of another format, under which names, and what stays behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from milepost.bundle import BundleReader
from milepost.bundle.memory import Array
from milepost.engine.translation import Translation
from milepost.errors import UnsupportedError
from milepost.foreign import ForeignReader
from milepost.graph.keys import ATTRIBUTES, METADATA, OBJECT_GRAPH, unescape
from milepost.tensor import DType, TensorSpec
from milepost.tools.chunks import chunks_of
from milepost.tools.named import short_name


class Exported(NamedTuple):
    """A tensor to write.

    Attributes:
        name: Its name in the new file.
        key: Its key in the checkpoint.
        saved: Its element type and shape there.
        spec: Its element type and shape in the new file.
    """

    name: str
    key: str
    saved: TensorSpec
    spec: TensorSpec

    def chunks(self, reader: BundleReader) -> Iterator[Array]:
        """Its elements in the type of the new file; each array is valid until the next one is read."""
        for chunk in chunks_of(reader, self.key):
            yield chunk.astype(self.spec.dtype.numpy, copy=False)


@dataclass(slots=True)
class Export:
    """What becomes of the tensors of a checkpoint.

    Attributes:
        tensors: Those to write.
        left_out: Those that stay behind because the format cannot hold them, with the reason.
        unwanted: The keys of those that the user leaves out.
    """

    tensors: list[Exported] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    unwanted: list[str] = field(default_factory=list)


def planned(
    reader: BundleReader,
    translation: Translation,
    accepts: Callable[[DType], bool],
    *,
    dots: bool = False,
    dtype: DType | None = None,
) -> Export:
    """Decides what to write.

    Args:
        reader: The open checkpoint.
        translation: New names, and what to leave out.
        accepts: Whether the format has an element type.
        dots: Whether names are separated by dots.
        dtype: The element type that floating-point numbers get; by default their own.

    Raises:
        UnsupportedError: Two tensors would have the same name.
    """
    export = Export()
    names: dict[str, str] = {}
    is_dotted = isinstance(reader, ForeignReader) and reader.packs
    if isinstance(reader, ForeignReader):
        export.left_out.update(
            (key, f"an object of {kind}, which only code of the file could make")
            for key, kind in reader.objects.items()
        )
    for key in sorted(reader.keys()):
        saved = reader.spec(key)
        if key in (OBJECT_GRAPH, METADATA):
            continue
        name = translation.live_name(_name(key), dotted=is_dotted)
        if name is None:
            export.unwanted.append(key)
            continue
        if dots:
            name = name.replace("/", ".")
        wanted = dtype if dtype is not None and _is_floating(saved.dtype) else saved.dtype
        if not accepts(wanted):
            export.left_out[key] = "text" if wanted.is_bytes else f"the format has no {wanted}"
            continue
        other = names.setdefault(name, key)
        if other != key:
            raise UnsupportedError(
                "two tensors would have the same name",
                key=name,
                file=reader.prefix,
                found=f"{other!r} and {key!r}",
                remedy="give one of them another name by --rename, or leave it out by --ignore",
            )
        export.tensors.append(Exported(name, key, saved, TensorSpec(wanted, saved.shape)))
    translation.warn_of_unused(reader, dotted=is_dotted)
    return export


def _name(key: str) -> str:
    """The name of a tensor for other libraries: the path of its object, and the name of the value if that is not the only one."""
    path, marker, local = short_name(key).partition(ATTRIBUTES)
    plain = "/".join(map(unescape, path.split("/"))) if "/.OPTIMIZER_SLOT/" not in path else path
    return f"{plain}/{unescape(local)}" if marker else plain


def _is_floating(dtype: DType) -> bool:
    if dtype.is_bytes or dtype.numpy.names is not None or dtype.numpy.kind == "c":
        return False
    return dtype.numpy.kind == "f" or (dtype.numpy.kind == "V" and not dtype.name.startswith(("int", "uint")))


def floating(name: str) -> DType:
    """The element type of floating-point numbers that a user names.

    Raises:
        UnsupportedError: It is none.
    """
    try:
        found = DType.of(np.dtype(name) if name not in {each.name for each in DType.all()} else name)
    except (TypeError, UnsupportedError):
        found = DType.of("string")
    if not _is_floating(found):
        known: list[Any] = [each.name for each in DType.all() if _is_floating(each)]
        raise UnsupportedError(
            "this is not a type of floating-point numbers", expected=f"one of {', '.join(known)}", found=repr(name)
        )
    return found
