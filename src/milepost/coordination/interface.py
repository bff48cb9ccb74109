"""How the processes of one program exchange the small messages by which they save and restore together.

Process 0 leads: what it posts reaches all processes, and what another process posts reaches process 0. Nothing else is
needed, because process 0 collects what the others have to say, decides, and posts the decision. A post is a small message, of
bytes to some megabytes, under a topic. Each topic is used for one post of each process, or for a series of posts of which only
the latest counts.
"""

from __future__ import annotations

from typing import Protocol


class Coordinator(Protocol):
    """Exchanges messages between the processes of one program, for ``CheckpointOptions(coordinator=...)``.

    Any class with these members is a coordinator. It need not derive from this class. All methods may be called from
    any thread, and use neither the devices of the training nor its groups for collective operations.
    `milepost.testing.coordinator_suite` tests one.

    Attributes:
        rank: The number of this process, from 0.
        size: How many processes there are.
        library: What connects them, for messages, such as ``torch.distributed``.
    """

    rank: int
    size: int
    library: str

    def post(self, topic: str, message: bytes) -> None:
        """Posts a message: one of process 0 to all processes, one of another process to process 0.

        It does not wait for a reader. A later post under the same topic replaces the earlier one.

        Args:
            topic: What the message is about: letters, digits and ``/-_.``, at most 200 characters.
            message: Any bytes. The message may be empty.

        Raises:
            OSError: The processes are not connected any more. Other exceptions of the library have the same effect.
        """
        ...

    def wait(self, topic: str, rank: int, timeout: float) -> bytes | None:
        """Waits for the message that a process posts under a topic. Every call returns it again, until it is cleared.

        Args:
            topic: What the message is about.
            rank: The process that posts it: 0, or any process where this is process 0.
            timeout: Seconds. With 0, looks once.

        Returns:
            The message, or None if there is none when the time has passed.

        Raises:
            OSError: The processes are not connected any more. Other exceptions of the library have the same effect.
        """
        ...

    def clear(self, topic: str) -> None:
        """Removes the message that this process has posted under a topic. It does nothing if there is none."""
        ...
