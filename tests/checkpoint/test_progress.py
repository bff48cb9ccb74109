"""``CheckpointOptions(progress=...)``: what a function is told of long saves and restores, and when."""

import itertools
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, CheckpointOptions, MilepostWarning, Module, StorageError, UnsupportedError, Variable
from milepost.storage import MemoryStorage

MEBIBYTE = 1 << 20


class SlowFile:
    """Takes a while for each mebibyte."""

    def __init__(self, file, pace):
        self.file = file
        self.pace = pace

    def __getattr__(self, name):
        return getattr(self.file, name)

    def read_into(self, offset, buffer):
        time.sleep(self.pace * memoryview(buffer).nbytes / MEBIBYTE)
        self.file.read_into(offset, buffer)

    def write(self, offset, buffers):
        time.sleep(self.pace * sum(memoryview(each).nbytes for each in buffers) / MEBIBYTE)
        self.file.write(offset, buffers)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.file.close()


class SlowStorage(MemoryStorage):
    """A storage that takes long.

    Args:
        pace: Seconds for each mebibyte.
    """

    def __init__(self, pace=0.01):
        super().__init__()
        self.pace = pace

    def create(self, path):
        return SlowFile(super().create(path), self.pace)

    def open(self, path):
        return SlowFile(super().open(path), self.pace)


class Told(list[milepost.Progress]):
    """Collects what it is told, with the time and the thread of each call."""

    def __init__(self):
        super().__init__()
        self.times = []
        self.threads = []

    def __call__(self, progress):
        self.times.append(time.monotonic())
        self.threads.append(threading.current_thread().name)
        self.append(progress)

    @property
    def done(self):
        return [each.bytes_done for each in self]

    def is_complete(self, total):
        """Whether it was told of everything from the beginning to the end, in the right order."""
        return (
            {each.bytes_total for each in self} == {total}
            and self.done[0] == 0
            and self.done == sorted(self.done)
            and [done for done in self.done if done == total] == [total]
        )


def large(mebibytes=48, value=1):
    return np.full((mebibytes, MEBIBYTE), value, np.uint8)


def slowly(told, pace=0.01, **options):
    return CheckpointOptions(progress=told, storage=SlowStorage(pace), **options)


def test_a_save_is_told_from_the_beginning_to_the_end():
    told = Told()
    path = Checkpoint(v=large()).write("run/ckpt", slowly(told))
    assert told.is_complete(48 * MEBIBYTE)
    assert len(told) > 2
    assert {(each.operation, each.path) for each in told} == {("save", path)}
    assert 0 == told.done[0] <= told[0].seconds < told[-1].seconds


def test_a_restore_is_told_from_the_beginning_to_the_end_in_both_passes():
    told = Told()
    options = slowly(None)
    path = Checkpoint(v=large()).write("run/ckpt", options)
    options.progress = told
    live = Checkpoint(v=large(value=0))
    live.read(path, options).assert_consumed()
    assert live.v.all()
    assert told.is_complete(48 * MEBIBYTE)
    assert {(each.operation, each.path) for each in told} == {("restore", path)}
    assert any(0 < done < 24 * MEBIBYTE for done in told.done)
    assert any(24 * MEBIBYTE < done < 48 * MEBIBYTE for done in told.done)


def test_it_is_told_at_most_ten_times_a_second():
    told = Told()
    options = slowly(told)
    path = Checkpoint(v=large()).write("run/ckpt", options)
    saved = len(told)
    Checkpoint(v=large(value=0)).read(path, options)
    for times in (told.times[: saved - 1], told.times[saved:-1]):
        assert all(later - earlier >= 0.1 for earlier, later in itertools.pairwise(times))


def test_the_end_of_a_save_is_told_when_it_is_committed_and_listed(tmp_path):
    seen = []

    def look(progress):
        latest = milepost.latest_checkpoint(tmp_path)
        seen.append((progress.bytes_done == progress.bytes_total, latest is not None))

    Checkpoint(v=np.ones(4)).save(tmp_path / "ckpt", CheckpointOptions(progress=look))
    assert seen == [(False, False), (True, True)]


def test_the_end_of_a_save_that_fails_is_not_told():
    class Full(MemoryStorage):
        def rename(self, source, target):
            raise StorageError("no space left", file=target)

    told = Told()
    with pytest.raises(StorageError):
        Checkpoint(v=np.ones(4)).write("run/ckpt", CheckpointOptions(progress=told, storage=Full()))
    assert told.done == [0]


