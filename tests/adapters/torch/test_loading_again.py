"""What a restore leaves of an optimizer's own loading, which it calls, and of strides that live state has."""

from __future__ import annotations

from typing import Any

import pytest

from milepost import Checkpoint

torch = pytest.importorskip("torch")


def trained(dtype: Any = None, **settings: Any) -> tuple[Any, Any]:
    """A small model after one step, and its optimizer."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 4, dtype=dtype)
    optimizer = torch.optim.Adam(model.parameters(), **settings)
    model(torch.ones(2, 3, dtype=dtype)).sum().backward()
    optimizer.step()
    return model, optimizer


def test_settings_that_loading_changes_are_those_that_were_saved(prefix: str) -> None:
    model, optimizer = trained(lr=0.5, betas=(0.7, 0.8))
    Checkpoint(model=model, optimizer=optimizer).write(prefix)
    model, optimizer = trained(lr=0.1)
    called = []

    def on_load(optimizer: Any) -> None:
        called.append(optimizer)
        optimizer.param_groups[0].update(lr=7.0, betas=(0.0, 0.0))

    optimizer.register_load_state_dict_post_hook(on_load)
    Checkpoint(model=model, optimizer=optimizer).read(prefix).assert_consumed()
    assert called
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert optimizer.param_groups[0]["betas"] == (0.7, 0.8)


def test_state_that_loading_converts_keeps_its_element_type(prefix: str) -> None:
    """PyTorch's own loading converts moments to the element type of their parameter."""

    def made(value: float) -> tuple[Any, Any]:
        model, optimizer = trained(torch.bfloat16)
        moment = torch.full((4, 3), value)
        optimizer.state[model.weight]["exp_avg"] = moment
        return model, optimizer

    model, optimizer = made(1 / 3)
    Checkpoint(model=model, optimizer=optimizer).write(prefix)
    model, optimizer = made(0.0)
    optimizer.register_load_state_dict_post_hook(lambda optimizer: None)
    Checkpoint(model=model, optimizer=optimizer).read(prefix).assert_consumed()
    moment = optimizer.state[model.weight]["exp_avg"]
    assert moment.dtype == torch.float32
    assert torch.equal(moment, torch.full((4, 3), 1 / 3))


def test_moments_get_the_strides_that_they_were_saved_with(prefix: str) -> None:
    """Not those of the live moments, such as of a program that has transposed them."""
    model, optimizer = trained()
    saved = optimizer.state[model.weight]["exp_avg"]
    Checkpoint(model=model, optimizer=optimizer).write(prefix)
    model, optimizer = trained()
    state = optimizer.state[model.weight]
    state["exp_avg"] = torch.zeros(3, 4).t()
    assert state["exp_avg"].stride() != saved.stride()
    Checkpoint(model=model, optimizer=optimizer).read(prefix).assert_consumed()
    assert state["exp_avg"].stride() == saved.stride()
    assert torch.equal(state["exp_avg"], saved)
