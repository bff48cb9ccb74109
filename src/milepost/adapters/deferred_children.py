"""What an adapter calls when an object has made a child, so that the child gets the value that is deferred for it.

A call is cheap where nothing is deferred, so a hook may stay in place for ever.
"""

from __future__ import annotations

from typing import Any

from milepost.deferred.rescan import look_again
from milepost.deferred.table import admit
from milepost.graph import attach


def restore_child(holder: Any, name: str, child: Any) -> Any:
    """Gives a child the value that is deferred for it; to be called before the child is put in place.

    Args:
        holder: The object that is about to hold the child.
        name: The name that `Adapter.children` will have for the child.
        child: The child. If nothing is deferred for it, or no adapter knows it, nothing happens.

    Returns:
        What the holder is to hold: ``child``, or its successor if it cannot change.

    Raises:
        MismatchError: The value does not fit. It stays deferred, and the child must not be put in place.
        CorruptCheckpointError: The value is damaged.
        StorageError: It cannot be read.
        RefusedError: The child, or its framework, failed on the value.

    Example:
        >>> import milepost
        >>> path = milepost.Checkpoint(net=milepost.Module()).write("late/ckpt")
        >>> restore_child(milepost.Module(), "kernel", "nothing is deferred for this")
        'nothing is deferred for this'
    """
    return admit(holder, name, child)


def restore_slot(owner: Any, variable: Any, name: str, slot: Any) -> Any:
    """Gives a slot variable the value that is deferred for it; to be called before the optimizer uses it.

    Args:
        owner: The optimizer.
        variable: The variable that the slot variable belongs to.
        name: The slot's name.
        slot: The slot variable.

    Returns:
        What the optimizer is to hold: ``slot``, or its successor if it cannot change.

    Raises:
        MismatchError: The value does not fit. It stays deferred.
        CorruptCheckpointError: The value is damaged.
        StorageError: It cannot be read.
        RefusedError: The slot variable, or its framework, failed on the value.

    Example:
        >>> import milepost
        >>> w, moment = milepost.Variable([1.0]), milepost.Variable([0.0])
        >>> restore_slot(milepost.SlotOwner(), w, "moment", moment) is moment
        True
    """
    return admit(owner, (id(variable), name), slot)


def restore_children(holder: Any) -> list[str]:
    """Gives all children and slot variables that an object has by now the values that are deferred for them.

    It fits a hook that the framework calls after an object has made its children, and before it uses them.

    Args:
        holder: The object.

    Returns:
        The names of the children that got something, also by something below them.

    Raises:
        MismatchError: A value does not fit. It stays deferred.
        CorruptCheckpointError: A value is damaged.
        StorageError: One cannot be read.
        RefusedError: A child, or its framework, failed on its value.

    Example:
        >>> import milepost
        >>> restore_children(milepost.Module())
        []
    """
    return look_again(holder)


def is_deferred(holder: Any, name: str | None = None) -> bool:
    """Whether a value is deferred for a child of an object. A hook that costs something may go when none is.

    Args:
        holder: The object.
        name: The name of the child; any child or slot variable, if it is left out.

    Example:
        >>> import milepost
        >>> path = milepost.Checkpoint(net=milepost.Module(), w=milepost.Variable(1.0)).write("late/ckpt")
        >>> later = milepost.Checkpoint()
        >>> status = later.read(path)
        >>> is_deferred(later, "w")
        True
        >>> later.w = milepost.Variable(0.0)
        >>> is_deferred(later)
        False
    """
    return attach.deferral.expects(holder, name)
