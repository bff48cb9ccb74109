"""Errors that an ``except`` clause for TensorFlow's errors catches too.

TensorFlow is not imported for it. Once a program has imported it, each error that has a counterpart in ``tf.errors`` is
raised as an object of a subclass of both.
"""

from __future__ import annotations

import errno
import functools
import sys
from typing import Any, Final

_COUNTERPARTS: Final = {
    "CheckpointNotFoundError": "NotFoundError",
    "KeyNotFoundError": "NotFoundError",
    "CorruptCheckpointError": "DataLossError",
    "CheckpointExistsError": "AlreadyExistsError",
    "UnsupportedError": "UnimplementedError",
}
_OF_STORAGE: Final = "StorageError"
_BY_ERRNO: Final = {
    errno.ENOENT: "NotFoundError",
    errno.EACCES: "PermissionDeniedError",
    errno.EPERM: "PermissionDeniedError",
    errno.EROFS: "PermissionDeniedError",
    errno.EEXIST: "AlreadyExistsError",
    errno.ENOSPC: "ResourceExhaustedError",
    errno.EDQUOT: "ResourceExhaustedError",
    errno.EMFILE: "ResourceExhaustedError",
    errno.ENOTDIR: "FailedPreconditionError",
    errno.EISDIR: "FailedPreconditionError",
}


def tensorflow_kind(kind: type, code: int | None = None) -> type:
    """The class to make an error of.

    Args:
        kind: A class of `milepost.errors`.
        code: The operating system's error number, of a ``StorageError``.

    Returns:
        ``kind``; or, if TensorFlow is imported and has such an error, a subclass of both.

    Example:
        >>> tensorflow_kind(ValueError) is ValueError
        True
    """
    errors: Any = getattr(sys.modules.get("tensorflow"), "errors", None)
    if errors is None or hasattr(kind, "error_code"):
        return kind
    names = {base.__name__ for base in kind.__mro__ if base.__module__ == "milepost.errors"}
    if _OF_STORAGE in names:
        name = _BY_ERRNO.get(code or 0, "UnknownError")
    else:
        name = next((_COUNTERPARTS[each] for each in names if each in _COUNTERPARTS), "")
    counterpart = getattr(errors, name, None) if name else None
    return kind if counterpart is None else _joined(kind, counterpart)


@functools.cache
def _joined(kind: type, counterpart: Any) -> type:
    code = counterpart(None, None, "").error_code
    members = {
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
        "_plain": kind,
        "message": property(str),
        "error_code": code,
        "op": None,
        "node_def": None,
        "experimental_payloads": property(lambda self: {}),
    }
    return type(kind.__name__, (kind, counterpart), members)


def made_again(error: Any) -> tuple[Any, ...]:
    """Pickles and copies an error without TensorFlow's base class. The new error gets this base class if TensorFlow is
    imported."""
    kind = getattr(type(error), "_plain", type(error))
    return _make, (kind, error.args, getattr(error, "errno", None), vars(error))


def _make(kind: type, arguments: tuple[Any, ...], code: int | None, facts: dict[str, Any]) -> Any:
    error = kind(*arguments) if code is None else kind(*arguments, errno=code)
    vars(error).update(facts)
    return error
