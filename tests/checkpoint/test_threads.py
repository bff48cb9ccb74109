"""Threads that share one checkpoint, a current directory that changes, and workers that are forked during a save."""

import _thread
import itertools
import os
import signal
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest

from milepost import (
    Checkpoint,
    CheckpointManager,
    CheckpointOptions,
    CheckpointReader,
    Variable,
    latest_checkpoint,
    load_checkpoint,
)
from milepost.bundle import open_bundle
from milepost.errors import MilepostError, StorageError
from milepost.storage import LocalStorage
from milepost.storage.default import DEFAULT_STORAGE
from tests.systems import needs_fork

ASYNC = CheckpointOptions(enable_async=True)


def run_in_threads(count, work):
    failures = []

    def run(number):
        try:
            work(number)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def saved(path):
    reader = CheckpointReader(path)
    reader.verify()
    return float(reader.get_tensor("v/.ATTRIBUTES/VARIABLE_VALUE")[0])


@pytest.mark.parametrize("options", [CheckpointOptions(), ASYNC], ids=["sync", "async"])
class TestThreadsThatShareACheckpoint:
    def test_take_different_numbers(self, tmp_path, options):
        """Each save is a checkpoint of its own, whole, with the number that is in it."""
        checkpoint = Checkpoint(v=Variable(np.ones(1000)))
        paths = []
        run_in_threads(4, lambda _: paths.extend(checkpoint.save(str(tmp_path / "ckpt"), options) for _ in range(10)))
        checkpoint.sync()
        assert sorted(paths) == sorted(f"{tmp_path}/ckpt-{number}" for number in range(1, 41))
        for number in range(1, 41):
            reader = CheckpointReader(f"{tmp_path}/ckpt-{number}")
            reader.verify()
            assert reader.get_tensor("save_counter/.ATTRIBUTES/VARIABLE_VALUE") == number
        assert latest_checkpoint(tmp_path) == f"{tmp_path}/ckpt-40"

    def test_share_a_manager(self, tmp_path, options):
        """The newest are kept, the rest is gone, and the list is true."""
        checkpoint = Checkpoint(v=Variable(np.ones(1000)))
        manager = CheckpointManager(checkpoint, tmp_path, 3, options=options)
        run_in_threads(4, lambda _: [manager.save() for _ in range(10)])
        manager.sync()
        assert manager.checkpoints == [f"{tmp_path}/ckpt-{number}" for number in (38, 39, 40)]
        names = {"checkpoint", *(f"ckpt-{n}{end}" for n in (38, 39, 40) for end in (".index", ".data-00000-of-00001"))}
        assert set(os.listdir(tmp_path)) == names

    def test_save_and_restore(self, tmp_path, options):
        """A save beside restores holds one state, never a mixture."""
        checkpoint = Checkpoint(v=Variable(np.zeros(100_000)), w=Variable(np.zeros(100_000)))
        for value in (1.0, 2.0):
            checkpoint.v.assign(np.full(100_000, value))
            checkpoint.w.assign(np.full(100_000, value))
            checkpoint.write(tmp_path / f"value-{value}")

        def work(number):
            for n in range(10):
                if number % 2:
                    checkpoint.read(tmp_path / f"value-{1.0 + n % 2}")
                else:
                    checkpoint.save(tmp_path / "ckpt", options)

        run_in_threads(4, work)
        checkpoint.sync()
        for number in range(1, 21):
            reader = CheckpointReader(tmp_path / f"ckpt-{number}")
            values = [reader.get_tensor(f"{name}/.ATTRIBUTES/VARIABLE_VALUE") for name in "vw"]
            assert len(np.unique(values)) == 1


def test_a_callback_saves_and_waits(tmp_path):
    """What is called after an asynchronous save may use the checkpoint, even while others wait for that save."""
    checkpoint = Checkpoint(v=Variable(1.0))
    calls = []

    def callback(path):
        calls.append(path)
        checkpoint.sync()
        checkpoint.write(f"{path}-copy")

    options = CheckpointOptions(enable_async=True, experimental_write_callbacks=[callback])
    for _ in range(5):
        checkpoint.save(tmp_path / "ckpt", options)
    checkpoint.sync()
    assert calls == [f"{tmp_path}/ckpt-{n}" for n in range(1, 6)]
    for path in calls:
        load_checkpoint(f"{path}-copy").verify()


