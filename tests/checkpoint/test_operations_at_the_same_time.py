"""Saves, restores, reports, assertions and drawings of the same objects in several threads, and one inside another.

A `Gate` makes the moments certain: its state is read in the middle of a save, and set in the middle of a restore.
"""

import signal
import sys
import threading

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, CheckpointOptions, InProgressError, Variable
from milepost.engine import turns

WAIT = 30
HASTY = CheckpointOptions(process_timeout=0.2)


class Gate(milepost.PythonState):
    """Calls a function when its state is read in a save, and another one when it is set in a restore. Each is called once."""

    in_save = None
    in_restore = None

    def serialize(self):
        call, self.in_save = self.in_save, None
        if call is not None:
            call()
        return "state"

    def deserialize(self, value):
        call, self.in_restore = self.in_restore, None
        if call is not None:
            call()


def in_thread(work):
    """Starts a thread. Returns it, and the list that gets the result, or the error."""
    results = []

    def run():
        try:
            results.append(work())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, results


def state(**more):
    gate = Gate()
    return Checkpoint(a_gate=gate, epoch=7, history=[0.5, 0.25], name="run", pair=(1, None), **more), gate


def plain(tree):
    return {name: tree[name] for name in ("epoch", "history", "name", "pair")}


SAVED = {"epoch": 7, "history": [0.5, 0.25], "name": "run", "pair": (1, None)}

LOOKS = {
    "report": lambda checkpoint, status, path: status.report(),
    "assertion": lambda checkpoint, status, path: status.assert_consumed(),
    "text": lambda checkpoint, status, path: repr(status),
    "drawing": lambda checkpoint, status, path: milepost.draw_graph(checkpoint),
    "view": lambda checkpoint, status, path: milepost.TrackableView(checkpoint).descendants(),
    "comparison": lambda checkpoint, status, path: milepost.CheckpointView(path).diff(checkpoint),
}


@pytest.mark.parametrize("where", ["another thread", "the same thread"])
@pytest.mark.parametrize("look", LOOKS)
def test_a_look_beside_a_save_changes_nothing_in_the_file(tmp_path, look, where):
    checkpoint, gate = state()
    path = checkpoint.write(tmp_path / "first")
    status = checkpoint.read(path)
    results = []

    def call():
        if where == "the same thread":
            results.append(LOOKS[look](checkpoint, status, path))
            return
        thread, found = in_thread(lambda: LOOKS[look](checkpoint, status, path))
        thread.join(WAIT)
        results.extend(found)

    gate.in_save = call
    assert plain(milepost.load(checkpoint.write(tmp_path / "second"))) == SAVED
    assert len(results) == 1
    assert not isinstance(results[0], Exception)


def test_a_look_inside_a_restore_of_the_same_thread_does_not_wait_for_it(tmp_path):
    checkpoint, gate = state()
    status = checkpoint.read(checkpoint.write(tmp_path / "first"))
    gate.in_restore = lambda: status.report()
    checkpoint.read(tmp_path / "first").assert_consumed()
    assert gate.in_restore is None


def test_a_restore_waits_for_a_save_of_the_same_objects_through_another_checkpoint(tmp_path):
    inner, gate = state()
    first, second = Checkpoint(inner=inner), Checkpoint(inner=inner)
    saved = second.write(tmp_path / "saved")
    inner.epoch, inner.history = 8, [1.0]
    waiting = []

    def restore_beside():
        waiting.append(in_thread(lambda: second.read(saved)))
        waiting[0][0].join(0.3)
        assert waiting[0][0].is_alive()

    gate.in_save = restore_beside
    path = first.write(tmp_path / "beside")
    assert milepost.load(path)["inner"]["epoch"] == 8
    assert milepost.load(path)["inner"]["history"] == [1.0]
    waiting[0][0].join(WAIT)
    assert (inner.epoch, list(inner.history)) == (7, [0.5, 0.25])


def test_a_save_waits_for_a_restore_of_the_same_objects(tmp_path):
    inner, gate = state()
    first, second = Checkpoint(inner=inner), Checkpoint(inner=inner)
    saved = first.write(tmp_path / "saved")
    inner.epoch, inner.history = 8, [1.0]
    waiting = []

    def save_beside():
        waiting.append(in_thread(lambda: second.write(tmp_path / "beside")))
        waiting[0][0].join(0.3)
        assert waiting[0][0].is_alive()

    gate.in_restore = save_beside
    first.read(saved)
    waiting[0][0].join(WAIT)
    assert plain(milepost.load(tmp_path / "beside")["inner"]) == SAVED


