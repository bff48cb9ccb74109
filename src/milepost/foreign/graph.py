"""Makes object graphs for files that have none. Names become edges; the meaning of a value depends on the live object.

Names are followed through the file and the live objects side by side, because one name can mean several things:

- ``module`` and ``_orig_mod`` are levels that PyTorch's wrappers add. They are skipped unless the live object has such a child.
- ``value`` below an `nnx.Variable` is the variable.
- An object whose state is plain data takes everything below its name at once.
- A plain number is converted to the element type of the live value, if that has an equal number.
- A live object with several names, such as a tied weight, may be one tensor in the file, or several.
- ``weight_g`` and ``weight_v`` are the former names of ``parametrizations.weight.original0`` and ``original1``.
- In a file of Keras, the values of an object belong to the variables that Keras itself would assign them to; see `keras.variables`.
- The state of a PyTorch optimizer belongs to the parameters at the same positions, or of the same names; see `optimizers`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np

from milepost.adapters.packed import PackedAdapter
from milepost.bundle.equality import are_equal
from milepost.bundle.memory import Array
from milepost.errors import UnrestoredWarning, UnsupportedError, warn
from milepost.foreign.items import ROOT, Item, levels, packable, walked
from milepost.foreign.keras.files import VOCABULARY, KerasFile
from milepost.foreign.keras.variables import (
    IDF_WEIGHTS,
    lookups_of,
    merged_of,
    own_states_of,
    own_value,
    tokens_as,
    variables_of,
)
from milepost.foreign.opaque import Name
from milepost.foreign.optimizers import GROUPS, STATE, OptimizerState, is_optimizer_state
from milepost.foreign.packed import packed
from milepost.foreign.pytorch.rebuilt import METADATA, kind_of, refusal
from milepost.foreign.reader import ForeignReader, as_value, is_value
from milepost.foreign.stored import Stored
from milepost.graph.adapter import Adapter, Value, values_of
from milepost.graph.keys import EXTRA_STATE, SLOT, STATE_DICT, VARIABLE_VALUE, escape
from milepost.graph.live_graph import LiveGraph
from milepost.graph.saved.all_names import is_named
from milepost.graph.saved.edges import by_live_names
from milepost.graph.saved.hints import encode
from milepost.graph.saved.object_graph import Edge, Node, ObjectGraph, SavedValue, SlotReference
from milepost.plain_state.encoding import TEXT
from milepost.tensor import DType

WRAPPERS: Final = frozenset({"module", "_orig_mod"})
"""Levels that wrappers of PyTorch add to names."""
VALUE: Final = "value"
"""The level below a variable of NNX."""
_BY_DEFAULT: Final = "not in the file; the default that load_state_dict of PyTorch gives it too"
_MERGED: Final = "merged with another value of the file, as Keras does it"
_BATCHES: Final = "num_batches_tracked"
_MEAN: Final = "running_mean"
_BATCHES_SINCE: Final = 2
"""Since this version, PyTorch's batch normalisation counts batches."""
_SCHEDULERS: Final = "torch.optim.lr_scheduler"
_INITIAL_RATE: Final = "initial_lr"
"""The hyperparameter that a scheduler of PyTorch adds to each group when it is made."""
_PARAMETRISED: Final = "parametrizations"
_NORMALISED: Final = {"_g": "original0", "_v": "original1"}
"""The ends of names in the first form of weight normalisation, each with the present name."""
_IDF_WEIGHTS: Final = "idf_weights"
_MOST_LISTED: Final = 3
_GENERATOR: Final = "impl"
"""The local name of the generator of JAX's keys."""


class HeldObject(NamedTuple):
    """An object in a file that could be made only by running code.

    Attributes:
        key: Its key.
        kind: Its class.
        is_unread: Whether none of its contents is read.
    """

    key: str
    kind: str
    is_unread: bool


