"""What only files of this machine can show: other processes, strange files, a system that does things by halves."""

import contextlib
import errno
import gc
import itertools
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from milepost import Checkpoint, CheckpointManager, Variable
from milepost.errors import CheckpointNotFoundError, CorruptCheckpointError, StorageError
from milepost.storage import LocalStorage, on_posix
from tests.systems import needs_proc

fcntl = pytest.importorskip("fcntl", reason="these tests make POSIX systems do things by halves")

STORAGE = LocalStorage()

needs_vectored_calls = pytest.mark.skipif(not hasattr(os, "pwritev"), reason="the test stands in for these calls")

HOLD = """
import sys, time
from milepost.storage import LocalStorage, on_posix
file = LocalStorage().create(sys.argv[1])
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture(params=[True, False], ids=["nameless", "named"])
def _nameless(request, monkeypatch):
    if not request.param:
        monkeypatch.delattr("os.O_TMPFILE", raising=False)


@contextlib.contextmanager
def holder(path):
    """Another process that has created a file and keeps it open."""
    with subprocess.Popen([sys.executable, "-c", HOLD, path], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_another_process_uses_a_file(tmp_path):
    """A file is in use while its writer lives, even if the writer is killed without a chance to say so."""
    path = str(tmp_path / "f")
    with holder(path) as process:
        assert STORAGE.in_use(path)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not STORAGE.in_use(path)


def test_a_child_does_not_keep_a_file_in_use(tmp_path):
    """Workers started during a save may inherit its files, but closing them ends the use for all."""
    path = str(tmp_path / "f")
    file = STORAGE.create(path)
    read, write = os.pipe()
    os.set_inheritable(file._descriptor, True)
    with subprocess.Popen(["cat"], stdin=read, close_fds=False):
        assert STORAGE.in_use(path)
        file.close()
        assert not STORAGE.in_use(path)
        os.close(write)
    os.close(read)


@pytest.mark.usefixtures("_nameless")
@pytest.mark.parametrize("call", ["fcntl.flock", "os.link"])
def test_a_file_whose_creation_is_interrupted_is_not_in_use(tmp_path, monkeypatch, call):
    """Ctrl-C comes when the system has done what it was asked. Otherwise the next save would wait for this one."""
    path = str(tmp_path / "f")
    module, name = call.split(".")
    do = getattr(sys.modules[module], name)

    def interrupted(*arguments, **options):
        do(*arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(call, interrupted)
    with contextlib.suppress(KeyboardInterrupt):
        STORAGE.create(path).close()
    monkeypatch.undo()
    assert not STORAGE.in_use(path)


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="here a file is visible a moment before it is locked")
def test_asking_does_not_get_in_the_way(tmp_path):
    """However many ask whether files are in use, each file that is created is, and none after it was closed."""
    stop = threading.Event()
    wrong = []

    def ask():
        while not stop.is_set():
            for name in STORAGE.list(str(tmp_path)):
                path = str(tmp_path / name)
                if not STORAGE.in_use(path) and os.path.exists(path):
                    wrong.append(name)

    askers = [threading.Thread(target=ask) for _ in range(3)]
    for asker in askers:
        asker.start()
    for n in range(300):
        file = STORAGE.create(str(tmp_path / f"{n}"))
        assert STORAGE.in_use(file.path)
        STORAGE.remove(file.path)
        file.close()
    stop.set()
    for asker in askers:
        asker.join()
    assert not wrong


@pytest.mark.usefixtures("_nameless")
def test_files_get_the_usual_permissions(tmp_path):
    """A new file has what the process's mask leaves, however it came to be."""
    old = os.umask(0o027)
    try:
        STORAGE.create(str(tmp_path / "f")).close()
    finally:
        os.umask(old)
    status = os.stat(tmp_path / "f")
    assert (status.st_mode & 0o777, status.st_nlink) == (0o640, 1)


def test_strange_files_are_refused(tmp_path):
    """A named pipe is no checkpoint, and does not make anyone wait."""
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), "/dev/zero"):
        with pytest.raises(CorruptCheckpointError, match="not a regular file"):
            STORAGE.open(path)
        assert not STORAGE.is_file(path)
    assert not STORAGE.in_use(str(tmp_path / "pipe"))


