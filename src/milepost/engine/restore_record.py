"""The record of a restore: what it has bound, deferred and found missing, and what the program has said of it since.

It is plain data. A restore changes it (`milepost.restoring.restore`). Reports and warnings are made from it (`milepost.restoring.entries`).
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Protocol

from milepost.bundle import BundleReader, CastingReader
from milepost.deferred.identity import Bindings, Reference, uids
from milepost.deferred.position import DeferredNodes
from milepost.deferred.saved_nodes import SavedNodes
from milepost.deferred.table import stop_waiting
from milepost.engine.left_out import NOTHING, LeftOut
from milepost.engine.options import CheckpointOptions
from milepost.engine.report import ReportEntry
from milepost.engine.translation import SAVE_COUNTER, Translated
from milepost.errors import user_place
from milepost.graph.saved.object_graph import ObjectGraph

OWN: Final = frozenset({SAVE_COUNTER})
"""Names below the root that only milepost's checkpoints have, since milepost adds them itself."""


@dataclass(frozen=True)
class FileNotes:
    """What reports say of a file of another library, besides what is said of every file.

    Attributes:
        objects: By node, the entries of objects that milepost does not make, with the outcome that each has if the node is deferred.
        notes: By key, where a value comes from that is not in the file itself.
        left_out: The entries of functions that the file names and that the live object has itself.
        kept: Live objects that files of this age lack. They keep their values.
        versions: The versions of classes of saved modules, as `milepost.foreign.GraphBuilder` has them. None if the object graph has them.
        whole: The nodes of optimizers all of whose state is in the file. None if that is so of each optimizer.
    """

    objects: Mapping[int, ReportEntry] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    left_out: Sequence[ReportEntry] = ()
    kept: Sequence[Reference] = ()
    versions: Mapping[int, Mapping[str, Any]] | None = None
    whole: Collection[int] | None = None


_NO_GRAPH: Final = ObjectGraph(())
NO_NOTES: Final = FileNotes()


class Asking(Protocol):
    """A status, as the warnings at the end of the process use it. It knows the present live objects."""

    def warn_of_missing(self) -> None: ...


class RestoreRecord:
    """What is known of one restore. It lives as long as its status, or as long as one of its values is deferred.

    Args:
        reader: The open checkpoint.
        translated: The changes that were made in the object graph, and the other changes for the program.
        options: Whether slot variables are skipped, what may be left out, who is told of the progress, and whether all values are verified first.
        graph: Its object graph, as this process takes it. A name-based checkpoint has none, so its graph has no nodes.
        never_saved: Names below the root that files of this kind never have. They do not count as missing.
        file: The notes of a file of another library.
        left_out: What the save has left out on purpose, by live names.

    Attributes:
        source: The open checkpoint.
        reader: The same. If numbers are converted, it converts them.
        casting: This reader, if numbers are converted; else None.
        uid: Its number. Later restores win.
        saved: The nodes of the object graph.
        place: The line of the program that restored.
        bound: The live object that matches each node. That of node 0 is the root.
        taken: The keys of the values that were taken from a name-based checkpoint.
        deferred: The deferred nodes.
        unused: By bound node, the names of saved values that the live object does not have, or does not take.
        contradicted: The nodes whose live object has the values of another node, each with that other node.
        missing: By bound node, the names of live values that were not saved.
        filled: The live objects for which nothing was saved, and which another object has given values, by identity.
        lacking: The live plain values, and members of lists of values, for which nothing was saved, by identity.
        stayed: The state of optimizers that the restore does not change because the checkpoint lacks it, by identity.
        may_lack: Whether there may be live objects for which nothing was saved.
        statuses: The statuses that exist, which warn at the end of the process.
        is_watched: Whether the status still exists.
        is_asked: Whether the program has asked the status for a report or an assertion.
        partial_expected: Whether `expect_partial` was called, so that there is no warning of values that no object took.
        has_warned: Whether the warning of values that no object took was issued.
        equal_to_base: The keys of the values that the save has left out, and whose live ones have the digests of its base.
    """

    def __init__(
        self,
        reader: BundleReader,
        translated: Translated,
        options: CheckpointOptions,
        graph: ObjectGraph = _NO_GRAPH,
        never_saved: Collection[str] = (),
        file: FileNotes = NO_NOTES,
        left_out: LeftOut = NOTHING,
    ) -> None:
        self.source = reader
        self.casting = CastingReader(reader) if translated.translation.cast else None
        self.reader: BundleReader = self.casting or reader
        self.translated = translated
        self.options = options
        self.graph = graph
        self.never_saved = never_saved
        self.file = file
        self.left_out = left_out
        self.uid = next(uids)
        self.place = user_place()
        self.saved = SavedNodes(self.reader, graph)
        self.bound = Bindings(self.uid)
        self.taken: set[str] = set()
        self.deferred = DeferredNodes(self.reader)
        self.unused: dict[int, frozenset[str]] = {}
        self.contradicted: dict[int, int] = {}
        self.missing: dict[int, frozenset[str]] = {}
        self.filled: dict[int, Reference] = {}
        self.lacking: dict[int, Reference] = {}
        self.stayed: dict[int, Reference] = {}
        self.may_lack = False
        self.statuses: weakref.WeakSet[Asking] = weakref.WeakSet()
        self.is_watched = True
        self.is_asked = False
        self.partial_expected = False
        self.has_warned = False
        self.equal_to_base: frozenset[str] = frozenset()

    @cached_property
    def nones(self) -> frozenset[str]:
        """The keys of the tensors that stand for None."""
        return self.graph.nones() | self.translated.nones

    @property
    def matched_nothing(self) -> bool:
        """Whether no live object except the root has taken anything."""
        return len(self.bound) <= 1 and not self.taken

    def is_skipped(self, node: int) -> bool:
        """Whether a node is a slot variable, and these are skipped."""
        return self.options.experimental_skip_slot_variables and node in self.saved.slot_nodes

    def stop_waiting(self) -> None:
        """Ends the restore: no object gets a value any more. Closes the files."""
        stop_waiting(self.uid)
        self.reader.release(for_good=True)

    def expect_partial(self) -> None:
        """Ends warnings of values that no object takes. Closes the files, which are opened again for objects that come later."""
        self.partial_expected = True
        self.reader.release(for_good=False)

    def unwatch(self) -> None:
        """Records that the status no longer exists."""
        self.is_watched = False
        if self.deferred.any_superseded:
            stop_waiting(self.uid, superseded_only=True)