class TestThreadThatCannotBeStarted:
    @pytest.fixture
    def refused(self):
        def refuse(*_, **__):
            raise RuntimeError("can't start new thread")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_thread, "start_new_thread", refuse)
            yield patch

    def test_gives_the_number_back_and_poisons_nothing(self, tmp_path, refused):
        """After the error everything works, in the foreground at once and in the background when there are threads."""
        checkpoint = Checkpoint(v=Variable(np.ones(10)))
        before = checkpoint.write(tmp_path / "x")
        for save in (checkpoint.save, checkpoint.write):
            with pytest.raises(StorageError, match="cannot start its thread"):
                save(tmp_path / "ckpt", ASYNC)
        assert int(checkpoint.save_counter) == 0
        checkpoint.sync()
        checkpoint.read(before).expect_partial()
        assert checkpoint.save(tmp_path / "ckpt") == f"{tmp_path}/ckpt-1"
        refused.undo()
        assert checkpoint.save(tmp_path / "ckpt", ASYNC) == f"{tmp_path}/ckpt-2"
        checkpoint.sync()
        assert latest_checkpoint(tmp_path) == f"{tmp_path}/ckpt-2"

    def test_of_a_manager(self, tmp_path, refused):
        """Nothing of the failed save is left in the directory, and the next one has its number."""
        checkpoint = Checkpoint(v=Variable(np.ones(10)))
        manager = CheckpointManager(checkpoint, tmp_path, 3, options=ASYNC)
        with pytest.raises(StorageError, match="cannot start its thread"):
            manager.save()
        assert os.listdir(tmp_path) == []
        refused.undo()
        assert manager.save() == f"{tmp_path}/ckpt-1"
        manager.sync()
        assert manager.latest_checkpoint == f"{tmp_path}/ckpt-1"


class TestChangeOfTheCurrentDirectory:
    @pytest.fixture(autouse=True)
    def _directories(self, tmp_path, monkeypatch):
        (tmp_path / "home").mkdir()
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "home")

    def test_during_an_asynchronous_save(self, tmp_path, monkeypatch):
        """Checkpoint and state file are where the save began, and the path is returned as it was given."""
        checkpoint = Checkpoint(v=Variable(np.ones(10)))
        paths = []
        hold = threading.Event()
        execute = LocalStorage.make_directory

        def later(storage, path):
            hold.wait(30)
            execute(storage, path)

        monkeypatch.setattr(LocalStorage, "make_directory", later)
        options = CheckpointOptions(enable_async=True, experimental_write_callbacks=[lambda path: paths.append(path)])
        assert checkpoint.save("run/ckpt", options) == "run/ckpt-1"
        os.chdir(tmp_path / "elsewhere")
        hold.set()
        checkpoint.sync()
        assert paths == ["run/ckpt-1"]
        assert os.listdir(tmp_path / "elsewhere") == []
        assert latest_checkpoint(tmp_path / "home" / "run") == f"{tmp_path}/home/run/ckpt-1"
        assert saved(tmp_path / "home" / "run" / "ckpt-1") == 1.0

    @pytest.mark.parametrize("options", [CheckpointOptions(), ASYNC], ids=["sync", "async"])
    def test_between_the_saves_of_a_manager(self, tmp_path, options):
        """One series stays in one directory, which prunes and restores there."""
        checkpoint = Checkpoint(v=Variable(np.ones(10)))
        manager = CheckpointManager(checkpoint, "run", 2, options=options)
        manager.save()
        for n in range(4):
            os.chdir(tmp_path / ("elsewhere" if n % 2 else "home"))
            manager.save()
        os.chdir(tmp_path / "elsewhere")
        manager.sync()
        assert manager.checkpoints == ["run/ckpt-4", "run/ckpt-5"]
        checkpoint.v.assign(np.zeros(10))
        assert manager.restore_or_initialize() == "run/ckpt-5"
        assert float(np.asarray(checkpoint.v)[0]) == 1.0
        assert os.listdir(tmp_path / "elsewhere") == []
        assert latest_checkpoint(tmp_path / "home" / "run") == f"{tmp_path}/home/run/ckpt-5"

    def test_while_a_checkpoint_is_open(self, tmp_path):
        """A reader opens its data files, and a restore reads what it deferred, where the checkpoint was."""
        checkpoint = Checkpoint(v=Variable(np.ones(10)))
        path = checkpoint.write("ckpt")
        reader, bundle = CheckpointReader(path), open_bundle(DEFAULT_STORAGE, path)
        fresh = Checkpoint()
        status = fresh.read(path)
        os.chdir(tmp_path / "elsewhere")
        assert reader.get_tensor("v/.ATTRIBUTES/VARIABLE_VALUE")[0] == 1.0
        assert bundle.map("v/.ATTRIBUTES/VARIABLE_VALUE")[0] == 1.0
        fresh.v = Variable(np.zeros(10))
        status.assert_existing_objects_matched()
        assert float(np.asarray(fresh.v)[0]) == 1.0

    def test_threads_and_directories(self, tmp_path):
        """Four threads save asynchronously while a fifth changes the directory: nothing is lost, nothing strays."""
        managers = []
        for number in range(4):
            checkpoint = Checkpoint(v=Variable(np.full(1000, float(number))))
            managers.append(CheckpointManager(checkpoint, f"run{number}", None, options=ASYNC))
        stop = threading.Event()

        def change():
            while not stop.wait(0.001):
                for name in ("elsewhere", "home"):
                    os.chdir(tmp_path / name)

        changer = threading.Thread(target=change)
        changer.start()
        try:
            run_in_threads(4, lambda number: [managers[number].save() for _ in range(10)])
            for manager in managers:
                manager.sync()
        finally:
            stop.set()
            changer.join()
        assert os.listdir(tmp_path / "elsewhere") == []
        for number in range(4):
            directory = tmp_path / "home" / f"run{number}"
            assert latest_checkpoint(directory) == f"{directory}/ckpt-10"
            assert [saved(directory / f"ckpt-{n}") for n in range(1, 11)] == [float(number)] * 10


