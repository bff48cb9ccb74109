"""Ctrl-C at every line of a save, of a restore and of the assignment of an object that is made later: the program goes on."""

import threading

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, CheckpointOptions, Variable, latest_checkpoint, load_checkpoint
from milepost.bundle.parallel import for_each
from milepost.restoring import restore as engine_restore
from milepost.saving.background import BackgroundWriter
from milepost.saving.snapshot import SnapshotMemory
from tests import interrupts

ASYNC = CheckpointOptions(enable_async=True)
SIZE = 20_000
MOST = 120
"""How many of the lines are tried, chosen by a seed."""

pytestmark = pytest.mark.filterwarnings("ignore::milepost.errors.UnrestoredWarning")


def objects(value):
    return Checkpoint(v=Variable(np.full(SIZE, value)), n=value, inner=Checkpoint(w=Variable(value)))


def saved(path):
    """The one value that a checkpoint has in all its places."""
    reader = load_checkpoint(path)
    reader.verify()
    values = {float(each) for key in ("v", "inner/w") for each in np.unique(milepost.load_variable(path, key))}
    assert len(values) == 1
    return values.pop()


class TestSave:
    """What was saved is there, the next saves are right, and the newest is the latest."""

    def make(self, directory):
        checkpoint = objects(1.0)
        checkpoint.save(f"{directory}/run")
        self.fill(checkpoint, 2.0)
        return checkpoint, directory

    def fill(self, checkpoint, value):
        checkpoint.v.assign(np.full(SIZE, value))
        checkpoint.inner.w.assign(value)

    def check(self, setting):
        checkpoint, directory = setting
        checkpoint.sync()
        latest = latest_checkpoint(directory)
        assert saved(f"{directory}/run-1") == 1.0
        assert saved(latest) == float(latest[-1])
        self.fill(checkpoint, 3.0)
        third = interrupts.in_other_thread(lambda: checkpoint.save(f"{directory}/run"))
        assert (saved(third), latest_checkpoint(directory)) == (3.0, third)
        self.fill(checkpoint, 4.0)
        fourth = checkpoint.save(f"{directory}/run", ASYNC)
        self.fill(checkpoint, 5.0)
        checkpoint.sync()
        assert (saved(fourth), latest_checkpoint(directory)) == (4.0, fourth)
        number = int(fourth.rpartition("-")[2])
        assert number == int(checkpoint.save_counter) in (3, 4)
        wanted = {f"run-{n}{end}" for n in range(1, number + 1) for end in (".index", ".data-00000-of-00001")}
        assert set(interrupts.names_in(directory)) <= {"checkpoint", *wanted}

    def test_synchronous(self):
        def operate(setting):
            setting[0].save(f"{setting[1]}/run")

        assert interrupts.found(self.make, operate, self.check, more=20, most=MOST) == []

    def test_asynchronous(self):
        def operate(setting):
            setting[0].save(f"{setting[1]}/run", ASYNC)
            setting[0].sync()

        assert interrupts.found(self.make, operate, self.check, more=20, most=MOST) == []


