"""Saves, restores and managers where files that are open stay, names have no case, and directories cannot be synced.

Each test runs twice: with the functions for paths that this system has, and with those of Windows.
"""

from __future__ import annotations

import errno
import ntpath
import os
import sys
import threading
import time
import types

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, CheckpointManager, CheckpointOptions, Module, Variable
from milepost.errors import MilepostWarning, StorageError
from milepost.series.leftovers import sweep_leftovers
from milepost.storage import MemoryStorage
from milepost.testing import WindowsStorage

KEY = "v/.ATTRIBUTES/VARIABLE_VALUE"
REPLACED = ["best.data-00000-of-00002", "best.data-00001-of-00002", "best.index"]
"""New data never has the names of the data that it replaces."""


class OsOfWindows(types.ModuleType):
    """The module ``os`` as Windows has it, as far as paths go."""

    path = ntpath
    sep = "\\"
    altsep = "/"
    name = "nt"

    def __getattr__(self, name):
        return getattr(os, name)


OF_THIS_MACHINE = (
    "milepost.forks",
    *(f"milepost.storage.{name}" for name in ("local", "local_files", "system_errors")),
)


@pytest.fixture(params=["here", "windows"], autouse=True)
def own_os(request, monkeypatch):
    """What milepost's modules know as ``os``."""
    if request.param == "here":
        return os
    replaced = OsOfWindows("os")
    modules = [module for name, module in sorted(sys.modules.items()) if name.startswith("milepost.")]
    for module in modules:
        if getattr(module, "os", None) is os and module.__name__ not in OF_THIS_MACHINE:
            monkeypatch.setattr(module, "os", replaced)
    return replaced


@pytest.fixture
def storage(request):
    return getattr(request, "param", WindowsStorage)()


@pytest.fixture
def options(storage):
    return CheckpointOptions(storage=storage)


def value(path, storage):
    return int(milepost.load_variable(path, KEY, options=CheckpointOptions(storage=storage)))


def names(storage, directory, ending=""):
    return [name for name in storage.list(directory) if name.endswith(ending)]


@pytest.mark.parametrize("storage", [WindowsStorage, MemoryStorage], indirect=True)
@pytest.mark.parametrize(
    "directory", ["C:\\runs\\first", "C:/runs/first", "runs\\first", "runs/first", "\\\\server\\share\\run"]
)
class TestPaths:
    def test_a_series_is_saved_listed_and_restored(self, directory, storage, options, own_os):
        if own_os.sep == "/" and "\\" in directory:
            pytest.skip("a path of Windows")
        own = Checkpoint(v=Variable(0))
        manager = CheckpointManager(own, directory, max_to_keep=2, options=options)
        for number in range(1, 5):
            own.v.assign(number)
            saved = manager.save()
        assert saved == own_os.path.join(directory, "ckpt-4")
        assert manager.checkpoints == [own_os.path.join(directory, f"ckpt-{number}") for number in (3, 4)]
        assert milepost.latest_checkpoint(directory, options=CheckpointOptions(storage=storage)) == saved
        assert names(storage, directory, ".index") == ["ckpt-3.index", "ckpt-4.index"]
        fresh = Checkpoint(v=Variable(0))
        again = CheckpointManager(fresh, directory, max_to_keep=2, options=options)
        assert again.restore_or_initialize() == saved
        assert int(fresh.v) == 4
        assert again.save() == own_os.path.join(directory, "ckpt-5")
        assert isinstance(storage, MemoryStorage) or storage.open_files() == []

    def test_plain_saves(self, directory, storage, options, own_os):
        if own_os.sep == "/" and "\\" in directory:
            pytest.skip("a path of Windows")
        own = Checkpoint(v=Variable(1))
        saved = own.save(own_os.path.join(directory, "model"), options)
        assert own.save(own_os.path.join(directory, "model"), options).endswith("model-2")
        Checkpoint(v=Variable(0)).restore(saved, options).assert_consumed()
        assert milepost.tensorflow1.remove_checkpoint(saved, options=CheckpointOptions(storage=storage))
        assert names(storage, directory, ".index") == ["model-2.index"]


