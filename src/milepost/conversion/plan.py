"""Which tensors of a checkpoint go into a file of another format, under which names, and what stays behind."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from milepost.adapters.numpy import is_swapped
from milepost.bundle import BundleReader
from milepost.bundle.casting import is_real, loss
from milepost.bundle.memory import Array
from milepost.checkpoint.short_names import name_of
from milepost.conversion.chunks import chunks_of
from milepost.conversion.names import Naming, NewNames, renamed_graph
from milepost.conversion.states import PlainState, states_in_file, states_of, tensor_of
from milepost.errors import MismatchError, UnsupportedError
from milepost.foreign.items import Item, walked
from milepost.foreign.pytorch.rebuilt import METADATA as METADATA_OF_MODULES
from milepost.graph.keys import ATTRIBUTES, SLOT, VARIABLE_VALUE, escape, is_value
from milepost.graph.plain.values import SPEC_OF_NONE
from milepost.graph.saved.all_names import all_names, lazy_names, only_listed, version_of
from milepost.graph.saved.hints import decode
from milepost.graph.saved.object_graph import ObjectGraph
from milepost.restoring.load import read_object_graph
from milepost.tensor import DType, TensorSpec
from milepost.tensor.dtype import STRING

if TYPE_CHECKING:
    from milepost.foreign import ForeignReader

_A_SLASH: Final = re.compile(r"(?<!\.)((?:\.\.)*)\.S")
"""A slash in the name of a level, as keys have it."""
_STANDS_FOR_IT: Final = "\ue000"
_LAZY: Final = "a parameter or buffer of a lazy module that has not been called, which has no value"
_NO_STATE: Final = object()


@dataclass(slots=True)
class Exported:
    """A tensor to write, or plain state.

    Attributes:
        name: Its name in the new file.
        key: Its key in the checkpoint.
        saved: Its element type and shape there.
        spec: Its element type and shape in the new file.
        array: Its elements, if they are not to be read from the checkpoint because they are a part of plain state.
        state: Plain state that is no tensor. ``spec`` is that of text then.
        rounded: The largest relative error of its conversion to another element type, of what was converted so far.
    """

    name: str
    key: str
    saved: TensorSpec
    spec: TensorSpec
    array: Array | None = None
    state: Any = _NO_STATE
    rounded: float = 0.0

    @property
    def is_state(self) -> bool:
        """Whether this is plain state, and no tensor."""
        return self.state is not _NO_STATE

    def chunks(self, reader: BundleReader) -> Iterator[Array]:
        """Its elements in the type of the new file; each array is valid until the next one is read.

        Raises:
            MismatchError: A number would be lost by the conversion to another type.
        """
        for chunk in chunks_of(reader, self.key) if self.array is None else [self.array.reshape(-1)]:
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
        tensors: Those to write, and the plain state to write.
        left_out: Those that stay behind because the format cannot hold them, with the reason, by key.
        unwanted: The keys of those that the user leaves out.
        removed: The keys of values that the ``state_dict()`` of the module around them leaves out.
        not_arrays: The keys of what no array can hold: None, and empty lists and dicts of a file of another library.
        versions: The versions of modules of PyTorch, by their names in the new file.
        swapped: The keys of arrays of NumPy whose byte order is not that of this machine, which they get.
    """

    tensors: list[Exported] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    unwanted: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    not_arrays: list[str] = field(default_factory=list)
    versions: dict[str, int] = field(default_factory=dict)
    swapped: list[str] = field(default_factory=list)


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
    problem_of_state: Callable[[Any], str | None] | None = None,
    members: Mapping[str, Iterable[tuple[str, Array]]] | None = None,
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
        problem_of_state: As for `milepost.conversion.writer.Writer`.
        members: Values of the checkpoint that hold arrays: by the key of the value, the arrays with their names in the new file.

    Raises:
        UnsupportedError: Two tensors would have the same name, or one would be below another one and cannot.
    """
    planning = _Planning(reader, names, accepts, problem, dots=dots, dtype=dtype, problem_of_state=problem_of_state)
    export = planning.export
    planning.plan_objects()
    export.swapped += reader.catalogue().swapped
    graph = read_object_graph(reader)
    if graph is not None:
        planning.plan_graph(graph, with_states=not accepts(STRING))
    for key, arrays in (members or {}).items():
        planning.done.add(key)
        for name, array in arrays:
            planning.add_array(name, f"{key}/{name}", array)
    named = {key: planning.names_of(key) for key in sorted(set(reader.keys()) - planning.done)}
    if isinstance(names, NewNames) and not names.knows_others and any(SLOT in key for key in named):
        # a function is not asked for the optimizers of slot variables
        left_out = () if graph is None else renamed_graph(graph, names)[1]
        named |= {key: [] for key in named.keys() & left_out}
    for key, new in named.items():
        saved = reader.spec(key)
        if not new:
            export.unwanted.append(key)
        elif saved == SPEC_OF_NONE and key in nones():
            export.not_arrays.append(name_of(key))
        else:
            for name in new:
                if planning.taken.get(name) == key:
                    continue  # a module has another value of this name in its state_dict()
                planning.add(Exported(name, key, saved, planning.wanted(saved)))
    export.tensors.sort(key=lambda tensor: tensor.key)
    if nests:
        _check_nesting(planning.taken, reader)
    return export


class _Planning:
    """The planning of a conversion. Arguments are those of `planned`.

    Attributes:
        export: What was decided.
        taken: The key of each new name.
        done: The keys for which there is nothing left to decide.
    """

    def __init__(
        self,
        reader: BundleReader,
        names: Naming,
        accepts: Callable[[DType], bool],
        problem: Callable[[Exported], str | None],
        *,
        dots: bool,
        dtype: DType | None,
        problem_of_state: Callable[[Any], str | None] | None,
    ) -> None:
        self._reader = reader
        self._names = names
        self._accepts = accepts
        self._problem = problem
        self._dots = dots
        self._dtype = dtype
        self._problem_of_state = problem_of_state
        self._paths: dict[str, list[str]] = {}
        self.export = Export()
        self.taken: dict[str, str] = {}
        self.done = {key for key in reader.keys() if not is_value(key)}  # noqa: SIM118 - a reader is not a mapping

    def plan_objects(self) -> None:
        """Decides what becomes of the objects in a file of another library that are not read, and of what no array can hold."""
        for key, kind in self._reader.catalogue().objects.items():
            if self._names(key) is None:
                self.export.unwanted.append(key)
            else:
                self.export.left_out[key] = f"an object of {kind}, which milepost does not read"
        states: dict[str, PlainState] = {}
        if self._reader.origin.dotted:
            reader = cast("ForeignReader", self._reader)
            for item in walked(reader.root):
                self._plan_noted(item)
            states = dict(states_in_file(reader))
        for key, state in states.items():
            self.done.update(state.keys)
            self._plan_state(state, [key])
        inside = tuple(f"{key}/" for key in states)
        self.export.not_arrays += [
            key
            for key in self._reader.catalogue().not_arrays
            if key not in states and not key.startswith(inside) and self._names(key) is not None
        ]

    def _plan_noted(self, item: Item) -> None:
        """Adds the versions that a file of PyTorch has with a dict."""
        noted = getattr(item.value, METADATA_OF_MODULES, None)
        for name, facts in noted.items() if isinstance(noted, Mapping) else ():
            version = facts.get("version") if isinstance(facts, Mapping) else None
            called = self._called("/".join(filter(None, [item.key, name]))) if isinstance(name, str) else None
            if type(version) is int and called is not None:
                self.export.versions[called] = version

    def plan_graph(self, graph: ObjectGraph, *, with_states: bool) -> None:
        """Finds the other names of objects, and the versions of modules.

        Args:
            graph: The object graph.
            with_states: Whether to decide what becomes of plain state, too, and of what has no value.
        """
        all_paths = all_names(graph)
        listed = only_listed(graph, all_paths)
        removed = {number for number, named in listed.items() if not named}
        for number in removed:
            self._remove([value.key for value in graph.nodes[number].values])
        paths = {number: named for number, named in listed.items() if named} if self._names.knows_others else {}
        for number, named in paths.items():
            node = graph.nodes[number]
            first, *others = all_paths[number]
            for value in node.values if others else ():
                path, marker, local = value.key.partition(ATTRIBUTES)
                others_too = [path if each == first else each for each in named]
                self._paths[value.key] = [f"{each}{marker}{local}" for each in others_too]
            if node.hints and is_swapped(decode(node.hints)):
                self.export.swapped += [value.key for value in node.values]
            for lazy in lazy_names(node) if with_states else ():
                keys = [f"{path}/{escape(lazy)}".lstrip("/") for path in named]
                self.export.left_out.update((key, _LAZY) for key in keys if self._called(key) is not None)
            version = version_of(node)
            if version is not None:
                called = [name for path in named if (name := self._called(path)) is not None]
                self.export.versions.update(dict.fromkeys(called, version))
        for number, state in states_of(self._reader, graph).items() if with_states else ():
            self.done.update(state.keys)
            if number in removed:
                self._remove(state.keys)
                continue
            of_state = paths.get(number) or [state.keys[0].partition(ATTRIBUTES)[0]]
            if state.versions is None:
                self._plan_state(state, of_state)
            else:
                self._plan_versions(state.versions, of_state)

    def _remove(self, keys: Collection[str]) -> None:
        """Leaves out values that are not in the ``state_dict()`` of a module around them."""
        self.done.update(keys)
        self.export.removed += [key for key in keys if self._called(key) is not None]

    def _plan_versions(self, versions: Mapping[str, Any], paths: Sequence[str]) -> None:
        """Adds the versions that a dict has with it, as a ``state_dict()`` has them."""
        for path in paths:
            above = path.rpartition("/")[0]
            for name, facts in versions.items():
                version = facts.get("version") if isinstance(facts, dict) else None
                levels = [*filter(None, [above]), *map(escape, filter(None, str(name).split(".")))]
                called = self._called("/".join(levels))
                if type(version) is int and called is not None:
                    self.export.versions[called] = version

    def _plan_state(self, state: PlainState, paths: Sequence[str]) -> None:
        is_wanted = False
        for path in paths:
            for part, value in () if self._names.ignores(path) else state.parts(path):
                name = self._called(part)
                if name is not None:
                    is_wanted = True
                    self._add_part(name, f"{part}{ATTRIBUTES}{VARIABLE_VALUE}", value, state)
        if not is_wanted:
            self.export.unwanted += state.keys

    def _add_part(self, name: str, key: str, value: Any, state: PlainState) -> None:
        """Adds a tensor in plain state, or plain state."""
        array = tensor_of(value)
        if array is not None:
            self.add_array(name, key, array)
            return
        if self._problem_of_state is None:
            reason: str | None = "a part of plain state, such as extra state of a module"
        else:
            reason = self._problem_of_state(value)
        spec = TensorSpec(STRING, ())
        if reason is not None:
            self.export.left_out.update(dict.fromkeys(state.keys, reason))
        else:
            self._take(name, key)
            self.export.tensors.append(Exported(name, key, spec, spec, state=value))

    def add_array(self, name: str, key: str, array: Array) -> None:
        """Adds an array that is in memory."""
        saved = TensorSpec(DType.of(array), array.shape)
        self.add(Exported(name, key, saved, self.wanted(saved), array))

    def wanted(self, saved: TensorSpec) -> TensorSpec:
        """The element type and shape of a tensor in the new file."""
        return TensorSpec(self._dtype, saved.shape) if self._dtype is not None and is_real(saved.dtype) else saved

    def names_of(self, key: str) -> list[str]:
        """The names of a tensor in the new file, each once."""
        called = map(self._called, self._paths.get(key, (key,)))
        names = list(dict.fromkeys(name for name in called if name is not None))
        return [*names, *self._names.further(name_of(key))] if names else names

    def _called(self, key: str) -> str | None:
        return _dotted(self._names, key) if self._dots else self._names(name_of(key))

    def add(self, tensor: Exported) -> None:
        """Adds a tensor, or the reason why the format cannot hold it."""
        dtype = tensor.spec.dtype
        reason = self._problem(tensor) if self._accepts(dtype) else _reason(dtype, self._accepts)
        if reason is not None:
            self.export.left_out[tensor.key] = reason
        else:
            self._take(tensor.name, tensor.key)
            self.export.tensors.append(tensor)

    def _take(self, name: str, key: str) -> None:
        other = self.taken.setdefault(name, key)
        if other != key:
            raise _clash("two tensors would have the same name", name, self._reader, f"{other!r} and {key!r}")


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