class TestRestore:
    """A restore is whole or has changed nothing, and what is made later gets its values."""

    def make(self, directory):
        checkpoint = objects(1.0)
        other = objects(2.0)
        other.later = Variable(np.ones(3))
        other.list = [Variable(1.0)]
        other.write(f"{directory}/saved")
        return checkpoint, f"{directory}/saved"

    def operate(self, setting):
        setting[0].read(setting[1])

    def check(self, setting):
        checkpoint, path = setting
        present = {float(checkpoint.v.numpy()[0]), float(checkpoint.n), float(checkpoint.inner.w.numpy())}
        assert present in ({1.0}, {2.0})
        checkpoint.later = Variable(np.zeros(3))
        assert checkpoint.later.numpy()[0] in ((0.0, 1.0) if 2.0 in present else (0.0,))
        interrupts.in_other_thread(lambda: checkpoint.read(path))
        checkpoint.list = [Variable(0.0)]
        assert (checkpoint.v.numpy()[0], checkpoint.later.numpy()[0], checkpoint.list[0].numpy()) == (2.0, 1.0, 1.0)
        checkpoint.write(f"{path}-again")
        assert saved(f"{path}-again") == 2.0

    def test_of_objects(self):
        assert interrupts.found(self.make, self.operate, self.check, more=20, most=MOST) == []

    def test_of_an_object_that_is_made_later(self):
        def make(directory):
            checkpoint, path = self.make(directory)
            checkpoint.read(path)
            return checkpoint, path

        def operate(setting):
            setting[0].later = Variable(np.zeros(3))
            setting[0].list = [Variable(0.0)]

        def check(setting):
            checkpoint, path = setting
            if not hasattr(checkpoint, "later"):
                checkpoint.later = Variable(np.zeros(3))
            if not hasattr(checkpoint, "list"):
                checkpoint.list = [Variable(0.0)]
            assert (checkpoint.later.numpy()[0], checkpoint.list[0].numpy()) == (1.0, 1.0)
            interrupts.in_other_thread(lambda: checkpoint.write(f"{path}-again"))
            assert milepost.load_variable(f"{path}-again", "later")[0] == 1.0

        assert interrupts.found(make, operate, check, more=20, most=MOST) == []

    def test_keeps_what_an_older_restore_deferred(self, tmp_path):
        """A restore that fails after it has deferred a value supersedes nothing."""
        for name, value in (("first", 1.0), ("second", 2.0)):
            Checkpoint(v=Variable(value), later=Variable(value)).write(tmp_path / name)
        checkpoint = Checkpoint(v=Variable(0.0))
        checkpoint.read(tmp_path / "first")
        real = engine_restore.defer

        def defer(*arguments):
            real(*arguments)
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine_restore, "defer", defer)
            with pytest.raises(KeyboardInterrupt):
                checkpoint.read(tmp_path / "second")
        checkpoint.later = Variable(0.0)
        assert (checkpoint.v.numpy(), checkpoint.later.numpy()) == (1.0, 1.0)


class TestBackgroundWriter:
    """The next job runs, and whoever waits gets an end."""

    def test_submit_and_wait(self):
        def operate(setting):
            writer, done = setting
            with writer.exclusive():
                writer.submit(lambda: done.append("first"))
            writer.wait()

        def check(setting):
            writer, done = setting
            interrupts.in_other_thread(writer.wait)
            assert done in ([], ["first"])

            def again():
                with writer.exclusive():
                    writer.submit(lambda: done.append("second"))
                writer.wait()

            interrupts.in_other_thread(again)
            assert done[-1] == "second"
            assert not writer.is_running

        assert interrupts.found(lambda _: (BackgroundWriter(), []), operate, check, returns=True) == []

    def test_an_error_is_raised_until_somebody_has_got_it(self):
        def fail():
            raise ValueError("failed")

        def operate(setting):
            writer, told = setting
            try:
                writer.submit(fail)
                setting.append("begun")
                writer.wait()
            except ValueError as error:
                told.append(error)
            except KeyboardInterrupt as interrupt:
                if isinstance(interrupt.__context__, ValueError):  # its traceback has the error
                    told.append(interrupt.__context__)
                raise

        def check(setting):
            writer, told = setting[:2]
            try:
                writer.wait()
            except ValueError as error:
                told.append(error)
            assert told or "begun" not in setting
            writer.wait()

        assert interrupts.found(lambda _: [BackgroundWriter(), []], operate, check) == []


def test_a_snapshot():
    """The next one has the values of its moment, and no thread copies any more."""

    def make(_):
        return SnapshotMemory(), np.ones(1 << 21)

    def check(setting):
        memory, array = setting
        array[:] = 2.0
        (copied,) = memory.copy([array])
        array[:] = 3.0
        assert (copied == 2.0).all()

    assert (
        interrupts.found(make, lambda setting: setting[0].copy([setting[1]] * 3), check, most=MOST, returns=True) == []
    )


def test_a_transfer_on_several_threads():
    """When it has ended, no thread works for it."""

    def operate(setting):
        for_each(lambda _: setting.append(threading.active_count()), range(20), threads=3)

    def check(setting):
        count = len(setting)
        interrupts.in_other_thread(lambda: for_each(lambda _: None, range(20), threads=3))
        assert len(setting) == count

    assert interrupts.found(lambda _: [], operate, check, returns=True, more=40) == []