def test_links_are_followed(tmp_path):
    """A symbolic link counts as what it points to; one that points nowhere is nothing."""
    (tmp_path / "f").write_bytes(b"1")
    (tmp_path / "link").symlink_to("f")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "broken").symlink_to("no")
    (tmp_path / "d").symlink_to(".")
    assert STORAGE.open(str(tmp_path / "link")).read(0, 1) == b"1"
    assert [STORAGE.is_file(str(tmp_path / name)) for name in ("link", "loop", "broken")] == [True, False, False]
    STORAGE.make_directory(str(tmp_path / "d" / "inside"))
    assert (tmp_path / "inside").is_dir()
    with pytest.raises(
        CheckpointNotFoundError, match="a symbolic link of this name leads to a path that does not exist"
    ):
        STORAGE.make_directory(str(tmp_path / "broken"))


@needs_vectored_calls
def test_the_system_reads_and_writes_by_halves(tmp_path, monkeypatch):
    """Short reads and writes, which a system may make at any time, are continued."""
    pread, preadv, pwritev = os.pread, os.preadv, os.pwritev
    data = bytes(range(256)) * 10

    def short(views, most=7):
        view = memoryview(views[0]).cast("B")
        return [view[:most]]

    monkeypatch.setattr(os, "pread", lambda fd, length, offset: pread(fd, min(length, 100), offset))
    monkeypatch.setattr(os, "preadv", lambda fd, views, offset: preadv(fd, short(views), offset))
    monkeypatch.setattr(os, "pwritev", lambda fd, views, offset: pwritev(fd, short(views), offset))
    with STORAGE.create(str(tmp_path / "f")) as file:
        file.write(0, [data[:1000], b"", np.frombuffer(data[1000:], np.uint8)])
    file = STORAGE.open(str(tmp_path / "f"))
    assert file.read(0, len(data)) == data
    target = np.zeros(5, np.uint16)
    file.read_into(6, target)
    assert target.tobytes() == data[6:16]


@needs_vectored_calls
def test_a_write_that_gets_nowhere_fails(tmp_path, monkeypatch):
    """A system that accepts nothing and calls it no error must not make us try for ever."""
    monkeypatch.setattr(os, "pwritev", lambda *_: 0)
    with STORAGE.create(str(tmp_path / "f")) as file, pytest.raises(StorageError) as caught:
        file.write(0, [b"x"])
    assert caught.value.errno == errno.EIO


def test_a_full_disk(tmp_path):
    """The error says what to do, and that the previous checkpoint is safe."""
    code = (
        "import resource, signal, sys\n"
        "from milepost.storage import LocalStorage\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "LocalStorage().create(sys.argv[1]).write(0, [bytes(600)] * 2)\n"
    )
    path = str(tmp_path / "f")
    ran = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert "StorageError: cannot write: File too large" in ran.stderr
    assert f"file: {path}" in ran.stderr
    assert os.path.getsize(path) == 1000


@needs_vectored_calls
def test_errors_of_the_system_keep_their_number_and_get_a_remedy(tmp_path, monkeypatch):
    """What the system says comes out, with what the user can do about it."""
    file = STORAGE.create(str(tmp_path / "f"))

    def full(*_):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "pwritev", full)
    with pytest.raises(StorageError, match="No space left") as caught:
        file.write(0, [b"x"])
    assert caught.value.errno == errno.ENOSPC
    assert "previous checkpoint is untouched" in str(caught.value.remedy)
    assert isinstance(caught.value.__cause__, OSError)
    file.close()


def test_a_file_that_shrinks_while_it_is_open(tmp_path):
    """The error says how long the file is now."""
    path = tmp_path / "f"
    path.write_bytes(bytes(100))
    file = STORAGE.open(str(path))
    os.truncate(path, 10)
    with pytest.raises(CorruptCheckpointError, match="found: 10 bytes"):
        file.read(0, 100)
    with pytest.raises(CorruptCheckpointError, match="found: 10 bytes"):
        file.read_into(0, bytearray(100))
    os.truncate(path, 200)
    assert len(file.read(100, 100)) == 100


def test_reading_a_closed_file(tmp_path):
    """A closed file cannot be read, even if the system has given its descriptor to another."""
    (tmp_path / "f").write_bytes(b"1")
    file = STORAGE.open(str(tmp_path / "f"))
    file.close()
    for read in (lambda: file.read(0, 1), lambda: file.read_into(0, bytearray(1))):
        with pytest.raises(StorageError, match="Bad file descriptor"):
            read()