class _Below(Mapping[str, Any]):
    """What is noted of the modules below a name, by their names from there. It is not copied for each of thousands of modules.

    Args:
        noted: What is noted of all modules.
        prefix: The name.
    """

    def __init__(self, noted: Mapping[Any, Any], prefix: str) -> None:
        self._noted = noted
        self._prefix = prefix

    def __getitem__(self, name: str) -> Any:
        return self._noted[".".join(filter(None, (self._prefix, name)))]

    def __iter__(self) -> Iterator[str]:
        for name in self._noted:
            if isinstance(name, str) and (not self._prefix or f"{name}.".startswith(f"{self._prefix}.")):
                yield name.removeprefix(self._prefix).removeprefix(".")

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return bool(self._noted)


class _Draft:
    """A node of the graph that is being made."""

    __slots__ = ("children", "hints", "slots", "values")

    def __init__(self) -> None:
        self.hints = ""
        self.children: dict[str, int] = {}
        self.values: list[SavedValue] = []
        self.slots: list[SlotReference] = []


class Changes(NamedTuple):
    """What a program changes between a file and its live objects.

    Attributes:
        ignores: Whether the live object at a path takes nothing, by whichever of its names the file has it. None if none is ignored.
        away: The keys of hyperparameters of optimizers that are left out.
        without_groups: The paths of live optimizers that take no hyperparameters.
        parameters: If values have new names: returns paths from the root that live parameters may have, given their names in the state of an optimizer.
    """

    ignores: Callable[[str], bool] | None = None
    away: Collection[str] = ()
    without_groups: Collection[str] = ()
    parameters: Callable[[Sequence[str]], Iterable[Iterable[str]]] = lambda names: ()


