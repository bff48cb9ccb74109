"""Which part of the live objects a save takes: what ``only``, ``ignore`` and ``base`` of its options leave out.

The rule is that of restores (`milepost.graph.saved.selection`), applied to the graph that would be saved. So what is left out is never read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from milepost.deferred.saving import DeferredParts
from milepost.engine.digests import LiveValue
from milepost.engine.left_out import LeftOut
from milepost.engine.options import CheckpointOptions, selection_of
from milepost.engine.translation import Names, Translation
from milepost.engine.unused_names import Unmet
from milepost.errors import UnsupportedError
from milepost.graph.adapter import values_of
from milepost.graph.keys import tensor_key
from milepost.graph.live_graph import LiveGraph
from milepost.graph.saved.object_graph import Node, ObjectGraph, SavedValue
from milepost.graph.saved.selection import paths_of_optimizers, selected
from milepost.tensor import TensorSpec
from milepost.tensor.spec import format_shape

_STAND_IN: Final = (SavedValue("", "", ""),)
"""What stands for the values of a live object, which are not read yet."""


class SavedPart(NamedTuple):
    """The part of a graph that a save takes.

    Attributes:
        nodes: The nodes of the whole graph, without what is left out. Values of live objects have stand-ins.
        without: The numbers of the nodes whose values are left out.
        of_base: Those of these values that the base has.
        left_out: The record of what is left out, without digests.
    """

    nodes: Sequence[Node]
    without: frozenset[int]
    of_base: Sequence[LiveValue]
    left_out: LeftOut

    def graph_of(self, nodes: Sequence[Node]) -> list[Node]:
        """The nodes of the whole graph with their values, without the edges and slot variables that are left out."""
        graph = []
        for number, (node, chosen) in enumerate(zip(nodes, self.nodes, strict=True)):
            values = () if number in self.without else node.values
            graph.append(
                node._replace(children=chosen.children, values=values, slots=chosen.slots, python=chosen.python)
            )
        return graph


def part_of(
    live: LiveGraph, deferred: DeferredParts, python: Sequence[str], options: CheckpointOptions
) -> SavedPart | None:
    """The part that the options of a save select; None if it is everything.

    Args:
        live: The live objects.
        deferred: What is deferred for them, which the save writes again.
        python: The name of the type of each live object, as the object graph has it.
        options: The options of the save.

    Raises:
        UnsupportedError: A name in the options names nothing, or nothing is frozen that the base could have.
    """
    selection = selection_of(options)
    if selection is None:
        return None
    frozen = _frozen(live, options) if options.base is not None else []
    selection = selection.keeping(live.paths[number] for number in frozen)
    nodes = [*_live_nodes(live, deferred, python), *_deferred_nodes(live, deferred)]
    optimizers = paths_of_optimizers(live)
    chosen = selected(ObjectGraph(tuple(nodes)), selection.takes, selection.ignores, optimizers).graph.nodes
    _refuse_unnamed(selection, [*live.paths, *(node.path for node in deferred.nodes)])
    without = frozenset(number for number, node in enumerate(nodes) if node.values and not chosen[number].values)
    values = dict(pair for number in sorted(without) for pair in _values_at(number, live, deferred))
    record = LeftOut(_listed(options.only), _listed(options.ignore) or (), os.fspath(options.base or ""), values)
    return SavedPart(chosen, without, [each for number in frozen for each in _base_values(live, number)], record)


def _frozen(live: LiveGraph, options: CheckpointOptions) -> list[int]:
    """The numbers of the live objects that are frozen, so that the base has their values.

    Raises:
        UnsupportedError: There are none, or a name names nothing.
    """
    frozen = options.frozen
    with_values = [number for number in range(live.first_slot) if _has_values(live, number, live.objects[number])]
    if frozen is None:
        pairs = zip(live.adapters, live.objects, strict=True)
        identities = {
            id(child) for adapter, obj in pairs if "frozen" in adapter.overrides for child in adapter.frozen(obj)
        }
        chosen = [number for number in with_values if id(live.objects[number]) in identities]
    elif callable(frozen):
        chosen = [number for number in with_values if frozen(live.paths[number], live.objects[number])]
    else:
        named = Translation(ignore=frozen)
        chosen = [number for number in with_values if not named.takes(live.paths[number])]
        _refuse_unnamed(named, live.paths, "frozen")
    if not chosen:
        raise UnsupportedError(
            "CheckpointOptions(base=...) is to leave out what is frozen, and nothing is; nothing was saved",
            key="base",
            expected="parameters that require no gradient, variables of Keras that cannot be trained, or values that frozen=[...] names",
            found=f"{len(with_values)} objects with values, of which none is frozen",
            remedy="freeze the base, or name its values in CheckpointOptions(base=..., frozen=[...])",
        )
    return chosen


def _base_values(live: LiveGraph, number: int) -> Iterator[LiveValue]:
    adapter, obj = live.adapters[number], live.objects[number]
    for value in values_of(adapter, obj):
        yield LiveValue(tensor_key(live.paths[number], value.name), value, obj, adapter)


def _live_nodes(live: LiveGraph, deferred: DeferredParts, python: Sequence[str]) -> Iterator[Node]:
    for number, obj in enumerate(live.objects):
        children = (*live.edges[number], *deferred.edges.get(number, ()))
        slots = (*live.slots.get(number, ()), *deferred.slots.get(number, ()))
        values = _STAND_IN if _has_values(live, number, obj) else ()
        yield Node(children, values, slots, python=python[number])


def _deferred_nodes(live: LiveGraph, deferred: DeferredParts) -> Iterator[Node]:
    for number, node in enumerate(deferred.nodes, len(live.objects)):
        yield Node(tuple(node.edges), node.values, tuple(deferred.slots.get(number, ())), python=node.python)


def _has_values(live: LiveGraph, number: int, obj: Any) -> bool:
    adapter = live.adapters[number]
    if adapter.overrides.isdisjoint(("values", "values_to_save")):
        return False
    return adapter.leaf or bool(values_of(adapter, obj))


def _values_at(number: int, live: LiveGraph, deferred: DeferredParts) -> Iterator[tuple[str, str]]:
    """The key of each value of a node, with its element type and shape."""
    if number < len(live.objects):
        for value in values_of(live.adapters[number], live.objects[number]):
            yield tensor_key(live.paths[number], value.name), f"{value.dtype}[{format_shape(value.shape)}]"
        return
    for tensor in deferred.nodes[number - len(live.objects)].tensors:
        yield tensor.key, str(TensorSpec(tensor.dtype, tensor.array.shape))


def _listed(names: Names | None) -> Sequence[str] | None:
    return [names] if isinstance(names, str) else names if names is None else [*names]


def _refuse_unnamed(selection: Translation, paths: Sequence[str], argument: str = "") -> None:
    """Raises an error if a name in the options names no live object. ``argument`` is the option, if the selection calls it ``ignore``."""
    unnamed = selection.unused.of_save(paths)
    if unnamed:
        if argument:
            unnamed = [Unmet(*(text.replace("ignore", argument, 1) for text in each)) for each in unnamed]
        first, *others = unnamed
        raise UnsupportedError(
            "the options of the save do not name what they were to name; nothing was saved",
            expected="names of live objects, from the root",
            found="\n    ".join([first.problem, *map(str, others)]),
            remedy=first.remedy,
        )
