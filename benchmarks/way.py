"""How many functions one value passes on its way into a file and back: ``python -m benchmarks.way [--list]``.

Calls of milepost's own functions are traced while one checkpoint is written or read, after another one has been, so that imports and
what is made once are not counted. Printed are the calls, the distinct functions and the files that these are in, for

- a float32 of a NumPy variable, written and read;
- the kernel of a Keras layer that is built after the restore, in the call that builds it;
- a moment of PyTorch's Adam, written and read with its parameter.

``--list`` prints the functions too, in the order in which they are first called.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

import milepost

PACKAGE = str(Path(milepost.__file__).parent)


class Trace:
    """The functions of milepost that were called, in the order of their first calls."""

    def __init__(self) -> None:
        self.calls: dict[CodeType, int] = {}

    @property
    def files(self) -> set[str]:
        """The files that hold them."""
        return {code.co_filename for code in self.calls}

    def __str__(self) -> str:
        return f"{sum(self.calls.values()):>6} {len(self.calls):>10} {len(self.files):>6}"

    def listed(self) -> Iterator[str]:
        """One line for each function."""
        for code, count in self.calls.items():
            yield f"    {count:>5}  {os.path.relpath(code.co_filename, PACKAGE)}: {code.co_qualname}"


@contextmanager
def traced() -> Iterator[Trace]:
    """Traces the calls in its block, in this thread."""
    trace = Trace()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<"):
            trace.calls[code] = trace.calls.get(code, 0) + 1

    sys.setprofile(note)
    try:
        yield trace
    finally:
        sys.setprofile(None)


def numpy_variable(prefix: str) -> dict[str, Trace]:
    """A float32 of a NumPy variable."""

    def made() -> milepost.Checkpoint:
        return milepost.Checkpoint(v=milepost.Variable(np.float32(1)))

    return _written_and_read(made, prefix)


def keras_kernel(prefix: str) -> dict[str, Trace]:
    """The kernel of a Keras layer that is made late."""
    os.environ.setdefault("KERAS_BACKEND", "torch")
    import keras

    def built(layer: Any) -> Any:
        layer(np.ones((1, 2), np.float32))
        return layer

    def late(path: str) -> tuple[Any, Any]:
        layer = keras.layers.Dense(3, use_bias=False)
        return layer, milepost.Checkpoint(layer=layer).read(path)

    path = milepost.Checkpoint(layer=built(keras.layers.Dense(3, use_bias=False))).write(prefix)
    built(late(path)[0])
    layer, status = late(path)
    with traced() as trace:
        built(layer)
    status.assert_consumed()
    return {"late": trace}


def torch_moment(prefix: str) -> dict[str, Trace]:
    """A moment of PyTorch's Adam."""
    import torch

    def made() -> milepost.Checkpoint:
        parameter = torch.nn.Parameter(torch.ones(2))
        optimizer = torch.optim.Adam([parameter])
        parameter.grad = torch.ones(2)
        optimizer.step()
        return milepost.Checkpoint(parameter=parameter, optimizer=optimizer)

    return _written_and_read(made, prefix)


def _written_and_read(made: Callable[[], milepost.Checkpoint], prefix: str) -> dict[str, Trace]:
    made().read(made().write(f"{prefix}-before"))
    checkpoint, fresh = made(), made()
    with traced() as out:
        path = checkpoint.write(prefix)
    with traced() as back:
        status = fresh.read(path)
    status.assert_consumed()
    return {"out": out, "back": back}


VALUES = {
    "a float32 of a NumPy variable": ("numpy", numpy_variable),
    "a kernel of Keras": ("keras", keras_kernel),
    "a moment of PyTorch's Adam": ("torch", torch_moment),
}


def main(*arguments: str) -> None:
    """Prints the figures of all values whose framework is installed."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--list", action="store_true", help="print the functions, in the order of their first calls")
    options = parser.parse_args(arguments)
    print(f"{'':40} {'calls':>6} {'functions':>10} {'files':>6}")
    for name, (framework, follow) in VALUES.items():
        if importlib.util.find_spec(framework) is None:
            print(f"{name:40} {framework} is not installed")
            continue
        with tempfile.TemporaryDirectory() as directory:
            for way, trace in follow(os.path.join(directory, "ckpt")).items():
                print(f"{f'{name}, {way}':40} {trace}")
                print(*trace.listed(), sep="\n", end="\n") if options.list else None


if __name__ == "__main__":
    main(*sys.argv[1:])
