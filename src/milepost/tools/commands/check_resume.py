"""`milepost check-resume`: whether a program that is killed and started again computes what it computes undisturbed."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from milepost.errors import ArgumentError
from milepost.tools import amounts
from milepost.tools.arguments import DIFFERS, SUCCESS, add_command, add_json
from milepost.tools.resumes.attempt import Attempt, Kill
from milepost.tools.resumes.finding import Finding
from milepost.tools.resumes.outcome import TwoRuns, failure_of
from milepost.tools.resumes.output import compare_outputs
from milepost.tools.resumes.processes import GRACE, run_killed, run_once
from milepost.tools.resumes.reasons import name_of
from milepost.tools.resumes.workplace import PLACEHOLDER, prepare
from milepost.tools.terminal import line, note, print_json, shown


def add(commands: Any) -> None:
    """Adds the command to the parser."""
    command = add_command(
        commands,
        "check-resume",
        run,
        "run a program undisturbed, then kill it and start it again, and compare what the two runs log and their last checkpoints",
        [
            "milepost check-resume -- python train.py",
            "milepost check-resume --kill-at 2.5 --ignore seconds -- python train.py --run {directory}",
        ],
        {0: "the two runs computed the same", 1: "they differ, or the program failed"},
        f"If a word of the program's command has {PLACEHOLDER}, each run gets a new directory there. Otherwise the program runs in a new working "
        "directory, in which everything of the present one appears by links, but for directories of checkpoints. If the runs differ, what the "
        "program did not hold after the restore as at the save is listed.",
    )
    command.add_argument(
        "--kill-at",
        action="append",
        type=_moment,
        metavar="N",
        help="kill the program directly after its N-th save; 2.5 means half-way between the second save and the third; may be repeated; by "
        "default after the first save, and between two later ones",
    )
    command.add_argument(
        "--kill-process",
        type=int,
        metavar="RANK",
        help="kill only this process of a program of several, such as 1 for the second; the others end by themselves, or are killed "
        f"{GRACE:g} seconds later; by default all are killed at once",
    )
    command.add_argument(
        "--directory",
        metavar="DIR",
        help=f"where the program saves, below the working directory, if the command has no {PLACEHOLDER}; needed only if DIR is in a directory "
        "that exists",
    )
    command.add_argument(
        "--ignore",
        action="append",
        default=[],
        type=_expression,
        metavar="REGEX",
        help="compare no line of the output in which REGEX is found, such as one with a time; may be repeated",
    )
    command.add_argument("--timeout", type=float, metavar="SECONDS", help="the most seconds that one process may take")
    command.add_argument(
        "--keep", action="store_true", help="keep the directories of the two runs, also if they are the same"
    )
    add_json(command)
    command.add_argument(
        "program", metavar="PROGRAM", nargs="+", help="the command of the program, with its arguments, after --"
    )


def run(options: argparse.Namespace) -> int:
    """Does what the command says."""
    home = Path(os.path.realpath(tempfile.mkdtemp(prefix="milepost-check-")))
    is_kept = options.keep
    try:
        finding, outcome = _compared(options, home)
        is_kept = is_kept or finding is not None
        _print(options, finding, outcome, home if is_kept else None)
    finally:
        if not is_kept:
            shutil.rmtree(home, ignore_errors=True)
    return SUCCESS if finding is None else DIFFERS


def _compared(options: argparse.Namespace, home: Path) -> tuple[Finding | None, TwoRuns | None]:
    """The first difference of the two runs, and the runs; None if the undisturbed run has failed."""
    programs = [
        prepare(options.program, home / name, options.directory, options.timeout) for name in ("undisturbed", "killed")
    ]
    undisturbed = run_once(programs[0], 0)
    if (failure := failure_of(undisturbed, "in the undisturbed run")) is not None:
        return failure, None
    saves = [*undisturbed.of("saved")]
    if not saves:
        return Finding(
            "the program saves no checkpoint with milepost in the undisturbed run",
            remedy="let the program save, and leave the environment variables of this process to it",
        ), None
    homes = programs[0].home / "working", programs[1].home / "working"
    rank = _rank(options.kill_process, undisturbed)
    kills = [_kill(moment, saves, homes[0], rank) for moment in _moments(options.kill_at, len(saves))]
    outcome = TwoRuns(undisturbed, run_killed(programs[1], kills), homes)

    def compare() -> Finding | None:
        return _without_restore(outcome.attempts) or compare_outputs(
            undisturbed, outcome.attempts, homes, options.ignore
        )

    return outcome.finding(compare), outcome


def _moments(wanted: Sequence[float] | None, count: int) -> list[float]:
    """When to kill, in numbers of saves."""
    if wanted is None:
        return sorted({1.0, count // 2 + 0.5} if count > 2 else {1.0})
    moments = sorted(set(wanted))
    if moments[-1] > count or (moments[-1] != int(moments[-1]) and moments[-1] > count - 1):
        raise ArgumentError(
            "the program has fewer saves",
            key="--kill-at",
            expected=f"numbers from 1 to {count}",
            found=f"{moments[-1]:g}",
            remedy="pass a smaller number",
        )
    return moments


def _rank(wanted: int | None, undisturbed: Attempt) -> int | None:
    """The process to kill; None for all."""
    if wanted is None or wanted in (ranks := [0, *undisturbed.others] if undisturbed.others else []):
        return wanted
    raise ArgumentError(
        "the program has no such process that saves together with others",
        key="--kill-process",
        expected=f"a number from 0 to {ranks[-1]}" if ranks else "a program of several processes",
        found=wanted,
        remedy="pass the number of another process" if ranks else "leave the option out",
    )


def _kill(moment: float, saves: Sequence[dict[str, Any]], home: Path, rank: int | None) -> Kill:
    """The kill at a moment, whose time between two saves is taken from the undisturbed run."""
    number, fraction = int(moment), moment - int(moment)
    event = saves[number - 1]
    name = name_of(event, home)
    who = "" if rank is None else f"process {rank} "
    if not fraction:
        return Kill("saved", name, None, f"{who}right after it had saved {name}", rank)
    seconds = fraction * (saves[number]["at"] - event["at"])
    return Kill("saved", name, seconds, f"{who}{seconds:.2g} s after it had saved {name}", rank)


def _without_restore(attempts: Sequence[Attempt]) -> Finding | None:
    """The finding that a process restored nothing."""
    for number, attempt in enumerate(attempts[1:], start=1):
        if not any(True for _ in attempt.of("restored")):
            kill = attempts[number - 1].killed
            return Finding(
                "the program restored no checkpoint when it was started again",
                None,
                "a restore" if kill is None else f"a restore, since it was killed {kill.text}",
                "none",
                is_resumed=False,
                remedy="restore before the first step, as with manager.restore_or_initialize()",
            )
    return None


def _print(options: argparse.Namespace, finding: Finding | None, outcome: TwoRuns | None, kept: Path | None) -> None:
    """Prints what was found."""
    kills = [attempt.killed.text for attempt in outcome.attempts if attempt.killed] if outcome is not None else []
    saves = 0 if outcome is None else sum(1 for _ in outcome.undisturbed.of("saved"))
    outputs = [] if outcome is None else outcome.undisturbed.outputs.values()
    lines = sum(len(lines) for parts in outputs for lines in parts)
    if options.json:
        difference = None
        if finding is not None:
            names = ("problem", "key", "expected", "found", "remedy")
            difference = {name: getattr(finding, name) for name in names}
        reasons = [vars(reason) for reason in finding.reasons] if finding is not None else []
        print_json(
            {
                "same": finding is None,
                "saves": saves,
                "lines": lines,
                "killed": kills,
                "not_compared": [] if outcome is None else outcome.left_out(),
                "difference": difference,
                "not_as_at_the_save": reasons,
                "kept": None if kept is None else str(kept),
            }
        )
        return
    for library in [] if outcome is None else outcome.left_out():
        note(f"not compared, since the program does not seed it: the global random state of {library}")
    for kill in kills:
        line(f"killed {shown(kill)}, and started again")
    if finding is None:
        line(
            f"the same: {amounts.plural(lines, 'line')} of output, and every value of the last of {amounts.plural(saves, 'checkpoint')}"
        )
    else:
        _print_finding(finding)
    if kept is not None:
        note(f"the directories of the runs are in {shown(kept)}")


def _print_finding(finding: Finding) -> None:
    line(f"different: {finding.problem}")
    for name in ("key", "expected", "found"):
        value = getattr(finding, name)
        if value is not None:
            first, *others = value.splitlines() or [""]
            line(f"  {name}: {shown(first)}")
            for each in others:
                line(f"    {shown(each)}")
    if finding.reasons:
        line("what the program did not hold as at the save:")
        for reason in finding.reasons:
            line(f"  {shown(str(reason))}")
    if finding.remedy is not None:
        line(f"  remedy: {finding.remedy}")


def _moment(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number of saves from 1 on, such as 2 or 2.5, found {text!r}")
    return value


def _expression(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"expected a regular expression, found {text!r}: {error}") from None