TRAINER = """
import multiprocessing, os, signal, sys, threading, time
import numpy as np, milepost
directory, delay = sys.argv[1], float(sys.argv[2])
def load(pipe):
    pipe.send(os.getpid())
    time.sleep(60)
checkpoint = milepost.Checkpoint(v=milepost.Variable(np.zeros(200_000)))
options = milepost.CheckpointOptions(enable_async=True)
manager = milepost.CheckpointManager(checkpoint, directory, 2, options=options)
manager.restore_or_initialize()
context = multiprocessing.get_context("fork")
threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL)).start()
while True:
    checkpoint.v.assign(np.asarray(checkpoint.v) + 1)
    path = manager.save()
    ours, theirs = context.Pipe()
    worker = context.Process(target=load, args=(theirs,))
    worker.start()
    print("worker", ours.recv(), flush=True)
    manager.sync()
    print("saved", int(np.asarray(checkpoint.v)[0]), flush=True)
"""


@needs_fork
def test_a_killed_trainer_whose_workers_live_on(tmp_path):
    """Workers are forked during every save and outlive the trainer; the next run finds its work, and waits for nobody."""
    workers = []
    last = 0
    try:
        for attempt in itertools.count():
            if attempt >= 4 and (last or attempt == 40):  # A busy machine may need longer for the first save.
                break
            command = [sys.executable, "-c", TRAINER, str(tmp_path), str(0.2 + 0.07 * attempt)]
            # Not a pipe, which would have no end while a worker holds it open.
            with open(tmp_path.with_suffix(".log"), "w+", encoding="utf-8") as log:
                assert subprocess.run(command, stdout=log, timeout=60, check=False).returncode == -signal.SIGKILL
                log.seek(0)
                lines = [line.split() for line in log if line.endswith("\n")]
            workers += [int(number) for what, number in lines if what == "worker"]
            last = max([last, *(int(number) for what, number in lines if what == "saved")])
            checkpoint = Checkpoint(v=Variable(np.zeros(200_000)))
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                manager = CheckpointManager(checkpoint, tmp_path, 2)
                manager.restore_or_initialize()
                assert int(np.asarray(checkpoint.v)[0]) >= last
                assert len(np.unique(np.asarray(checkpoint.v))) == 1
                manager.save()
            left = [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]
            assert left == []
    finally:
        for worker in workers:
            try:
                os.kill(worker, signal.SIGKILL)
            except ProcessLookupError:
                pass
    assert last


@needs_fork
def test_a_forked_child_saves_its_own(tmp_path):
    """A child that is forked while a save is in flight can use the checkpoint itself."""
    checkpoint = Checkpoint(v=Variable(np.ones(4 << 20)))
    checkpoint.write(tmp_path / "parent", ASYNC)
    child = os.fork()
    if not child:
        status = 1
        try:
            checkpoint.sync()
            checkpoint.write(tmp_path / "child", ASYNC)
            checkpoint.sync()
            status = 0
        except MilepostError:
            status = 2
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    checkpoint.sync()
    assert status == 0
    assert saved(tmp_path / "parent") == saved(tmp_path / "child") == 1.0
