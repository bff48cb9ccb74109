"""A coordinator on MPI, for programs that `mpi4py` connects.

::

    message = kind length topic data        one message of MPI, on a communicator of milepost's own
    kind    = 1 byte: a post, or what clears one
    length  = 2 bytes, little-endian, of the topic

The communicator is a duplicate of ``MPI.COMM_WORLD``, so that no receive of the program takes a message of milepost. It is made
in the background (`Idup`). No other collective operation is used, so a process that does not take part is reported as missing, and the
others do not wait for it forever. MPI moves a large message only while both processes call MPI, so a thread calls it while a message
is in transit.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from typing import Any, Final

from milepost.adapters.coordinators import COORDINATORS
from milepost.coordination import Coordinator
from milepost.coordination.polling import poll
from milepost.errors import CoordinationError
from milepost.threads import ThreadCall

_POST: Final = b"p"
_CLEAR: Final = b"c"
_HEAD: Final = 3
_SHORTEST, _LONGEST = 0.0002, 0.02
"""Seconds between two looks for a message: few at first, then more."""
_AT_THE_END: Final = 10.0
"""How long a program that has ended tries to deliver its last messages, in seconds."""


class MPICoordinator:
    """A `Coordinator` on MPI.

    Args:
        mpi: The module ``mpi4py.MPI``, initialized.

    Raises:
        CoordinationError: MPI was initialized without support for threads.
    """

    library = "MPI"

    def __init__(self, mpi: Any) -> None:
        if mpi.Query_thread() < mpi.THREAD_MULTIPLE:
            raise CoordinationError(
                "MPI was initialized without the thread support that milepost needs to exchange messages during training",
                expected="MPI.THREAD_MULTIPLE, which mpi4py asks for by default",
                found=f"thread level {mpi.Query_thread()} of {mpi.THREAD_MULTIPLE}",
                remedy="leave mpi4py.rc.thread_level as it is, or name another coordinator, for example "
                "CheckpointOptions(coordinator=FileCoordinator(directory, rank, size))",
            )
        self._mpi = mpi
        self.rank = int(mpi.COMM_WORLD.Get_rank())
        self.size = int(mpi.COMM_WORLD.Get_size())
        self._lock = threading.Lock()
        self._communicator, self._making = mpi.COMM_WORLD.Idup()
        self._received: dict[tuple[int, str], bytes] = {}
        self._to_send: deque[tuple[int, bytes]] = deque()  # until the communicator is made
        self._sending: list[tuple[Any, bytes]] = []  # MPI reads the bytes until it is done
        self._receiving: dict[int, deque[tuple[Any, bytearray]]] = {}
        self._moving: ThreadCall | None = None

    def post(self, topic: str, message: bytes) -> None:
        """Posts a message; see `Coordinator.post`."""
        self._send(_POST, topic, bytes(message))

    def wait(self, topic: str, rank: int, timeout: float) -> bytes | None:
        """Waits for a message; see `Coordinator.wait`."""

        def look() -> bytes | None:
            with self._lock:
                self._move()
                return self._received.get((rank, topic))

        return poll(look, timeout, _SHORTEST, _LONGEST)

    def clear(self, topic: str) -> None:
        """Removes a message of this process; see `Coordinator.clear`."""
        self._send(_CLEAR, topic, b"")

    def _send(self, kind: bytes, topic: str, data: bytes) -> None:
        name = topic.encode()
        message = kind + len(name).to_bytes(_HEAD - 1, "little") + name + data
        with self._lock:
            self._take(self.rank, message)
            receivers = range(1, self.size) if self.rank == 0 else [0]
            self._to_send.extend((receiver, message) for receiver in receivers)
            self._move()
            if (self._to_send or self._sending) and self._moving is None:
                moving = ThreadCall(self._move_all, "milepost-mpi")
                moving.start()
                self._moving = moving  # which cannot end before, because it needs the lock

    def _move_all(self) -> None:
        """Completes all sends and receives. The interpreter waits for this thread when the program ends."""
        pause, end = _SHORTEST, None
        while True:
            if end is None and not threading.main_thread().is_alive():
                end = time.monotonic() + _AT_THE_END
            with self._lock:
                self._move()
                is_late = end is not None and time.monotonic() > end
                if is_late or not (self._to_send or self._sending):
                    self._moving = None
                    return
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST)

    def _move(self) -> None:
        """Sends and receives what can be sent and received now. The caller has the lock."""
        if self._making is not None:
            if not self._making.Test():
                return
            self._making = None
        mpi, communicator = self._mpi, self._communicator
        while self._to_send:
            receiver, message = self._to_send.popleft()
            self._sending.append((communicator.Isend([message, mpi.BYTE], dest=receiver), message))
        self._sending = [sent for sent in self._sending if not sent[0].Test()]
        status = mpi.Status()
        while (incoming := communicator.Improbe(source=mpi.ANY_SOURCE, tag=mpi.ANY_TAG, status=status)) is not None:
            buffer = bytearray(status.Get_count(mpi.BYTE))
            waiting = self._receiving.setdefault(status.Get_source(), deque())
            waiting.append((incoming.Irecv([buffer, mpi.BYTE]), buffer))
        for sender, waiting in self._receiving.items():
            while waiting and waiting[0][0].Test():  # a later message is not taken before an earlier one
                self._take(sender, bytes(waiting.popleft()[1]))

    def _take(self, sender: int, message: bytes) -> None:
        end = _HEAD + int.from_bytes(message[1:_HEAD], "little")
        topic = message[_HEAD:end].decode()
        if message[:1] == _POST:
            self._received[sender, topic] = message[end:]
        else:
            self._received.pop((sender, topic), None)


_made: MPICoordinator | None = None
_making: Final = threading.Lock()


def mpi_coordinator() -> Coordinator | None:
    """The coordinator of ``MPI.COMM_WORLD``, if the program has initialized MPI and has more than one process.

    Raises:
        CoordinationError: MPI was initialized without support for threads.
    """
    global _made
    mpi: Any = sys.modules.get("mpi4py.MPI")
    if mpi is None or not mpi.Is_initialized() or mpi.Is_finalized() or mpi.COMM_WORLD.Get_size() < 2:
        return None
    with _making:
        if _made is None:
            _made = MPICoordinator(mpi)
        return _made


COORDINATORS["mpi4py"] = mpi_coordinator
