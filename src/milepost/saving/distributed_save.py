"""One save of several processes.

::

    1. plan       Each process plans what it writes (`milepost.saving.distributed_plan`). If the save is incremental, it compares its
                  values with those of an earlier checkpoint. It reports a summary
    2. compare    Process 0 compares the summaries and claims the names of all data files. It tells the others the claim and the
                  number of files of each process
    3. write      Each process writes its data files, or links them, and syncs them. It reports their entries of the index
    4. commit     Process 0 writes one more data file, with the object graph and small tensors. It merges the entries to one index
                  and commits it (`milepost.series.commit`). It lists the checkpoint and tells the others that it is saved

If anything fails on any process before the index is renamed in step 4, the save fails on all processes, and the earlier checkpoint
stays. A process that hears nothing from process 0 renames the claim. Then the save cannot be committed any more. If process 0 has
renamed the claim to the index before, the checkpoint is saved.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from milepost.bundle import BundleWriter
from milepost.bundle.format.slices import index_of
from milepost.bundle.merging import contribution, merged_index
from milepost.distributed.replicas import difference_of, digests, find_difference
from milepost.distributed.rounds import Message, Rounds
from milepost.engine.options import CheckpointOptions
from milepost.errors import AfterCommitError, CheckpointNotFoundError, CoordinationError, MilepostError
from milepost.graph.adapter import Array
from milepost.graph.keys import METADATA, OBJECT_GRAPH
from milepost.graph.saved.object_graph import SavedValue
from milepost.saving.distributed_part import ProcessFiles
from milepost.saving.distributed_plan import SharePlan, is_small, with_own
from milepost.saving.examination import Examined
from milepost.saving.incremental import Division, divide
from milepost.series.commit import BeforeCommit, BundleCommit
from milepost.series.notes import Temporary
from milepost.storage import Storage
from milepost.tensor import DType, PiecewiseArray

_ASKED: Final = 2
"""How many of the processes that differ from process 0 are asked for their details."""
_LISTED: Final = 5


def divide_share(
    rounds: Rounds,
    plan: SharePlan,
    arrays: Sequence[Array | PiecewiseArray],
    storage: Storage,
    prefix: str,
    options: CheckpointOptions,
) -> Division:
    """Divides the tensors that this process writes: into data files to write, and files of an earlier checkpoint to link."""
    compared: list[int] = []
    with rounds.working(lambda: len(compared)):
        return divide(storage, prefix, plan.writes, plan.files, arrays, options, graph=False, compared=compared.append)


def save_as_first(
    rounds: Rounds,
    plan: SharePlan,
    division: Division,
    arrays: Sequence[Array | PiecewiseArray],
    storage: Storage,
    prefix: str,
    options: CheckpointOptions,
    before_commit: BeforeCommit | None,
    complete: Callable[[Sequence[Sequence[Sequence[str]] | None]], bytes | None] = lambda _: None,
    found: Examined | None = None,
) -> None:
    """Takes the steps of process 0 up to the commit. The caller tells the others how the save ended.

    Args:
        rounds: The rounds of the save.
        plan: What this process writes.
        division: How that is divided into files.
        arrays: The elements of each write.
        storage: Where to write.
        prefix: Path of the files, without their endings.
        options: How to save.
        before_commit: As for `milepost.series.commit.BundleCommit.write`.
        complete: Returns the metadata to save, from what each process has found in its values.
        found: What this process has found.

    Raises:
        MilepostError: The save has failed, on this process or another one. The earlier checkpoint stays.
        AfterCommitError: The checkpoint is visible, but a power cut may lose it.
    """
    summaries = [_summary(plan, division, found), *rounds.collect()]
    _compare(rounds, plan, summaries)
    metadata = complete([summary.facts["found"] for summary in summaries])
    files = [summary.facts["files"] for summary in summaries]
    others = [(node, SavedValue(*value)) for summary in summaries[1:] for node, value in summary.facts["own"]]
    with BundleCommit(storage, prefix, sum(files) + 1) as commit, _unless_given_up(rounds, prefix):
        shards = len(commit.data)
        rounds.tell(Message({"token": commit.claim.token, "shards": shards, "files": _runs(files)}))
        writer = BundleWriter(shards=shards, alignment=options.data_alignment)
        division.take_over(commit)
        division.add_to(writer, arrays)
        with rounds.working(lambda: writer.bytes_written):
            for shard in range(files[0]):
                if shard not in commit.linked:
                    writer.write_shard(shard, commit.create(commit.data[shard]))
            commit.sync_data()  # while the other processes write and sync theirs
            small = [(piece.key, piece.box, piece.data) for piece in plan.small]
            reports = rounds.collect()
            for report in reports:
                small += _small_of(report)
            last = shards - 1
            for key, array in _joined(small, plan).items():
                writer.add(key, array, plan.sharded[key].dtype, shard=last)
            graph = with_own(plan.graph, others).serialize()
            writer.add(OBJECT_GRAPH, np.array(graph, object), DType.of("string"), shard=last)
            metadata = plan.left_out.beside(metadata)
            if metadata is not None:
                writer.add(METADATA, np.array(metadata, object), DType.of("string"), shard=last)
            for shard in range(sum(files), shards):
                writer.write_shard(shard, commit.create(commit.data[shard]))
            parts = [contribution(writer.entries, writer.pieces), *(report.data for report in reports)]
            sharded = [key.encode() for key in plan.sharded]
            commit.publish(merged_index(parts, sharded, shards), before_commit)


def save_as_other(
    rounds: Rounds,
    plan: SharePlan,
    division: Division,
    arrays: Sequence[Array | PiecewiseArray],
    storage: Storage,
    prefix: str,
    options: CheckpointOptions,
    found: Examined | None = None,
) -> list[MilepostError]:
    """Takes the steps of another process, until process 0 has said how the save ended.

    Returns:
        What failed after the commit point.

    Raises:
        MilepostError: The save has failed, on this process or another one. The earlier checkpoint stays.
    """
    rounds.report(_summary(plan, division, found))
    decision = rounds.hear()
    if "explain" in decision.facts:
        must_explain = rounds.rank in decision.facts["explain"]
        replicas = plan.replicas.get(decision.facts.get("holders", ""), {})
        facts = {"outline": list(plan.outline), "checksums": dict(plan.checksums), "replicas": dict(replicas)}
        rounds.report(Message(facts if must_explain else {}))
        rounds.hear()  # raises the error of process 0
        raise CoordinationError(
            "the processes plan different saves, and process 0 did not say in what; nothing was saved",
            file=prefix,
            remedy="check that all processes run the same version of milepost",
        )
    shards, token = decision.facts["shards"], decision.facts["token"]
    claim = Temporary.claim(prefix, token, shards)
    first = _sum_before(rounds.rank, decision.facts["files"])
    with ProcessFiles(storage, claim, first, rounds.check) as part:
        writer = BundleWriter(shards=shards, alignment=options.data_alignment)
        with rounds.working(lambda: writer.bytes_written):
            entries = part.write(division, arrays, writer)
        rounds.report(_written(entries, plan))
        try:
            outcome = rounds.hear()
        except CoordinationError as error:
            if rounds.is_over or not part.give_up():
                raise
            raise AfterCommitError(
                "the checkpoint is saved, but process 0 did not say so, and may have ended before it was listed",
                file=prefix,
                remedy="check whether process 0 was killed; the next run lists the checkpoint",
            ) from error
        except BaseException:
            part.give_up()
            raise
    return [AfterCommitError(problem) for problem in outcome.facts["problems"]]


@contextmanager
def _unless_given_up(rounds: Rounds, prefix: str) -> Iterator[None]:
    """Turns the error for a file of the save that no longer exists into one that says why: another process has removed it."""
    try:
        yield
    except CheckpointNotFoundError as error:
        failed = rounds.failed_since()
        if failed is not None:
            raise failed from error
        given_up = CoordinationError(
            "the other processes have given up this save, because this one, process 0, did not answer in time; nothing was saved",
            file=prefix,
            found=f"a file of the save was removed: {error.file}",
            remedy="look what held this process up; for slow machines, pass a larger CheckpointOptions(process_timeout=seconds)",
        )
        given_up.is_lost = True
        raise given_up from error


def _summary(plan: SharePlan, division: Division, found: Examined | None) -> Message:
    own_values = [(node, list(value)) for node, value in plan.own]
    replicas = digests(plan.replicas)
    return Message(
        {
            "structure": plan.structure,
            "values": plan.values,
            "files": division.files,
            "own": own_values,
            "replicas": replicas,
            "found": found,
        }
    )


def _compare(rounds: Rounds, plan: SharePlan, summaries: Sequence[Message]) -> None:
    """Checks that all processes hold the same objects, and the same values where these must be the same.

    Raises:
        CoordinationError: They do not. The error names paths and processes.
    """
    different = [
        rank
        for rank, summary in enumerate(summaries)
        if (summary.facts["structure"], summary.facts["values"]) != (plan.structure, plan.values)
    ]
    if not different:
        _compare_replicas(rounds, plan, summaries)
        return
    ranks = different[:_ASKED]
    rounds.tell(Message({"explain": ranks}))
    details = rounds.collect()
    raise _difference(plan, different, {rank: details[rank - 1].facts for rank in ranks})


def _compare_replicas(rounds: Rounds, plan: SharePlan, summaries: Sequence[Message]) -> None:
    """Checks that processes that hold the same parts of tensors hold the same elements; errors are those of `_compare`."""
    difference = find_difference([summary.facts["replicas"] for summary in summaries])
    if difference is None:
        return
    rounds.tell(Message({"explain": [difference.first, difference.other], "holders": difference.holders}))
    details = [{"replicas": plan.replicas.get(difference.holders, {})}, *(report.facts for report in rounds.collect())]
    first, other = (details[rank]["replicas"] for rank in (difference.first, difference.other))
    raise difference_of(difference, first, other, plan.member.size)


def _difference(plan: SharePlan, different: Sequence[int], details: dict[int, dict[str, Any]]) -> CoordinationError:
    who = f"process{'es' if different[1:] else ''} {', '.join(map(str, different[:_LISTED]))}"
    who += " and others" if different[_LISTED:] else ""
    rank, facts = next(iter(details.items()))
    here, there = dict(plan.outline), dict(facts["outline"])
    for keys, expected in ((here.keys() - there.keys(), "process 0"), (there.keys() - here.keys(), f"process {rank}")):
        if keys:
            return CoordinationError(
                f"{who} of {plan.member.size} and process 0 hold different objects; nothing was saved",
                key=sorted(keys)[0],
                expected="the same objects on all processes, at the same paths",
                found=f"{_some(sorted(keys))} on {expected} only",
                remedy="build the same objects on all processes; for a checkpoint of each process, pass "
                "CheckpointOptions(process_local=True) and a path of its own",
            )
    for key, spec in here.items():
        if there[key] != spec:
            return CoordinationError(
                f"{who} of {plan.member.size} and process 0 hold a tensor in different ways; nothing was saved",
                key=key,
                expected=f"{spec}, as on process 0",
                found=f"{there[key]}, on process {rank}",
                remedy="build the same objects on all processes, with the same mesh and placements",
            )
    values = [key for key, crc in plan.checksums.items() if facts["checksums"].get(key) != crc]
    if not values:
        return CoordinationError(
            f"{who} of {plan.member.size} and process 0 hold objects that are connected in different ways; nothing was saved",
            expected="the same attributes, lists and dicts on all processes, and the same options",
            found="the same tensors under other names, in another order, or in objects of other classes",
            remedy="build the same objects on all processes, in the same order, and pass all of them the same CheckpointOptions",
        )
    paths = _paths(values)
    named = f"[{', '.join(map(repr, paths[:_LISTED]))}{', ...' if paths[_LISTED:] else ''}]"
    return CoordinationError(
        f"{who} of {plan.member.size} and process 0 hold different values where all should hold the same; nothing was saved",
        key=values[0],
        expected="the same value on all processes",
        found=f"another one on process {rank} than on process 0, for {_some(values)}",
        remedy=f"if each process is to keep its own, pass CheckpointOptions(each_process={named}); if that of process 0 is right "
        f"for all, pass CheckpointOptions(first_process={named})",
    )


def _paths(keys: Sequence[str]) -> list[str]:
    """The paths of the objects that these values are of."""
    return list(dict.fromkeys(key.partition("/.ATTRIBUTES/")[0] for key in keys))


def _some(keys: Sequence[str]) -> str:
    paths = _paths(keys)
    return ", ".join(paths[:_LISTED]) + (f" and {len(paths) - _LISTED} more" if paths[_LISTED:] else "")


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Numbers in runs of equal ones, which take few bytes: each number with how often it follows itself."""
    return [(number, len([*run])) for number, run in itertools.groupby(numbers)]


