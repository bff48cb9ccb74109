"""The base of adapters whose objects have plain data as their state. `milepost.plain_state` writes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from milepost.errors import MilepostError, MismatchError, RefusedError, UnsupportedError, UntrackableError
from milepost.graph.adapter import Adapter, Array, Value
from milepost.plain_state.decoding import unpack
from milepost.plain_state.encoding import TEXT, pack
from milepost.plain_state.part import IS_STATE
from milepost.tensor import DType
from milepost.tensor.dtype import STRING


class PackedAdapter(Adapter):
    """An adapter of objects whose state is plain data. It is saved as JSON text, with one value for each array in it."""

    open_ended = True
    turn = 1

    def state(self, obj: Any) -> Any:
        """The present state of an object, as plain data. It may raise any exception."""
        raise NotImplementedError

    def load(self, obj: Any, state: Any) -> None:
        """Sets the state of an object. It may raise any exception."""
        raise NotImplementedError

    def name_in_errors(self, obj: Any) -> str:
        """What errors about the state of an object call the object, such as "a numpy.random.Generator"."""
        return f"a {type(obj).__module__}.{type(obj).__qualname__}"

    def remedy(self, obj: Any) -> str:
        """What the user can do if an object fails to return its state."""
        return "save when the object can return its state, or wrap the object in NoDependency"

    def values(self, obj: Any) -> Sequence[Value]:
        return (Value(TEXT, STRING, (), lambda: pack(self.state(obj))[TEXT]),)

    def hints_to_save(self, obj: Any) -> Mapping[str, Array]:
        return IS_STATE

    def values_to_save(self, obj: Any) -> Sequence[Value]:
        try:
            state = self.state(obj)
        except MilepostError:
            raise
        except Exception as error:
            raise UntrackableError(
                "an object fails to return its state",
                expected=f"a state from {self.name_in_errors(obj)}",
                found=f"{type(error).__name__}: {error}",
                remedy=self.remedy(obj),
            ) from error
        try:
            arrays = pack(state)
        except UnsupportedError as error:
            origin = (
                f", at {error.key!r} in the state of {self.name_in_errors(obj)}"
                if error.key
                else f", from {self.name_in_errors(obj)}"
            )
            error.key, error.found = None, f"{error.found}{origin}"
            raise
        return [Value(name, DType.of(array), array.shape, array) for name, array in arrays.items()]

    def before_assign(self, obj: Any) -> Callable[[], object]:
        try:
            before = unpack({name: array.copy() for name, array in pack(self.state(obj)).items()})
        except Exception:  # the object has no state yet, and may raise any error
            return lambda: None
        return lambda: self.load(obj, before)

    def assign(self, obj: Any, arrays: Mapping[str, Array]) -> Any:
        if TEXT not in arrays:
            raise MismatchError(
                "the saved values are not the state of such an object; nothing was changed",
                expected=f"the state of {self.name_in_errors(obj)}",
                found=f"values named {', '.join(sorted(arrays))}",
                remedy="restore into an object of the kind that was saved",
            )
        state = unpack(arrays)
        try:
            self.load(obj, state)
        except MilepostError:
            raise
        except Exception as error:
            raise RefusedError.caused_by(
                error,
                "an object refuses its saved state; nothing was changed",
                expected=f"a state that fits {self.name_in_errors(obj)}",
                found=f"{type(error).__name__}: {error}",
                remedy="make the object as it was made when it was saved: same data, same settings, same number of workers",
            ) from error
        return obj
