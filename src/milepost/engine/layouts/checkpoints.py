"""A checkpoint whose values are laid out otherwise: its object graph has the new objects, and its reader makes their values when they are asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from milepost.bundle import BundleReader
from milepost.bundle.catalogue import Catalogue
from milepost.bundle.format.entry import Entry
from milepost.bundle.format.slices import ranges
from milepost.bundle.memory import Array, new_array
from milepost.bundle.wrapping import WrappingReader
from milepost.engine.layouts.applying import Laid, StateOf, applied, copies_of_changed
from milepost.engine.layouts.left_out import absent_values, without_absent
from milepost.engine.layouts.recipes import AsSaved, NoArray, Recipe, Refused
from milepost.engine.layouts.steps import Step
from milepost.engine.left_out import LeftOut
from milepost.errors import MilepostError, UnsupportedError
from milepost.graph.keys import (
    METADATA,
    OBJECT_GRAPH,
    VARIABLE_VALUE,
    child_path,
    escape,
    slot_path,
    tensor_key,
    unescape,
)
from milepost.graph.saved.hints import decode, encode
from milepost.graph.saved.nodes import Node, SavedValue, SlotReference
from milepost.graph.saved.object_graph import ObjectGraph
from milepost.graph.saved.renaming import Path, first_paths, renamed
from milepost.series.metadata import read_metadata, with_left_out
from milepost.storage import ReadableFile
from milepost.tensor import TensorSlice, TensorSpec
from milepost.tensor.dtype import STRING

_STEPS = frozenset({"_iterations", "iterations"})
_RATES = frozenset({"_learning_rate", "learning_rate"})
"""What optimizers of Keras have that have their state in lists."""
_OF_LAYOUT = ("strides", "fortran")
"""The hints that say how the elements of an array are arranged in memory."""


class LaidOutReader(WrappingReader):
    """An open checkpoint, some values of which are made of others.

    Args:
        reader: The open checkpoint.
        graph: Its object graph; None if it has none.
        steps: What is made.

    Attributes:
        copies: The keys of the values that stay as they are, and have the names of changed ones below other names.

    Raises:
        MilepostError: As for `milepost.engine.layouts.applying.applied`.
        UnsupportedError: A value that becomes a part of another one, or several values, has a second name.
    """

    def __init__(self, reader: BundleReader, graph: ObjectGraph | None, steps: Sequence[Step]) -> None:
        super().__init__(reader)
        changes = _of_names(reader, steps) if graph is None else _CheckpointLayout(reader, graph, steps).changes()
        self._made = changes.made
        self.copies = frozenset(changes.copies)
        self._texts = changes.texts
        self._keys = sorted((set(reader.keys()) - set(changes.gone)) | changes.made.keys())
        self._present = frozenset(self._keys)

    def made_of(self, key: str) -> list[str]:
        """The keys of the saved values that a value is made of; none if it is as it was saved."""
        return self._made[key].keys() if key in self._made else []

    def keys(self) -> list[str]:
        return [*self._keys]

    def __contains__(self, key: object) -> bool:
        return key in self._present

    def spec(self, key: str) -> TensorSpec:
        return self._made[key].spec if key in self._made else self._reader.spec(key)

    def entry(self, key: str) -> Entry:
        if key in self._texts:
            return Entry(STRING, (), size=len(self._texts[key]))
        recipe = self._made.get(key)
        if recipe is None:
            return self._reader.entry(key)
        if isinstance(recipe, Refused):
            raise recipe.error.with_context(file=self.prefix)
        return Entry(recipe.spec.dtype, recipe.shape, size=recipe.spec.nbytes)

    def catalogue(self) -> Catalogue:
        catalogue = self._reader.catalogue()
        kept = [
            position for position, key in enumerate(catalogue.keys) if key in self._present and key not in self._made
        ]
        specs = [recipe.spec for recipe in self._made.values()]
        made = Catalogue.of([*self._made], specs, np.arange(len(specs)), is_run=False)
        pieces = {catalogue.keys[position]: count for position, count in catalogue.pieces.items()}
        joined = Catalogue.joined([catalogue.take(np.array(kept, np.int64)), made]).by_key()
        positions = {key: position for position, key in enumerate(joined.keys)}
        return joined._replace(
            is_masked=catalogue.is_masked,
            pieces={
                positions[key]: count for key, count in pieces.items() if key in positions and key not in self._made
            },
        )

    def extent(self, key: str) -> tuple[ReadableFile, Entry] | None:
        return None if self._is_changed(key) else self._reader.extent(key)

    def runs(self, key: str, box: TensorSlice | None = None) -> list[tuple[ReadableFile, Entry]] | None:
        return None if self._is_changed(key) else self._reader.runs(key, box)

    def read(self, key: str, box: TensorSlice | None = None) -> Array:
        if key in self._texts:
            array = np.empty((), object)
            array[()] = self._texts[key]
            return array
        if key not in self._made:
            return self._reader.read(key, box)
        spec = self._made[key].spec
        array = new_array(spec.dtype, spec.shape if box is None else box.shape(spec.shape))
        self.read_into(key, array, box)
        return array

    def read_into(self, key: str, destination: Array, box: TensorSlice | None = None) -> None:
        recipe = self._made.get(key)
        if recipe is None:
            self._reader.read_into(key, destination, box)
            return
        with _explained(key, self.prefix):
            recipe.read_into(recipe.whole if box is None else ranges(box, recipe.shape), destination)

    def check(self, key: str, box: TensorSlice | None = None) -> None:
        recipe = self._made.get(key)
        if recipe is None:
            self._reader.check(key, box)
            return
        with _explained(key, self.prefix):
            recipe.check(recipe.whole if box is None else ranges(box, recipe.shape))

    def map(self, key: str) -> Array:
        if self._is_changed(key):
            raise UnsupportedError(
                "this tensor is made of others, so it is not in the file as it would be in memory",
                key=key,
                file=self.prefix,
                remedy="use read() instead of map()",
            )
        return self._reader.map(key)

    def _is_changed(self, key: str) -> bool:
        return key in self._made or key in self._texts


@contextmanager
def _explained(key: str, file: str) -> Iterator[None]:
    """Completes errors with the key of a new value and its file, where they do not name those of a saved one."""
    try:
        yield
    except MilepostError as error:
        raise error.with_context(key=key, file=file) from None


class _Changes(NamedTuple):
    """What a checkpoint has instead of what was saved.

    Attributes:
        made: The new values, by key.
        gone: The keys of the values that it no longer has.
        copies: As for `LaidOutReader`.
        texts: The object graph and the metadata, by key, if they have changed.
    """

    made: Mapping[str, Recipe]
    gone: Collection[str]
    copies: Collection[str]
    texts: Mapping[str, bytes] = MappingProxyType({})


def _of_names(reader: BundleReader, steps: Sequence[Step]) -> _Changes:
    """The changes of a checkpoint by names."""
    values = {key: Laid(_saved(reader, key), origin=key) for key in reader.keys()}  # noqa: SIM118 - a reader is not a mapping
    final = applied(values, steps, reader.prefix)
    changed = {name: value.recipe for name, value in final.items() if not _is_as_saved(name, value)}
    gone = [name for name in values if name not in final or name in changed]
    return _Changes(changed, gone, copies_of_changed(values, final))


class _CheckpointLayout:
    """The new layout of a checkpoint with an object graph. Arguments are those of `LaidOutReader`."""

    def __init__(self, reader: BundleReader, graph: ObjectGraph, steps: Sequence[Step]) -> None:
        self._reader = reader
        self._graph = graph
        self._steps = steps
        self._nodes: list[Node] = list(graph.nodes)
        self._paths = dict(first_paths(graph))
        self._names = {number: "/".join(map(escape, path)) for number, path in self._paths.items()}
        self._numbers = {name: number for number, name in self._names.items()}
        self._by_key = {value.key: number for number, node in enumerate(graph.nodes) for value in node.values}
        self._slots: dict[int, dict[_SlotOf, int]] = {}
        for owner, node in graph.inner:
            for variable, name, slot in node.slots if owner in self._names else ():
                self._slots.setdefault(variable, {})[_SlotOf(owner, name)] = slot
        self._made: dict[str, Recipe] = {}
        self._gone: set[str] = set()
        self._added: list[tuple[int, Path]] = []
        self._left_out = LeftOut.parsed(read_metadata(reader).left_out)

    def changes(self) -> _Changes:
        """Carries out the steps."""
        values = {
            self._names[number]: Laid(self._value(number), self._state(number), self._names[number])
            for number, path in self._paths.items()
            if path and self._nodes[number].values
        }
        everything = applied(values | absent_values(self._left_out), self._steps, self._reader.prefix)
        final, left_out = without_absent(everything, self._left_out, self._reader.prefix)
        self._refuse_lists(values, final)
        targets: dict[str, str | None] = dict.fromkeys(values)
        for name, value in final.items():
            if value.origin is None:
                self._add(name, value)
            else:
                targets[value.origin] = name
                if not _is_as_saved(name, value):
                    self._change(self._numbers[value.origin], name, value)
        for name in (name for name, target in targets.items() if target is None):
            self._leave(self._numbers[name])
        graph = ObjectGraph(tuple(self._nodes))
        if self._added or any(name != target for name, target in targets.items()):
            graph, _ = renamed(graph, lambda name: targets.get(name, name), others=False, added=self._added)
        copies = [self._graph.nodes[self._numbers[name]].values[0].key for name in copies_of_changed(values, final)]
        texts = {OBJECT_GRAPH: graph.serialize()}
        if left_out != self._left_out:
            texts[METADATA] = with_left_out(self._reader.read(METADATA).item(), left_out.plain())
        return _Changes(self._made, self._gone, copies, texts)

    def _other_names(self, number: int) -> list[str]:
        """The names of an object below others than the one that has it under its first name. One object may have it as several attributes."""
        first = self._parents[number][0][0]
        return [
            child_path(self._names[parent], name, is_root=not parent)
            for parent, name in self._parents[number]
            if parent != first
        ]

    @cached_property
    def _parents(self) -> dict[int, list[tuple[int, str]]]:
        """The edges that lead to each object, in the order of their paths."""
        parents: dict[int, list[tuple[int, str]]] = {}
        for parent in self._names:
            for edge in self._graph.nodes[parent].children:
                parents.setdefault(edge.node, []).append((parent, edge.name))
        return parents

    def _refuse_lists(self, values: Mapping[str, Laid], final: Mapping[str, Laid]) -> None:
        """Refuses the state of optimizers that is in lists, in the order of the variables, as in Keras 3: a converted one may be any of them.

        A program that names members of the lists in steps knows which they are.
        """
        changed = [name for name, value in values.items() if final.get(name) is not value]
        shapes = {values[name].recipe.shape for name in changed}
        for number, node in self._graph.inner:
            names = {edge.name for edge in node.children}
            if number in self._names and changed and names & _STEPS and names & _RATES:
                members = [each for edge in node.children for each in self._members(edge.node)]
                if (
                    any(values[name].recipe.shape in shapes for name in members)
                    and members
                    and not {*changed} & {*members}
                ):
                    self._refuse(members)

    def _members(self, number: int) -> list[str]:
        """The names of the values in a list."""
        edges = self._graph.nodes[number].children
        if not all(edge.name.isdecimal() and self._graph.nodes[edge.node].values for edge in edges):
            return []
        return [self._names[edge.node] for edge in edges]

    def _refuse(self, names: Sequence[str]) -> None:
        """Makes values an error if they are asked for."""
        for name in names:
            key = self._nodes[self._numbers[name]].values[0].key
            error = UnsupportedError(
                "convert cannot lay out this state of an optimizer, which has it in the order of its variables; nothing was changed",
                key=key,
                remedy="leave the optimizer out with ignore, or with only; or name its values in steps",
            )
            self._made[key] = Refused([AsSaved(self._reader, key)], error)

    def _value(self, number: int) -> Recipe:
        """The value of an object."""
        values = self._nodes[number].values
        if len(values) > 1 or unescape(values[0].name) != VARIABLE_VALUE:
            return NoArray(values[0].key)
        return _saved(self._reader, values[0].key)

    def _state(self, variable: int) -> dict[StateOf, Recipe]:
        """The slot variables of a variable."""
        return {
            StateOf(*kind, value.name): AsSaved(self._reader, value.key)
            for kind, slot in self._slots.get(variable, {}).items()
            for value in self._nodes[slot].values
        }

    def _change(self, number: int, name: str, value: Laid) -> None:
        """Gives an object and its slot variables their new values."""
        self._give(number, name, {VARIABLE_VALUE: value.recipe})
        for kind, slot in self._slots.get(number, {}).items():
            self._give(slot, self._path_of_slot(name, kind), _of_slot(value, kind))

    def _give(self, number: int, path: str, recipes: Mapping[str, Recipe]) -> None:
        """Gives an object other values, with keys by its new path."""
        node, values = self._nodes[number], []
        for value in node.values:
            key = tensor_key(path, unescape(value.name))
            self._gone.add(value.key)
            self._made[key] = recipes[value.name]
            values.append(value._replace(key=key))
        self._nodes[number] = node._replace(values=tuple(values), hints=_hints_without_layout(node))

    def _add(self, name: str, value: Laid) -> None:
        """Adds an object with its slot variables. It gets the type and the hints of the first one of which it is made."""
        path = tuple(map(unescape, name.split("/")))
        number = self._made_like(name, {VARIABLE_VALUE: value.recipe})
        self._added.append((number, path))
        for owner, slot_name in dict.fromkeys((each.owner, each.name) for each in value.state):
            assert isinstance(owner, int), "the number of a node"
            kind = _SlotOf(owner, slot_name)
            slot = self._made_like(self._path_of_slot(name, kind), _of_slot(value, kind))
            node = self._nodes[owner]
            self._nodes[owner] = node._replace(slots=(*node.slots, SlotReference(number, slot_name, slot)))

    def _made_like(self, path: str, recipes: Mapping[str, Recipe]) -> int:
        """Adds a node with values at a path. Returns its number."""
        first = self._graph.nodes[self._by_key[next(iter(recipes.values())).keys()[0]]]
        values = []
        for local, recipe in recipes.items():
            key = tensor_key(path, unescape(local))
            self._made[key] = recipe
            values.append(SavedValue(local, "", key))
        self._nodes.append(Node(values=tuple(values), python=first.python, hints=_hints_without_layout(first)))
        return len(self._nodes) - 1

    def _path_of_slot(self, variable: str, kind: _SlotOf) -> str:
        return slot_path(variable, self._names[kind.owner], kind.name)

    def _leave(self, number: int) -> None:
        """Notes the keys of a value that became a part of another one, or several values, and of its slot variables."""
        others = self._other_names(number)
        if others:
            raise UnsupportedError(
                "a step of convert takes a value that has two names, so that what it makes would need two, too; nothing was changed",
                key=self._names[number],
                file=self._reader.prefix,
                found=f"the second name {others[0]}",
                remedy="give the program a value of its own for each name, or leave the step out",
            )
        parent, attribute = self._parents[number][0]
        node = self._nodes[parent]
        edges = [edge for edge in node.children if edge.node != number or edge.name == attribute]
        self._nodes[parent] = node._replace(children=tuple(edges))
        for each in (number, *self._slots.get(number, {}).values()):
            self._gone.update(value.key for value in self._nodes[each].values)


class _SlotOf(NamedTuple):
    """Which slot variable of a variable: the node of its optimizer, and its name."""

    owner: int
    name: str


def _of_slot(value: Laid, kind: _SlotOf) -> dict[str, Recipe]:
    """The values of one slot variable, by local names."""
    return {each.local: recipe for each, recipe in value.state.items() if (each.owner, each.name) == kind}


def _saved(reader: BundleReader, key: str) -> Recipe:
    return NoArray(key) if reader.spec(key).dtype.is_bytes else AsSaved(reader, key)


def _is_as_saved(name: str, value: Laid) -> bool:
    return value.origin == name and isinstance(value.recipe, (AsSaved, NoArray))


def _hints_without_layout(node: Node) -> str:
    hints = decode(node.hints)
    return encode({name: each for name, each in hints.items() if name not in _OF_LAYOUT})