def test_saves_and_restores_of_other_objects_do_not_wait(tmp_path):
    checkpoint, gate = state()
    other = Checkpoint(v=Variable(1.0))
    results = []

    def save_beside():
        thread, found = in_thread(lambda: other.read(other.write(tmp_path / "other")).assert_consumed())
        thread.join(WAIT)
        results.extend(found)

    gate.in_save = save_beside
    checkpoint.write(tmp_path / "one")
    assert len(results) == 1
    assert not isinstance(results[0], Exception)


def test_a_turn_ends_with_its_block_though_something_keeps_what_ends_it():
    turn = turns.Turn(turns.SAVE, "a save", None, turns=[])
    ends = turn.__exit__
    ends(None, None, None)
    assert turn.has_ended


def test_they_go_on_in_the_order_in_which_they_were_asked_for(tmp_path):
    inner, gate = state()
    others = [Checkpoint(inner=inner, gate=Gate()) for _ in range(4)]
    order, threads = [], []

    def ask():
        for number, other in enumerate(others):
            other.gate.in_save = lambda number=number: order.append(number)

            def save(number=number, other=other):
                other.write(tmp_path / str(number))

            before = len(turns._turns)
            threads.append(in_thread(save)[0])
            while len(turns._turns) == before:
                pass

    gate.in_save = ask
    Checkpoint(inner=inner).write(tmp_path / "first")
    for thread in threads:
        thread.join(WAIT)
    assert order == [0, 1, 2, 3]


def test_a_turn_that_ends_a_second_time_takes_no_lock_from_a_waiter():
    turn = turns.Turn(turns.SAVE, "a save", None, turns=(listed := []))

    class EndsTheTurn:
        """The lock of the turn. As soon as a waiter has it, the turn ends a second time."""

        def __init__(self, lock):
            self.lock = lock

        def acquire(self, **limit):
            got = self.lock.acquire(**limit)
            if got:
                turn.end()
            return got

        def release(self):
            self.lock.release()

    begun, may_end = threading.Event(), threading.Event()

    def hold():
        with turn:
            turn._running = EndsTheTurn(turn._running)
            begun.set()
            assert may_end.wait(WAIT)

    holding, _ = in_thread(hold)
    assert begun.wait(WAIT)

    def wait():
        with turns.Turn(turns.SAVE, "another save", None, turns=listed):
            return "its turn"

    waiting, results = in_thread(wait)
    while len(listed) < 2:
        pass
    may_end.set()
    for thread in (holding, waiting):
        thread.join(WAIT)
    assert results == ["its turn"]


@pytest.mark.parametrize("what", ["save", "restore"])
def test_a_wait_ends_in_an_error_that_names_what_is_running(tmp_path, what):
    inner, gate = state()
    other = Checkpoint(inner=inner)
    saved = other.write(tmp_path / "saved")
    results = []

    def hold():
        work = {"save": lambda: other.write(tmp_path / "late", HASTY), "restore": lambda: other.read(saved, HASTY)}
        thread, found = in_thread(work[what])
        thread.join(WAIT)
        results.extend(found)

    gate.in_save = hold
    Checkpoint(inner=inner).write(tmp_path / "slow")
    assert isinstance(results[0], InProgressError)
    assert f"the save of {tmp_path / 'slow'}" in str(results[0])
    assert not (tmp_path / "late.index").exists()
    other.read(saved).assert_consumed()


def test_a_wait_for_another_thread_that_saves_through_the_same_checkpoint_has_a_limit_too(tmp_path):
    checkpoint, gate = state()
    results = []

    def hold():
        thread, found = in_thread(lambda: checkpoint.write(tmp_path / "late", HASTY))
        thread.join(WAIT)
        results.extend(found)

    gate.in_save = hold
    checkpoint.write(tmp_path / "slow")
    assert isinstance(results[0], InProgressError)
    assert f"the save of {tmp_path / 'slow'}" in str(results[0])
    assert not (tmp_path / "late.index").exists()
    checkpoint.write(tmp_path / "late", HASTY)


@pytest.mark.parametrize("inner_call", ["save", "restore"])
@pytest.mark.parametrize("outer_call", ["save", "restore"])
def test_one_inside_another_of_the_same_objects_is_refused_at_once(tmp_path, outer_call, inner_call):
    inner, gate = state()
    outer, other = Checkpoint(inner=inner), Checkpoint(inner=inner)
    saved = outer.write(tmp_path / "saved")
    errors = []

    def begin():
        with pytest.raises(InProgressError, match="inside") as caught:
            other.read(saved) if inner_call == "restore" else other.write(tmp_path / "inner")
        errors.append(caught.value)

    if outer_call == "save":
        gate.in_save = begin
        outer.write(tmp_path / "outer")
        assert plain(milepost.load(tmp_path / "outer")["inner"]) == SAVED
    else:
        gate.in_restore = begin
        outer.read(saved).assert_consumed()
    assert len(errors) == 1
    other.read(other.write(tmp_path / "after")).assert_consumed()


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="this system has no signal for programs")
def test_a_save_in_a_signal_handler_that_comes_during_a_save_is_refused(tmp_path):
    checkpoint, gate = state()
    errors = []

    def handler(*_):
        try:
            checkpoint.write(tmp_path / "handled")
        except InProgressError as error:
            errors.append(error)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        gate.in_save = lambda: signal.raise_signal(signal.SIGUSR1)
        checkpoint.write(tmp_path / "one")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(errors) == 1
    assert plain(milepost.load(tmp_path / "one")) == SAVED


