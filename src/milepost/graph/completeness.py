"""Finds state that a checkpoint of live objects would leave out.

An adapter may be unable to save an object, and a framework's own account of an object may have more than the checkpoint.
Every function here returns the omissions at or below one path. The walk (`milepost.graph.traversal`) calls them.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Final, NamedTuple

from milepost.errors import MilepostError
from milepost.graph.adapter import Adapter, adapter_of_type
from milepost.graph.containers import ListWrapper, find_trackable
from milepost.graph.keys import child_path
from milepost.graph.live_graph import LiveGraph
from milepost.graph.omissions import Accounted, Omission, Omitted, Unnamed
from milepost.graph.plain.places import Unsaveable
from milepost.graph.plain.values import PLAIN, is_value
from milepost.graph.remedies import cannot_be_read, remedy_for, remedy_for_state
from milepost.graph.trees.structure import holds_no_data, is_container, is_empty_tree, is_tuple

SETTINGS: Final = frozenset({int, float, complex, bool, str, bytes, type(None), type, type(lambda: None)})
"""Types of module attributes that are settings by TensorFlow's guide. They are never saved, and hold no objects."""
_STATELESS: Final = (type, FunctionType, BuiltinFunctionType, MethodType, ModuleType)
"""Types of values that a checkpoint may hold and does not save."""
_MOST_SEARCHED: Final = 1_000
_UNNAMED: Final = "a dict holds it under a key that is not a string, which no path can name"
_STORABLE: Final = "replace it by numbers, text or arrays, or keep it out of the tree"
_PARTIAL: Final = "make it a jax.tree_util.Partial, whose arguments are saved"
_ADD_MODEL: Final = "add the model that it trains to the checkpoint"


class Untaken(NamedTuple):
    """A value without an adapter.

    Attributes:
        value: The value.
        path: Its path.
        is_state: Whether a `Checkpoint` holds it as state, so that it is not a setting.
        in_tree: Whether it is a leaf of a tree of arrays.
        searched: Whether its attributes are searched, although it is not a container.
    """

    value: Any
    path: str
    is_state: bool
    in_tree: bool
    searched: bool


def omission_of(untaken: Untaken, known: Container[int]) -> Iterator[Omitted]:
    """The omissions of a value that no adapter handles.

    Args:
        untaken: The value.
        known: Identities of all objects that the checkpoint holds.
    """
    value, path, is_state, in_tree, searched = untaken
    if type(value) is Unnamed:
        if id(value.value) not in known:
            yield Omitted(path, type(value.value).__name__, _UNNAMED, value.remedy)
        return
    if type(value) is Unsaveable:
        value, is_state = value.value, True
    adapter = adapter_of_type(type(value))
    kind = type(value).__name__
    omission = adapter.omission(value) if adapter is not None else None
    if omission is not None and omission.parts and all(id(part) in known for part in omission.parts):
        return
    if is_state and (omission is None or omission.doubtful):
        if isinstance(value, _STATELESS) or is_empty_tree(value):
            return
        omission = Omission(
            f"an object of type {kind} in a checkpoint is state, but cannot be written to a file",
            remedy_for_state(value),
        )
    elif adapter is None or is_tuple(type(value)):
        trackable = find_trackable(value, within_objects=searched, known=known if searched else ())
        if trackable is not None:
            reason = f"an object of type {kind} is not tracked, but holds one of type {type(trackable).__name__}"
            omission = Omission(reason, doubtful=not in_tree)
        elif in_tree and isinstance(value, partial):
            trackable = find_trackable((value.args, value.keywords))
            if trackable is not None:
                reason = f"the {type(trackable).__name__} that a partial holds, which is a leaf of a tree"
                omission = Omission(reason, _PARTIAL, doubtful=True)
        elif adapter is None and in_tree and not holds_no_data(value):
            omission = Omission(f"a leaf of a tree is an object of type {kind}, which cannot be stored", _STORABLE)
    if omission is not None:
        has_adapter = adapter is not None and not is_tuple(type(value))
        general = remedy_for_state(value) if is_state else remedy_for(value, has_adapter=has_adapter)
        yield Omitted(path, kind, omission.reason, omission.remedy or general, omission.doubtful)


