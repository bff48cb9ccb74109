"""How the processes of one run find out that they are of one run, before the first operation.

::

    hello    := {"run": RUN, "count": NUMBER}                     of process 0. ``RUN`` is its own number; it counts how often it has posted
    join     := {"own": OWN, "run": RUN}                          of another process, once it has heard this hello
    welcome  := {"run": RUN, "own": {RANK: OWN}}                  of process 0, when all have joined; under ``welcome/`` RANK // 256
    refusal  := {"own": {RANK: OWN}, "lost": [RANK], "number": NUMBER}     the same topic: these have not joined in this operation

What connects the processes may hold messages of an earlier run. `torchrun` for example starts processes again after a failure, and
keeps its store. So each process draws a random number, its own. Process 0 counts those that answer its own number, and the others
wait for a welcome with theirs. No message of an earlier run has these numbers. After that, all topics begin with the number of process 0.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from milepost.coordination import Coordinator
from milepost.coordination.polling import poll
from milepost.errors import CoordinationError
from milepost.forks import ForkableLock

_HELLO: Final = "hello"
_JOIN: Final = "join"
_WELCOMED: Final = 256
"""How many processes one welcome is for."""
_SHORTEST, _LONGEST = 0.001, 0.1
"""Seconds between two looks for a message: few at first, then more."""
_BEATS: Final = 4
"""How often process 0 posts its hello within a time limit."""


class Meeting:
    """The meeting of the processes of one run. It ends once; after that, `hold` does nothing.

    Args:
        coordinator: How this process reaches the others.

    Attributes:
        run: What the topics of this run begin with; empty until the processes have met.
        heard: On another process than process 0, the number of process 0 once it has come; else empty.
    """

    def __init__(self, coordinator: Coordinator) -> None:
        self.run = ""
        self.heard = ""
        self._coordinator = coordinator
        self._own = os.urandom(8).hex()
        self._lock = ForkableLock()

    def hold(
        self,
        number: int,
        timeout: float,
        lost: Callable[[list[int], int], CoordinationError],
        posted: Callable[[str], object],
    ) -> None:
        """Waits until all processes have come, if they have not met yet.

        Args:
            number: The number of the operation.
            timeout: Seconds after which a process that has not come counts as lost.
            lost: Makes the error for processes that have not come. It is given them and the process that gave up.
            posted: Called with each topic, to be cleared when the operation has ended.

        Raises:
            CoordinationError: A process has not come.
        """
        with self._lock:
            if self.run:
                return
            if self._coordinator.rank == 0:
                self.run = f"{self._lead(number, timeout, lost, posted)}/"
            else:
                self.run = f"{self._follow(number, timeout, lost)}/"

    def _lead(
        self,
        number: int,
        timeout: float,
        lost: Callable[[list[int], int], CoordinationError],
        posted: Callable[[str], object],
    ) -> str:
        joined: dict[int, str] = {}
        missing = list(range(1, self._coordinator.size))

        def look() -> bool | None:
            nonlocal missing
            for rank in missing:
                join = self._heard(_JOIN, rank)
                if join.get("run") == self._own:
                    joined[rank] = join["own"]
            missing = [rank for rank in missing if rank not in joined]
            return None if missing else True

        end = time.monotonic() + timeout
        for count in range(_BEATS + 1):
            self._post(_HELLO, {"run": self._own, "count": f"{number}.{count}"})
            if poll(look, max(min(timeout / _BEATS, end - time.monotonic()), 0), _SHORTEST, _LONGEST):
                break
        error = lost(missing, 0) if missing else None
        facts: dict[str, Any] = {"run": self._own} if error is None else {"lost": missing, "number": number}
        for first in range(0, self._coordinator.size, _WELCOMED):
            welcomed = {rank: joined[rank] for rank in range(first, first + _WELCOMED) if rank in joined}
            if welcomed:
                self._post(_welcome(first), {**facts, "own": welcomed})
                posted(_welcome(first))
        if error is not None:
            raise error
        posted(_HELLO)
        return self._own

    def _follow(self, number: int, timeout: float, lost: Callable[[list[int], int], CoordinationError]) -> str:
        coordinator = self._coordinator
        heard: Mapping[str, Any] = {}
        end = time.monotonic() + timeout

        def look() -> Mapping[str, Any] | None:
            nonlocal heard, end
            hello = self._heard(_HELLO, 0)
            if hello != heard:
                if hello and hello["run"] != heard.get("run"):
                    self.heard = hello["run"]
                    self._post(_JOIN, {"own": self._own, "run": hello["run"]})
                heard, end = hello, time.monotonic() + timeout
            welcome = self._heard(_welcome(coordinator.rank), 0)
            is_own = welcome.get("own", {}).get(str(coordinator.rank)) == self._own
            return welcome if is_own and welcome.get("number", number) == number else None

        welcome = None
        while welcome is None and (left := end - time.monotonic()) > 0:
            welcome = poll(look, left, _SHORTEST, _LONGEST)
        with suppress(Exception):  # a message that is not cleared does no harm
            coordinator.clear(_JOIN)
        if welcome is None:
            raise lost([0], coordinator.rank)
        if "lost" in welcome:
            raise lost(welcome["lost"], 0)
        run: str = welcome["run"]
        return run

    def _post(self, topic: str, facts: Mapping[str, Any]) -> None:
        self._coordinator.post(topic, json.dumps(facts).encode())

    def _heard(self, topic: str, rank: int) -> dict[str, Any]:
        """The message that a process has posted; empty if there is none."""
        message = self._coordinator.wait(topic, rank, 0)
        facts: dict[str, Any] = {} if message is None else json.loads(message)
        return facts


def _welcome(rank: int) -> str:
    return f"welcome/{rank // _WELCOMED}"
