"""Opens a checkpoint of any kind, and restores it into live objects."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from milepost.bundle import BundleReader, index_path, open_whole
from milepost.collector import collection_paused
from milepost.distributed.find import rounds_of
from milepost.engine.layouts.steps import Step
from milepost.engine.left_out import LeftOut
from milepost.engine.options import CheckpointOptions, storage_of
from milepost.engine.report import Outcome, Report
from milepost.engine.restore_record import OWN
from milepost.engine.translation import AS_SAVED, UNTRANSLATED, Translated, Translation
from milepost.engine.turns import RESTORE, Turn
from milepost.engine.unasked import listed
from milepost.engine.watching import watchers
from milepost.errors import (
    CheckpointNotFoundError,
    CorruptCheckpointError,
    MilepostError,
    UnrestoredWarning,
    UnsupportedError,
    UntrackableError,
    importing,
    printable,
    warn,
)
from milepost.graph.contract.operation import Operation
from milepost.graph.description import counted
from milepost.graph.frameworks import import_adapters
from milepost.graph.keys import ATTRIBUTES, OBJECT_GRAPH
from milepost.graph.saved.object_graph import ObjectGraph
from milepost.graph.saved.renaming import renamed
from milepost.graph.saved.selection import names_of_live, paths_of_optimizers, selected
from milepost.graph.traversal import walk
from milepost.logs import heard, seconds_since
from milepost.restoring.check import has_other_shape
from milepost.restoring.exported import REMEDY, exported_lists, is_exported
from milepost.restoring.lost_values import refuse_lost_values
from milepost.restoring.name_based import NameBasedRestoration
from milepost.restoring.restore import Restoration
from milepost.restoring.status import (
    CheckpointLoadStatus,
    ForeignStatus,
    LoadStatus,
    NameBasedStatus,
    SavedModelStatus,
    View,
)
from milepost.series.metadata import read_metadata
from milepost.series.saved_model import checkpoint_of, is_of_saved_model
from milepost.storage import Storage
from milepost.storage.paths import check_not_empty
from milepost.tensor import TensorSpec
from milepost.tensor.dtype import STRING

if TYPE_CHECKING:
    from milepost.distributed.rounds import Rounds
    from milepost.foreign import ForeignReader

_SAVED_MODEL_REMEDY: Final = (
    "a SavedModel has the model itself as its root: pass the model alone, as in milepost.Checkpoint(model).read(path)"
)
_TRIES: Final = 20
"""How often a restore starts again because the checkpoint was replaced meanwhile."""


@collection_paused()
def read_object_graph(reader: BundleReader) -> ObjectGraph | None:
    """The object graph of a checkpoint, or None if it is a name-based one or a file of another library.

    Raises:
        CorruptCheckpointError: The graph is damaged.
    """
    if OBJECT_GRAPH not in reader or not reader.origin.is_checkpoint:
        return None
    try:
        if (spec := reader.spec(OBJECT_GRAPH)) != TensorSpec(STRING, ()):
            raise CorruptCheckpointError(
                "an object graph is a string without dimensions", expected="string[]", found=str(spec)
            )
        return ObjectGraph.deserialize(reader.read(OBJECT_GRAPH).item())
    except MilepostError as error:
        raise error.with_context(key=OBJECT_GRAPH, file=reader.prefix) from None


def nones_of(reader: BundleReader) -> Collection[str]:
    """The keys of the tensors that stand for None. There are none if the object graph is damaged, which is said where it is needed."""
    try:
        graph = read_object_graph(reader)
    except MilepostError:
        return ()
    return () if graph is None else graph.nones()


def open_any(storage: Storage, path: str, convert: Sequence[Step] = ()) -> BundleReader:
    """Opens a checkpoint, a SavedModel, or a file or directory of another library.

    Args:
        storage: Where it is.
        path: The path.
        convert: The steps that lay out its values otherwise.

    Raises:
        MilepostError: As for `open_whole`, or the steps do not fit the file.
    """
    reader = _opened(storage, path)
    if not convert:
        return reader
    try:
        with importing():
            from milepost.engine.layouts.opening import laid_out  # few programs lay out values otherwise

        return laid_out(reader, read_object_graph(reader), convert)
    except BaseException:
        reader.close()
        raise


def _opened(storage: Storage, path: str) -> BundleReader:
    check_not_empty(path)
    if not storage.is_file(index_path(path)):
        path = checkpoint_of(storage, path)
        with importing():
            from milepost.foreign import open_foreign  # takes milliseconds, and most checkpoints have an index

        foreign = open_foreign(storage, path)
        if foreign is not None:
            return foreign
    return open_whole(storage, path)


def load_into(prefix: str, view: View, options: CheckpointOptions, translation: Translation = AS_SAVED) -> LoadStatus:
    """Restores a checkpoint, a SavedModel, or a file or directory of another library.

    Args:
        prefix: The checkpoint, the SavedModel, the file or the directory.
        view: Begins an operation at the live root.
        options: How to restore.
        translation: The changes between the file and the program.

    Raises:
        CheckpointNotFoundError: There is no such checkpoint.
        CorruptCheckpointError: The checkpoint is damaged. Nothing was changed.
        MismatchError: A saved value does not fit its live object. Nothing was changed.
        AdapterError: A live object belongs to a framework whose installed version milepost cannot use. Nothing was changed.
        UntrackableError: A live object raises an error when its children or values are read. Nothing was changed.
        CoordinationError: One of several processes failed or did not answer. Nothing was changed on any process.
        InProgressError: Another save or restore of the same objects is in progress. Nothing was changed.
    """
    if translation.skip_mismatch:
        translation = _without_misfits(prefix, view, options, translation)
    rounds = rounds_of(options, f"restore {prefix}")
    turn = Turn(RESTORE, f"the restore of {prefix}", view, options.process_timeout)
    if rounds is None:
        with turn:
            return _load_any(prefix, view, options, None, translation)
    try:
        with turn:
            status = _load_any(prefix, view, options, rounds, translation)
    except BaseException as error:
        rounds.fail(error)
        raise
    rounds.end()
    return status


def _without_misfits(prefix: str, view: View, options: CheckpointOptions, translation: Translation) -> Translation:
    """A translation in which live objects keep their values if the saved ones have other shapes. A warning lists them."""
    import_adapters()
    tried = replace(translation, tell=lambda message: None)
    with open_any(storage_of(options), prefix, translation.convert) as reader:
        restoration, operation, *_ = _prepared(reader, view, options, None, tried)
        pairs = [(entry, obj) for entry, obj in restoration.misfits(operation) if has_other_shape(entry)]
        if not pairs:
            return translation
        live = walk(operation)
    misfits, identities = [entry for entry, _ in pairs], {id(obj) for _, obj in pairs}
    warn(
        f"{prefix}: {counted(len(misfits), 'saved value')} {'has another shape than the' if len(misfits) == 1 else 'have other shapes than the'} live "
        f"{'object, which keeps its value' if len(misfits) == 1 else 'objects, which keep their values'}:{listed(misfits)}",
        UnrestoredWarning,
    )
    # a file of Keras has other names than the live objects
    names = [entry.key.partition(ATTRIBUTES)[0] for entry in misfits]
    paths = [path for path, obj in zip(live.paths, live.objects, strict=True) if id(obj) in identities]
    return translation.keeping([*(translation.live_path(name) or name for name in names), *paths])


def _load_any(
    prefix: str, view: View, options: CheckpointOptions, rounds: Rounds | None, translation: Translation
) -> LoadStatus:
    import_adapters()
    storage, started = storage_of(options), time.monotonic()
    try:
        for tries_left in range(_TRIES, -1, -1):
            reader = open_any(storage, prefix, translation.convert)
            try:
                with collection_paused() as pause:
                    prepared = _prepared(reader, view, options, rounds, translation)
                    _warn_of_unused_names(prepared, translation)
                    prepared.restoration.restore(prepared.operation, pause)
                    status = prepared.status()
                break
            except BaseException as error:
                # If there are very many data files, some are opened late, and may belong to another checkpoint by then.
                is_late = isinstance(error, (CorruptCheckpointError, CheckpointNotFoundError)) and reader.is_replaced()
                # The traceback of the error may keep the reader alive. If Ctrl-C comes when all is restored, deferred values need it.
                if isinstance(error, Exception):
                    reader.close()
                else:
                    reader.release(for_good=False)
                if not (is_late and tries_left) or (rounds is not None and rounds.has_begun):
                    raise
    except (UntrackableError, UnsupportedError) as error:
        if (
            error.key is None
        ):  # a match knows only saved paths, so a walk over the live objects finds the path of the one that fails
            for _ in walk(view(), slots=False).values():
                pass
        raise
    _log_restored(prepared.restoration, started)  # here, where an error of the program's log undoes nothing
    for watcher in watchers:
        watcher.restored(
            prepared.restoration.record.reader.prefix, prepared.operation, None if rounds is None else rounds.rank
        )
    return status


def preview(prefix: str, view: View, options: CheckpointOptions, translation: Translation = AS_SAVED) -> Report:
    """The report that the status of `load_into` would have. No object changes, and no value is read, except to compare
    two values that one live object matches.

    Arguments are those of `load_into`. Values that do not fit are in the report. Only this process is concerned.

    Raises:
        CheckpointNotFoundError: There is no such checkpoint.
        CorruptCheckpointError: The index or the object graph of the checkpoint is damaged.
        AdapterError: A live object belongs to a framework whose installed version milepost cannot use.
        UntrackableError: A live object raises an error when its children or values are read.
    """
    import_adapters()
    with open_any(storage_of(options), prefix, translation.convert) as reader:
        prepared = _prepared(reader, view, options, None, translation)
        _warn_of_unused_names(prepared, translation)
        return prepared.restoration.preview(prepared.operation)


def matched_values(
    prefix: str, view: View, options: CheckpointOptions, translation: Translation = AS_SAVED
) -> list[tuple[str, Any]] | None:
    """The keys of the saved values that `load_into` would restore, each with the live object for it. No object changes.

    Arguments are those of `load_into`.

    Returns:
        None if the file has no object graph.

    Raises:
        MilepostError: As for `preview`.
        MismatchError: A saved value does not fit its object.
    """
    import_adapters()
    with open_any(storage_of(options), prefix, translation.convert) as reader:
        prepared = _prepared(reader, view, options, None, translation)
        if not isinstance(prepared.restoration, Restoration):
            return None
        _warn_of_unused_names(prepared, translation)
        return prepared.restoration.matched_values(prepared.operation)


class _Prepared(NamedTuple):
    """A prepared restore."""

    restoration: Restoration | NameBasedRestoration
    operation: Operation
    status: Callable[[], LoadStatus]
    whole_of: Callable[[str], str] = str


def _log_restored(restoration: Restoration | NameBasedRestoration, started: float) -> None:
    if (log := heard()) is not None:
        counts, path = restoration.outcomes(), printable(restoration.record.reader.prefix, one_line=True)
        deferred = f", {counts[Outcome.DEFERRED]} deferred" if counts[Outcome.DEFERRED] else ""
        log.info("restored %s: %d values%s, %s", path, counts[Outcome.MATCHED], deferred, seconds_since(started))


def _warn_of_unused_names(prepared: _Prepared, translation: Translation) -> None:
    if translation is AS_SAVED:
        return

    def live() -> Iterable[str]:
        live = walk(prepared.operation, slots=False)
        if not isinstance(prepared.restoration, NameBasedRestoration):
            return live.paths  # other names select only where the file has them
        return chain.from_iterable(names_of_live(live).values())

    record = prepared.restoration.record
    reader = record.reader
    if translation.convert:
        with importing():
            from milepost.engine.layouts.opening import warn_of_copies  # few programs lay out values otherwise

        nodes = record.graph.nodes
        warn_of_copies(
            record.source, (value.key for node in nodes for value in node.values) if nodes else reader.keys()
        )
    translation.warn_of_unused(reader, live, dotted=reader.origin.dotted, whole_of=prepared.whole_of)


def _prepared(
    reader: BundleReader,
    view: View,
    options: CheckpointOptions,
    rounds: Rounds | None,
    translation: Translation,
) -> _Prepared:
    if not reader.origin.is_checkpoint:
        return _prepared_foreign(cast("ForeignReader", reader), view, options, rounds, translation)
    graph = read_object_graph(reader)
    operation = view()
    if graph is None:
        by_name = NameBasedRestoration(reader, translation, options, rounds)
        return _Prepared(by_name, operation, lambda: NameBasedStatus(by_name, view))
    if is_of_saved_model(storage_of(options), reader.prefix):
        return _prepared_saved_model(reader, graph, view, options, rounds, translation)
    refuse_lost_values(reader, graph, operation)
    translated = UNTRANSLATED
    if translation is not AS_SAVED:
        graph, translated = _translated(graph, translation, operation)
    left_out = LeftOut.parsed(read_metadata(reader).left_out).renamed(translation.live_path)
    for path in left_out.paths:
        translation.unused.met_live(path)  # a name of what the save has left out is no typing error
    restoration = Restoration(reader, graph, options, rounds=rounds, translated=translated, left_out=left_out)
    return _Prepared(restoration, operation, lambda: CheckpointLoadStatus(restoration, view))


def _translated(graph: ObjectGraph, translation: Translation, operation: Operation) -> tuple[ObjectGraph, Translated]:
    nones = graph.nones()
    left_out: list[str] = []
    if translation.rename:
        graph, left_out = renamed(graph, translation.live_path, others=not callable(translation.rename))
    if not translation.selects:
        return graph, Translated(translation, left_out, left_out, nones.intersection(left_out))
    optimizers = paths_of_optimizers(walk(operation, slots=False))
    selection = selected(graph, translation.takes, translation.ignores, optimizers)
    all_left_out = [*left_out, *selection.left_out]
    return selection.graph, Translated(
        translation, all_left_out, left_out, nones.intersection(all_left_out), selection.variables
    )


def _prepared_saved_model(
    reader: BundleReader,
    graph: ObjectGraph,
    view: View,
    options: CheckpointOptions,
    rounds: Rounds | None,
    translation: Translation,
) -> _Prepared:
    operation = view()
    exported = is_exported(graph)
    lists = exported_lists(graph, operation.root) if exported else []
    names = {name for name, _ in lists}
    graph, translated = _translated(graph, translation, operation)
    restoration = Restoration(reader, graph, options, never_saved=OWN, rounds=rounds, translated=translated)

    def status() -> LoadStatus:
        hint = ""
        if exported and not lists:
            hint = REMEDY
        elif restoration.record.matched_nothing:
            hint = _SAVED_MODEL_REMEDY
        if hint:
            warn(f"{reader.prefix}: nothing was restored from this SavedModel: {hint}", UnrestoredWarning)
        return SavedModelStatus(restoration, view, hint)

    operation.attached = [*(pair for pair in operation.attached if pair[0] not in names), *lists]
    return _Prepared(restoration, operation, status)


def _prepared_foreign(
    reader: ForeignReader, view: View, options: CheckpointOptions, rounds: Rounds | None, translation: Translation
) -> _Prepared:
    # Few programs restore such files, and the import takes milliseconds.
    with importing():
        from milepost.restoring.foreign_restore import foreign_restoration, names_compared

    operation = view()
    live = walk(operation, slots=False)
    restoration, whole_of = foreign_restoration(reader, live, options, rounds, translation)

    def status() -> LoadStatus:
        hint = names_compared(reader, live) if restoration.record.matched_nothing else ""
        return ForeignStatus(restoration, view, hint)

    return _Prepared(restoration, operation, status, whole_of)