class TestStateFile:
    def text(self, storage, directory="C:/run"):
        file = storage.open(f"{directory}/checkpoint")
        try:
            return file.read(0, file.size).decode()
        finally:
            file.close()

    def test_it_says_slashes(self, storage, own_os):
        """A directory is read on any system, wherever its list was written."""
        storage.make_directory("C:/run/inner")
        inner = own_os.path.join("run", "inner", "ckpt-1")
        milepost.tensorflow1.update_checkpoint_state("run", inner, options=CheckpointOptions(storage=storage))
        text = self.text(storage, "run")
        assert 'model_checkpoint_path: "inner/ckpt-1"' in text
        state = milepost.get_checkpoint_state("run", options=CheckpointOptions(storage=storage))
        assert state is not None
        assert state.model_checkpoint_path == inner

    def test_what_tensorflow_writes_on_windows(self, storage, own_os):
        if own_os.sep == "/":
            pytest.skip("a path of Windows")
        saved = Checkpoint(v=Variable(3)).save("C:\\run\\inner\\ckpt", CheckpointOptions(storage=storage))
        for written in ("inner\\\\ckpt-1", "C:\\\\run\\\\inner\\\\ckpt-1", "C:/run/inner/ckpt-1"):
            storage.remove("C:/run/checkpoint")
            with storage.create("C:/run/checkpoint") as file:
                file.write(0, [f'model_checkpoint_path: "{written}"\n'.encode()])
            found = milepost.latest_checkpoint("C:\\run", options=CheckpointOptions(storage=storage))
            assert found is not None
            assert ntpath.normcase(found) == ntpath.normcase(saved)

    def test_another_drive(self, storage, own_os):
        """There is no way from one drive to another, so the path is written whole."""
        if own_os.sep == "/":
            pytest.skip("a path of Windows")
        milepost.tensorflow1.update_checkpoint_state(
            "C:\\run", "D:\\other\\ckpt-1", options=CheckpointOptions(storage=storage)
        )
        assert 'model_checkpoint_path: "D:/other/ckpt-1"' in self.text(storage)
        CheckpointManager(Checkpoint(v=Variable(1)), "C:\\run", 3, options=CheckpointOptions(storage=storage)).save()
        assert value("C:\\run\\ckpt-1", storage) == 1

    def test_a_reader_that_closes_it_soon_is_waited_for(self, options, own_os):
        """Who polls a directory has its list open for a moment, in which it cannot be replaced."""
        storage = options.storage = WindowsStorage(patience=5)
        own = Checkpoint(v=Variable(1))
        own.save("run/ckpt", options)
        reader = storage.open("run/checkpoint")
        threading.Timer(0.1, reader.close).start()
        assert own.save("run/ckpt", options) == "run/ckpt-2"
        assert "ckpt-2" in self.text(storage, "run")

    def test_polling_and_saving(self, options, own_os):
        storage = options.storage = WindowsStorage(patience=5)
        own = Checkpoint(v=Variable(0))
        manager = CheckpointManager(own, "run", max_to_keep=2, options=options)
        manager.save()
        stop = threading.Event()
        seen, wrong = set(), []

        def poll():
            while not stop.is_set():
                try:
                    seen.add(milepost.latest_checkpoint("run", options=CheckpointOptions(storage=storage)))
                except Exception as error:
                    wrong.append(error)
                time.sleep(0.001)

        poller = threading.Thread(target=poll)
        poller.start()
        try:
            for _ in range(20):
                manager.save()
        finally:
            stop.set()
            poller.join()
        assert wrong == []
        assert None not in seen
        assert manager.checkpoints == [own_os.path.join("run", f"ckpt-{number}") for number in (20, 21)]


