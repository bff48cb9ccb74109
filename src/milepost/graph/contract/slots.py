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
        """Whether a slot variable that exists can take what was saved; if not, `make_slot` puts another in its place."""
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
        """Called before `make_slot`; what it returns takes back what that does."""
        return lambda: self.drop_slot(obj, variable, name)

    def drop_slot(self, obj: Any, variable: Any, name: str) -> None:
        """Removes what `make_slot` made, because the restore that called it failed, or only looked."""

    def share_slot(self, obj: Any, variable: Any, name: str, slot: Any) -> Callable[[], object] | None:
        """Makes the slot variable of another variable this one's too, for they were one when they were saved.

        Args:
            obj: The optimizer.
            variable: The variable.
            name: The slot's name.
            slot: The other's.

        Returns:
            What undoes that, or None if it was not done.
        """
        return None