def lost_settings(obj: Any, path: str) -> Iterator[Omitted]:
    """Plain values that a module does not save, although the program may use them as state.

    These are attributes that were tracked objects before, and plain values next to arrays in members of a list, as in a
    replay memory.

    Args:
        obj: An object whose plain values are settings.
        path: The path of the object.
    """
    now_numbers = getattr(type(obj), "_now_numbers", None)
    if now_numbers is not None:
        for name in now_numbers(obj):
            child = child_path(path, name, is_root=path == "")
            reason = f"this attribute was a tracked object and is now a number, which an object of type {type(obj).__name__} does not save"
            remedy = "assign the number to the former object, for example with assign(), or hold the number in the Checkpoint itself"
            yield Omitted(child, type(vars(obj)[name]).__name__, reason, remedy, doubtful=True)
    for number, member in enumerate(obj[:_MOST_SEARCHED] if type(obj) is ListWrapper else ()):
        if is_container(type(member)) or isinstance(member, (list, dict)):
            below = list(member.values()) if isinstance(member, dict) else list(member)
            if is_value(member) and any(type(each) in PLAIN and each is not None for each in below):
                kind = type(member).__name__
                reason = f"the numbers and text next to arrays in an object of type {kind}: in the list of a Module they are settings"
                remedy = "hold the list in the Checkpoint itself, which saves them"
                yield Omitted(child_path(path, str(number), is_root=path == ""), kind, reason, remedy, doubtful=True)
                return


def without_variables(optimizer: Any, path: str) -> Omitted:
    """The omission of an optimizer if none of its variables is in the checkpoint."""
    kind = type(optimizer).__name__
    reason = f"the state that this {kind} has for each variable: none of these variables is in the checkpoint"
    return Omitted(path, kind, reason, _ADD_MODEL, doubtful=True)


def left_out_of_accounts(graph: LiveGraph, ids: Mapping[int, int], *, slots: bool) -> list[Omitted]:
    """The state that frameworks would save of the objects and that the graph does not hold.

    Args:
        graph: The live objects, and the omissions found so far.
        ids: The numbers of the objects by identity.
        slots: Whether the graph has slot variables.
    """
    left_out = _LeftOut({omitted.path for omitted in graph.omissions if not omitted.doubtful})
    covered: set[int] = set()
    for number, adapter in enumerate(graph.adapters[: graph.first_slot]):
        if number in covered or "account" not in adapter.overrides:
            continue
        obj = graph.objects[number]
        below: dict[int, dict[str, int]] = {}
        slots_in_graph = {(reference.variable, reference.name) for reference in graph.slots.get(number, ())}
        for steps, value, variable, remedy, anywhere in _account(adapter, obj, graph.paths[number]):
            if variable is not None:
                if slots and (ids.get(id(variable), -1), steps[0]) not in slots_in_graph:
                    left_out.add(_slot(graph, number, ids.get(id(variable)), steps[0], remedy))
                continue
            node, path = number, graph.paths[number]
            if anywhere and id(value) in ids:
                continue
            for step in steps:
                names = below.get(node)
                if names is None:
                    names = below[node] = dict(graph.edges[node])
                if step not in names or anywhere:
                    break
                node = names[step]
                covered.add(node)
            else:
                continue
            for step in steps:
                path = child_path(path, step, is_root=path == "")
            kind = type(value).__name__
            reason = (
                f"{type(obj).__name__} lists this {kind} in its own account of its state, and the checkpoint lacks it"
            )
            left_out.add(Omitted(path, kind, reason, remedy))
    return left_out.found


class _LeftOut:
    """Collects omissions: one for each path, and none below an object that is left out as a whole."""

    def __init__(self, known: Collection[str]) -> None:
        self._known = set(known)
        self.found: list[Omitted] = []

    def add(self, omitted: Omitted) -> None:
        path = omitted.path
        above = (path[:end] for end, letter in enumerate(path) if letter == "/")
        if path not in self._known and self._known.isdisjoint(above):
            self._known.add(path)
            self.found.append(omitted)


def _account(adapter: Adapter, obj: Any, path: str) -> list[Accounted]:
    try:
        return list(adapter.account(obj))
    except MilepostError as error:
        raise error.with_context(key=path) from error.__cause__
    except Exception as error:
        raise cannot_be_read(obj, error, adapter).with_context(key=path) from error


def _slot(graph: LiveGraph, owner: int, variable: int | None, name: str, remedy: str) -> Omitted:
    kind = type(graph.objects[owner]).__name__
    if variable is not None:
        reason = f"the state {name!r} that this {kind} has for {graph.paths[variable]}"
    else:
        reason = f"the state that this {kind} has for parameters that are not in the checkpoint"
        remedy = remedy or _ADD_MODEL
    return Omitted(graph.paths[owner], kind, reason, remedy)