@needs_proc
def test_dropped_files_are_closed(tmp_path):
    """Files that nobody refers to any more give their descriptors back."""
    gc.collect()  # what other tests left in circles
    before = len(os.listdir("/proc/self/fd"))
    STORAGE.create(str(tmp_path / "f"))
    STORAGE.open(str(tmp_path / "f"))
    with pytest.raises(StorageError):
        STORAGE.create(str(tmp_path / "f"))
    with pytest.raises(CorruptCheckpointError):
        STORAGE.open(str(tmp_path))
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.fixture
def synced(monkeypatch):
    """The inodes that were synced, in order."""
    nodes = []
    monkeypatch.setattr(os, "fsync", lambda fd: nodes.append(os.fstat(fd).st_ino))
    return nodes


def nodes_of(*paths):
    return [os.stat(path).st_ino for path in paths]


def test_what_is_synced(tmp_path, synced):
    """A file syncs itself; a directory that is made syncs the one above it, for each level."""
    storage = LocalStorage()
    storage.make_directory(str(tmp_path / "a" / "b"))
    assert synced[-2:] == nodes_of(tmp_path, tmp_path / "a")
    synced.clear()
    storage.make_directory(str(tmp_path / "a" / "b"))
    with storage.create(str(tmp_path / "f")) as file:
        assert synced == []
        file.sync()
        storage.sync_directory(str(tmp_path / "a"))
    assert synced == nodes_of(tmp_path / "f", tmp_path / "a")


def test_a_directory_of_the_users_is_made_durable(tmp_path, synced):
    """Nobody need have synced a directory that exists already, so its name, and those above, are synced once."""
    (tmp_path / "new" / "newer").mkdir(parents=True)
    storage = LocalStorage()
    storage.make_directory(str(tmp_path / "new" / "newer"))
    assert synced[-2:] == nodes_of(tmp_path, tmp_path / "new")
    synced.clear()
    storage.make_directory(str(tmp_path / "new" / "newer"))
    assert synced == []


def test_a_directory_above_that_cannot_be_synced(tmp_path, monkeypatch):
    """What was there before need not be ours to sync; what we make must be."""

    def refuse(_):
        raise OSError(errno.EACCES, "refused")

    monkeypatch.setattr(os, "fsync", refuse)
    LocalStorage().make_directory(str(tmp_path))
    with pytest.raises(StorageError, match="cannot make the names durable"):
        LocalStorage().make_directory(str(tmp_path / "d"))


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM])
def test_a_directory_that_cannot_be_written_is_what_the_remedy_is_about(tmp_path, monkeypatch, code):
    """The file that cannot be created does not exist, so it has no permissions to change."""

    def refuse(*_, **__):
        raise OSError(code, "refused")

    monkeypatch.setattr(os, "mkdir", refuse)
    with pytest.raises(StorageError, match="cannot make a directory") as caught:
        LocalStorage().make_directory(str(tmp_path / "d"))
    assert caught.value.remedy == "let this user write to the directory, or save to another one"
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StorageError, match="cannot create") as caught:
        STORAGE.create(str(tmp_path / "f"))
    assert caught.value.remedy == "let this user write to the directory, or save to another one"
    with pytest.raises(StorageError, match="cannot open for reading") as caught:
        STORAGE.open(str(tmp_path / "f"))
    assert "permissions of the file" in caught.value.remedy


@pytest.mark.parametrize(
    "code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.EFBIG, errno.EROFS, errno.ENOMEM]
)
@needs_vectored_calls
def test_faults_that_a_disk_can_have_get_a_remedy(tmp_path, monkeypatch, code):
    file = STORAGE.create(str(tmp_path / "f"))

    def refuse(*_):
        raise OSError(code, "refused")

    monkeypatch.setattr(os, "pwritev", refuse)
    with pytest.raises(StorageError) as caught:
        file.write(0, [b"x"])
    assert caught.value.remedy
    file.close()


def test_questions_that_the_system_cannot_answer(tmp_path, monkeypatch):
    """A disk that fails is not taken for an empty one."""

    def fail(*_, **__):
        raise OSError(errno.EIO, "failed")

    (tmp_path / "f").write_bytes(b"")
    monkeypatch.setattr(os, "stat", fail)
    monkeypatch.setattr(os, "listdir", fail)
    for ask in (STORAGE.is_file, STORAGE.is_directory, STORAGE.list, STORAGE.modified):
        with pytest.raises(StorageError) as caught:
            ask(str(tmp_path / "f"))
        assert caught.value.errno == errno.EIO
    monkeypatch.setattr(os, "open", fail)
    assert STORAGE.in_use(str(tmp_path / "f"))


