"""The state of optimizers of PyTorch that a file has by the names of parameters, as ``get_optimizer_state_dict`` writes it."""

from __future__ import annotations

from typing import NamedTuple

from milepost.engine.translation import as_compared
from milepost.foreign.items import Item, walked
from milepost.foreign.optimizers import GROUPS, STATE, is_optimizer_state, names_of_parameters


class ParameterPlace(NamedTuple):
    """Where the name of a parameter is in the key of its state.

    Attributes:
        inside: Where the name below the optimizer begins.
        begin: Where the name of the parameter begins.
        end: Where it ends.
    """

    inside: int
    begin: int
    end: int


class StateByNames:
    """The state of optimizers that a file has by the names of parameters.

    In it, a parameter is called as the file has it, whatever ``rename`` says of names below the optimizer: the live parameter is found by what its own
    name becomes.

    Args:
        root: The file; None if its names are not looked at.

    Attributes:
        given: What ``rename`` calls parameters there, by their names in the file.
    """

    def __init__(self, root: Item | None) -> None:
        self.given: dict[str, str] = {}
        items = [] if root is None else [item for item in walked(root) if not item.is_leaf and is_optimizer_state(item)]
        self._names = {
            as_compared(f"{item.key}/" if item.key else ""): {as_compared(name) for name in names}
            for item in items
            if (names := names_of_parameters(item))
        }

    def __bool__(self) -> bool:
        return bool(self._names)

    def place(self, key: str) -> ParameterPlace | None:
        """Where the name of a parameter is in a key; None if it is not that of state or a hyperparameter of one."""
        plain = as_compared(key)
        for origin, names in self._names.items():
            for part in (f"{origin}{STATE}/", f"{origin}{GROUPS}/"):
                end = plain.rfind("/") if plain.startswith(part) else -1
                while end > len(part):
                    if plain[len(part) : end] in names:
                        return ParameterPlace(len(origin), len(part), end)
                    end = plain.rfind("/", 0, end)
        return None

    def kept(self, key: str, place: ParameterPlace, name: str, owner: str) -> str:
        """The new name of a value with the name of the parameter in it.

        Args:
            key: The key of the value.
            place: Where the name of the parameter is in it.
            name: What ``rename`` says.
            owner: The live path of the optimizer, and a slash.
        """
        plain = as_compared(name)
        rest = "/".join(plain.split("/")[-as_compared(key)[place.end :].count("/") :])
        begin = as_compared(f"{owner}{key[place.inside : place.begin]}")
        if plain.startswith(begin):
            self.given[as_compared(key[place.begin : place.end])] = plain[len(begin) : len(name) - len(rest) - 1]
        return f"{owner}{key[place.inside : place.end + 1]}{name[len(name) - len(rest) :]}"
