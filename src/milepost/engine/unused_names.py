"""Entries of ``rename``, ``ignore``, ``only`` and ``cast`` that name nothing. Most are typing errors, so a restore warns of each.

If because of one of them a restore leaves out what the program asked for, the assertions of its status fail: a name in ``only`` that names
nothing, and a function as ``rename`` that leaves out every saved value. The others leave nothing out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from milepost.bundle import BundleReader
from milepost.errors import UnrestoredWarning, import_if_possible, warn
from milepost.graph.keys import ATTRIBUTES, SLOT, is_value, names_of

_MOST_COMPARED: Final = 5000
"""The largest number of names to compare with one that names nothing. More would take seconds."""
_MOST_LISTED: Final = 3
_FUNCTION: Final = "(a function)"


class _Unused(NamedTuple):
    """An entry of an argument that has named nothing so far."""

    argument: str
    text: str


class Unmet(NamedTuple):
    """Why a restore leaves out what the program asked for.

    Attributes:
        problem: What is wrong.
        remedy: What to do.
    """

    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.problem}; {self.remedy}"


class UnusedNames:
    """Records which entries of the arguments of a restore have named something.

    An entry of ``rename`` is about saved names. Those of ``ignore``, ``only`` and ``cast`` are about live names: the names that saved values
    get, and the paths of live objects.

    Args:
        tell: Called with what is said of each entry that has named nothing.

    Attributes:
        unmet: Why the restore leaves out what the program asked for. It is complete after `warn`.
    """

    def __init__(self, tell: Callable[[str], object]) -> None:
        self._tell = tell
        self.unmet: list[Unmet] = []
        self._left_out = self._kept = False
        """Whether a function that was given as ``rename`` has returned None, and whether it has returned a name."""
        self._only_is_empty = False
        self._beginnings: dict[_Unused, re.Pattern[str]] = {}
        self._replacing: set[_Unused] = set()
        self._live: dict[_Unused, re.Pattern[str]] = {}

    def expect_beginning(self, text: str, pattern: re.Pattern[str]) -> None:
        """Adds a key of a mapping."""
        self._beginnings[_Unused("rename", text)] = pattern

    def expect_replacing(self, text: str = _FUNCTION) -> None:
        """Adds a regular expression, or a function."""
        self._replacing.add(_Unused("rename", text))

    def expect_live(self, argument: str, text: str, pattern: re.Pattern[str]) -> None:
        """Adds a name of ``ignore``, ``only`` or ``cast``."""
        self._live[_Unused(argument, text)] = pattern

    def expect_nothing(self) -> None:
        """Records that ``only`` is an empty list."""
        self._only_is_empty = True

    def met_saved(self, name: str) -> None:
        """Records the keys of a mapping that name a saved value."""
        _drop_fitting(self._beginnings, name)

    def replaced(self, text: str = _FUNCTION) -> None:
        """Records that a regular expression was found in a saved name, or that a function has changed one."""
        self._replacing.discard(_Unused("rename", text))

    def asked(self, *, is_kept: bool) -> None:
        """Records that a function has returned a name, or None."""
        self._kept |= is_kept
        self._left_out |= not is_kept

    def met_live(self, path: str) -> None:
        """Records the names of ``ignore``, ``only`` and ``cast`` that name the live value at a path."""
        for each in names_of(path) if self._live else ():
            _drop_fitting(self._live, each.replace(".", "/"))

    def warn(
        self, reader: BundleReader, new_name: Callable[[str], str | None], live: Callable[[], Iterable[str]] | None
    ) -> None:
        """Tells of each entry that has named nothing, once.

        Args:
            reader: The open file. All its values have met the entries of ``rename``, ``ignore`` and ``only``.
            new_name: The name that a saved value gets, or None if ``rename`` leaves it out.
            live: Returns the paths of the live objects, of which none has met an entry yet. None if values are only loaded.
        """
        if not (self._beginnings or self._replacing or self._live or self._left_out or self._only_is_empty):
            return
        keys = (key for key in reader.keys() if is_value(key))  # noqa: SIM118 - a reader is not a mapping
        saved = [key.partition(ATTRIBUTES)[0] for key in keys]
        paths: list[str] = []
        if self._live:
            paths = [*filter(None, map(new_name, saved)), *(live() if live is not None else ())]
            for path in paths:
                self.met_live(path)
            paths = [path for path in paths if SLOT not in path]
        saved = [path for path in saved if SLOT not in path]
        for unused in (*self._beginnings, *sorted(self._replacing)):
            self._tell(f"{reader.prefix}: {_of_saved(unused, saved)}")
        known = "no saved value" if live is None else "neither a saved value nor a live object"
        for unused in self._live:
            message = _of_live(unused, paths, known)
            if unused.argument == "only":
                self.unmet.append(message)
            self._tell(f"{reader.prefix}: {message}")
        left_out = []
        if self._left_out and not self._kept and saved:
            left_out.append(_ALL_LEFT_OUT)
        if self._only_is_empty:
            left_out.append(_ONLY_IS_EMPTY)
        for message in left_out:
            self.unmet.append(message)
            self._tell(f"{reader.prefix}: {message}")
        self._left_out = self._only_is_empty = False
        self._beginnings.clear()
        self._replacing.clear()
        self._live.clear()

    def of_save(self, paths: Sequence[str]) -> list[Unmet]:
        """The entries of ``ignore`` and ``only`` that name no live object of a save.

        Args:
            paths: The paths of all live objects. Those that have values have met the entries by their other names, too.
        """
        for path in paths:
            self.met_live(path)
        return [
            _of_live(unused, [path for path in paths if SLOT not in path], "no live object") for unused in self._live
        ]


def warn_of_unused_name(message: str) -> None:
    """Warns of an entry that has named nothing."""
    warn(message, UnrestoredWarning)


def _drop_fitting(entries: dict[Any, re.Pattern[str]], name: str) -> None:
    for unused in [each for each, pattern in entries.items() if pattern.match(name)]:
        del entries[unused]


def _of_saved(unused: _Unused, saved: Iterable[str]) -> str:
    if unused.text == _FUNCTION:
        return f"the function given as rename has returned every saved name unchanged, so it renames nothing; {_some(saved)}"
    return f"rename has {unused.text!r}, which fits no saved name, so it renames nothing; {nearest(unused.text, saved) or _some(saved)}"


def _of_live(unused: _Unused, paths: Iterable[str], known: str) -> Unmet:
    otherwise = f"correct it, or leave it out of {unused.argument}"
    if unused.argument == "cast":
        otherwise += ": cast is True, or the names of values, whose live objects say which element type they get"
    return Unmet(
        f"{unused.argument} names {unused.text!r}, and {known} has this name",
        nearest(unused.text, paths) or otherwise,
    )


_ALL_LEFT_OUT: Final = Unmet(
    "the function given as rename has returned None for every saved name, so no saved value is used",
    "return the name unchanged where it is to stay as it is",
)
_ONLY_IS_EMPTY: Final = Unmet(
    "only is an empty list, so no saved value is used", "name what is wanted, or leave the argument out for everything"
)


def nearest(text: str, names: Iterable[str]) -> str:
    """The names most like a text, and beginnings of names, as a question."""
    known: dict[str, str] = {}  # in the form in which they are compared
    for name in names:
        parts = re.split("([./])", name)
        for end in range(1, len(parts) + 1, 2):
            known.setdefault("".join(parts[:end]).replace(".", "/"), "".join(parts[:end]))
        if len(known) > _MOST_COMPARED:
            return ""
    difflib = import_if_possible("difflib")  # only warnings need it
    if difflib is None:
        return ""
    near = difflib.get_close_matches(text.replace(".", "/"), known, _MOST_LISTED)
    return f"did you mean {' or '.join(repr(known[each]) for each in near)}?" if near else ""


def _some(names: Iterable[str]) -> str:
    distinct_names = list(dict.fromkeys(names))
    if not distinct_names:
        return "no saved value has a name"
    more = ", ..." if len(distinct_names) > _MOST_LISTED else ""
    return f"saved names are {', '.join(map(repr, distinct_names[:_MOST_LISTED]))}{more}"
