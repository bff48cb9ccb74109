"""The demo: a training run that is killed twice and ends with exactly the losses of an uninterrupted run.

The training is that of the guide (`milepost.tools.guide_numpy`), with shuffled batches. It runs in separate processes,
which are killed with SIGKILL between two saves, so that they cannot clean up.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import milepost
from milepost.tools import guide_numpy
from milepost.tools.drawing.picture import picture_of, specs_of
from milepost.tools.drawing.svg import to_svg

STEPS: Final = 100
_KILLED_AT: Final = (37, 73)


def train(directory: str) -> None:
    """Trains up to step `STEPS` and prints every loss exactly. This runs in the processes of the demo."""
    checkpoint, manager = guide_numpy.create(directory)
    manager.restore_or_initialize()
    print(f"start {int(checkpoint.step)}", flush=True)
    while int(checkpoint.step) < STEPS:
        loss = guide_numpy.train_step(checkpoint.net, next(checkpoint.iterator), checkpoint.optimizer)
        checkpoint.step.assign_add(1)
        # Before the save, so that every saved step is reported, even if the process is killed in between.
        print(f"{int(checkpoint.step)} {loss.hex()}", flush=True)
        if int(checkpoint.step) % 10 == 0:
            manager.save()


def run_training(directory: str | os.PathLike[str], kill_at: int | None = None) -> tuple[int, dict[int, str]]:
    """Runs `train` in a new process, and kills it when it reports step ``kill_at``.

    Returns:
        The step at which it started, and the losses that it reported, by step, in hexadecimal.
    """
    command = [sys.executable, "-m", "milepost.tools.demo", os.fspath(directory)]
    start, losses = 0, {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            step, value = line.split()
            if step == "start":
                start = int(value)
                continue
            losses[int(step)] = value
            if int(step) == kill_at:
                process.kill()
    if kill_at is None and process.returncode:
        raise RuntimeError(f"the training process ended with status {process.returncode}")
    return start, losses


def run(directory: str | None = None) -> int:
    """Runs the demo and prints what happens.

    Args:
        directory: The directory to write to, without an earlier demo; by default a new temporary one.

    Returns:
        0 if the interrupted run has exactly the losses of the uninterrupted one, 1 if not.

    Raises:
        CheckpointExistsError: The directory holds an earlier demo.
        StorageError: The directory cannot be made.
    """
    home = Path(directory or tempfile.mkdtemp(prefix="milepost-demo-"))
    if (home / "tf_ckpts").exists():
        raise milepost.CheckpointExistsError(
            "this directory holds an earlier demo",
            file=home / "tf_ckpts",
            remedy="choose another directory, or delete this one",
        )
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise milepost.StorageError(
            "cannot make a directory for the demo", errno=error.errno, file=home, remedy="choose another directory"
        ) from error
    print(f"Everything is written to {home}\n")
    print(f"Training {STEPS} steps without an interruption ...")
    _, undisturbed = run_training(home / "undisturbed")

    interrupted: dict[int, str] = {}
    for kill_at in (*_KILLED_AT, None):
        start, losses = run_training(home / "tf_ckpts", kill_at)
        interrupted.update(losses)
        began = f"from step {start}" + (f", restored from {home.name}/tf_ckpts/ckpt-{start // 10}" if start else "")
        print(
            f"Training {began}" + (f" ... killed with SIGKILL after step {kill_at}" if kill_at else " ... to the end")
        )
    equal = sum(interrupted.get(step) == loss for step, loss in undisturbed.items())
    print(f"\nLosses of the two runs: {equal} of {STEPS} are equal bit for bit")

    print("\nThe three checkpoints that were kept:")
    print("  " + "  ".join(sorted(path.name for path in (home / "tf_ckpts").glob("*.index"))))
    print("\nThe last one holds:")
    latest = milepost.latest_checkpoint(home / "tf_ckpts")
    assert latest is not None
    reader = milepost.load_checkpoint(latest)
    specs = specs_of(reader)
    for key, spec in sorted(specs.items()):
        print(f"  {key}  {spec}")

    print("\nRestoring only the bias, then the kernel when it is made:")
    layer, status = guide_numpy.load_bias(str(home / "tf_ckpts"))
    guide_numpy.restore_kernel_late(layer)
    print(f"\n{status.expect_partial().report()}")

    print("\nRestoring lists and dicts, and a model alone:")
    guide_numpy.track_lists_and_dicts(str(home))
    checkpoint, manager = guide_numpy.create(str(home / "tf_ckpts"))
    manager.restore_or_initialize()
    guide_numpy.save_weights(str(home / "easy"), checkpoint.net)
    print("All values were restored.")

    picture = home / "graph.svg"
    picture.write_text(
        to_svg(picture_of(milepost.CheckpointView(latest).graph, specs), "The demo's object graph"), encoding="utf-8"
    )
    print(f"\nThe object graph is drawn in {picture}")
    return 0 if equal == STEPS else 1


def main(arguments: Sequence[str]) -> None:
    """Runs one process of the demo."""
    train(*arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
