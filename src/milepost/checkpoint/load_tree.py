"""Loads a checkpoint, or a file of another library, as a tree of values, without live objects.

Lists, tuples, numbers and text come back as they were saved if the object graph names their types, as it does for trees of `save` and for
plain values of a `Checkpoint`. An object whose state is plain data becomes this data. Every other object becomes a dict of its attributes, by
name.
"""

from __future__ import annotations

import functools
import keyword
import os
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, cast

import numpy as np

from milepost.adapters.numpy import FORTRAN, as_hinted
from milepost.adapters.optimizer_settings import STRIDES
from milepost.bundle import BundleReader
from milepost.checkpoint.reader import resolve
from milepost.checkpoint.save_tree import ATTRIBUTES, SINGLE
from milepost.engine.arguments import wrong
from milepost.engine.layouts.steps import Step, checked
from milepost.engine.options import CheckpointOptions, resolved, storage_of, takes_options
from milepost.engine.progress import Reporter, in_one_stage, reporting, saved_sizes
from milepost.engine.translation import Names, Rename, Translation
from milepost.engine.watching import watchers
from milepost.errors import (
    CorruptCheckpointError,
    MilepostError,
    UnrestoredWarning,
    UnsupportedError,
    importing,
    warn,
)
from milepost.foreign.items import walked
from milepost.foreign.pytorch.rebuilt import METADATA, Size, of_kind, refusal
from milepost.foreign.pytorch.tensors import strides_of
from milepost.foreign.stored import Stored
from milepost.graph.adapter import Array, adapter_of, adapter_of_array_type, values_of
from milepost.graph.frameworks import import_adapters
from milepost.graph.keys import EXTRA_STATE, STATE_DICT, VARIABLE_VALUE, unescape
from milepost.graph.plain.places import PLAIN_TYPES
from milepost.graph.plain.values import from_saved
from milepost.graph.saved.all_names import lazy_names, removed_names, unlisted_names, version_of
from milepost.graph.saved.hints import decode
from milepost.graph.saved.object_graph import Node, ObjectGraph, SavedValue
from milepost.graph.saved.renaming import renamed
from milepost.graph.saved.selection import selected
from milepost.graph.trees.structure import NAMED_TUPLE, make_tuple, named_tuple_called
from milepost.plain_state.arrays import Padding
from milepost.plain_state.decoding import unpack
from milepost.plain_state.encoding import TEXT
from milepost.plain_state.kinds import OfKind, kinds
from milepost.plain_state.part import PLAIN_PART, accounts_in, is_plain_state, is_state_of_object
from milepost.restoring.load import open_any, read_object_graph
from milepost.storage.paths import plain_path

if TYPE_CHECKING:
    from milepost.foreign import ForeignReader

PathLike = str | os.PathLike[str]
Arrays = Literal["numpy", "torch", "jax"]
"""The libraries whose arrays `load` can make."""
SLOTS: Final = ".OPTIMIZER_SLOT"
"""The name of the slot variables of an optimizer, in the dict of the optimizer."""
_TYPES: Final = {"numpy": "numpy.ndarray", "torch": "torch.Tensor", "jax": "jax.Array"}


