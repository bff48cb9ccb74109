"""Rounds of messages by which processes save or restore together.

::

    operation := {round}
    round     := report of each process except 0, decision of process 0
    topic     := RUN "/" NUMBER "/" STEP     of a report or decision: the numbers of the operation and of the round in it
    progress  := RUN "/" NUMBER "/progress"  the topic of a message that is posted again for as long as its process makes progress
    failure   := RUN "/" NUMBER "/failed"    the topic of the error of a process except 0, which process 0 may see after its report
    message   := length:u32 facts data       little-endian; ``facts`` is JSON of this length, ``data`` is the rest

``RUN`` tells the messages of this run from those of earlier ones (`milepost.distributed.meeting`). Operations are numbered in the
order in which a program begins them. In a round every process reports, process 0 decides, and all
processes get the decision. A process that fails reports its error. Process 0 then decides that the operation has failed, and all
processes raise an error. Process 0 looks for errors also while it waits for another process. No process waits forever. A process counts as lost if it has reported nothing and shown no progress for the
time limit. Then the operation has failed.
"""

from __future__ import annotations

import json
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, NamedTuple

from milepost.coordination import Coordinator
from milepost.coordination.polling import poll
from milepost.distributed.meeting import Meeting
from milepost.distributed.problems import error_of, facts_of
from milepost.errors import CoordinationError, MilepostError
from milepost.facts import Fact
from milepost.forks import ForkableLock
from milepost.threads import ThreadCall

_LENGTH: Final = 4
_FAILED: Final = "failed"
_BEATS: Final = 4
"""How often progress is posted within a time limit."""
_MOST_NAMED: Final = 8
_SOON: Final = 2.0
"""Seconds in which a process that has given up a save says why."""
_SHORTEST, _LONGEST = 0.01, 0.1
"""Seconds between two looks for that: few at first, then more."""
_FIRST_PAUSE: Final = 0.5
"""Seconds that process 0 waits for one process before it looks whether another one has failed. Then the pauses grow."""
_LOOKS: Final = 100
"""How many processes it looks at in a second of these pauses, at most."""


class Message(NamedTuple):
    """A message of one process to others.

    Attributes:
        facts: Plain data, as JSON takes it.
        data: Bytes.
    """

    facts: dict[str, Any]
    data: bytes = b""

    def encode(self) -> bytes:
        """The message as bytes."""
        facts = json.dumps(self.facts).encode()
        return len(facts).to_bytes(_LENGTH, "little") + facts + self.data

    @classmethod
    def decode(cls, message: bytes) -> Message:
        """The inverse of `encode`."""
        end = _LENGTH + int.from_bytes(message[:_LENGTH], "little")
        return cls(json.loads(message[_LENGTH:end]), message[end:])


