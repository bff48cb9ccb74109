"""The background writer by itself: threads that are refused, callbacks, forks and the end of the process."""

import _thread
import errno
import gc
import os
import subprocess
import sys
import threading
import time
import warnings
import weakref

import pytest

from milepost.bundle.parallel import for_each
from milepost.collector import collection_paused
from milepost.errors import MilepostWarning, StorageError
from milepost.forks import ForkableLock
from milepost.saving import background
from milepost.saving.background import BackgroundWriter


@pytest.fixture
def no_threads(monkeypatch):
    """The system starts no threads until this is called."""

    def refuse(*_, **__):
        raise RuntimeError("can't start new thread")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_thread, "start_new_thread", refuse)
        yield patch.undo


def in_child(work):
    """What a forked child reports: the text that ``work`` returns, or the error that it raises."""
    if not hasattr(os, "fork"):
        pytest.skip("this system forks no processes")
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(write, str(work()).encode())
        except BaseException as error:
            os.write(write, repr(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


class TestThreadThatCannotBeStarted:
    def test_fails_once(self, no_threads):
        """One error, after which the writer is as before."""
        writer, done = BackgroundWriter(), []
        with pytest.raises(StorageError, match="can't start new thread") as caught:
            writer.submit(lambda: done.append("lost"))
        assert caught.value.errno == errno.EAGAIN
        assert "without enable_async" in str(caught.value.remedy)
        writer.wait()
        no_threads()
        writer.submit(lambda: done.append("kept"))
        writer.wait()
        assert done == ["kept"]

    @pytest.mark.usefixtures("no_threads")
    def test_holds_nothing_of_the_job(self):
        """Its copies of values may be large."""
        writer = BackgroundWriter()

        def work():
            raise AssertionError("it does not run")

        with pytest.raises(StorageError):
            writer.submit(work)
        reference = weakref.ref(work)
        del work
        gc.collect()
        assert reference() is None

    def test_runs_without_a_thread_that_python_knows(self, monkeypatch):
        """If the system has one thread left, it is enough."""

        def refuse(_):
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", refuse)
        writer, done = BackgroundWriter(), []
        writer.submit(lambda: done.append("kept"))
        writer.wait()
        assert done == ["kept"]

    def test_parts_of_a_transfer_are_done_by_the_caller(self, no_threads):
        """A transfer needs no thread but its own."""
        done = []
        for_each(done.append, range(10), threads=4)
        assert done == list(range(10))
        no_threads()
        for_each(done.append, range(10), threads=4)
        assert sorted(done) == sorted([*range(10), *range(10)])

    def test_some_threads_are_better_than_none(self, monkeypatch):
        """Those that were started before the system refused do their part, and are waited for."""
        start, started = _thread.start_new_thread, []

        def one_only(*arguments, **options):
            if started:
                raise RuntimeError("can't start new thread")
            started.append(1)
            return start(*arguments, **options)

        monkeypatch.setattr(_thread, "start_new_thread", one_only)
        both = threading.Barrier(2, timeout=30)
        for_each(lambda _: both.wait(), range(2), threads=4)
        assert len(started) == 1


class TestCallbacks:
    def test_a_job_may_wait_and_submit(self):
        """What runs in the job does not wait for itself; the next job begins, and whoever waits gets both."""
        writer, done = BackgroundWriter(), []

        def first():
            writer.wait()
            with writer.exclusive():
                writer.submit(lambda: done.append("second"))
            done.append("first")

        writer.submit(first)
        writer.wait()
        assert sorted(done) == ["first", "second"]

    def test_a_job_is_let_in_by_those_who_wait_for_it(self):
        """A callback that saves does not wait for the thread that waits for the callback."""
        writer, done = BackgroundWriter(), []
        waiting = threading.Event()

        def job():
            waiting.wait(30)
            with writer.exclusive():
                done.append("job")

        writer.submit(job)
        threading.Timer(0.1, waiting.set).start()
        with writer.exclusive():
            done.append("main")
        assert done == ["job", "main"]

    def test_one_thread_at_a_time(self):
        """Threads do not meet inside, nor with a job."""
        writer, inside, most = BackgroundWriter(), [], []

        def enter():
            inside.append(1)
            most.append(len(inside))
            inside.pop()

        def work():
            for _ in range(100):
                with writer.exclusive():
                    enter()
                    writer.submit(enter)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        writer.wait()
        assert (max(most), len(most)) == (1, 800)

    def test_an_error_is_told_to_all_who_wait(self):
        """Nobody takes a failed save for one that is durable; who asks later is not told again."""
        writer, told = BackgroundWriter(), []
        go = threading.Event()

        def fail():
            go.wait(30)
            raise ValueError("failed")

        def wait():
            try:
                writer.wait()
            except ValueError as error:
                told.append(str(error))

        writer.submit(fail)
        threads = [threading.Thread(target=wait) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.2)  # so that all of them wait
        go.set()
        for thread in threads:
            thread.join()
        writer.wait()
        assert told == ["failed"] * 4


class TestForkedChild:
    def test_has_nothing_in_flight(self):
        """A job of the parent is not the child's; the child can do its own, and the parent's goes on."""
        writer, done, go = BackgroundWriter(), [], threading.Event()
        writer.submit(lambda: (go.wait(30), done.append("parent")))

        def child():
            writer.wait()
            own = []
            with writer.exclusive():
                writer.submit(lambda: own.append("child"))
            writer.wait()
            return own

        assert in_child(child) == "['child']"
        go.set()
        writer.wait()
        assert done == ["parent"]

    def test_finds_locks_free(self):
        """Also those that other threads of the parent hold; its own it keeps."""
        held, own = ForkableLock(), ForkableLock()
        inside, leave = threading.Event(), threading.Event()

        def hold():
            with held:
                inside.set()
                leave.wait(30)

        def child():
            with held, own:
                return "entered"

        thread = threading.Thread(target=hold)
        thread.start()
        inside.wait(30)
        with own:
            assert in_child(child) == "entered"
            leave.set()
        thread.join()
        with held:
            pass

    def test_does_not_tell_the_parents_errors(self):
        """The parent is told; the child has not failed."""
        writer = BackgroundWriter()

        def fail():
            raise ValueError("failed")

        writer.submit(fail)
        writer._jobs[0].call.wait()
        assert in_child(writer.wait) == "None"
        with pytest.raises(ValueError, match="failed"):
            writer.wait()

    def test_collects_garbage(self):
        """A save that pauses the collector on another thread does not leave it off in a worker for ever."""
        inside, leave = threading.Event(), threading.Event()

        def pause():
            with collection_paused():
                inside.set()
                leave.wait(30)

        thread = threading.Thread(target=pause)
        thread.start()
        inside.wait(30)
        try:
            assert not gc.isenabled()
            assert in_child(gc.isenabled) == "True"
        finally:
            leave.set()
            thread.join()
        assert gc.isenabled()
        with collection_paused():
            assert in_child(gc.isenabled) == "False"


def run(code, *arguments):
    ran = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout, ran.stderr


class TestEndOfTheProcess:
    def test_a_save_in_flight_is_finished(self, tmp_path):
        """The interpreter waits for it, and nothing is printed."""
        code = (
            "import sys, numpy as np, milepost\n"
            "checkpoint = milepost.Checkpoint(v=milepost.Variable(np.ones(8 << 20, np.float32)))\n"
            "options = milepost.CheckpointOptions(enable_async=True)\n"
            "manager = milepost.CheckpointManager(checkpoint, sys.argv[1], 3, options=options)\n"
            "manager.save()\n"
        )
        assert run(code, str(tmp_path)) == (0, "", "")
        from milepost import load_checkpoint

        load_checkpoint(str(tmp_path)).verify()

    def test_a_failure_that_nobody_asked_for_is_told(self, tmp_path):
        """Once, without a traceback."""
        code = (
            "import sys, milepost\n"
            "checkpoint = milepost.Checkpoint(v=milepost.Variable(1.0))\n"
            "checkpoint.write(sys.argv[1] + '/file/ckpt', milepost.CheckpointOptions(enable_async=True))\n"
        )
        (tmp_path / "file").write_bytes(b"")
        status, printed, told = run(code, str(tmp_path))
        assert (status, printed) == (120, "")
        assert told.count("an asynchronous save failed, and nothing was saved") == 1
        assert "Traceback" not in told

    def test_a_save_while_the_process_ends(self, tmp_path):
        """Whether the interpreter still starts threads then or not, the save is whole or fails with milepost's error."""
        code = (
            "import atexit, sys, numpy as np, milepost\n"
            "checkpoint = milepost.Checkpoint(v=milepost.Variable(np.ones(8 << 20, np.float32)))\n"
            "def last():\n"
            "    checkpoint.save(sys.argv[1] + '/ckpt')\n"
            "    try:\n"
            "        checkpoint.save(sys.argv[1] + '/ckpt', milepost.CheckpointOptions(enable_async=True))\n"
            "        checkpoint.sync()\n"
            "    except milepost.StorageError:\n"
            "        pass\n"
            "atexit.register(last)\n"
        )
        assert run(code, str(tmp_path)) == (0, "", "")
        from milepost import load_checkpoint

        load_checkpoint(str(tmp_path)).verify()

    def test_a_save_that_takes_long_is_told_again_and_again(self, tmp_path):
        """A process that waits for a storage which hangs does not look as if it had nothing left to say."""
        code = (
            "import sys, threading, milepost\n"
            "from milepost.saving import background\n"
            "background._REMINDED = 0.2\n"
            "class Slow(milepost.storage.LocalStorage):\n"
            "    def sync_directory(self, path):\n"
            "        threading.Event().wait(1)\n"
            "        super().sync_directory(path)\n"
            "options = milepost.CheckpointOptions(enable_async=True, storage=Slow())\n"
            "milepost.Checkpoint(v=milepost.Variable(1.0)).write(sys.argv[1] + '/ckpt', options)\n"
        )
        status, printed, told = run(code, str(tmp_path))
        assert (status, printed) == (0, "")
        assert told.count("this process cannot end yet") > 1
        assert (tmp_path / "ckpt.index").exists()

    @pytest.mark.parametrize("first", ["import milepost", "import atexit"], ids=["after milepost", "before milepost"])
    @pytest.mark.parametrize("place", ["run", "file/run"], ids=["saved", "failed"])
    def test_a_save_that_begins_while_the_process_ends_is_finished_or_told(self, tmp_path, first, place):
        """Functions that the program registered before it imported milepost are called when milepost's own has been called."""
        code = (
            f"{first}\n"
            "import atexit, sys\n"
            "def last():\n"
            "    try:\n"
            "        checkpoint.save(sys.argv[1] + '/ckpt', options)\n"
            "    except milepost.StorageError as error:\n"
            "        print(error.problem, file=sys.stderr)\n"
            "atexit.register(last)\n"
            "import milepost, time\n"
            "class Slow(milepost.storage.LocalStorage):\n"
            "    def make_directory(self, path):\n"
            "        time.sleep(0.3)\n"
            "        super().make_directory(path)\n"
            "checkpoint = milepost.Checkpoint(v=milepost.Variable(1.0))\n"
            "options = milepost.CheckpointOptions(enable_async=True, storage=Slow())\n"
        )
        (tmp_path / "file").write_bytes(b"")
        status, printed, told = run(code, str(tmp_path / place))
        assert (status, printed) == (120 if "this process is 120" in told else 0, "")
        assert (
            (tmp_path / "run" / "ckpt-1.index").exists()
            or "cannot make a directory" in told
            or "start its thread" in told
        )


def test_a_writer_that_goes_tells_its_failure():
    """Also before the process ends."""
    writer = BackgroundWriter()

    def fail():
        raise ValueError("failed")

    writer.submit(fail)
    writer._jobs[0].call.wait()
    with pytest.warns(MilepostWarning, match="nothing was saved: failed"):
        del writer


class RemovedMeanwhile(list[object]):
    """Jobs that another thread removes while this one looks at them."""

    def remove(self, job):
        raise ValueError


def test_a_failure_is_told_once():
    writer = BackgroundWriter()

    def fail():
        raise ValueError("failed")

    writer.submit(fail)
    (job,) = jobs = writer._jobs
    job.call.wait()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        background._tell(RemovedMeanwhile([job]))
    assert told == []
    with pytest.raises(ValueError, match="failed"):
        writer.wait()
    assert jobs == []