def test_without_locks_every_file_counts_as_used(tmp_path, monkeypatch):
    """Where the system cannot tell, nothing is taken for a leftover."""

    def unsupported(*_):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr("fcntl.flock", unsupported)
    STORAGE.create(str(tmp_path / "f")).close()
    assert STORAGE.in_use(str(tmp_path / "f"))
    assert not STORAGE.in_use(str(tmp_path / "no"))


class TestDirectoriesThatOthersMakeAgain:
    def test_their_names_are_synced_again(self, tmp_path, synced):
        """A directory is not durable because one of the same path was, even if the system uses its inode again."""
        storage = LocalStorage()
        storage.make_directory(str(tmp_path / "a" / "b"))
        for _ in range(20):
            time.sleep(0.02)  # The clock of file systems ticks every few milliseconds.
            shutil.rmtree(tmp_path / "a")
            (tmp_path / "a" / "b").mkdir(parents=True)
            synced.clear()
            storage.make_directory(str(tmp_path / "a" / "b"))
            assert synced[-2:] == nodes_of(tmp_path, tmp_path / "a")

    def test_others_change_the_directory_above(self, tmp_path, synced):
        """A directory that stays as it is is not synced again for a new neighbour."""
        storage = LocalStorage()
        (tmp_path / "a" / "b").mkdir(parents=True)
        storage.make_directory(str(tmp_path / "a" / "b"))
        for n in range(3):
            time.sleep(0.02)
            (tmp_path / f"neighbour{n}").touch()
            synced.clear()
            storage.make_directory(str(tmp_path / "a" / "b"))
            assert nodes_of(tmp_path)[0] not in synced

    def test_made_again_by_the_storage(self, tmp_path, synced):
        """However fast it goes, what the storage makes it syncs."""
        storage = LocalStorage()
        for _ in range(20):
            synced.clear()
            storage.make_directory(str(tmp_path / "a"))
            assert synced[-1:] == nodes_of(tmp_path)
            os.rmdir(tmp_path / "a")

    def test_another_directory_in_its_place(self, tmp_path, synced):
        """A directory that was renamed has a new name, which nobody need have synced."""
        storage = LocalStorage()
        storage.make_directory(str(tmp_path / "a" / "b"))
        time.sleep(0.02)
        os.rename(tmp_path / "a", tmp_path / "c")
        synced.clear()
        storage.make_directory(str(tmp_path / "c" / "b"))
        assert synced[-2:] == nodes_of(tmp_path, tmp_path / "c")

    def test_what_is_remembered_is_bounded(self, tmp_path):
        """A process that saves to ever new directories does not grow for it."""
        storage = LocalStorage()
        for n in range(1100):
            os.mkdir(tmp_path / str(n))
            storage.make_directory(str(tmp_path / str(n)))
        assert len(storage._durable) <= 1024


def test_what_is_given_no_storage_shares_one(tmp_path, synced):
    """So the directories above a checkpoint are synced with the first save, and not with each, nor for each part of one."""
    directory = tmp_path / "a" / "b" / "c"
    directory.mkdir(parents=True)
    above = set(nodes_of(tmp_path, tmp_path / "a", tmp_path / "a" / "b"))
    checkpoint = Checkpoint(v=Variable(1.0))
    checkpoint.save(str(directory / "ckpt"))
    assert above <= set(synced)
    assert len([node for node in synced if node in above]) == 3
    synced.clear()
    checkpoint.save(str(directory / "ckpt"))
    CheckpointManager(checkpoint, str(directory), 3).save()
    assert not above & set(synced)


