"""What it costs to compare a save with the frameworks' own accounts of their objects.

Each model is a flat list of dense layers of one width, trained one step where it has an optimizer. A save is timed as it
is, and with an empty account in place of each framework's. Files are on tmpfs, where a save is fastest and the share of the
check largest. The account itself, such as ``state_dict()``, is a column of its own.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks import runner

WAYS: Final = ("with the check", "without the check", "the accounts alone")
LAYERS: Final = 1_000
WIDTHS: Final = (8, 128)
LIMIT_S: Final = 300.0


def _torch(width: int) -> dict[str, Any]:
    import torch

    net = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(LAYERS)))
    optimizer = torch.optim.Adam(net.parameters())
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return {"net": net, "optimizer": optimizer}


def _keras(width: int) -> dict[str, Any]:
    import keras

    layers = [keras.layers.Dense(width) for _ in range(LAYERS)]
    for layer in layers:
        layer.build((None, width))
    return {"net": layers}


def _nnx(width: int) -> dict[str, Any]:
    from flax import nnx

    rngs = nnx.Rngs(0)
    return {"net": nnx.List([nnx.Linear(width, width, rngs=rngs) for _ in range(LAYERS)])}


MODELS: Final[Mapping[str, Callable[[int], dict[str, Any]]]] = {
    "PyTorch, with Adam": _torch,
    "Keras": _keras,
    "Flax NNX": _nnx,
}


def child(task: Mapping[str, Any]) -> None:
    """Times one way for one model."""
    import milepost
    from milepost.graph import adapter, traversal
    from milepost.graph.contract.operation import Operation

    checkpoint = milepost.Checkpoint(**MODELS[task["model"]](task["width"]))
    directory = Path(task["directory"])
    checkpoint.write(directory / "warm")
    graph = traversal.walk(Operation(checkpoint))
    if task["way"] == "without the check":
        for kind in {type(each) for each in graph.adapters} | {adapter.Adapter}:
            kind.account = lambda self, obj: ()  # type: ignore[method-assign]

    def accounts() -> None:
        for each, obj in zip(graph.adapters, graph.objects, strict=True):
            if type(each).account is not adapter.Adapter.account:
                sum(1 for _ in each.account(obj))

    call = accounts if task["way"] == "the accounts alone" else lambda: checkpoint.write(directory / "again")
    times = [runner.timed(call, 64 << 20).seconds for _ in range(5)]
    runner.answer({"seconds": sorted(times)[2]})


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """All rounds of all models."""
    samples: list[dict[str, Any]] = []
    for model, width in itertools.product(MODELS, WIDTHS):
        for number, way in runner.interleaved(options.rounds, WAYS):
            named = {"model": model, "width": width, "way": way}
            with runner.scratch(options.memory) as directory:
                result = runner.ask(__spec__.name, {**named, "directory": str(directory)}, LIMIT_S)
            samples.append({**named, "round": number} | result)
            print(*samples[-1].values(), flush=True)
    return samples


def text(samples: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> str:
    """The report."""
    rows = []
    for model, width in itertools.product(MODELS, WIDTHS):
        times = {way: runner.series(samples, "seconds", model=model, width=width, way=way) for way in WAYS}
        cells = [times[way].cell(1e3, 1) for way in WAYS]
        rows.append([model, f"{width}", *cells, times[WAYS[0]].ratio(times[WAYS[1]])])
    return "\n\n".join(
        [
            f"## Milliseconds a save of {LAYERS:,} dense layers, with and without the check for completeness",
            f"Median (least-most) of {options.rounds} rounds, each in a fresh process and itself the median of five, on "
            f"{runner.filesystem(options.memory)}. PyTorch's have Adam's state beside. The accounts alone are asked of each "
            "object, also where the account of another covers it.",
            runner.table(["", "width", *WAYS, "with / without"], rows),
        ]
    )


def main() -> None:
    """Measures and reports, or, started by itself, does one task."""
    runner.run(runner.arguments(__doc__, "completeness", rounds=5), child, measure, text)


if __name__ == "__main__":
    main()
