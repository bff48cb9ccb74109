"""What two processes take to save and restore a sharded state together, and the limit of writing and reading its bytes.

The state is 0.75 GB of float32 in tensors of 3072 columns, each divided by rows over both processes. On a disk, a save counts until
everything is durable and a restore starts with nothing cached. A restore ends in tensors that already existed, or, for JAX, in new
arrays, and all values are compared afterwards. Of each round the slower process counts.
"""

from __future__ import annotations

import argparse
import os
import socket
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from benchmarks import runner, tables

SIZE = 2
COLUMNS = 3072
TENSORS = 160
LIMIT_S = 300.0
_CHUNK = 8 << 20


class Contender:
    """One way in which the processes save and restore together.

    Attributes:
        checks: Whether it stores a checksum of all values, and verifies it.
        syncs: Whether its save returns only when the data would survive a power cut.
    """

    checks: ClassVar[str] = "no"
    syncs: ClassVar[str] = "no"

    def __init__(self, rank: int, port: int) -> None:
        self.rank = rank

    def meet(self) -> None:
        """Returns when all processes have called it."""
        raise NotImplementedError

    def hold(self, values: Sequence[np.ndarray[Any, Any]]) -> None:
        """Makes the live state of this process' rows of each tensor."""
        raise NotImplementedError

    def save(self, directory: Path) -> None:
        """Saves, with the other process."""
        raise NotImplementedError

    def restore(self, directory: Path) -> None:
        """Restores, with the other process."""
        raise NotImplementedError

    def values(self) -> list[np.ndarray[Any, Any]]:
        """This process' rows of each tensor."""
        raise NotImplementedError


class _OnTorch(Contender):
    """Live tensors are `DTensor`; gloo connects the processes."""

    def __init__(self, rank: int, port: int) -> None:
        super().__init__(rank, port)
        import torch
        from torch.distributed.device_mesh import init_device_mesh

        torch.set_num_threads(1)
        torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=SIZE)
        self.mesh = init_device_mesh("cpu", (SIZE,))

    def meet(self) -> None:
        import torch

        torch.distributed.barrier()

    def hold(self, values: Sequence[np.ndarray[Any, Any]]) -> None:
        import torch
        from torch.distributed.tensor import DTensor, Shard

        local = [torch.from_numpy(value) for value in values]
        self.tensors = [DTensor.from_local(each, self.mesh, [Shard(0)]) for each in local]

    def values(self) -> list[np.ndarray[Any, Any]]:
        return [tensor.to_local().numpy() for tensor in self.tensors]


class Raw(_OnTorch):
    """The limit: each process writes the bytes of its rows into a file of its own, syncs it, and reads it back."""

    syncs = "yes"

    def save(self, directory: Path) -> None:
        with open(directory / f"raw-{self.rank}", "wb", buffering=0) as file:
            for value in self.values():
                data = memoryview(value.reshape(-1)).cast("B")
                for start in range(0, len(data), _CHUNK):
                    file.write(data[start : start + _CHUNK])
            os.fsync(file.fileno())

    def restore(self, directory: Path) -> None:
        with open(directory / f"raw-{self.rank}", "rb", buffering=0) as file:
            for value in self.values():
                data = memoryview(value.reshape(-1)).cast("B")
                for start in range(0, len(data), _CHUNK):
                    file.readinto(data[start : start + _CHUNK])


class MilepostTorch(_OnTorch):
    """`milepost.Checkpoint` as it is."""

    checks = "yes"
    syncs = "yes"

    def hold(self, values: Sequence[np.ndarray[Any, Any]]) -> None:
        import milepost

        super().hold(values)
        self.checkpoint = milepost.Checkpoint(tensors=self.tensors)

    def save(self, directory: Path) -> None:
        self.checkpoint.write(directory / "ckpt")

    def restore(self, directory: Path) -> None:
        self.checkpoint.read(directory / "ckpt")