def _sum_before(position: int, runs: Sequence[tuple[int, int]]) -> int:
    """The sum of the numbers before a position.

    Args:
        position: The position.
        runs: The numbers, as `_runs` returns them.
    """
    total = 0
    for number, count in runs:
        total += number * min(count, position)
        position -= min(count, position)
    return total


def _written(entries: bytes, plan: SharePlan) -> Message:
    """The report of a process whose data files are durable."""
    small = [(piece.key, piece.box, len(piece.data)) for piece in plan.small]
    facts = {"entries": len(entries), "small": small}
    return Message(facts, entries + b"".join(piece.data for piece in plan.small))


def _small_of(report: Message) -> list[tuple[str, Any, bytes]]:
    small, at = [], report.facts["entries"]
    for key, box, length in report.facts["small"]:
        small.append((key, box, report.data[at : at + length]))
        at += length
    return small


def _joined(small: Sequence[tuple[str, Any, bytes]], plan: SharePlan) -> dict[str, Any]:
    """The small tensors, joined from the pieces of all processes.

    Raises:
        CoordinationError: The pieces do not make up a tensor.
    """
    arrays = {key: np.empty(spec.shape, spec.dtype.numpy) for key, spec in plan.sharded.items() if is_small(spec)}
    counts = dict.fromkeys(arrays, 0)
    for key, box, data in small:
        spec = plan.sharded[key]
        lengths = [stop - start for start, stop in box]
        piece = np.frombuffer(data, spec.dtype.numpy).reshape(lengths)
        arrays[key][index_of(box)] = piece
        counts[key] += piece.size
    for key, count in counts.items():
        if count != plan.sharded[key].size:
            raise CoordinationError(
                "the pieces of a tensor that the processes hold overlap or leave gaps; nothing was saved",
                key=key,
                expected=f"{plan.sharded[key].size} elements, of {plan.sharded[key]}",
                found=f"{count} elements",
                remedy="check that all processes hold the tensor with the same mesh and placements",
            )
    return arrays
