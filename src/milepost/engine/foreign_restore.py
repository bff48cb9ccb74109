"""One restore from a file of another library. It may hold objects that are not read, and lack values with defaults."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from milepost.bundle import BundleReader
from milepost.engine.matched_restore import OWN
from milepost.engine.options import CheckpointOptions
from milepost.engine.report import Entry, Outcome
from milepost.engine.restore import Restoration
from milepost.engine.together.rounds import Rounds
from milepost.engine.translation import UNTRANSLATED, Translated, Translation
from milepost.errors import MilepostError
from milepost.foreign import ForeignReader, GraphBuilder, HeldObject, called
from milepost.foreign.items import walked
from milepost.foreign.optimizers import GROUPS, STATE
from milepost.graph.contract.operation import Operation
from milepost.graph.keys import SLOT, tensor_key
from milepost.graph.live_graph import LiveGraph
from milepost.graph.object_graph import ObjectGraph
from milepost.graph.selection import paths_of_optimizers, selected
from milepost.graph.traversal import walk

_LEFT_OUT: Final = "a function that is not read; the live object has its own"
_STATE: Final = re.compile(r"(?:^|[/.])state[/.]")
"""Names of the state of a PyTorch optimizer."""
_MOST_LISTED: Final = 5
_KEPT: Final = "not in the file; the live value stays, and load_state_dict of PyTorch accepts this too"


class Findings:
    """The notes that a report adds for a file of another library.

    Args:
        objects: By node, the objects that milepost does not make.
        notes: By key, where a value comes from that is not in the file itself.
        left_out: By key, functions that the file names and that the live object has itself.
        kept: Live objects that files of this age lack. They keep their values.
    """

    def __init__(
        self,
        objects: Mapping[int, HeldObject],
        notes: Mapping[str, str],
        left_out: Mapping[str, str],
        kept: Sequence[Any],
    ) -> None:
        self.objects = objects
        self.notes = notes
        self.left_out = left_out
        self._kept = []
        for each in kept:
            with suppress(TypeError):
                self._kept.append(weakref.ref(each))

    def kept(self) -> set[int]:
        """The identities of the live objects that keep their values."""
        return {id(obj) for each in self._kept if (obj := each()) is not None}


class ForeignRestoration(Restoration):
    """A restore from a file of another library.

    Args:
        reader: The open file.
        graph: Its object graph, made for the live objects.
        options: As for `Restoration`.
        findings: The notes that the report adds.
        optimizers: The nodes of optimizers all of whose state is in the file.
        rounds: As for `Restoration`.
        translated: As for `Restoration`.
    """

    def __init__(
        self,
        reader: BundleReader,
        graph: ObjectGraph,
        options: CheckpointOptions,
        findings: Findings,
        optimizers: Collection[int],
        rounds: Rounds | None = None,
        translated: Translated = UNTRANSLATED,
    ) -> None:
        super().__init__(reader, graph, options, never_saved=OWN, rounds=rounds, translated=translated)
        self._findings = findings
        self._optimizers = optimizers

    def _holds_slots(self, node: int) -> bool:
        return node in self._optimizers

    def _account_of_saved(
        self, deferred: Collection[int], living: Iterable[tuple[int, Any]], *, with_matched: bool = True
    ) -> list[Entry]:
        notes = self._findings.notes
        entries = [
            replace(entry, saved="", note=notes[entry.key])
            if entry.key in notes and entry.outcome is Outcome.MATCHED
            else entry
            for entry in super()._account_of_saved(deferred, living, with_matched=with_matched)
        ]
        return [*entries, *self._account_of_objects(deferred)]

    def _account_of_objects(self, deferred: Collection[int]) -> list[Entry]:
        entries = []
        for node, held in self._findings.objects.items():
            outcome = Outcome.DEFERRED if node in deferred and not held.is_unread else Outcome.UNEXPECTED
            if self.bound(node) is not None:
                outcome = Outcome.MATCHED
            note = "an object, which milepost does not make" + (
                "" if held.is_unread else "; its contents are read by name"
            )
            entries.append(Entry(outcome, called(held.key), held.kind, note=note))
        for key, kind in self._findings.left_out.items():
            entries.append(Entry(Outcome.MATCHED, key, kind, note=_LEFT_OUT))
        return entries

    def _account_of_live(
        self,
        operation: Operation,
        living: Iterable[tuple[int, Any]],
        *,
        only_unrestored: bool = False,
    ) -> list[Entry]:
        entries = super()._account_of_live(operation, living, only_unrestored=only_unrestored)
        kept = self._findings.kept()
        if not kept:
            return entries
        live = walk(operation, slots=False)
        keys = {
            tensor_key(live.paths[number], value.name)
            for number, values in live.values()
            if id(live.objects[number]) in kept
            for value in values
        }
        told = [
            replace(entry, outcome=Outcome.MATCHED, note=_KEPT) if entry.key in keys else entry for entry in entries
        ]
        return [entry for entry in told if not only_unrestored or entry.outcome is Outcome.MISSING]


def foreign_restoration(
    reader: ForeignReader,
    live: LiveGraph,
    options: CheckpointOptions,
    rounds: Rounds | None,
    translation: Translation,
) -> ForeignRestoration:
    """Makes the object graph of a file for the live objects, and a restore from it.

    Raises:
        MilepostError: No object graph can be made of the file. The error names the file.
    """
    try:
        optimizers = paths_of_optimizers(live) if translation.renames else frozenset()
        left_out = reader.rename(_new_names(reader, optimizers, translation)) if translation.renames else []
        builder = GraphBuilder(reader, live)
        graph, translated = builder.build(), Translated(translation, left_out)
        if translation.selects:
            below = tuple(f"{path}/" for path in optimizers)
            found = selected(graph, partial(_takes, translation, below), translation.ignores)
            graph = found.graph
            translated = Translated(translation, [*left_out, *found.left_out], variables=found.variables)
    except MilepostError as error:
        raise error.with_context(file=reader.prefix) from None
    return ForeignRestoration(
        reader,
        graph,
        options,
        Findings(builder.objects, builder.notes, builder.left_out, [live.objects[number] for number in builder.kept]),
        () if any(map(_STATE.search, left_out)) else builder.optimizers,
        rounds,
        translated,
    )


def _new_names(
    reader: ForeignReader, optimizers: Collection[str], translation: Translation
) -> Callable[[str], str | None]:
    """The function that gives each value its name, or None if it is left out.

    Hyperparameters say what the state of an optimizer belongs to. So they are left out later (`_takes`), unless all of the state is.
    """
    names = {
        item.key: translation.live_path(item.key, dotted=reader.packs) for item in walked(reader.root) if item.is_leaf
    }
    taken = {key for key, name in names.items() if name is not None and translation.takes(name)}
    needed = tuple(
        f"{path}/{GROUPS}/"
        for path in map(_plain, optimizers)
        if any(_plain(names[key] or "").startswith(f"{path}/{STATE}/") for key in taken)
    )

    def new_name(key: str) -> str | None:
        name = names[key] if key in names else translation.live_path(key, dotted=reader.packs)
        is_taken = key in taken if key in names else name is not None and translation.takes(name)
        return name if is_taken or (name is not None and _plain(name).startswith(needed)) else None

    return new_name


def _takes(translation: Translation, optimizers: tuple[str, ...], path: str) -> bool:
    """Whether a value of the graph is taken. The names of all but optimizers and slot variables were looked at before."""
    return not (SLOT in path or path.startswith(optimizers)) or translation.takes(path)


def _plain(name: str) -> str:
    return name.replace(".", "/")


def names_compared(reader: ForeignReader, live: LiveGraph) -> str:
    """The remedy if no name in the file is that of a live object."""
    if reader.root.is_leaf:
        return "the file is one tensor without a name: make its variable or tensor the root, as in milepost.Checkpoint(variable)"
    saved = list(reader.root.children)
    edges = [edge for edge in live.edges[0] if edge.name not in OWN]
    for name, child in edges:
        if {edge.name for edge in live.edges[child]} & set(saved):
            return (
                f"the file holds only what is in {name!r}: pass that object to milepost.load_weights(), "
                f"or make it the root, as in milepost.Checkpoint({name})"
            )
    names = {edge.name for edge in edges}
    for name, item in reader.root.children.items():
        if set(item.children) & names:
            return f"the file holds these names under {name!r}: use that name, as in milepost.Checkpoint({name}=...)"
    listed = ", ".join(map(repr, saved[:_MOST_LISTED])) + (", ..." if len(saved) > _MOST_LISTED else "")
    return f"give the objects the names that the file has: {listed}"
