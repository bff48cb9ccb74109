"""What an asynchronous save of a model on a GPU takes beside its training, and what a restore takes: ``python -m benchmarks.gpu``.

The model of PyTorch is a stack of transformer blocks, that of JAX a stack of dense layers. Both are float32, and AdamW trains them in steps of
bfloat16. The model and the state of the optimizer are saved. A stall is the time from the end of a step until the call of the save has
returned, in which the GPU has nothing to do. Then the training goes on while the state is written. The delay is how much later
all steps have ended than they would have without a save.

The limits are copies of the same tensors into memory of the machine. The memory that a GPU copies into fastest is pinned, which
means that the system must not move it. To pin it takes long, so the first copy and later ones are told apart.

What the rivals do not do: torch.save, torch.distributed.checkpoint and Orbax store no checksums that a restore verifies, but for Orbax' index. The first two
sync nothing. torch.save does not return before the file is written.

This needs a GPU of NVIDIA with 24 GB or more.
"""

from __future__ import annotations

import argparse
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks import runner, tables

BLOCKS: Final = 8
LAYERS: Final = 24
WIDTH: Final = 2048
BATCH: Final = 4096
STEPS: Final = 20
"""Steps that are timed without a save."""
SAVES: Final = 3
LIMIT_S: Final = 120.0


