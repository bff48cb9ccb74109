"""Models and optimizers that Lightning's Fabric has set up."""

from __future__ import annotations

import pytest

pytest.importorskip("lightning.fabric")

import torch
from lightning.fabric import Fabric

import milepost


def plain(seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


def set_up(seed):
    return Fabric(accelerator="cpu", devices=1).setup(*plain(seed))


def train(model, optimizer):
    loss = model(torch.arange(6.0).reshape(2, 3)).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


@pytest.mark.parametrize(("saved", "restored"), [(set_up, set_up), (set_up, plain), (plain, set_up)])
def test_a_run_goes_on_with_fabric_or_without_it(tmp_path, saved, restored):
    model, optimizer = saved(0)
    train(model, optimizer)
    path = milepost.Checkpoint(model=model, optimizer=optimizer).write(tmp_path / "c")
    other_model, other_optimizer = restored(1)
    milepost.Checkpoint(model=other_model, optimizer=other_optimizer).read(path).assert_consumed()
    assert train(other_model, other_optimizer) == train(model, optimizer)
