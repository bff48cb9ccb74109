"""Slot variables: what an optimizer keeps for each variable that it trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from milepost.tensor import TensorSpec


class Slots:
    """The slot variables of an optimizer, each of which belongs to it and to one variable.

    A slot variable is saved if both its owner and its variable are. An adapter of optimizers overrides `has_slots`,
    `slot_names` and `slot`. If slot variables can be made before the optimizer's first step, it overrides `make_slot` and
    `drop_slot` too. Otherwise it overrides `DeferredChildren.on_deferred`.
    """

    slots_are_children: bool = False
    """Set where slot variables may be reached by ordinary edges too."""

    def has_slots(self, obj: Any) -> bool:
        """Whether this object is an optimizer, that is, may make slot variables."""
        return False

    def slot_names(self, obj: Any) -> Sequence[str]:
        """Names of the slot variables that this optimizer has made, or may make."""
        return ()

    def slot(self, obj: Any, variable: Any, name: str) -> Any:
        """The slot variable ``name`` that this optimizer made for ``variable``, or None. Asking must not make it.

        Args:
            obj: The optimizer.
            variable: Any leaf of the checkpoint, also one of another framework, or one that cannot be hashed.
            name: The slot's name.
        """
        return None

    def slot_fits(self, obj: Any, variable: Any, name: str, saved: Mapping[str, TensorSpec]) -> bool:
        """Whether an existing slot variable can take the saved values; if not, `make_slot` replaces it.

        An adapter overrides it if slot variables have another shape or element type than their variable, so that those of an
        earlier run may differ from those that are there. Arguments are those of `make_slot`.
        """
        return True

    def make_slot(self, obj: Any, variable: Any, name: str, saved: Mapping[str, TensorSpec]) -> Any:
        """Makes that slot variable now, or returns None if the optimizer will make it by itself later.

        Args:
            obj: The optimizer.
            variable: The variable.
            name: The slot's name.
            saved: Element type and shape of each value that is deferred for the slot, by local name.
        """
        return None

    def before_make_slot(self, obj: Any, variable: Any, name: str) -> Callable[[], object]:
        """Called before `make_slot`. Returns a function that undoes what that does.

        An adapter that overrides `slot_fits` overrides it too, because the slot variable that was replaced must come back.
        """
        return lambda: self.drop_slot(obj, variable, name)

    def drop_slot(self, obj: Any, variable: Any, name: str) -> None:
        """Removes what `make_slot` made, because the restore that called it failed, or only looked."""

    def share_slot(self, obj: Any, variable: Any, name: str, slot: Any) -> Callable[[], object] | None:
        """Makes the slot variable of another variable the one of this variable too, because one was saved for both.

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