class GraphBuilder:
    """Makes the object graph of one file for one set of live objects.

    Args:
        reader: The open file. Values are added to it in the form that objects take.
        live: The live objects. Their root corresponds to the root of the file.
        changes: What the program changes between them.

    Attributes:
        ignored: The keys of values for such objects, and those that are away.
        objects: By node, the objects that could be made only by running code.
        notes: By key, where a value comes from that is not in the file.
        left_out: By key, functions that the file names in the state of a scheduler. The live scheduler has them itself.
        kept: Numbers of live objects that keep their values although the file has none, as in PyTorch.
        optimizers: The nodes of optimizers of PyTorch, and of their groups.
        versions: By node, what PyTorch has noted of modules, such as the versions of their classes, by their names below it.
        slots: The paths of slot variables but for their names, by the key of the state of their parameter.
        variables: The paths of the live parameters that have slot variables, by node.
    """

    def __init__(self, reader: ForeignReader, live: LiveGraph, changes: Changes = Changes()) -> None:  # noqa: B008 - it is frozen
        self._ignores, self._away, self._without_groups, self._parameters = changes
        self.ignored = list(self._away)
        self._reader = reader
        self._live = live
        self._edges = [{edge.name: edge.node for edge in edges} for edges in live.edges]
        self._packable = packable(reader.root)
        self._state_dict = reader.root
        self._trail: tuple[str, ...] = ()
        """The names from there to the item that is added."""
        self._drafts: list[_Draft] = []
        self._of_live: dict[int, int] = {}
        self._added: set[int] = set()
        """The identities of items that are added under names with dots, or as what a module adds to its ``state_dict()``."""
        self._with_own_objects: set[str] = set()
        """The keys of weights of tokens, which are added with the vocabularies, and of what objects load by code of their own."""
        self._may_lack = False
        """Whether live objects may lack variables of a file of Keras."""
        self._optimizers: list[tuple[int, int, Item]] = []
        self.objects: dict[int, HeldObject] = {}
        self.notes: dict[str, str] = {}
        self.kept: list[int] = []
        self.optimizers: set[int] = set()
        self.slots: dict[str, str] = {}
        self.versions: dict[int, Mapping[str, Any]] = {}
        self.variables: dict[int, str] = {}
        self.left_out: dict[str, str] = {}
        self._numbers = {id(obj): number for number, obj in enumerate(live.objects)}
        self._parents: dict[int, tuple[int, str]] = {}
        for holder, edges in enumerate(live.edges):
            for name, child in edges:
                self._parents.setdefault(child, (holder, name))

    def build(self) -> ObjectGraph:
        """Makes the graph.

        Raises:
            MismatchError: The state of an optimizer belongs to other parameter groups than those of the live optimizer.
            UnsupportedError: A live object needs an object that could be made only by running code.
        """
        self._add(self._reader.root, 0)
        for node, live, item in self._optimizers:
            self._add_optimizer(node, live, item)
        return ObjectGraph(
            tuple(
                Node(
                    tuple(Edge(name, child) for name, child in draft.children.items()),
                    tuple(draft.values),
                    tuple(draft.slots),
                    hints=draft.hints,
                )
                for draft in self._drafts
            )
        )

    def live_by_key(self) -> dict[str, int]:
        """The numbers of the live objects that take values, by the keys of the values, before any value is left out.

        It builds the graph. Errors are those of `build`.
        """
        self._may_lack = True
        self.build()
        return {value.key: live for live, node in self._of_live.items() for value in self._drafts[node].values}

    def _new(self, live: int | None) -> int:
        self._drafts.append(_Draft())
        node = len(self._drafts) - 1
        if live is not None:
            self._of_live.setdefault(live, node)
        return node

    def _add(self, item: Item, live: int | None) -> int:
        """Adds nodes for an item and everything below it. Returns the number of the first."""
        node = self._new(live)
        adapter = None if live is None else self._live.adapters[live]
        item = self._without_levels(item, live, adapter)
        if self._reader.origin.dotted and adapter is not None and "loads_saved" in adapter.overrides:
            self.versions[node] = self._versions_of(item)
        keras = self._reader.keras
        if keras is not None and live is not None and item.children:
            variables = variables_of(keras, item, self._live.objects[live], may_lack=self._may_lack)
            if variables is not None:
                self._add_vocabularies(keras, item, self._live.objects[live])
                self._add_own_states(keras, item, self._live.objects[live], variables)
                self._add_of_keras(item, variables)
                self._add_merged(item, self._live.objects[live], variables)
                return node
        if item.opaque is not None:
            key = ROOT if item is self._reader.root else item.key
            self.objects[node] = HeldObject(key, kind_of(item.opaque), item.is_unread)
            if live is not None and self._wants(item, live):
                raise refusal(item.opaque).with_context(key=item.key)
        if live is not None and adapter is not None and item.has_value and self._add_whole(node, item, live, adapter):
            return node
        if live is None and item.has_value and self._reader.origin.dotted and self._is_state(item):
            # The object that takes the deferred value will be one whose state is plain data.
            with suppress(UnsupportedError):  # if not, it becomes several values
                self._add_packed(node, item)
                return node
        if item.is_leaf:
            self._add_leaf(node, item)
        self._add_children(node, item, live)
        return node

    def _is_state(self, item: Item) -> bool:
        """Whether an item that no live object has yet is plain state."""
        return item.key.replace("/", ".").rpartition(".")[2] == EXTRA_STATE or (
            bool(item.children) and id(item) in self._packable
        )

    def _add_whole(self, node: int, item: Item, live: int, adapter: Adapter) -> bool:
        """Adds an item with everything below it, if the live object takes all of it at once. Returns whether it does."""
        obj = self._live.objects[live]
        if isinstance(adapter, PackedAdapter):
            self._add_packed(node, self._without_functions(item, live))
            return True
        if adapter.has_slots(obj) and is_optimizer_state(item):
            self._optimizers.append((node, live, item))
            return True
        whole = self._edges[live].get(STATE_DICT) if STATE_DICT not in item.children else None
        if whole is not None and "has_slots" in adapter.overrides:
            below = self._drafts[node].children[STATE_DICT] = self._new(whole)
            self._add_packed(below, item)
            return True
        fitting = _fitting(item, adapter, obj)
        if fitting is not None:
            self._add_values(node, {fitting[0]: (item.key, fitting[1])})
            return True
        return adapter.leaf and not item.is_leaf and self._add_named(node, item, adapter.values(obj))

    def _add_children(self, node: int, item: Item, live: int | None) -> None:
        """Adds nodes for the items below an item, each with the live object of its name."""
        edges = self._edges[live] if live is not None else {}
        above, trail = self._state_dict, self._trail
        if isinstance(item.value, Mapping):
            self._state_dict, self._trail = item, ()
        state, names = self._state_dict, self._trail
        self._keep_what_is_newer(item, edges)
        renamed = self._parametrised(item, edges)
        self._add_with_dots(node, item, edges)
        self._add_account(node, item, live)
        for name, child in item.children.items():
            if id(child) in self._added:
                continue
            self._state_dict, self._trail = state, (*names, name)
            if name in renamed:
                self._add_parametrised(node, edges, renamed[name], child)
                continue
            if live is not None and name not in edges and (steps := self._steps(name, live)):
                self._add_below(node, steps, child)
                continue
            live_child = self._live_child(name, edges, live)
            if self._ignores is not None and live_child is not None and self._ignores(self._live.paths[live_child]):
                self.ignored += [each.key for each in walked(child) if each.is_leaf]
                continue
            self._drafts[node].children[name] = self._add(child, live_child)
        self._state_dict, self._trail = above, trail

    def _steps(self, name: str, live: int) -> list[tuple[str, int]]:
        """The edges and live objects that a name leads to from an object, if it has the separators of other libraries: slashes in a file of PyTorch, and dots
        in one of NumPy. Empty if it leads to none."""
        steps: list[tuple[str, int]] = []
        for part in name.split("/" if self._reader.origin.dotted else "."):
            child = self._live_child(part, self._edges[live], live)
            if child is None:
                return []
            steps.append((part, child))
            live = child
        return steps

    def _add_below(self, node: int, steps: Sequence[tuple[str, int]], item: Item) -> None:
        """Adds an item below a node, where some edges lead."""
        *above, (last, live) = steps
        for name, number in above:
            children = self._drafts[node].children
            if name not in children:
                children[name] = self._new(number)
            node = children[name]
        self._drafts[node].children[last] = self._add(item, live)

    def _add_with_dots(self, node: int, item: Item, edges: Mapping[str, int]) -> None:
        """Adds the items for which the live object has an edge whose name has dots, as the key of a dict may. In a file of PyTorch, dots separate names."""
        for name, live in edges.items() if self._reader.origin.dotted else ():
            if "." not in name or name in item.children:
                continue
            below: Item | None = item
            for part in name.split("."):
                below = None if below is None else below.children.get(part)
            if below is not None and id(below) not in self._added:
                self._drafts[node].children[name] = self._add(below, live)
                self._added.add(id(below))

    def _add_account(self, node: int, item: Item, live: int | None) -> None:
        """Adds what a module has in its ``state_dict()`` by code of its own: values by names with dots, among those of its parameters."""
        account = None if live is None or STATE_DICT in item.children else self._edges[live].get(STATE_DICT)
        if live is None or account is None or not self._reader.origin.dotted:
            return
        if not is_named(self._live.adapters[live].hints_to_save(self._live.objects[live])):
            return  # a dict that has an object under this name
        adapter = self._live.adapters[account]
        items: dict[str, Item] = {}
        for name in adapter.state(self._live.objects[account]) if isinstance(adapter, PackedAdapter) else ():
            below = item
            number: int | None = live
            for part in name.split("."):
                child = below.children.get(part)
                if child is None:
                    break
                below, number = child, None if number is None else self._edges[number].get(part)
            else:
                items[name] = below
                if number is None:
                    self._added.add(id(below))
        if items:
            account_node = self._drafts[node].children[STATE_DICT] = self._new(account)
            content = {name: below.content for name, below in items.items()}
            key = f"{item.key}/{STATE_DICT}" if item.key else STATE_DICT
            values = packed(content, key, self._reader.origin.tensors)
            self._add_values(account_node, {name: (f"{key}/{name}", each) for name, each in values.items()})

    def _add_of_keras(self, item: Item, variables: Mapping[str, Any]) -> None:
        """Adds the contents of a file of Keras below an item: values of live variables under these, each other in a node of its own."""
        for child in item.children.values():
            if child.key in self._with_own_objects:
                continue
            variable = variables.get(child.key) if isinstance(child.value, Stored) else None
            number = None if variable is None else self._numbers.get(id(variable))
            if number is not None:  # Keras has a variable of two objects twice
                values = self._drafts[node := self._node_of(number)].values
                if not values:
                    self._add_leaf(node, child)
                if not values or are_equal(self._reader, values[0].key, child.key):
                    continue
            if isinstance(child.value, Stored):
                # a child of no other node, since no object can take it later by a name of the file
                self._add_leaf(self._new(None), child)
            else:
                self._add_of_keras(child, variables)

    def _add_merged(self, item: Item, obj: Any, variables: Mapping[str, Any]) -> None:
        """Adds what Keras gives to variables of which the file has the values merged with others, as LoRA is merged with a kernel."""
        for name, variable, value in merged_of(obj, variables):
            number = self._numbers.get(id(variable))
            if number is not None:
                key = f"{item.key}/{name}" if item.key else name
                self._add_values(self._node_of(number), {VARIABLE_VALUE: (key, value)})
                self.notes[key] = _MERGED

    def _add_vocabularies(self, keras: KerasFile, item: Item, obj: Any) -> None:
        """Adds the tokens in an archive of Keras, as values of the lookup layers that they belong to."""
        above = f"{item.key}/" if item.key else ""
        for path, lookup in lookups_of(keras, item, obj).items():
            number = self._numbers.get(id(lookup))
            if number is None:
                continue
            adapter = self._live.adapters[number]
            values = {value.name: value for value in adapter.values(lookup)}
            tokens = tokens_as(values[VOCABULARY].dtype, keras.vocabularies[above + path])
            added: dict[str, tuple[str, Any]] = {VOCABULARY: (f"{above}{path}/{VOCABULARY}", tokens)}
            weights = _below(item, f"{path}/{IDF_WEIGHTS}")
            if _IDF_WEIGHTS in values and weights is not None:
                added[_IDF_WEIGHTS] = weights.key, weights.value
                self._with_own_objects.add(weights.key)
            self._add_values(self._node_of(number), added)

    def _add_own_states(self, keras: KerasFile, item: Item, obj: Any, variables: Mapping[str, Any]) -> None:
        """Adds what classes have saved by code of their own, as the values that their objects have in a checkpoint."""
        left_out = dict.fromkeys(keras.assets)
        for state in own_states_of(keras, item, obj):
            number = self._numbers.get(id(state.obj))
            if number is None:
                continue
            store = {name: self._reader.read(child.key) for name, child in state.variables.items()}
            assets = {path: keras.asset(name) for path, name in state.assets.items()} if keras.assets else None
            for name in state.assets.values():
                left_out.pop(name, None)
            self._with_own_objects.update(child.key for child in state.variables.values() if child.key not in variables)
            local, text = own_value(store, assets)
            key = f"{state.key}/{local}" if state.key else local
            self._add_values(self._node_of(number), {local: (key, text)})
        if left_out and not self._may_lack:
            more = len(left_out) - _MOST_LISTED
            warn(
                f"{keras.path}: some assets in this archive are not restored, since no live object has a method load_assets() for them: "
                f"{', '.join([*left_out][:_MOST_LISTED])}{f', and {more} more' if more > 0 else ''}; load the model with "
                "keras.models.load_model(path)",
                UnrestoredWarning,
            )

    def _parametrised(self, item: Item, edges: Mapping[str, int]) -> dict[str, tuple[str, str]]:
        """Names of the first form of weight normalisation, each with the names of the two edges that replace it."""
        renamed: dict[str, tuple[str, str]] = {}
        if _PARAMETRISED not in edges:
            return renamed
        for name, live in self._edges[edges[_PARAMETRISED]].items():
            old = {f"{name}{end}": (name, original) for end, original in _NORMALISED.items()}
            if old.keys() <= item.children.keys() and set(_NORMALISED.values()) <= self._edges[live].keys():
                renamed |= old
        return renamed

    def _add_parametrised(self, node: int, edges: Mapping[str, int], edge_names: tuple[str, str], item: Item) -> None:
        name, original = edge_names
        outer = edges[_PARAMETRISED]
        inner = self._edges[outer][name]
        for step, live in ((_PARAMETRISED, outer), (name, inner)):
            children = self._drafts[node].children
            if step not in children:
                children[step] = self._new(live)
            node = children[step]
        self._drafts[node].children[original] = self._add(item, self._edges[inner][original])

    def _keep_what_is_newer(self, item: Item, edges: Mapping[str, int]) -> None:
        """Keeps the live count of batches if the file was written before there was one, as ``load_state_dict`` does."""
        mean = item.children.get(_MEAN)
        if mean is None or _BATCHES in item.children or _BATCHES not in edges or _MEAN not in edges:
            return
        versions = getattr(self._state_dict.value, METADATA, {})
        name = mean.key.removeprefix(f"{self._state_dict.key}/").removesuffix(f".{_MEAN}")
        noted = versions.get("" if name == _MEAN else name, {})
        version = noted.get("version") if isinstance(noted, Mapping) else None
        if not isinstance(version, int) or version < _BATCHES_SINCE:
            self.kept.append(edges[_BATCHES])

    def _versions_of(self, item: Item) -> Mapping[str, Any]:
        """What the file has noted of a module and of those in it, by their names."""
        state = item if isinstance(item.value, Mapping) else self._state_dict
        noted = getattr(state.value, METADATA, None)
        if not isinstance(noted, Mapping):
            return {}
        return _Below(noted, "" if state is item else ".".join(self._trail))

    def _without_functions(self, item: Item, live: int) -> Item:
        """The state of a scheduler without functions of its class, which older versions of PyTorch wrote."""
        if not isinstance(item.value, Mapping) or not any(isinstance(each, Name) for each in item.value.values()):
            return item
        if not any(kind.__module__ == _SCHEDULERS for kind in type(self._live.objects[live]).__mro__):
            return item
        rest = Item(item.key, {name: each for name, each in item.value.items() if not isinstance(each, Name)})
        for name, child in item.children.items():
            if child.opaque is not None and child.is_unread and child.opaque.is_reference:
                self.left_out[child.key] = str(child.opaque)
            else:
                rest.child(name, child.key)
        return rest

    def _wants(self, item: Item, live: int) -> bool:
        """Whether a live object needs something that an opaque object of the file holds and that cannot be read."""
        adapter = self._live.adapters[live]
        if not item.is_unread:
            return adapter.leaf or isinstance(adapter, PackedAdapter) or adapter.has_slots(self._live.objects[live])
        below, seen = [live], {live}
        for number in below:
            if values_of(self._live.adapters[number], self._live.objects[number]):
                return True
            new = [edge.node for edge in self._live.edges[number] if edge.node not in seen]
            seen.update(new)
            below += new
        return False

    def _live_child(self, name: str, edges: Mapping[str, int], live: int | None) -> int | None:
        if live is not None and name not in edges:
            ((name, _),) = by_live_names(self._live.adapters[live], self._live.objects[live], [(name, 0)], edges)
        return edges.get(name)

    def _without_levels(self, item: Item, live: int | None, adapter: Adapter | None) -> Item:
        """The item, or the item below levels that only the file has."""
        while len(item.children) == 1:
            ((name, child),) = item.children.items()
            is_wrapper = name in WRAPPERS and child.children and self._reader.origin.dotted
            is_value = name == VALUE and adapter is not None and adapter.leaf and child.is_leaf
            if not (is_wrapper or is_value) or (live is not None and name in self._edges[live]):
                break
            if isinstance(item.value, Mapping):
                self._state_dict, self._trail = item, ()
            item, self._trail = child, (*self._trail, name)
        return item

    def _add_leaf(self, node: int, item: Item) -> None:
        value = item.value
        if item.is_unread:
            return
        if isinstance(value, Stored):
            self._drafts[node].values.append(SavedValue(VARIABLE_VALUE, "", item.key))
            if value.generator:
                self._add_values(node, {_GENERATOR: (f"{item.key}/{_GENERATOR}", _text(value.generator))})
        elif is_value(value):
            self._drafts[node].values.append(SavedValue(VARIABLE_VALUE, "", item.key))
        elif value is not None:  # PyTorch writes None for what is absent
            self._add_packed(node, item)

    def _add_named(self, node: int, item: Item, values: Sequence[Value]) -> bool:
        """Adds the tensors below an item as the values of one object. The name of a value is the path to the tensor.

        Returns:
            Whether there were any.
        """
        tensors = [(value.name, below) for value in values if (below := _below(item, value.name)) is not None]
        for name, below in tensors:
            self._drafts[node].values.append(SavedValue(escape(name), "", below.key))
        return bool(tensors)

    def _add_packed(self, node: int, item: Item) -> None:
        """Adds everything below an item as plain state."""
        values = packed(item.content, item.key, self._reader.origin.tensors)
        text = f"{item.key}/{TEXT}" if item.children or isinstance(item.value, Stored) else item.key
        self._add_values(
            node, {name: (text if name == TEXT else f"{text}/{name}", each) for name, each in values.items()}
        )

    def _add_optimizer(self, node: int, live: int, item: Item) -> None:
        optimizer = self._live.objects[live]
        takes_groups = self._live.paths[live] not in self._without_groups
        state = OptimizerState(item, optimizer, self._find, takes_groups=takes_groups)
        self.optimizers.add(node)
        for saved, parameter in state.parameters.items():
            variable = self._numbers.get(id(parameter))
            if variable is not None:
                self.slots[f"{item.key}/{STATE}/{saved}"] = (
                    f"{self._live.paths[variable]}{SLOT}{self._live.paths[live]}"
                )
        draft = self._drafts[node]
        for name, child in item.children.items():
            if name not in ("state", "param_groups"):
                draft.children[name] = self._add(child, self._edges[live].get(name))
        if state.has_groups:
            self._add_groups(node, live, state)
        elif GROUPS in item.children:
            self.ignored += [each.key for each in walked(item.children[GROUPS]) if each.is_leaf]
        for name, values in state.common().items():
            self._add_values(draft.children.setdefault(name, self._new(None)), values)
        for parameter, name, values, hints in state.slots():
            variable = self._numbers.get(id(parameter))
            slot = self._new(None)
            self._add_values(slot, values)
            self._drafts[slot].hints = encode(hints)
            if variable is not None:
                draft.slots.append(SlotReference(self._node_of(variable), name, slot))
                self.variables[self._node_of(variable)] = self._live.paths[variable]
            # Otherwise the checkpoint does not hold the parameter, and a report lists its state as unexpected.

    def _add_groups(self, node: int, live: int, state: OptimizerState) -> None:
        """Adds the hyperparameters of an optimizer."""
        groups = self._drafts[node].children["param_groups"] = self._new(self._edges[live].get("param_groups"))
        for position, settings in enumerate(state.settings(self._away)):
            group = self._drafts[groups].children[str(position)] = self._new(None)
            self.optimizers.add(group)
            for name, values in settings.items():
                setting = self._drafts[group].children[name] = self._new(None)
                self._add_values(setting, values)
        self._keep_initial_rates(live, state)
        for position, settings in enumerate(state.defaults()):
            group = self._drafts[groups].children[str(position)]
            for name, values in settings.items():
                setting = self._drafts[group].children[name] = self._new(None)
                self._add_values(setting, values)
                self.notes.update((key, _BY_DEFAULT) for key, _ in values.values())

    def _find(self, names: Sequence[str], wanted: set[int]) -> dict[str, Any]:
        """Live parameters by the names that one live module has for them, or had before they were renamed; see `optimizers.Find`."""
        renamed = ((0, paths) for paths in self._parameters(names))
        for module, paths in chain(renamed, ((module, names) for module in range(len(self._edges)))):
            parameters: dict[str, Any] = {}
            for name, path in zip(names, paths, strict=True):
                parameter = self._follow(module, path)
                if parameter is None or id(self._live.objects[parameter]) not in wanted:
                    break
                parameters[name] = self._live.objects[parameter]
            else:
                return parameters
        return {}

    def _follow(self, live: int, name: str) -> int | None:
        """The live object whose name in another one's ``state_dict()`` this is."""
        at: int | None = live
        for part in levels(name, dotted=True):
            at = None if at is None else self._live_child(part, self._edges[at], at)
        return at

    def _keep_initial_rates(self, live: int, state: OptimizerState) -> None:
        """Keeps the rates that live schedulers have noted in groups, if the file was written without schedulers."""
        groups = self._edges[live].get("param_groups")
        if groups is None:
            return
        for position, settings in enumerate(state.settings()):
            group = self._edges[groups].get(str(position))
            if group is not None and _INITIAL_RATE not in settings and _INITIAL_RATE in self._edges[group]:
                self.kept.append(self._edges[group][_INITIAL_RATE])

    def _add_values(self, node: int, values: Mapping[str, tuple[str, Array | Stored]]) -> None:
        for local, (key, value) in values.items():
            self._reader.add(key, value)
            self._drafts[node].values.append(SavedValue(escape(local), "", key))

    def _node_of(self, live: int) -> int:
        """The node of a live object. It has no values if the file has none for it."""
        known = self._of_live.get(live)
        if known is not None:
            return known
        holder, name = self._parents[live]
        parent = self._node_of(holder)
        node = self._new(live)
        self._drafts[parent].children[name] = node
        return node


