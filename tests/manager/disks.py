"""Storages that fail or hang when a test says so, on the real file system."""

from __future__ import annotations

import errno
import threading
from typing import Any, Literal

from milepost import StorageError
from milepost.storage import LocalStorage


class Disk(LocalStorage):
    """The file system of this machine, whose files can be created when all is well.

    Attributes:
        trouble: What happens to a new file: nothing, the disk is full, or the disk does not answer until the trouble ends.
    """

    def __init__(self) -> None:
        super().__init__()
        self.trouble: Literal["", "full", "hangs"] = ""
        self._answers = threading.Event()

    def create(self, path: str) -> Any:
        if self.trouble == "full":
            raise StorageError("cannot create: No space left on device", errno=errno.ENOSPC, file=path)
        if self.trouble == "hangs":
            self._answers.wait()
        return super().create(path)

    def fill(self) -> None:
        """Lets every new file fail."""
        self.trouble = "full"

    def recover(self) -> None:
        """Ends the trouble. What hangs goes on."""
        self.trouble = ""
        self._answers.set()
        self._answers = threading.Event()
