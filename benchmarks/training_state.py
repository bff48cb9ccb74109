"""Saving and resuming a whole training state: model and optimizer, of PyTorch and of JAX.

A fresh process makes the model and the optimizer anew, as a program does that resumes, and restores into them. The optimizer
has no state before: making it is part of resuming. Files are on tmpfs; the raw limit is the same bytes written into one file,
and read into one buffer.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from benchmarks import runner

OPERATIONS = ("save", "resume")
LIMIT_S = 300.0
WIDTH = 1024


class Program:
    """A training program with one way to save and resume; subclasses say which.

    Attributes:
        framework: PyTorch or JAX.
        needs: The package it needs.
        checks: Whether it stores a checksum of all values, and verifies it.
        syncs: Whether its save returns only when the data would survive a power cut.
    """

    framework: ClassVar[str]
    needs: ClassVar[str]
    checks: ClassVar[str] = "no"
    syncs: ClassVar[str] = "no"

    def build(self, layers: int, *, trained: bool) -> None:
        """Makes model and optimizer; the optimizer has made a step if ``trained``."""
        raise NotImplementedError

    def save(self, directory: Path) -> None:
        """Saves everything."""
        raise NotImplementedError

    def resume(self, directory: Path) -> None:
        """Restores everything into what was built."""
        raise NotImplementedError

    def check_sum(self) -> float:
        """A number that depends on every value."""
        raise NotImplementedError


class Torch(Program):
    """A stack of linear layers and AdamW in PyTorch."""

    framework = "PyTorch"

    def build(self, layers: int, *, trained: bool) -> None:
        import torch

        torch.manual_seed(int(trained))
        self.net = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(layers)))
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=0.1)
        if trained:
            for parameter in self.net.parameters():
                parameter.grad = torch.randn_like(parameter)
            self.optimizer.step()

    def check_sum(self) -> float:
        tensors = [
            *self.net.parameters(),
            *(each for state in self.optimizer.state.values() for each in state.values()),
        ]
        return float(sum(each.detach().double().sum() for each in tensors))


class TorchMilepost(Torch):
    """milepost."""

    needs = "milepost"
    checks = "yes"
    syncs = "yes"

    def save(self, directory: Path) -> None:
        import milepost

        milepost.Checkpoint(net=self.net, optimizer=self.optimizer).write(directory / "ckpt")

    def resume(self, directory: Path) -> None:
        import milepost

        status = milepost.Checkpoint(net=self.net, optimizer=self.optimizer).read(directory / "ckpt")
        status.assert_consumed()


class TorchSave(Torch):
    """torch.save."""

    needs = "torch"
    checks = "written only"
    mmap: ClassVar[bool] = False

    def save(self, directory: Path) -> None:
        import torch

        torch.save({"net": self.net.state_dict(), "optimizer": self.optimizer.state_dict()}, directory / "state.pt")

    def resume(self, directory: Path) -> None:
        import torch

        state = torch.load(directory / "state.pt", weights_only=True, mmap=self.mmap)
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])


class TorchSaveMapped(TorchSave):
    """torch.save, loaded with mmap."""

    mmap = True


class TorchDistributed(Torch):
    """torch.distributed.checkpoint."""

    needs = "torch"

    def save(self, directory: Path) -> None:
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict import get_state_dict

        net, optimizer = get_state_dict(self.net, self.optimizer)
        dcp.save({"net": net, "optimizer": optimizer}, checkpoint_id=directory / "dcp")

    def resume(self, directory: Path) -> None:
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

        net, optimizer = get_state_dict(self.net, self.optimizer)
        dcp.load({"net": net, "optimizer": optimizer}, checkpoint_id=directory / "dcp")
        set_state_dict(self.net, self.optimizer, model_state_dict=net, optim_state_dict=optimizer)


class Raw(Program):
    """The same bytes with nothing around them."""

    needs = "numpy"

    def build(self, layers: int, *, trained: bool) -> None:
        size = layers * 3 * (WIDTH + 1) * WIDTH
        self.values = np.full(size, float(trained), np.float32)

    def save(self, directory: Path) -> None:
        with open(directory / "raw", "wb") as file:
            file.write(self.values.data)

    def resume(self, directory: Path) -> None:
        with open(directory / "raw", "rb", buffering=0) as file:
            view = memoryview(self.values).cast("B")
            done = 0
            while done < len(view):
                done += file.readinto(view[done:]) or 0

    def check_sum(self) -> float:
        return float(self.values.sum(dtype=np.float64))


class TorchRaw(Raw):
    """raw limit."""

    framework = "PyTorch"


class JaxRaw(Raw):
    """raw limit."""

    framework = "JAX"


class Jax(Program):
    """A stack of linear layers and Optax' AdamW in JAX."""

    framework = "JAX"

    def build(self, layers: int, *, trained: bool) -> None:
        import jax
        import jax.numpy as jnp
        import optax

        keys = jax.random.split(jax.random.key(int(trained)), layers)
        params = {
            f"layer{number}": {"kernel": jax.random.normal(key, (WIDTH, WIDTH)), "bias": jnp.zeros(WIDTH)}
            for number, key in enumerate(keys)
        }
        optimizer = optax.adamw(0.1)
        state = optimizer.init(params)
        if trained:
            updates, state = optimizer.update(params, state, params)
            params = optax.apply_updates(params, updates)
        self.tree = jax.block_until_ready({"params": params, "opt_state": state})

    def check_sum(self) -> float:
        import jax

        return float(sum(np.asarray(leaf).sum(dtype=np.float64) for leaf in jax.tree.leaves(self.tree)))