def _below(item: Item, path: str) -> Item | None:
    for name in path.split("/"):
        if name not in item.children:
            return None
        item = item.children[name]
    return item if isinstance(item.value, Stored) else None


def _text(text: str) -> Array:
    array = as_value(text)
    assert array is not None, "text is a value"
    return array


def _fitting(item: Item, adapter: Adapter, obj: Any) -> tuple[str, Array] | None:
    """A plain value converted to the element type of a live object's only value, and the name of that value; None if impossible."""
    plain = item.value
    if isinstance(plain, Stored) or not (item.is_leaf or (adapter.leaf and isinstance(plain, (list, tuple)))):
        return None
    values = adapter.values(obj)
    if len(values) != 1:
        return None
    dtype = values[0].dtype
    array = as_value(plain) if dtype.is_bytes and isinstance(plain, (str, bytes)) else _number(plain, dtype)
    return None if array is None else (values[0].name, array)


def _number(plain: Any, dtype: DType) -> Array | None:
    """Numbers converted to an element type, or None if that changes them. Floats may be rounded, as variables round them."""
    if dtype.is_bytes or dtype.numpy.names or not isinstance(plain, (bool, int, float, complex, list, tuple)):
        return None
    try:
        array = np.array(plain)
        if array.dtype.kind not in "biufc" or (array.dtype.kind == "b") != (dtype.name == "bool"):
            return None
        with np.errstate(all="ignore"):
            new = array.astype(dtype.numpy)
            is_same = np.array_equal(new.astype(array.dtype), array, equal_nan=array.dtype.kind in "fc")
            is_rounded = array.dtype.kind == "f" and dtype.name == "float32" and np.isfinite(new).all()
    except (ValueError, TypeError, OverflowError):
        return None
    return new if is_same or is_rounded else None
