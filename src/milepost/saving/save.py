"""Makes the plan of a save from live objects, and carries it out."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from milepost.collector import collection_paused
from milepost.deferred.rescan import look_again_below, unannounced_below
from milepost.deferred.saving import DeferredParts, deferred_parts
from milepost.deferred.table import is_anything_deferred
from milepost.engine.cast_on_save import CastOnSave, as_type
from milepost.engine.digests import LiveValue, digests_of, refuse_changed, remembered
from milepost.engine.left_out import NOTHING, LeftOut
from milepost.engine.omissions import how_to_leave_out, refuse_omissions, warn_of_unknown_paths
from milepost.engine.options import CheckpointOptions, selection_of
from milepost.engine.plan import PlannedWrite, SavePlan, Wholes
from milepost.engine.unasked import warn_before_save
from milepost.errors import MilepostError, MismatchError, UnsupportedError, UntrackableError
from milepost.graph.adapter import Adapter, Array, Value
from milepost.graph.contract.operation import Operation
from milepost.graph.keys import ATTRIBUTES, METADATA, OBJECT_GRAPH, OwnName, escape, tensor_key
from milepost.graph.live_graph import LiveGraph
from milepost.graph.omissions import is_at_or_below
from milepost.graph.plain.places import PLAIN_TYPES
from milepost.graph.plain.type_names import type_names
from milepost.graph.remedies import cannot_be_read
from milepost.graph.saved.hints import encode
from milepost.graph.saved.object_graph import Node, ObjectGraph, SavedValue, new_node, new_value
from milepost.graph.traversal import walk
from milepost.graph.variable import shape_fits
from milepost.saving.incremental import divide
from milepost.saving.part import SavedPart, part_of
from milepost.series.commit import BeforeCommit, BundleCommit
from milepost.storage import Storage
from milepost.tensor import DType, PiecewiseArray, ShardedArray, TensorSpec
from milepost.tensor.dtype import STRING
from milepost.tensor.spec import format_shape

_MOST_LISTED: Final = 10
_VALUES: Final = ("values", "values_to_save")
_local_name: Final = lru_cache(escape)
"""The name of a value as it is in keys. Most values have the same."""
_FIRST: Final = "first"
"""Process 0 alone saves the values of an object."""


class Member(NamedTuple):
    """One process of several that save together.

    Attributes:
        rank: Its number, from 0.
        size: How many there are.
    """

    rank: int
    size: int


class LiveState(NamedTuple):
    """The values that were read from the live objects.

    Attributes:
        graph: The object graph.
        writes: All values, not placed in data files yet.
        arrays: The array of each.
        own: The positions of the values that every process saves for itself.
        first: The positions of the values that only process 0 saves.
        left_out: What the save leaves out on purpose; the digests are missing.
        of_base: The values that are left out because the base has them.
    """

    graph: ObjectGraph
    writes: Sequence[PlannedWrite]
    arrays: Sequence[Array | PiecewiseArray | ShardedArray]
    own: frozenset[int] = frozenset()
    first: frozenset[int] = frozenset()
    left_out: LeftOut = NOTHING
    of_base: Sequence[LiveValue] = ()

    def with_digests(self, digests: Mapping[str, str]) -> LiveState:
        """The state with the digests of the values that the base has.

        Raises:
            UntrackableError: One of them has changed since an earlier save or restore.
        """
        refuse_changed(self.of_base, digests)
        remembered(self.of_base, digests)
        return self._replace(left_out=replace(self.left_out, digests=digests))


@collection_paused()
def read_state(operation: Operation, options: CheckpointOptions, member: Member | None = None) -> LiveState:
    """Reads the live object graph.

    Args:
        operation: The save. Its root becomes node 0.
        options: Which objects may be left out, and which differ between processes.
        member: Which process this is, if several save together.

    Raises:
        UntrackableError: An object cannot be saved as it is held, or may have been trained while values were deferred for it.
        UnsupportedError: A value has an element type that files cannot hold.
        CorruptCheckpointError: A deferred value, which must be written again, is damaged.
        MismatchError: A deferred value does not fit its object, which was made after the restore.
    """
    live = _live_graph(operation, options)
    deferred = deferred_parts(live) if is_anything_deferred() else DeferredParts()
    python, hints = _python_types(operation, live, options), _hints(live)
    part = part_of(live, deferred, python, options)
    without: Collection[int] = () if part is None else part.without
    nodes: list[Node] = []
    keys: list[str] = []
    holders, dtypes, shapes = array("q"), list[DType](), list[tuple[int, ...]]()
    arrays: list[Array | PiecewiseArray | ShardedArray] = []
    own_positions, first = set[int](), set[int]()
    of_first = _of_first_process(live) if member is not None else set()
    skipped_by_tensorflow = live.skipped_by_tensorflow
    cast = None if options.cast is None else CastOnSave(options.cast)
    rows = zip(live.paths, _read_all(live, options, without), live.edges, python, strict=True)
    for number, (path, values, edges, python_type) in enumerate(rows):
        saved: list[SavedValue] = []
        kind = _kind_of_own(live, number, options, of_first) if member is not None else ""
        is_skipped = number in skipped_by_tensorflow
        for value, read in values:
            skipped = is_skipped or value.skipped_by_tensorflow
            name, listed = value.name, value.listed
            if kind == _FIRST:
                first.add(len(keys))
            elif kind and member is not None:
                own_positions.add(len(keys))
                name, listed = (str(OwnName(each, kind, *member)) for each in (name, listed))
                skipped = True
            local = _local_name(listed)
            listed_key = f"{path}{ATTRIBUTES}{local}"
            saved.append(new_value((local, value.full_name, listed_key, skipped)))
            keys.append(listed_key if listed == name else f"{path}{ATTRIBUTES}{_local_name(name)}")
            holders.append(number)
            dtypes.append(value.dtype)
            shapes.append(read.shape)
            arrays.append(read)
            if cast is not None and python_type not in PLAIN_TYPES:
                dtypes[-1] = cast.dtype_of(path, value.dtype)
                if dtypes[-1] is not value.dtype:
                    arrays[-1] = as_type(read, value.dtype, dtypes[-1], keys[-1])
        listed_once = dict.fromkeys(saved) if len(saved) > 1 else saved  # several values may be listed under one name
        nodes.append(new_node((tuple(edges), tuple(listed_once), (), "", python_type, hints.get(number, ""))))
    for number, node in enumerate(deferred.nodes, start=len(live.objects)):
        tensors = [] if number in without else node.tensors
        keys += [tensor.key for tensor in tensors]
        holders.extend(number for _ in tensors)
        dtypes += [tensor.dtype for tensor in tensors]
        shapes += [tensor.array.shape for tensor in tensors]
        arrays += [tensor.array for tensor in tensors]
    graph = _graph(nodes, live, deferred, part)
    writes = Wholes(keys, holders, dtypes, shapes)
    state = LiveState(graph, writes, arrays, frozenset(own_positions), frozenset(first))
    return state if part is None else state._replace(left_out=part.left_out, of_base=part.of_base)


def _graph(nodes: list[Node], live: LiveGraph, deferred: DeferredParts, part: SavedPart | None) -> ObjectGraph:
    """The object graph: the nodes of live objects, which have children and values, with all else; without what a save leaves out."""
    nodes += [Node(tuple(node.edges), node.values, python=node.python, hints=node.hints) for node in deferred.nodes]
    for number, more in deferred.edges.items():
        nodes[number] = nodes[number]._replace(children=(*nodes[number].children, *more))
    for number, slots in itertools.chain(live.slots.items(), deferred.slots.items()):
        nodes[number] = nodes[number]._replace(slots=(*nodes[number].slots, *slots))
    return ObjectGraph(tuple(nodes if part is None else part.graph_of(nodes)))


def _live_graph(operation: Operation, options: CheckpointOptions) -> LiveGraph:
    """The live objects, of which no values have been read yet; arguments and errors are those of `read_state`."""
    if is_anything_deferred():
        _refuse_unannounced(operation)
        look_again_below(operation)  # for slot variables, which a program does not train
    warn_before_save(operation)
    operation.options = options
    operation.adapters.clear()  # which were met without options
    live = walk(operation, omissions=True)
    if options.allow_unsaved:
        warn_of_unknown_paths(live, options)
    if live.omissions:
        selection = selection_of(options)
        omissions = (each for each in live.omissions if selection is None or not selection.leaves_alone(each.path))
        refuse_omissions([*omissions], options)
    for adapter, obj in zip(live.adapters, live.objects, strict=True):
        if "on_attached" in adapter.overrides:
            adapter.on_attached(obj)  # milepost meets objects deeper in the graph here for the first time
    return live


def _hints(live: LiveGraph) -> dict[int, str]:
    """The hints of objects that have some, by number."""
    functions = {
        adapter: adapter.hints_to_save for adapter in set(live.adapters) if "hints_to_save" in adapter.overrides
    }
    pairs = zip(live.adapters, live.objects, strict=True) if functions else ()
    return {
        number: encode(found)
        for number, (adapter, obj) in enumerate(pairs)
        if adapter in functions and (found := functions[adapter](obj))
    }


def _python_types(operation: Operation, live: LiveGraph, options: CheckpointOptions) -> Sequence[str]:
    """The name of the type of each node, as the object graph holds it."""
    python = type_names(live, operation.held)
    if options.data_alignment == 1 and PLAIN_TYPES.isdisjoint(python):
        return [""] * len(python)  # then the files are those that TensorFlow writes, byte for byte
    return python


def plan_save(operation: Operation, options: CheckpointOptions) -> tuple[SavePlan, list[Array | PiecewiseArray]]:
    """Plans the save of one process that saves alone; arguments and errors are those of `read_state`.

    Returns:
        The plan, and for each of its writes the array, or the part of one, to be written.

    Raises:
        UnsupportedError: Other processes hold parts of a tensor.
    """
    state = read_state(operation, options)
    if state.of_base:
        state = state.with_digests(digests_of(state.of_base))
    arrays = [
        _complete(state.writes[number], array) if isinstance(array, ShardedArray) else array
        for number, array in enumerate(state.arrays)
    ]
    policy = options.experimental_sharding_callback
    if policy is None:
        return SavePlan(state.graph, state.writes, left_out=state.left_out), arrays
    shards, placed = policy.assign(state.writes)
    plan = SavePlan(state.graph, tuple(write for _, write in placed), shards, state.left_out)
    return plan, [
        arrays[number] if write.box is None else arrays[number][write.box.resolve(write.shape)]
        for number, write in placed
    ]


def _complete(write: PlannedWrite, array: ShardedArray) -> Array | PiecewiseArray:
    """A whole tensor of several processes.

    Raises:
        UnsupportedError: Other processes hold parts of it.
    """
    whole = array.whole()
    if whole is None:
        raise UnsupportedError(
            "other processes hold parts of this tensor, and this process saves alone",
            key=write.key,
            expected="a tensor that this process holds completely",
            found=f"{TensorSpec(write.dtype, write.shape)}, {array.layout}",
            remedy="let all processes save together: call save() on each of them, without CheckpointOptions(process_local=True)",
        )
    return whole


def _refuse_unannounced(operation: Operation) -> None:
    """Raises an error if objects for which values are deferred were made without a hook."""
    paths = unannounced_below(operation)
    if paths:
        raise UntrackableError(
            "saved values are deferred for these objects, which were made after the restore and may have been trained or changed since: "
            f"{_some(paths)}; nothing was saved, and nothing was changed",
            key=paths[0],
            remedy="to restore such objects, call a method of the status that restore() returned, such as "
            "assert_existing_objects_matched(), as soon as they exist and before they are trained; to keep their present values, "
            "call stop_waiting() on the status; without the status, copy their present values, restore again, and assign the "
            "copies if you need them",
        )


def _of_first_process(live: LiveGraph) -> set[int]:
    """Identities of the objects whose values process 0 saves for all processes."""
    return {
        id(child)
        for adapter, obj in zip(live.adapters, live.objects, strict=True)
        if "of_first_process" in adapter.overrides
        for child in adapter.of_first_process(obj)
    }


def _kind_of_own(live: LiveGraph, number: int, options: CheckpointOptions, of_first: Collection[int]) -> str:
    """The kind of an object's state if every process has its own state, or `_FIRST`; empty if all processes hold equal
    state."""
    if id(live.objects[number]) in of_first or is_at_or_below(live.paths[number], options.first_process):
        return _FIRST
    kind = live.adapters[number].each_process
    return kind or ("own" if is_at_or_below(live.paths[number], options.each_process) else "")


_Read = Sequence[tuple[Value, Array | PiecewiseArray | ShardedArray]]
"""The values of one object, each with its array."""


def _read_all(live: LiveGraph, options: CheckpointOptions, without: Collection[int]) -> Iterator[_Read]:
    """The values of each object by its number, read in the order of the adapters' turns. Those of some objects are left out."""
    numbers = range(len(live.objects))
    if len({adapter.turn for adapter in set(live.adapters)}) == 1:
        return _read(live, numbers, options, without)
    in_turn = sorted(numbers, key=lambda number: live.adapters[number].turn)
    read = dict(zip(in_turn, _read(live, in_turn, options, without), strict=True))
    return map(read.pop, numbers)