class JaxMilepost(Jax):
    """milepost."""

    needs = "milepost"
    checks = "yes"
    syncs = "yes"

    def save(self, directory: Path) -> None:
        import milepost.jax

        milepost.jax.save(directory / "ckpt", self.tree)

    def resume(self, directory: Path) -> None:
        import milepost.jax

        self.tree, status = milepost.jax.restore(directory / "ckpt", self.tree)
        status.assert_consumed()


class JaxOrbax(Jax):
    """Orbax."""

    needs = "orbax"
    checks = "of its index"
    syncs = "partly"

    def save(self, directory: Path) -> None:
        import orbax.checkpoint as ocp

        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(directory / "orbax", self.tree)
            checkpointer.wait_until_finished()

    def resume(self, directory: Path) -> None:
        import jax
        import orbax.checkpoint as ocp

        with ocp.StandardCheckpointer() as checkpointer:
            self.tree = jax.block_until_ready(checkpointer.restore(directory / "orbax", self.tree))


PROGRAMS: dict[str, type[Program]] = {
    f"{program.framework}: {(program.__doc__ or '').rstrip('.')}": program
    for program in (
        TorchRaw,
        TorchMilepost,
        TorchSave,
        TorchSaveMapped,
        TorchDistributed,
        JaxRaw,
        JaxMilepost,
        JaxOrbax,
    )
}


def child(task: Mapping[str, Any]) -> None:
    """Does one operation of one program, after it has done the same with a tiny state to load and compile what it needs."""
    directory, operation = Path(task["directory"]), task["operation"]
    program = PROGRAMS[task["contender"]]()
    with tempfile.TemporaryDirectory(dir=directory) as warm:
        program.build(1, trained=True)
        program.save(Path(warm))
        program.build(1, trained=False)
        program.resume(Path(warm))

    program.build(task["layers"], trained=operation == "save")
    size = task["layers"] * 3 * 4 * (WIDTH + 1) * WIDTH
    call = program.save if operation == "save" else program.resume
    timing = runner.timed(lambda: call(directory), 3 * size + (256 << 20))
    runner.answer({"seconds": timing.seconds, "extra": timing.extra / size, "sum": program.check_sum()})


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """All rounds."""
    names = [name for name in options.only or PROGRAMS if importlib.util.find_spec(PROGRAMS[name].needs)]
    samples: list[dict[str, Any]] = []
    for number, name in runner.interleaved(options.rounds, names):
        with runner.scratch(options.memory) as directory:
            sums = []
            for operation in OPERATIONS:
                task = {
                    "contender": name,
                    "operation": operation,
                    "layers": options.layers,
                    "directory": str(directory),
                }
                result = runner.ask(__spec__.name, task, LIMIT_S)
                sample = {"round": number, "contender": name, "operation": operation} | result
                samples.append(sample)
                print(*sample.values(), flush=True)
                if "failure" in result:
                    break
                sums.append(result["sum"])
            if len(sums) == 2 and sums[0] != sums[1]:
                raise AssertionError(f"{name} did not restore what it saved")
    return samples


def text(samples: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> str:
    """The report."""
    rows = []
    for name in dict.fromkeys(sample["contender"] for sample in samples):
        program = PROGRAMS[name]
        cells = [name, program.checks, program.syncs]
        for operation in OPERATIONS:
            own = runner.series(samples, "seconds", contender=name, operation=operation)
            raw = runner.series(samples, "seconds", contender=f"{program.framework}: raw limit", operation=operation)
            cells += [own.cell(1, 2), own.ratio(raw)]
        cells.append(runner.series(samples, "extra", contender=name, operation="resume").cell(1, 2))
        rows.append(cells)
    header = ["", "checksums", "fsync", "save, s", "to raw", "resume, s", "to raw", "extra memory of resuming"]
    size = options.layers * 3 * 4 * (WIDTH + 1) * WIDTH / 1e6
    return "\n\n".join(
        [
            "## A whole training state: model and AdamW",
            f"{size:.0f} MB in {options.layers * 6} tensors, on {runner.filesystem(options.memory)}; median (least-most) of "
            f"{options.rounds} rounds, each operation in a fresh process. Resuming goes into a freshly made model and an optimizer "
            "that has no state yet. Extra memory is what was resident above before, as a share of the state: for PyTorch "
            "two thirds of it are the optimizer's new state itself, and for JAX all of it is the new tree.",
            runner.table(header, rows),
        ]
    )


def main() -> None:
    """Measures and reports, or, started by itself, does one task."""
    parser = runner.arguments(__doc__, "training_state", rounds=5)
    parser.add_argument("--layers", type=int, default=24, help=f"linear layers of {WIDTH} by {WIDTH}")
    parser.add_argument("--only", action="append", choices=PROGRAMS, help="a program; may be given more than once")
    runner.run(parser, child, measure, text)


if __name__ == "__main__":
    main()
