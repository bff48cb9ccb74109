"""What the hooks of an adapter call when an object has made a child, to restore the value that is deferred for it.

A call costs little if nothing is deferred, so a hook may stay installed.
"""

from __future__ import annotations

from typing import Any

from milepost.deferred.rescan import look_again
from milepost.deferred.table import admit
from milepost.graph import attach


def restore_child(holder: Any, name: str, child: Any) -> Any:
    """Restores the value that is deferred for a child. Call it before the holder holds the child.

    Args:
        holder: The object that is about to hold the child.
        name: The name under which `Adapter.children` will list the child.
        child: The child. Nothing happens if nothing is deferred for it, or if it has no adapter.

    Returns:
        What the holder is to hold: ``child``, or its successor if it cannot change.

    Raises:
        MismatchError: The value does not fit. It stays deferred, and the holder must not hold the child.
        CorruptCheckpointError: The value is damaged.
        StorageError: The value cannot be read.
        RefusedError: The child, or its framework, raised an error for the value.

    Example:
        >>> import milepost
        >>> path = milepost.Checkpoint(net=milepost.Module()).write("late/ckpt")
        >>> restore_child(milepost.Module(), "kernel", "nothing is deferred for this")
        'nothing is deferred for this'
    """
    return admit(holder, name, child)


def restore_slot(owner: Any, variable: Any, name: str, slot: Any) -> Any:
    """Restores the value that is deferred for a slot variable. Call it before the optimizer uses the slot variable.

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
        StorageError: The value cannot be read.
        RefusedError: The slot variable, or its framework, raised an error for the value.

    Example:
        >>> import milepost
        >>> w, moment = milepost.Variable([1.0]), milepost.Variable([0.0])
        >>> restore_slot(milepost.SlotOwner(), w, "moment", moment) is moment
        True
    """
    return admit(owner, (id(variable), name), slot)


def restore_children(holder: Any) -> list[str]:
    """Restores the values that are deferred for the children and slot variables that an object has now.

    Call it in a hook that the framework runs after an object has made its children, and before it uses them.

    Args:
        holder: The object.

    Returns:
        The names of the children that were restored, or below which something was.

    Raises:
        MismatchError: A value does not fit. It stays deferred.
        CorruptCheckpointError: A value is damaged.
        StorageError: A value cannot be read.
        RefusedError: A child, or its framework, raised an error for a value.

    Example:
        >>> import milepost
        >>> restore_children(milepost.Module())
        []
    """
    return look_again(holder)


def is_deferred(holder: Any, name: str | None = None) -> bool:
    """Whether a value is deferred for a child of an object. An expensive hook can be removed when none is.

    Args:
        holder: The object.
        name: The name of the child; by default any child or slot variable counts.

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
