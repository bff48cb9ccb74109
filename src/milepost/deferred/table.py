"""The table of deferred values: saved values of objects that do not exist yet.

A saved node may have more children than its live object. For each edge to such a child, the table has a *position*, under
the live object and the name of the edge. The positions of the edge settle the object that becomes that child, the newest restore first,
before it is used: `admit` has them do so when one of milepost's own containers gets the child, and `take` when a scan has found it.

A position is superseded when a newer restore defers or matches the same child of the same object. A superseded position
restores nothing. It stays in the table as long as the status of the older restore may report its values.

Positions are stored outside of the objects, by identity, so they take no part when objects are pickled, copied or
compared. They are removed with the object that lacks the child.
"""

from __future__ import annotations

import time
from _thread import get_ident
from collections.abc import Collection, Mapping
from typing import Any, Final, Protocol

from milepost.deferred.own_values import Taken, is_own, warn_of_more, warn_of_own
from milepost.errors import InProgressError
from milepost.facts import ListedFact
from milepost.forks import ForkableLock
from milepost.graph import attach
from milepost.graph.adapter import adapter_of
from milepost.graph.contract.operation import Operation
from milepost.graph.plain.places import PlainNode, holds_state, plain_place
from milepost.graph.trees.places import Place, Tree, TreeNode, is_final, nodes_of_former_tree, placed
from milepost.graph.trees.structure import is_functional
from milepost.tensor import TensorSpec
from milepost.threads import WAIT


class Position(Protocol):
    """A saved node without a live object."""

    @property
    def uid(self) -> int:
        """The number of the restore. Later restores have higher numbers, and win."""
        ...

    @property
    def variable(self) -> Any:
        """The variable, if a slot variable is deferred."""
        ...

    @property
    def file(self) -> str:
        """The checkpoint."""
        ...

    @property
    def key(self) -> str:
        """The key of the deferred value, or of the first of several."""
        ...

    @property
    def was_passed(self) -> bool:
        """Whether the program has saved since the restore."""
        ...

    @property
    def is_late(self) -> bool:
        """Whether its holder was made after the restore."""
        ...

    @property
    def siblings(self) -> int:
        """How many children the saved holder has."""
        ...

    @property
    def superseded(self) -> bool:
        """Whether a newer restore supersedes it."""
        ...

    def supersede(self) -> bool:
        """Marks the position as superseded by a newer restore.

        Returns:
            Whether `settle` must still be called when the object is made.
        """
        ...

    def peek(self) -> Any:
        """The deferred value as an array, if there is only one; otherwise None."""
        ...

    def specs(self) -> Mapping[str, TensorSpec]:
        """Element type and shape of each value that is deferred for this object itself, by local name."""
        ...

    def is_settled(self) -> bool:
        """Whether live objects have taken this saved node and all nodes below it."""
        ...

    def settle(self, operation: Operation, name: Any, child: Any) -> Any:
        """Restores ``child``, which gets the edge ``name``, and everything below it from this saved node.

        Args:
            operation: The operation. It knows the value of the child if that is a place.
            name: The name of the edge.
            child: The object.

        Returns:
            The object to hold: ``child``, or its successor if it cannot change.

        Raises:
            MismatchError: The value does not fit. Nothing was changed.
        """
        ...

    def unsettle(self) -> None:
        """Takes back `settle`, because nothing holds the child."""
        ...


SlotKey = tuple[int, str]
"""The key of a slot variable that is deferred on its optimizer: the identity of its variable, and the slot name."""

ANY: Final = None
"""The key of a position for every new child of any name. It stays in the table after a child has come."""

_Edges = dict[Any, list[Position]]
_entries: Final[ListedFact[_Edges]] = ListedFact()
_lock: Final = ForkableLock()
_claims: Final[dict[int, int]] = {}
"""The threads that restore from positions now, by the identity of the position."""
_PAUSE: Final = 0.002
"""Seconds between two looks whether the other thread has ended."""


def defer(holder: Any, name: str | SlotKey | None, position: Position) -> int:
    """Defers a position until ``holder`` gets a child called ``name``. Those of older restores stay until they are superseded.

    Returns:
        How many positions the edge has now; 0 if that is impossible, because the object allows no weak reference (as plain lists
        and dicts do not), or can never get a child.
    """
    if type(holder) is PlainNode or (type(holder) in (Tree, TreeNode) and is_final(holder)):
        return 0
    try:  # not by `with`, which takes longer, and this is done for each value
        try:
            _lock.acquire()
            edges = _entries.get(holder)
            if edges is None:
                edges = _entries[holder] = {}
            positions = edges.setdefault(name, [])
            positions.append(position)
            return len(positions)
        except TypeError:  # of the weak reference
            return 0
        finally:
            if _lock.is_owned():
                _lock.release()
    finally:  # Ctrl-C may have come before the line above
        if _lock.is_owned():
            _lock.release()


