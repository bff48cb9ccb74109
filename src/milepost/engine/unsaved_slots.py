"""Slot variables that did not exist when a checkpoint was saved: a restore of their optimizer removes them.

A restore leaves state that the checkpoint lacks as it is, since it may be the program's own. Slot variables are different: an optimizer
makes them while it trains, and makes them again if they are not there. So after a restore it has those that the checkpoint has, and no
others, as after the framework's own load.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from milepost.engine.undo import Undo
from milepost.graph.adapter import adapter_of_type
from milepost.graph.contract.operation import Operation
from milepost.graph.traversal import walk


class Unsaved(NamedTuple):
    """A live slot variable that the checkpoint does not have, and that its optimizer can do without.

    Attributes:
        node: The saved optimizer.
        owner: The live optimizer.
        variable: The variable, or None if the state is a child of the optimizer.
        name: The name of the slot, or of the child.
        slot: The slot variable, or the child, once it is located.
    """

    node: int
    owner: Any
    variable: Any
    name: str
    slot: Any = None


def located(unsaved: Sequence[Unsaved], operation: Operation) -> Iterator[tuple[Unsaved, str]]:
    """Those slot variables that a save would write, each with its path.

    The checkpoint lacks all others for another reason: their variable is not in it, or they cannot be saved.

    Args:
        unsaved: The slot variables.
        operation: The restore.
    """
    live = walk(operation)
    numbers = {id(obj): number for number, obj in enumerate(live.objects)}
    places: dict[tuple[int, int | None, str], int] = {
        (owner, reference.variable, reference.name): reference.slot
        for owner, references in live.slots.items()
        for reference in references
    }
    places |= {(owner, None, edge.name): edge.node for owner in live.slots for edge in live.edges[owner]}
    for each in unsaved:
        owner = numbers.get(id(each.owner), -1)
        variable = None if each.variable is None else numbers.get(id(each.variable), -1)
        number = places.get((owner, variable, each.name))
        if number is not None:
            yield each._replace(slot=live.objects[number]), live.paths[number]


def remove(unsaved: Sequence[Unsaved], undo: Undo) -> None:
    """Removes slot variables, the last ones first, so that they come back in their order if that is undone.

    Args:
        unsaved: The slot variables.
        undo: Gets the functions that put them back.
    """
    for _, owner, variable, name, _ in reversed(unsaved):
        adapter = adapter_of_type(type(owner))
        assert adapter is not None, "an optimizer has an adapter"
        put_back: Callable[[], object] = adapter.before_make_slot(owner, variable, name)
        undo.add(put_back)
        adapter.drop_slot(owner, variable, name)
