"""Rounds of messages, between threads that stand for processes."""

from __future__ import annotations

import threading
import time

import pytest

from milepost.coordination import FileCoordinator
from milepost.distributed.rounds import Message, Rounds, Session
from milepost.errors import CoordinationError, MismatchError, StorageError
from tests import interrupts


def together(work, directory, size=3, timeout=5.0, sessions=None, late=()):
    """What ``work(rounds)`` returns or raises for each of several processes, and after how many seconds.

    Args:
        work: What each does in one operation.
        directory: Of the messages.
        size: How many processes.
        timeout: Their time limit, in seconds.
        sessions: Those of the processes; new ones if they are not given.
        late: The processes that come half a second after the others.
    """
    results = [None] * size
    sessions = sessions or sessions_in(directory, size)

    def run(rank):
        time.sleep(0.5 * (rank in late))
        rounds = Rounds(sessions[rank], "test", timeout)
        begun = time.monotonic()
        try:
            rounds.meet()
            results[rank] = work(rounds), time.monotonic() - begun
        except Exception as error:
            rounds.fail(error)
            results[rank] = error, time.monotonic() - begun

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def sessions_in(directory, size=3):
    return [Session(FileCoordinator(directory, rank, size)) for rank in range(size)]


def exchanged(rounds):
    return rounds.exchange(
        Message({"rank": rounds.rank}), lambda reports: Message({"all": [each.facts["rank"] for each in reports]})
    )


def test_all_get_what_the_first_decides_from_all_reports(tmp_path):
    assert [result.facts["all"] for result, _ in together(exchanged, tmp_path)] == [[0, 1, 2]] * 3


def test_bytes_are_transported_unchanged(tmp_path):
    data = bytes(range(256)) * 1000

    def work(rounds):
        return rounds.exchange(Message({}, data), lambda reports: Message({}, reports[2].data)).data

    assert [result for result, _ in together(work, tmp_path)] == [data] * 3


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_failure_of_one_is_one_of_all_and_of_the_same_class(tmp_path, failing):
    def work(rounds):
        exchanged(rounds)
        if rounds.rank == failing:
            raise StorageError("the disk is full", errno=28, file="data")
        return exchanged(rounds)

    results = [result for result, _ in together(work, tmp_path)]
    assert all(isinstance(each, StorageError) and each.errno == 28 and each.file == "data" for each in results)
    assert all(
        each.problem == f"process {failing} of 3 failed: the disk is full"
        for each in results
        if each is not results[failing]
    )


def test_what_the_first_refuses_all_refuse(tmp_path):
    def refuse(_):
        raise MismatchError("these do not fit")

    results = [result for result, _ in together(lambda rounds: rounds.exchange(Message({}), refuse), tmp_path)]
    assert all(isinstance(each, MismatchError) for each in results)


def test_an_error_of_no_class_of_milepost_becomes_one(tmp_path):
    def work(rounds):
        if rounds.rank == 1:
            raise ZeroDivisionError("division by zero")
        return exchanged(rounds)

    results = [result for result, _ in together(work, tmp_path)]
    assert isinstance(results[0], CoordinationError)
    assert isinstance(results[2], CoordinationError)
    assert "process 1 of 3 failed: ZeroDivisionError: division by zero" in str(results[0])


def test_the_first_learns_which_process_was_interrupted_after_its_report(tmp_path):
    collected = threading.Event()

    def work(rounds):
        if rounds.leads:
            rounds.collect()
            collected.set()
            raise rounds.failed_since()
        rounds.report(Message({}))
        if rounds.rank == 1:
            assert collected.wait(60)
            rounds.fail(KeyboardInterrupt())
            return None
        return rounds.hear()

    results = [result for result, _ in together(work, tmp_path)]
    expected = "process 1 of 3 failed: it was interrupted"
    assert [results[0].problem, results[1], results[2].problem] == [expected, None, expected]


@pytest.mark.parametrize("rank", [1, 2])
def test_who_is_interrupted_after_its_report_is_named_while_the_first_waits_for_another(tmp_path, rank):
    sessions = sessions_in(tmp_path)
    first = sessions[0].coordinator
    wait, read, learned = first.wait, threading.Event(), threading.Event()

    def seen(topic, other, timeout):
        found = wait(topic, other, timeout)
        if topic.endswith("/1") and (found is not None or other != rank):
            read.set()  # its report, or process 0 does not come to it before it has that of the other
        return found

    first.wait = seen

    def work(rounds):
        exchanged(rounds)
        if rounds.rank == rank:
            rounds.report(Message({}))
            assert read.wait(60)
            rounds.fail(KeyboardInterrupt())
            return None
        if not rounds.leads:
            assert learned.wait(60)
            return exchanged(rounds)
        try:
            return exchanged(rounds)
        finally:
            learned.set()

    results = together(work, tmp_path, timeout=120.0, sessions=sessions)
    for other in {0, 1, 2} - {rank}:
        assert results[other][0].problem == f"process {rank} of 3 failed: it was interrupted"


