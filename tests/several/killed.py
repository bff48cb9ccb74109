"""Trainings on several processes that are killed at random, and resumed on other processes: what all frameworks have in common.

Each process compares its restored state with the file, and with what it had written down before the save.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import milepost
import milepost.checkpoint.checkpoint
import milepost.manager
import milepost.saving.distributed_save  # by name, because `import milepost` alone imports little: each forked process would import it
from milepost.errors import MilepostError
from tests.several.forked import PATIENCE, Journal, Launch
from tests.several.programs import free_port

KINDS = ("same", "others")
"""The same layout in every launch, or others."""
PROCESS_TIMEOUT = 4.0
"""Seconds after which a process counts as lost, for those that live."""
_LONGEST = 600.0
"""Seconds that a training may take that nobody kills, on a busy machine."""
CLOSE = 2e-3
"""How far losses may be from those of another layout, which adds in another order."""


class Run(NamedTuple):
    """One training.

    Attributes:
        directory: Of the checkpoints, and of what the processes write.
        steps: How many.
        every: After how many of them it saves.
        asynchronous: Whether it saves in the background.
        dropout: Of the model.
        tied: Whether two parts of the model share weights.
    """

    directory: Path
    steps: int = 16
    every: int = 2
    asynchronous: bool = False
    dropout: float = 0.0
    tied: bool = False

    @property
    def saved(self) -> Path:
        """Where the checkpoints are."""
        return self.directory / "run"

    def options(self) -> milepost.CheckpointOptions:
        """How it saves and restores."""
        return milepost.CheckpointOptions(
            enable_async=self.asynchronous, process_timeout=PROCESS_TIMEOUT, first_process=["order"]
        )

    def portrait(self, launch: int, step: int) -> Path:
        """Where the state is written down that a launch is about to save."""
        return self.directory / f"portrait-{launch}-{step}"


class Training(Protocol):
    """What one process trains.

    Attributes:
        run: The training.
        rank: The number of the process.
        launch: That of the launch.
        checkpoint: Its ``step`` counts, and its ``launch`` tells who saved it.
        manager: Of the checkpoints.
    """

    run: Run
    rank: int
    launch: int
    checkpoint: Any
    manager: Any

    def step(self) -> float:
        """Trains one step; returns the loss of all processes."""
        ...

    def portrait(self) -> dict[str, Any]:
        """All of the state that is the same on all processes, as JSON takes it; each tensor as a checksum of the whole."""
        ...

    def compare(self, path: str) -> dict[str, bool]:
        """Compares the restored state with the file, and with what else the process knows of it."""
        ...


def go_on(training: Training, journal: Journal) -> None:
    """Restores and trains to the end, as a program of a user does."""
    run, checkpoint, manager = training.run, training.checkpoint, training.manager
    journal.write("restore")
    try:
        path = manager.restore_or_initialize()
        if path is None:
            journal.write("began")
        else:
            manager.status.assert_consumed()
            noted = json.loads(run.portrait(checkpoint.launch, checkpoint.step).read_text())
            equal = training.compare(path)
            equal["what was saved"] = json.loads(json.dumps(training.portrait())) == noted
            equal["the number"] = path.endswith(f"-{checkpoint.step}")
            journal.write("restored", step=checkpoint.step, by=checkpoint.launch, equal=equal)
            checkpoint.launch = training.launch
        while checkpoint.step < run.steps:
            loss = training.step()
            journal.write("step", step=checkpoint.step, loss=loss.hex())
            if checkpoint.step % run.every == 0:
                portrait = training.portrait()
                if training.rank == 0:
                    run.portrait(training.launch, checkpoint.step).write_text(json.dumps(portrait))
                journal.write("save", step=checkpoint.step)
                manager.save(checkpoint.step)
                journal.write("background" if run.asynchronous else "saved", step=checkpoint.step)
        manager.sync()
        journal.write("saved", step=checkpoint.step - checkpoint.step % run.every)
        journal.write("end", portrait=training.portrait())
    finally:
        with suppress(MilepostError):
            manager.sync()


class Found:
    """What was seen: counts, and everything that is wrong."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []

    def check(self, is_right: bool, otherwise: str) -> None:
        """Counts a check."""
        self.counts["checks"] += 1
        if not is_right:
            self.wrong.append(otherwise)