class TestBeginOfSync:
    """The disk takes a large file while it is still written, so that its sync has less to wait for."""

    @pytest.fixture
    def begun(self, monkeypatch):
        """The sizes that files had when the disk was told to begin."""
        sizes, begin = [], on_posix.begin_sync

        def spy(descriptor):
            begin(descriptor)
            sizes.append(os.fstat(descriptor).st_size)

        monkeypatch.setattr(on_posix, "begin_sync", spy)
        return sizes

    def test_of_a_large_file(self, tmp_path, begun):
        block = np.ones(3 << 20, np.uint8)
        with STORAGE.create(str(tmp_path / "f")) as file:
            for number in range(7):
                file.write(number * block.nbytes, [block])
            file.sync()
        assert begun == [9 << 20, 18 << 20]
        assert (tmp_path / "f").read_bytes() == b"\1" * (21 << 20)

    def test_not_of_a_small_one(self, tmp_path, begun):
        with STORAGE.create(str(tmp_path / "f")) as file:
            file.write(0, [bytes(1 << 20)])
            file.sync()
        assert begun == []

    def test_a_system_without_it_writes_the_same(self, tmp_path, monkeypatch):
        monkeypatch.setattr(on_posix, "_sync_file_range", lambda: None)
        with STORAGE.create(str(tmp_path / "f")) as file:
            file.write(0, [b"1" * (9 << 20)])
            file.sync()
        assert (tmp_path / "f").read_bytes() == b"1" * (9 << 20)

    @pytest.mark.skipif(sys.platform != "linux", reason="sync_file_range is of Linux")
    def test_linux_has_it(self, tmp_path):
        call = on_posix._sync_file_range()
        with open(tmp_path / "f", "wb") as file:
            file.write(b"1" * 100)
            file.flush()
            assert call(file.fileno(), 0, 0, 2) == 0


class TestSyncOfMacOS:
    """``F_FULLFSYNC``, which here is a command that this system does or does not know."""

    def test_unsupported(self, tmp_path, monkeypatch, synced):
        """Where the file system does not support it, fsync is all there is."""
        monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
        with STORAGE.create(str(tmp_path / "f")) as file:
            file.sync()
        STORAGE.sync_directory(str(tmp_path))
        assert synced == nodes_of(tmp_path / "f", tmp_path)

    def test_supported(self, tmp_path, monkeypatch, synced):
        """Where it is, it is enough."""
        monkeypatch.setattr(fcntl, "F_FULLFSYNC", fcntl.F_GETFD, raising=False)
        STORAGE.sync_directory(str(tmp_path))
        assert synced == []

    def test_a_failure_is_not_tried_again(self, tmp_path, monkeypatch, synced):
        """What could not be written is lost; an fsync after it would say that all is well."""

        def fail(*_):
            raise OSError(errno.EIO, "failed")

        monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
        monkeypatch.setattr(fcntl, "fcntl", fail)
        with STORAGE.create(str(tmp_path / "f")) as file, pytest.raises(StorageError):
            file.sync()
        assert synced == []


FORK_AND_DIE = """
import multiprocessing, os, signal, sys, threading, time
from milepost.storage import LocalStorage, on_posix
how, path = sys.argv[1:]
def work():
    print(os.getpid(), flush=True)
    time.sleep(60)
file = LocalStorage().create(path)
file.write(0, [b"1"])
if how == "os.fork":
    if not os.fork():
        work()
else:
    multiprocessing.get_context("fork").Process(target=work).start()
time.sleep(0.2)
os.kill(os.getpid(), signal.SIGKILL)
"""


