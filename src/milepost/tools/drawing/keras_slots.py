"""The slot variables of Keras' optimizers since 2.11, which the object graph does not list as slot variables.

These optimizers keep their state in lists such as ``_momentums``, in files of TensorFlow and of milepost alike. No field of the graph
says which variable a member belongs to, but its own name does, because Keras makes it of the variable's name:

- Keras 3: ``adam/sequential_dense_kernel_momentum`` is the momentum of ``sequential/dense/kernel``.
- Keras 2: ``Adam/m/dense/kernel`` is the ``m`` of ``dense/kernel``.

A list counts only as a whole: each member is named so after another variable of the checkpoint, all with the same word, and nothing but
the optimizer holds them. So no plain variable is taken for a slot variable. State that Keras names otherwise, or that is only in the
list of all variables, ``_variables``, is not found.

Source: ``add_variable_from_reference`` of ``keras/src/optimizers/base_optimizer.py`` in Keras 3.15, and of
``tf_keras/src/optimizers/optimizer.py`` in tf_keras 2.21.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from milepost.graph.saved.object_graph import Node, ObjectGraph

ITERATIONS: Final = "_iterations"
"""The child that only optimizers of Keras since 2.11 have."""
OF_ALL: Final = frozenset({"_variables", "_trainable_variables"})
"""The lists of all variables of an optimizer, and of all that it trains."""
_LONGEST: Final = 1000
"""Names that are longer are not looked at, because a name is compared with every beginning of it."""


class KerasSlot(NamedTuple):
    """A slot variable that is a member of a list.

    Attributes:
        slot: The number of its node.
        variable: The node of the variable that it belongs to; None if several variables have this name.
        name: The word that its name has in addition to that of the variable, such as ``momentum``.
    """

    slot: int
    variable: int | None
    name: str


def keras_slots(graph: ObjectGraph) -> list[KerasSlot]:
    """The slot variables in lists of Keras' optimizers, each once."""
    owners = [node for _, node in graph.inner if any(edge.name == ITERATIONS for edge in node.children)]
    if not owners:
        return []
    incoming = Counter(edge.node for _, node in graph.inner for edge in node.children)
    variables = _Variables(graph)
    slots: dict[int, KerasSlot] = {}
    for owner in owners:
        references = Counter(edge.node for edge in owner.children)
        of_all = {edge.node for edge in owner.children if edge.name in OF_ALL}
        # a list that others hold too is not looked at, so that no file makes many optimizers look at one list
        lists = [
            number for number in references if references[number] == incoming[number] and not graph.nodes[number].values
        ]
        for number in lists:
            references.update(edge.node for edge in graph.nodes[number].children)
        for number in lists:
            members = [edge.node for edge in graph.nodes[number].children]
            if members and number not in of_all and all(references[member] == incoming[member] for member in members):
                slots |= {slot.slot: slot for slot in variables.slots(members)}
    return list(slots.values())


class _Variables:
    """The variables of a graph, by their own names."""

    def __init__(self, graph: ObjectGraph) -> None:
        self._nodes = graph.nodes
        self._numbers: dict[str, list[int]] = {}
        for number, node in enumerate(graph.nodes):
            if name := _own_name(node):
                self._numbers.setdefault(name, []).append(number)
        self._joined = {name.replace("/", "_"): name for name in self._numbers}

    def slots(self, members: Sequence[int]) -> Iterator[KerasSlot]:
        """The members of a list as slot variables, if all are."""
        names = [dict(self._divided(_own_name(self._nodes[member]))) for member in members]
        for word in sorted(set.intersection(*map(set, names)), key=len):
            owned = [each[word] for each in names]
            # one name alone may begin with that of a variable by chance, if that is short
            if len(set(owned)) == len(owned) and (len(owned) > 1 or "/" in owned[0]):
                for member, name in zip(members, owned, strict=True):
                    numbers = self._numbers[name]
                    yield KerasSlot(member, numbers[0] if len(numbers) == 1 else None, word)
                return

    def _divided(self, name: str) -> Iterator[tuple[str, str]]:
        """Each way to read a name as a word and the name of another variable."""
        steps = name.split("/")
        for at in range(1, len(steps)):
            if (rest := "/".join(steps[at:])) in self._numbers:
                yield steps[at - 1], rest
        last = steps[-1]
        for at, letter in enumerate(last):
            if letter == "_" and last[:at] in self._joined and at + 1 < len(last) and len(steps) > 1:
                yield last[at + 1 :], self._joined[last[:at]]


def _own_name(node: Node) -> str:
    """The name that a variable itself has; empty if it has none that is looked at."""
    name = node.values[0].full_name if len(node.values) == 1 else ""
    return name if len(name) <= _LONGEST else ""
