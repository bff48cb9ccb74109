"""The tables of a benchmark, which are measured all together or one at a time.

``benchmarks/results/NAME.json`` has the samples of each table, and what they were measured on. ``NAME.md`` is the report on all of
them. A table that is measured anew replaces its earlier samples, and the others stay. So tables of one report may be of different
days and commits, and each is followed by a line that says which. Tables that were measured together share this line.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import runner

Samples = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Benchmark:
    """What there are tables of, and how they are reported.

    Attributes:
        tables: The names of the tables, in their order.
        title: The heading of the report, and how to read its tables.
        text: One table with its heading, if it has one of its own.
        settings: The options that the title tells of, and that all tables therefore share. The number of rounds is always one of
            them.
    """

    tables: Sequence[str]
    title: Callable[[argparse.Namespace], str]
    text: Callable[[str, Samples, argparse.Namespace], str]
    settings: Sequence[str] = ()


class Report:
    """The files of a benchmark in `runner.RESULTS`.

    Args:
        benchmark: What they are about.
        options: Of this run. ``options.table``, if there is any, names the tables that are measured; all others stay.

    Raises:
        SystemExit: Tables that would stay were measured with other settings.
    """

    def __init__(self, benchmark: Benchmark, options: argparse.Namespace) -> None:
        self._benchmark = benchmark
        self._options = options
        self._file = runner.RESULTS / f"{options.name}.json"
        self.wanted: Sequence[str] = getattr(options, "table", None) or benchmark.tables
        settings = {name: getattr(options, name) for name in ("rounds", *benchmark.settings)}
        settings |= {place: runner.filesystem(directory) for place, directory in runner.places(options).items()}
        self.settings: dict[str, Any] = json.loads(json.dumps(settings))
        self.runs: dict[str, dict[str, Any]] = json.loads(self._file.read_text()) if self._file.exists() else {}
        for name in benchmark.tables:
            found = self.runs.get(name, {}).get("settings", self.settings)
            if name not in self.wanted and found != self.settings:
                raise SystemExit(
                    f"{self._file} has the table {name!r}, which was measured with {found}, and not with {self.settings}. "
                    "Give the same options, measure all tables, or write another report with --name."
                )

    def put(self, name: str, facts: Mapping[str, Any], samples: Samples, **more: Any) -> None:
        """Replaces one table, and writes the files.

        Args:
            name: Of the table.
            facts: What it was measured on, see `runner.machine`.
            samples: What was measured.
            more: What else to remember of this run.
        """
        runs = {**self.runs, name: {"machine": facts, "settings": self.settings, **more, "samples": samples}}
        self.runs = {table: runs[table] for table in self._benchmark.tables if table in runs}
        runner.RESULTS.mkdir(exist_ok=True)
        self._file.write_text(json.dumps(self.runs, indent=1) + "\n")
        self._file.with_suffix(".md").write_text(self.text())

    def text(self) -> str:
        """The report on all tables."""
        parts = [self._benchmark.title(self._options)]
        names = list(self.runs)
        for name, following in zip(names, [*names[1:], None], strict=True):
            facts = self.runs[name]["machine"]
            parts.append(self._benchmark.text(name, self.runs[name]["samples"], self._options))
            if following is None or self.runs[following]["machine"] != facts:
                parts.append(runner.measured_on(facts))
        return "\n\n".join(parts) + "\n"


def samples_of(name: str) -> list[dict[str, Any]]:
    """The published samples of all tables of a benchmark."""
    runs = json.loads((runner.RESULTS / f"{name}.json").read_text())
    return [sample for run in runs.values() for sample in run["samples"]]


def run(
    benchmark: Benchmark,
    parser: argparse.ArgumentParser,
    child: runner.Child,
    measure: Callable[[str, argparse.Namespace], Samples],
) -> None:
    """A whole benchmark: measures and reports, or, in a process that `runner.ask` started, does one task.

    Args:
        benchmark: What to report.
        parser: From `runner.arguments`, with those of the benchmark.
        child: Does one task.
        measure: Asks for all tasks of all rounds of one table; returns the samples.
    """
    options = runner.begin(parser, child)
    report, facts = Report(benchmark, options), runner.machine()
    for name in report.wanted:
        report.put(name, facts, measure(name, options))
    print("\n" + report.text())


def ask_each(
    module: str, table: str, names: Sequence[str], options: argparse.Namespace, parent: Path, limit: float
) -> list[dict[str, Any]]:
    """Asks each contender of a table once in each round, and prints what it answers.

    Args:
        module: The benchmark, whose child gets the names of the table, the contender and a directory.
        table: The name of the table.
        names: The contenders.
        options: The number of rounds.
        parent: Where the directories are made.
        limit: The most seconds of a process.
    """
    samples: list[dict[str, Any]] = []
    for number, name in runner.interleaved(options.rounds, names):
        with runner.scratch(parent) as directory:
            task = {"table": table, "contender": name, "directory": str(directory.absolute())}
            samples.append({"contender": name, "round": number} | runner.ask(module, task, limit))
            print(table, *samples[-1].items(), flush=True)
    return samples