@takes_options("restore")
def load(
    path: PathLike,
    options: CheckpointOptions | None = None,
    *,
    arrays: Arrays = "numpy",
    mapped: bool = False,
    separator: str | None = None,
    rename: Rename = (),
    ignore: Names = (),
    only: Names | None = None,
    convert: Sequence[Step] = (),
) -> Any:
    """Loads a checkpoint, or a file of another library, as a tree of values.

    Args:
        path: A path that `save` returned, any path that `milepost.Checkpoint.restore` accepts, or a directory, whose latest
            checkpoint is loaded.
        options: How to read: where the files are, and who is told how far this is.
        arrays: Whose arrays to make: ``numpy``, ``torch`` (on the CPU) or ``jax`` (on its default device). The library is imported.
        mapped: Whether arrays of NumPy are mapped from the file, read-only, so that they take memory only where they are used.
            Arrays that cannot be mapped are read.
        separator: The text that joins the names of levels: the result is one dict of all values, by their whole names. With ``"."`` it is
            what ``load_state_dict`` of PyTorch takes. By default the dicts and lists are nested as they were.
        rename: New names of saved values, as for `milepost.Checkpoint.restore`; ``{"model": ""}`` takes the first name away.
        ignore: Saved names of values to leave out. A name stands for everything below it, too; ``*`` stands for any text.
        only: Saved names. All other values are left out, and are not read.
        convert: Steps of `milepost.layouts` that lay out saved values otherwise, as for `milepost.Checkpoint.restore`. The other arguments get the names
            of what they make.

    Returns:
        Dicts, lists, tuples, numbers, text and arrays. Arrays in what is saved as plain state, such as a dict with numbers as keys or the
        state of a scheduler, are of the library that they were saved from. Other objects are dicts, by names of attributes; the slot variables of an
        optimizer are in its dict under ``.OPTIMIZER_SLOT``, by name and path of the variable. A checkpoint of TensorFlow 1 is a dict
        by the names of variables. A value in several places is one object.

        With a separator, one dict in the order of the file. Members of lists and tuples are named by their positions. The plain state of an object,
        such as the extra state of a module, is one value. If there are modules of PyTorch among the objects, and the arrays are of PyTorch, it is an
        `OrderedDict` that has their versions in ``_metadata``, as ``state_dict()`` has.

    Raises:
        CheckpointNotFoundError: There is no such checkpoint.
        CorruptCheckpointError: The checkpoint is damaged.
        UnsupportedError: A value needs an object that only code from the file could make, the library has no such element type, or two values
            would have the same name.

    Example:
        >>> import milepost, tempfile
        >>> path = milepost.save(tempfile.mkdtemp() + "/state", {"epoch": 3, "rates": (0.1, 0.2)})
        >>> milepost.load(path)
        {'epoch': 3, 'rates': (0.1, 0.2)}
        >>> milepost.load(path, only="epoch")
        {'epoch': 3}
        >>> milepost.load(path, separator=".")
        {'epoch': 3, 'rates.0': 0.1, 'rates.1': 0.2}
    """
    settings, selected, beside = resolved(options), _Selected(rename, ignore, only), Beside()
    files, steps = storage_of(settings), checked(convert)
    with (
        open_any(files, resolve(plain_path(path), files), steps) as reader,
        reporting(settings.progress, "load", reader.prefix) as reporter,
    ):
        kind = _checked_kind(arrays, mapped=mapped)
        make = partial(_array, reader, kind=kind, mapped=mapped, padding=Padding())
        new_name = selected if selected.selects else None
        keys: list[str] = []

        def array(key: str, name: str, hints: Hints, read: Callable[[], Any]) -> Any:
            keys.append(key)
            return make(key, hints)

        tree = tree_of(reader, new_name, array, reporter, selected.warn_of_unused, beside)
        for watcher in watchers:
            watcher.restored(reader.prefix, None, None)
        if steps:
            with importing():
                from milepost.engine.layouts.opening import warn_of_copies  # few programs lay out values otherwise

            warn_of_copies(reader, keys)
    return (
        tree if separator is None else _flat(tree, separator, beside, plain_path(path), with_versions=arrays == "torch")
    )


