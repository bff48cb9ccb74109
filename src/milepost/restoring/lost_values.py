"""Refuses checkpoints of runs that lost values when TensorFlow restored a Keras 3 model in part.

If a Keras 3 model is not built when TensorFlow restores it, TensorFlow assigns saved values to variables that Keras makes in a
trace and throws away. The model and the optimizer then start from their initial values, but the counters continue. The
optimizer holds both the lost variables and those of the model. It saves ``_trainable_variables`` with members that no
layer has, and lists such as ``_momentums`` with two members of the same name. Observed with TensorFlow 2.21 and Keras
3.15.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from milepost.bundle import BundleReader
from milepost.errors import MismatchError
from milepost.graph.adapter import adapter_during
from milepost.graph.contract.operation import Operation
from milepost.graph.saved.edges import by_live_names
from milepost.graph.saved.object_graph import ObjectGraph
from milepost.graph.traversal import live_children

_TRAINED: Final = "_trainable_variables"
_FLAT: Final = "_variables"


class _Lost(NamedTuple):
    """A variable that belongs to no layer, and its name, which is also that of a layer's variable."""

    optimizer: int
    key: str
    name: str


def refuse_lost_values(reader: BundleReader, graph: ObjectGraph, operation: Operation) -> None:
    """Raises an error if such a checkpoint is restored into an optimizer.

    Args:
        reader: The open checkpoint.
        graph: Its object graph.
        operation: The restore.

    Raises:
        MismatchError: The live root has the optimizer, which cannot continue with these values.
    """
    # a list or dict of values is no optimizer, and may have very many edges
    objects = [(number, node) for number, node in graph.inner if not node.python]
    owners = [number for number, node in objects for name, _ in node.children if name == _TRAINED]
    for lost in _lost(graph, owners) if owners else ():
        if _is_live(graph, lost.optimizer, operation):
            raise MismatchError(
                "the run that saved this checkpoint had lost values: TensorFlow restored its Keras 3 model before the model was "
                "built, so the model and the optimizer started from their initial values, and the optimizer kept variables that "
                "belong to no layer; nothing was changed",
                key=lost.key,
                file=reader.prefix,
                expected="one state for each variable of the model",
                found=f"two for one variable, both named {lost.name!r}",
                remedy="restore the last checkpoint that was saved before the run was resumed with TensorFlow; to continue "
                "with the weights of this checkpoint, which were trained from their initial values, leave the optimizer out of the "
                "restore",
            )


def _lost(graph: ObjectGraph, owners: Sequence[int]) -> Iterator[_Lost]:
    nodes = graph.nodes
    parents: dict[int, int] = {}
    for _, node in graph.inner:
        for edge in node.children:
            parents[edge.node] = parents.get(edge.node, 0) + 1
    for owner in owners:
        lists = {edge.name: [each.node for each in nodes[edge.node].children] for edge in nodes[owner].children}
        trained = lists.pop(_TRAINED)
        lists.pop(_FLAT, None)
        are_held = [parents[number] > 1 for number in trained]
        for members in lists.values():
            if len(members) != len(trained) or all(are_held) or not any(are_held):
                continue
            names = [nodes[number].values[0].full_name if nodes[number].values else "" for number in members]
            of_layers = {name for name, is_held in zip(names, are_held, strict=True) if is_held and name}
            for number, name, is_held in zip(trained, names, are_held, strict=True):
                if not is_held and name in of_layers and nodes[number].values:
                    yield _Lost(owner, nodes[number].values[0].key, name)


def _is_live(graph: ObjectGraph, node: int, operation: Operation) -> bool:
    """Whether live objects have the edges that lead to a saved node."""
    objects: dict[int, Any] = {0: operation.root}
    reached = [0]
    for number in reached:
        adapter = adapter_during(operation, objects[number])
        if adapter is None or adapter.leaf:
            continue
        children = dict(live_children(operation, adapter, objects[number]))
        children.update(operation.attached if number == 0 else ())
        for name, child in by_live_names(adapter, objects[number], graph.nodes[number].children, children):
            if child not in objects and name in children:
                objects[child] = children[name]
                reached.append(child)
    return node in objects