def _not_superseded(positions: list[Position], uid: int) -> list[Position]:
    return [position for position in positions if position.uid >= uid or position.supersede()]


def supersede(holder: Any, names: Collection[str | SlotKey | None], uid: int) -> None:
    """Supersedes positions, because a newer restore has matched or deferred these children of an object.

    Args:
        holder: The object.
        names: The names of the edges, and the keys of slot variables.
        uid: The number of the newer restore.
    """
    edges = deferred_on(holder)
    with _lock:
        for name in [name for name in edges if name in names]:
            edges[name] = _not_superseded(edges[name], uid)
        _tidy(holder, edges)


def stop_waiting(uid: int, *, superseded_only: bool = False) -> None:
    """Removes all positions of a restore, or only those that are superseded."""
    with _lock:
        for holder, edges in _entries.items():
            mine = [name for name, positions in edges.items() if any(position.uid == uid for position in positions)]
            for name in mine:
                edges[name] = [
                    position
                    for position in edges[name]
                    if position.uid != uid or (superseded_only and not position.superseded)
                ]
            if mine:
                _tidy(holder, edges)


def withdraw(positions: Collection[Position]) -> None:
    """Removes positions, because the restore that made them failed."""
    dropped = {id(position) for position in positions}
    with _lock:
        for holder, edges in _entries.items() if dropped else ():
            for name, present in edges.items():
                edges[name] = [position for position in present if id(position) not in dropped]
            _tidy(holder, edges)


def _tidy(holder: Any, edges: _Edges) -> None:
    for name in [name for name, positions in edges.items() if not positions]:
        edges.pop(name, None)
    if not edges and _entries.get(holder) is edges:
        _entries.pop(holder)


def is_anything_deferred() -> bool:
    """Whether anything is deferred at all. It seldom is."""
    return bool(_entries)


def deferred_on(holder: Any) -> _Edges:
    """The positions that are deferred on an object, by edge name. The caller must not change them."""
    edges = _entries.get(holder)
    return {} if edges is None else edges


def admit(holder: Any, name: str | SlotKey, child: Any) -> Any:
    """Restores the deferred values of an object before it becomes the child ``name`` of ``holder``.

    A new object of the program's own keeps its values (`milepost.deferred.own_values`).

    Args:
        holder: The object that will hold the child.
        name: Name of the new edge, or the `SlotKey` of a new slot variable.
        child: The object that will become the child. One that is not trackable is returned unchanged.

    Returns:
        The object to hold: ``child``, or its successor if it cannot change.

    Raises:
        MismatchError: A deferred value does not fit. It stays deferred, and the holder must not hold the child.
    """
    if not _entries:
        return child
    edges = _entries.get(holder)
    positions = None if edges is None else edges.get(name)  # once, since another thread may take it
    if edges is not None and positions is not None and _keeps_own(holder, name, child, edges, positions):
        return child
    try:
        if type(name) is str and not isinstance(child, Place):
            if is_functional(child):
                return _admit_tree(holder, name, child)
            if holds_state(holder):
                return _admit_plain(holder, name, child)
        return take(Operation(child), holder, name, child)
    except BaseException as error:
        if not isinstance(error, Exception):  # Ctrl-C: nothing will hold the child, which may have its values already
            _defer_again(holder, name, positions or ())
        raise


def _defer_again(holder: Any, name: str | SlotKey, positions: Collection[Position]) -> None:
    with _lock:
        edges = _entries.get(holder)
        if edges is None and positions:
            edges = _entries[holder] = {}
        for position in positions:
            assert edges is not None
            _claims.pop(id(position), None)
            position.unsettle()
            if position not in edges.setdefault(name, []):
                edges[name].append(position)


def _keeps_own(holder: Any, name: str | SlotKey, child: Any, edges: _Edges, saved: list[Position]) -> bool:
    """Whether a child keeps its own value. If so, the positions for it are removed."""
    if not is_own(holder, child, saved):
        return False
    in_list = isinstance(holder, list)
    deferred = [positions[-1] for key, positions in edges.items() if type(key) is str and (key == name or in_list)]
    warn_of_own(deferred, in_list=in_list)
    withdraw([each for key, positions in edges.items() if key == name or in_list for each in positions])
    return True


