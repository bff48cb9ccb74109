"""Objects that say what state they are in: iterators over data, loaders, schedulers, random generators, of any library.

An object is one of these if its class has ``state_dict`` and ``load_state_dict``, or ``get_state`` and ``set_state``, and
no other adapter knows it; beside that, Python's and NumPy's generators. Nothing is imported to find out. What an object
says is saved as `milepost.plain_state.encoding` writes it.

Objects are asked for their state to save it, and before a restore that could fail after it. Else they are left in peace:
a loader that is asked starts its workers.
"""

from __future__ import annotations

import json
import random
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from milepost.adapters.loaders import keep_randomness, must_match_workers, remedy_for_loader, with_generator
from milepost.errors import MilepostError, MismatchError, UnsupportedError, UntrackableError
from milepost.graph.adapter import Adapter, Array, Value, register
from milepost.plain_state.encoding import TEXT, pack, unpack
from milepost.tensor import DType
from milepost.tensor.dtype import STRING

_PAIRS: Final = (("state_dict", "load_state_dict"), ("get_state", "set_state"))
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")


class PackedAdapter(Adapter):
    """An adapter of objects whose state is plain data: text with what is to be read, and the arrays that are in it."""

    open_ended = True
    turn = 1

    def state(self, obj: Any) -> Any:
        """The state that an object is in, as plain data. May raise whatever it likes."""
        raise NotImplementedError

    def load(self, obj: Any, state: Any) -> None:
        """Puts an object into a state. May raise whatever it likes."""
        raise NotImplementedError

    def name(self, obj: Any) -> str:
        """What to call an object in errors, with its article."""
        return f"a {type(obj).__module__}.{type(obj).__qualname__}"

    def remedy(self, obj: Any) -> str:
        """What to do where an object cannot say what state it is in."""
        return "save when it can, or wrap it in NoDependency"

    def values(self, obj: Any) -> Sequence[Value]:
        return (Value(TEXT, STRING, (), lambda: pack(self.state(obj))[TEXT]),)

    def values_to_save(self, obj: Any) -> Sequence[Value]:
        try:
            state = self.state(obj)
        except MilepostError:
            raise
        except Exception as error:
            raise UntrackableError(
                "an object cannot say what state it is in",
                expected=f"a state from {self.name(obj)}",
                found=f"{type(error).__name__}: {error}",
                remedy=self.remedy(obj),
            ) from error
        try:
            arrays = pack(state)
        except UnsupportedError as error:
            where = f", at {error.key!r} in the state of {self.name(obj)}" if error.key else f", from {self.name(obj)}"
            error.key, error.found = None, f"{error.found}{where}"
            raise
        return [Value(name, DType.of(array), array.shape, array) for name, array in arrays.items()]

    def before_assign(self, obj: Any) -> Callable[[], object]:
        try:
            before = unpack({name: array.copy() for name, array in pack(self.state(obj)).items()})
        except Exception:
            return lambda: None  # it has no state yet to go back to
        return lambda: self.load(obj, before)

    def assign(self, obj: Any, arrays: Mapping[str, Array]) -> Any:
        if TEXT not in arrays:
            raise MismatchError(
                "what was saved here is not the state of such an object; nothing was changed",
                expected=f"the state of {self.name(obj)}",
                found=f"values named {', '.join(sorted(arrays))}",
                remedy="restore into an object of the kind that was saved",
            )
        state = unpack(arrays)
        try:
            self.load(obj, state)
        except MilepostError:
            raise
        except Exception as error:
            raise MismatchError(
                "an object refuses its saved state; nothing was changed",
                expected=f"a state that fits {self.name(obj)}",
                found=f"{type(error).__name__}: {error}",
                remedy="make it as it was made when it was saved: same data, same settings, same number of workers",
            ) from error
        return obj


class StatefulAdapter(PackedAdapter):
    """Any object with ``state_dict`` and ``load_state_dict``, or ``get_state`` and ``set_state``."""

    def handles(self, kind: type) -> bool:
        return _methods(kind) is not None

    def state(self, obj: Any) -> Any:
        kept = _kept_for_next(obj)
        return with_generator(obj, getattr(obj, _get_name(obj))()) if kept is None else kept

    def remedy(self, obj: Any) -> str:
        return remedy_for_loader(obj) or super().remedy(obj)

    def load(self, obj: Any, state: Any) -> None:
        methods = _methods(type(obj))
        assert methods is not None, "only objects that have them are handled"
        must_match_workers(obj, state)
        getattr(obj, methods[1])(_without_old_addresses(obj, state))
        attributes = getattr(obj, "__dict__", {})
        if _STARTING in attributes:
            _loaded[obj] = (state, attributes.get("_state_dict"))
            # It takes a state of its own epoch only, and passes over any other without a word.
            if isinstance(state, dict) and "epoch" in state and state["epoch"] != obj.epoch:
                obj.set_epoch(state["epoch"])
        keep_randomness(obj)

    def before_assign(self, obj: Any) -> Callable[[], object]:
        attributes = getattr(obj, "__dict__", {})
        if not any(name in attributes for name in (*_NEXT, _STARTING)):
            return super().before_assign(obj)
        # These only note the state for the next iterator, and asking them would start one.
        before = dict(attributes)
        epoch = obj.epoch if _STARTING in attributes else None

        def undo() -> None:
            attributes.clear()
            attributes.update(before)
            if epoch is not None:
                obj.set_epoch(epoch)

        return undo


