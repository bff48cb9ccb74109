"""What becomes of a program that is interrupted and started again, in one or two words."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.zoo_fit.forked import forked
from tests.zoo_fit.run import Plan, Stop, run

IN_A_ROW = 3


class Cell:
    """The runs of one program by one trainer.

    Args:
        trainer: Its name.
        packages: What `imported` returned.
        plan: The program.
        directory: For the runs; it must not exist.
    """

    def __init__(self, trainer: str, packages: tuple[Any, Any], plan: Plan, directory: Path) -> None:
        self._trainer = trainer
        self._packages = packages
        self._plan = plan
        self._directory = directory
        self._numbers = itertools.count()
        directory.mkdir(parents=True)

    def resumed(self, starts: Callable[[int], Iterable[int]]) -> dict[str, Any]:
        """Resumes the program where it was saved, three times in a row, each from what the one before saved first.

        Args:
            starts: At which of its saves the first of three resumes is: called with their number.
        """
        resumes = 0
        whole = self.run(None, self._directory / "whole", "all")
        failed = _failure(whole, None)
        if failed:
            return failed
        for first in starts(len(whole["places"])):
            place, done = whole["places"][first]
            for resume in range(IN_A_ROW):
                part = self.run(None, self._copy(place), "first")
                failed = _failure(part, whole, done, f"resume {resume + 1} of save {first + 1}")
                if failed:
                    return failed
                resumes += 1
                if not part["places"]:
                    break
                place, done = part["places"][0][0], done + part["places"][0][1]
        return {"verdict": "equal", "resumes": resumes}

    def interrupted(self, stops: list[list[Stop]]) -> dict[str, str]:
        """Interrupts the program again and again, and then lets it run to its end.

        Args:
            stops: Interruptions in a row, and those are tried one after the other, each in a directory of its own.
        """
        whole = self.run(None, self._directory / "whole", "")
        failed = _failure(whole, None)
        if failed:
            return failed
        for row in stops:
            directory = self._directory / f"{next(self._numbers)}"
            for stop in [*row, None]:
                part = self.run(stop, directory, "")
                if part.get("ended") == "killed" and stop is not None:
                    continue
                if part.get("interrupted") is not None and "history" not in part and not part["error"]:
                    continue
                if part.get("terminated") and stop is not None and not part["error"]:
                    continue
                failed = _failure(part, whole, None, f"{row}, then {stop}")
                if failed:
                    return failed
                break
        return {"verdict": "equal"}

    def run(self, stop: Stop | None, directory: Path, keep: str) -> dict[str, Any]:
        """One run in a process of its own."""
        directory.mkdir(exist_ok=True)
        found: dict[str, Any] = forked(run, self._trainer, self._packages, self._plan, directory, stop, keep)
        return found

    def _copy(self, place: str) -> Path:
        directory = self._directory / f"resumed{next(self._numbers)}"
        shutil.copytree(self._directory / place, directory)
        return directory


COMPARED = ("epochs", "history", "iterations", "learning rate", "step", "weights", "optimizer", "others")


def _failure(
    part: dict[str, Any], whole: dict[str, Any] | None, done: int | None = None, where: str = ""
) -> dict[str, str]:
    if "ended" in part:
        return {"verdict": "DIFFERS", "why": f"{where}: {part['ended']}: {part['output']}"}
    if part["error"]:
        when = "" if whole is None else "when it is resumed: "
        verdict = "DIFFERS" if part["foreign"] else "refused late" if part["losses"] else "refused"
        return {
            "verdict": verdict,
            "why": f"{when}{part['error']}",
            "where": f"{where}, after {len(part['losses'])} batches",
        }
    if whole is None:
        return {}
    found = list(_differences(part, whole, done))
    if not found:
        return {}
    said = "; ".join(sorted({*part["warnings"], *whole["warnings"]}))
    return {"verdict": "inexact" if said else "DIFFERS", "why": said or found[0], "where": f"{where}: {found[0]}"}


def _differences(part: dict[str, Any], whole: dict[str, Any], done: int | None) -> Iterator[str]:
    expected = whole["losses"][len(whole["losses"]) - len(part["losses"]) :] if done is None else whole["losses"][done:]
    if part["losses"] != expected:
        pairs = itertools.zip_longest(part["losses"], expected)
        first = next(pair for pair in pairs if pair[0] != pair[1])
        yield f"trained {len(part['losses'])} batches, not {len(expected)}; first other one {first[0]}, not {first[1]}"
    for name in COMPARED:
        wanted = whole[name]
        if name == "optimizer" and not part["losses"]:
            wanted = wanted[: len(part[name])]  # the first step makes the others
        if part[name] != wanted:
            yield f"{name}: {part[name]}, not {wanted}"[:600]