def test_the_end_of_a_restore_that_fails_is_not_told(tmp_path):
    told = Told()
    path = Checkpoint(v=np.ones(MEBIBYTE)).write(tmp_path / "ckpt")
    data = tmp_path / "ckpt.data-00000-of-00001"
    data.write_bytes(bytes(1000) + data.read_bytes()[1000:])
    with pytest.raises(milepost.CorruptCheckpointError):
        Checkpoint(v=np.zeros(MEBIBYTE)).read(path, CheckpointOptions(progress=told))
    assert told.done[0] == 0
    assert 8 * MEBIBYTE not in told.done


def test_an_error_of_the_function_is_a_warning_and_the_operation_goes_on():
    calls = []

    def broken(progress):
        calls.append(progress.bytes_done)
        raise KeyError("bar")

    options = slowly(broken)
    with pytest.warns(MilepostWarning, match=r"broken .* raised KeyError: 'bar'\. The save continues"):
        path = Checkpoint(v=large()).write("run/ckpt", options)
    live = Checkpoint(v=large(value=0))
    with pytest.warns(MilepostWarning, match="The restore continues"):
        live.read(path, options).assert_consumed()
    assert calls == [0, 0]
    assert live.v.all()


@pytest.mark.parametrize("at_the_start", [True, False])
def test_ctrl_c_in_the_function_leaves_no_half_save(at_the_start):
    def interrupt(progress):
        if at_the_start or progress.bytes_done:
            raise KeyboardInterrupt

    options = slowly(interrupt)
    checkpoint = Checkpoint(v=large())
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save("run/ckpt", options)
    assert options.storage.list("run") == []
    assert checkpoint.save_counter == 0


@pytest.mark.parametrize("at_the_start", [True, False])
def test_ctrl_c_in_the_function_changes_nothing_before_the_second_pass(at_the_start):
    def interrupt(progress):
        if at_the_start or progress.bytes_done:
            raise KeyboardInterrupt

    options = slowly(None)
    path = Checkpoint(v=large()).write("run/ckpt", options)
    options.progress = interrupt
    live = Checkpoint(v=large(value=0))
    with pytest.raises(KeyboardInterrupt):
        live.read(path, options)
    assert not live.v.any()


def test_the_function_is_called_on_the_thread_that_does_the_work():
    told = Told()
    options = slowly(told)
    checkpoint = Checkpoint(v=large())
    path = checkpoint.write("run/ckpt", options)
    checkpoint.read(path, options)
    assert set(told.threads) == {threading.current_thread().name}


def test_an_asynchronous_save_calls_the_function_on_its_own_thread():
    told = Told()
    checkpoint = Checkpoint(v=large())
    checkpoint.write("run/ckpt", slowly(told, enable_async=True))
    checkpoint.sync()
    assert told.is_complete(48 * MEBIBYTE)
    assert set(told.threads) == {"milepost-save"}


def test_a_function_may_load_and_save():
    options = slowly(None)
    other = Checkpoint(v=large(2)).write("run/other", options)
    told = Told()

    def nested(progress):
        milepost.load(other, options=CheckpointOptions(storage=options.storage))
        told(progress)

    options.progress = nested
    Checkpoint(v=large()).write("run/ckpt", options)
    assert told.is_complete(48 * MEBIBYTE)


def test_a_manager_passes_it_to_its_saves_and_restores(tmp_path):
    told = Told()
    checkpoint = Checkpoint(v=np.ones(4))
    manager = milepost.CheckpointManager(checkpoint, tmp_path, max_to_keep=1, options=CheckpointOptions(progress=told))
    manager.save()
    manager.restore_or_initialize()
    assert [each.operation for each in told] == ["save"] * 2 + ["restore"] * 2


def test_weights_are_told(tmp_path):
    told = Told()
    net = Module()
    net.kernel = Variable(np.ones((8, 8)))
    path = milepost.Checkpoint(net).write(tmp_path / "weights", CheckpointOptions(progress=told))
    milepost.Checkpoint(net).read(path, CheckpointOptions(progress=told))
    assert [(each.operation, each.bytes_done, each.bytes_total) for each in told] == [
        ("save", 0, 512),
        ("save", 512, 512),
        ("restore", 0, 512),
        ("restore", 512, 512),
    ]


def test_values_that_come_late_are_no_part_of_it(tmp_path):
    path = Checkpoint(now=Variable(np.ones(4)), late=Variable(np.ones(1000))).write(tmp_path / "ckpt")
    told = Told()
    live = Checkpoint(now=Variable(np.zeros(4)))
    live.read(path, CheckpointOptions(progress=told))
    assert told.is_complete(32)
    count = len(told)
    live.late = Variable(np.zeros(1000))
    assert live.late.numpy().all()
    assert len(told) == count