def kill_one_or_all(
    launch: Launch, draw: random.Random, found: Found, most: int, is_time: Callable[[], bool] = lambda: True
) -> None:
    """Kills one process of a launch or all of them at a random moment, and waits for the rest.

    Args:
        launch: The launch.
        draw: Chooses.
        found: Gets the counts.
        most: How many lines a process has written when it is killed, at the most.
        is_time: Whether it may be killed.
    """
    doomed = list(range(launch.size)) if draw.random() < 0.25 else [draw.randrange(launch.size)]
    lines, pause = draw.randint(1, most), draw.uniform(0, 0.1)
    until = time.monotonic() + PATIENCE

    def is_early() -> bool:
        # Who lives waits very long in a framework that has not connected it yet.
        is_connected = all(launch.events(rank) for rank in range(launch.size))
        return not is_connected or not is_time() or len(launch.events(doomed[0])) < lines

    while len(launch.running()) == launch.size and is_early() and time.monotonic() < until:
        time.sleep(0.005)
    time.sleep(pause)
    for rank in doomed:
        launch.send(rank)
    found.counts["kills of all" if doomed[1:] else "kills of one"] += 1
    late = launch.end()
    moment = (launch.events(doomed[0]) or [{"event": "start"}])[-1]["event"]
    found.counts[f"killed after {moment!r}"] += 1
    found.check(not late, f"launch {launch.number}: processes {late} did not end\n{launch.printed()}")
    for rank, code in launch.codes.items():
        if rank not in doomed:
            found.counts["survivors that ended with an error" if code else "survivors that had finished"] += 1


def check_errors(launch: Launch, what: str, found: Found) -> None:
    """Checks that no process says anything else than that another one is gone."""
    errors = [each["kind"] for rank in range(launch.size) for each in launch.events(rank) if each["event"] == "error"]
    found.counts["errors of milepost"] += len(errors)
    others = set(errors) - {"CoordinationError", "AfterCommitError"}
    found.check(not others, f"{what}: processes have raised {errors}\n{launch.printed()}")


def look_for_saved(launch: Launch, run: Path, found: Found) -> None:
    """Checks that no checkpoint is lost that any process has called saved."""
    saved = [each["step"] for rank in range(launch.size) for each in launch.events(rank) if each["event"] == "saved"]
    if saved:
        with suppress(MilepostError):
            latest = milepost.latest_checkpoint(run)
            found.check(
                latest is not None and int(latest.rpartition("-")[2]) >= max(saved), f"{run}: {saved} were saved"
            )


def losses(launch: Launch) -> Iterator[tuple[int, float]]:
    """Steps and losses of a launch, of any of its processes that came so far; all of them must have the same."""
    found: dict[int, float] = {}
    for rank in range(launch.size):
        for each in launch.events(rank):
            if each["event"] == "step":
                loss = float.fromhex(each["loss"])
                assert found.setdefault(each["step"], loss) == loss, f"processes have different losses: {each}"
    yield from sorted(found.items())


def restored(launch: Launch) -> list[dict[str, Any]]:
    """What the processes of a launch say of their restore."""
    return [each for rank in range(launch.size) for each in launch.events(rank) if each["event"] == "restored"]


def check_restored(launch: Launch, what: str, found: Found) -> None:
    """Checks that every process found its restored state equal to all that it compared it with."""
    for each in restored(launch):
        found.counts["restores"] += 1
        for other, equal in each["equal"].items():
            found.check(equal, f"{what}: the restored state is not equal to {other}: {each}\n{launch.printed()}")


def ended_well(launch: Launch, what: str, found: Found) -> bool:
    """Waits for a launch that nobody kills, and checks that it has done all it should."""
    late = launch.end(_LONGEST)
    well = not late and not any(launch.codes.values())
    found.check(well, f"{what}: the last launch ended with {launch.codes}\n{launch.printed()}")
    return well


def launched(train: Train, run: Run, layout: Any, number: int) -> Launch:
    """Processes that train."""
    port = free_port()

    def work(rank: int, journal: Journal) -> None:
        train(run, layout, rank, number, port, journal)

    return Launch(work, layout.size, run.directory, number)


Train = Callable[[Run, Any, int, int, int, Journal], object]
"""One process of one launch; takes the run, the layout, the number of the process, that of the launch, a free port, and the journal."""


class Expected(NamedTuple):
    """What a training has that nobody kills.

    Attributes:
        losses: By step.
        portrait: Of the last state.
    """

    losses: dict[int, float]
    portrait: Any


