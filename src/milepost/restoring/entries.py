"""The entries of reports, and the warnings, that are made from the record of a restore of an object-based checkpoint.

They are computed when they are asked for, from the record and a new walk over the live objects. Assertions of the status use the same
entries as its report, so they never disagree with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any, Final

from milepost.collector import collection_paused
from milepost.deferred.identity import Reference, last_restore
from milepost.deferred.rescan import look_again_below
from milepost.engine import unasked
from milepost.engine.omissions import unsaveable
from milepost.engine.options import selection_of
from milepost.engine.report import Outcome, Report, ReportEntry, sorted_report
from milepost.engine.restore_record import RestoreRecord
from milepost.engine.translation import SAVE_COUNTER
from milepost.errors import StorageError, UnrestoredWarning, importing, warn
from milepost.graph.adapter import adapter_of, adapter_of_type
from milepost.graph.contract.operation import Operation
from milepost.graph.description import counted
from milepost.graph.keys import ATTRIBUTES, Subtrees, tensor_key, unescape
from milepost.graph.live_graph import LiveGraph
from milepost.graph.omissions import is_at_or_below
from milepost.graph.plain.values import SHOWN_NONE, SPEC_OF_NONE
from milepost.graph.saved.edges import by_live_names
from milepost.graph.traversal import live_children, walk
from milepost.graph.trees.places import CheckedLeaf, Place
from milepost.restoring.check import live_spec
from milepost.restoring.converted import follow_converted
from milepost.restoring.growth import came_later
from milepost.restoring.unsaved_slots import STAYED

_NONE: Final[frozenset[str]] = frozenset()
_FILLED: Final = "not in the file under this name; the object above it has given it a value when it loaded its state"
_KEPT: Final = "not in the file; the live value stays, and load_state_dict of PyTorch accepts this too"
_MOST_NAMED: Final = 8
_EMPTY: Final = str(SPEC_OF_NONE)


def report_of(record: RestoreRecord, operation: Operation) -> Report:
    """A report of every saved value, and of every live value that can be reached from the root of the operation now."""
    return sorted_report(record.reader.prefix, _entries(record, operation))


def unmatched_entries(record: RestoreRecord, operation: Operation) -> list[ReportEntry]:
    """The entries of `report_of` for all values but those that were matched, in any order."""
    entries = _entries(record, operation, with_matched=False)
    return [entry for entry in entries if entry.outcome is not Outcome.MATCHED]


def missing_entries(record: RestoreRecord, operation: Operation) -> list[ReportEntry]:
    """Live values that are not in the checkpoint, and that no later restore has assigned, except those of `warn_of_stayed`."""
    follow_converted(operation, record)
    live = entries_of_live(record, operation, record.bound.living(), only_unrestored=True)
    return [entry for entry in live if not entry.skipped_by_tensorflow and entry.note != STAYED]


def warn_of_stayed(record: RestoreRecord, operation: Operation) -> None:
    """Warns of the state that optimizers have made since the save, if it stays."""
    live = entries_of_live(record, operation, record.bound.living(), only_unrestored=True)
    stayed = [replace(entry, note="") for entry in live if entry.note == STAYED]
    if stayed:
        was, keeps, it = ("was", "keeps", "it") if len(stayed) == 1 else ("were", "keep", "them")
        warn(
            f"{record.reader.prefix}: {counted(len(stayed), 'value')} of an optimizer {was} made after this checkpoint was saved, and {keeps} "
            f"what the training since has left in {it}, because the framework does not remove state from an optimizer. To go on exactly "
            "as the checkpoint did, restore into a new optimizer:"
            f"{unasked.listed(stayed)}",
            UnrestoredWarning,
            record.place,
        )


def warn_of_unused(record: RestoreRecord) -> None:
    """Warns once of saved values that no object took."""
    bound, unused = record.bound, record.unused
    if record.has_warned or record.partial_expected or not bound:
        return
    record.has_warned = True
    lost = [
        f"{key} ({note})" if (note := _contradiction(record, number)) else key
        for number in range(len(record.graph.nodes))
        if (number not in bound or number in unused) and not record.is_skipped(number)
        for value, key in record.saved.values(number)
        if number not in bound or unescape(value.name) in unused.get(number, _NONE)
    ]
    if lost:
        warn(
            f"{record.reader.prefix}: {counted(len(lost), 'saved value')} {'was' if len(lost) == 1 else 'were'} never restored to any object "
            f"(call expect_partial() on the status if that is intended):{unasked.listed(lost)}",
            UnrestoredWarning,
            record.place,
        )


def took_no_values(record: RestoreRecord) -> bool:
    """Whether no live object got values, except the `save_counter`, which every restore makes."""
    counters = {edge.node for edge in record.graph.nodes[0].children if edge.name == SAVE_COUNTER}
    return not any(record.graph.nodes[node].values for node in record.bound if node not in counters)


def outcomes_of(record: RestoreRecord) -> Counter[Outcome]:
    """How many saved values have which outcome now, as far as that is known without a look at the live objects."""
    outcomes = _outcomes(record, _deferred_nodes(record), record.bound.living())
    counts = Counter(outcome for *_, outcome in outcomes)
    counts[Outcome.IGNORED] += len(record.translated.left_out)
    return counts


def matched_entry(record: RestoreRecord, key: str) -> ReportEntry:
    """The entry for a value that was assigned."""
    spec, origin = _saved_spec(record, key), _origin(record, key)
    if record.casting is None or key not in record.casting.loss:
        return ReportEntry(Outcome.MATCHED, key, spec, spec, origin)
    loss = record.casting.loss[key]
    note = f"converted; the largest relative error is {loss:.1e}" if loss else "converted without a loss"
    return ReportEntry(
        Outcome.MATCHED, key, str(record.casting.saved(key)), spec, "; ".join(filter(None, [origin, note]))
    )


def _origin(record: RestoreRecord, key: str) -> str:
    """Of which saved values ``convert`` has made a value; empty if it is as it was saved."""
    if not record.translated.translation.convert:
        return ""
    with importing():
        from milepost.engine.layouts.opening import sources_of  # few programs lay out values otherwise

    names = [each.partition(ATTRIBUTES)[0] for each in sources_of(record.source, key)]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"made of {', '.join(names[:_MOST_NAMED])}{more}" if names else ""


@collection_paused()
def _entries(record: RestoreRecord, operation: Operation, *, with_matched: bool = True) -> list[ReportEntry]:
    look_again_below(operation)
    _follow_exchanges(record, operation)
    with suppress(StorageError):  # without the files, a converted object counts as another one
        follow_converted(operation, record)
    living = record.bound.living()
    return [
        *entries_of_saved(record, _deferred_nodes(record), living, with_matched=with_matched),
        *entries_of_live(record, operation, living),
    ]


def _follow_exchanges(record: RestoreRecord, operation: Operation) -> None:
    """Binds the present objects instead of those that were replaced since the restore, such as buffers."""
    bound = record.bound
    holders = [(saved, bound[number]) for number, saved in record.graph.inner]
    living = {id(obj) for _, obj in bound.living()}
    for saved, obj in holders:
        if obj is None:
            continue
        adapter = adapter_of_type(type(obj))
        if adapter is None or adapter.leaf:
            continue
        names = adapter.exchanged(obj) if "exchanged" in adapter.overrides else ()
        children = dict(live_children(operation, adapter, obj)) if names else {}
        for name, child in by_live_names(adapter, obj, saved.children, children) if names else ():
            if name in names and name in children and child in bound and id(children[name]) not in living:
                bound[child] = children[name]
        for variable, name, slot in saved.slots:
            if slot in bound and (present := adapter.slot(obj, bound[variable], name)) is not None:
                bound[slot] = present


def _outcomes(
    record: RestoreRecord, deferred: Collection[int], living: Iterable[tuple[int, Any]], *, with_matched: bool = True
) -> Iterator[tuple[int, str, Any, Outcome]]:
    """Node, key, live object and outcome of each saved value."""
    objects = dict(living)
    skips_slots = record.options.experimental_skip_slot_variables
    for number in range(len(record.graph.nodes)):
        if not (with_matched or number in record.unused or number not in objects):
            continue
        if skips_slots and record.is_skipped(number):
            continue
        obj, unused = objects.get(number), record.unused.get(number, _NONE)
        for value, key in record.saved.values(number):
            if obj is not None and unescape(value.name) not in unused:
                yield number, key, obj, Outcome.MATCHED
            elif obj is None and number in deferred:
                yield number, key, obj, Outcome.DEFERRED
            else:
                yield number, key, obj, Outcome.UNEXPECTED


def entries_of_saved(
    record: RestoreRecord, deferred: Collection[int], living: Iterable[tuple[int, Any]], *, with_matched: bool = True
) -> list[ReportEntry]:
    """The entries of saved values.

    Args:
        record: The record.
        deferred: The nodes that an object may still take.
        living: The nodes whose live objects still exist, each with its object.
        with_matched: Whether to list values that were matched.
    """
    entries = []
    notes = record.file.notes
    for number, key, obj, outcome in _outcomes(record, deferred, living, with_matched=with_matched):
        if outcome is Outcome.MATCHED:
            if with_matched:
                entry = matched_entry(record, key)
                entries.append(replace(entry, saved="", note=notes[key]) if key in notes else entry)
            continue
        note = ""
        if outcome is Outcome.UNEXPECTED and obj is not None:
            note = (
                _contradiction(record, number) or f"the live object, of type {type(obj).__name__}, holds no such value"
            )
        elif outcome is Outcome.UNEXPECTED and number in record.bound:
            note = "its object no longer exists"
        note = "; ".join(filter(None, [note, _origin(record, key)]))
        entries.append(ReportEntry(outcome, key, _saved_spec(record, key), note=note))
    for number, node in record.graph.inner:
        if node.saver and not record.is_skipped(number):
            note = f"written by the custom saver {node.saver!r}, which milepost does not know"
            entries.append(ReportEntry(Outcome.UNEXPECTED, record.saved.name(number), note=note))
    left_out, note = record.translated.left_out, "left out by rename, ignore or only"
    entries += [ReportEntry(Outcome.IGNORED, key, _saved_spec(record, key), note=note) for key in left_out]
    for number, entry in record.file.objects.items():
        if record.bound[number] is not None:
            entry = replace(entry, outcome=Outcome.MATCHED)
        elif number not in deferred:
            entry = replace(entry, outcome=Outcome.UNEXPECTED)
        entries.append(entry)
    return [*entries, *record.file.left_out]


def entries_of_live(
    record: RestoreRecord,
    operation: Operation,
    living: Iterable[tuple[int, Any]],
    *,
    only_unrestored: bool = False,
) -> list[ReportEntry]:
    """The entries of live values.

    Args:
        record: The record.
        operation: The operation. The values are those below its root.
        living: The nodes whose live objects still exist, each with its object.
        only_unrestored: Whether to leave out values that a later restore has assigned.
    """
    bound = {id(obj) for _, obj in living}
    missing = {id(record.bound[node]): names for node, names in record.missing.items()}
    kept = {id(obj) for each in record.file.kept if (obj := each()) is not None}
    allowed = record.options.allow_unsaved
    live = walk(operation, slots=not record.options.experimental_skip_slot_variables, omissions=True)
    writer_saves = cache(record.graph.writer_saves)  # seldom needed
    later = _later_members(record, live, bound)
    entries = unsaveable(live.omissions, allowed)
    restored = bound if not missing else bound - missing.keys()
    for number, values in live.values(restored):
        identity = id(obj := live.objects[number])
        path = live.paths[number]
        is_own = not _is_lacking(record, obj) and (came_later(obj, bound) or path in later)
        if identity not in bound and not record.left_out.has_object(path) and (is_own or path in record.never_saved):
            continue
        if only_unrestored and (last_restore(obj) > record.uid or path == SAVE_COUNTER):
            continue
        if is_at_or_below(path, allowed):
            continue
        if identity not in kept and record.translated.translation.leaves_alone(path):
            if not only_unrestored:
                keys = [(tensor_key(path, value.name), live_spec(operation, value, obj)) for value in values]
                note = "left alone by ignore or only"
                entries += [ReportEntry(Outcome.IGNORED, key, live=spec, note=note) for key, spec in keys]
            continue
        for value in values:
            if identity not in bound or value.name in missing.get(identity, _NONE):
                skipped_too, plain = writer_saves()
                # TensorFlow saves no trees of JAX arrays, so text that a saved tree lacks is missing and not skipped.
                saved = type(obj) is CheckedLeaf or (plain if isinstance(obj, Place) else skipped_too)
                skipped = not saved and (value.skipped_by_tensorflow or number in live.skipped_by_tensorflow)
                stays = _has(record.stayed, obj)
                note = "TensorFlow saves no such values" if skipped else STAYED if stays else ""
                outcome = Outcome.MISSING
                if identity in kept or _has(record.filled, obj):
                    if only_unrestored:
                        continue
                    outcome, note = Outcome.MATCHED, _KEPT if identity in kept else _FILLED
                key = tensor_key(path, value.name)
                if key in record.left_out.values and outcome is Outcome.MISSING:
                    outcome, note = _of_left_out(record, key)
                    if only_unrestored and outcome is not Outcome.LEFT_OUT:
                        continue
                entries.append(ReportEntry(outcome, key, "", live_spec(operation, value, obj), note, skipped))
    return entries


def _of_left_out(record: RestoreRecord, key: str) -> tuple[Outcome, str]:
    """The outcome of a live value that the save has left out on purpose, and the note of its entry."""
    if key in record.equal_to_base:
        return Outcome.MATCHED, f"not in the file; its digest is that of the base {record.left_out.base!r}"
    selection = selection_of(record.options)
    if selection is not None and selection.leaves_alone(key.partition(ATTRIBUTES)[0]):
        return Outcome.IGNORED, f"{record.left_out.reason(key)}, and left out by the options of the restore"
    return Outcome.LEFT_OUT, record.left_out.reason(key)


def _is_lacking(record: RestoreRecord, obj: Any) -> bool:
    """Whether an object existed at the restore, and nothing was saved for it or for the tuple or tree that holds it."""
    while obj is not None:
        if _has(record.lacking, obj):
            return True
        obj = obj.parent if isinstance(obj, Place) else None
    return False


def _has(references: Mapping[int, Reference], obj: Any) -> bool:
    """Whether an object is among those that references by identity lead to. Another one may have its identity by now."""
    reference = references.get(id(obj))
    return reference is not None and reference() is obj


def _later_members(record: RestoreRecord, live: LiveGraph, bound: Collection[int]) -> Subtrees:
    """Paths of members that the program has added to lists of values since the restore."""
    lists = {id(record.bound[number]) for number, name in enumerate(record.graph.types) if name == "list"}
    return Subtrees(
        live.paths[edge.node]
        for number, obj in enumerate(live.objects if lists else ())
        if id(obj) in lists
        for edge in live.edges[number]
        if id(live.objects[edge.node]) not in bound and not _is_lacking(record, live.objects[edge.node])
    )


def _deferred_nodes(record: RestoreRecord) -> set[int]:
    """Nodes that an object may still take: deferred nodes, nodes below them, and slot variables of both."""
    deferred = with_below(record, record.deferred)
    for variable, slots in record.saved.slots_of_variable.items():
        for owner, _, slot in slots:
            may_come = owner in deferred or _may_make_slots(record.bound[owner])
            if may_come and (variable in deferred or variable in record.bound):
                deferred.add(slot)
    return deferred


def _may_make_slots(owner: Any) -> bool:
    adapter = adapter_of(owner)
    return adapter is not None and "has_slots" in adapter.overrides and adapter.has_slots(owner)


def with_below(record: RestoreRecord, deferred: Iterable[int]) -> set[int]:
    """Deferred nodes, and those below them that no object has taken."""
    nodes = list(deferred)
    reached = set(nodes)
    for node in nodes:
        below = {edge.node for edge in record.graph.nodes[node].children} - reached
        below = {each for each in below if record.bound[each] is None}
        nodes += below
        reached |= below
    return reached


def _saved_spec(record: RestoreRecord, key: str) -> str:
    """Element type and shape of a saved value, as reports show them; empty if the checkpoint does not have it."""
    spec = str(record.reader.spec(key)) if key in record.reader else ""
    return SHOWN_NONE if spec == _EMPTY and key in record.nones else spec


def _contradiction(record: RestoreRecord, node: int) -> str:
    """Why the live object of a node has other values, if it took those of another node."""
    first = record.contradicted.get(node)
    if first is None:
        return ""
    key = record.saved.name(first)
    return f"one live object matches this value and {key}; it took the value of {key}"
