"""What is known of one start of a program: the events that its processes have recorded, and what they have printed.

Each process writes its events to a file of its own, ``events-N-PID``, and its lines to ``output-N-PID``, if several processes would share
``output-N``. A process of several tells its rank with its first save or restore. Those without a rank are one after the other, and count as one.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

Events = list[dict[str, Any]]
LAUNCHER: Final = "the program"
"""What was started. If that is a launcher, processes that write through a pipe have their lines here, in any order."""
UNRANKED: Final = "a process of the program"
_LAST_LINES: Final = 12


@dataclass(frozen=True)
class Kill:
    """When a process is killed.

    Attributes:
        event: The kind of the event.
        name: The end of its name.
        delay: Seconds after it; None if nothing is to follow it.
        text: When that is, for people.
        rank: The process that is killed; None for all.
    """

    event: str
    name: str
    delay: float | None
    text: str
    rank: int | None = None

    def is_after(self, event: dict[str, Any], rank: int | None) -> bool:
        """Whether this is the event, in the process of this rank."""
        is_of_rank = not rank if self.rank is None else rank == self.rank
        return is_of_rank and event["event"] == self.event and f"/{event['name']}".endswith(f"/{self.name}")


@dataclass
class Attempt:
    """One start of a program.

    Attributes:
        events: What process 0 has recorded, or the only process.
        others: What the other processes have recorded, by their ranks.
        outputs: The lines that were written, by who wrote them: `LAUNCHER`, `UNRANKED`, or the process of a rank. Each start of such a process has
            lines of its own.
        errors: The last lines of the error output.
        status: The exit status.
        killed: The kill that has ended it, or None.
    """

    events: Events = field(default_factory=list)
    others: dict[int, Events] = field(default_factory=dict)
    outputs: dict[str, list[list[str]]] = field(default_factory=dict)
    errors: str = ""
    status: int = 0
    killed: Kill | None = None

    def of(self, event: str) -> Iterator[dict[str, Any]]:
        """The events of a kind."""
        return (each for each in self.events if each["event"] == event)

    def is_ordered(self, name: str) -> bool:
        """Whether lines of this name come in the same order in every run."""
        return not self.others if name == LAUNCHER else name != UNRANKED or len(self.outputs[name]) == 1

    def is_comparable(self, name: str) -> bool:
        """Whether lines of this name are those of the program. A launcher tells of a worker that was killed, in words of its own."""
        return name != LAUNCHER or self.killed is None or self.killed.rank is None

    def of_process(self, rank: int) -> Attempt:
        """The same with the events of another process."""
        return replace(self, events=self.others.get(rank, []), others={})

    def add_lines(self, home: Path, number: int, reader: EventReader) -> None:
        """Reads what the processes have printed."""
        self.outputs = {LAUNCHER: [self._lines(home / f"output-{number}")]}
        for each in sorted(reader.processes.values(), key=lambda each: (each.rank or 0, each.at)):
            name = UNRANKED if each.rank is None else f"process {each.rank}"
            if lines := self._lines(home / f"output-{number}-{each.number}"):
                self.outputs.setdefault(name, []).append(lines)
        errors = (home / f"errors-{number}").read_text(errors="backslashreplace")
        self.errors = "\n".join(errors.splitlines()[-_LAST_LINES:])

    def _lines(self, file: Path) -> list[str]:
        text = file.read_text(errors="backslashreplace") if file.exists() else ""
        return (
            text if self.killed is None else text[: text.rfind("\n") + 1]
        ).splitlines()  # a last line may be incomplete


@dataclass
class Process:
    """A process that records.

    Attributes:
        number: Its number in the operating system.
        group: That of its group, and of its session.
        at: When it began to record.
        rank: Its rank among several; None before it is known, or if it is alone.
        events: What it has recorded.
    """

    number: int
    group: tuple[int, int]
    at: float
    rank: int | None = None
    events: Events = field(default_factory=list)


class EventReader:
    """Reads the events of running processes. The last line of a file may be incomplete.

    Attributes:
        processes: Those that have recorded something, by the names of their files.
    """

    def __init__(self, home: Path, number: int) -> None:
        self._home = home
        self._prefix = f"events-{number}-"
        self._positions: defaultdict[str, int] = defaultdict(int)
        self.processes: dict[str, Process] = {}

    def read(self) -> list[tuple[dict[str, Any], int | None]]:
        """The events since the last call, each with the rank of its process."""
        return [each for path in sorted(self._home.glob(f"{self._prefix}*")) for each in self._read(path)]

    def _read(self, path: Path) -> Iterator[tuple[dict[str, Any], int | None]]:
        with open(path, "rb") as file:
            file.seek(self._positions[path.name])
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._positions[path.name] += len(whole)
        for event in map(json.loads, whole.splitlines()):
            if event["event"] == "process":
                self.processes[path.name] = Process(int(event["name"]), (event["group"], event["session"]), event["at"])
                continue
            process = self.processes[path.name]
            if event["event"] == "rank":
                process.rank = int(event["name"])
            else:
                process.events.append(event)
                yield event, process.rank

    def give_events(self, attempt: Attempt) -> None:
        """Gives an attempt all that was recorded."""
        of_ranks: defaultdict[int, Events] = defaultdict(list)
        for each in self.processes.values():
            of_ranks[each.rank or 0] += each.events
        for events in of_ranks.values():
            events.sort(key=lambda event: event["at"])
        attempt.events = of_ranks.pop(0, [])
        attempt.others = dict(sorted(of_ranks.items()))