class Dcp(_OnTorch):
    """`torch.distributed.checkpoint` as it is: `FileSystemWriter` with ``sync_files=True``, which syncs no directory."""

    syncs = "files"
    sync_files: ClassVar[bool] = True

    def state(self) -> dict[str, Any]:
        return {str(number): tensor for number, tensor in enumerate(self.tensors)}

    def save(self, directory: Path) -> None:
        import torch.distributed.checkpoint as dcp

        writer = dcp.FileSystemWriter(directory / "dcp", sync_files=self.sync_files)
        dcp.save(self.state(), storage_writer=writer)

    def restore(self, directory: Path) -> None:
        import torch.distributed.checkpoint as dcp

        dcp.load(self.state(), checkpoint_id=directory / "dcp")


class DcpUnsynced(Dcp):
    """The same with ``sync_files=False``."""

    syncs = "no"
    sync_files = False


class _OnJax(Contender):
    """Live arrays are `jax.Array` over one device of each process."""

    def __init__(self, rank: int, port: int) -> None:
        super().__init__(rank, port)
        import jax

        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{port}", SIZE, rank)
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("rows",))
        self.sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("rows"))

    def meet(self) -> None:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices("benchmark")

    def hold(self, values: Sequence[np.ndarray[Any, Any]]) -> None:
        import jax

        self.arrays = {
            str(number): jax.make_array_from_process_local_data(self.sharding, value)
            for number, value in enumerate(values)
        }

    def values(self) -> list[np.ndarray[Any, Any]]:
        arrays = [self.arrays[str(number)] for number in range(len(self.arrays))]
        return [np.asarray(array.addressable_shards[0].data) for array in arrays]


class MilepostJax(_OnJax):
    """`milepost.jax.save` and `milepost.jax.restore` as they are."""

    checks = "yes"
    syncs = "yes"

    def save(self, directory: Path) -> None:
        import milepost.jax

        milepost.jax.save(directory / "ckpt", self.arrays)

    def restore(self, directory: Path) -> None:
        import milepost.jax

        self.arrays, _ = milepost.jax.restore(directory / "ckpt", self.arrays)


class Orbax(_OnJax):
    """Orbax's standard checkpointer as it is."""

    checks = "of its index"
    syncs = "partly"

    def save(self, directory: Path) -> None:
        import orbax.checkpoint

        with orbax.checkpoint.StandardCheckpointer() as checkpointer:
            checkpointer.save(directory.absolute() / "orbax", self.arrays)

    def restore(self, directory: Path) -> None:
        import orbax.checkpoint

        with orbax.checkpoint.StandardCheckpointer() as checkpointer:
            self.arrays = checkpointer.restore(directory.absolute() / "orbax", self.arrays)


RAW = "raw, two processes"
CONTENDERS: dict[str, type[Contender]] = {
    RAW: Raw,
    "milepost, PyTorch": MilepostTorch,
    "DCP": Dcp,
    "DCP, sync_files=False": DcpUnsynced,
    "milepost, JAX": MilepostJax,
    "Orbax": Orbax,
}


def expected(task: Mapping[str, Any], rank: int) -> list[np.ndarray[Any, Any]]:
    """One process' rows of each tensor."""
    rows = max(round(task["megabytes"] * 1e6 / (4 * COLUMNS * TENSORS * SIZE)), 1)
    random = np.random.Generator(np.random.SFC64(rank))
    return [random.random((rows, COLUMNS), np.float32) for _ in range(TENSORS)]


def child(task: Mapping[str, Any]) -> None:
    """Saves and restores with one contender, in one of the processes."""
    directory, rank = Path(task["directory"]), task["rank"]
    contender = CONTENDERS[task["contender"]](rank, task["port"])
    warm = directory.parent / f"{directory.name}-warm"
    warm.mkdir(exist_ok=True)
    contender.hold([np.ones((8, COLUMNS), np.float32) for _ in range(4)])
    contender.meet()
    contender.save(warm)
    contender.meet()
    contender.restore(warm)

    values = expected(task, rank)
    size = sum(value.nbytes for value in values)
    contender.hold(values)
    runner.touch_memory(2 * size)
    contender.meet()
    save = runner.timed(lambda: contender.save(directory), 0)
    contender.meet()
    durable = runner.timed(lambda: runner.make_durable(directory), 0)
    contender.meet()

    contender.hold([np.full_like(value, 7) for value in values])
    if task["cold"] and rank == 0:
        runner.drop_from_cache(directory)
    runner.touch_memory(size)
    contender.meet()
    restore = runner.timed(lambda: contender.restore(directory), 0)
    for number, (found, value) in enumerate(zip(contender.values(), values, strict=True)):
        if not np.array_equal(found, value):
            raise AssertionError(f"tensor {number} was not restored")
    runner.answer(
        {
            "save": save.seconds,
            "durable": save.seconds + durable.seconds,
            "save extra": save.extra / size,
            "restore": restore.seconds,
            "restore extra": restore.extra / size,
        }
    )
    contender.meet()


