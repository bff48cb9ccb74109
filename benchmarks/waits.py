"""How long a program waits for what is not a large tensor: starts, lists, assertions, late values, stalls.

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
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import runner

KEYS = 100_000
VARIABLES = 20_000
LATE = 2_000
STALLED = (12, (4096, 4096))
"""How many float32 arrays an asynchronous save has, and of what shape: 805 MB."""
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


ROWS: dict[str, dict[str, tuple[str, Callable[[Path], Measured]]]] = {
    "Start of a process, after NumPy (ms)": {
        "milepost": ("milepost", _import("milepost", then=_first_checkpoint)),
        "safetensors": ("safetensors", _import("safetensors.numpy")),
        "h5py": ("h5py", _import("h5py")),
        "torch": ("torch", _import("torch")),
        "torch.distributed.checkpoint": ("torch", _import("torch.distributed.checkpoint")),
        "Orbax": ("orbax", _import("orbax.checkpoint")),
        "TensorFlow": ("tensorflow", _import("tensorflow")),
    },
    f"List of {KEYS:,} tensors (ms)": {
        "milepost": ("milepost", _list_milepost),
        "TensorFlow": ("tensorflow", _list_tensorflow),
        "safetensors": ("safetensors", _list_safetensors),
    },
    f"Assertion, {VARIABLES:,} variables (us each)": {
        "milepost": ("milepost", _assert_milepost),
        "TensorFlow": ("tensorflow", _assert_tensorflow),
    },
    "Variable that is attached after the restore (us each)": {
        "milepost": ("milepost", _late_milepost),
        "TensorFlow": ("tensorflow", _late_tensorflow),
    },
    f"List of {KEYS:,} Python numbers (us each)": {"milepost": ("milepost", _numbers)},
    "Stall of an asynchronous save of 805 MB (ms)": {
        "a copy, and nothing else": ("numpy", _stall_copy),
        "milepost, NumPy": ("milepost", _stall_milepost("numpy")),
        "milepost, PyTorch": ("torch", _stall_milepost("torch")),
        "milepost, JAX": ("jax", _stall_milepost("jax")),
        "torch.distributed.checkpoint": ("torch", _stall_dcp),
        "Orbax": ("orbax", _stall_orbax),
        "TensorFlow": ("tensorflow", _stall_tensorflow),
    },
}
"""For each table its contenders, each with the package that it needs."""


def child(task: Mapping[str, Any]) -> None:
    """Measures one contender."""
    _, measure = ROWS[task["table"]][task["contender"]]
    if "Stall" in task["table"]:
        runner.touch_memory(4 << 30)
    runner.answer(dict(measure(Path(task["directory"]))))


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """All rounds of all tables."""
    samples: list[dict[str, Any]] = []
    for table, contenders in ROWS.items():
        names = [name for name, (needs, _) in contenders.items() if importlib.util.find_spec(needs)]
        for number, name in runner.interleaved(options.rounds, names):
            with runner.scratch(options.disk if "Stall" in table else options.memory) as directory:
                task = {"table": table, "contender": name, "directory": str(directory)}
                sample = {"table": table, "contender": name, "round": number}
                samples.append(sample | runner.ask(__spec__.name, task, LIMIT_S))
                print(*samples[-1].values(), flush=True)
    return samples


def text(samples: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> str:
    """The report."""
    parts = [
        "## Waits",
        f"Median (least-most) of {options.rounds} rounds, each in a fresh process. The files of the stalls are on "
        f"{runner.filesystem(options.disk)}, all others on {runner.filesystem(options.memory)}.",
    ]
    for table in ROWS:
        of_table = [sample for sample in samples if sample["table"] == table]
        known = {"table", "contender", "round", "failure"}
        columns = list(dict.fromkeys(name for sample in of_table for name in sample if name not in known))
        scale = 1e6 if "(us" in table else 1e3
        rows = [
            [name, *(runner.series(of_table, column, contender=name).cell(scale, 1) for column in columns)]
            for name in dict.fromkeys(sample["contender"] for sample in of_table)
        ]
        parts += [f"### {table}", runner.table(["", *columns], rows)]
    return "\n\n".join(parts)


def main() -> None:
    """Measures and reports, or, started by itself, does one task."""
    parser = runner.arguments(__doc__, "waits", rounds=3)
    runner.run(parser, child, measure, text)


if __name__ == "__main__":
    main()
