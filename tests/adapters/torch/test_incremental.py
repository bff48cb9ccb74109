"""A LoRA run of PyTorch that saves incrementally: a save costs what trains, and the run resumes from each checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import milepost

torch: Any = pytest.importorskip("torch")

WIDTH, RANK, SAVES = 256, 4, 6


class Lora(torch.nn.Module):
    """A frozen linear layer with an adapter."""

    def __init__(self) -> None:
        super().__init__()
        self.base = torch.nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.a = torch.nn.Parameter(torch.randn(WIDTH, RANK) / WIDTH)
        self.b = torch.nn.Parameter(torch.zeros(RANK, WIDTH))

    def forward(self, x: Any) -> Any:
        return self.base(x) + x @ self.a @ self.b


class Run:
    def __init__(self, directory: Path, seed: int) -> None:
        torch.manual_seed(seed)
        self.model = torch.nn.Sequential(*(Lora() for _ in range(4)))
        self.optimizer = torch.optim.AdamW([p for p in self.model.parameters() if p.requires_grad], lr=0.01)
        checkpoint = milepost.Checkpoint(model=self.model, optimizer=self.optimizer)
        options = milepost.CheckpointOptions(incremental=True)
        self.manager = milepost.CheckpointManager(checkpoint, directory, max_to_keep=None, options=options)

    def step(self, number: int) -> float:
        x = torch.full((2, WIDTH), 0.1 * number)
        loss = (self.model(x) - 1).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())


def test_a_save_costs_what_trains_and_each_checkpoint_resumes(tmp_path: Path) -> None:
    run = Run(tmp_path, seed=1)
    losses = []
    for number in range(1, SAVES + 1):
        losses.append(run.step(number))
        run.manager.save(checkpoint_number=number)
    found = {status.st_ino: status.st_size for path in tmp_path.glob("*.data-*") for status in [path.stat()]}
    base = 4 * sum(parameter.numel() for parameter in run.model.parameters() if not parameter.requires_grad)
    trained = 3 * 4 * sum(parameter.numel() for parameter in run.model.parameters() if parameter.requires_grad)
    assert sum(found.values()) < base + SAVES * (trained + 8000)
    for number in (2, 4):
        again = Run(tmp_path, seed=2)
        again.manager.restore(number).assert_consumed()
        assert [again.step(later) for later in range(number + 1, SAVES + 1)] == losses[number:]