def holds_lock(directory):
    """Whether this process has a file of the directory open that is locked."""
    for name in os.listdir("/proc/self/fd"):
        if directory in os.path.realpath(f"/proc/self/fd/{name}"):
            again = os.open(f"/proc/self/fd/{name}", os.O_RDONLY)
            try:
                fcntl.flock(again, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            finally:
                os.close(again)
    return False


class TestForkedChildren:
    @pytest.mark.parametrize("how", ["os.fork", "multiprocessing"])
    def test_do_not_keep_what_a_killed_parent_wrote_in_use(self, tmp_path, how):
        """A worker that outlives its parent does not make its unfinished files look like those of a running save."""
        path = str(tmp_path / "f")
        command = [sys.executable, "-c", FORK_AND_DIE, how, path]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
            assert parent.stdout is not None
            worker = int(parent.stdout.readline())
            parent.wait()
            try:
                assert not STORAGE.in_use(path)
                os.kill(worker, 0)
            finally:
                os.kill(worker, signal.SIGKILL)

    def test_do_not_end_the_use(self, tmp_path):
        """The parent's file stays in use when a child ends, or drops what it has inherited."""
        file = STORAGE.create(str(tmp_path / "f"))
        child = os.fork()
        if not child:
            try:
                file.close()
                del file
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert STORAGE.in_use(str(tmp_path / "f"))
        file.write(0, [b"1"])
        file.close()
        assert not STORAGE.in_use(str(tmp_path / "f"))

    def test_cannot_write_what_the_parent_writes(self, tmp_path):
        """The descriptor is closed in the child, so that nothing of another file is overwritten either."""
        file = STORAGE.create(str(tmp_path / "f"))
        read, write = os.pipe()
        child = os.fork()
        if not child:
            try:
                with open(tmp_path / "other", "wb") as _:
                    file.write(0, [b"x"])
            except StorageError as error:
                os.write(write, error.problem.encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        os.close(write)
        assert b"Bad file descriptor" in os.read(read, 1000)
        os.close(read)
        file.close()
        assert (tmp_path / "f").read_bytes() == (tmp_path / "other").read_bytes() == b""

    @needs_proc
    def test_forking_while_other_threads_create_files(self, tmp_path):
        """No child comes by a lock in the moment when a file is created or closed."""
        stop = threading.Event()

        def create(name):
            for n in itertools.count():
                if stop.is_set():
                    return
                STORAGE.create(str(tmp_path / f"{name}-{n % 50}-{n}")).close()

        creators = [threading.Thread(target=create, args=(name,)) for name in ("a", "b")]
        for creator in creators:
            creator.start()
        inherited = []
        try:
            for _ in range(100):
                read, write = os.pipe()
                child = os.fork()
                if not child:
                    try:
                        os.write(write, b"locked" if holds_lock(str(tmp_path)) else b"none")
                    finally:
                        os._exit(0)
                os.close(write)
                inherited.append(os.read(read, 10000))
                os.close(read)
                os.waitpid(child, 0)
        finally:
            stop.set()
            for creator in creators:
                creator.join()
        assert set(inherited) == {b"none"}


def test_a_dropped_file_whose_descriptor_is_gone_says_nothing(tmp_path):
    """Programs that close all descriptors, and interpreters that end, get no noise from files that are collected."""
    code = (
        "import os, sys\n"
        "from milepost.storage.default import DEFAULT_STORAGE\n"
        "writer = DEFAULT_STORAGE.create(sys.argv[1])\n"
        "reader = DEFAULT_STORAGE.open(sys.argv[1])\n"
        "os.closerange(3, 100)\n"
        "del writer\n"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(tmp_path / "f")], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


class TestLinks:
    def test_the_bytes_are_synced_before_they_have_a_second_name(self, tmp_path, monkeypatch):
        """A file that was copied may not be on the disk yet."""
        (tmp_path / "f").write_bytes(b"1")
        node, seen = (tmp_path / "f").stat().st_ino, []
        sync = os.fsync
        monkeypatch.setattr(
            os, "fsync", lambda file: (seen.append((os.fstat(file).st_ino, os.listdir(tmp_path))), sync(file))
        )
        STORAGE.link(str(tmp_path / "f"), str(tmp_path / "g"))
        assert seen == [(node, ["f"])]
        assert (tmp_path / "g").stat().st_ino == node

    def test_a_symbolic_link_is_refused(self, tmp_path):
        """Its target may be changed by whoever owns it, and a link to the link would lose its target with it."""
        (tmp_path / "f").write_bytes(b"1")
        (tmp_path / "s").symlink_to("f")
        with pytest.raises(StorageError) as caught:
            STORAGE.link(str(tmp_path / "s"), str(tmp_path / "g"))
        assert caught.value.errno == errno.ENOTSUP
        assert sorted(os.listdir(tmp_path)) == ["f", "s"]

    def test_no_file_is_opened_that_never_ends(self, tmp_path):
        """A named pipe is refused at once."""
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(StorageError):
            STORAGE.link(str(tmp_path / "pipe"), str(tmp_path / "g"))

    def test_a_system_without_links(self, tmp_path, monkeypatch):
        (tmp_path / "f").write_bytes(b"1")
        monkeypatch.delattr(os, "link")
        with pytest.raises(StorageError) as caught:
            STORAGE.link(str(tmp_path / "f"), str(tmp_path / "g"))
        assert caught.value.errno == errno.ENOTSUP

    def test_a_sync_that_fails(self, tmp_path, monkeypatch):
        """There is no link then."""
        (tmp_path / "f").write_bytes(b"1")

        def fail(file):
            raise OSError(errno.EIO, "the disk is broken")

        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(StorageError):
            STORAGE.link(str(tmp_path / "f"), str(tmp_path / "g"))
        assert os.listdir(tmp_path) == ["f"]
