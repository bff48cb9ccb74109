"""Saving: from live objects to a plan, and from a plan to committed files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from milepost.bundle import BundleWriter
from milepost.deferred.rescan import look_again_below, unannounced_below
from milepost.deferred.saving import DeferredParts, deferred_parts
from milepost.deferred.table import is_anything_deferred
from milepost.engine.announcement import Announcement
from milepost.engine.collector import collection_paused
from milepost.engine.commit import commit_bundle
from milepost.engine.omissions import how_to_leave_out, refuse_omissions
from milepost.engine.options import CheckpointOptions
from milepost.engine.plan import PlannedWrite, SavePlan
from milepost.engine.sharding import ShardByTaskPolicy
from milepost.engine.unasked import warn_before_save
from milepost.errors import MilepostError, MismatchError, UntrackableError
from milepost.graph.adapter import Adapter, Array, Value, saving_legacy_slots
from milepost.graph.keys import OBJECT_GRAPH, escape, tensor_key
from milepost.graph.live_graph import LiveGraph
from milepost.graph.object_graph import Node, ObjectGraph, SavedValue
from milepost.graph.omissions import is_at_or_below
from milepost.graph.plain.places import is_type_name
from milepost.graph.plain.type_names import type_names
from milepost.graph.remedies import cannot_be_read
from milepost.graph.traversal import walk
from milepost.graph.trees.places import places_in_use
from milepost.graph.variable import shape_fits
from milepost.storage import Storage
from milepost.tensor import DType, PiecewiseArray
from milepost.tensor.spec import format_shape

_MOST_LISTED: Final = 10


@collection_paused()
@places_in_use()
def plan_save(
    root: Any, attached: Sequence[tuple[str, Any]], options: CheckpointOptions
) -> tuple[SavePlan, list[Array | PiecewiseArray]]:
    """Reads the live object graph.

    Args:
        root: The object that becomes node 0.
        attached: More edges of the root.
        options: Sharding, and whether to raise for what would be left out.

    Returns:
        The plan, and for each of its writes the array, or the part of one, to be written.

    Raises:
        UntrackableError: Something cannot be saved as it is held, or may have been trained although saved values are deferred for it.
        UnsupportedError: A value has an element type that files cannot hold.
        CorruptCheckpointError: A value that is still deferred, and is written again, is damaged.
        MismatchError: A deferred value does not fit its object, which has come since.
    """
    if is_anything_deferred():
        _refuse_unannounced(root, attached)
        look_again_below(root, attached)  # for slot variables, which no program trains by itself
    warn_before_save(root, attached)
    token = saving_legacy_slots.set(options.legacy_keras_optimizers)
    try:
        live = walk(root, attached, omissions=True)
    finally:
        saving_legacy_slots.reset(token)
    if live.omissions:
        refuse_omissions(live.omissions, options)
    for adapter, obj in zip(live.adapters, live.objects, strict=True):
        if "on_attached" in adapter.overrides:
            adapter.on_attached(obj)  # objects deeper in the graph are met here for the first time
    deferred = deferred_parts(live) if is_anything_deferred() else DeferredParts()
    read: list[list[tuple[Value, Array | PiecewiseArray]]] = [[] for _ in live.objects]
    for number in sorted(range(len(live.objects)), key=lambda number: live.adapters[number].turn):
        try:
            read[number] = _read(live, number)
        except MilepostError as error:
            if not is_at_or_below(live.paths[number], options.allow_unsaved):
                raise error.with_context(remedy=how_to_leave_out(live.paths[number])) from error.__cause__
    python = type_names(live)
    if options.data_alignment == 1 and not any(map(is_type_name, python.values())):
        python = {}  # byte for byte what TensorFlow writes
    nodes = []
    writes: list[PlannedWrite] = []
    arrays: list[Array | PiecewiseArray] = []
    for number, path in enumerate(live.paths):
        saved: dict[SavedValue, None] = {}  # several values may be listed under one name
        for value, array in read[number]:
            private = value.skipped_by_tensorflow or number in live.skipped_by_tensorflow
            key = tensor_key(path, value.name)
            listed_key = key if value.listed == value.name else tensor_key(path, value.listed)
            saved[SavedValue(escape(value.listed), value.full_name, listed_key, private)] = None
            writes.append(PlannedWrite(key, number, value.dtype, array.shape))
            arrays.append(array)
        edges = (*live.edges[number], *deferred.edges.get(number, ()))
        slots = (*live.slots.get(number, ()), *deferred.slots.get(number, ()))
        nodes.append(Node(edges, tuple(saved), slots, python=python.get(number, "")))
    for number, node in enumerate(deferred.nodes, start=len(live.objects)):
        writes += [PlannedWrite(key, number, dtype, array.shape) for key, dtype, array in node.tensors]
        arrays += [tensor.array for tensor in node.tensors]
        nodes.append(Node(tuple(node.edges), node.values, tuple(deferred.slots.get(number, ())), python=node.python))
    shards, placed = (options.experimental_sharding_callback or ShardByTaskPolicy()).assign(writes)
    plan = SavePlan(ObjectGraph(tuple(nodes)), tuple(write for _, write in placed), shards)
    return plan, [
        arrays[number] if write.box is None else arrays[number][write.box.resolve(write.shape)]
        for number, write in placed
    ]


def _refuse_unannounced(root: Any, attached: Sequence[tuple[str, Any]]) -> None:
    """Refuses a save beside objects for which values are deferred, and which have come without a hook that told of them."""
    found = unannounced_below(root, attached)
    if found:
        raise UntrackableError(
            "saved values are deferred for these objects, which were made after the restore and may have been trained or changed since: "
            f"{_some(found)}; nothing was saved, and nothing was changed",
            key=found[0],
            remedy="ask the status that restore() returned, for example by assert_existing_objects_matched(), as soon as such "
            "objects are there, and before they are trained; to keep what they hold now, call stop_waiting() on it; if the "
            "status is lost, restore again, which gives them the saved values: copy what they hold before that, and put it back "
            "if it is to be kept",
        )


def _read(live: LiveGraph, number: int) -> list[tuple[Value, Array | PiecewiseArray]]:
    """The values of one object, each with what it is now."""
    path, adapter, read = live.paths[number], live.adapters[number], []
    if adapter.overrides.isdisjoint(("values", "values_to_save")):
        return []
    key = path
    try:
        values_now = adapter.values_to_save if "values_to_save" in adapter.overrides else adapter.values
        for value in values_now(live.objects[number]):
            # The state of an iterator has one name in file, report and error.
            key = tensor_key(path, value.name) if value.dtype.name == "variant" else path
            array = value.read()
            if array.shape != value.shape and not shape_fits(array.shape, value.shape):
                raise _another_shape(adapter, value, array)
            read.append((value, array))
    except MilepostError as error:
        raise error.with_context(key=key) from error.__cause__
    except Exception as error:
        raise cannot_be_read(live.objects[number], error, adapter, "values").with_context(key=path) from error
    return read


def _another_shape(adapter: Adapter, value: Value, array: Array | PiecewiseArray) -> MilepostError:
    return MismatchError(
        f"{type(adapter).__name__} says another shape for its value {value.name!r} than the array has; nothing was saved",
        expected=f"the shape ({format_shape(value.shape)}), as Value() was told",
        found=f"an array of the shape ({format_shape(array.shape)})",
        remedy="give Value the shape of its array, with None for dimensions of any length",
    )


def _some(paths: Sequence[str]) -> str:
    more = f", and {len(paths) - _MOST_LISTED} more" if paths[_MOST_LISTED:] else ""
    return ", ".join(paths[:_MOST_LISTED]) + more


def snapshot(arrays: Sequence[Array | PiecewiseArray]) -> list[Array]:
    """Copies values, so that training may go on while they are written."""
    return [array.copy() for array in arrays]


def execute_save(
    plan: SavePlan,
    arrays: Sequence[Array | PiecewiseArray],
    storage: Storage,
    prefix: str,
    options: CheckpointOptions,
    announcement: Announcement | None = None,
) -> None:
    """Writes and commits a planned save. When this returns, it survives a power cut.

    Raises:
        StorageError: The files could not be written; what was there before still is.
        AfterCommitError: The checkpoint is visible, and may or may not survive a power cut.
    """
    graph = np.array(plan.graph.serialize(), object)

    @collection_paused()
    def fill(writer: BundleWriter) -> None:
        for write, array in zip(plan.writes, arrays, strict=True):
            if write.box is None:
                writer.add(write.key, array, write.dtype, shard=write.shard)
            else:
                writer.add_slice(write.key, write.shape, write.box, array, write.dtype, shard=write.shard)
        writer.add(OBJECT_GRAPH, graph, DType.of("string"), shard=plan.shards - 1)

    commit_bundle(
        storage, prefix, fill, shards=plan.shards, alignment=options.data_alignment, announcement=announcement
    )