def ask_all(task: Mapping[str, Any]) -> dict[str, Any]:
    """Has all processes do a task together; returns the slowest figures, or ``{"failure": why}``."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    answers: list[dict[str, Any]] = [{} for _ in range(SIZE)]

    def ask(rank: int) -> None:
        answers[rank] = runner.ask(__spec__.name, {**task, "rank": rank, "port": port}, LIMIT_S)

    threads = [threading.Thread(target=ask, args=(rank,)) for rank in range(SIZE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    failed = next((answer for answer in answers if "failure" in answer), None)
    return failed or {what: max(answer[what] for answer in answers) for what in answers[0]}


def measure(place: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """All rounds, in one place."""
    samples: list[dict[str, Any]] = []
    for number, name in runner.interleaved(options.rounds, options.only or list(CONTENDERS)):
        with runner.scratch(runner.places(options)[place]) as above:
            directory = above / "state"
            directory.mkdir()
            task = {
                "contender": name,
                "directory": str(directory),
                "cold": place == "disk",
                "megabytes": options.megabytes,
            }
            samples.append({"place": place, "round": number, "contender": name} | ask_all(task))
            print(*samples[-1].values(), flush=True)
    return samples


def title(options: argparse.Namespace) -> str:
    """The beginning of the report."""
    return (
        f"## A state of {options.megabytes / 1e3:.2f} GB of two processes\n\n"
        f"{TENSORS} tensors of float32, each divided by rows over two processes of this machine. Median (least-most) of {options.rounds} "
        "rounds, in seconds; x raw is the ratio of medians to two processes that each write the same bytes into a file, sync it, and read "
        "it back, with nothing around. In each round, two fresh processes save and then restore; the slower one counts. Extra memory is "
        "the peak of resident memory above what was resident before, in parts of a process. For JAX, a restore makes new arrays, which "
        "count; otherwise it ends in tensors that already existed. DCP stores no checksums, and does not sync the directory."
    )


def text(place: str, samples: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> str:
    """The table of one place."""
    header = ["", "checksums", "fsync", "save s", "x raw", "save until durable s", "x raw"]
    header += ["restore, cold s" if place == "disk" else "restore s", "x raw", "save extra", "restore extra"]
    rows = []
    for name in dict.fromkeys(sample["contender"] for sample in samples):
        cells = [name, CONTENDERS[name].checks, CONTENDERS[name].syncs]
        for quantity in ("save", "durable", "restore"):
            values = runner.series(samples, quantity, place=place, contender=name)
            raw = runner.series(samples, quantity, place=place, contender=RAW)
            cells += [values.cell(1, 2), values.ratio(raw)]
        for quantity in ("save extra", "restore extra"):
            cells.append(runner.series(samples, quantity, place=place, contender=name).cell(1, 2))
        rows.append(cells)
    kind = runner.filesystem(runner.places(options)[place])
    return f"### {'On disk' if place == 'disk' else 'In memory'} ({kind})\n\n{runner.table(header, rows)}"


BENCHMARK = tables.Benchmark(runner.PLACES, title, text, settings=("megabytes",))


def main() -> None:
    """Measures and reports, or, started by itself, does one task."""
    parser = runner.arguments(__doc__, "several", rounds=3, tables=BENCHMARK.tables)
    parser.add_argument("--megabytes", type=float, default=750, help="of the state of both processes together")
    parser.add_argument(
        "--only", action="append", choices=list(CONTENDERS), help="a contender; may be given more than once"
    )
    tables.run(BENCHMARK, parser, child, measure)


if __name__ == "__main__":
    main()
