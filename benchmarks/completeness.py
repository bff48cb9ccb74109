"""What it costs to compare a save with the frameworks' own accounts of their objects.

Each model is a flat list of parts of 64 float32 each, trained one step where it has an optimizer. A save is timed as it is, and
with an empty account in place of each framework's. Files are on tmpfs, where a save is fastest and the share of the
check largest. The account itself, such as ``state_dict()``, is a row of its own.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks import runner

WAYS: Final = ("with the check", "without the check", "the accounts alone")
PARTS: Final = 2_000
LIMIT_S: Final = 300.0


def _torch() -> dict[str, Any]:
    import torch

    net = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(PARTS // 2)))
    optimizer = torch.optim.Adam(net.parameters())
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return {"net": net, "optimizer": optimizer}


def _keras() -> dict[str, Any]:
    import keras

    layers = [keras.layers.Dense(8) for _ in range(PARTS // 2)]
    for layer in layers:
        layer.build((None, 8))
    return {"net": layers}


def _nnx() -> dict[str, Any]:
    from flax import nnx

    rngs = nnx.Rngs(0)
    return {"net": nnx.List([nnx.Linear(8, 8, rngs=rngs) for _ in range(PARTS // 2)])}


MODELS: Final[Mapping[str, Callable[[], dict[str, Any]]]] = {
    "PyTorch, with Adam": _torch,
    "Keras": _keras,
    "Flax NNX": _nnx,
}


def child(task: Mapping[str, Any]) -> None:
    """Times one way for one model."""
    import milepost
    from milepost.graph import adapter, traversal

    checkpoint = milepost.Checkpoint(**MODELS[task["model"]]())
    directory = Path(task["directory"])
    checkpoint.write(directory / "warm")
    graph = traversal.walk(checkpoint)
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


def main() -> None:
    """Measures and reports, or, started by itself, does one task."""
    options = runner.begin(runner.arguments(__doc__, rounds=5), child)
    facts = runner.machine()
    samples: list[dict[str, Any]] = []
    for model in MODELS:
        for number, way in runner.interleaved(options.rounds, WAYS):
            with runner.scratch(options.memory) as directory:
                task = {"model": model, "way": way, "directory": str(directory)}
                result = runner.ask(__spec__.name, task, LIMIT_S)
            samples.append({"model": model, "way": way, "round": number} | result)
            print(*samples[-1].values(), flush=True)
    runner.report("completeness", text(samples, options), facts, samples)


def text(samples: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> str:
    """The report."""
    rows = []
    for model in MODELS:
        times = {way: runner.series(samples, "seconds", model=model, way=way) for way in WAYS}
        cells = [times[way].cell(1e3, 1) for way in WAYS]
        rows.append([model, *cells, times[WAYS[0]].ratio(times[WAYS[1]])])
    return "\n\n".join(
        [
            f"## Milliseconds a save of {PARTS:,} variables of 64 or 8 float32, with and without the check for completeness",
            f"Median (least-most) of {options.rounds} rounds, each in a fresh process and itself the median of five, on "
            f"{runner.filesystem(options.memory)}. PyTorch's have Adam's state beside. The accounts alone are asked of each "
            "object, also where the account of another covers it.",
            runner.table(["", *WAYS, "with / without"], rows),
        ]
    )


if __name__ == "__main__":
    main()
