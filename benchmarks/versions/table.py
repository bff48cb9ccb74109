"""The table of `docs/versions.md`, from ``benchmarks/results/versions.json``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.versions.environments import ENVIRONMENTS, LIBRARIES

_ROOT: Final = Path(__file__).parents[2]
RESULTS: Final = _ROOT / "benchmarks" / "results" / "versions.json"
PAGE: Final = _ROOT / "docs" / "versions.md"
BEGIN: Final = "<!-- The table of `make versions` begins. -->\n"
END: Final = "<!-- The table of `make versions` ends. -->\n"
EXACT: Final = "resumed exactly"
READ: Final = "files read and written"
RESTORED: Final = "restored"
ALSO_WITHOUT: Final = "fails without milepost, too"
FAILS: Final = "fails"
DIFFERS: Final = "differs"
_TITLES: Final = {
    "optax": "JAX with Optax",
    "linen": "Flax Linen",
    "nnx": "Flax NNX",
    "equinox": "Equinox",
    "grain": "Grain",
    "orbax": "Orbax",
    "torch": "PyTorch",
    "accelerate": "Accelerate",
    "lightning": "Lightning",
    "keras": "Keras 2 of TensorFlow",
    "keras on TensorFlow": "Keras 3 on TensorFlow",
    "keras on JAX": "Keras 3 on JAX",
    "keras on PyTorch": "Keras 3 on PyTorch",
    "tensorflow": "TensorFlow",
}


class Row(NamedTuple):
    """What came of a program with the versions of an environment."""

    program: str
    environment: str
    versions: str
    python: str
    result: str
    crossed: str
    is_good: bool


def read() -> dict[str, dict[str, Any]]:
    """What is known: by program, and by environment."""
    results: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return results


def write(results: Mapping[str, Any]) -> None:
    """Notes what is known."""
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


def rows(results: Mapping[str, Mapping[str, Any]]) -> Iterator[Row]:
    """The rows of the table, in the order of the programs and of the versions."""
    for program in LIBRARIES:
        of_program = results.get(program, {})
        for name in (each for each in ENVIRONMENTS if each in of_program):
            entry = of_program[name]
            versions = ", ".join(f"{package} {version}" for package, version in entry["versions"].items())
            restores = entry.get("restores", {})
            lead = LIBRARIES[program][0]
            crossed = ", ".join(f"{of_program[each]['versions'][lead]}: {what}" for each, what in restores.items())
            is_good = entry["result"] in (EXACT, READ, ALSO_WITHOUT) and set(restores.values()) <= {RESTORED}
            yield Row(program, name, versions, entry["python"], entry["result"], crossed, is_good)


def text(results: Mapping[str, Mapping[str, Any]]) -> str:
    """The table."""
    lines = [
        "| library | versions | Python | a run that was killed | runs of other versions |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {_TITLES.get(row.program, row.program)} | {row.versions} | {row.python} | {row.result} | {row.crossed} |"
        for row in rows(results)
    ]
    dates = sorted({entry["date"] for of_program in results.values() for entry in of_program.values()})
    days = " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else "no day"
    return "\n".join([*lines, "", f"Run from {days}." if " to " in days else f"Run on {days}.", ""])


def publish() -> None:
    """Writes the table into the page."""
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{text(read())}\n{END}{rest.partition(END)[2]}")