@dataclass
class Beside:
    """What is known of a tree beside its values, by the identities of these.

    Attributes:
        versions: The versions of modules, of the dicts that they have become.
        lazy: The names of parameters and buffers that had no values, of the dicts that modules have become.
        unlisted: The names of children that a module had and did not list, of the dicts that modules have become.
        removed: The names that lead from such a dict to values which the ``state_dict()`` of the module left out.
        states: Values that have no parts with names, because an object has them as its plain state.
        metadata: The versions that an `OrderedDict` had with it, which was the ``state_dict()`` of a module, by the names of modules.
    """

    versions: dict[int, int] = field(default_factory=dict)
    lazy: dict[int, list[str]] = field(default_factory=dict)
    unlisted: dict[int, list[str]] = field(default_factory=dict)
    removed: dict[int, list[list[str]]] = field(default_factory=dict)
    states: set[int] = field(default_factory=set)
    metadata: dict[int, Mapping[str, Any]] = field(default_factory=dict)

    def note_whole(self, state: Any) -> None:
        """Notes a value that has no parts with names."""
        if type(state) is not tuple or state:  # the empty tuple is one object, wherever it is
            self.states.add(id(state))


class _Make(Protocol):
    """Makes an array of a tensor, by its key, its local name and its hints."""

    def __call__(self, key: str, name: str, hints: Hints = ..., /) -> Any: ...


class NewName(Protocol):
    """Returns the new name of a saved value, or None to leave it out. It is told whether names are separated by ``.``."""

    def __call__(self, name: str, *, dotted: bool = False) -> str | None: ...

    @property
    def knows_others(self) -> bool:
        """Whether it has new names for the other names of objects, too."""

    def takes(self, path: str) -> bool:
        """Whether a saved value or slot variable is not left out, by its path."""

    def ignores(self, path: str) -> bool:
        """Whether ``ignore`` names it."""


class _Selected:
    """The names that `load` gives to saved values."""

    def __init__(self, rename: Rename, ignore: Names, only: Names | None) -> None:
        self._renaming, self._selection = Translation(rename), Translation(ignore=ignore, only=only)
        self.selects = self._renaming.renames or self._selection.renames
        self.knows_others = not callable(rename)

    def __call__(self, name: str, *, dotted: bool = False) -> str | None:
        is_left_out = not self.takes(name)
        if is_left_out and callable(self._renaming.rename):
            return None  # the program's function need not know names that are left out
        new = self._renaming.live_name(name, dotted=dotted)
        return None if is_left_out else new

    def takes(self, path: str) -> bool:
        """Whether a value is not left out, by its path."""
        self._renaming.unused.met_saved(path)  # also if the value is left out, because then no name is asked for it
        self._selection.unused.met_live(path)
        return not self._selection.leaves_alone(path, counter=True)

    def ignores(self, path: str) -> bool:
        """Whether ``ignore`` names a value."""
        return self._selection.ignores(path)

    def warn_of_unused(self, reader: BundleReader, *, dotted: bool = False) -> None:
        """Warns of names in ``rename``, ``ignore`` and ``only`` that are not in the file."""
        self._renaming.warn_of_unused(reader, dotted=dotted)
        self._selection.warn_of_unused(reader, dotted=dotted)


Hints = Mapping[str, Array]
"""The hints of a tensor; see `milepost.graph.saved.hints`."""
MakeArray = Callable[[str, str, Hints, Callable[[], Any]], Any]
"""Makes an array of a tensor: by its key, its local name, its hints, and a function that reads it as an array of NumPy."""
_NO_HINTS: Final[Hints] = MappingProxyType({})


def _no_warning(reader: BundleReader, *, dotted: bool = False) -> None:
    pass


