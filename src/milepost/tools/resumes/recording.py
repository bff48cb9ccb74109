"""Writes down, in a program that was started to be compared, what it saves, restores and holds.

The environment variable `VARIABLE` asks for it. Its value is JSON of a `Task`. The events are lines of JSON, in one file for each process::

    file    := process, event, ...
    process := JSON: {"event": "process", "name": number, "group": number, "session": number}
    event   := JSON: {"event": kind, "at": seconds, ...}
    reading := JSON: {"event": "reading", "name": prefix, "facts": facts}                  a save has read its values
    saved   := JSON: {"event": "saved", "name": prefix}                                    the checkpoint is committed
    restored := JSON: {"event": "restored", "name": prefix, "facts": facts, "has_objects": whether objects of the program took its values}
    line    := JSON: {"event": "line", "name": line, "facts": facts}                       what is new at a line after a restore
    loop    := JSON: {"event": "loop", "lines": [line, ...]}                               the lines that were run between two saves
    outside := JSON: {"event": "outside", "name": prefix}                                  a save would write elsewhere than below the home of the run
    rank    := JSON: {"event": "rank", "name": rank}                                       the process is one of several
    step    := JSON: {"event": "step", "name": number, "values": values}                   a step of a function
    facts   := JSON: {name: fact, ...}
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Set
from types import FrameType
from typing import Any, Final, NamedTuple

from milepost.checkpoint import in_memory
from milepost.engine.watching import watchers
from milepost.graph.contract.operation import Operation
from milepost.graph.traversal import walk
from milepost.tools.resumes.evidence import Facts, evidence_of, objects_of_program
from milepost.tools.resumes.lines import Lines
from milepost.tools.resumes.loops import positions_of_loops
from milepost.tools.resumes.own_output import divide_output
from milepost.tools.resumes.program import frames_of_program

VARIABLE: Final = "MILEPOST_CHECK_RESUME"
_LOOPS: Final = 2
"""The first saves of a program, after which its lines are recorded, to know those of its loop."""
_MOST_OF_LOOP: Final = 2000
_MOST_AFTER_RESTORE: Final = 60
_OF_FILES: Final = ("reading", "saved", "restored", "outside")


class Task(NamedTuple):
    """What a program is asked to do.

    Attributes:
        events: How the file for the events begins. The number of the process follows.
        home: The directory below which it may save.
        output: The file for the output. Other processes than the first have files of their own, whose names begin with this.
        parent: The number of the process that has started the program.
        stop_at: The kind and the name of the event after which it waits to be killed, and the rank of the process that waits; None for all. The
            name ends with this. None if there is no such event.
    """

    events: str
    home: str
    output: str
    parent: int
    stop_at: tuple[str, str, int | None] | None


class Recorder:
    """The events of this process.

    Args:
        task: Where to write, and when to stop.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._rank: int | None = None
        self._begin()
        self._lines: Lines | None = None
        self._loop: set[str] = set()
        self._count = 0
        self._digests: defaultdict[str, set[str]] = defaultdict(set)

    def _begin(self) -> None:
        """Begins to record this process."""
        self._process = os.getpid()
        group = session = 0
        if sys.platform != "win32":
            group, session = os.getpgid(0), os.getsid(0)
        self._put("process", str(self._process), group=group, session=session)
        divide_output(self._task.output, self._task.parent)

    def reading(self, prefix: str, operation: Operation, rank: int | None) -> None:
        """Records what the program holds when it saves."""
        self._end_lines()
        if not self._is_concerned(prefix, rank):
            return
        directory = os.path.realpath(os.path.dirname(prefix))
        if not f"{directory}/".startswith(f"{self._task.home}/"):
            self._put("outside", prefix)
            threading.Event().wait()  # until this process is killed, before it saves
        if self._loop:
            self._put("loop", "", lines=sorted(self._loop))
            self._loop.clear()
        frames = frames_of_program(sys._getframe(1))
        facts, names = evidence_of(frames, objects_of_program(), _saved(operation))
        self._put("reading", prefix, facts={**facts, **positions_of_loops(names)})
        self._count += 1
        if self._count <= _LOOPS:
            self._follow(frames, lambda frame: self._loop.add(_line(frame)), _MOST_OF_LOOP)

    def saved(self, prefix: str) -> None:
        """Records a save, and waits to be killed if it is the one."""
        if self._is_concerned(prefix, None):
            self._put("saved", prefix)

    def restored(self, prefix: str, operation: Operation | None, rank: int | None) -> None:
        """Records what the program holds after a restore, and at each line that follows."""
        self._end_lines()
        if not self._is_concerned(prefix, rank):
            return
        self._digests.clear()
        frames = frames_of_program(sys._getframe(1))
        saved: Set[int] = frozenset() if operation is None else _saved(operation)
        objects = objects_of_program()
        facts, names = self._new(frames, objects, saved)
        self._put("restored", prefix, facts=facts, has_objects=not saved.isdisjoint(names))
        self._count = _LOOPS
        self._follow(
            frames,
            lambda frame: self._put("line", _line(frame), facts=self._new(frames_of_program(frame), objects, saved)[0]),
            _MOST_AFTER_RESTORE,
        )

    def step(self, name: str, values: Any) -> None:
        """Records a step, and waits to be killed if it is the one."""
        self._put("step", name, values=values)

    def _follow(self, frames: list[FrameType], call: Callable[[FrameType], object], most: int) -> None:
        if threading.current_thread() is threading.main_thread():
            self._lines = Lines(frames, call, most)

    def _new(self, frames: list[FrameType], objects: list[Any], saved: Set[int]) -> tuple[Facts, Set[int]]:
        """What is not as at any line before, and the identities of all objects that were met."""
        facts, names = evidence_of(frames, objects, saved)
        new = {name: fact for name, fact in facts.items() if fact.digest not in self._digests[name]}
        for name, fact in new.items():
            self._digests[name].add(fact.digest)
        return new, names.keys()

    def _end_lines(self) -> None:
        if self._lines is not None:
            self._lines.stop()
            self._lines = None

    def _is_concerned(self, prefix: str, rank: int | None) -> bool:
        """Whether the checkpoint is in a file, and this process has begun to record. A fork of it does if it is one of several with a rank."""
        if os.getpid() != self._process:
            if rank is None:
                return False
            self._rank = None
            self._begin()
        if rank is not None and self._rank is None:
            self._rank = rank
            self._put("rank", str(rank))
        return prefix != in_memory.PREFIX

    def _put(self, event: str, name: str, **more: Any) -> None:
        if os.getpid() != self._process:
            return  # a fork of it, which runs the lines that are followed
        if event in _OF_FILES:
            name = os.path.abspath(name)
        line = json.dumps({"event": event, "name": name, "at": time.monotonic(), **more})
        with open(f"{self._task.events}-{self._process}", "a", encoding="utf-8") as file:
            file.write(line + "\n")
        stop_event, stop_name, rank = self._task.stop_at or ("", "", None)
        if event == stop_event and f"/{name}".endswith(f"/{stop_name}") and rank in (None, self._rank):
            threading.Event().wait()  # until this process is killed


def start(text: str) -> Recorder:
    """Records the events of this process from now on.

    Args:
        text: The value of `VARIABLE`.
    """
    recorder = Recorder(Task(*json.loads(text)))
    watchers.append(recorder)
    return recorder


def _saved(operation: Operation) -> frozenset[int]:
    """The identities of the objects that a save or restore concerns."""
    own = Operation(operation.root, operation.attached)
    live = walk(own)
    return frozenset(map(id, [*live.objects, *own.held.values()]))


def _line(frame: FrameType) -> str:
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"  # the runs may have files of their own