@pytest.mark.parametrize("rank", [0, 1])
def test_who_is_interrupted_before_the_processes_have_met_is_named(tmp_path, rank):
    sessions = sessions_in(tmp_path, 3)
    interrupted = sessions[rank].coordinator
    wait = interrupted.wait

    def interrupt(topic, other, timeout):
        if topic.startswith("join" if rank == 0 else "welcome"):
            raise KeyboardInterrupt
        return wait(topic, other, timeout)

    results = {}

    def run(number):
        time.sleep(number / 3)
        rounds = Rounds(sessions[number], "test", 600)  # who would wait for this limit does not learn of the interrupt
        try:
            if number == rank:
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(interrupted, "wait", interrupt)
                    with pytest.raises(KeyboardInterrupt):
                        rounds.meet()
                rounds = Rounds(sessions[number], "next", 20)
            rounds.meet()
            exchanged(rounds)
        except CoordinationError as error:
            rounds.fail(error)
            results[number] = error.problem

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(3)]
    for thread in threads:
        thread.start()
    for number in {0, 1, 2} - {rank}:
        threads[number].join()
        assert results[number] == f"process {rank} of 3 failed: it was interrupted"


def test_a_lost_process_is_named_to_all_by_who_gave_up(tmp_path):
    gave_up = threading.Event()

    def work(rounds):
        assert rounds.rank != 1 or gave_up.wait(60)
        try:
            return exchanged(rounds)
        finally:
            if rounds.leads:
                gave_up.set()

    results = [result.problem for result, _ in together(work, tmp_path, timeout=1.0)]
    assert results == [
        "process 1 of 3 did not answer, and this process gave up",
        "process 0 gave up, because this process (1 of 3) did not answer",
        "process 1 of 3 did not answer, and process 0 gave up",
    ]


@pytest.mark.parametrize("absent", [0, 1])
def test_who_does_not_come_is_named_after_the_time_limit(tmp_path, absent):
    results = together(lambda rounds: None if rounds.rank == absent else exchanged(rounds), tmp_path, timeout=0.5)
    for rank, (result, seconds) in enumerate(results):
        if rank != absent:
            assert f"process {absent} of 3 did not answer" in str(result)
            assert seconds > 0.3


def test_who_makes_progress_is_waited_for(tmp_path):
    def work(rounds):
        done = []
        if rounds.rank == 1:
            with rounds.working(lambda: time.monotonic()):
                time.sleep(3)
        done.append(exchanged(rounds))
        return len(done)

    assert [result for result, _ in together(work, tmp_path, timeout=1.0)] == [1, 1, 1]


def test_who_works_without_progress_is_not_waited_for(tmp_path):
    gave_up = threading.Event()

    def work(rounds):
        if rounds.rank == 1:
            with rounds.working(lambda: 7):
                assert gave_up.wait(60)
            return None
        try:
            return exchanged(rounds)
        finally:
            if rounds.leads:
                gave_up.set()

    results = together(work, tmp_path, timeout=1.0)
    assert all("process 1 of 3 did not answer" in str(results[rank][0]) for rank in (0, 2))


def test_the_thread_that_tells_of_progress_ends_after_an_interrupt():
    """Ctrl-C at every line of what makes it and waits for it."""

    def make(directory):
        return Rounds(sessions_in(directory, 1)[0], "test", 300.0)

    def operate(rounds):
        with rounds.working(lambda: 7):
            pass

    assert interrupts.found(make, operate, operate, returns=True) == []


def test_different_operations_do_not_mix(tmp_path):
    def work(rounds):
        rounds._what = f"save {rounds.rank // 2}"
        return exchanged(rounds)

    results = [result for result, _ in together(work, tmp_path)]
    assert all("the processes do different things" in str(each) for each in results)


@pytest.mark.parametrize("late", [0, 2])
def test_messages_of_a_run_that_was_killed_are_not_heard(tmp_path, late):
    """A killed run leaves its last messages, and `torchrun` gives the next run the same store."""
    for run in ("old", "new"):
        results = together(
            lambda rounds, run=run: rounds.exchange(
                Message({"run": run}), lambda reports: Message({"runs": [each.facts["run"] for each in reports]})
            ),
            tmp_path,
            late=[late],
        )
        assert [result.facts["runs"] for result, _ in results] == [[run] * 3] * 3


def test_who_was_too_late_to_meet_the_others_hears_it_and_takes_part_in_the_next_operation(tmp_path):
    sessions = sessions_in(tmp_path, 2)
    seen = {0: [], 1: []}

    def run(rank, seconds):
        time.sleep(seconds)
        for _ in range(2):
            rounds = Rounds(sessions[rank], "test", 2)
            try:
                rounds.meet()
                seen[rank].append(exchanged(rounds).facts["all"])
            except CoordinationError as error:
                seen[rank].append(error.problem)

    threads = [threading.Thread(target=run, args=(rank, 2.5 * rank)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    absent = "process 1 of 2 did not answer, and this process gave up"
    late = "process 0 gave up, because this process (1 of 2) did not answer"
    assert seen == {0: [absent, [0, 1]], 1: [late, [0, 1]]}


def test_who_came_hears_who_did_not(tmp_path):
    sessions = sessions_in(tmp_path, 3)
    seen = [""] * 2

    def run(rank):
        try:
            Rounds(sessions[rank], "test", 0.3).meet()
        except CoordinationError as error:
            seen[rank] = error.problem

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [f"process 2 of 3 did not answer, and {who} gave up" for who in ("this process", "process 0")]


def test_messages_of_earlier_operations_are_removed(tmp_path):
    coordinators = [FileCoordinator(tmp_path, rank, 2) for rank in range(2)]
    sessions = [Session(coordinator) for coordinator in coordinators]

    def run(rank):
        for _ in range(20):
            rounds = Rounds(sessions[rank], "test", 10)
            exchanged(rounds)
            exchanged(rounds)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(tmp_path.iterdir())) <= 4
