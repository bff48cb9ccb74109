"""Programs that read and write the files of a library, and one of Grain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.versions.training import Run, loop

_VALUES: Final[Mapping[str, Any]] = {
    "kernel": np.arange(12, dtype=np.float32).reshape(3, 4),
    "step": np.array(7, np.int64),
}


def with_grain(run: Run) -> None:
    """A shuffled iterator of Grain."""
    from grain import python as grain

    sums = np.zeros(2)
    iterator = iter(grain.MapDataset.range(48).shuffle(seed=0).map(lambda number: np.float64(number)).to_iter_dataset())

    def step(number: int) -> None:
        sums[0] = 3 * sums[0] + next(iterator)

    loop(run, {"data": iterator, "sums": sums}, step, lambda: [sums])


def compare(run: Run, write: Callable[[str], object], read: Callable[[str], Any], ending: str, **options: Any) -> None:
    """Reads a file of a library with milepost, and a file of milepost with the library. Files that another version has written are read as they are."""
    import milepost

    theirs, ours, target = (f"{run.saves}-{name}" for name in (f"theirs{ending}", "ours", f"ours{ending}"))
    if not Path(theirs).exists():
        write(theirs)
        milepost.convert(milepost.Checkpoint(**_VALUES).write(ours), target, **options)
    values = milepost.load(theirs)
    values = values["layers"]["dense"]["vars"] if "layers" in values else values
    run.tell(same=_same(values) and _same(read(target)))


def _same(values: Any) -> bool:
    arrays = (
        [values[name] for name in _VALUES]
        if "kernel" in values
        else list(values.values() if isinstance(values, dict) else values)
    )
    return all(np.array_equal(array, value) for array, value in zip(arrays, _VALUES.values(), strict=True))


def with_orbax(run: Run) -> None:
    """A directory of Orbax."""
    from orbax.checkpoint import StandardCheckpointer

    def write(path: str) -> None:
        with StandardCheckpointer() as checkpointer:
            checkpointer.save(path, dict(_VALUES))

    def read(path: str) -> Any:
        with StandardCheckpointer() as checkpointer:
            return checkpointer.restore(path)

    compare(run, write, read, "", format="orbax")


def with_safetensors(run: Run) -> None:
    """A file of safetensors."""
    from safetensors.numpy import load_file, save_file

    compare(run, lambda path: save_file(dict(_VALUES), path), load_file, ".safetensors")


def with_h5py(run: Run) -> None:
    """A file of h5py, as Keras names what is in it."""
    import h5py

    names = {name: f"layers/dense/vars/{number}" for number, name in enumerate(_VALUES)}

    def write(path: str) -> None:
        with h5py.File(path, "w") as file:
            for name, value in _VALUES.items():
                file[names[name]] = value

    def read(path: str) -> Any:
        with h5py.File(path) as file:
            return {name: file[names[name]][()] for name in _VALUES}

    compare(run, write, read, ".weights.h5", rename=names)


PROGRAMS: Final[Mapping[str, Callable[[Run], None]]] = {
    "grain": with_grain,
    "orbax": with_orbax,
    "safetensors": with_safetensors,
    "h5py": with_h5py,
}
COMPARING: Final = ("orbax", "safetensors", "h5py")
"""Programs that train nothing."""
