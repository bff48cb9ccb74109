"""Ctrl-C at every line of the storage of this machine: no file stays open, and no thread waits for ever."""

import os

from milepost.storage import LocalStorage
from tests import interrupts


def use(directory):
    storage, path = LocalStorage(), f"{directory}/file"
    with storage.create(path) as new:
        new.write(0, [b"bytes"])
        new.sync()
        assert storage.in_use(path)
    storage.rename(path, path + "s")
    storage.link(path + "s", path)
    storage.sync_directory(directory)
    file = storage.open(path)
    assert file.read(0, 5) == b"bytes"
    file.close()
    storage.remove(path)


def check(directory):
    def again():
        for name in os.listdir(directory):
            assert not LocalStorage().in_use(f"{directory}/{name}")
            os.remove(f"{directory}/{name}")
        use(directory)

    interrupts.in_other_thread(again)


def test_files_are_closed_wherever_an_interrupt_comes():
    assert interrupts.found(str, use, check) == []
