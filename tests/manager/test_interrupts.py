"""Ctrl-C at every line of what a manager does: the run goes on, and has what it was told that it has."""

import numpy as np
import pytest

from milepost import Checkpoint, CheckpointManager, CheckpointOptions, Variable
from milepost.errors import MilepostError
from tests import interrupts

pytestmark = pytest.mark.filterwarnings("ignore::milepost.errors.MilepostWarning")
MOST = 100
"""How many lines each test interrupts, chosen by a seed."""


class Run:
    """A run with the checkpoints 1, 2 and 3, whose values are 1, 2 and 3."""

    def __init__(self, directory, keep=None, **options):
        self.directory, self.keep = directory, keep
        self.checkpoint, self.manager = self.open(CheckpointOptions(**options))
        for step in (1, 2, 3):
            self.save(step)
        self.manager.sync()

    def open(self, options=None):
        """A new manager of the same directory, as in another process."""
        checkpoint = Checkpoint(v=Variable(np.zeros(50)))
        return checkpoint, CheckpointManager(checkpoint, self.directory, self.keep, options=options)

    def save(self, step):
        self.checkpoint.v.assign(np.full(50, float(step)))
        return self.manager.save(step)


def goes_on(run):
    """The run saves, in this thread and in another one, and what its manager lists is whole: now, and for the next process.

    Returns:
        The numbers that are listed.
    """
    interrupts.in_other_thread(lambda: run.save(98))
    run.save(99)
    run.manager.sync()
    listed = run.manager.steps
    assert run.manager.latest_step == listed[-1] == 99
    checkpoint, again = run.open()
    assert again.restore_or_initialize() == f"{run.directory}/ckpt-99"
    assert not again.skipped
    assert set(again.steps) <= set(listed)
    for step in again.steps:
        again.restore(step).assert_consumed()
        assert np.asarray(checkpoint.v).tolist() == [float(step)] * 50
    left = {
        name for name in interrupts.names_in(run.directory) if name.startswith("ckpt-") and not name.endswith(".pinned")
    }
    assert left == {f"ckpt-{step}.{end}" for step in again.steps for end in ("index", "data-00000-of-00001")}, left
    return again.steps


@pytest.mark.parametrize("keep", [None, 2])
@pytest.mark.parametrize("is_async", [False, True])
def test_save(keep, is_async):
    def make(directory):
        return Run(directory, keep, enable_async=is_async)

    def operate(run):
        run.save(4)
        if is_async:
            run.manager.close()

    def check(run):
        steps = goes_on(run)
        if keep is None:
            assert [each for each in steps if each != 4] == [1, 2, 3, 98, 99]
        else:
            assert steps == [98, 99]

    assert interrupts.found(make, operate, check, most=MOST) == []


def test_restore_or_initialize():
    def operate(run):
        run.manager.restore_or_initialize()

    def check(run):
        interrupts.in_other_thread(run.manager.restore_or_initialize)
        assert np.asarray(run.checkpoint.v).tolist() == [3.0] * 50
        assert goes_on(run) == [1, 2, 3, 98, 99]

    assert interrupts.found(Run, operate, check, most=MOST) == []


def test_a_new_manager():
    """Also one that has to complete what an earlier run has left."""

    def make(directory):
        run = Run(directory)
        for step in (1, 2):
            open(f"{directory}/ckpt-{step}.milepost-{step:016}-removal-{0:016}.tmp", "x").close()
        interrupts.os.remove(f"{directory}/ckpt-1.index")
        return run

    def operate(run):
        run.checkpoint, run.manager = run.open()

    def check(run):
        run.checkpoint, run.manager = run.open()
        run.manager.restore_or_initialize()
        assert goes_on(run) == [2, 3, 98, 99]

    assert interrupts.found(make, operate, check, most=MOST) == []


def test_pin():
    def make(directory):
        return Run(directory, keep=2)

    def operate(run):
        run.manager.pin(2)
        run.manager.unpin(3)

    def check(run):
        is_pinned = 2 in run.manager.pinned
        assert [each for each in goes_on(run) if each < 98] == [2] * is_pinned
        if is_pinned:
            run.manager.unpin(2)
            run.save(100)
            assert run.manager.steps == [99, 100]

    assert interrupts.found(make, operate, check, most=MOST) == []


@pytest.mark.parametrize("then", ["nothing", "pin", "delete"])
def test_delete(then):
    """The checkpoint is whole or on no list, whatever the program does next."""

    def operate(run):
        run.manager.delete(2)

    def check(run):
        try:
            if then == "delete":
                run.manager.delete(2)
            if then == "pin":
                run.manager.pin(2)
                run.manager.restore(2)
                run.manager.unpin(2)
        except MilepostError:
            assert 2 not in run.manager.steps
        assert [each for each in goes_on(run) if each != 2] == [1, 3, 98, 99]

    assert interrupts.found(Run, operate, check, most=MOST) == []
