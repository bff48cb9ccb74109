"""The garbage collector is as it was after a save and a restore, and runs where it should."""

import gc
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from milepost import Checkpoint, MismatchError, PythonState, Variable, collector
from milepost.collector import collection_paused
from tests import interrupts


@pytest.fixture(autouse=True)
def _as_it_was():
    enabled = gc.isenabled()
    yield
    (gc.enable if enabled else gc.disable)()


class Looks(PythonState):
    """Notes whether collections may run while it is saved and restored."""

    def __init__(self):
        self.seen = []

    def serialize(self):
        return "state"

    def deserialize(self, string_value):
        self.seen.append(gc.isenabled())


@pytest.mark.parametrize("enabled", [True, False])
def test_a_pause_ends_as_it_began(enabled):
    (gc.enable if enabled else gc.disable)()
    with collection_paused():
        assert not gc.isenabled()
        with collection_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled() is enabled


def test_a_pause_ends_with_an_error_too():
    gc.enable()
    with pytest.raises(ZeroDivisionError), collection_paused():
        raise ZeroDivisionError
    assert gc.isenabled()


def test_a_pause_whose_end_was_interrupted_ends_with_its_object():
    """Ctrl-C may come when the block has ended, and before anything is enabled."""
    gc.enable()
    pause = collection_paused()
    pause.__enter__()
    assert not gc.isenabled()
    del pause
    assert gc.isenabled()


def paused_once():
    with collection_paused():
        pass


def ends_an_object(frame):
    """Python prints what is raised here, and goes on."""
    return frame is not None and (frame.f_code.co_name == "__del__" or ends_an_object(frame.f_back))


def interrupted_at(count, run):
    """Raises KeyboardInterrupt before instruction number ``count`` of the pause. Returns whether there is such an instruction."""
    left = count

    def trace(frame, event, _):
        nonlocal left
        if frame.f_code.co_filename != collector.__file__ or ends_an_object(frame):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_a_pause_that_is_interrupted_at_any_instruction_ends():
    gc.enable()
    count = 1
    while interrupted_at(count, paused_once):
        assert gc.isenabled(), f"interrupted at instruction {count}"
        assert not collector._inside
        assert is_free(collector._lock), f"interrupted at instruction {count}"
        count += 1
    assert count > 30


def is_free(lock):
    """Whether another thread can take the lock."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lock.acquire, timeout=10).result() and (pool.submit(lock.release).result() or True)


def test_a_pause_that_outlives_the_names_of_its_module_prints_nothing(monkeypatch):
    """When the interpreter ends, decorated functions may go after the names of modules."""
    printed = []
    monkeypatch.setattr(sys, "unraisablehook", printed.append)
    pause = collection_paused()
    monkeypatch.setattr("milepost.collector._inside", None)
    del pause
    assert printed == []


def test_a_pause_that_is_ended_twice_ends_no_other():
    gc.enable()
    with collection_paused():
        with collection_paused() as inner:
            inner.end()
            inner.end()
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


@pytest.mark.parametrize("enabled", [True, False])
def test_saving_and_restoring_leave_the_collector_as_it_was(tmp_path, enabled):
    (gc.enable if enabled else gc.disable)()
    live = Checkpoint(v=Variable([1.0]), looks=Looks())
    path = live.write(str(tmp_path / "ckpt"))
    assert gc.isenabled() is enabled
    live.read(path).assert_consumed()
    assert gc.isenabled() is enabled
    assert live.looks.seen == [enabled]


def test_a_restore_that_fails_leaves_the_collector_on(tmp_path):
    gc.enable()
    path = Checkpoint(v=Variable([1.0])).write(str(tmp_path / "ckpt"))
    with pytest.raises(MismatchError):
        Checkpoint(v=Variable([1.0, 2.0])).read(path)
    assert gc.isenabled()


def test_no_other_thread_waits_while_the_traceback_of_an_interrupt_is_kept():
    """As a notebook keeps it. Ctrl-C at every line of a pause."""

    def pause(_=None):
        with collection_paused():
            pass

    def check(_):
        interrupts.in_other_thread(pause, 2.0)

    assert interrupts.found(str, pause, check, returns=True, is_kept=True) == []