def tree_of(
    reader: BundleReader,
    new_name: NewName | None,
    make_array: MakeArray,
    told: Reporter | None = None,
    all_named: Callable[..., object] = _no_warning,
    beside: Beside | None = None,
    *,
    made: bool = True,
) -> Any:
    """The contents of an open checkpoint as a tree.

    Args:
        reader: The open checkpoint. The names of a file of another library are changed in it.
        new_name: Gives names to values. None if all keep theirs.
        make_array: Returns the array for a tensor.
        told: Counts the progress.
        beside: Gets what is known of the tree beside its values.
        made: Whether element types and the like in a file of PyTorch are made, if PyTorch is imported. Otherwise they are text and tuples.
        all_named: Is called with the reader, and with ``dotted`` as for ``new_name``, when all values have their names.

    Raises:
        CorruptCheckpointError: The checkpoint is damaged.
        UnsupportedError: A value needs an object that only code from the file could make.
    """

    padding = Padding()

    def make(key: str, name: str, hints: Hints = _NO_HINTS) -> Any:
        read = partial(_array, reader, key, hints, kind=_TYPES["numpy"], mapped=False, padding=padding)
        return make_array(key, name, hints, read)

    if not reader.origin.is_checkpoint:
        foreign = cast("ForeignReader", reader)
        if new_name is not None:
            foreign.rename(partial(new_name, dotted=reader.origin.dotted))
            all_named(reader, dotted=reader.origin.dotted)
        with in_one_stage(told, saved_sizes(reader, _keys_of_foreign(foreign))):
            return _foreign(foreign, make, beside or Beside(), made=made)
    graph = read_object_graph(reader)
    if graph is None:
        named = {key: key if new_name is None else new_name(key) for key in reader.keys()}  # noqa: SIM118 - a reader is not a mapping
        all_named(reader)
        keys = {name: key for key, name in named.items() if name is not None}
        with in_one_stage(told, saved_sizes(reader, keys.values())):
            return {name: make(key, VARIABLE_VALUE) for name, key in keys.items()}
    variables: Mapping[int, Sequence[SavedValue]] = {}
    accounts = accounts_in(graph)
    if new_name is not None:
        selection = selected(graph, new_name.takes, new_name.ignores, as_saved=True)
        graph, _ = renamed(selection.graph, new_name, others=new_name.knows_others)
        variables = selection.variables
        all_named(reader)
    objects = _Objects(graph, reader, make, variables, accounts, beside or Beside())
    with in_one_stage(told, saved_sizes(reader, objects.keys())):
        tree = objects.tree()
    is_single = isinstance(tree, dict) and tree.keys() == {SINGLE} and graph.nodes[0].python == "dict"
    return tree[SINGLE] if is_single else tree


def _flat(tree: Any, separator: str, beside: Beside, path: str, *, with_versions: bool) -> dict[str, Any]:
    """The values of a tree in one dict, by their whole names.

    Args:
        tree: The tree.
        separator: What joins the names of levels.
        beside: What is known of the tree beside its values.
        path: The file, for messages.
        with_versions: Whether the dict has the versions of modules, as ``state_dict()`` has.
    """
    flat: dict[str, Any] = {}
    named: dict[str, Any] = {}
    lazy: list[str] = []
    pending: list[tuple[str, Any]] = [("", tree)]
    unlisted: list[tuple[str, Any]] = []
    seen: set[int] = set()
    removed: set[str] = set()
    while pending or unlisted:
        if not pending:  # what is listed nowhere else
            pending = [each for each in unlisted if id(each[1]) not in seen]
            unlisted = []
            continue
        name, value = pending.pop()
        seen.add(id(value))
        if name in removed:
            continue
        for steps in beside.removed.get(id(value), ()):
            removed.add(separator.join(filter(None, [name, *steps])))
        if id(value) in beside.versions:
            named[name] = {"version": beside.versions[id(value)]}
            lazy += [separator.join(filter(None, [name, each])) for each in beside.lazy[id(value)]]
        for module, facts in beside.metadata.get(id(value), {}).items():
            named[separator.join(filter(None, [name, module]))] = facts
        if isinstance(value, (Mapping, list, tuple)) and id(value) not in beside.states:
            pairs = list(value.items() if isinstance(value, Mapping) else enumerate(value))
            hidden = beside.unlisted.get(id(value), ())
            for each, below in reversed(pairs):
                named_below = (f"{name}{separator}{each}" if name else str(each), below)
                (unlisted if each in hidden else pending).append(named_below)
            continue
        if name in flat:
            raise UnsupportedError(
                "two values would have the same name",
                key=name,
                file=path,
                remedy="pass another separator, or leave one of them out with ignore",
            )
        flat[name] = value
    if lazy:
        warn(
            f"{path}: lazy modules that had not been called when this was saved have no values for {', '.join(lazy)}",
            UnrestoredWarning,
        )
    if not (named and with_versions):
        return flat
    state = OrderedDict(flat)
    vars(state)[METADATA] = OrderedDict(named)
    return state


