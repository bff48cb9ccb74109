"""Where containers and modules ask, before they get a child, whether a value is deferred for it.

The object graph knows nothing of restores. `milepost.deferred` installs its own `Deferral` here when it is imported.
"""

from __future__ import annotations

from typing import Any


class Deferral:
    """What containers and modules ask about deferred values. This default defers nothing."""

    def admit(self, holder: Any, name: str | tuple[int, str], child: Any) -> Any:
        """Restores the values that are deferred for a child. Call it before the child is put in place.

        Args:
            holder: The object that is about to get the child.
            name: The name of the edge, or the identity of a variable and the name of its slot variable.
            child: The child.

        Returns:
            What is to be put in place: ``child``, or its successor if it cannot change.

        Raises:
            MismatchError: The value does not fit; the child must not be put in place.
        """
        return child

    def expects(self, holder: Any, name: str | None = None) -> bool:
        """Whether a value is deferred for a child of this name, or for any child."""
        return False

    def before_append(self, members: list[Any]) -> None:
        """Called before a list gets one more member."""


deferral = Deferral()


def defer_with(new: Deferral) -> None:
    """Installs another `Deferral`, which is asked from now on."""
    global deferral
    deferral = new