def _read(
    live: LiveGraph, numbers: Iterable[int], options: CheckpointOptions, without: Collection[int]
) -> Iterator[_Read]:
    """The values of some objects, read one object after the other, when they are asked for."""
    objects, adapters = live.objects, live.adapters
    methods = {adapter: _values_now(adapter) for adapter in set(adapters)}
    for number in numbers:
        adapter = adapters[number]
        values_now = methods[adapter]
        if values_now is None or number in without:
            yield ()
            continue
        read: list[tuple[Value, Array | PiecewiseArray | ShardedArray]] = []
        value = None
        try:
            for value in values_now(objects[number]):
                array = value.read()
                if array.shape != value.shape and not shape_fits(array.shape, value.shape):
                    raise _another_shape(adapter, value, array)
                read.append((value, array))
        except Exception as error:
            if not is_at_or_below(live.paths[number], options.allow_unsaved):
                problem = _unreadable(error, live, number, value)
                raise problem from (error.__cause__ if problem is error else error)
            read = []
        yield read


def _values_now(adapter: Adapter) -> Callable[[Any], Iterable[Value]] | None:
    if adapter.overrides.isdisjoint(_VALUES):
        return None
    return adapter.values_to_save if "values_to_save" in adapter.overrides else adapter.values


def _unreadable(error: Exception, live: LiveGraph, number: int, value: Value | None) -> MilepostError:
    """The error for an object whose values cannot be read.

    Args:
        error: The error that it raised.
        live: The live objects.
        number: The number of the object.
        value: The value that was read last, if there was any.
    """
    path, key = live.paths[number], live.paths[number]
    if isinstance(error, MilepostError):
        # The state of an iterator has the same name in files, reports and errors.
        if value is not None and value.dtype.name == "variant":
            key = tensor_key(path, value.name)
        problem: MilepostError = error
    else:
        problem = cannot_be_read(live.objects[number], error, live.adapters[number], "values")
    return problem.with_context(key=key, remedy=how_to_leave_out(path))


