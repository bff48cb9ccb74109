"""The rows of the table: programs, and how they are interrupted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.zoo_fit.cells import IN_A_ROW, Cell
from tests.zoo_fit.data import BATCHES, DATA, EPOCHS
from tests.zoo_fit.models import MODELS
from tests.zoo_fit.others import OTHERS
from tests.zoo_fit.run import Plan, Stop
from tests.zoo_fit.trainers import TRAINERS, is_installed

SECTIONS = ("data", "callbacks", "models", "saves", "interruptions")
Check = Callable[[str, tuple[Any, Any], Path, bool], dict[str, Any]]
Starts = Callable[[int], Iterable[int]]
"""At which of so many saves of a run a row of resumes begins."""


@dataclass(frozen=True)
class Row:
    """One row of a table.

    Attributes:
        section: One of `SECTIONS`.
        name: What is tried.
        check: Tries it: called with the trainer, its packages, a directory, and whether it is tried everywhere, or only
            where a test of the suite has time for it.
        needs: Packages without which it cannot be tried.
        trainers: Those that can do it.
        said: A sentence of ``docs/keras_fit.md`` which says that it is inexact.
    """

    section: str
    name: str
    check: Check
    needs: tuple[str, ...] = ()
    trainers: tuple[str, ...] = tuple(TRAINERS)
    said: str = ""

    def __str__(self) -> str:
        return f"{self.section}: {self.name}"

    def left_out(self, trainer: str) -> str:
        """Why it is not tried with this trainer, or nothing."""
        if not is_installed(*self.needs):
            return f"Tested where {', '.join(self.needs)} is installed."
        return "" if trainer in self.trainers else "This does not exist with this trainer."


_KERAS_3 = tuple(name for name, trainer in TRAINERS.items() if trainer.package == "keras")
_PLAN = Plan(model="linear", validation=False)
_QUICKEST = "torch"


def _every_place(count: int) -> Iterable[int]:
    """Each save is resumed by one of three resumes in a row."""
    return range(0, count, IN_A_ROW)


def _whole_epoch_and_ends(count: int) -> Iterable[int]:
    """Each save of the first epoch is resumed, and then the last within an epoch, that at its end and the one after it."""
    ends = range(BATCHES - 1, count, BATCHES + 1)
    return [start for start in (0, *ends) if start < count]


def _about_an_end(count: int) -> Iterable[int]:
    """The last save within the second epoch, that at its end and the one after it are resumed."""
    return [min(2 * BATCHES, max(count - 2, 0))]


def rows() -> Iterator[Row]:
    """All rows, in the order of the table."""
    for name, data in DATA.items():
        check = _between_epochs(replace(_PLAN, data=name, options={}))
        if data.resumable:
            check = _both(_resumed(replace(_PLAN, data=name)), check)
        yield Row("data", name, check, data.needs, said=data.said)
    for name, others in OTHERS.items():
        trainers = _KERAS_3 if others.keras3 else tuple(TRAINERS)
        for data_name in ("arrays, shuffled", "iterable with `state_dict`"):
            for last in (True, False):
                if not last and data_name != "arrays, shuffled":
                    continue
                plan = Plan(data=data_name, others=name, last=last)
                where = "milepost's last" if last else "milepost's first"
                if name == "none" and not last:
                    continue
                title = f"{name}, {data_name.partition(',')[0]}, {where}"
                yield Row("callbacks", title, _resumed(plan, _whole_epoch_and_ends), (), trainers, others.said)
    for name in MODELS[1:]:
        yield Row("models", name, _resumed(replace(_PLAN, model=name)))
    yield from _saves()
    yield from _interruptions()


def _resumed(plan: Plan, starts: Starts = _every_place) -> Check:
    def check(trainer: str, packages: tuple[Any, Any], directory: Path, everywhere: bool) -> dict[str, Any]:
        return Cell(trainer, packages, plan, directory).resumed(starts if everywhere else _about_an_end)

    return check


def _between_epochs(plan: Plan) -> Check:
    def check(trainer: str, packages: tuple[Any, Any], directory: Path, everywhere: bool) -> dict[str, Any]:
        return Cell(trainer, packages, plan, directory).resumed(_every_place)

    return check


def _both(first: Check, second: Check) -> Check:
    """Tries two things; the second with one trainer only, if it is not tried everywhere."""

    def check(trainer: str, packages: tuple[Any, Any], directory: Path, everywhere: bool) -> dict[str, Any]:
        found = first(trainer, packages, directory / "first", everywhere)
        if found["verdict"] != "equal" or not (everywhere or trainer == _QUICKEST):
            return found
        other = second(trainer, packages, directory / "second", everywhere)
        return other if other["verdict"] != "equal" else {**found, "resumes": found["resumes"] + other["resumes"]}

    return check


def _saves() -> Iterator[Row]:
    not_torch = tuple(name for name in TRAINERS if name != "torch")
    for name, options, compiled in (
        ("every epoch", {}, {}),
        ("every 3 steps", {"every_steps": 3, "every_epochs": None}, {}),
        ("the best epochs, too", {"every_steps": 3, "monitor": "val_loss"}, {}),
        ("every step, `steps_per_execution=2`", {"every_steps": 1}, {"steps_per_execution": 2}),
        ("every step, `steps_per_execution=3`, which does not divide", {"every_steps": 1}, {"steps_per_execution": 3}),
        ("every 3 steps, `steps_per_execution=2`", {"every_steps": 3}, {"steps_per_execution": 2}),
        ("every step, `run_eagerly=True`", {"every_steps": 1}, {"run_eagerly": True}),
    ):
        plan = Plan(options=options, compiled=compiled)
        trainers = not_torch if "steps_per_execution" in compiled else tuple(TRAINERS)
        yield Row("saves", name, _resumed(plan), (), trainers)
    name = "every step, `steps_per_execution=3`, `tf.data` of unknown length"
    plan = Plan(data="`tf.data` of unknown length", options={"every_steps": 1}, compiled={"steps_per_execution": 3})
    yield Row("saves", name, _resumed(plan), ("tensorflow",), ("tensorflow", "jax"))


def _interruptions() -> Iterator[Row]:
    steps = BATCHES * EPOCHS
    chains: dict[str, tuple[Plan, list[list[Stop]]]] = {}
    for options in ({"every_steps": 1}, {"every_steps": 3}, {}):
        plan = Plan(options=options)
        often = f"saves every {options['every_steps']} steps" if options else "saves every epoch"
        for event, count in (("on_train_batch_end", steps), ("on_epoch_end", EPOCHS), ("on_epoch_begin", EPOCHS)):
            if options.get("every_steps") != 1 and event == "on_epoch_begin":
                continue
            chains[f"killed in {event}, {often}"] = plan, _chains(Stop("kill", event), count)
    for others in ("`EarlyStopping` that waits", "`ReduceLROnPlateau`", "`SwapEMAWeights`, each epoch"):
        rows = _chains(Stop("kill"), steps)
        chains[f"killed in on_train_batch_end, saves every epoch, with {others}"] = (
            Plan(options={}, others=others),
            rows,
        )
    plan = Plan()
    chains["killed in on_train_batch_begin"] = plan, _chains(Stop("kill", "on_train_batch_begin"), steps)
    chains["killed in validation"] = plan, _chains(Stop("kill", "on_test_batch_end"), 2 * EPOCHS)
    chains["killed at the beginning of fit()"] = (
        plan,
        [
            [Stop("kill", count=5), *[Stop("kill", "on_train_begin")] * 3],
            [Stop("kill", "on_epoch_end", 1), *[Stop("kill", "on_train_begin")] * 3],
        ],
    )
    chains["killed while catching up"] = (
        plan,
        [[Stop("kill", count=7), Stop("kill", count=1, catching_up=True), Stop("kill", count=3, catching_up=True)]],
    )
    chains["killed, async saves"] = (
        Plan(options={"every_steps": 1, "asynchronous": True}),
        _chains(Stop("kill"), steps),
    )
    for before in (False, True):
        where = "before" if before else "after"
        stop = Stop("raise", before=before)
        chains[f"exception in a callback {where} milepost's, new process"] = plan, _chains(stop, steps)
        for event, count in (("on_train_batch_end", steps), ("on_epoch_end", EPOCHS)):
            stop = Stop("raise", event, before=before, again=1)
            # Where nothing is saved yet, fit() goes on with the model as it is.
            rows = [[replace(stop, count=each)] for each in range(2 if count == steps else 1, count + 1)]
            chains[f"exception in {event} {where} milepost's, fit() again"] = plan, rows
        anew = [[Stop("raise", count=each, before=before, again=1, anew=True)] for each in range(2, steps + 1, 2)]
        chains[f"exception {where} milepost's, new model and callback in this process"] = plan, anew
        for again, what in ((1, "fit() again"), (0, "new process")):
            late = [
                [Stop("kill", count=count), Stop("raise", count=at, catching_up=True, before=before, again=again)]
                for count, at in ((7, 1), (7, 2), (7, 3), (2, 1), (8, 2))
            ]
            chains[f"exception {where} milepost's while catching up, {what}"] = plan, late
    terminated = {"every_epochs": None, "every_steps": 100, "on_sigterm": True}
    for event, count in (
        ("on_train_batch_begin", steps),
        ("on_train_batch_end", steps),
        ("on_epoch_begin", EPOCHS),
        ("on_epoch_end", EPOCHS),
        ("on_test_batch_end", 2 * EPOCHS),
    ):
        for before in (True, False):
            where = "before" if before else "after"
            stop = Stop("term", event, before=before)
            chains[f"SIGTERM in {event} {where} milepost's"] = Plan(options=terminated), _chains(stop, count)
    for name, (plan, stops) in chains.items():
        trainers = _KERAS_3 if OTHERS[plan.others].keras3 else tuple(TRAINERS)
        yield Row("interruptions", name, _interrupted(plan, stops), (), trainers)


def _interrupted(plan: Plan, stops: list[list[Stop]]) -> Check:
    def check(trainer: str, packages: tuple[Any, Any], directory: Path, everywhere: bool) -> dict[str, Any]:
        if not everywhere:
            chosen = stops[len(stops) // 3 :: len(stops)]
        elif trainer == _QUICKEST:
            chosen = stops
        else:
            chosen = [stops[index] for index in sorted({0, len(stops) // 2, len(stops) - 1})]
        return Cell(trainer, packages, plan, directory).interrupted(chosen)

    return check


def _chains(stop: Stop, count: int) -> list[list[Stop]]:
    """Interruptions at each of so many calls, three in a row where there are as many."""
    return [[replace(stop, count=first), *[replace(stop, count=2)] * 2] for first in range(1, count + 1)]