def _checked_kind(arrays: Any, *, mapped: bool) -> str:
    if arrays not in _TYPES:
        raise wrong("arrays", arrays, ", ".join(map(repr, _TYPES)))
    if mapped and arrays != "numpy":
        raise wrong("mapped", mapped, "False, because only arrays of NumPy are mapped")
    if arrays != "numpy":
        import_module(arrays)
    return _TYPES[arrays]


def _array(reader: BundleReader, key: str, hints: Hints, *, kind: str, mapped: bool, padding: Padding) -> Any:
    """One tensor as an array of this kind.

    Args:
        reader: The open checkpoint.
        key: The tensor.
        hints: Its hints.
        kind: The type of the array in object graphs.
        mapped: Whether to map it, if that is possible.
        padding: That of the arrays of text before it.
    """
    spec = reader.spec(key)
    if kind != _TYPES["numpy"] and not spec.dtype.is_bytes:
        maker = adapter_of_array_type(kind)
        new = maker.new_array(spec, hints) if maker is not None else None
        adapter = adapter_of(new)
        if adapter is None:
            raise UnsupportedError(
                f"no {kind} can be made of this tensor", key=key, found=spec, remedy='load it with arrays="numpy"'
            )
        destination = None if adapter.functional else values_of(adapter, new)[0].destination
        if destination is None:
            known = {name: hint for name, hint in hints.items() if name in adapter.hints}
            return adapter.assign(new, {VARIABLE_VALUE: reader.read(key), **known})
        reader.read_into(key, destination)
        return new
    array: Any = None
    if mapped:
        with suppress(UnsupportedError):
            array = reader.map(key)
    array = reader.read(key) if array is None else array
    if hints:
        kept = (
            {name: hint for name, hint in hints.items() if name != FORTRAN} if mapped else hints
        )  # the order of columns needs a copy
        try:
            array = as_hinted(array, kept, padding)
        except MilepostError as error:
            raise error.with_context(key=key, file=reader.prefix) from None
    return array if array.ndim or not spec.dtype.is_bytes else array[()]


def _keys_of_foreign(reader: ForeignReader) -> Iterator[str]:
    """The keys of the tensors of a file of another library, each once."""
    yield from {id(item.value): item.key for item in walked(reader.root) if isinstance(item.value, Stored)}.values()


def _of_pytorch(value: OfKind, *, made: bool) -> Any:
    """A value of PyTorch, such as an element type; text or a tuple if PyTorch is not imported, or has no such value."""
    plain = value.plain
    if made:
        import_adapters()
    kind = kinds.get(value.kind) if made else None
    if kind is not None:
        with suppress(Exception):  # this PyTorch may have no such value
            return kind.from_plain(plain)
    return tuple(plain) if isinstance(plain, list) else plain


