"""Saves a tree of values without an object that holds it.

Dicts with text as keys, lists, tuples, numbers and text become nodes of the object graph, under readable keys. A value
that paths cannot name, such as a dict with numbers as keys or a set, is saved as plain state
(`milepost.plain_state.encoding`), as one node.
"""

from __future__ import annotations

import io
import os
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any, Final

import numpy as np

from milepost.checkpoint.checkpoint import Checkpoint, set_root
from milepost.checkpoint.tracing import as_written
from milepost.coding.depth import DEEPEST
from milepost.engine.options import CheckpointOptions, takes_options
from milepost.errors import UntrackableError
from milepost.graph.adapter import adapter_of, values_of
from milepost.graph.containers import DictWrapper, ListWrapper, OrderedDictWrapper, hold_state, view_of
from milepost.graph.keys import VARIABLE_VALUE
from milepost.graph.plain.values import PLAIN
from milepost.graph.trees.structure import is_tuple, make_tuple
from milepost.plain_state.part import PlainPart
from milepost.storage.paths import check_order

PathLike = str | os.PathLike[str]
ATTRIBUTES: Final = "__dict__"
"""The name under which the attributes of an `OrderedDict` are saved, such as the versions in the state of a module of PyTorch."""
SINGLE: Final = ".value"
"""The name of a tree that is not a dict or list."""
_PACKED: Final = (set, frozenset, deque, Counter, defaultdict, bytearray, io.BytesIO)
_DICTS: Final = (dict, OrderedDict, DictWrapper, OrderedDictWrapper)


@as_written
@takes_options("save")
def save(path: PathLike, tree: Any, options: CheckpointOptions | None = None) -> str:
    """Saves a tree of values under exactly this path, durably and atomically. `load` makes it again.

    Args:
        path: The path of the files, without extension. An existing checkpoint is replaced atomically.
        tree: Dicts, lists, tuples, named tuples, sets, numbers, text, bytes, None, and arrays of NumPy, PyTorch, JAX and TensorFlow, nested
            as you like. Objects that a `Checkpoint` tracks may be in it too; `load` returns dicts of their values. Values that
            are in several places are saved once.
        options: How to save. This function waits until an asynchronous save is durable.

    Returns:
        ``path`` as a string.

    Raises:
        UntrackableError: Something in the tree cannot be saved, or the tree holds itself. The error has the path.
        UnsupportedError: An element type cannot be stored.
        CoordinationError: One of several processes failed, did not answer, or holds another tree. No process has saved
            anything.
        StorageError: The files cannot be written. Existing files are unchanged.

    Example:
        >>> import milepost, numpy as np, tempfile
        >>> path = milepost.save(tempfile.mkdtemp() + "/state", {"step": 7, "sizes": [3, 4], "weights": np.ones(2)})
        >>> milepost.load(path)
        {'step': 7, 'sizes': [3, 4], 'weights': array([1., 1.])}
    """
    check_order(path, tree, "milepost.save(path, tree)")
    checkpoint = checkpoint_of_tree(tree)
    written = checkpoint.write(path, options)
    checkpoint.sync()
    return written


def checkpoint_of_tree(tree: Any) -> Checkpoint:
    """A checkpoint that saves a tree of values. Errors are those of `save` for a tree."""
    prepared = _Preparation().prepared(tree, "", 0)
    if not isinstance(prepared, (dict, list)) or (isinstance(prepared, dict) and prepared.keys() == {SINGLE}):
        prepared = view_of({SINGLE: prepared})
    hold_state(prepared)
    checkpoint = Checkpoint()
    set_root(checkpoint, prepared)
    return checkpoint


def is_one_part(value: Any) -> bool:
    """Whether a container is saved with everything below it as one part of a tree, because its members have no names of edges.

    Example:
        >>> is_one_part({0: "by number"}), is_one_part({"name": "by name"}), is_one_part([]), is_one_part({1, 2})
        (True, False, False, True)
    """
    kind = type(value)
    if kind not in _DICTS:
        return kind in _PACKED
    # The keys of an index do not begin with NUL.
    return any(type(name) is not str or name[:1] == "\0" for name in value) or ATTRIBUTES in value


class _Preparation:
    """Replaces what a checkpoint cannot hold as it is."""

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}
        self._open: set[int] = set()
        self._kept: list[Any] = []  # so that no identity is used again

    def prepared(self, value: Any, path: str, depth: int) -> Any:
        kind = type(value)
        if kind in PLAIN:
            return value
        if id(value) in self._made:
            return self._made[id(value)]
        if id(value) in self._open or depth > DEEPEST:
            raise UntrackableError(
                "a tree that holds itself cannot be saved"
                if id(value) in self._open
                else "a tree of so many levels cannot be saved",
                key=path,
                expected=f"at most {DEEPEST} levels",
                remedy="save a tree in which no list or dict is below itself",
            )
        self._open.add(id(value))
        made = self._made[id(value)] = self._by_kind(kind, value, path, depth + 1)
        self._open.discard(id(value))
        self._kept.append(value)
        return made

    def _by_kind(self, kind: type, value: Any, path: str, depth: int) -> Any:
        if is_one_part(value):
            return PlainPart(value)
        if kind in _DICTS:
            members = {name: self.prepared(each, f"{path}/{name}".lstrip("/"), depth) for name, each in value.items()}
            if not isinstance(value, OrderedDict):
                return view_of(members)
            attributes = vars(value) if kind is OrderedDict else {}
            return view_of(OrderedDict(members, **({ATTRIBUTES: PlainPart(dict(attributes))} if attributes else {})))
        if kind is list or kind is ListWrapper:
            return view_of(
                [self.prepared(each, f"{path}/{number}".lstrip("/"), depth) for number, each in enumerate(value)]
            )
        if is_tuple(kind):
            return make_tuple(
                kind, [self.prepared(each, f"{path}/{number}".lstrip("/"), depth) for number, each in enumerate(value)]
            )
        adapter = adapter_of(value)
        if adapter is None and _is_of_tensorflow(value):
            return np.asarray(value.numpy())
        if adapter is None:
            raise UntrackableError(
                "this value cannot be saved in a tree",
                key=path,
                expected="numbers, text, bytes, None, arrays, and dicts, lists, tuples and sets of them",
                found=f"{value!r:.80} of type {kind.__module__}.{kind.__qualname__}",
                remedy="leave it out, or save its parts",
            )
        if not (adapter.functional and adapter.leaf):
            return value
        values = values_of(adapter, value)
        if len(values) != 1 or values[0].name != VARIABLE_VALUE:
            return PlainPart(value)  # a key of random numbers, which is more than an array
        return np.asarray(values[0].read())


def _is_of_tensorflow(value: Any) -> bool:
    """Whether this is a tensor of TensorFlow that has elements."""
    tensorflow: Any = sys.modules.get("tensorflow")
    return tensorflow is not None and isinstance(value, tensorflow.Tensor) and hasattr(value, "numpy")