def _another_shape(adapter: Adapter, value: Value, array: Array | PiecewiseArray | ShardedArray) -> MilepostError:
    return MismatchError(
        f"{type(adapter).__name__} states another shape for its value {value.name!r} than the array has; nothing was saved",
        expected=f"the shape ({format_shape(value.shape)}), as Value() was told",
        found=f"an array of the shape ({format_shape(array.shape)})",
        remedy="give Value the shape of its array, with None for dimensions of any length",
    )


def _some(paths: Sequence[str]) -> str:
    more = f", and {len(paths) - _MOST_LISTED} more" if paths[_MOST_LISTED:] else ""
    return ", ".join(paths[:_MOST_LISTED]) + more


def execute_save(
    plan: SavePlan,
    arrays: Sequence[Array | PiecewiseArray],
    storage: Storage,
    prefix: str,
    options: CheckpointOptions,
    before_commit: BeforeCommit | None = None,
    metadata: bytes | None = None,
) -> None:
    """Writes and commits a planned save. When this returns, the checkpoint survives a power cut.

    Args:
        plan: The plan. If the caller keeps no reference to it, its parts are freed as soon as they are written.
        arrays: The array, or the part of one, of each of its writes.
        storage: Where to write.
        prefix: Path of the files, without their endings.
        options: How to save.
        before_commit: As for `milepost.series.commit.BundleCommit.write`.
        metadata: As `milepost.series.metadata.encode` gives it.

    Raises:
        StorageError: The files cannot be written. Existing files are unchanged.
        AfterCommitError: The checkpoint is visible, but a power cut may lose it.
    """
    own_entries = [(OBJECT_GRAPH, np.array(plan.graph.serialize(), object), STRING)]
    metadata = plan.left_out.beside(metadata)
    if metadata is not None:
        own_entries.append((METADATA, np.array(metadata, object), STRING))
    writes, shards = plan.writes, plan.shards
    del plan  # so that its parts are freed as soon as they are used
    if isinstance(writes, Wholes) and not options.incremental:
        tensors = zip(writes.keys, arrays, writes.dtypes, strict=True)
        del writes
        with BundleCommit(storage, prefix) as commit:
            writer = commit.writer(options.data_alignment)
            writer.add_all(itertools.chain(tensors, own_entries))
            commit.write(writer, before_commit)
        return
    with (
        divide(storage, prefix, writes, shards, arrays, options) as division,
        BundleCommit(storage, prefix, division.files) as commit,
    ):
        division.take_over(commit)
        writer = commit.writer(options.data_alignment)
        division.add_to(writer, arrays)
        writer.add_all(own_entries, shard=division.written - 1)
        commit.write(writer, before_commit)
