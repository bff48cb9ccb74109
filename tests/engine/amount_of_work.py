"""Counts what saves, restores and assertions do for each value: ``python -m tests.engine.amount_of_work DIRECTORY [FRAMEWORK]``.

It prints JSON. The values are those of NumPy and Python, or of the framework, which is ``torch`` or ``jax``. It is a process of its own,
because adapters of frameworks that other tests have imported are asked too.
"""

import gc
import itertools
import json
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import milepost
from milepost.coding import crc32c

PACKAGE = str(Path(milepost.__file__).parent)
SMALL, LARGE = 300, 900


def arrays(count):
    layers = {
        f"layer{n // 10}": {f"w{m}": np.full(4, n + m, np.float32) for m in range(10)} for n in range(0, count, 10)
    }
    return milepost.Checkpoint(layers=layers)


def numbers(count):
    return milepost.Checkpoint(values=[float(n) for n in range(count)])


def variables(count):
    model = milepost.Module()
    for n in range(count):
        setattr(model, f"v{n}", milepost.Variable(np.full(4, n, np.float32)))
    return milepost.Checkpoint(model=model)


def parameters(count):
    import torch

    model = torch.nn.Module()
    for n in range(count):
        model.register_parameter(f"p{n}", torch.nn.Parameter(torch.full((4,), float(n))))
    return milepost.Checkpoint(model=model)


def late_variables(count, path):
    """Restores a module without variables, and makes them after that."""
    live = milepost.Module()
    milepost.Checkpoint(model=live).read(path)
    for n in range(count):
        setattr(live, f"v{n}", milepost.Variable(np.zeros(4, np.float32)))
    assert live.v9.numpy()[0] == 9


def late_parameters(count, path):
    import torch

    live = torch.nn.Module()
    milepost.Checkpoint(model=live).read(path)
    for n in range(count):
        live.register_parameter(f"p{n}", torch.nn.Parameter(torch.zeros(4)))
    assert live.p9[0] == 9


class JaxTree:
    """A tree of arrays of JAX, behind the calls of a checkpoint."""

    def __init__(self, count):
        import jax.numpy as jnp

        self.tree = {
            f"layer{n // 10}": {f"w{m}": jnp.asarray(np.full(4, n + m, np.float32)) for m in range(10)}
            for n in range(0, count, 10)
        }

    def write(self, path):
        import milepost.jax

        return milepost.jax.save(path, self.tree)

    def read(self, path):
        import milepost.jax

        return milepost.jax.restore(path, self.tree)[1]


STATES = {
    "": {"arrays": arrays, "numbers": numbers, "variables": variables},
    "torch": {"parameters": parameters},
    "jax": {"jax arrays": JaxTree},
}
"""The states by framework; without one, those of NumPy and Python."""
LATE = {"variables": late_variables, "parameters": late_parameters}
"""Functions that make the values of a state after a restore."""


def operation(make, count, what, path):
    """A function that saves, restores or asserts, once everything that happens only once has happened."""
    saved, live = make(count), make(count)
    saved.write(path)
    status = live.read(path)
    status.assert_consumed()
    attempts = itertools.count()
    return {
        "save": lambda: saved.write(f"{path}-{next(attempts)}"),
        "restore": lambda: live.read(path).expect_partial(),
        "assert": status.assert_consumed,
        "late": lambda: LATE[make.__name__](count, path),
    }[what]


def calls(run):
    counted = 0

    def note(frame, event, _):
        nonlocal counted
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<"):
            counted += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return counted


def allocated(run):
    gc.collect()
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def kept(run):
    """Blocks of memory that are still allocated afterwards, with what the call returned."""
    gc.collect()
    before = sys.getallocatedblocks()
    returned = run()
    gc.collect()
    after = sys.getallocatedblocks()
    del returned
    return after - before


def hashed(run):
    """Bytes of which a checksum is computed."""
    counted = 0
    of_small, (name, of_large) = crc32c._extend, crc32c.provider()

    def small(value, data):
        nonlocal counted
        counted += memoryview(data).nbytes
        return of_small(value, data)

    def large(data, value):
        nonlocal counted
        counted += memoryview(data).nbytes
        return of_large(data, value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crc32c, "_extend", small)
        patch.setattr(crc32c, "provider", lambda: (name, large))
        run()
    return counted


def system_calls(run):
    """System calls that read or write, as Linux counts them."""

    def now():
        fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
        return int(fields["syscr"]) + int(fields["syscw"])

    before = now()
    run()
    return now() - before


MEASURES = {"calls": calls, "bytes": allocated, "kept": kept, "hashed": hashed}
if Path("/proc/self/io").exists():
    MEASURES["system calls"] = system_calls


def main(directory, framework=""):
    found = {name: {} for name in MEASURES}
    for state, make in STATES[framework].items():
        for what in ("save", "restore", "assert", *(["late"] if state in LATE else [])):
            place = Path(directory) / f"{state}-{what}"
            place.mkdir()
            small, large = (operation(make, count, what, str(place / str(count))) for count in (SMALL, LARGE))
            for name, measure in MEASURES.items():
                found[name][f"{state}, {what}"] = (measure(large) - measure(small)) / (LARGE - SMALL)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
