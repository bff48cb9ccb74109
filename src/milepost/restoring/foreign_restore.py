"""One restore from a file of another library. It may hold objects that are not read, and lack values with defaults."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from milepost.adapters.optimizer_settings import EMPTY
from milepost.adapters.packed import PackedAdapter
from milepost.deferred.identity import reference_to
from milepost.distributed.rounds import Rounds
from milepost.engine.options import CheckpointOptions
from milepost.engine.report import Outcome, ReportEntry
from milepost.engine.restore_record import OWN, FileNotes
from milepost.engine.translation import Translated, Translation, as_compared
from milepost.errors import MilepostError, MismatchError
from milepost.foreign import ForeignReader, GraphBuilder, HeldObject, called
from milepost.foreign.graph import VALUE, WRAPPERS, Changes
from milepost.foreign.items import walked
from milepost.foreign.optimizers import GROUPS, STATE
from milepost.graph.keys import SLOT, VARIABLE_VALUE
from milepost.graph.live_graph import LiveGraph
from milepost.graph.saved.nodes import SavedValue
from milepost.graph.saved.object_graph import ObjectGraph
from milepost.graph.saved.selection import names_of_live, paths_of_optimizers, selected
from milepost.restoring.restore import Restoration
from milepost.restoring.state_by_names import StateByNames

_LEFT_OUT: Final = "a function that is not read; the live object has its own"
_STATE: Final = re.compile(r"(?:^|[/.])state[/.]")
"""Names of the state of a PyTorch optimizer."""
_PARAMETERS: Final = re.compile(rf"/{GROUPS}/\d+/params/\d+\Z")
"""Names of what says which parameters a group has."""
_MEMBER: Final = re.compile(rf"(.*/{GROUPS}/\d+/[^/]+)/.+", re.DOTALL)
"""Names of members of a hyperparameter that is a tuple, such as ``betas``."""
_MOST_LISTED: Final = 5


def foreign_restoration(
    reader: ForeignReader,
    live: LiveGraph,
    options: CheckpointOptions,
    rounds: Rounds | None,
    translation: Translation,
) -> tuple[Restoration, Callable[[str], str]]:
    """Makes the object graph of a file for the live objects, and a restore from it.

    Returns:
        The restore, and a function that returns the name of the value that takes what has a live name.

    Raises:
        MilepostError: No object graph can be made of the file. The error names the file.
    """
    try:
        has_own_names = reader.keras is not None and (translation.selects or translation.casts_some)
        live_names = _live_names(reader, live, translation) if has_own_names else {}
        names = _Names(reader, live, translation, live_names)
        left_out = reader.rename(names) if translation.renames else []
        ignores = translation.ignores if translation.ignores_any else None
        changes = Changes(ignores, names.settings_away, names.without_groups, names.of_parameters)
        builder = GraphBuilder(reader, live, changes)
        graph, left_out = builder.build(), [*left_out, *builder.ignored]
        if translation.rename and builder.optimizers and not names.by_names:
            names.check_order(live)
        if translation.selects:
            kept = [paths[0] for key, paths in live_names.items() if names(key) is None]
            translation = translation.keeping([*kept, *names.ignored, *names.slots_left_out(builder.slots)])
        if names.others:
            translation = translation.knowing(names.others)
        translated = Translated(translation, left_out, names.away)
        if translation.selects or names.away:
            selection = selected(graph, names.takes_object, translation.ignores)
            graph = selection.graph
            variables = {**names.variables(builder.variables, graph), **selection.variables}
            translated = replace(translated, left_out=[*left_out, *selection.left_out], variables=variables)
    except MilepostError as error:
        raise error.with_context(file=reader.prefix) from None
    file = FileNotes(
        {node: _entry_of(obj) for node, obj in builder.objects.items()},
        builder.notes,
        [ReportEntry(Outcome.MATCHED, key, kind, note=_LEFT_OUT) for key, kind in builder.left_out.items()],
        [reference_to(live.objects[number]) for number in builder.kept],
        builder.versions,
        () if any(map(_STATE.search, names.away)) else builder.optimizers,
    )
    restoration = Restoration(reader, graph, options, OWN, rounds, translated, file)
    return restoration, names.whole_of


def _entry_of(obj: HeldObject) -> ReportEntry:
    note = "an object, which milepost does not make" + ("" if obj.is_unread else "; its contents are read by name")
    return ReportEntry(Outcome.UNEXPECTED if obj.is_unread else Outcome.DEFERRED, called(obj.key), obj.kind, note=note)


def _live_names(reader: ForeignReader, live: LiveGraph, translation: Translation) -> dict[str, list[str]]:
    """The paths of the live objects that take the values of a file of Keras, by the keys of these. Such a file has names of its own."""
    if translation.rename:
        reader.rename(partial(translation.live_path, dotted=reader.origin.dotted))
    names = names_of_live(live)
    return {key: names[number] for key, number in GraphBuilder(reader, live).live_by_key().items()}


class _Names:
    """The live name of each value, or None if it is left out.

    A live object that takes plain state is one value, whatever the file has below its name. Hyperparameters say what the state of an
    optimizer belongs to, so they are left out later (`takes_object`) if anything else of the optimizer is taken.

    Args:
        live_names: Other names of values by their keys, which mean the same to ``only`` and ``ignore``.

    Attributes:
        away: The keys of the values that ``rename`` leaves out.
        settings_away: Those of them that are hyperparameters of optimizers of which anything else is taken.
        without_groups: The paths of live optimizers of which only state is taken.
        others: If ``cast`` has names: the other names of values, by their keys.
        ignored: The paths of live objects that ``ignore`` names as the file does, with levels that the program does not have.
        by_names: The state of optimizers that the file has by the names of parameters, if ``rename`` or ``only`` is given.
    """

    def __init__(
        self, reader: ForeignReader, live: LiveGraph, translation: Translation, live_names: Mapping[str, Sequence[str]]
    ) -> None:
        self._translation = translation
        self._dotted = reader.origin.dotted
        self.away: list[str] = []
        self.settings_away: frozenset[str] = frozenset()
        self.without_groups: list[str] = []
        self.others: dict[str, list[str]] = {}
        self.ignored: list[str] = []
        self._names: dict[str, str | None] = {}
        self._whole: set[str] = set()
        self._with_settings: tuple[str, ...] = ()
        self.by_names = StateByNames(reader.root if translation.rename or translation.only is not None else None)
        if not (translation.renames or translation.casts_some):
            return
        self._live = set(map(as_compared, live.paths))
        pairs = zip(live.paths, live.adapters, strict=True)
        self._whole = {as_compared(path) for path, adapter in pairs if path and isinstance(adapter, PackedAdapter)}
        self._optimizers = tuple(f"{path}/" for path in paths_of_optimizers(live))
        self._with_settings = self._optimizers if reader.keras is None else ()
        self._new: dict[str, str] = {}
        self._left_alone: dict[str, str] = {}
        groups: dict[str, dict[str, str]] = {}
        needed: set[str] = set()
        origins: dict[str, str] = {}
        for key in [item.key for item in walked(reader.root) if item.is_leaf]:
            name = translation.live_path(key, dotted=reader.origin.dotted)
            self._names[key] = None
            if self.by_names:
                self._new[as_compared(key)] = key if name is None else name
            if name is None:
                self.away.append(key)
                continue
            owner = next((each for each in self._optimizers if as_compared(name).startswith(as_compared(each))), "")
            place = self.by_names.place(key) if owner else None
            if place is not None:
                name = self.by_names.kept(key, place, name, owner)
            if owner and key.endswith(name[len(owner) :]):
                origins[key[: len(owner) - len(name)]] = owner
            if owner and as_compared(name).startswith(f"{as_compared(owner)}{GROUPS}/"):
                groups.setdefault(owner, {})[key] = name
            others = live_names.get(key, ())
            if translation.casts_some:
                self.others[key] = [*self._other_names(name, owner), *others]
            if self._takes(name, owner, others, None if place is None else key[place.begin : place.end]):
                self._names[key] = name
                needed.add(owner)
                continue
            plain = self._without_levels(name)
            self._left_alone |= {as_compared(each): key for each in (name, plain)}
            if plain != name and translation.ignores(name):
                self.ignored.append(plain)
        self._keep_groups(needed, groups, origins)
        self._variables_away = frozenset(map(as_compared, self.away))

    def _keep_groups(
        self, needed: Collection[str], groups: Mapping[str, Mapping[str, str]], origins: Mapping[str, str]
    ) -> None:
        """Keeps the hyperparameters of optimizers of which anything is taken.

        Args:
            needed: The live paths of these optimizers, each with a slash.
            groups: By such a path, the live names of saved hyperparameters by their keys.
            origins: What is in front of the names in optimizers in the file, with such paths.
        """
        for owner in needed:
            of_groups = groups.get(owner, {})
            self._names |= of_groups
            if not any(self._translation.takes(name) for name in of_groups.values() if not _PARAMETERS.search(name)):
                self.without_groups.append(owner.removesuffix("/"))
        for origin, owner in origins.items() if self.away else ():
            if owner in needed and owner in self._with_settings:
                away = [key for key in self.away if key.startswith(f"{origin}{GROUPS}")]
                self._names |= {key: f"{owner}{key[len(origin) :]}" for key in away}
                self.settings_away |= frozenset(away)

    def __call__(self, key: str) -> str | None:
        if key in self._names:
            return self._names[key]
        name = self._translation.live_path(key, dotted=self._dotted)  # of something that is no item
        return name if name is not None and self._takes(name, "") else None

    def of_parameters(self, names: Sequence[str]) -> Iterator[Iterator[str]]:
        """The live paths that parameters may have, given their names in the state of an optimizer: for each part of the file or program that has them."""
        if not self._translation.rename or not names:
            return
        plain = [as_compared(name) for name in names]
        for key in self._new:
            if f"/{key}".endswith(f"/{plain[0]}"):
                above = key.removesuffix(plain[0])
                if all(f"{above}{name}" in self._new for name in plain):
                    yield (self._new[f"{above}{name}"].replace("/", ".") for name in plain)
        for above in self._live:
            if callable(self._translation.rename):  # which knows the names in the file only
                paths = (f"{above}/{self.by_names.given.get(name, name)}" for name in plain)
            else:
                guesses = (f"{above}/{name}".lstrip("/") for name in plain)
                paths = (self._translation.live_path(guess) or guess for guess in guesses)
            yield (path.lstrip("/").replace("/", ".") for path in paths)

    def variables(self, variables: Mapping[int, str], graph: ObjectGraph) -> dict[int, Sequence[SavedValue]]:
        """The saved values of parameters that are left out although their slot variables are not.

        Args:
            variables: As `GraphBuilder` has them.
            graph: The graph of what is taken.
        """
        taken = {slot.variable for node in graph.nodes for slot in node.slots} if variables else ()
        keys = {node: self._left_alone.get(as_compared(path)) for node, path in variables.items() if node in taken}
        return {node: (SavedValue(VARIABLE_VALUE, "", key),) for node, key in keys.items() if key is not None}

    def slots_left_out(self, slots: Mapping[str, str]) -> Iterator[str]:
        """The paths of slot variables that ``only`` or ``ignore`` leave out by the names that the file has for them.

        Args:
            slots: As `GraphBuilder` has them.
        """
        paths_by_key = {as_compared(key): path for key, path in slots.items()}
        for key in self._names.keys() - set(self.away) if paths_by_key else ():
            above, _, name = as_compared(key).rpartition("/")
            if self._names[key] is None and above in paths_by_key:
                paths = (f"{paths_by_key[above]}/{each}" for each in (name, EMPTY))
                yield from (path for path in paths if self._translation.takes(path))

    def check_order(self, live: LiveGraph) -> None:
        """Checks that parameters have the order of the file, by which it has the state of their optimizer.

        Raises:
            MismatchError: They have another order, so each would get the state of another.
        """
        order = _order_of_leaves(live)
        last: dict[str, tuple[int, str]] = {}
        for name in reversed(self._names.values()):  # `walked` begins at the end of the file
            if name is None or name.startswith(self._optimizers):
                continue
            path, part = as_compared(name), as_compared(name).partition("/")[0]
            if path not in order:
                continue
            before = last.get(part)
            if before is not None and order[path] < before[0]:
                raise MismatchError(
                    "rename gives the parameters another order, by which this file has the state of their optimizer; nothing was changed",
                    key=name,
                    expected=f"{before[1]} before {name}, as in the file",
                    found=f"{name} before it in the program",
                    remedy="restore the model without its optimizer, with only or ignore; or restore both under the names of the file, and save them",
                )
            last[part] = order[path], name

    def takes_object(self, path: str) -> bool:
        """Whether the value at a path in the graph is taken. What ``only`` says of all but hyperparameters was looked at before."""
        if SLOT in path:
            return as_compared(path.partition(SLOT)[0]) not in self._variables_away and not self._translation.ignores(
                path
            )
        return not path.startswith(self._with_settings) or self._translation.takes(path)

    def _takes(self, name: str, owner: str, live_names: Sequence[str] = (), parameter: str | None = None) -> bool:
        whole = self.whole_of(name)
        names = [whole] if whole is not name else [name, *self._other_names(name, owner)]
        if parameter is not None and self._translation.wants(parameter):
            # what means the parameter does not mean its state
            slot = as_compared(name).rpartition(f"{as_compared(parameter)}/")[2]
            return self._translation.takes(f"{owner}{STATE}/{slot}") and not any(map(self._translation.ignores, names))
        return self._translation.takes_any([*names, *live_names[:1]], live_names[1:])

    def whole_of(self, name: str) -> str:
        """The name of the live object that takes a value as a part of plain state or of a hyperparameter; else the name itself."""
        if (member := _MEMBER.fullmatch(as_compared(name))) and name.startswith(self._with_settings):
            return member[1]
        parts = as_compared(name).split("/") if self._whole else ()
        above = ("/".join(parts[:count]) for count in range(1, len(parts)))
        return next((each for each in above if each in self._whole), name)

    def _without_levels(self, name: str) -> str:
        """The name without the levels that the file has and the program does not: those of wrappers, and ``value`` below a variable of NNX."""
        plain = as_compared(name)
        if plain in self._live:
            return name
        kept = "/".join(part for part in plain.split("/") if part not in WRAPPERS)
        variable = kept.removesuffix(f"/{VALUE}")
        return variable if variable in self._live else kept if kept != plain else name

    def _other_names(self, name: str, owner: str) -> Iterator[str]:
        """The name without the levels that the program does not have, and that of state below its optimizer, without the number of the parameter."""
        if (without := self._without_levels(name)) != name:
            yield without
        plain = as_compared(name)
        if owner and plain.startswith(f"{as_compared(owner)}{STATE}/"):
            parts = plain.removeprefix(f"{as_compared(owner)}{STATE}/").split("/")
            yield from {f"{owner}{STATE}/{'/'.join(parts[1:])}", f"{owner}{STATE}/{parts[-1]}"}


def _order_of_leaves(live: LiveGraph) -> dict[str, int]:
    """The position of each live leaf in the order of a ``state_dict()``, by its path in the form in which paths are compared."""
    positions: dict[str, int] = {}
    pending, seen = [0], {0}
    while pending:
        number = pending.pop()
        below = [child for _, child in live.edges[number] if child not in seen]
        if not live.edges[number]:
            positions[as_compared(live.paths[number])] = len(positions)
        seen.update(below)
        pending += reversed(list(dict.fromkeys(below)))
    return positions


def names_compared(reader: ForeignReader, live: LiveGraph) -> str:
    """The remedy if no name in the file is that of a live object."""
    if reader.root.is_leaf:
        return "the file is one tensor without a name: make its variable or tensor the root, as in milepost.Checkpoint(variable)"
    saved = list(reader.root.children)
    edges = [edge for edge in live.edges[0] if edge.name not in OWN]
    for name, child in edges:
        if {edge.name for edge in live.edges[child]} & set(saved):
            return (
                f"the file holds only what is in {name!r}: make that object the root, as in milepost.Checkpoint({name})"
            )
    names = {edge.name for edge in edges}
    for name, item in reader.root.children.items():
        if set(item.children) & names:
            return f"the file holds these names under {name!r}: use that name, as in milepost.Checkpoint({name}=...)"
    listed = ", ".join(map(repr, saved[:_MOST_LISTED])) + (", ..." if len(saved) > _MOST_LISTED else "")
    return f"give the objects the names that the file has: {listed}"