class PythonGeneratorAdapter(PackedAdapter):
    """`random.Random`."""

    def handles(self, kind: type) -> bool:
        return issubclass(kind, random.Random) and not issubclass(kind, random.SystemRandom)

    def state(self, obj: random.Random) -> Any:
        return python_state(obj)

    def load(self, obj: random.Random, state: Any) -> None:
        set_python_state(obj, state)


class NumPyGeneratorAdapter(PackedAdapter):
    """`numpy.random.Generator`, and the bit generators below it."""

    def handles(self, kind: type) -> bool:
        return issubclass(kind, (np.random.Generator, np.random.BitGenerator))

    def state(self, obj: Any) -> Any:
        return getattr(obj, "bit_generator", obj).state

    def load(self, obj: Any, state: Any) -> None:
        getattr(obj, "bit_generator", obj).state = state


def python_state(generator: Any) -> dict[str, Any]:
    """The state of a `random.Random`, or of the module `random`, with its many numbers as one array."""
    state = generator.getstate()
    if len(state) == 3 and isinstance(state[1], tuple) and len(state[1]) == 625:
        version, numbers, gauss = state
        words = np.array(numbers[:-1], np.uint32)
        return {"version": version, "state": words, "position": numbers[-1], "gauss_next": gauss}
    return {"state": state}


def set_python_state(generator: Any, state: Mapping[str, Any]) -> None:
    """Puts back what `python_state` returned."""
    if "version" in state:
        numbers = (*map(int, state["state"]), state["position"])
        generator.setstate((state["version"], numbers, state["gauss_next"]))
    else:
        generator.setstate(state["state"])


_NEXT: Final = ("next_iter_state", "_next_iter_state_dict")
"""Where torchdata's loaders keep a loaded state until the next iterator takes it."""
_STARTING: Final = "_starting_state_dict"
"""Where the iterable data sets of Hugging Face keep it, for every iterator of its epoch."""
_loaded: Final[weakref.WeakKeyDictionary[Any, tuple[Any, Any]]] = weakref.WeakKeyDictionary()
"""For these data sets, the state that was restored, and the one that they had at that time."""


def _kept_for_next(obj: Any) -> Any:
    """The state that was loaded, of an object that has not begun to use it and so would not tell."""
    attributes = getattr(obj, "__dict__", {})
    for name in _NEXT:
        if attributes.get(name) is not None:
            return attributes[name]
    if _STARTING in attributes and obj in _loaded:
        state, before = _loaded[obj]
        if attributes.get("_state_dict") is before:  # an iterator would have made it another one
            return state
    return None


def _methods(kind: type) -> tuple[str, str] | None:
    for names in _PAIRS:
        if all(callable(getattr(kind, name, None)) for name in names):
            return names
    if any(base.__name__ == "BaseNode" and base.__module__.startswith("torchdata.nodes") for base in kind.__mro__):
        return "state_dict", "reset"
    return None


def _get_name(obj: Any) -> str:
    methods = _methods(type(obj))
    assert methods is not None, "only objects that have them are handled"
    return methods[0]


def _without_old_addresses(obj: Any, state: Any) -> Any:
    """The state with addresses of this process, where Grain compares what objects look like, addresses included."""
    if type(state) is not bytes or not _ADDRESS.search(state.decode(errors="replace")):
        return state
    try:
        saved, live = json.loads(state), json.loads(obj.get_state())
    except (ValueError, TypeError, AttributeError):
        return state
    if not isinstance(saved, dict) or not isinstance(live, dict):
        return state
    for name, text in saved.items():
        now = live.get(name)
        if isinstance(text, str) and isinstance(now, str) and _ADDRESS.sub("", text) == _ADDRESS.sub("", now):
            saved[name] = now
    return json.dumps(saved, indent=4).encode()


register(PythonGeneratorAdapter())
register(NumPyGeneratorAdapter())
register(StatefulAdapter(), last=True)
