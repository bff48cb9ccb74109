"""Giving containers of plain values the members that were saved.

A plain value needs no object that comes late, so a list or dict of them has its saved members as soon as it is restored. Those
that it lacks are added; a list gets them only if it was saved with plain values alone. A list of plain values that is longer than
the saved one is cut. A plain value where a list was saved, or the other way round, gives way to it. A `Checkpoint` gets the
attributes that it lacks.

What is added is a placeholder first, and is bound to its saved node like anything that was there. So it takes its value in the
same way as everything else, and goes away again if the restore fails.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Container, Sequence
from typing import Any, Final, NamedTuple

from milepost.engine.undo import Undo
from milepost.graph.containers import DictWrapper, ListWrapper, OrderedDictWrapper, hold_state
from milepost.graph.object_graph import Node
from milepost.graph.places import Place
from milepost.graph.plain_places import PlainLeaf, StateHolder, holds_state, is_type_name, plain_place
from milepost.graph.plain_values import PLAIN
from milepost.graph.trees import is_tuple

_CONTAINERS: Final = {"list": ListWrapper, "dict": DictWrapper, "OrderedDict": OrderedDictWrapper}
_DEEPEST: Final = 100
"""Levels of tuples in tuples; deeper ones, as of a graph that nobody wrote, are not made."""
_ABSENT: Final = object()


class _Change(NamedTuple):
    holder: Any
    name: str
    value: Any


class Growth:
    """The members that one restore gives to containers, and takes from them.

    Args:
        nodes: The saved nodes.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._changes: list[_Change] = []
        self._cuts: list[tuple[ListWrapper, int]] = []
        self._lengths: dict[int, int] = {}
        self._made: set[int] = set()

    def child(self, holder: Any, parent: int, name: str, live: Any, node: int) -> Any:
        """What a saved child is to be bound to.

        Args:
            holder: The live object.
            parent: Its saved node.
            name: The name of the edge.
            live: The child that it has under this name, or None.
            node: The saved child.

        Returns:
            ``live``, or what takes its place; None if nothing can.
        """
        python = self._nodes[node].python
        if not (is_type_name(python) or python == "tuple" or python in _CONTAINERS):
            is_none = type(live) is PlainLeaf and live.value is None
            return None if is_none else live  # something else than a plain value is to come here
        if live is not None:
            present = live.value if isinstance(live, Place) else live
            if self._fits(present, node) or not _is_plain(present):
                return live
            if isinstance(live, Place) and live.parent is None and live.holder is not None:
                holder = live.holder()
        value = self._placeholder(node, 0) if self._can_get(holder, parent, name, live) else _ABSENT
        return live if value is _ABSENT else self.attach(holder, name, value)

    def attach(self, holder: Any, name: str, value: Any) -> Any:
        """Has a value put under a name, and returns what stands for it in a match."""
        if type(holder) is ListWrapper:
            self._lengths[id(holder)] = max(self._length(holder), int(name) + 1)
        self._changes.append(_Change(holder, name, value))
        if type(value) not in PLAIN:
            self._made.add(id(value))
        return plain_place(holder, name, value) or value

    def shared(self, holder: Any, parent: int, name: str, live: Any, child: Any) -> None:
        """Has a container that was made, and saved in several places, put into one more of them."""
        if live is None and id(child) in self._made and self._can_get(holder, parent, name, None):
            self.attach(holder, name, child)

    def cut(self, holder: Any, saved: Node) -> int:
        """Has plain values taken from the end of a list of which fewer were saved.

        Returns:
            How many members remain.
        """
        if saved.python != "list" or type(holder) is not ListWrapper or not holds_state(holder):
            return len(holder) if isinstance(holder, list) else 0
        length = len(saved.children)
        if len(holder) > length and "_untracked" not in vars(holder) and _is_plain(holder[length:]):
            self._cuts.append((holder, length))
            return length
        return len(holder)

    def apply(self, undo: Undo) -> None:
        """Changes the containers.

        Args:
            undo: Gets what takes each change back.
        """
        done: list[tuple[_Change, Any]] = []
        cut: list[tuple[ListWrapper, list[Any]]] = []

        def put_back() -> None:
            for change, former in reversed(done):
                _put(change._replace(value=former))
            for holder, members in cut:
                list.extend(holder, members)

        if self._changes or self._cuts:
            undo.add(put_back)
        for holder, length in self._cuts:
            cut.append((holder, holder[length:]))
            list.__delitem__(holder, slice(length, None))
        for change in self._changes:
            done.append((change, _present(change.holder, change.name)))
            _put(change)

    def _length(self, holder: ListWrapper) -> int:
        return self._lengths.get(id(holder), len(holder))

    def _can_get(self, holder: Any, parent: int, name: str, live: Any) -> bool:
        if not holds_state(holder) or isinstance(holder, Place):
            return False
        if type(holder) is ListWrapper:
            # In a list with other objects too, the program appends, and positions must stay those that were saved.
            is_plain = self._nodes[parent].python == "list"
            return live is not None or (is_plain and name == str(self._length(holder)))
        if isinstance(holder, dict):
            return live is not None or name not in holder
        if live is not None:
            return True
        return name not in vars(holder) and inspect.getattr_static(type(holder), name, None) is None

    def _fits(self, present: Any, node: int) -> bool:
        """Whether a live value is a container of the saved kind, or a plain value where one was saved."""
        python = self._nodes[node].python
        if is_type_name(python) or type(present) in PLAIN:
            return is_type_name(python) and (type(present) in PLAIN or not _is_plain(present))
        if python != "tuple":
            return type(present) is _CONTAINERS[python]
        below = {edge.name: edge.node for edge in self._nodes[node].children}
        return (
            type(present) is tuple
            and below.keys() == {str(number) for number in range(len(present))}
            and all(self._fits(member, below[str(number)]) for number, member in enumerate(present))
        )

    def _placeholder(self, node: int, depth: int) -> Any:
        """An empty container of the saved kind, or a tuple of placeholders, or None for a plain value."""
        saved = self._nodes[node]
        if saved.python in _CONTAINERS:
            container = _CONTAINERS[saved.python]()
            hold_state(container)
            return container
        if saved.python != "tuple":
            return None if is_type_name(saved.python) else _ABSENT
        if depth == _DEEPEST:
            return _ABSENT
        below = {edge.name: edge.node for edge in saved.children}
        numbers = [below.get(str(number)) for number in range(len(below))]
        members = [_ABSENT if number is None else self._placeholder(number, depth + 1) for number in numbers]
        return _ABSENT if any(member is _ABSENT for member in members) else tuple(members)


