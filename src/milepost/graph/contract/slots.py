"""Slot variables: the state that an optimizer keeps for each variable that it trains."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from milepost.tensor import TensorSpec


class Slots:
    """The slot variables of an optimizer, each of which belongs to it and to one variable.

    A slot variable is saved if both its owner and its variable are. An adapter of optimizers overrides `has_slots`,
    `slot_names` and `slot`. If slot variables can be made before the optimizer's first step, it overrides `make_slot` and
    `drop_slot` too. Otherwise it overrides `DeferredChildren.on_deferred`.
    """

    slots_are_children: bool = False
    """Set if slot variables may also be reached by ordinary edges."""

    def has_slots(self, obj: Any) -> bool:
        """Whether this object is an optimizer, which means that it may make slot variables."""
        return False

    def slot_names(self, obj: Any) -> Sequence[str]:
        """Names of the slot variables that this optimizer has made, or may make."""
        return ()

    def slot(self, obj: Any, variable: Any, name: str) -> Any:
        """The slot variable ``name`` that this optimizer made for ``variable``, or None. A call must not make the slot
        variable.

        Args:
            obj: The optimizer.
            variable: Any leaf of the checkpoint. It may be of another framework, or impossible to hash.
            name: The name of the slot.
        """
        return None

    def slot_fits(self, obj: Any, variable: Any, name: str, saved: Mapping[str, TensorSpec]) -> bool:
        """Whether an existing slot variable can take the saved values. If not, `make_slot` replaces it.

        An adapter overrides it if slot variables have another shape or element type than their variable, so that the saved
        ones may differ from the existing ones. Arguments are those of `make_slot`.
        """
        return True

    def make_slot(self, obj: Any, variable: Any, name: str, saved: Mapping[str, TensorSpec]) -> Any:
        """Makes the slot variable now, or returns None if the optimizer will make it itself later.

        Args:
            obj: The optimizer.
            variable: The variable.
            name: The slot's name.
            saved: Element type and shape of each value that is deferred for the slot, by local name.
        """
        return None

    def before_make_slot(self, obj: Any, variable: Any, name: str) -> Callable[[], object]:
        """Called before `make_slot`. Returns a function that undoes `make_slot`.

        An adapter that overrides `slot_fits` or `removable_slots` overrides it too, because the function must put back the slot
        variable that was replaced or removed.
        """
        return lambda: self.drop_slot(obj, variable, name)

    def has_stepped(self, obj: Any) -> bool:
        """Whether this optimizer has made a step, so that its state is no longer as it was made.

        An adapter overrides it if optimizers cannot do without state that they have made, so that `removable_slots` does not list it. A
        restore then leaves state that the checkpoint does not have as it is, and a warning names it if the optimizer has made a step.
        """
        return False

    def drop_slot(self, obj: Any, variable: Any, name: str) -> None:
        """Removes a slot variable: one that `make_slot` made, because the restore failed or was a dry run, or one of
        `removable_slots` that was not saved.
        """

    def removable_slots(self, obj: Any, saved: Collection[str]) -> Iterable[tuple[Any, str]]:
        """Variable and name of each slot variable that this optimizer has now and could do without, because it makes it again.

        A restore of the optimizer removes those of them that the checkpoint does not have, as the framework's own load does. For
        each, it calls `before_make_slot` and `drop_slot` when all values are restored. Slot variables that are not listed stay, as do
        those that the arguments of the restore leave alone.

        State that belongs to no variable is a child of the optimizer, or of an object that stands for a part of it, whose adapter may
        override this method too. It is listed with None as the variable, and the name of the child.

        It is called before slot variables are made for saved values.

        Args:
            obj: The optimizer, or a part of it.
            saved: Names of the saved children.
        """
        return ()

    def share_slot(self, obj: Any, variable: Any, name: str, slot: Any) -> Callable[[], object] | None:
        """Uses the slot variable of another variable for this variable too, because one was saved for both.

        An adapter overrides it if two variables of the framework may have one slot variable.

        Args:
            obj: The optimizer.
            variable: The variable.
            name: The slot's name.
            slot: The slot variable of the other variable.

        Returns:
            A function that undoes it, or None if this optimizer does not train ``variable``.
        """
        return None
