"""`DataPosition`: the position of a loader as an object with a state, for training loops without a trainer."""

from __future__ import annotations

from typing import Any

from milepost.adapters.random_state import global_state
from milepost.trainers.loaders import LoaderPosition
from milepost.trainers.prepared import PreparedPosition


class DataPosition:
    """The position of a ``DataLoader`` within its pass, for a checkpoint.

    Make it before the loader is read. It has ``state_dict`` and ``load_state_dict``, so it can be an attribute of a
    `milepost.Checkpoint`, or be passed to ``accelerator.register_for_checkpointing()``. After a restore, the next ``iter(loader)``
    continues with the batch after the last one that the loop has seen. At the end of a pass there is none, and it starts a new pass.
    A pass also ends when the loop is left, such as by ``break`` or by a shorter loader in ``zip()``: when no variable holds its
    iterator any more.

    The batches before that are read again, unless the pass has ended. Save a `milepost.RandomState` too: batches that are
    made with random numbers, and the order of later passes, depend on it.

    Args:
        loader: A ``DataLoader`` of PyTorch, also one that ``accelerator.prepare()`` has returned.

    Raises:
        UnsupportedError: The data holds an iterator, so it cannot be read twice.

    Example:
        >>> from torch.utils.data import DataLoader
        >>> loader = DataLoader(range(6), batch_size=2)
        >>> position = DataPosition(loader)
        >>> batches = iter(loader)
        >>> next(batches)
        tensor([0, 1])
        >>> saved = position.state_dict()
        >>> position.load_state_dict(saved)
        >>> next(iter(loader))
        tensor([2, 3])
    """

    def __init__(self, loader: Any) -> None:
        self._position = PreparedPosition(loader) if hasattr(loader, "base_dataloader") else _Plain(loader)

    def state_dict(self) -> dict[str, Any]:
        """The position, as plain data."""
        return self._position.state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes to a position that `state_dict` returned."""
        self._position.load(state)


class _Plain:
    """The position of a loader that is not prepared."""

    def __init__(self, loader: Any) -> None:
        self._position = LoaderPosition(loader)

    def state(self) -> dict[str, Any]:
        position = self._position
        return {"position": position.state(ended=position.has_ended or not position.is_being_read)}

    def load(self, state: dict[str, Any]) -> None:
        self._position.load(state["position"], global_state())
        self._position.arrived()  # the program restores the random state itself