def came_later(obj: Any, bound: Container[int]) -> bool:
    """Whether this is a plain value that a container got after a restore of it, and so is the program's own.

    Args:
        obj: A live object that took no saved node, and was not there when its container took one.
        bound: Identities of the live objects that took a node.
    """
    root = obj.root if isinstance(obj, PlainLeaf) else None
    return root is not None and root.holder is not None and id(root.holder()) in bound


def _present(holder: Any, name: str) -> Any:
    if type(holder) is ListWrapper:
        return holder[int(name)] if int(name) < len(holder) else _ABSENT
    return (holder if isinstance(holder, dict) else vars(holder)).get(name, _ABSENT)


def _put(change: _Change) -> None:
    """Puts a value under a name, or takes what is there away, without asking what waits for it."""
    holder, name, value = change
    if type(holder) is ListWrapper:
        number = int(name)
        if value is _ABSENT:
            list.__delitem__(holder, number)
        elif number == len(holder):
            list.append(holder, value)
        else:
            list.__setitem__(holder, number, value)
    elif isinstance(holder, dict):
        base = OrderedDict if isinstance(holder, OrderedDict) else dict
        if value is _ABSENT:
            base.__delitem__(holder, name)
        else:
            base.__setitem__(holder, name, value)
    elif value is _ABSENT:
        object.__delattr__(holder, name)
    else:
        object.__setattr__(holder, name, value)


def _is_plain(value: Any) -> bool:
    """Whether this is a plain value, or a container of nothing else."""
    values, seen = [value], {id(value)}
    for each in values:
        if type(each) in PLAIN:
            continue
        if isinstance(each, StateHolder) and "_untracked" in vars(each):
            return False
        if isinstance(each, dict):
            below = list(each.values())
        elif isinstance(each, list) or is_tuple(type(each)):
            below = list(each)
        else:
            return False
        values += [member for member in below if type(member) in PLAIN or id(member) not in seen]
        seen.update(map(id, below))
    return True
