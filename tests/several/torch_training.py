"""A GPT that PyTorch trains on one to four processes, in all ways, killed at random and resumed in another way.

``python -m tests.several.torch_training DIRECTORY --seconds 600`` does this for so long, and prints what it has seen.
"""

from __future__ import annotations

import zlib
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed

import milepost
from tests.several import gpt
from tests.several.forked import Journal
from tests.several.gpt import Layout
from tests.several.killed import Run, go_on, run_program

LAYOUTS = [
    Layout("2-d", 4),
    Layout("fsdp", 2),
    Layout("plain", 1),
    Layout("fsdp", 3),
    Layout("hsdp", 4),
    Layout("tp", 2),
    Layout("fsdp", 1),
    Layout("fsdp", 4),
    Layout("tp", 4),
    Layout("2-d", 2),
]


class Training:
    """What one process trains, and what it knows of its state."""

    def __init__(self, run: Run, layout: Layout, rank: int, launch: int) -> None:
        self.run, self.layout, self.rank, self.launch = run, layout, rank, launch
        # Nothing of a launch is as it should be until it is restored, or initialized.
        self.mesh = gpt.mesh_of(layout)
        self.model = gpt.build(layout, self.mesh, 100 + launch, run.dropout, run.tied)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, max_lr=0.02, total_steps=run.steps + 1)
        self.order = torch.Generator()
        self.checkpoint: Any = milepost.Checkpoint(
            model=self.model,
            optimizer=self.optimizer,
            scheduler=self.scheduler,
            order=self.order,
            random=milepost.RandomState(),
            step=0,
            launch=launch,
        )
        self.manager = milepost.CheckpointManager(
            self.checkpoint, run.saved, max_to_keep=3, init_fn=self.initialize, options=run.options()
        )

    def initialize(self) -> None:
        """Gives everything its first values, the same in every launch."""
        fresh = gpt.build(self.layout, self.mesh, 0, self.run.dropout, self.run.tied)
        with torch.no_grad():
            for parameter, value in zip(self.model.parameters(), fresh.parameters(), strict=True):
                gpt.local(parameter).copy_(gpt.local(value))
        self.order.manual_seed(3)
        torch.manual_seed(77 + self.rank)  # so the dropout of each process is its own

    def step(self) -> float:
        loss = gpt.loss_of(self.model, gpt.batch(self.order, self.layout, self.rank))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.scheduler.step()
        self.checkpoint.step += 1
        mean = loss.detach().clone()
        if self.layout.kind != "plain":
            torch.distributed.all_reduce(mean)
        return float(mean) / self.layout.size

    def portrait(self) -> dict[str, Any]:
        """All of the state that is the same on all processes, each tensor as a checksum of the whole."""
        step = self.checkpoint.step
        self.random_state(self.launch, step).write_text(str(_crc(torch.get_rng_state())))
        tensors = {key: zlib.crc32(value.tobytes()) for key, value in gpt.state(self.model, self.optimizer).items()}
        return {
            "tensors": tensors,
            "scheduler": self.scheduler.state_dict(),
            "rates": [group["lr"] for group in self.optimizer.param_groups],
            "order": _crc(self.order.get_state()),
            "step": step,
        }

    def compare(self, path: str) -> dict[str, bool]:
        """Compares the restored state with the file, and with what was written down when it was saved."""
        reader = milepost.load_checkpoint(path)
        found = gpt.state(self.model, self.optimizer)
        in_file = {key: reader.get_tensor(key) for key in reader.get_variable_to_shape_map()}
        equal = all(
            (in_file[key].dtype, in_file[key].shape, in_file[key].tobytes()) == (each.dtype, each.shape, each.tobytes())
            for key, each in found.items()
        )
        complete = {key for key in in_file if key.startswith("model/") and "VARIABLE_VALUE" in key} == set(found)
        facts = {"the file": equal, "all of the file": complete}
        own = self.random_state(int(self.checkpoint.launch), int(self.checkpoint.step))
        if own.exists():  # as many processes have saved
            facts["random state"] = int(own.read_text()) == _crc(torch.get_rng_state())
        return facts

    def random_state(self, launch: int, step: int) -> Path:
        """Where this process writes down its random state before a save."""
        return self.run.directory / f"random-{launch}-{step}-{self.rank}-of-{self.layout.size}"


def _crc(tensor: torch.Tensor) -> int:
    return zlib.crc32(tensor.numpy().tobytes())


def train(run: Run, layout: Layout, rank: int, launch: int, port: int, journal: Journal) -> None:
    """One process of one launch."""
    torch.set_num_threads(1)
    if layout.kind != "plain":
        torch.distributed.init_process_group(
            "gloo",
            init_method=f"tcp://127.0.0.1:{port}",
            rank=rank,
            world_size=layout.size,
            timeout=timedelta(seconds=30),
        )
    go_on(Training(run, layout, rank, launch), journal)
    if layout.kind != "plain":
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    run_program(train, LAYOUTS)
