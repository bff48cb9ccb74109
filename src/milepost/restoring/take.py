"""A live object that takes saved values: what a match finds, a check compares and a delivery assigns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from milepost.errors import MilepostError
from milepost.graph.adapter import Adapter, Array, Value
from milepost.restoring.undo import refused


class Take(NamedTuple):
    """A live object that takes saved values.

    Attributes:
        node: The saved node.
        obj: The live object.
        adapter: Its adapter.
        values: Its values, each with the key of the saved one.
    """

    node: int
    obj: Any
    adapter: Adapter
    values: Sequence[tuple[Value, str]]

    def assign(self, given: dict[str, Any], file: str) -> Any:
        """Assigns values to the object.

        Args:
            given: The values by their names, without those that are read into memory of the object.
            file: The checkpoint, for errors.

        Returns:
            The object, or its successor.

        Raises:
            RefusedError: The object or its framework raised an error that is not milepost's.
        """
        try:
            for value, _ in self.values:
                if value.converts and value.name in given:
                    given[value.name] = value.taken(given[value.name])
            return self.adapter.assign(self.obj, given)
        except MilepostError as error:
            error.with_context(key=self.values[0][1], file=file)
            raise
        except Exception as error:  # the program's own code may raise any error
            raise refused(error).with_context(key=self.values[0][1], file=file) from error


class HintedTake(Take):
    """A live object that takes saved hints in addition to its values; see `milepost.graph.saved.hints`.

    Attributes:
        hints: The hints by name.
    """

    hints: Mapping[str, Array]

    def assign(self, given: dict[str, Any], file: str) -> Any:
        return super().assign({**given, **self.hints}, file)


new_take: Final = partial(tuple.__new__, Take)
"""It makes the same of a tuple with all attributes. The class itself is a function in Python, which takes twice as long."""
