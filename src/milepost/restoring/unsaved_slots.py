"""State of optimizers that did not exist when a checkpoint was saved: a restore removes it, or warns of it.

A restore leaves state that the checkpoint lacks as it is, since it may be the program's own. Slot variables are different: an optimizer
makes them while it trains, and makes them again if they are not there. So after a restore it has those that the checkpoint has, and no
others, as after the framework's own load.

Optimizers of other frameworks make their state once, and compiled functions hold it, so that it cannot be removed. Such state stays, and a
warning names it, if the optimizer has made a step: before the first one, the state is as it was made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from milepost.graph.adapter import Adapter, adapter_of_type
from milepost.graph.contract.operation import Operation
from milepost.graph.keys import Subtrees
from milepost.graph.traversal import walk
from milepost.restoring.undo import Undo

STAYED: Final = "state that an optimizer has made since the save, and that stays"
"""The note of a report on such a value."""


class UnsavedSlot(NamedTuple):
    """A live slot variable that the checkpoint does not have, and that its optimizer can do without.

    Attributes:
        node: The saved optimizer, or the saved part of one.
        owner: The live optimizer, or the live part of one.
        variable: The variable, or None if the state is a child of the owner.
        name: The name of the slot, or of the child.
        slot: The slot variable, or the child, once it is located.
    """

    node: int
    owner: Any
    variable: Any
    name: str
    slot: Any = None


def located(unsaved: Sequence[UnsavedSlot], operation: Operation) -> Iterator[tuple[UnsavedSlot, str]]:
    """Those slot variables that a save would write, each with its path.

    The checkpoint lacks all others for another reason: their variable is not in it, or they cannot be saved.

    Args:
        unsaved: The slot variables.
        operation: The restore.
    """
    live = walk(operation)
    numbers = {id(obj): number for number, obj in enumerate(live.objects)}
    slot_numbers: dict[tuple[int, int | None, str], int] = {
        (owner, reference.variable, reference.name): reference.slot
        for owner, references in live.slots.items()
        for reference in references
    }
    for owner in {numbers.get(id(slot.owner), -1) for slot in unsaved if slot.variable is None} - {-1}:
        slot_numbers |= {(owner, None, edge.name): edge.node for edge in live.edges[owner]}
    for slot in unsaved:
        owner = numbers.get(id(slot.owner), -1)
        variable = None if slot.variable is None else numbers.get(id(slot.variable), -1)
        number = slot_numbers.get((owner, variable, slot.name))
        if number is not None:
            yield slot._replace(slot=live.objects[number]), live.paths[number]


def remove(unsaved: Sequence[UnsavedSlot], undo: Undo) -> None:
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


def stepped(adapters: Mapping[type, Adapter], objects: Iterable[Any], *, may_lack: bool) -> list[Any]:
    """The optimizers that have made a step, and that may have state which the checkpoint lacks.

    Args:
        adapters: The adapters of the objects, by their types.
        objects: The live objects of a match.
        may_lack: Whether any of them may have a child that the checkpoint lacks.
    """
    adapters_with_steps = {kind: each for kind, each in adapters.items() if "has_stepped" in each.overrides}
    pairs = [(adapters_with_steps[type(obj)], obj) for obj in objects if type(obj) in adapters_with_steps]
    return [obj for adapter, obj in pairs if (may_lack or adapter.slot_names(obj)) and adapter.has_stepped(obj)]


def state_of(optimizers: Iterable[Any], operation: Operation) -> Iterator[Any]:
    """All objects at or below some optimizers, and their slot variables.

    Args:
        optimizers: The optimizers.
        operation: The restore.
    """
    live = walk(operation)
    identities = set(map(id, optimizers))
    numbers = [number for number, obj in enumerate(live.objects) if id(obj) in identities]
    below = Subtrees(live.paths[number] for number in numbers)
    slots = {reference.slot for number in numbers for reference in live.slots.get(number, ())}
    return (obj for number, obj in enumerate(live.objects) if number in slots or live.paths[number] in below)
