"""Containers and modules ask here whether a value is deferred for a new child.

The object graph does not know restores. `milepost.deferred` installs its own `Deferral` here when it is imported.
"""

from __future__ import annotations

from typing import Any


class Deferral:
    """The questions of containers and modules about deferred values. In this default, nothing is deferred."""

    def admit(self, holder: Any, name: str | tuple[int, str], child: Any) -> Any:
        """Restores the values that are deferred for a child. Call it before the holder holds the child.

        Args:
            holder: The object that is about to get the child.
            name: The name of the edge, or the identity of a variable and the name of its slot variable.
            child: The child.

        Returns:
            The object to hold: ``child``, or its successor if it cannot change.

        Raises:
            MismatchError: The value does not fit. The holder must not hold the child.
        """
        return child

    def expects(self, holder: Any, name: str | None = None) -> bool:
        """Whether a value is deferred for a child of this name, or for any child."""
        return False

    def keeps_own(self, holder: Any, name: str, child: Any) -> bool:
        """Whether a child that the holder has got already keeps its own value. If so, what is deferred for it is given up."""
        return True

    def before_append(self, members: list[Any]) -> None:
        """Called before a list gets one more member."""


deferral = Deferral()


def defer_with(new: Deferral) -> None:
    """Installs another `Deferral`, which is asked from now on."""
    global deferral
    deferral = new
