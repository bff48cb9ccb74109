"""The set-ups of ignite."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from ignite.engine import Engine, Events
from ignite.handlers import EarlyStopping, EMAHandler, LRScheduler
from ignite.handlers.param_scheduler import CosineAnnealingScheduler
from ignite.metrics import Average, RunningAverage

import milepost.ignite
from milepost.accelerate import DataPosition
from tests.trainers.small import network, seed_all
from tests.zoo_trainers.data import UNSAVED, generated, of_torchdata, reach_saves, rows
from tests.zoo_trainers.loops import unsized, weighted
from tests.zoo_trainers.trace import Trace
from tests.zoo_trainers.verdicts import Row

EPOCHS = 3


class Training:
    """An engine that trains a network, and what is around it."""

    def __init__(self, trace: Trace, accumulated: int = 1) -> None:
        self.trace, self.accumulated = trace, accumulated
        self.model = network()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 0.01)
        self.engine = Engine(self.step)
        self.evaluator = Engine(self.evaluate)
        self.objects: dict[str, Any] = {"model": self.model, "optimizer": self.optimizer}
        self.validation: Any = rows(8, counted=False)

    def step(self, engine: Any, batch: Any) -> float:
        self.trace.reach("batch", "SIGTERM")
        loss = self.model(batch).pow(2).mean()
        loss.backward()
        if engine.state.iteration % self.accumulated == 0:
            self.optimizer.step()
            self.optimizer.zero_grad()
        self.trace.note(f"batch {engine.state.iteration}", {"batch": batch, "loss": loss})
        return float(loss)

    def evaluate(self, engine: Any, batch: Any) -> float:
        self.trace.reach("validation")
        self.model.eval()
        loss = self.model(batch).pow(2).mean()
        self.model.train()
        key = f"validation {self.engine.state.iteration} {engine.state.iteration}"
        self.trace.note(key, {"batch": batch, "loss": loss})
        return float(loss)

    def validate(self) -> None:
        """Runs the evaluator, whose loader is another one than that of the engine."""
        self.evaluator.run(self.validation)
        self.trace.reach("end of a validation")

    def watch(self) -> None:
        """Adds the handlers that tell where the run is."""
        engine, trace = self.engine, self.trace
        engine.add_event_handler(Events.EPOCH_STARTED, lambda: trace.reach("epoch's start"))

        def after_batch() -> None:
            trace.reach("end of a batch")
            trace.note(f"after batch {engine.state.iteration}", torch.rand(()))

        def after_epoch() -> None:
            trace.reach("epoch's end")
            trace.note(f"after epoch {engine.state.epoch}", {"draw": torch.rand(()), "metrics": engine.state.metrics})

        engine.add_event_handler(Events.ITERATION_COMPLETED, after_batch)
        engine.add_event_handler(Events.EPOCH_COMPLETED, after_epoch)
        engine.add_event_handler(Events.COMPLETED, lambda: trace.reach("run's end"))


def setup(
    data: Callable[[], Any] = rows,
    attach: Callable[[Training], None] = lambda training: None,
    accumulated: int = 1,
    said: str = "",
    **settings: Any,
) -> Row:
    """A set-up: the data, what is attached to the engine, and the arguments of ``run()``."""

    def run(trace: Trace, directory: str | None, options: dict[str, Any]) -> None:
        seed_all()
        torch.set_num_threads(1)
        training = Training(trace, accumulated)
        attach(training)
        training.watch()
        if directory:
            reach_saves(trace)
            renamed = {name.replace("steps", "iterations"): value for name, value in options.items()}
            milepost.ignite.attach(
                training.engine, training.objects, directory, on_sigterm=True, gradients=accumulated > 1, **renamed
            )
        state = training.engine.run(data(), **{"max_epochs": EPOCHS, **settings})
        if training.engine.should_terminate != "skip_completed":
            trace.note("end: objects", {name: each.state_dict() for name, each in training.objects.items()})
            trace.note("end: numbers", [state.iteration, state.epoch])

    return Row(run, said)


def validating(event: Any, training: Training) -> None:
    training.engine.add_event_handler(event, training.validate)


def validating_with(data: Callable[[], Any], is_saved: bool, training: Training) -> None:
    training.validation = data()
    if is_saved:
        training.objects["validation"] = DataPosition(training.validation)
    validating(Events.EPOCH_COMPLETED, training)


def stopping(training: Training) -> None:
    """Ends the run after the second epoch."""
    training.engine.add_event_handler(Events.EPOCH_COMPLETED, training.validate)
    handler = EarlyStopping(1, lambda engine: -training.engine.state.iteration, training.engine)
    training.evaluator.add_event_handler(Events.COMPLETED, handler)
    training.objects["stopping"] = handler


def terminating(event: Any, iteration: int, method: str, training: Training) -> None:
    def check(engine: Any) -> None:
        if engine.state.iteration == iteration:
            getattr(engine, method)()

    training.engine.add_event_handler(event, check)


def annealing(training: Training) -> None:
    scheduler = CosineAnnealingScheduler(training.optimizer, "lr", 0.1, 0.01, cycle_size=7)
    training.engine.add_event_handler(Events.ITERATION_STARTED, scheduler)
    training.objects["scheduler"] = scheduler


def by_epoch(training: Training) -> None:
    scheduler = LRScheduler(torch.optim.lr_scheduler.StepLR(training.optimizer, 1, 0.7))
    training.engine.add_event_handler(Events.EPOCH_COMPLETED, scheduler)
    training.objects["scheduler"] = scheduler


def averaging(training: Training) -> None:
    handler = EMAHandler(training.model, 0.1)
    handler.attach(training.engine)
    training.objects["averaged"] = handler.ema_model


def metric(kind: Callable[[], Any], training: Training) -> None:
    training.objects["metric"] = kind()
    training.objects["metric"].attach(training.engine, "loss")


def counting(training: Training) -> None:
    """Keeps a number in the state of the engine."""
    engine = training.engine
    engine.state_dict_user_keys.append("total")
    engine.state.total = 0.0

    def add() -> None:
        engine.state.total += engine.state.output
        training.trace.note(f"total {engine.state.iteration}", engine.state.total)

    engine.add_event_handler(Events.ITERATION_COMPLETED, add)


_EACH_EPOCH = functools.partial(validating, Events.EPOCH_COMPLETED)
_ENDED_EPOCH = (
    "`engine.terminate_epoch()` makes an epoch shorter, and a resumed engine computes the epoch from the iteration"
)
SETUPS = {
    "a shuffled loader": setup(),
    "workers": setup(functools.partial(rows, num_workers=1)),
    "a loader with a generator": setup(generated),
    "a weighted sampler": setup(weighted),
    "`StatefulDataLoader`": setup(of_torchdata),
    "data without length": setup(unsized),
    "data without length, `epoch_length=4`": setup(unsized, epoch_length=4),
    "`epoch_length` less than a pass": setup(epoch_length=3),
    "`epoch_length` more than a pass": setup(epoch_length=7),
    "data without length, `max_iters=12`": setup(unsized, max_epochs=None, max_iters=12),
    "`max_iters=8`": setup(max_epochs=None, max_iters=8),
    "a validation after each epoch": setup(attach=_EACH_EPOCH),
    "a validation with a counter, its `DataPosition` among the objects": setup(
        attach=functools.partial(validating_with, rows, True)
    ),
    "a validation with a counter": setup(attach=functools.partial(validating_with, rows, False), said=UNSAVED),
    "a validation after every second iteration": setup(
        attach=functools.partial(validating, Events.ITERATION_COMPLETED(every=2))
    ),
    "`EarlyStopping` among the objects": setup(attach=stopping, max_epochs=5),
    "`terminate()` within an epoch": setup(
        attach=functools.partial(terminating, Events.ITERATION_COMPLETED, 7, "terminate")
    ),
    "`terminate()` at an epoch's end": setup(
        attach=functools.partial(terminating, Events.EPOCH_COMPLETED, 10, "terminate")
    ),
    "`terminate_epoch()`": setup(
        attach=functools.partial(terminating, Events.ITERATION_COMPLETED, 7, "terminate_epoch"), said=_ENDED_EPOCH
    ),
    "`CosineAnnealingScheduler` among the objects": setup(attach=annealing),
    "`LRScheduler` among the objects": setup(attach=by_epoch),
    "`EMAHandler`": setup(attach=averaging),
    "`Average` among the objects": setup(attach=functools.partial(metric, lambda: Average(lambda loss: loss))),
    "`RunningAverage` among the objects": setup(
        attach=functools.partial(metric, lambda: RunningAverage(output_transform=lambda loss: loss))
    ),
    "a number in `engine.state`": setup(attach=counting),
    "accumulated gradients, `gradients=True`": setup(accumulated=3),
}
