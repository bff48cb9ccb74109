"""`OwnState`: the state of data that changes while it is read, as plain data that can be restored.

A class without methods for its state may count its passes in an attribute, or draw from its own generator. So the
values in the data (`milepost.callbacks.data.reachable`) are compared with those at the start of the run. The state consists
of the values that have changed, and of all random generators.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from milepost.callbacks.data.fingerprints import SCALARS, as_array, fingerprint, size_of
from milepost.callbacks.data.reachable import Held, Reachable, is_random
from milepost.errors import MilepostError, UnsupportedError, warn
from milepost.graph.adapter import adapter_of
from milepost.graph.frameworks import imported
from milepost.plain_state.decoding import from_text
from milepost.plain_state.encoding import store_inline, to_text

_LARGEST: Final = 1 << 24
"""The most bytes of data that is copied and saved. Larger data is only checked for changes."""
_REMEDY: Final = (
    "keep it in an attribute as a number, an array or a random generator; or give the data get_state() and set_state(), "
    "or state_dict() and load_state_dict()"
)


class OwnState:
    """The values in data, and their changes since this object was made.

    Args:
        data: The data, before anything was read from it.
        trusted: Whether to leave out objects that have methods for their state.
        random_only: Whether to include only random generators.

    Raises:
        UnsupportedError: The data holds an iterator, whose position cannot be saved.
    """

    def __init__(self, data: Any, trusted: bool = False, random_only: bool = False) -> None:
        self._data = data
        self._trusted = trusted
        self._random_only = random_only
        reachable = self._reachable()
        self._kept = reachable  # so that no other object gets the identity of one that is remembered
        self._initial = {path: _mark(entry) for path, entry in reachable.held.items()}
        self._copies = {path: _copied(entry) for path, entry in reachable.held.items() if _is_kept(entry)}
        self._orders = {path: list(entry.value) for path, entry in reachable.held.items() if entry.kind == "order"}
        self._warned: set[str] = set()
        for path, entry in reachable.held.items():
            if entry.kind == "opaque" and _is_iterator(entry.value) and path:
                raise UnsupportedError(
                    "this data cannot return to a saved position: it holds an iterator, which cannot be read twice",
                    key="data",
                    expected="iterators that __iter__() makes for each pass",
                    found=f"a {type(entry.value).__name__} in {path}",
                    remedy="make the iterator in __iter__(), or give the data get_state() and set_state()",
                )

    def now(self) -> dict[str, Any]:
        """The values that have changed since this object was made, and all random generators.

        Raises:
            UnsupportedError: Something has changed that cannot be saved.
        """
        reachable = self._reachable()
        state = {}
        for path, entry in reachable.held.items():
            if entry.kind == "state" and is_random(entry.value):
                state[path] = self._saved(entry)
            elif path not in self._initial or self._initial[path] != _mark(entry):
                if entry.kind == "opaque":
                    self._complain(entry)
                else:
                    state[path] = self._saved(entry)
        for path in self._initial:
            if path not in reachable.held and reachable.putter(path) is not None:
                state[path] = {"kind": "absent"}
        for path, value in reachable.outer.items():
            before = self._kept.outer.get(path, value)
            if before is not value and (type(value) not in SCALARS or before != value):
                self._warn_once(path, f"{path}, a variable outside of the data, has changed, and is not saved")
        return state

    def put(self, state: dict[str, Any]) -> None:
        """Restores the result of `now`. All other values become those of the time when this object was made."""
        self.reset(keep=state.keys())
        for path, saved in state.items():
            reachable = self._reachable()
            entry = reachable.held.get(path)
            if saved["kind"] == "absent":
                owner, _, name = path.rpartition(".")
                if entry is not None and hasattr(reachable.owners.get(owner), "__dict__"):
                    delattr(reachable.owners[owner], name)
            elif saved["kind"] == "order":
                if entry is not None:
                    entry.value[:] = [self._orders[path][number] for number in saved["value"]]
            elif saved["kind"] == "state" and entry is not None and entry.kind == "state":
                _set_state(entry.value, saved["value"])
            else:
                value = _made(saved)
                if entry is not None and _is_taken(entry.value, value):
                    continue
                put = reachable.putter(path) if entry is None else entry.put
                if put is not None:
                    put(value)

    def reset(self, keep: Any = ()) -> None:
        """Undoes all changes, except at the paths ``keep``.

        Raises:
            UnsupportedError: A changed value is too large for a copy to have been kept.
        """
        for path, entry in self._reachable().held.items():
            if path in keep or entry.kind == "opaque":
                continue
            if path not in self._initial:
                owner, _, name = path.rpartition(".")
                owners = self._reachable().owners
                if entry.kind == "plain" and owner in owners and not isinstance(owners[owner], (list, tuple, type)):
                    _delete(owners[owner], name)
            elif _mark(entry) == self._initial[path]:
                continue
            elif path in self._orders:
                entry.value[:] = self._orders[path]
            elif path in self._copies:
                before = self._copies[path]
                if entry.kind == "state":
                    _set_state(entry.value, before)
                elif not _is_taken(entry.value, before) and entry.put is not None:
                    entry.put(_copy(before))
            else:
                raise _cannot_be_saved(entry, "reading changes it, and it is too large to be saved")
        for path, before in self._copies.items():
            if path not in keep and path not in (reachable := self._reachable()).held:
                put = reachable.putter(path)
                if put is not None and self._initial[path][0] == "plain":
                    put(_copy(before))

    def _reachable(self) -> Reachable:
        reachable = Reachable(self._data, self._trusted)
        if self._random_only:
            reachable.outer = {}
            reachable.held = {path: entry for path, entry in reachable.held.items() if is_random(entry.value)}
        return reachable

    def _saved(self, entry: Held) -> dict[str, Any]:
        if entry.kind == "order":
            numbers = {id(each): number for number, each in enumerate(self._orders.get(entry.path, ()))}
            if len(numbers) != len(entry.value) or not all(id(each) in numbers for each in entry.value):
                raise _cannot_be_saved(entry, "objects were added to it or removed from it while it was read")
            return {"kind": "order", "value": [numbers[id(each)] for each in entry.value]}
        if entry.kind == "state":
            return {"kind": "state", "type": type(entry.value).__name__, "value": _state(entry.value)}
        if size_of(entry.value) > _LARGEST:
            raise _cannot_be_saved(entry, "reading changes it, and it is too large to be saved")
        try:
            text = to_text(entry.value, "data", store_inline)
        except MilepostError as error:
            raise _cannot_be_saved(entry, "reading changes it, and it is not plain data") from error
        return {"kind": "plain", "value": from_text(text, {})}

    def _complain(self, entry: Held) -> None:
        if _is_iterator(entry.value):
            raise _cannot_be_saved(entry, "it is made while the data is read, and an iterator cannot be read twice")
        self._warn_once(
            entry.path, f"reading the data sets {entry.path} to a {type(entry.value).__name__}, which is not saved"
        )

    def _warn_once(self, path: str, problem: str) -> None:
        if path not in self._warned:
            self._warned.add(path)
            warn(f"{problem}: if batches depend on it, a resumed run reads other batches; in that case, {_REMEDY}")


def _mark(entry: Held) -> tuple[Any, ...]:
    if entry.kind == "plain":
        return "plain", fingerprint(entry.value)
    if entry.kind == "order":
        return "order", tuple(map(id, entry.value))
    if entry.kind == "state":
        return "state", to_text(_state(entry.value), "data", store_inline)
    return "opaque", id(entry.value)


def _is_kept(entry: Held) -> bool:
    return entry.kind == "state" or (entry.kind == "plain" and size_of(entry.value) <= _LARGEST)


def _copied(entry: Held) -> Any:
    return _state(entry.value) if entry.kind == "state" else _copy(entry.value)


def _copy(value: Any) -> Any:
    return copy.deepcopy(value)


def _delete(owner: Any, name: str) -> None:
    if isinstance(owner, dict):
        owner.pop(name, None)
    elif name in getattr(owner, "__dict__", ()):
        delattr(owner, name)


def _state(value: Any) -> Any:
    adapter = adapter_of(value)
    assert adapter is not None, "Reachable asked"
    return {each.name: np.array(each.read()) for each in adapter.values_to_save(value)}


def _set_state(value: Any, state: Any) -> None:
    adapter = adapter_of(value)
    assert adapter is not None, "Reachable asked"
    adapter.assign(value, {name: array.copy() for name, array in state.items()})


def _made(saved: dict[str, Any]) -> Any:
    """Makes a value at a path that has none."""
    if saved["kind"] != "state":
        return saved["value"]
    import random

    generator: Any
    if saved["type"] == "Generator" and "py_state" in saved["value"]:
        name = from_text(saved["value"]["py_state"].item(), saved["value"])["bit_generator"]
        generator = np.random.Generator(getattr(np.random, name)())
    elif saved["type"] == "Generator" and imported("torch") is not None:
        generator = sys.modules["torch"].Generator()
    elif saved["type"] == "RandomState":
        generator = np.random.RandomState()
    elif saved["type"] == "Random":
        generator = random.Random()
    else:
        raise UnsupportedError(
            "the data no longer has an object whose state was saved",
            key="data",
            expected=f"a {saved['type']}",
            found="nothing",
            remedy="make it in __init__()",
        )
    _set_state(generator, saved["value"])
    return generator


def _is_taken(present: Any, value: Any) -> bool:
    """Copies a value into the present one, which other objects may hold too. Returns whether it fits."""
    array, saved = as_array(present), as_array(value)
    if array is not None and saved is not None:
        if type(present) is not type(value) or array.shape != saved.shape or array.dtype != saved.dtype:
            return False
        if not array.flags.writeable or not np.shares_memory(array, as_array(present)):
            return False
        array[...] = saved
        return True
    if type(present) is type(value) and isinstance(present, list):
        present[:] = copy.deepcopy(value)
        return True
    if type(present) is type(value) and isinstance(present, (dict, set)):
        present.clear()
        present.update(copy.deepcopy(value))
        return True
    return False


def _is_iterator(value: Any) -> bool:
    return isinstance(value, Iterator) and not hasattr(value, "fileno")


def _cannot_be_saved(entry: Held, reason: str) -> UnsupportedError:
    return UnsupportedError(
        f"this data cannot return to a saved position: {reason}",
        key="data",
        expected="plain data and random generators in all attributes that reading changes",
        found=f"a {type(entry.value).__name__} in {entry.path or 'the data itself'}",
        remedy=_REMEDY,
    )
