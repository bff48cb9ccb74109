"""What a save of very many processes takes of each, and of process 0: ``python -m benchmarks.processes [PROCESSES] [TENSORS]``.

The processes are simulated, one after the other: each has the real plan, the real writer, and files in memory, so what is
measured is work, not disks or networks. Times are those of the processor. Every tensor is spread over all processes by rows.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time

import numpy as np

from milepost.bundle import BundleReader, BundleWriter, data_path, index_path, open_whole
from milepost.bundle.merging import contribution, merged_index
from milepost.engine.options import CheckpointOptions
from milepost.engine.plan import PlannedWrite
from milepost.engine.save import Member, State
from milepost.engine.together.part import fill
from milepost.engine.together.plan import SharePlan, plan_share
from milepost.graph.object_graph import Edge, Node, ObjectGraph, SavedValue
from milepost.storage import MemoryStorage
from milepost.tensor import DType, Shard, ShardedArray

_ROWS = 128
_COLUMNS = 8
_PREFIX = "run/ckpt-1"


def state(rank: int, processes: int, tensors: int) -> State:
    """What one process holds: some rows of every tensor."""
    keys = [f"model/layers/{number}/weight/.ATTRIBUTES/VARIABLE_VALUE" for number in range(tensors)]
    root = Node(tuple(Edge(f"layer{number}", number + 1) for number in range(tensors)))
    leaves = [Node((), (SavedValue("VARIABLE_VALUE", "", key, False),)) for key in keys]
    shape, dtype = (_ROWS * processes, _COLUMNS), DType.of("float32")
    piece = np.full((_ROWS, _COLUMNS), rank, np.float32)
    array = ShardedArray(piece.dtype, shape, [Shard((_ROWS * rank, 0), piece, (rank,))], "rows")
    writes = [PlannedWrite(key, number + 1, dtype, shape) for number, key in enumerate(keys)]
    return State(ObjectGraph((root, *leaves)), writes, [array] * tensors)


def write(rank: int, processes: int, tensors: int, storage: MemoryStorage) -> tuple[SharePlan, bytes]:
    """Has one process plan and write; returns its plan, and what it adds to the index."""
    options = CheckpointOptions()
    plan, arrays = plan_share(state(rank, processes, tensors), Member(rank, processes), options)
    writer = BundleWriter(shards=processes, alignment=options.data_alignment)
    fill(writer, plan, arrays, rank)
    with storage.create(data_path(_PREFIX, rank, processes)) as file:
        writer.write_shard(rank, file)
    return plan, contribution(writer.entries, writer.pieces)


def check(reader: BundleReader, processes: int) -> None:
    """Makes sure that a tensor is what the processes have written together."""
    key = reader.keys()[0]
    expected = np.repeat(np.arange(processes, dtype=np.float32), _ROWS)
    assert np.array_equal(reader.read(key)[:, 0], expected), key


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.processes", description=__doc__)
    parser.add_argument("processes", nargs="?", type=int, default=1024)
    parser.add_argument("tensors", nargs="?", type=int, default=1000)
    given = parser.parse_args()
    storage = MemoryStorage()
    storage.make_directory("run")
    parts, times = [], []
    for rank in range(given.processes):
        begun = time.process_time()
        plan, part = write(rank, given.processes, given.tensors, storage)
        times.append(time.process_time() - begun)
        parts.append(part)
    begun = time.process_time()
    index = merged_index(parts, [key.encode() for key in plan.sharded], given.processes)
    merging = time.process_time() - begun
    with storage.create(index_path(_PREFIX)) as file:
        file.write(0, [index])
    begun = time.process_time()
    with open_whole(storage, _PREFIX) as reader:
        check(reader, given.processes)
    reading = time.process_time() - begun
    pieces = given.processes * given.tensors
    print(f"{given.processes} processes, {given.tensors} tensors, {pieces} pieces")
    print(f"each process plans and writes: {statistics.median(times) * 1e3:.0f} ms (most {max(times) * 1e3:.0f} ms)")
    print(f"each process reports: {len(parts[-1]) / 1e3:.0f} kB")
    print(f"process 0 merges the index: {merging:.2f} s, {merging / pieces * 1e6:.1f} us a piece")
    print(f"the index: {len(index) / 1e6:.1f} MB, {len(index) / pieces:.0f} bytes a piece")
    print(f"a reader opens it and reads a tensor of {given.processes} pieces: {reading:.2f} s")
    print(f"memory of this program: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")


if __name__ == "__main__":
    main()
