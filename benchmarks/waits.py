"""How long a program waits for what is not a large tensor: starts, lists, assertions, late values, looks for NaN, stalls.

Every row is a process of its own for each contender and round. Files are on tmpfs, except in the row of the stall: there they are
on disk, because the stall is the time until an asynchronous save returns, and must not depend on the disk.

What the rivals do not do: safetensors and h5py have no graph of objects. torch.distributed.checkpoint and Orbax know no late
values, and assert nothing. TensorFlow's asynchronous save and milepost's hold the values of the moment of the call; Orbax
copies no arrays of JAX, which cannot change, and neither does milepost on a CPU.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import runner, tables

KEYS = 100_000
VARIABLES = 20_000
LATE = 2_000
STALLED = (12, (4096, 4096))
"""How many float32 arrays an asynchronous save has, and of what shape: 805 MB."""
CHAIN = 5_000
STALL = "stall"
LIMIT_S = 300.0

Measured = Iterator[tuple[str, float]]
"""Names of columns, and seconds."""


def seconds(section: Callable[[], object]) -> float:
    """How long a call takes."""
    start = time.perf_counter()
    section()
    return time.perf_counter() - start


def _import(*names: str, then: Callable[[], object] = lambda: None) -> Callable[[Path], Measured]:
    def measure(_: Path) -> Measured:
        yield "import", seconds(lambda: [importlib.import_module(name) for name in names])
        yield "and first use", seconds(then)

    return measure


def _first_checkpoint() -> None:
    import milepost

    milepost.Checkpoint(v=np.zeros(3))


def _write_keys(directory: Path) -> str:
    import milepost

    tree: dict[str, Any] = {f"block{n // 100}": {} for n in range(0, KEYS, 100)}
    for n in range(KEYS):
        tree[f"block{n // 100}"][f"w{n % 100}"] = np.float32(n)
    return milepost.save(str(directory / "keys"), tree)


def _list_milepost(directory: Path) -> Measured:
    import milepost

    path = _write_keys(directory)
    yield "keys", seconds(lambda: milepost.load_checkpoint(path).keys())
    yield "keys and shapes", seconds(lambda: milepost.list_variables(path))


def _list_tensorflow(directory: Path) -> Measured:
    import tensorflow as tf

    path = _write_keys(directory)
    yield "keys and shapes", seconds(lambda: tf.train.list_variables(path))


def _list_safetensors(directory: Path) -> Measured:
    from safetensors import safe_open
    from safetensors.numpy import save_file

    path = str(directory / "keys.safetensors")
    save_file({f"block{n // 100}.w{n % 100}": np.array([n], np.float32) for n in range(KEYS)}, path)

    def keys() -> list[str]:
        with safe_open(path, "numpy") as file:
            return list(file.keys())

    yield "keys", seconds(keys)


def _assert_milepost(directory: Path) -> Measured:
    import milepost

    def made() -> Any:
        return milepost.Checkpoint(
            layers={f"l{n}": {f"w{m}": np.full(4, n, np.float32) for m in range(100)} for n in range(VARIABLES // 100)}
        )

    status = made().read(made().write(str(directory / "ckpt")))
    live = made()
    status = live.read(str(directory / "ckpt"))
    yield "assert_consumed", seconds(status.assert_consumed) / VARIABLES


def _assert_tensorflow(directory: Path) -> Measured:
    import tensorflow as tf

    def made() -> Any:
        layers = {f"l{n}": {f"w{m}": tf.Variable([float(n)] * 4) for m in range(100)} for n in range(VARIABLES // 100)}
        return tf.train.Checkpoint(layers=layers)

    path = made().write(str(directory / "ckpt"))
    live = made()
    status = live.read(path)
    yield "assert_consumed", seconds(status.assert_consumed) / VARIABLES


def _late_milepost(directory: Path) -> Measured:
    import milepost

    class Model(milepost.Module):
        pass

    def attach(model: Any, variables: Sequence[Any]) -> None:
        for number, variable in enumerate(variables):
            setattr(model, f"v{number}", variable)

    def made() -> list[Any]:
        return [milepost.Variable(np.zeros(4, np.float32)) for _ in range(LATE)]

    saved, live = Model(), Model()
    attach(saved, made())
    milepost.Checkpoint(m=live).read(milepost.Checkpoint(m=saved).write(str(directory / "ckpt")))
    variables = made()
    yield "late variable", seconds(lambda: attach(live, variables)) / LATE


def _late_tensorflow(directory: Path) -> Measured:
    import tensorflow as tf

    def attach(model: Any, variables: Sequence[Any]) -> None:
        for number, variable in enumerate(variables):
            setattr(model, f"v{number}", variable)

    def made() -> list[Any]:
        return [tf.Variable([0.0] * 4) for _ in range(LATE)]

    saved, live = tf.Module(), tf.Module()
    attach(saved, made())
    tf.train.Checkpoint(m=live).read(tf.train.Checkpoint(m=saved).write(str(directory / "ckpt")))
    variables = made()
    yield "late variable", seconds(lambda: attach(live, variables)) / LATE


def _chain(module: type[Any], value: Callable[[], Any], length: int) -> Any:
    """The first of modules that each hold the next one and a value."""
    first = last = module()
    for left in reversed(range(length)):
        last.value = value()
        if left:
            last.next = module()
            last = last.next
    return first


def _last_of_chain(first: Any) -> Any:
    last = first
    for _ in range(CHAIN - 1):
        last = last.next
    return last


def _chain_in_checkpoints(make: Callable[[float, int], Any], directory: Path) -> Measured:
    path, saved, live = str(directory / "ckpt"), make(1.0, CHAIN), make(0.0, CHAIN)
    make(1.0, 2).read(make(1.0, 2).write(str(directory / "warm-up")))
    yield "save", seconds(lambda: saved.write(path)) / CHAIN
    yield "restore", seconds(lambda: live.read(path)) / CHAIN
    assert _last_of_chain(live.m).value.numpy()[0] == 1


def _chain_milepost(directory: Path) -> Measured:
    import milepost

    class Model(milepost.Module):
        pass

    def made(number: float, length: int) -> Any:
        first = _chain(Model, lambda: milepost.Variable(np.full(4, number, np.float32)), length)
        return milepost.Checkpoint(m=first)

    yield from _chain_in_checkpoints(made, directory)


def _chain_tensorflow(directory: Path) -> Measured:
    import tensorflow as tf

    def made(number: float, length: int) -> Any:
        return tf.train.Checkpoint(m=_chain(tf.Module, lambda: tf.Variable([number] * 4), length))

    yield from _chain_in_checkpoints(made, directory)


def _chain_torch(directory: Path) -> Measured:
    import torch

    def made(number: float) -> Any:
        return _chain(torch.nn.Module, lambda: torch.nn.Parameter(torch.full((4,), number)), CHAIN)

    sys.setrecursionlimit(100 * CHAIN)  # state_dict() calls itself for each module
    path, saved, live = directory / "model.pt", made(1.0), made(0.0)
    torch.save({"warm": torch.zeros(4)}, directory / "warm-up")
    torch.load(directory / "warm-up")
    yield "save", seconds(lambda: torch.save(saved.state_dict(), path)) / CHAIN
    yield "restore", seconds(lambda: live.load_state_dict(torch.load(path))) / CHAIN
    assert _last_of_chain(live).value[0] == 1


def _numbers(directory: Path) -> Measured:
    import milepost

    checkpoint = milepost.Checkpoint(values=[float(n) for n in range(KEYS)])
    path = str(directory / "ckpt")
    yield "save", seconds(lambda: checkpoint.write(path)) / KEYS
    yield "restore", seconds(lambda: checkpoint.read(path)) / KEYS
    status = checkpoint.read(path)
    yield "assert_consumed", seconds(status.assert_consumed) / KEYS


def _arrays() -> dict[str, Any]:
    count, shape = STALLED
    return {f"w{n}": np.full(shape, n, np.float32) for n in range(count)}


def _stalls(save: Callable[[], object], wait: Callable[[], object]) -> Measured:
    for name in ("first", "second", "third"):
        yield f"{name} stall", seconds(save)
        wait()


def _stall_copy(_: Path) -> Measured:
    arrays = list(_arrays().values())
    copies: list[Any] = []
    yield "first stall", seconds(lambda: copies.extend(array.copy() for array in arrays))

    def copy_again() -> None:
        for copy, array in zip(copies, arrays, strict=True):
            np.copyto(copy, array)

    yield "second stall", seconds(copy_again)
    yield "third stall", seconds(copy_again)


def _stall_milepost(kind: str) -> Callable[[Path], Measured]:
    def measure(directory: Path) -> Measured:
        import milepost

        arrays = _arrays()
        if kind == "torch":
            torch = importlib.import_module("torch")
            arrays = {name: torch.from_numpy(array) for name, array in arrays.items()}
        elif kind == "jax":
            jnp = importlib.import_module("jax.numpy")
            arrays = {name: jnp.asarray(array) for name, array in arrays.items()}
        checkpoint = milepost.Checkpoint(**arrays)
        options = milepost.CheckpointOptions(enable_async=True)
        yield from _stalls(lambda: checkpoint.write(str(directory / "ckpt"), options), checkpoint.sync)

    return measure


def _finite(nonfinite: str | None) -> Callable[[Path], Measured]:
    """Saves of a manager that looks for NaN and infinity, and of one that does not."""

    def measure(directory: Path) -> Measured:
        import ml_dtypes

        import milepost

        count, shape = STALLED
        floats = {f"w{n}": np.ones(shape, np.float32) for n in range(count)}
        states = {
            "float32, 805 MB": floats,
            "bfloat16, 403 MB": {name: array.astype(ml_dtypes.bfloat16) for name, array in floats.items()},
            "100,000 of 4 numbers": {f"w{n}": np.ones(4, np.float32) for n in range(100_000)},
        }
        for number, (name, state) in enumerate(states.items()):
            checkpoint = milepost.Checkpoint(state=state)
            path = directory / f"finite{number}"
            manager = milepost.CheckpointManager(checkpoint, path, 1, nonfinite=nonfinite)  # type: ignore[arg-type]
            manager.save()
            yield name, min(seconds(manager.save) for _ in range(3))

    return measure


def _stall_tensorflow(directory: Path) -> Measured:
    import tensorflow as tf

    checkpoint = tf.train.Checkpoint(**{name: tf.Variable(array) for name, array in _arrays().items()})
    options = tf.train.CheckpointOptions(enable_async=True)
    yield from _stalls(lambda: checkpoint.write(str(directory / "ckpt"), options), checkpoint.sync)


def _stall_dcp(directory: Path) -> Measured:
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    state = {name: torch.from_numpy(array) for name, array in _arrays().items()}
    running: list[Any] = []
    yield from _stalls(
        lambda: running.append(dcp.async_save(state, checkpoint_id=str(directory / f"ckpt-{len(running)}"))),
        lambda: running[-1].result(),
    )
    dist.destroy_process_group()


def _stall_orbax(directory: Path) -> Measured:
    import jax.numpy as jnp
    import orbax.checkpoint as ocp

    tree = {name: jnp.asarray(array) for name, array in _arrays().items()}
    numbers = iter(range(9))
    with ocp.AsyncCheckpointer(ocp.StandardCheckpointHandler()) as checkpointer:
        yield from _stalls(
            lambda: checkpointer.save(directory.absolute() / f"ckpt-{next(numbers)}", args=ocp.args.StandardSave(tree)),
            checkpointer.wait_until_finished,
        )


class Table(NamedTuple):
    """What is measured of each contender.

    Attributes:
        heading: With the unit.
        contenders: By name, each with the package that it needs.
    """

    heading: str
    contenders: dict[str, tuple[str, Callable[[Path], Measured]]]


TABLES: dict[str, Table] = {
    "start": Table(
        "Start of a process, after NumPy (ms)",
        {
            "milepost": ("milepost", _import("milepost", then=_first_checkpoint)),
            "safetensors": ("safetensors", _import("safetensors.numpy")),
            "h5py": ("h5py", _import("h5py")),
            "torch": ("torch", _import("torch")),
            "torch.distributed.checkpoint": ("torch", _import("torch.distributed.checkpoint")),
            "Orbax": ("orbax", _import("orbax.checkpoint")),
            "TensorFlow": ("tensorflow", _import("tensorflow")),
        },
    ),
    "list": Table(
        f"List of {KEYS:,} tensors (ms)",
        {
            "milepost": ("milepost", _list_milepost),
            "TensorFlow": ("tensorflow", _list_tensorflow),
            "safetensors": ("safetensors", _list_safetensors),
        },
    ),
    "assertion": Table(
        f"Assertion, {VARIABLES:,} variables (us each)",
        {"milepost": ("milepost", _assert_milepost), "TensorFlow": ("tensorflow", _assert_tensorflow)},
    ),
    "late": Table(
        "Variable that is attached after the restore (us each)",
        {"milepost": ("milepost", _late_milepost), "TensorFlow": ("tensorflow", _late_tensorflow)},
    ),
    "chain": Table(
        f"Chain of {CHAIN:,} modules, each below the last, with a variable each (us each)",
        {
            "milepost": ("milepost", _chain_milepost),
            "TensorFlow": ("tensorflow", _chain_tensorflow),
            "torch": ("torch", _chain_torch),
        },
    ),
    "numbers": Table(f"List of {KEYS:,} Python numbers (us each)", {"milepost": ("milepost", _numbers)}),
    "finite": Table(
        "Save of a manager that looks for NaN and infinity (ms)",
        {
            "does not look": ("milepost", _finite(None)),
            'nonfinite="keep_last_finite"': ("milepost", _finite("keep_last_finite")),
        },
    ),
    STALL: Table(
        "Stall of an asynchronous save of 805 MB (ms)",
        {
            "a copy, and nothing else": ("numpy", _stall_copy),
            "milepost, NumPy": ("milepost", _stall_milepost("numpy")),
            "milepost, PyTorch": ("torch", _stall_milepost("torch")),
            "milepost, JAX": ("jax", _stall_milepost("jax")),
            "torch.distributed.checkpoint": ("torch", _stall_dcp),
            "Orbax": ("orbax", _stall_orbax),
            "TensorFlow": ("tensorflow", _stall_tensorflow),
        },
    ),
}


def child(task: Mapping[str, Any]) -> None:
    """Measures one contender."""
    _, measure = TABLES[task["table"]].contenders[task["contender"]]
    if task["table"] == STALL:
        runner.touch_memory(4 << 30)
    runner.answer(dict(measure(Path(task["directory"]))))


def measure(table: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """All rounds of one table."""
    names = [name for name, (needs, _) in TABLES[table].contenders.items() if importlib.util.find_spec(needs)]
    parent = options.disk if table == STALL else options.memory
    return tables.ask_each(__spec__.name, table, names, options, parent, LIMIT_S)


def title(options: argparse.Namespace) -> str:
    """The beginning of the report."""
    return (
        "## Waits\n\n"
        f"Median (least-most) of {options.rounds} rounds, each in a fresh process. The files of the stalls are on "
        f"{runner.filesystem(options.disk)}, all others on {runner.filesystem(options.memory)}."
    )


def text(table: str, samples: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> str:
    """One table."""
    heading = TABLES[table].heading
    known = {"contender", "round", "failure"}
    columns = list(dict.fromkeys(name for sample in samples for name in sample if name not in known))
    scale = 1e6 if "(us" in heading else 1e3
    rows = [
        [name, *(runner.series(samples, column, contender=name).cell(scale, 1) for column in columns)]
        for name in dict.fromkeys(sample["contender"] for sample in samples)
    ]
    return f"### {heading}\n\n{runner.table(['', *columns], rows)}"


BENCHMARK = tables.Benchmark(tuple(TABLES), title, text)


def main() -> None:
    """Measures and reports, or, started by itself, does one task."""
    tables.run(BENCHMARK, runner.arguments(__doc__, "waits", rounds=3, tables=BENCHMARK.tables), child, measure)


if __name__ == "__main__":
    main()
