"""What must hold of each optimizer and scheduler: a training that is restored goes on as the one that was saved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import milepost
from tests.zoo_torch.checks_modules import REFUSED
from tests.zoo_torch.compare import DifferenceError, plain, require_same
from tests.zoo_torch.optimizers import OptimizerRecipe, SchedulerRecipe
from tests.zoo_torch.recipe import TOKENS, VECTOR, torch

nn: Any = torch.nn
OPTIMIZER_STAGES = ("new", "trained", "late", "before the first step", "bfloat16")
SCHEDULER_STAGES = ("new", "used", "late", "tensor lr")


class Training:
    """A model and its optimizer."""

    def __init__(self, recipe: OptimizerRecipe, seed: int, dtype: Any = torch.float32) -> None:
        torch.manual_seed(seed)
        self.inputs = TOKENS if recipe.model == "sparse" else VECTOR.to(dtype)
        if recipe.model == "sparse":
            self.net = nn.Embedding(7, 3, sparse=True, dtype=dtype)
        else:
            bias = recipe.model != "matrices"
            self.net = nn.Sequential(nn.Linear(6, 4, bias, dtype=dtype), nn.Tanh(), nn.Linear(4, 2, bias, dtype=dtype))
        self.recipe = recipe

    def make(self) -> Any:
        """Makes the optimizer."""
        self.optimizer = self.recipe.make(self.net.parameters())
        return self.optimizer

    def train(self, steps: range) -> list[Any]:
        """Takes steps and returns the losses."""
        return [plain(self.optimizer.step(lambda number=number: self._loss(number))) for number in steps]

    def _loss(self, number: int) -> Any:
        self.optimizer.zero_grad()
        factor = 1 if self.recipe.model == "sparse" else 1 + number / 8
        loss = (self.net(self.inputs * factor).float() - number / 8).square().mean()
        loss.backward()
        return loss

    def state(self) -> Any:
        """All values, to be compared."""
        held = self.optimizer.state_dict()
        return [plain(self.net.state_dict()), plain(held["state"]), plain(held["param_groups"])]


def refusal(recipe: OptimizerRecipe, dtype: Any) -> str:
    """Why PyTorch itself cannot train with this element type, or nothing."""
    training = Training(recipe, 1, dtype)
    try:
        training.make()
        training.train(range(6))
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return ""


def check_optimizer(recipe: OptimizerRecipe, directory: Path) -> dict[str, Any]:
    """Runs the check.

    Returns:
        The names of the slots, and for each stage how many values were restored, or what was wrong.
    """
    result: dict[str, Any] = {}
    for number, stage in enumerate(OPTIMIZER_STAGES):
        dtype = torch.bfloat16 if stage == "bfloat16" else torch.float32
        if dtype is not torch.float32 and (refused := refusal(recipe, dtype)):
            result[stage] = f"{REFUSED}{refused}"
            continue
        begun = range(0 if stage == "before the first step" else 3)
        source = Training(recipe, 1, dtype)
        saved = milepost.Checkpoint(net=source.net, optimizer=source.make())
        source.train(begun)
        path = saved.write(directory / str(number))
        if "names" not in result:
            result["names"] = sorted(
                {key.split("/")[-3] for key, _ in milepost.list_variables(path) if "OPTIMIZER_SLOT" in key}
            )
        wanted = [source.state(), source.train(range(3, 6)), source.state()]
        result[stage] = outcome(lambda: _train_on(stage, Training(recipe, 2, dtype), path, wanted))  # noqa: B023 - called at once
    return result


def _train_on(stage: str, training: Training, path: str, wanted: list[Any]) -> int:
    checkpoint = milepost.Checkpoint(net=training.net)
    if stage != "late":
        checkpoint.optimizer = training.make()
    if stage == "trained":
        training.train(range(8, 10))
    status = checkpoint.read(path)
    if stage == "late":
        checkpoint.optimizer = training.make()
    status.assert_consumed()
    count = counted(status)
    require_same("values", training.state(), wanted[0])
    require_same("losses", training.train(range(3, 6)), wanted[1])
    require_same("values in the end", training.state(), wanted[2])
    return count


def check_scheduler(recipe: SchedulerRecipe, directory: Path) -> dict[str, Any]:
    """Runs the check.

    Returns:
        For each stage how many values were restored, or what was wrong.
    """
    result: dict[str, Any] = {}
    for number, stage in enumerate(SCHEDULER_STAGES):
        tensor = stage == "tensor lr"
        source, schedule = _optimizer(tensor), None
        try:
            schedule = recipe.make(source)
        except (TypeError, ValueError, RuntimeError) as error:
            if not tensor:
                raise
            result[stage] = f"{REFUSED}{str(error).splitlines()[0]}"
            continue
        saved = milepost.Checkpoint(optimizer=source, schedule=schedule)
        _run(recipe, source, schedule, range(6))
        path = saved.write(directory / str(number))
        wanted = [_settings(source), _run(recipe, source, schedule, range(6, 22)), plain(schedule.state_dict())]
        result[stage] = outcome(lambda: _schedule_on(stage, recipe, path, wanted))  # noqa: B023 - called at once
    return result


def _schedule_on(stage: str, recipe: SchedulerRecipe, path: str, wanted: list[Any]) -> int:
    optimizer = _optimizer(stage == "tensor lr")
    rates = [group["lr"] for group in optimizer.param_groups]
    checkpoint: Any = milepost.Checkpoint(optimizer=optimizer)
    if stage != "late":
        checkpoint.schedule = recipe.make(optimizer)
    if stage == "used":
        _run(recipe, optimizer, checkpoint.schedule, range(3))
    status = checkpoint.read(path)
    if stage == "late":
        checkpoint.schedule = recipe.make(optimizer)
    status.assert_consumed()
    count = counted(status)
    require_same("settings", _settings(optimizer), wanted[0])
    require_same("further settings", _run(recipe, optimizer, checkpoint.schedule, range(6, 22)), wanted[1])
    require_same("state in the end", plain(checkpoint.schedule.state_dict()), wanted[2])
    if stage == "tensor lr" and any(
        rate is not group["lr"] for rate, group in zip(rates, optimizer.param_groups, strict=True)
    ):
        raise DifferenceError("a learning rate is another tensor")
    return count


def _optimizer(tensor: bool) -> Any:
    rates = [torch.tensor(rate) if tensor else rate for rate in (0.1, 0.2)]
    groups = [{"params": [nn.Parameter(torch.ones(1))], "lr": rate} for rate in rates]
    return torch.optim.SGD(groups, lr=rates[0], momentum=0.9)


def _run(recipe: SchedulerRecipe, optimizer: Any, schedule: Any, steps: range) -> list[Any]:
    """Takes steps and returns what the optimizer is set to after each."""
    found = []
    for number in steps:
        optimizer.step()
        schedule.step(*((abs(number - 4.0),) if recipe.metric else ()))
        found.append(_settings(optimizer))
    return found


def _settings(optimizer: Any) -> Any:
    return plain([{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups])


def outcome(run: Callable[[], int]) -> int | str:
    """What a stage returns, or what was wrong."""
    try:
        return run()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def counted(status: Any) -> int:
    """How many values were restored, all of which there are; nested state is one, however many tensors are in it."""
    report = status.report()
    if not report.complete:
        raise DifferenceError(f"incomplete: {report}")
    return len({entry.key.partition("/.ATTRIBUTES/")[0] for entry in report.matched})
