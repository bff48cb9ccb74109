"""Names that the children of a `Checkpoint` cannot have."""

from __future__ import annotations

import inspect
from typing import Any, Final

from milepost.errors import UntrackableError
from milepost.graph.module import NOW_NUMBERS, UNTRACKED

_SETTABLE: Final = ("save_counter", "state_dict", "load_state_dict")
"""Names of attributes of a `Checkpoint` that a child may still have. Files of Lightning have the model under
``state_dict``."""
PRIVATE: Final = "_checkpoint_state"
"""The attribute that holds the state of a checkpoint itself, which is not saved."""
_RESERVED: Final = (PRIVATE, UNTRACKED, NOW_NUMBERS)


def check_name(kind: type, name: str) -> None:
    """Raises an error for the name of a child that would hide a method.

    Args:
        kind: The class of the checkpoint.
        name: Name of the child.

    Raises:
        UntrackableError: The name is one of the checkpoint's own state, or the class has a method or a read-only property of this name.
    """
    if name in _RESERVED:
        raise UntrackableError(
            "this name is reserved for the state of the checkpoint itself",
            key=name,
            expected="another name",
            remedy=f"use another name, such as {kind.__name__}({name.strip('_')}=...)",
        )
    present: Any = inspect.getattr_static(kind, name, None)
    hides = isinstance(present, (staticmethod, classmethod)) or inspect.isroutine(present)
    if name not in _SETTABLE and (hides or (isinstance(present, property) and present.fset is None)):
        raise UntrackableError(
            f"{kind.__name__} has a {'method' if hides else 'property'} of this name",
            key=name,
            expected="a name that is not taken",
            remedy=f"use another name, such as {kind.__name__}({name}_=...), or put it in a milepost.Module",
        )