class Session:
    """The operations of one process through one coordinator.

    Args:
        coordinator: The coordinator.
    """

    def __init__(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator
        self.meeting = Meeting(coordinator)
        self._lock = ForkableLock()
        self._number = 0
        self._posted: dict[int, list[str]] = {}
        self._not_met: dict[int, bytes] = {}
        """By operation that failed because the processes had not met, what the others are to hear of it."""
        self._operations: weakref.WeakSet[Rounds] = weakref.WeakSet()

    def begin(self, operation: Rounds) -> int:
        """Gives an operation its number."""
        with self._lock:
            self._number += 1
            self._operations.add(operation)
            return self._number

    def first_running(self, besides: Rounds) -> int:
        """The number of the first operation that this process has not ended: that of ``besides``, or of an earlier one that runs."""
        with self._lock:
            running = [each.number for each in self._operations if not each.is_over and each is not besides]
        return min([*running, besides.number])

    def has_not_met(self, number: int, message: bytes) -> None:
        """Records an operation that has failed because the processes had not met."""
        self._not_met[number] = message

    def take_not_met(self) -> list[tuple[int, bytes]]:
        """These operations, each with the message for the others, which can be posted now."""
        taken, self._not_met = list(self._not_met.items()), {}
        return taken

    def posted(self, number: int, topic: str) -> None:
        """Records a topic of an operation, which `clear_before` removes."""
        with self._lock:
            self._posted.setdefault(number, []).append(topic)

    def clear_before(self, number: int) -> None:
        """Removes the messages that this process has posted in operations before this number. All processes have ended these."""
        with self._lock:
            topics = [topic for each in self._posted if each < number for topic in self._posted[each]]
            for each in [each for each in self._posted if each < number]:
                del self._posted[each]
        for topic in topics:
            self.coordinator.clear(topic)


_sessions: Final[Fact[Session]] = Fact()
_sessions_lock: Final = ForkableLock()


def session_of(coordinator: Coordinator) -> Session:
    """The session of a coordinator. There is one for each coordinator."""
    with _sessions_lock:
        session = _sessions.get(coordinator)
        if session is None:
            session = _sessions[coordinator] = Session(coordinator)
        return session


class Rounds:
    """One operation of all processes.

    Args:
        session: The session of the coordinator.
        what: The operation in words, such as ``"save run/ckpt-3"``. All processes must do the same.
        timeout: Seconds after which a process that shows no progress counts as lost.

    Attributes:
        rank: The number of this process.
        size: How many there are.
        leads: Whether this is process 0, which decides.
        number: The number of the operation.
        moved_at: When another process has last shown progress, as `time.monotonic` gives it.
    """

    def __init__(self, session: Session, what: str, timeout: float) -> None:
        self._session = session
        self._coordinator = session.coordinator
        self.rank = self._coordinator.rank
        self.size = self._coordinator.size
        self.leads = self.rank == 0
        self._what = what
        self._timeout = timeout
        self._step = 0
        self._ended = False
        self.number = session.begin(self)
        self._reported: dict[str, Any] | None = None
        """The report of another process that failed. All processes get it."""
        self._given_up: list[int] = []
        """The processes that did not answer this one."""
        self._beats = 0
        self._beats_seen: dict[int, bytes | None] = {}
        self.moved_at = time.monotonic()

    def meet(self) -> None:
        """Waits until all processes of this run have come. Called before the first round; only the first operation waits.

        Raises:
            CoordinationError: A process has not come.
        """
        session = self._session
        if session.meeting.run:
            return
        try:
            try:
                session.meeting.hold(self.number, self._timeout, self._lost, partial(session.posted, self.number))
            except MilepostError:
                raise
            except Exception as error:
                raise self._disconnected(error) from error
            for number, message in session.take_not_met():
                self._coordinator.post(f"{session.meeting.run}{number}/0", message)
                session.posted(number, f"{session.meeting.run}{number}/0")
        except BaseException as error:
            self._ended = True
            failure, run = self._failure(error).encode(), session.meeting.heard
            session.has_not_met(self.number, failure)
            if run:  # process 0 has come, and may wait for this process
                with suppress(Exception):  # as in `fail`
                    self._coordinator.post(f"{run}/{self.number}/0", failure)
                    session.posted(self.number, f"{run}/{self.number}/0")
            raise

    def agree(self) -> None:
        """Waits until all processes have called this. Errors are those of `exchange`."""
        self.exchange(Message({}), lambda _: Message({}))

    @property
    def has_begun(self) -> bool:
        """Whether a round has been taken."""
        return self._step > 0

    def exchange(
        self,
        message: Message,
        decide: Callable[[Sequence[Message]], Message],
    ) -> Message:
        """Takes one round.

        Args:
            message: The report of this process.
            decide: Called on process 0 with the reports of all processes, by rank.

        Returns:
            The decision of process 0.

        Raises:
            MilepostError: A process has failed. The error has the same class on all processes.
            CoordinationError: A process did not answer, or it runs another operation.
        """
        if not self.leads:
            self.report(message)
            return self.hear()
        decision = decide([message, *self.collect()])
        self.tell(decision)
        return decision

    @property
    def is_over(self) -> bool:
        """Whether the operation has ended for all processes, or has failed and all know it."""
        return self._ended

    def report(self, message: Message) -> None:
        """Reports to process 0. Every other process calls this, and then `hear`."""
        facts = {**message.facts, "what": self._what, "running": self._session.first_running(self)}
        self._post(self._topic(), message._replace(facts=facts))

    def hear(self) -> Message:
        """Waits for the decision of process 0. Every other process calls this."""
        topic = self._topic()
        decision = Message.decode(self._wait(topic, [0])[0])
        self._step += 1
        with suppress(Exception):  # a message that is not cleared does no harm
            self._coordinator.clear(topic)
        if _FAILED in decision.facts:
            self._ended = True
            raise self._error_in(decision.facts)
        return decision

    def check(self) -> None:
        """Raises the error of process 0 if that has failed. Does not wait."""
        message = self._look(self._topic(), 0, 0)
        decision = None if message is None else Message.decode(message)
        if decision is not None and _FAILED in decision.facts:
            self._ended = True
            raise self._error_in(decision.facts)

    def collect(self) -> list[Message]:
        """Waits for the reports of all other processes. Process 0 calls this, and then `tell`.

        Raises:
            MilepostError: A process has failed. The error has the class of its error.
            CoordinationError: A process did not answer, or it runs another operation.
        """
        messages = self._wait(self._topic(), list(range(1, self.size)))
        reports = [Message.decode(messages.pop(rank)) for rank in range(1, self.size)]  # no message is in memory twice
        if self._step == 0:
            # a save in the background may still need what an earlier operation has posted
            running = [report.facts.get("running", 0) for report in reports]
            with suppress(Exception):  # messages that cannot be cleared are small
                self._session.clear_before(min([self._session.first_running(self), *running]))
        for rank, report in enumerate(reports, 1):
            if _FAILED in report.facts:
                raise self._error_of_other(report.facts)
            if report.facts["what"] != self._what:
                raise CoordinationError(
                    "the processes do different things, and nothing was changed",
                    expected=f"{self._what}, as process 0 does",
                    found=f"{report.facts['what']}, on {self._who(rank)}",
                    remedy="call save() and restore() on all processes in the same order and with the same path; for a checkpoint of "
                    "one process alone, pass CheckpointOptions(process_local=True)",
                )
        return reports

    def failed_since(self) -> MilepostError | None:
        """The error of a process that has failed after its report, such as one that was interrupted. Process 0 calls this.

        Returns:
            The error, which all processes then get; None if no other process says that it failed, or all say that another one is lost.
        """

        failure = poll(
            lambda: self._failure_of_other(besides=CoordinationError.__name__),
            min(self._timeout, _SOON),
            _SHORTEST,
            _LONGEST,
        )
        return None if failure is None else self._error_of_other(failure)

    def tell(self, decision: Message) -> None:
        """Tells all processes the decision. Process 0 calls this."""
        self._post(self._topic(), decision)
        self._step += 1

    def end(self) -> None:
        """Records that all rounds of the operation were taken. A later error does not concern the other processes."""
        self._ended = True

    def conclude(self, outcome: Message) -> None:
        """Tells all processes the outcome. Process 0 calls this. A later error does not concern the other processes."""
        if not self._ended:
            self._ended = True
            with suppress(CoordinationError):  # a process that this message does not reach looks for the index itself
                self.tell(outcome)

    def fail(self, error: BaseException) -> None:
        """Tells the other processes that this one has failed. The caller then raises its error."""
        if self._ended:
            return
        self._ended = True
        failure = self._failure(error)
        with suppress(Exception):  # a process that this message does not reach counts this one as lost
            if not self.leads:  # process 0 may have read the report of this round already
                self._post(self._failures(), failure)
            self._post(self._topic(), failure)

    @contextmanager
    def working(self, progress: Callable[[], object]) -> Iterator[None]:
        """Tells the other processes that this one makes progress, for as long as it does.

        Args:
            progress: Returns a number that grows with the work.
        """
        working = threading.Lock()
        working.acquire()

        def watch() -> None:
            last: object = None
            while not working.acquire(timeout=self._timeout / _BEATS):
                now = progress()
                if now != last:
                    last = now
                    self._beat()

        watching = ThreadCall(watch, "milepost-progress", daemon=True)
        try:
            try:
                watching.start()
                yield
            finally:
                working.release()
        finally:  # Ctrl-C may have come before the line above
            with suppress(RuntimeError):
                working.release()
            watching.give_up()
            watching.wait()

    def _failure(self, error: BaseException) -> Message:
        """What the other processes are told if this one has failed."""
        facts = {_FAILED: facts_of(error), "who": self._who(self.rank), "rank": self.rank, "what": self._what}
        return Message(self._reported or {**facts, "lost": self._given_up})

    def _failure_of_other(self, *, besides: str | None = None) -> dict[str, Any] | None:
        """The facts of another process that has failed, which is looked for on process 0. Does not wait.

        Args:
            besides: A class of errors that do not count.
        """
        for rank in range(1, self.size):
            message = self._look(self._failures(), rank, 0)
            facts = {} if message is None else Message.decode(message).facts
            if _FAILED in facts and facts[_FAILED]["kind"] != besides:
                return facts
        return None

    def _error_of_other(self, facts: dict[str, Any]) -> MilepostError:
        """The error of another process, which all processes get."""
        self._reported = facts
        return self._error_in(facts)

    def _error_in(self, facts: dict[str, Any]) -> MilepostError:
        if facts["lost"]:
            return self._lost(facts["lost"], facts["rank"])
        return error_of(facts[_FAILED], facts["who"])

    def _failures(self) -> str:
        return f"{self._session.meeting.run}{self.number}/failed"

    def _topic(self) -> str:
        return f"{self._session.meeting.run}{self.number}/{self._step}"

    def _who(self, rank: int) -> str:
        return f"process {rank} of {self.size}"

    def _post(self, topic: str, message: Message) -> None:
        try:
            self._coordinator.post(topic, message.encode())
        except Exception as error:
            raise self._disconnected(error) from error
        self._session.posted(self.number, topic)

    def _beat(self) -> None:
        topic = f"{self._session.meeting.run}{self.number}/progress"
        self._beats += 1
        with suppress(Exception):  # a process that this message does not reach counts this one as lost
            self._coordinator.post(topic, str(self._beats).encode())
            if self._beats == 1:
                self._session.posted(self.number, topic)

    def _wait(self, topic: str, ranks: list[int]) -> dict[int, bytes]:
        """Waits until each of these processes has posted a message.

        Raises:
            CoordinationError: A process has posted none, and shows no progress.
        """
        messages: dict[int, bytes] = {}
        longest = self._timeout / _BEATS
        pause = longest
        if self.leads:
            pause, longest = min(_FIRST_PAUSE, longest), min(max(_SOON, self.size / _LOOKS), longest)
        missing, begun, end = ranks, time.monotonic(), time.monotonic() + self._timeout
        while missing:
            for rank in missing:
                left = max(min(pause, end - time.monotonic()), 0)
                message = self._look(topic, rank, left)
                if message is None:
                    break
                messages[rank] = message
            missing = [rank for rank in missing if rank not in messages]
            if missing and self.leads:
                self._beat()
                failure = self._failure_of_other() if time.monotonic() - begun >= pause else None
                if failure is not None:
                    raise self._error_of_other(failure)
            pause = min(2 * pause, longest)
            if missing and time.monotonic() >= end:
                late = {rank: self._look(topic, rank, 0) for rank in missing}
                messages.update((rank, message) for rank, message in late.items() if message is not None)
                missing = [rank for rank in missing if rank not in messages]
                lost = [rank for rank in missing if not self._has_moved(rank)]
                if lost:
                    raise self._lost(lost, self.rank)
                end = time.monotonic() + self._timeout
        return messages

    def _look(self, topic: str, rank: int, timeout: float) -> bytes | None:
        try:
            return self._coordinator.wait(topic, rank, timeout)
        except Exception as error:
            raise self._disconnected(error) from error

    def _has_moved(self, rank: int) -> bool:
        """Whether a process has shown progress since the last call for it."""
        now = self._look(f"{self._session.meeting.run}{self.number}/progress", rank, 0)
        before = self._beats_seen.get(rank)
        self._beats_seen[rank] = now
        if now != before:
            self.moved_at = time.monotonic()
        return now != before

    def _lost(self, ranks: list[int], by: int) -> CoordinationError:
        """The error for processes that did not answer.

        Args:
            ranks: The processes.
            by: The process that gave up.
        """
        others = [rank for rank in ranks if rank != self.rank]
        named = ", ".join(map(str, others[:_MOST_NAMED])) + (" and others" if others[_MOST_NAMED:] else "")
        named = f"process{'es' if others[1:] else ''} {named} of {self.size}" if others else ""
        if by == self.rank:
            self._given_up = ranks
            problem = f"{named} did not answer, and this process gave up"
        elif self.rank not in ranks:
            problem = f"{named} did not answer, and process {by} gave up"
        else:
            this_process = f"this process ({self.rank} of {self.size})"
            problem = f"process {by} gave up, because {this_process}{' and ' if others else ''}{named} did not answer"
        error = CoordinationError(
            problem,
            key=self._what,
            expected=f"an answer within {self._timeout:g} seconds",
            found=f"none on process {by}; the processes are connected by {self._coordinator.library}",
            remedy="check whether the process was killed, hangs or waits for memory or disk. All processes must call save() and restore(); "
            "for a checkpoint of one process alone, pass CheckpointOptions(process_local=True); for slow machines, a larger "
            "CheckpointOptions(process_timeout=seconds)",
        )
        error.is_lost = True
        return error

    def _disconnected(self, error: Exception) -> CoordinationError:
        lost = CoordinationError(
            f"this process cannot reach the others any more: {type(error).__name__}: {error}",
            key=self._what,
            found=f"process {self.rank} of {self.size}, connected by {self._coordinator.library}",
            remedy="check whether process 0 was killed; start all processes again, and they continue from the last checkpoint",
        )
        lost.is_lost = True
        return lost
