"""Which tensors of a checkpoint go into a file of another format, under which names, and what stays behind."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from milepost.bundle import BundleReader
from milepost.bundle.casting import is_real, loss
from milepost.bundle.memory import Array
from milepost.checkpoint.short_names import name_of
from milepost.conversion.chunks import chunks_of
from milepost.conversion.names import Naming
from milepost.engine.load import read_object_graph
from milepost.errors import MismatchError, UnsupportedError
from milepost.foreign import ForeignReader
from milepost.graph.all_names import all_names, version_of
from milepost.graph.keys import ATTRIBUTES, METADATA, OBJECT_GRAPH
from milepost.graph.plain.values import SPEC_OF_NONE
from milepost.plain_state.encoding import TEXT
from milepost.tensor import DType, TensorSpec
from milepost.tensor.dtype import STRING

_A_SLASH: Final = re.compile(r"(?<!\.)((?:\.\.)*)\.S")
"""A slash in the name of a level, as keys have it."""
_STANDS_FOR_IT: Final = "\ue000"
_STATE: Final = f"{ATTRIBUTES}{TEXT}"
"""The end of the key of the text of plain state."""


@dataclass(slots=True)
class Exported:
    """A tensor to write.

    Attributes:
        name: Its name in the new file.
        key: Its key in the checkpoint.
        saved: Its element type and shape there.
        spec: Its element type and shape in the new file.
        rounded: The largest relative error of its conversion to another element type, of what was converted so far.
    """

    name: str
    key: str
    saved: TensorSpec
    spec: TensorSpec
    rounded: float = 0.0

    def chunks(self, reader: BundleReader) -> Iterator[Array]:
        """Its elements in the type of the new file; each array is valid until the next one is read.

        Raises:
            MismatchError: A number would be lost by the conversion to another type.
        """
        for chunk in chunks_of(reader, self.key):
            yield self.converted(chunk, reader.prefix)

    def converted(self, elements: Array, file: str) -> Array:
        """Some of its elements in the type of the new file. Errors are those of `chunks`."""
        if self.spec.dtype == self.saved.dtype:
            return elements
        with np.errstate(all="ignore"):
            converted = elements.astype(self.spec.dtype.numpy)
        lost, rounded = loss(elements, converted, self.saved.dtype, self.spec.dtype)
        if lost.any():
            raise MismatchError(
                "a saved number cannot be converted to this element type; nothing was written",
                key=self.key,
                file=file,
                expected=f"numbers that {self.spec.dtype} can hold",
                found=f"{elements[lost][0]!s} of {self.saved.dtype}",
                remedy="convert to a type that holds them, such as bfloat16, or leave this value out",
            )
        self.rounded = max(self.rounded, rounded)
        return converted


@dataclass(slots=True)
class Export:
    """What becomes of the tensors of a checkpoint.

    Attributes:
        tensors: Those to write.
        left_out: Those that stay behind because the format cannot hold them, with the reason, by key.
        unwanted: The keys of those that the user leaves out.
        not_arrays: The keys of what no array can hold: None, and empty lists and dicts of a file of another library.
        versions: The versions of modules of PyTorch, by their names in the new file.
    """

    tensors: list[Exported] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    unwanted: list[str] = field(default_factory=list)
    not_arrays: list[str] = field(default_factory=list)
    versions: dict[str, int] = field(default_factory=dict)

    def other_keys(self, reader: BundleReader, called: Callable[[str], str | None]) -> dict[str, list[str]]:
        """The keys that tensors would have if their objects were known by another of their names, by key. Finds the versions of modules, too.

        Args:
            reader: The open checkpoint.
            called: Returns the new name of a value, by its key.
        """
        graph = read_object_graph(reader)
        found: dict[str, list[str]] = {}
        if graph is None:
            return found
        for number, paths in all_names(graph).items():
            node = graph.nodes[number]
            for value in node.values if len(paths) > 1 else ():
                _, marker, local = value.key.partition(ATTRIBUTES)
                found[value.key] = [f"{path}{marker}{local}" for path in paths[1:]]
            version = version_of(node)
            if version is not None:
                names = [name for path in paths if (name := called(path)) is not None]
                self.versions.update(dict.fromkeys(names, version))
        return found


def planned(
    reader: BundleReader,
    names: Naming,
    accepts: Callable[[DType], bool],
    problem: Callable[[Exported], str | None] = lambda tensor: None,
    *,
    nones: Callable[[], Collection[str]] = tuple,
    nests: bool = False,
    dots: bool = False,
    dtype: DType | None = None,
) -> Export:
    """Decides what to write.

    Args:
        reader: The open checkpoint.
        names: New names, and what to leave out.
        accepts: Whether the format has an element type.
        problem: Why the format cannot hold a tensor, or None if it can.
        nones: Returns the keys of the tensors of a checkpoint that stand for None, if the format has nothing for it. It is called if there may be some.
        nests: Whether no tensor can be below another one.
        dots: Whether names are separated by dots.
        dtype: The element type that floating-point numbers get; by default their own.

    Raises:
        UnsupportedError: Two tensors would have the same name, or one would be below another one and cannot.
    """
    export = Export()
    taken: dict[str, str] = {}
    if isinstance(reader, ForeignReader):
        for key, kind in reader.objects.items():
            if names(key) is None:
                export.unwanted.append(key)
            else:
                export.left_out[key] = f"an object of {kind}, which milepost does not read"
        export.not_arrays += [key for key in reader.not_arrays if names(key) is not None]

    def called(key: str) -> str | None:
        return _dotted(names, key) if dots else names(name_of(key))

    others = export.other_keys(reader, called) if names.knows_others and not isinstance(reader, ForeignReader) else {}
    keys = sorted(reader.keys())
    states = () if accepts(STRING) else {path for key in keys if (path := key.removesuffix(_STATE)) != key}
    for key in keys:
        saved = reader.spec(key)
        if key in (OBJECT_GRAPH, METADATA):
            continue
        new = [name for each in (key, *others.get(key, ())) if (name := called(each)) is not None]
        if not new:
            export.unwanted.append(key)
            continue
        if saved == SPEC_OF_NONE and key in nones():
            export.not_arrays.append(name_of(key))
            continue
        if states and key.partition(ATTRIBUTES)[0] in states:
            export.left_out[key] = "a part of plain state, such as extra state of a module"
            continue
        wanted = dtype if dtype is not None and is_real(saved.dtype) else saved.dtype
        for name in dict.fromkeys(new):
            tensor = Exported(name, key, saved, TensorSpec(wanted, saved.shape))
            reason = _reason(wanted, accepts) if not accepts(wanted) else problem(tensor)
            if reason is not None:
                export.left_out[key] = reason
                continue
            other = taken.setdefault(name, key)
            if other != key:
                raise _clash("two tensors would have the same name", name, reader, f"{other!r} and {key!r}")
            export.tensors.append(tensor)
    if nests:
        _check_nesting(taken, reader)
    return export


def _dotted(names: Naming, key: str) -> str | None:
    """The new name of a tensor, with dots between levels. A slash in the name of a level stays."""
    path, marker, local = key.partition(ATTRIBUTES)
    name = names(name_of(_A_SLASH.sub(rf"\1{_STANDS_FOR_IT}", path) + marker + local))
    return None if name is None else name.replace("/", ".").replace(_STANDS_FOR_IT, "/")


def _reason(dtype: DType, accepts: Callable[[DType], bool]) -> str:
    if dtype.is_bytes:
        return "text"
    remedy = "; pass dtype='float32' to convert it" if is_real(dtype) and accepts(DType.of("float32")) else ""
    return f"the format has no {dtype}{remedy}"


def _check_nesting(names: dict[str, str], reader: BundleReader) -> None:
    for name in names:
        above, separator, _ = name.rpartition("/")
        while separator:
            if above in names:
                raise _clash("a tensor would be below another one, which this format cannot hold", name, reader, above)
            above, separator, _ = above.rpartition("/")


def _clash(message: str, name: str, reader: BundleReader, found: str) -> UnsupportedError:
    return UnsupportedError(
        message,
        key=name,
        file=reader.prefix,
        found=found,
        remedy="give one of them another name with rename, or leave it out with ignore",
    )
