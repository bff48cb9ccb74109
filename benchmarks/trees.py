"""What small arrays of JAX take in a save and a restore of a tree, and what JAX itself takes to read and to make them.

The tree has 20,000 arrays of four float32 in nested dicts, on a CPU; its files are on tmpfs. CPU time is measured, in a process of
its own for each contender and round; the least of all rounds is reported, which the load of the machine disturbs least. Rows in
which nothing is written show what JAX takes for as many arrays: a save has to read each, and a restore has to make each.

What the rivals do not do: flax.serialization stores no checksums and syncs nothing. Orbax stores checksums of its index only.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from benchmarks import runner

COUNT: Final = 20_000
LIMIT_S: Final = 120.0
_REPEATS: Final = 3
"""How often a process does an operation; the least counts."""
_ENOUGH_S: Final = 5.0
"""CPU seconds after which a process does not do an operation again."""


def _as_it_is(held: Any) -> Any:
    return held


class Way(NamedTuple):
    """One contender.

    Attributes:
        needs: The package that it needs.
        out: Saves a tree to a path, or reads its arrays.
        back: Restores a tree of the same structure from a path, or makes such arrays from those of NumPy.
        saved: Makes what is saved from the dicts of arrays.
        live: Makes what is restored from it.
    """

    needs: str
    out: Callable[[Any, Path], object] | None
    back: Callable[[Any, Path], Any] | None
    saved: Callable[[Any], Any] = _as_it_is
    live: Callable[[Any], Any] = _as_it_is


def tree() -> dict[str, dict[str, Any]]:
    """The arrays."""
    import jax.numpy as jnp

    return {
        f"group{n}": {f"array{m}": jnp.asarray(np.full(4, m, np.float32)) for m in range(100)}
        for n in range(COUNT // 100)
    }


def _leaves(held: Any) -> list[Any]:
    return [each for group in held.values() for each in group.values()]


def _in_numpy() -> list[np.ndarray[Any, Any]]:
    return [np.full(4, n % 100, np.float32) for n in range(COUNT)]


_MADE: Final[list[np.ndarray[Any, Any]]] = []
"""The arrays of NumPy from which arrays of JAX are made, made before the time is taken."""


def _save(held: Any, path: Path) -> object:
    import milepost.jax

    return milepost.jax.save(path, held)


def _restore(held: Any, path: Path) -> Any:
    import milepost.jax

    return milepost.jax.restore(path, held)[0]


def _as_variables(held: Any) -> Any:
    from flax import nnx

    return nnx.State({name: {key: nnx.Param(each) for key, each in group.items()} for name, group in held.items()})


def _as_module(held: Any) -> Any:
    from flax import nnx

    return nnx.Dict({name: nnx.Dict(group) for name, group in _as_variables(held).raw_mapping.items()})


def _abstract(held: Any) -> Any:
    import jax

    return jax.tree.map(lambda each: jax.ShapeDtypeStruct(each.shape, each.dtype), held)


def _flax_save(held: Any, path: Path) -> object:
    from flax import serialization

    return path.write_bytes(serialization.to_bytes(held))


def _flax_restore(held: Any, path: Path) -> Any:
    import jax
    from flax import serialization

    return jax.tree.map(jax.numpy.asarray, serialization.from_bytes(held, path.read_bytes()))


def _orbax_save(held: Any, path: Path) -> object:
    import orbax.checkpoint

    with orbax.checkpoint.StandardCheckpointer() as checkpointer:
        return checkpointer.save(path, held, force=True)


def _orbax_restore(held: Any, path: Path) -> Any:
    import orbax.checkpoint

    with orbax.checkpoint.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(path, held)


def _read_each(held: Any, _: Path) -> object:
    return [np.asarray(each) for each in _leaves(held)]


def _read_all(held: Any, _: Path) -> object:
    import jax

    return jax.device_get(_leaves(held))


def _make_each(_: Any, __: Path) -> Any:
    import jax.numpy as jnp

    return [jnp.asarray(each) for each in _MADE]


def _make_all(_: Any, __: Path) -> Any:
    import jax

    return jax.device_put(_MADE)


def _make_privately(held: Any, _: Path) -> Any:
    from milepost.adapters.jax.private import PUT

    first = held["group0"]["array0"]
    (device,) = first.sharding.device_set
    return [PUT(first.aval, first.sharding, [each], [device], False) for each in _MADE]


WAYS: Final = {
    "milepost.jax": Way("milepost", _save, _restore),
    "milepost.jax, restored into jax.ShapeDtypeStruct": Way("milepost", _save, _restore, live=_abstract),
    "milepost.jax, as variables of NNX in an nnx.State": Way("flax", _save, _restore, _as_variables),
    "milepost.jax, as variables of NNX in modules": Way("flax", _save, _restore, _as_module),
    "flax.serialization": Way("flax", _flax_save, _flax_restore),
    "Orbax": Way("orbax", _orbax_save, _orbax_restore),
    "JAX: numpy.asarray, jax.numpy.asarray of each": Way("jax", _read_each, _make_each),
    "JAX: jax.device_get, jax.device_put of a list": Way("jax", _read_all, _make_all),
    "JAX: the private function that milepost uses": Way("jax", None, _make_privately),
}


def child(task: Mapping[str, Any]) -> None:
    """Measures one contender."""
    way, path = WAYS[task["contender"]], Path(task["directory"]).absolute() / "tree"
    _MADE.extend(_in_numpy())
    found = {}
    for operation, call in (("save", way.out), ("restore", way.back)):
        if call is None:
            continue
        times: list[float] = []
        while len(times) < _REPEATS and sum(times) < _ENOUGH_S:
            held = way.saved(tree())  # fresh, because JAX keeps what NumPy has read once
            if operation == "restore":
                held = way.live(held)
            begun = time.process_time()
            call(held, path)
            times.append(time.process_time() - begun)
        found[operation] = min(times)
    runner.answer(found)


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """All rounds."""
    samples: list[dict[str, Any]] = []
    names = [name for name, way in WAYS.items() if importlib.util.find_spec(way.needs)]
    beaten: set[str] = set()
    for number, name in runner.interleaved(options.rounds, names):
        if name in beaten:
            continue
        with runner.scratch(options.memory) as directory:
            result = runner.ask(__spec__.name, {"contender": name, "directory": str(directory)}, LIMIT_S)
        samples.append({"round": number, "contender": name} | result)
        print(*samples[-1].values(), flush=True)
        if "failure" in result:
            beaten.add(name)
    return samples


def text(samples: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> str:
    """The report."""
    rows = []
    for name in dict.fromkeys(sample["contender"] for sample in samples):
        cells = [name]
        for operation in ("save", "restore"):
            found = runner.series(samples, operation, contender=name)
            cells.append(f"{min(found.values) / COUNT * 1e6:.1f}" if found.values else found.failure or "-")
        rows.append(cells)
    return "\n\n".join(
        [
            "## Small arrays of JAX in a tree",
            f"CPU time, in microseconds for each of {COUNT:,} arrays of four float32 in nested dicts, on a CPU and "
            f"{runner.filesystem(options.memory)}: the least of {options.rounds} rounds, each in a fresh process that does it up to "
            f"{_REPEATS} times. Who took more than {LIMIT_S:.0f} s in a round is not asked again. The rows that begin with JAX write and "
            "read no file: they are what JAX takes to hand as many arrays to NumPy, and to make them from arrays of NumPy. "
            "flax.serialization stores no checksums and syncs nothing; Orbax stores checksums of its index only.",
            runner.table(["", "save", "restore"], rows),
        ]
    )


def main() -> None:
    """Measures and reports, or, started by itself, does one task."""
    runner.run(runner.arguments(__doc__, "trees", rounds=5), child, measure, text)


if __name__ == "__main__":
    main()