class TestOpenFiles:
    def test_a_checkpoint_that_is_being_read_is_pruned_later(self, storage, options, own_os):
        """Pruning says that it could not be done, keeps it on the list, and does it when the reader is gone."""
        own = Checkpoint(v=Variable(1))
        manager = CheckpointManager(own, "run", max_to_keep=1, options=options)
        first = manager.save()
        reader = milepost.load_checkpoint(first, options=CheckpointOptions(storage=storage))
        with pytest.warns(MilepostWarning, match="older checkpoints could not be removed"):
            second = manager.save()
        assert manager.checkpoints == [first, second]
        assert int(reader.get_tensor(KEY)) == 1
        del reader
        third = manager.save()
        assert manager.checkpoints == [third]
        assert names(storage, "run", ".index") == ["ckpt-3.index"]
        assert len(names(storage, "run")) == 3

    def test_a_restore_that_waits_gets_its_values(self, storage, options):
        """A value that comes late is there, however many checkpoints were saved meanwhile."""
        own = Checkpoint(v=Variable(7))
        manager = CheckpointManager(own, "run", max_to_keep=1, options=options)
        first = manager.save()
        late = Checkpoint()
        status = late.read(first, options)
        with pytest.warns(MilepostWarning, match="could not be removed"):
            manager.save()
        late.v = Variable(0)
        assert int(late.v) == 7
        status.expect_partial()  # of the number of saves
        assert storage.open_files() == []
        manager.save()
        assert names(storage, "run", ".index") == ["ckpt-3.index"]

    def test_a_prefix_that_is_being_read_is_not_replaced(self, storage, options):
        """The save fails, what was there is whole, nothing is left over, and it works when the reader is gone."""
        path = Checkpoint(v=Variable(1)).write("run/best", options)
        before = storage.list("run")
        reader = milepost.load_checkpoint(path, options=CheckpointOptions(storage=storage))
        with pytest.raises(StorageError) as caught:
            Checkpoint(v=Variable(2)).write("run/best", options)
        assert caught.value.errno == errno.EACCES
        assert caught.value.remedy
        assert int(reader.get_tensor(KEY)) == 1
        assert storage.list("run") == before
        assert value(path, storage) == 1
        del reader
        Checkpoint(v=Variable(2)).write("run/best", options)
        assert value(path, storage) == 2
        assert names(storage, "run") == REPLACED

    def test_data_of_a_replaced_checkpoint_goes_later(self, storage, options):
        """Who reads only data keeps that alive; the next save removes what the first could not."""
        path = Checkpoint(v=Variable(1)).write("run/best", options)
        data = storage.open("run/best.data-00000-of-00001")
        with pytest.warns(MilepostWarning, match="data of the checkpoint that it replaced cannot be removed"):
            Checkpoint(v=Variable(2)).write("run/best", options)
        assert value(path, storage) == 2
        data.close()
        sweep_leftovers(storage, "run")
        assert names(storage, "run") == REPLACED
        assert value(path, storage) == 2

    def test_saves_leave_nothing_open_and_nothing_behind(self, storage, options, own_os):
        own = Checkpoint(v=Variable(0), w=Variable(np.zeros(1000)))
        asynchronous = CheckpointOptions(storage=storage, enable_async=True)
        manager = CheckpointManager(own, "run", max_to_keep=2, options=asynchronous)
        for _ in range(5):
            manager.save()
        own.sync()
        assert storage.open_files() == []
        assert len(names(storage, "run")) == 5
        assert names(storage, "run", ".tmp") == []

    def test_what_a_killed_save_leaves_is_removed(self, storage, options):
        """Its files are closed when its process ends."""
        own = Checkpoint(v=Variable(1))
        own.save("run/ckpt", options)
        for name in ("ckpt-2.data-00000-of-00001", "ckpt-2.index.milepost-0123456789abcdef-of-00001.tmp"):
            storage.create(f"run/{name}").close()
        CheckpointManager(own, "run", max_to_keep=2, options=options)
        assert names(storage, "run", ".index") == ["ckpt-1.index"]
        assert len(names(storage, "run")) == 3

    def test_weights(self, storage, options):
        module = Module()
        module.v = Variable(4)
        path = milepost.Checkpoint(module).write("run/weights", options=options)
        module.v.assign(5)
        milepost.Checkpoint(module).write("run/weights", options=options)
        module.v.assign(0)
        milepost.Checkpoint(module).read(path, options=options)
        assert int(module.v) == 5


class TestNames:
    @pytest.mark.parametrize("name", ["nul", "run/con", "12:30/ckpt", "a?b", 'say "hi"', "run./ckpt", "LPT1.old/ckpt"])
    def test_names_that_windows_does_not_allow_are_refused(self, name, storage, options):
        """Windows would write elsewhere, or nowhere, without an error."""
        own = Checkpoint(v=Variable(1))
        with pytest.raises(StorageError) as caught:
            own.write(name, options)
        assert caught.value.errno == errno.EINVAL
        assert "Windows" in str(caught.value)
        assert own.save("good", options) == "good-1"
        assert milepost.latest_checkpoint(name, options=CheckpointOptions(storage=storage)) is None
        assert not milepost.tensorflow1.checkpoint_exists(name, options=CheckpointOptions(storage=storage))

    def test_case_does_not_matter(self, storage, options, own_os):
        """A checkpoint is found, and replaced whole, under a name of another case."""
        path = Checkpoint(v=Variable(1)).write("Run/Best", options)
        assert path == "Run/Best"
        assert value("run/best", storage) == 1
        Checkpoint(v=Variable(2)).write("RUN/best", options)
        assert value("Run/Best", storage) == 2
        assert len(names(storage, "run", ".index")) == 1