def _foreign(reader: ForeignReader, make: _Make, beside: Beside, *, made: bool) -> Any:
    """The contents of a file of another library, with arrays instead of the tensors in the file."""
    arrays: dict[int, Any] = {}
    contents: dict[int, Any] = {}
    pending = [(reader.root, False)]
    while pending:
        item, is_ready = pending.pop()
        value = item.value if item.has_value else {}
        if isinstance(value, Stored):
            if id(value) not in arrays:
                strides = strides_of(value)
                hints = {} if strides is None else {STRIDES: np.array(strides, np.int64)}
                arrays[id(value)] = make(item.key, VARIABLE_VALUE, hints)
            contents[id(item)] = arrays[id(value)]
        elif item.opaque is not None and item.is_unread:
            error = refusal(item.opaque).with_context(key=item.key, file=reader.prefix)
            error.remedy = f"leave it out, with ignore={item.key!r}"
            raise error
        elif not isinstance(value, (Mapping, list, tuple)) or isinstance(value, Size):
            known = of_kind(value)
            contents[id(item)] = value if known is None else _of_pytorch(known, made=made)
        elif not is_ready:
            pending += [(item, True), *((each, False) for each in item.members)]
        else:
            members = [contents[id(each)] for each in item.members]
            if isinstance(value, Mapping):
                made_dict: dict[Any, Any] = dict(zip(value, members, strict=True))
                if isinstance(versions := getattr(value, METADATA, None), Mapping):
                    made_dict = OrderedDict(made_dict)
                    vars(made_dict)[METADATA] = versions
                    beside.metadata[id(made_dict)] = versions
                contents[id(item)] = made_dict
            else:
                contents[id(item)] = members if isinstance(value, list) else tuple(members)
            if reader.origin.dotted and item.key.replace("/", ".").rpartition(".")[2] == EXTRA_STATE:
                beside.note_whole(contents[id(item)])
    return contents[id(reader.root)]