class Training:
    """A model of PyTorch, its optimizer, and its steps."""

    def __init__(self) -> None:
        import torch

        torch.manual_seed(0)
        torch.set_float32_matmul_precision("high")
        make_block = torch.nn.TransformerEncoderLayer
        blocks = [make_block(WIDTH, WIDTH // 128, 4 * WIDTH, 0.0, batch_first=True) for _ in range(BLOCKS)]
        self.torch = torch
        self.model = torch.nn.Sequential(*blocks).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, fused=True)
        self._batch = torch.randn(BATCH // 512, 512, WIDTH, device="cuda")

    def step(self) -> None:
        """One step, until the GPU has ended it."""
        self.optimizer.zero_grad()
        with self.torch.autocast("cuda", self.torch.bfloat16):
            loss = self.model(self._batch).square().mean()
        loss.backward()
        self.optimizer.step()
        self.wait()

    def wait(self) -> None:
        """Waits until the GPU has done everything."""
        self.torch.cuda.synchronize()

    def tensors(self) -> list[Any]:
        """All tensors on the GPU that are saved."""
        state = [each for slots in self.optimizer.state.values() for each in slots.values()]
        return [each.detach() for each in [*self.model.parameters(), *state]]

    def sums(self) -> list[float]:
        """The sum of each tensor."""
        return [each.double().sum().item() for each in self.tensors()]

    def state_dict(self) -> dict[str, Any]:
        """What PyTorch itself saves."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores it."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])


class TrainingInJax:
    """A model of JAX, the state of its optimizer, and its steps, to which the former values are donated."""

    def __init__(self) -> None:
        import jax
        import jax.numpy as jnp
        import optax

        keys = jax.random.split(jax.random.key(0), LAYERS + 1)
        optimizer = optax.adamw(1e-5)
        shape = (2 * WIDTH, 2 * WIDTH)
        parameters = {f"layer{n}": jax.random.normal(keys[n], shape) / shape[0] ** 0.5 for n in range(LAYERS)}
        self._batch = jax.random.normal(keys[-1], (BATCH, shape[0]), jnp.bfloat16)

        def loss(parameters: Any, x: Any) -> Any:
            for each in parameters.values():
                x = jax.nn.gelu(x @ each.astype(jnp.bfloat16))
            return jnp.square(x.astype(jnp.float32)).mean()

        def step(state: Any, x: Any) -> Any:
            updates, moments = optimizer.update(jax.grad(loss)(state["model"], x), state["optimizer"], state["model"])
            return {"model": optax.apply_updates(state["model"], updates), "optimizer": moments}

        self.jax = jax
        self.state = {"model": parameters, "optimizer": optimizer.init(parameters)}
        self._step = jax.jit(step, donate_argnums=0)

    def step(self) -> None:
        """One step, until the GPU has ended it."""
        self.state = self._step(self.state, self._batch)
        self.wait()

    def wait(self) -> None:
        """Waits until the GPU has done everything."""
        self.jax.block_until_ready(self.state)

    def tensors(self) -> list[Any]:
        """All arrays on the GPU that are saved."""
        return list(self.jax.tree.leaves(self.state))

    def sums(self) -> list[float]:
        """The sum of each array."""
        return [float(each.sum()) for each in self.tensors()]


class Contender(NamedTuple):
    """How a state is saved and restored.

    Attributes:
        save: Begins a save, and returns what waits for its end. It is called with a function that is to be called when all is saved.
        restore: Restores it into the live objects; None if there is nothing to restore.
    """

    save: Callable[[Callable[[], object]], Callable[[], object]]
    restore: Callable[[], object] | None = None


def _copies(make: Callable[[Any, Any], Any], *, keep: bool) -> Callable[[Training, Path], Contender]:
    def contender(training: Training, _: Path) -> Contender:
        torch = training.torch
        kept: list[Any] = []

        def save(done: Callable[[], object]) -> Callable[[], object]:
            live = training.tensors()
            copies = kept or [make(torch, each) for each in live]
            for copy, each in zip(copies, live, strict=True):
                copy.copy_(each, non_blocking=True)
            torch.cuda.synchronize()
            kept[:] = copies if keep else ()
            done()
            return lambda: None

        return Contender(save)

    return contender


def _milepost(**given: Any) -> Callable[[Training, Path], Contender]:
    def contender(training: Training, directory: Path) -> Contender:
        import milepost

        checkpoint = milepost.Checkpoint(model=training.model, optimizer=training.optimizer)
        path = directory / "ckpt"

        def save(done: Callable[[], object]) -> Callable[[], object]:
            options = milepost.CheckpointOptions(experimental_write_callbacks=[lambda _: done()], **given)
            checkpoint.write(path, options)
            return checkpoint.sync

        return Contender(save, lambda: checkpoint.read(path).assert_consumed())

    return contender


def _torch(training: Training, directory: Path) -> Contender:
    torch, path = training.torch, directory / "state.pt"

    def save(done: Callable[[], object]) -> Callable[[], object]:
        torch.save(training.state_dict(), path)
        done()
        return lambda: None

    return Contender(save, lambda: training.load_state_dict(torch.load(path, map_location="cuda")))


def _distributed(*, pinned: bool) -> Callable[[Training, Path], Contender]:
    def contender(training: Training, directory: Path) -> Contender:
        import torch.distributed as dist
        import torch.distributed.checkpoint as dcp

        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        writer = dcp.FileSystemWriter(directory, cache_staged_state_dict=pinned)

        def save(done: Callable[[], object]) -> Callable[[], object]:
            future = dcp.async_save(training.state_dict(), storage_writer=writer)
            future.add_done_callback(lambda _: done())
            wait: Callable[[], object] = future.result
            return wait

        def restore() -> None:
            state = training.state_dict()
            dcp.load(state, checkpoint_id=directory)
            training.load_state_dict(state)

        return Contender(save, restore)

    return contender


def _pinned(torch: Any, tensor: Any) -> Any:
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)


def _ordinary(torch: Any, tensor: Any) -> Any:
    return torch.empty(tensor.shape, dtype=tensor.dtype)


def _jax_copies(training: TrainingInJax, _: Path) -> Contender:
    def save(done: Callable[[], object]) -> Callable[[], object]:
        pinned = [each.sharding.with_memory_kind("pinned_host") for each in training.tensors()]
        training.jax.block_until_ready(training.jax.device_put(training.tensors(), pinned))
        done()
        return lambda: None

    return Contender(save)


def _jax_milepost(training: TrainingInJax, directory: Path) -> Contender:
    import milepost
    import milepost.jax

    ended: list[Callable[[], object]] = []
    options = milepost.CheckpointOptions(enable_async=True, experimental_write_callbacks=[lambda _: ended.pop()()])
    manager = milepost.jax.TreeManager(directory, max_to_keep=1, options=options)

    def save(done: Callable[[], object]) -> Callable[[], object]:
        ended.append(done)
        manager.save(training.state)
        return manager.sync

    def restore() -> None:
        training.state, status = milepost.jax.restore(manager.latest_checkpoint or "", training.state)
        status.assert_consumed()

    return Contender(save, restore)


def _jax_orbax(training: TrainingInJax, directory: Path) -> Contender:
    import orbax.checkpoint as ocp

    checkpointer = ocp.AsyncCheckpointer(ocp.StandardCheckpointHandler())
    numbers = iter(range(9))
    last = directory

    def save(done: Callable[[], object]) -> Callable[[], object]:
        nonlocal last
        last = directory / str(next(numbers))
        checkpointer.save(last, args=ocp.args.StandardSave(training.state))

        def wait() -> None:
            checkpointer.wait_until_finished()
            done()

        thread = threading.Thread(target=wait)
        thread.start()
        return thread.join

    def restore() -> None:
        training.state = checkpointer.restore(last, args=ocp.args.StandardRestore(training.state))

    return Contender(save, restore)


TABLES: dict[str, tuple[str, Callable[[], Any], dict[str, Callable[[Any, Path], Contender]]]] = {
    "torch": (
        "PyTorch",
        Training,
        {
            "a copy into pinned memory that is kept": _copies(_pinned, keep=True),
            "a copy into ordinary memory that is kept": _copies(_ordinary, keep=True),
            "a copy into new ordinary memory": _copies(_ordinary, keep=False),
            "milepost": _milepost(enable_async=True),
            "milepost, not asynchronous": _milepost(),
            "torch.distributed.checkpoint": _distributed(pinned=False),
            "torch.distributed.checkpoint, cache_staged_state_dict": _distributed(pinned=True),
            "torch.save, not asynchronous": _torch,
        },
    ),
    "jax": (
        "JAX",
        TrainingInJax,
        {"a copy into pinned memory": _jax_copies, "milepost": _jax_milepost, "Orbax": _jax_orbax},
    ),
}


def child(task: Mapping[str, Any]) -> None:
    """Measures one contender."""
    _, make, contenders = TABLES[task["table"]]
    training = make()
    result: dict[str, float] = {}
    for _ in range(5):
        training.step()
    result["state"] = sum(each.nbytes for each in training.tensors())
    runner.touch_memory(int(result["state"] * 2.5))
    result["step"] = alone = statistics.median([_seconds(training.step) for _ in range(STEPS)])
    contender = contenders[task["contender"]](training, Path(task["directory"]))
    for number in range(SAVES):
        name = "first" if number == 0 else "later"
        for quantity, seconds in _beside(training, contender, alone):
            result[f"{name} {quantity}"] = min(seconds, result.get(f"{name} {quantity}", seconds))
    if contender.restore is not None:
        contender.save(lambda: None)()
        expected = training.sums()
        result["restore"] = min(_restore(training, contender) for _ in range(2))
        assert training.sums() == expected, "other values were restored than were saved"
    runner.answer(result)
    os._exit(0)  # without waiting for threads of a library


def _restore(training: Any, contender: Contender) -> float:
    training.step()
    assert contender.restore is not None
    start = time.perf_counter()
    contender.restore()
    training.wait()
    return time.perf_counter() - start


def _beside(training: Any, contender: Contender, alone: float) -> Iterator[tuple[str, float]]:
    """One save, and the steps that are trained until it has ended."""
    ended, saved = threading.Event(), 0.0

    def done() -> None:
        nonlocal saved
        saved = time.perf_counter()
        ended.set()

    training.wait()
    start = time.perf_counter()
    wait = contender.save(done)
    yield "stall", time.perf_counter() - start
    steps = 0
    while not ended.is_set() or steps < 5:
        training.step()
        steps += 1
    yield "delay", time.perf_counter() - start - steps * alone
    wait()
    yield "saved", saved - start


def _seconds(section: Callable[[], object]) -> float:
    start = time.perf_counter()
    section()
    return time.perf_counter() - start


def measure(table: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """All rounds of one table."""
    return tables.ask_each(__spec__.name, table, list(TABLES[table][2]), options, options.disk, LIMIT_S)


def title(options: argparse.Namespace) -> str:
    """The beginning of the report."""
    rounds = "One round" if options.rounds == 1 else f"Median (least-most) of {options.rounds} rounds"
    return (
        "## A model on a GPU\n\n"
        f"{rounds}, each row in a fresh process, in milliseconds where nothing else is said. A process saves {SAVES} "
        "times; the later saves are the better of two. Files are on a disk "
        f"({runner.filesystem(options.disk)}). A stall is how long the call of a save takes, in which the GPU waits. Its share is that of the "
        "later stall in the time of a step. A delay is how much later the training has ended all steps up to the end of a save than it would have without one. "
        "The copies are what the values of all tensors take to this machine, with nothing around."
    )


def text(table: str, samples: tables.Samples, options: argparse.Namespace) -> str:
    """One table."""
    name, _, _ = TABLES[table]
    state = max((sample.get("state", 0) for sample in samples), default=0)
    step = runner.series(samples, "step")
    step.values = [sample["step"] for sample in samples if "step" in sample]
    columns = {"first stall": 0, "later stall": 1, "later delay": 0}
    rows = []
    for contender in dict.fromkeys(sample["contender"] for sample in samples):
        found = [runner.series(samples, column, contender=contender) for column in columns]
        share = found[1].ratio(step)
        cells = [each.cell(1e3, digits) for each, digits in zip(found, columns.values(), strict=True)]
        seconds = [runner.series(samples, each, contender=contender).cell(1, 2) for each in ("later saved", "restore")]
        rows.append([contender, *cells[:2], share, cells[2], *seconds])
    header = ["", "first stall", "later stall", "in steps", "delay of the training", "until saved s", "restore s"]
    heading = f"### {name}: a state of {state / 1e9:.1f} GB, steps of {step.cell(1e3, 1)} ms"
    return f"{heading}\n\n{runner.table(header, rows)}"


BENCHMARK: Final = tables.Benchmark(tuple(TABLES), title, text)


if __name__ == "__main__":
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")
    os.environ.setdefault("JAX_PLATFORMS", "cuda,cpu")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    tables.run(BENCHMARK, runner.arguments(__doc__, "gpu", rounds=3, tables=BENCHMARK.tables), child, measure)
