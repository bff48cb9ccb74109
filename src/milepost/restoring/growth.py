"""Growth: a restore adds saved plain values and arrays that live containers lack.

Plain values need no object of the program, so they are never deferred. A list or dict has its saved plain values as soon as it is
restored:

- Missing members are added. A list gets them only if it was saved with nothing but plain values and arrays.
- A list of plain values that is longer than the saved one is shortened.
- If a list was saved and the live value is plain, or the other way round, the saved kind replaces the live one. A saved None replaces
  arrays too.
- A `Checkpoint` gets the attributes that it lacks.

Arrays follow other rules, because the program may make them again:

- A saved array under a name is deferred, as a variable is. The program may assign the array that it makes again.
- A list that is empty, or an attribute that is None, gets its saved arrays at once, with all lists, dicts and tuples in it. An array
  that the program appends to a list that already existed is a new one.
- An empty dict gets its lists of arrays, and its dicts in which all arrays are in lists. A dict with arrays under names may be a
  layer that the program makes again.
- A list that is made after the restore is built again by the program, as in TensorFlow's guide.

An added member is a placeholder at first, and is bound to its saved node like a live object. So it gets its value in the
same way as everything else, and is removed again if the restore fails.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Container, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from milepost.coding.depth import DEEPEST
from milepost.errors import UnsupportedError
from milepost.graph.containers import DictWrapper, ListWrapper, OrderedDictWrapper, append, hold_state, put, remove
from milepost.graph.contract.operation import Operation
from milepost.graph.plain.places import PLAIN_TYPES, PlainLeaf, StateHolder, holds_state, plain_place
from milepost.graph.plain.values import PLAIN, TYPE_NAMES, is_value, type_named
from milepost.graph.saved.object_graph import Node
from milepost.graph.trees.places import Place, placed
from milepost.graph.trees.structure import is_tuple, make_tuple, named_tuple_called
from milepost.restoring.saved_arrays import SavedArrays
from milepost.restoring.undo import Undo

_CONTAINERS: Final = {"list": ListWrapper, "dict": DictWrapper, "OrderedDict": OrderedDictWrapper}
_MOST_TIMES: Final = 4
_MOST_MORE: Final = 1 << 16
"""A restore makes so many placeholders for each saved object, plus these. Tuples in tuples can be in more places than a file has bytes."""
_ABSENT: Final = object()
_NONE: Final = TYPE_NAMES[type(None)]


class _Change(NamedTuple):
    holder: Any
    name: str
    value: Any


class Growth:
    """The members that one restore adds to containers, and removes from them.

    Args:
        operation: The restore.
        nodes: The saved nodes.
        types: The name of the type of each.
        arrays: The arrays among them.
        is_late: Whether the restored object was made after the restore, so that the program builds it again.

    Attributes:
        changes: The members to add.
        cuts: The lists to cut, and how many members remain.
    """

    def __init__(
        self,
        operation: Operation,
        nodes: Sequence[Node],
        types: Sequence[str],
        arrays: SavedArrays,
        *,
        is_late: bool = False,
    ) -> None:
        self._operation = operation
        self._is_late = is_late
        self._nodes = nodes
        self._types = types
        self._arrays = arrays
        self.changes: list[_Change] = []
        self.cuts: list[tuple[ListWrapper, int]] = []
        self._lengths: dict[int, int] = {}
        self._made: dict[int, Any] = {}
        self._placeholders = 0

    def child(self, holder: Any, parent: int, name: str, live: Any, node: int) -> Any:
        """The live object for a saved child.

        Args:
            holder: The live object.
            parent: Its saved node.
            name: The name of the edge.
            live: The present child of this name, or None.
            node: The saved child.

        Returns:
            ``live``, or the object that replaces it. None if there is neither.
        """
        python = self._types[node]
        is_none = type(live) is PlainLeaf and self._operation.held[live] is None
        is_array = python in self._arrays.adapters
        if is_array and live is not None and not is_none:
            return live
        if not (is_array or python in PLAIN_TYPES or python in _CONTAINERS or self._tuple_type(node) is not None):
            return None if is_none else live  # an object of another kind is expected here
        if live is not None:
            present = self._operation.held[live] if isinstance(live, Place) else live
            becomes_none = python == _NONE and is_value(present)
            if not becomes_none and (self._fits(present, node) or not _is_plain(present)):
                return live
            if isinstance(live, Place) and live.parent is None and live.holder is not None:
                holder = live.holder()
        can_get = self._can_get(holder, parent, name, live, node)
        value = self._placeholder(node, is_state=holds_state(holder)) if can_get else _ABSENT
        if value is _ABSENT:
            return None if is_none and self._arrays.below(node) else live
        return self.attach(holder, name, value)

    def attach(self, holder: Any, name: str, value: Any) -> Any:
        """Records that a value must be put under a name.

        Returns:
            The placeholder for the value in a match.
        """
        if type(holder) is ListWrapper:
            self._lengths[id(holder)] = max(self._length(holder), int(name) + 1)
        self.changes.append(_Change(holder, name, value))
        return plain_place(self._operation, holder, name, value) or placed(self._operation, holder, name, value)

    def shared(self, holder: Any, parent: int, name: str, live: Any, node: int, child: Any) -> None:
        """Records one more place for a new container or array that was saved in several places."""
        is_found = id(child) in self._made or (node in self._arrays and child is not None)
        if live is None and is_found and self._can_get(holder, parent, name, None, node):
            self.attach(holder, name, child)

    def cut(self, holder: Any, saved: Node) -> int:
        """Records that plain values must be removed from the end of a list that was saved with fewer.

        Returns:
            How many members remain.
        """
        if saved.python != "list" or type(holder) is not ListWrapper or not holds_state(holder):
            return len(holder) if isinstance(holder, list) else 0
        length = len(saved.children)
        if len(holder) > length and "_untracked" not in vars(holder) and _is_plain(holder[length:]):
            self.cuts.append((holder, length))
            return length
        return len(holder)

    def apply(self, undo: Undo) -> None:
        """Changes the containers.

        Args:
            undo: Collects the functions that undo the changes.
        """
        done: list[tuple[_Change, Any]] = []
        cut: list[tuple[ListWrapper, list[Any]]] = []

        def put_back() -> None:
            for change, former in reversed(done):
                _put(change._replace(value=former))
            for holder, members in cut:
                put(holder, slice(len(holder), None), members)

        undo.add(put_back)
        for holder, length in self.cuts:
            cut.append((holder, holder[length:]))
            remove(holder, slice(length, None))
        for change in self.changes:
            done.append((change, _present(change.holder, change.name)))
            _put(change)

    def _length(self, holder: ListWrapper) -> int:
        return self._lengths.get(id(holder), len(holder))

    def _can_get(self, holder: Any, parent: int, name: str, live: Any, node: int) -> bool:
        holds_arrays = self._arrays.below(node)
        if isinstance(holder, Place) or not (holds_state(holder) or (holds_arrays and self._is_list_or_made(holder))):
            return False
        if live is not None:
            return holds_state(holder)
        is_deferred = holds_arrays and id(holder) not in self._made
        if is_deferred and self._is_late:
            return False
        if type(holder) is ListWrapper:
            # The program appends to a list that also has other objects, so the positions must stay as they were saved.
            is_value = self._types[parent] == "list"
            return is_value and name == str(self._length(holder)) and not (is_deferred and holder)
        if isinstance(holder, dict):
            return name not in holder and not (is_deferred and (holder or not self._are_in_lists(node)))
        return not is_deferred and name not in vars(holder) and inspect.getattr_static(type(holder), name, None) is None

    def _are_in_lists(self, node: int) -> bool:
        """Whether all arrays that are reached from a saved dict or list are in lists."""
        dicts, seen = [node], {node}
        for number in dicts:
            if self._types[number] == "list":
                continue
            if self._types[number] not in _CONTAINERS:
                return False
            below = {edge.node for edge in self._nodes[number].children if self._arrays.below(edge.node)} - seen
            seen |= below
            dicts += below
        return True

    def _is_list_or_made(self, holder: Any) -> bool:
        return type(holder) is ListWrapper or id(holder) in self._made

    def _fits(self, live: Any, node: int) -> bool:
        """Whether a live value is a container of the saved kind, or a plain value where one was saved."""
        pairs = [(live, node)]
        for present, number in pairs:  # any number of levels, since there is no recursion
            python = self._types[number]
            if python in PLAIN_TYPES or type(present) in PLAIN:
                if not (python in PLAIN_TYPES and (type(present) in PLAIN or not _is_plain(present))):
                    return False
            elif python in self._arrays.adapters:
                if _is_plain(present):
                    return False
            elif python in _CONTAINERS:
                base = list if python == "list" else dict  # an ordered dict of the program takes the members of a dict
                if not (type(present) in _CONTAINERS.values() and isinstance(present, base)):
                    return False
            else:
                members = self._members(number)
                if type(present) is not self._tuple_type(number) or len(members) != len(present):
                    return False
                pairs += zip(present, members, strict=True)
        return True

    def _tuple_type(self, node: int) -> type[tuple[Any, ...]] | None:
        """The type of a saved tuple, if the program has it."""
        saved = self._nodes[node]
        if saved.python == "tuple":
            return tuple
        return named_tuple_called(saved.python, [edge.name for edge in saved.children if not edge.name.isdecimal()])

    def _members(self, node: int) -> list[int]:
        """The members of a saved list or tuple, up to the first position that is missing."""
        below = {edge.name: edge.node for edge in self._nodes[node].children}
        count = next(number for number in itertools.count() if str(number) not in below)
        return [below[str(number)] for number in range(count)]

    def _placeholder(self, node: int, depth: int = 0, *, is_state: bool, in_tree: bool = False) -> Any:
        """An empty container of the saved kind, a tuple of placeholders, an array, or None for a plain value.

        A container of arrays that never change has its members from the beginning, because it cannot get them later.
        """
        python = self._types[node]
        self._placeholders += 1
        if self._placeholders > _MOST_TIMES * len(self._nodes) + _MOST_MORE:
            raise UnsupportedError(
                "the tuples of this checkpoint are in so many places that they are not made",
                expected=f"at most {_MOST_TIMES} places for each object, and {_MOST_MORE} more",
                remedy="load the checkpoint with milepost.load(), which makes each tuple once",
            )
        if node in self._arrays:
            array = self._arrays.new(node)
            return _ABSENT if array is None else array
        if python in PLAIN_TYPES:
            kind = type_named(python)
            return kind() if in_tree and kind is not None else None
        in_tree = in_tree or self._arrays.below(node, functional=True)
        if python in _CONTAINERS and not in_tree:
            container = _CONTAINERS[python]()
            if is_state:
                hold_state(container)
            self._made[id(container)] = container
            return container
        if depth == DEEPEST:  # only a damaged graph has deeper ones
            return _ABSENT
        children = self._nodes[node].children
        below = partial(self._placeholder, depth=depth + 1, is_state=is_state, in_tree=in_tree)
        if python == "dict":
            items = {edge.name: below(edge.node) for edge in children}
            return _ABSENT if any(each is _ABSENT for each in items.values()) else items
        members = [below(each) for each in self._members(node)]
        if any(each is _ABSENT for each in members):
            return _ABSENT
        if python == "list":
            return members
        tuple_type = self._tuple_type(node)
        if tuple_type is None or len(members) != len(getattr(tuple_type, "_fields", children)):
            return _ABSENT
        return make_tuple(tuple_type, members)


def came_later(obj: Any, bound: Container[int]) -> bool:
    """Whether this is a plain value of the program's own, which a container got after it was restored.

    Args:
        obj: A live object that matches no saved node, and that did not exist when its container was restored.
        bound: Identities of the live objects that match a node.
    """
    root = obj.root if isinstance(obj, PlainLeaf) else None
    return root is not None and root.holder is not None and id(root.holder()) in bound


def _present(holder: Any, name: str) -> Any:
    if type(holder) is ListWrapper:
        return holder[int(name)] if int(name) < len(holder) else _ABSENT
    return (holder if isinstance(holder, dict) else vars(holder)).get(name, _ABSENT)


def _put(change: _Change) -> None:
    """Puts a value under a name, or removes the present one. Deferred values are not settled."""
    holder, name, value = change
    if type(holder) is ListWrapper:
        number = int(name)
        if value is _ABSENT:
            remove(holder, number)
        elif number == len(holder):
            append(holder, value)
        else:
            put(holder, number, value)
    elif isinstance(holder, (DictWrapper, OrderedDictWrapper)):
        if value is _ABSENT:
            remove(holder, name)
        else:
            put(holder, name, value)
    elif value is _ABSENT:
        object.__delattr__(holder, name)
    else:
        object.__setattr__(holder, name, value)


def _is_plain(value: Any) -> bool:
    """Whether this is a plain value, or a container of nothing else."""
    values, seen = [value], {id(value)}
    for item in values:
        if type(item) in PLAIN:
            continue
        if isinstance(item, StateHolder) and "_untracked" in vars(item):
            return False
        if isinstance(item, dict):
            below = list(item.values())
        elif isinstance(item, list) or is_tuple(type(item)):
            below = list(item)
        else:
            return False
        values += [member for member in below if id(member) not in seen]
        seen.update(map(id, below))
    return True
