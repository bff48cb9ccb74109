"""The changes that a restore makes between a file and the program: names, values left alone, and element types.

::

    file  --convert-->  saved name  --rename-->  live name  --ignore, only-->  restored, or left alone  --cast-->  element type of the live object

`milepost.engine.layouts` does what ``convert`` says when a file is opened, so its new names are saved names to all that follows. A saved name is what `milepost.list_variables` shows, without what follows ``/.ATTRIBUTES``. In patterns of names ``.`` and ``/`` are the same,
because PyTorch separates names by ``.`` and checkpoints by ``/``.

A slot variable has two names, because it belongs to a variable and to an optimizer::

    net/weight/.OPTIMIZER_SLOT/optimizer/exp_avg     below its variable, as in the file
    optimizer/state/exp_avg                          below its optimizer, as PyTorch calls it

``ignore`` leaves it out if it names either, and so does ``ignore`` of the variable or of the whole optimizer. ``only`` and ``cast`` do not
mean the slot variables when they name a variable: they name the optimizer, or the slot variable itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

from milepost.bundle import BundleReader
from milepost.engine.arguments import wrong
from milepost.engine.layouts.patterns import DOT
from milepost.engine.layouts.steps import Step, checked
from milepost.engine.unused_names import UnusedNames, warn_of_unused_name
from milepost.errors import MilepostError, UntrackableError
from milepost.graph.keys import ATTRIBUTES, SLOT, names_of
from milepost.graph.saved.nodes import SavedValue

Rename = Mapping[str, str] | Sequence[tuple[str | re.Pattern[str], str]] | Callable[[str], str | None]
"""New names of saved values; see `milepost.Checkpoint.restore`."""
Names = str | Sequence[str]
"""Names, in which ``*`` stands for any text. A name also stands for everything below it."""
_ONE_NAME: Final = r"([^./]*)"
SAVE_COUNTER: Final = "save_counter"
"""The counter that milepost adds to a checkpoint. A file without it is complete."""


class _Prefix(NamedTuple):
    """One entry of a mapping: the beginning of saved names, and what takes its place."""

    old: str
    pattern: re.Pattern[str]
    new: str

    def __call__(self, name: str, *, dotted: bool) -> str | None:
        match = self.pattern.match(name)
        if match is None:
            return None
        parts = iter(match.groups()[:-1])
        new = re.sub(r"\*", lambda _: next(parts), self.new)
        rest = match[match.lastindex or 0]
        if not dotted:
            new = DOT.sub("/", new)
        if not new:
            return rest.lstrip("./")
        return new + rest if not rest or rest[0] in "./" else f"{new}/{rest}"


@dataclass(frozen=True)
class Translation:
    """The changes that a restore makes between a file and the program.

    Args:
        rename: The new names of saved values. A mapping has beginnings of saved names, and the beginnings that replace them. The
            longest one that matches is used, and ``*`` stands for one name. Pairs of a regular expression and its replacement are
            applied one after the other, to the saved name with the separator of its file or, if nothing is found, with the other
            one. A function returns the live name of a saved name, or None to leave the value out.
        ignore: Live names of values that the restore does not change. Their saved values are left out.
        only: Live names. All values with other names are ignored.
        cast: Whether numbers are converted to the element types of the live objects. A bool is for all values; live names are for
            these values.
        skip_mismatch: Whether live objects keep their values if the saved ones have other shapes.
        convert: The steps that lay out saved values otherwise.
        kept: Paths of more live objects that keep their values, in the form in which paths are compared: because the saved ones have other shapes, or
            because the file has other names for them that ``ignore`` or ``only`` leave out.
        also: Other names of live objects, by the keys of the values that they take, for ``cast``.
        tell: Called with what is said of each of these names that has named nothing. By default it warns.

    Attributes:
        unused: Records which of these names have named something. A warning tells of those that have not.

    Raises:
        UnsupportedError: An argument has another type, or a regular expression is malformed.
    """

    rename: Rename = ()
    ignore: Names = ()
    only: Names | None = None
    cast: bool | Names = False
    skip_mismatch: bool = False
    convert: Sequence[Step] = ()
    kept: Set[str] = frozenset()
    also: Mapping[str, Collection[str]] = field(default_factory=dict)
    tell: Callable[[str], object] = field(default=warn_of_unused_name, repr=False, compare=False)
    unused: UnusedNames = field(init=False, repr=False, compare=False)
    _prefixes: Sequence[_Prefix] = field(init=False, repr=False)
    _expressions: Sequence[tuple[re.Pattern[str], str]] = field(init=False, repr=False)
    _ignored: re.Pattern[str] | None = field(init=False, repr=False)
    _wanted: re.Pattern[str] | None = field(init=False, repr=False)
    _cast: re.Pattern[str] | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        set_field(self, "unused", UnusedNames(self.tell))
        if not isinstance(self.skip_mismatch, bool):
            raise wrong("skip_mismatch", self.skip_mismatch, "True or False")
        set_field(self, "convert", checked(self.convert))
        set_field(self, "_ignored", self._pattern("ignore", self.ignore) if self.ignore else None)
        set_field(self, "_wanted", None if self.only is None else self._pattern("only", self.only))
        set_field(self, "_cast", None if isinstance(self.cast, bool) else self._pattern("cast", self.cast))
        set_field(self, "_prefixes", ())
        set_field(self, "_expressions", ())
        if isinstance(self.rename, Mapping):
            set_field(self, "_prefixes", _prefixes(self.rename))
            for prefix in self._prefixes:
                self.unused.expect_beginning(prefix.old, prefix.pattern)
        elif callable(self.rename):
            self.unused.expect_replacing()
        else:
            set_field(self, "_expressions", _expressions(self.rename))
            set_field(self, "rename", self._expressions)  # which the caller cannot change
            for pattern, _ in self._expressions:
                self.unused.expect_replacing(pattern.pattern)

    def _pattern(self, argument: str, names: Any) -> re.Pattern[str]:
        """A pattern of paths: the names, and everything below them."""
        listed = [names] if isinstance(names, str) else names
        if not isinstance(listed, Sequence) or not all(isinstance(each, str) and each.strip("./") for each in listed):
            either = "True or False, or " if argument == "cast" else ""
            raise wrong(argument, names, f"{either}a name, or a list of names, in which * stands for any text")
        texts = {each: pattern_of(each) for each in listed}
        if argument == "only" and not texts:
            self.unused.expect_nothing()
        for name, text in texts.items():
            self.unused.expect_live(argument, name, at_or_below(text))
        return at_or_below("|".join(texts.values())) if texts else re.compile(r"(?!)")

    def keeping(self, paths: Iterable[str]) -> Translation:
        """The same, but that live objects at more paths keep their values."""
        return self._changed(kept=self.kept | frozenset(map(as_compared, paths)))

    def knowing(self, names: Mapping[str, Collection[str]]) -> Translation:
        """The same, but that ``cast`` knows the live objects that take some values by more names. The caller may add names later."""
        return self._changed(also=names)

    def _changed(self, **fields: Any) -> Translation:
        changed = replace(self, **fields)
        object.__setattr__(changed, "unused", self.unused)  # with what has been met so far
        return changed

    @property
    def renames(self) -> bool:
        """Whether any name may change, or any value be left out."""
        return bool(self.rename) or self.selects

    @property
    def selects(self) -> bool:
        """Whether any value may be left out for its live name."""
        return self.ignores_any or self.only is not None

    @property
    def casts_some(self) -> bool:
        """Whether ``cast`` has names."""
        return self._cast is not None

    @property
    def ignores_any(self) -> bool:
        """Whether `ignores` may be True."""
        return bool(self.ignore or self.kept)

    def live_name(self, name: str, *, dotted: bool = False) -> str | None:
        """The name of the live object for a saved value, or None if the value is left out.

        Args:
            name: The saved name.
            dotted: Whether saved names are separated by ``.``, as those of PyTorch are.

        Raises:
            UntrackableError: The program's function raised an error, or returned no name.
        """
        new = self.live_path(name, dotted=dotted)
        return new if new is not None and self.takes(new) else None

    def live_path(self, path: str, *, dotted: bool = False) -> str | None:
        """The live path of a saved object or slot variable, or None if ``rename`` leaves it out.

        A function as ``rename`` is not asked for the optimizer of a slot variable, which has no value. Arguments and errors are those of
        `live_name`.
        """
        variable, is_slot, below = path.partition(SLOT)
        self.unused.met_saved(variable)
        new = self._renamed(variable, dotted=dotted)
        if new is None or not is_slot:
            return new
        if not callable(self.rename):
            self.unused.met_saved(below)
            below = self._renamed(below, dotted=dotted) or below
        return f"{new}{SLOT}{below}"

    def takes(self, path: str) -> bool:
        """Whether the live object at a path takes a saved value, as far as ``ignore`` and ``only`` say."""
        self.unused.met_live(path)
        return not self.leaves_alone(path)

    def takes_any(self, names: Collection[str], others: Collection[str] = ()) -> bool:
        """Whether a live object with several names takes a saved value.

        Args:
            names: Names of which ``only`` means one, and ``ignore`` none.
            others: More names that ``only`` may mean.
        """
        are_taken = [self.takes(name) for name in (*names, *others)]
        return any(are_taken) and not any(map(self.ignores, names))

    def wants(self, path: str) -> bool:
        """Whether ``only`` names what is at a path, or something above it."""
        return self._wanted is not None and bool(self._wanted.match(as_compared(path)))

    def leaves_alone(self, path: str, *, counter: bool = False) -> bool:
        """Whether the live object at a path keeps what it has.

        Args:
            path: The path of an object or a slot variable.
            counter: Whether ``only`` concerns the ``save_counter``, too.
        """
        if self.ignores(path):
            return True
        return self._wanted is not None and (counter or path != SAVE_COUNTER) and not means(self._wanted, path)

    def ignores(self, path: str) -> bool:
        """Whether the live object at a path keeps what it has whatever ``only`` says: ``ignore`` names it, or it is one of those that are kept."""
        if self.kept and not self.kept.isdisjoint((as_compared(path), as_compared(path.partition(SLOT)[0]))):
            return True
        return self._ignored is not None and any(self._ignored.match(as_compared(name)) for name in names_of(path))

    def warn_of_unused(
        self,
        reader: BundleReader,
        live: Callable[[], Iterable[str]] | None = None,
        *,
        dotted: bool = False,
        whole_of: Callable[[str], str] = str,
    ) -> None:
        """Warns of each name and pattern that names nothing, neither in a file nor in the program.

        Args:
            reader: The open file. If this translation renames, `live_name` was called for all its values.
            live: Returns the paths of the live objects. None if values are only loaded.
            dotted: As for `live_name`.
            whole_of: Returns the live name of the value that takes what has a live name. It is another one if several names of the file are
                one value.
        """

        def new_name(name: str) -> str | None:
            new = self.live_path(name, dotted=dotted)
            return None if new is None else whole_of(new)

        self.unused.warn(reader, new_name, live)

    def casts(self, key: str) -> bool:
        """Whether the numbers of a saved value are converted to the element type of the live object."""
        if self._cast is None:
            return bool(self.cast)
        path = self.live_path(key.partition(ATTRIBUTES)[0])
        return path is not None and any(means(self._cast, each) for each in (path, *self.also.get(key, ())))

    def _renamed(self, name: str, *, dotted: bool = False) -> str | None:
        for prefix in self._prefixes:
            new = prefix(name, dotted=dotted)
            if new is not None:
                return new
        if isinstance(self.rename, Mapping):
            return name
        if callable(self.rename):
            new_name = _called(self.rename, name)
            if new_name != name:
                self.unused.replaced()
            self.unused.asked(is_kept=new_name is not None)
            return new_name
        for pattern, new in self._expressions:
            new_name, count = pattern.subn(new, name)
            if not count:  # the pattern may have the separator of other files
                new_name, count = pattern.subn(new, DOT.sub("/", name) if dotted else name.replace("/", "."))
                new_name = new_name if dotted else DOT.sub("/", new_name)
            if count:
                name = new_name
                self.unused.replaced(pattern.pattern)
        return name


def as_compared(path: str) -> str:
    """A path in the form in which it is compared with patterns, where ``.`` and ``/`` are the same."""
    return path.replace(".", "/")


def means(pattern: re.Pattern[str], path: str) -> bool:
    """Whether a pattern of ``only`` or ``cast`` means the object at a path. That of a variable does not mean its slot variables."""
    at_path, *below = (bool(pattern.match(as_compared(name))) for name in names_of(path))
    variable, is_slot, _ = path.partition(SLOT)
    return any(below) or (at_path and not (is_slot and pattern.match(as_compared(variable))))


def _called(rename: Callable[[str], Any], name: str) -> str | None:
    try:
        new = rename(name)
    except MilepostError:
        raise
    except Exception as error:
        raise UntrackableError(
            f"the function given as rename raised {type(error).__name__}: {error}; nothing was changed",
            key=name,
            remedy="correct the function: it gets each saved name as text, and returns the live name, or None to leave the value out",
        ) from error
    if new is not None and (not isinstance(new, str) or not new):
        raise UntrackableError(
            "the function given as rename returned no name; nothing was changed",
            key=name,
            expected="the name of a live object, or None to leave the value out",
            found=f"{new!r:.80}",
            remedy="return the name unchanged where it is to stay as it is",
        )
    return new


def _prefixes(mapping: Mapping[Any, Any]) -> list[_Prefix]:
    pairs = []
    for old, new in mapping.items():
        if not isinstance(old, str) or not isinstance(new, str):
            raise wrong("rename", {old: new}, "a mapping from text to text, or a list of pairs for regular expressions")
        old, new = old.strip("./"), new.strip("./")
        if new.count("*") > old.count("*"):
            raise wrong("rename", {old: new}, "no more * in the new name than in the saved one")
        text = _ONE_NAME.join("[./]".join(map(re.escape, re.split("[./]", part))) for part in old.split("*"))
        end = "(.*)" if not old else r"((?:[./].*)?)\Z"
        pairs.append((len(old), _Prefix(old, re.compile(text + end, re.DOTALL), new)))
    return [prefix for _, prefix in sorted(pairs, key=lambda pair: -pair[0])]


def _expressions(rename: Any) -> tuple[tuple[re.Pattern[str], str], ...]:
    expected = "a mapping, a function, or a list of pairs of a regular expression and its replacement"
    if isinstance(rename, str) or not isinstance(rename, Sequence):
        raise wrong("rename", rename, expected)
    expressions = []
    for pair in rename:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise wrong("rename", pair, expected)
        pattern, new = pair
        if not isinstance(pattern.pattern if isinstance(pattern, re.Pattern) else pattern, str) or not isinstance(
            new, str
        ):
            raise wrong("rename", pair, expected)
        try:
            expressions.append((re.compile(pattern), new))
            re.sub(pattern, new, "")
        except (re.error, IndexError) as error:
            raise wrong(
                "rename",
                pair,
                "a regular expression of Python and its replacement",
                f"correct it: {error}. A character such as ( or * that stands for itself has a backslash before it; a dict renames without "
                "regular expressions",
            ) from None
    return tuple(expressions)


def pattern_of(name: str) -> str:
    """The regular expression of a name, in which ``*`` stands for any text, for paths as they are compared."""
    return ".*".join(map(re.escape, name.strip("./").replace(".", "/").split("*")))


def at_or_below(text: str) -> re.Pattern[str]:
    """A pattern of the paths that a regular expression matches, and of everything below them."""
    return re.compile(rf"(?:{text})(?:/.*)?\Z", re.DOTALL)


AS_SAVED: Final = Translation()
"""Nothing changes."""


def translation(
    rename: Rename,
    ignore: Names,
    only: Names | None,
    cast: bool | Names,
    skip_mismatch: bool = False,
    convert: Sequence[Step] = (),
) -> Translation:
    """The translation of these arguments, which is `AS_SAVED` if none was given. Errors are those of `Translation`.

    Example:
        >>> translation((), (), None, False) is AS_SAVED
        True
    """
    if (
        isinstance(rename, tuple)
        and isinstance(ignore, tuple)
        and isinstance(convert, (tuple, list))
        and not (rename or ignore or convert)
        and only is None
        and cast is False
        and skip_mismatch is False
    ):
        return AS_SAVED
    return Translation(rename, ignore, only, cast, skip_mismatch, convert)


@dataclass(frozen=True)
class Translated:
    """A translation that was applied to a file.

    Attributes:
        translation: The translation.
        left_out: The keys of the saved values that it leaves out.
        renamed_away: The keys of those of them that ``rename`` leaves out.
        nones: The keys of those of them that stand for None.
        variables: By node, the values of variables that are left out although their slot variables are not.
    """

    translation: Translation = AS_SAVED
    left_out: Sequence[str] = ()
    renamed_away: Sequence[str] = ()
    nones: frozenset[str] = frozenset()
    variables: Mapping[int, Sequence[SavedValue]] = field(default_factory=dict)

    def leaves_alone(self, slot: str) -> bool:
        """Whether the slot variable at a path keeps what it has: the arguments leave it out, or its variable.

        Args:
            slot: The path. If ``rename`` leaves out the variable, its saved name counts as its live one.
        """
        if self.translation.leaves_alone(slot):
            return True
        return as_compared(slot.partition(SLOT)[0]) in self._names_left_out

    @property
    def renames_slots_away(self) -> bool:
        """Whether ``rename`` leaves out slot variables."""
        return any(SLOT in key for key in self.renamed_away)

    @cached_property
    def _names_left_out(self) -> frozenset[str]:
        return frozenset(as_compared(key.partition(ATTRIBUTES)[0]) for key in self.renamed_away)


UNTRANSLATED: Final = Translated()
"""Nothing was changed."""