def take(operation: Operation, holder: Any, name: str | SlotKey, child: Any) -> Any:
    """Restores the deferred values of an object, even if it is the program's own. Result and errors are those of `admit`.

    Args:
        operation: The operation. It knows the value of the child if that is a place.
        holder: The object that holds the child, or will hold it.
        name: Name of the edge, or the `SlotKey` of a slot variable.
        child: The child as `milepost.graph.traversal.live_children` returns it. It is a place if it has no identity.
    """
    edges = _entries.get(holder)
    if edges is None:
        return child
    positions = [*edges.get(name, ()), *edges.get(ANY, ())]
    if len(positions) > 1:
        positions.sort(key=lambda each: -each.uid)
    adapter = adapter_of(child) if positions else None
    if adapter is None:
        return child
    taken = None
    if isinstance(holder, list) and adapter.leaf and name in edges:
        newest = positions[0]
        taken = Taken(newest.file, newest.key, newest.siblings)
    thread = get_ident()
    for position in positions:
        try:
            if _claims.setdefault(id(position), thread) != thread:
                _wait_for(position)
            child = position.settle(operation, name, child)
        finally:
            if _claims.get(id(position)) == thread:
                del _claims[id(position)]
    edges.pop(name, None)
    if not edges:
        with _lock:
            _tidy(holder, edges)
    if taken is not None and hasattr(holder, "__dict__"):
        holder.__dict__.setdefault("_taken", []).append(taken)
    return child


def _wait_for(position: Position) -> None:
    """Waits for another thread that restores from a position, and then claims it for this one.

    Raises:
        InProgressError: It does not end.
    """
    thread = get_ident()
    deadline = time.monotonic() + WAIT
    while _claims.setdefault(id(position), thread) != thread:
        if time.monotonic() >= deadline:
            raise InProgressError(
                f"another thread has been restoring this value for {WAIT:g} seconds",
                key=position.key,
                file=position.file,
                remedy="look what holds the other thread up",
            )
        time.sleep(_PAUSE)


def _admit_tree(holder: Any, name: str, tree: Any) -> Any:
    """Restores the deferred values of a tree of values that never change, or of the larger tree that it replaces.

    Returns:
        The tree to hold.
    """
    edges, former = deferred_on(holder), nodes_of_former_tree(holder, name)
    if not (name in edges or ANY in edges or any(deferred_on(node) for node in former)):
        return tree
    operation = Operation(tree)
    operation.coming = place = placed(operation, holder, name, tree)
    take(operation, holder, name, place)
    below, positions = [place], []
    for node in below:
        if type(node) is TreeNode:
            deferred = deferred_on(node)
            for edge, child in node.children(operation.held):
                if edge in deferred and holds_state(holder):
                    positions += deferred[edge]
                elif edge in deferred:
                    take(operation, node, edge, child)
                below.append(child)
    positions = [each for each in positions if not (each.superseded or each.is_settled())]
    if positions:
        warn_of_own(positions, in_list=False)
        withdraw(positions)
    return operation.held[place] if isinstance(place, Place) else tree


def _admit_plain(holder: Any, name: str, child: Any) -> Any:
    """Restores the deferred value of a plain value, or of another object that a holder of state will hold."""
    edges = deferred_on(holder)
    if name not in edges and ANY not in edges:
        return child
    operation = Operation(child)
    operation.coming = place = plain_place(operation, holder, name, child)
    if place is None:
        return take(operation, holder, name, child)
    if child is not None:
        take(operation, holder, name, place)
    return operation.held[place]


def forget_settled(holder: Any) -> None:
    """Removes positions whose values have arrived under other names."""
    edges = deferred_on(holder)
    with _lock:
        for name, positions in edges.items():
            edges[name] = [position for position in positions if not position.is_settled()]
        _tidy(holder, edges)


class _DeferredTable(attach.Deferral):
    """The answers to objects that will get a child, from the table."""

    admit = staticmethod(admit)

    def keeps_own(self, holder: Any, name: str, child: Any) -> bool:
        edges = deferred_on(holder)
        return name in edges and _keeps_own(holder, name, child, edges, edges[name])

    def expects(self, holder: Any, name: str | None = None) -> bool:
        edges = deferred_on(holder)
        return bool(edges) if name is None else name in edges

    def before_append(self, members: list[Any]) -> None:
        taken: list[Taken] | None = members.__dict__.get("_taken")
        if taken is not None and len(members) >= taken[-1].siblings:
            warn_of_more(members.__dict__.pop("_taken"))


attach.defer_with(_DeferredTable())