class _Objects:
    """Makes a tree from an object graph.

    Args:
        graph: The graph.
        reader: The open checkpoint.
        make: Makes an array of a tensor.
        variables: By node, the values of variables that are not in the graph, although their slot variables are.
        accounts: The nodes of what modules have added to their ``state_dict()``.
        beside: Gets what is known of the tree beside its values.
    """

    def __init__(
        self,
        graph: ObjectGraph,
        reader: BundleReader,
        make: _Make,
        variables: Mapping[int, Sequence[SavedValue]],
        accounts: Set[int],
        beside: Beside,
    ) -> None:
        self._nodes = graph.nodes
        self._accounts = accounts
        self._variables = variables
        self._beside = beside
        self._padding = Padding()
        self._reader = reader
        self._make = make
        self._made: dict[int, Any] = {}

    def keys(self) -> Iterator[str]:
        """The keys of the values that the tree is made of."""
        pending, seen = [0], {0}
        while pending:
            node = self._nodes[pending.pop()]
            yield from (value.key for value in node.values)
            below = {*(edge.node for edge in node.children), *(slot.slot for slot in node.slots)} - seen
            seen |= below
            pending += below

    def tree(self) -> Any:
        """The tree of node 0.

        Raises:
            CorruptCheckpointError: A tuple is below itself, or a value is of another type than the graph says.
        """
        pending = [(0, False)]
        while pending:
            number, is_ready = pending.pop()
            node = self._nodes[number]
            if is_ready:
                self._fill(number, node)
            elif number not in self._made:
                below = [edge.node for edge in node.children]
                if below or not node.values:
                    container = self._made[number] = self._container(node)
                    if node.hints and (version := version_of(node)) is not None:
                        self._beside.versions[id(container)] = version
                        self._beside.lazy[id(container)] = lazy_names(node)
                        self._beside.unlisted[id(container)] = unlisted_names(node)
                        self._beside.removed[id(container)] = removed_names(node)
                    pending += [(number, True), *((each, False) for each in reversed(below))]
                else:
                    self._made[number] = self._leaf(node)
        self._add_slots()
        return self._made[0]

    @staticmethod
    def _container(node: Node) -> Any:
        """An empty container, which is filled later. A tuple replaces its list then."""
        if node.python == "list" or _is_tuple(node):
            return []
        return OrderedDict() if node.python == "OrderedDict" else {}

    def _fill(self, number: int, node: Node) -> None:
        container = self._made[number]
        if isinstance(container, list):
            by_name = {edge.name: edge.node for edge in node.children}
            members = [
                self._made[by_name[str(position)]] for position in range(len(by_name)) if str(position) in by_name
            ]
            if not _is_tuple(node):
                container += members
                return
            if any(member is container for member in members):
                raise CorruptCheckpointError("a tuple is a member of itself", file=self._reader.prefix)
            self._made[number] = _tuple(node, members)
            return
        for edge in node.children:
            child = self._made[edge.node]
            if edge.node in self._accounts and edge.name == STATE_DICT:
                self._add_account(container, child)
            elif edge.name == ATTRIBUTES and isinstance(child, dict) and self._nodes[edge.node].python == PLAIN_PART:
                if isinstance(container, OrderedDict):
                    vars(container).update(child)
                if isinstance(versions := child.get(METADATA), Mapping):
                    self._beside.metadata[id(container)] = versions
            else:
                container[edge.name] = child
        if is_state_of_object(node):
            container.setdefault(TEXT, self._state(node))
            return
        for value in node.values:
            container.setdefault(unescape(value.name), self._make(value.key, unescape(value.name)))

    def _leaf(self, node: Node) -> Any:
        if is_plain_state(node):
            return self._state(node)
        names = {unescape(value.name): value for value in node.values}
        if len(names) > 1:
            return {name: self._make(value.key, name) for name, value in names.items()}
        ((name, value),) = names.items()
        if node.python in PLAIN_TYPES:
            return self._plain(node.python, value)
        return self._make(value.key, name, decode(node.hints))

    def _state(self, node: Node) -> Any:
        """The plain state of an object, or a part of a tree that is plain state."""
        arrays = {unescape(value.name): self._reader.read(value.key) for value in node.values}
        try:
            state = unpack(arrays, self._padding)
        except MilepostError as error:
            raise error.with_context(key=node.values[0].key, file=self._reader.prefix) from error.__cause__
        if node.python != PLAIN_PART:
            self._beside.note_whole(state)
        return state

    def _add_account(self, module: dict[str, Any], account: dict[str, Any]) -> None:
        """Adds what a module has in its ``state_dict()`` by code of its own: values by names with dots."""
        for path, value in account.items():
            *above, name = path.split(".")
            holder = module
            for each in above:
                holder = holder.setdefault(each, {})
            holder[name] = value
            self._beside.note_whole(value)

    def _plain(self, python: str, value: SavedValue) -> Any:
        try:
            return from_saved(self._reader.read(value.key), python, None)
        except MilepostError as error:
            raise error.with_context(key=value.key, file=self._reader.prefix) from error.__cause__

    def _add_slots(self) -> None:
        for number, node in enumerate(self._nodes):
            holder = self._made.get(number)
            for slot in node.slots:
                if isinstance(holder, dict) and self._nodes[slot.slot].values:
                    values = self._nodes[slot.variable].values or self._variables.get(slot.variable, ())
                    variable = values[0].key.partition("/.ATTRIBUTES/")[0] if values else str(slot.variable)
                    by_name = holder.setdefault(SLOTS, {}).setdefault(slot.name, {})
                    by_name[variable] = self._leaf(self._nodes[slot.slot])


@functools.lru_cache
def _named_tuple(name: str, fields: tuple[str, ...]) -> type[tuple[Any, ...]]:
    is_name = name.isidentifier() and not keyword.iskeyword(name)
    return namedtuple(name if is_name else "NamedTuple", fields, rename=True)


def _is_tuple(node: Node) -> bool:
    return node.python == "tuple" or node.python.startswith(NAMED_TUPLE)


def _tuple(node: Node, members: list[Any]) -> tuple[Any, ...]:
    """A tuple. Of a named tuple whose class the program does not have, one of a new class with the same fields."""
    if node.python == "tuple":
        return tuple(members)
    fields = [edge.name for edge in node.children if not edge.name.isdecimal()]
    kind = named_tuple_called(node.python, fields)
    if kind is None:
        kind = _named_tuple(node.python.rpartition(":")[2].rpartition(".")[2], tuple(fields))
    return make_tuple(kind, members) if len(fields) == len(members) else tuple(members)