def undisturbed(train: Train, run: Run, layout: Any) -> Expected:
    """A training that nobody kills."""
    run.directory.mkdir(parents=True)
    launch = launched(train, run, layout, 0)
    late = launch.end(_LONGEST)
    assert not late, launch.printed()
    assert not any(launch.codes.values()), launch.printed()
    return Expected(dict(losses(launch)), launch.events(0)[-1]["portrait"])


def killed(
    train: Train, run: Run, layouts: Sequence[Any], kills: int, draw: random.Random, expected: Expected, found: Found
) -> None:
    """One training that is killed and resumed with the next layout again and again, and then ends.

    Args:
        train: One process of one launch.
        run: The training.
        layouts: One for each launch, in turn.
        kills: How often it is killed at most.
        draw: Chooses.
        expected: What a run that nobody killed had: it must be equal bit for bit if there is one layout, and else close.
        found: Gets what was seen.
    """
    run.directory.mkdir(parents=True)
    before: list[tuple[Any, dict[int, float]]] = []
    for number in range(kills + 1):
        layout = layouts[number % len(layouts)]
        launch = launched(train, run, layout, number)
        what = f"{run}, launch {number}, {layout}"
        if number < kills:
            # So that there is something to restore on a machine of any speed.
            kill_one_or_all(launch, draw, found, 8, lambda: number > 0 or bool([*run.saved.glob("*.index")]))  # noqa: B023
        elif not ended_well(launch, what, found):
            return
        check_errors(launch, what, found)
        look_for_saved(launch, run.saved, found)
        check_restored(launch, what, found)
        now = dict(losses(launch))
        found.counts["steps"] += len(now)
        for step, loss in now.items():
            right = expected.losses[step]
            is_right = loss == right if not layouts[1:] else math.isclose(loss, right, rel_tol=CLOSE)
            found.check(is_right, f"{what}: the loss of step {step} is {loss}, and not {right}")
        for each in restored(launch)[:1]:
            saver, then = before[each["by"]]
            for step in now.keys() & then.keys() if saver == layout else ():
                found.counts["steps that the same layout had done already"] += 1
                found.check(
                    now[step] == then[step], f"{what}: the loss of step {step} is {now[step]}, and not {then[step]}"
                )
        before.append((layout, now))
    if not layouts[1:]:
        found.check(launch.events(0)[-1]["portrait"] == expected.portrait, f"{run}: the last state differs")
    found.counts["trainings that ended"] += 1


def one(train: Train, layouts: Sequence[Any], base: Path, kind: str, seed: int, kills: int, found: Found) -> None:
    """One training and its undisturbed twin.

    Args:
        train: One process of one launch.
        layouts: All that there are.
        base: Where its directories are made.
        kind: "same" for the same layout in all launches, with dropout; "others" for others.
        seed: Of all choices.
        kills: How often it is killed at most.
        found: Gets what was seen.
    """
    draw = random.Random(seed)
    chosen = list(layouts) if kind == "others" else [draw.choice(layouts)]
    if seed:
        draw.shuffle(chosen)
    dropout = 0.1 if kind == "same" else 0.0
    twin = Run(base / f"{kind}-{seed}-undisturbed", tied=bool(seed % 2), dropout=dropout)
    expected = undisturbed(train, twin, chosen[0])
    run = twin._replace(
        directory=base / f"{kind}-{seed}", asynchronous=bool(seed // 2 % 2), every=draw.choice((1, 2, 3))
    )
    killed(train, run, chosen, kills, draw, expected, found)
    if not found.wrong:
        for each in (twin, run):
            shutil.rmtree(each.directory)


def run_program(train: Train, layouts: Sequence[Any]) -> None:
    """The command line of a training: one of a kind, or many for some time; prints what was seen as one line of JSON.

    Args:
        train: One process of one launch.
        layouts: All ways to spread the model.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=0)
    given = parser.parse_args()
    found, begun, seed = Found(), time.monotonic(), given.seed
    while True:
        for kind in [given.kind] if given.kind else KINDS:
            one(train, layouts, given.directory, kind, seed, given.kills, found)
        if found.wrong or time.monotonic() - begun > given.seconds:
            break
        seed += 1
    print(json.dumps({"counts": found.counts, "wrong": found.wrong, "seconds": time.monotonic() - begun}), flush=True)