def test_a_write_callback_may_save_the_same_objects(tmp_path):
    checkpoint, _ = state()
    other = Checkpoint(inner=checkpoint)
    options = CheckpointOptions(experimental_write_callbacks=[lambda path: other.write(path + "-copy")])
    path = checkpoint.write(tmp_path / "one", options)
    assert plain(milepost.load(path + "-copy")["inner"]) == SAVED


def test_the_thread_that_copies_for_an_asynchronous_save_is_waited_for_and_its_disk_is_not(tmp_path):
    go = threading.Event()

    def progress(_):
        go.wait(WAIT)

    inner, _ = state()
    slow = CheckpointOptions(enable_async=True, progress=progress)
    first, second = Checkpoint(inner=inner), Checkpoint(inner=inner)
    first.write(tmp_path / "slow", slow)
    second.read(second.write(tmp_path / "other", HASTY), HASTY).assert_consumed()
    go.set()
    first.sync()
    assert plain(milepost.load(tmp_path / "slow")["inner"]) == SAVED


def test_a_deferred_value_that_two_threads_deliver_arrives_once(tmp_path):
    """What the first thread does with the value after that is not undone by the second one, which looked at the same moment."""
    first, _ = state(late=Variable([1.0, 2.0]), other=Variable(1.0))
    path = first.write(tmp_path / "saved")
    gate = Gate()
    fresh = Checkpoint(a_gate=Gate(), epoch=0, history=[], name="", pair=(0, 0))
    status = fresh.read(path)
    late = Variable([0.0, 0.0])
    object.__setattr__(fresh, "late", late)  # without an announcement, so that a report finds it
    looks = [in_thread(status.report) for _ in range(4)]
    for thread, _ in looks:
        thread.join(WAIT)
    late.assign([5.0, 5.0])
    assert [report.counts()["matched"] for _, (report,) in looks] == [looks[0][1][0].counts()["matched"]] * 4
    status.report()
    assert late.numpy().tolist() == [5.0, 5.0]
    assert gate.in_restore is None


def test_a_thread_waits_for_another_one_that_delivers_the_same_value(tmp_path):
    saved = Checkpoint(inner=milepost.Module())
    saved.inner.gate = Gate()
    path = saved.write(tmp_path / "saved")
    fresh = Checkpoint(inner=milepost.Module())
    fresh.read(path)
    calls, second = [], []
    gate = Gate()

    def assign():
        fresh.inner.gate = gate

    def begin_another():
        calls.append("taken")
        second.append(in_thread(assign)[0])
        second[0].join(0.3)
        assert second[0].is_alive()

    gate.in_restore = begin_another
    assign()
    second[0].join(WAIT)
    gate.in_restore = lambda: calls.append("taken again")
    assert calls == ["taken"]


@pytest.fixture
def many_switches():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_any_mixture_keeps_files_and_objects_right(tmp_path, many_switches):
    numbers = [float(n + 1) for n in range(200)]
    inner = Checkpoint(history=list(numbers), names=tuple(f"n{n}" for n in range(20)), v=Variable(np.ones(3)))
    checkpoints = [Checkpoint(inner=inner) for _ in range(3)]
    saved = checkpoints[0].write(tmp_path / "saved")
    status = checkpoints[0].read(saved)
    stop, problems = threading.Event(), []

    def right(tree):
        return tree["history"] == numbers and tree["names"] == tuple(f"n{n}" for n in range(20))

    def saves():
        trees = [milepost.load(checkpoints[1].write(tmp_path / f"a{number}"))["inner"] for number in range(12)]
        problems.extend(tree for tree in trees if not right(tree))

    def restores():
        for number in range(12):
            checkpoints[2].read(saved).expect_partial()
            if list(inner.history) != numbers:
                problems.append(f"restore {number}")

    def looks():
        while not stop.is_set():
            status.assert_consumed()
            milepost.draw_graph(checkpoints[1])

    looking, found = in_thread(looks)
    others = [in_thread(saves), in_thread(restores)]
    for thread, _ in others:
        thread.join(120)
    stop.set()
    looking.join(WAIT)
    assert problems == []
    assert [*found, *others[0][1], *others[1][1]] == [None, None, None]
