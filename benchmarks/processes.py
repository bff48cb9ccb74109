"""What a save of very many processes takes of each, and of process 0: ``python -m benchmarks.processes [PROCESSES] [TENSORS]``.

The other processes are simulated, one after the other: each has the real plan, the real messages, the real writer, and files in
memory. Then process 0 takes the real steps with their messages. So what is measured is work, not disks or networks. Times are
those of the processor. Every tensor is spread over all processes by rows, and takes 1 KiB of each.
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from milepost.bundle import data_path, index_path, open_whole
from milepost.distributed.rounds import Message, Rounds, Session
from milepost.engine.options import CheckpointOptions
from milepost.engine.plan import PlannedWrite
from milepost.graph.saved.object_graph import Edge, Node, ObjectGraph, SavedValue
from milepost.saving.distributed_plan import is_small, plan_share
from milepost.saving.distributed_save import divide_share, save_as_first, save_as_other
from milepost.saving.save import LiveState, Member
from milepost.series.notes import Temporary
from milepost.storage import MemoryStorage
from milepost.tensor import DType, Shard, ShardedArray, TensorSlice, TensorSpec

_ROWS = 32
_COLUMNS = 8
_PREFIX = "run/ckpt-1"
_TOKEN = "0123456789abcdef"
"""That of the claim which the simulated processes see."""
_WHAT = f"save {_PREFIX}"


class Exchange:
    """The messages of all processes, and how many bytes of them process 0 has received and sent, by round.

    Args:
        size: How many processes there are.
    """

    library = "a simulation"

    def __init__(self, size: int) -> None:
        self.size = size
        self.posted: dict[tuple[str, int], bytes] = {}
        self.received: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()


class Other:
    """The coordinator of a simulated process: it hears what process 0 will decide, before process 0 does."""

    library = Exchange.library

    def __init__(self, exchange: Exchange, rank: int, storage: MemoryStorage) -> None:
        self.rank = rank
        self.size = exchange.size
        self._exchange = exchange
        self._storage = storage

    def post(self, topic: str, message: bytes) -> None:
        self._exchange.posted[topic, self.rank] = message

    def wait(self, topic: str, rank: int, timeout: float) -> bytes | None:
        if topic.endswith("/0"):
            return Message({"token": _TOKEN, "shards": self.size + 1, "files": [(1, self.size)]}).encode()
        data = data_path(_PREFIX, self.rank, self.size + 1)
        self._storage.rename(Temporary(data, _TOKEN).path, f"{data}.part")  # its process would remove it now
        return Message({"problems": []}).encode()

    def clear(self, topic: str) -> None:
        pass


class First:
    """The coordinator of process 0, which gets what the others have posted, and notes when.

    Args:
        exchange: The messages.
        on_claim: Called with the token when process 0 tells it.
    """

    library = Exchange.library
    rank = 0

    def __init__(self, exchange: Exchange, on_claim: Callable[[str], None]) -> None:
        self.size = exchange.size
        self._exchange = exchange
        self._on_claim = on_claim
        self.skipped = 0.0
        """Seconds of ``on_claim``, which are no work of process 0."""
        self.received: dict[str, float] = {}
        self.sent: dict[str, float] = {}
        """When process 0 has received the last message of a round, and sent its own."""

    def post(self, topic: str, message: bytes) -> None:
        self._exchange.sent[topic] = len(message)
        self.sent[topic] = self._now()
        if topic.endswith("/0"):
            begun = time.process_time()
            self._on_claim(Message.decode(message).facts["token"])
            self.skipped += time.process_time() - begun

    def wait(self, topic: str, rank: int, timeout: float) -> bytes | None:
        message = self._exchange.posted.pop((topic, rank), None)
        if message is not None:
            self._exchange.received[topic] += len(message)
            self.received[topic] = self._now()
        return message

    def clear(self, topic: str) -> None:
        pass

    def _now(self) -> float:
        return time.process_time() - self.skipped


def state(rank: int, processes: int, tensors: int) -> LiveState:
    """What one process holds: some rows of every tensor."""
    keys = [f"model/layers/{number}/weight/.ATTRIBUTES/VARIABLE_VALUE" for number in range(tensors)]
    root = Node(tuple(Edge(f"layer{number}", number + 1) for number in range(tensors)))
    leaves = [Node((), (SavedValue("VARIABLE_VALUE", "", key, False),)) for key in keys]
    shape, dtype = (_ROWS * processes, _COLUMNS), DType.of("float32")
    piece = np.full((_ROWS, _COLUMNS), rank, np.float32)
    array = ShardedArray(piece.dtype, shape, [Shard((_ROWS * rank, 0), piece, (rank,))], "rows")
    writes = [PlannedWrite(key, number + 1, dtype, shape) for number, key in enumerate(keys)]
    return LiveState(ObjectGraph((root, *leaves)), writes, [array] * tensors)


def save_others(exchange: Exchange, tensors: int, storage: MemoryStorage) -> list[float]:
    """Has all processes but the first plan, report and write; returns the seconds that each took."""
    times = []
    with storage.create(Temporary.claim(_PREFIX, _TOKEN, exchange.size + 1).path):
        pass
    for rank in range(1, exchange.size):
        rounds = Rounds(Session(Other(exchange, rank, storage)), _WHAT, timeout=300)
        held = state(rank, exchange.size, tensors)
        begun = time.process_time()
        plan, arrays = plan_share(held, Member(rank, exchange.size), CheckpointOptions())
        given = arrays, storage, _PREFIX, CheckpointOptions()
        with divide_share(rounds, plan, *given) as division:
            save_as_other(rounds, plan, division, *given)
        times.append(time.process_time() - begun)
    storage.remove(Temporary.claim(_PREFIX, _TOKEN, exchange.size + 1).path)
    return times


def save_first(exchange: Exchange, tensors: int, storage: MemoryStorage) -> tuple[float, float, float]:
    """Has process 0 save with the others; returns the seconds until it has decided, until it has all reports, and from then on."""

    def give_names(token: str) -> None:
        for rank in range(1, exchange.size):
            data = data_path(_PREFIX, rank, exchange.size + 1)
            storage.rename(f"{data}.part", Temporary(data, token).path)

    plan, arrays = plan_share(state(0, exchange.size, tensors), Member(0, exchange.size), CheckpointOptions())
    first = First(exchange, give_names)
    rounds = Rounds(Session(first), _WHAT, timeout=300)
    begun = time.process_time()
    given = arrays, storage, _PREFIX, CheckpointOptions()
    with divide_share(rounds, plan, *given) as division:
        save_as_first(rounds, plan, division, *given, None)
    rounds.conclude(Message({"problems": []}))
    ended = time.process_time() - first.skipped
    decided, collected = first.sent["1/0"], first.received["1/1"]
    return decided - begun, collected - decided, ended - collected


def read_as_last(processes: int, storage: MemoryStorage) -> tuple[float, int]:
    """Has the last process open the checkpoint and read its rows of every tensor; returns the seconds, and the number of tensors."""
    rank = processes - 1
    box = TensorSlice(((_ROWS * rank, _ROWS), (0, -1)))
    begun = time.process_time()
    with open_whole(storage, _PREFIX) as reader:
        keys = [key for key in reader.keys() if key.startswith("model")]  # noqa: SIM118 - a reader is no mapping
        for key in keys:
            assert np.all(reader.read(key, box) == rank), key
    return time.process_time() - begun, len(keys)


def memory(which: str) -> int:
    """Bytes of memory of this program, of which ``VmRSS`` is what it has, and ``VmHWM`` the most it had."""
    found = re.search(rf"{which}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) << 10 if found else 0


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.processes", description=__doc__)
    parser.add_argument("processes", nargs="?", type=int, default=1024)
    parser.add_argument("tensors", nargs="?", type=int, default=1000)
    given = parser.parse_args()
    if is_small(TensorSpec(DType.of("float32"), (_ROWS * given.processes, _COLUMNS))):
        parser.error("with so few processes, the tensors are small ones, which have one piece: try 128")
    storage, exchange = MemoryStorage(), Exchange(given.processes)
    storage.make_directory("run")
    times = save_others(exchange, given.tensors, storage)
    before = memory("VmRSS")
    with suppress(OSError):  # elsewhere than on Linux
        Path("/proc/self/clear_refs").write_text("5")
    compared, collected, merged = save_first(exchange, given.tensors, storage)
    grown = memory("VmHWM") - before + exchange.received.total()
    index = len(storage.open(index_path(_PREFIX)).read(0, storage.open(index_path(_PREFIX)).size))
    reading, tensors = read_as_last(given.processes, storage)
    pieces, others = given.processes * given.tensors, given.processes - 1
    whole = compared + collected + merged
    print(f"{given.processes} processes, {given.tensors} tensors, {pieces} pieces")
    print(
        f"each process plans, writes and reports: {statistics.median(times) * 1e3:.0f} ms (most {max(times) * 1e3:.0f} ms)"
    )
    print(
        f"process 0 from the first message to the commit: {whole:.2f} s, {whole / pieces * 1e6:.1f} us a piece, of which"
    )
    print(f"  to collect and compare summaries: {compared:.2f} s")
    print(f"  to write its own part and collect reports: {collected:.2f} s")
    print(f"  to merge the index and commit: {merged:.2f} s")
    print(f"process 0 needs for it, messages included: {grown / 1e6:.0f} MB, {grown / pieces:.0f} bytes a piece")
    print(
        f"messages: {exchange.received.total() / 1e6:.1f} MB in {2 * others} to process 0, {len(exchange.sent)} from it to all"
    )
    for number, (topic, received) in enumerate(exchange.received.items(), 1):
        size, answer = received / others, exchange.sent[topic]
        print(f"  round {number}: each of {others} processes sends {size:.0f} bytes")
        if topic in exchange.sent:
            print(f"  round {number}: process 0 answers with {answer} bytes, which all read")
    print(f"the index: {index / 1e6:.1f} MB, {index / pieces:.1f} bytes a piece")
    print(f"a process opens it and reads its part of {tensors} tensors: {reading:.2f} s")


if __name__ == "__main__":
    main()