def test_many_small_values_and_text_are_told(tmp_path):
    told = Told()
    values = {f"v{number}": Variable(np.full(3, number)) for number in range(2000)}
    Checkpoint(values=values, name="text").write(tmp_path / "ckpt", CheckpointOptions(progress=told))
    assert told.is_complete(2000 * 24 + len("text"))


def test_a_checkpoint_without_values_begins_and_ends(tmp_path):
    told = Told()
    path = Checkpoint().write(tmp_path / "ckpt", CheckpointOptions(progress=told))
    Checkpoint().read(path, CheckpointOptions(progress=told))
    assert told.done == [0, 0, 0, 0]


def test_values_in_pieces_are_told():
    told = Told()
    options = slowly(told, experimental_sharding_callback=milepost.MaxShardSizePolicy(10 * MEBIBYTE))
    path = Checkpoint(v=large()).write("run/ckpt", options)
    assert told.is_complete(48 * MEBIBYTE)
    told.clear()
    Checkpoint(v=large(value=0)).read(path, options).assert_consumed()
    assert told.is_complete(48 * MEBIBYTE)
    assert len(told) > 3


def test_converted_numbers_are_told(tmp_path):
    told = Told()
    path = Checkpoint(v=np.ones(1000, np.float64)).write(tmp_path / "ckpt")
    live = Checkpoint(v=np.zeros(1000, np.float32))
    live.read(path, CheckpointOptions(progress=told), cast=True).assert_consumed()
    assert told.is_complete(4000)


@pytest.mark.parametrize("only", [None, "v"])
def test_loading_a_tree_is_told(only):
    storage, told = SlowStorage(), Told()
    path = milepost.save("run/state", {"v": large(), "w": np.ones(2)}, CheckpointOptions(storage=storage))
    tree = milepost.load(path, options=CheckpointOptions(storage=storage, progress=told), only=only)
    assert tree["v"].all()
    assert told.is_complete(48 * MEBIBYTE + (0 if only else 16))
    assert {each.operation for each in told} == {"load"}
    assert len(told) > 2


def test_a_state_dict_is_told(tmp_path):
    told = Told()
    path = milepost.save(tmp_path / "state", {"v": np.ones(2)})
    milepost.load(path, options=CheckpointOptions(progress=told), separator=".")
    assert told.is_complete(16)


def test_mapped_values_are_told(tmp_path):
    told = Told()
    path = milepost.save(tmp_path / "state", {"v": np.ones(2)})
    milepost.load(path, mapped=True, options=CheckpointOptions(progress=told))
    assert told.is_complete(16)


def test_verification_is_told(tmp_path):
    told = Told()
    path = Checkpoint(v=np.ones(1000)).write(tmp_path / "ckpt")
    milepost.load_checkpoint(path, CheckpointOptions(progress=told)).verify()
    assert told.done == [0, told[-1].bytes_total]
    assert told[-1].bytes_total >= 8000
    assert told[0].operation == "verify"


@pytest.mark.parametrize("wrong", ["bar", 1, lambda: None, lambda one, two: None])
def test_what_is_no_function_of_one_argument_is_refused(wrong, tmp_path):
    with pytest.raises(UnsupportedError, match="key: progress"):
        CheckpointOptions(progress=wrong)
    with pytest.raises(UnsupportedError, match="key: progress"):
        milepost.load(milepost.save(tmp_path / "state", 1), options=CheckpointOptions(progress=wrong))


def test_a_bar_without_rich_is_refused_with_what_to_install():
    program = (
        "import sys; sys.modules['rich'] = None\n"
        "import milepost\n"
        "milepost.CheckpointOptions(progress=print)\n"
        "try: milepost.CheckpointOptions(progress=True)\n"
        "except milepost.UnsupportedError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert 'pip install "milepost[progress]"' in done.stdout


def test_importing_milepost_does_not_import_rich():
    program = "import milepost, sys; print([name for name in sys.modules if name.startswith('rich')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_warnings_that_are_errors_end_a_save_without_a_trace():
    def broken(progress):
        raise ValueError("broken")

    options = slowly(broken)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(MilepostWarning):
            Checkpoint(v=np.ones(4)).write("run/ckpt", options)
    assert options.storage.list("run") == []


def test_programs_without_it_read_and_write_without_counting():
    from milepost.bundle.counting import counter

    class Looking(MemoryStorage):
        def create(self, path):
            assert counter() is None
            return super().create(path)

    Checkpoint(v=np.ones(4)).write("run/ckpt", CheckpointOptions(storage=Looking()))
