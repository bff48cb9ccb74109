"""The whole state of a trainer's run as one object of plain data."""

from __future__ import annotations

from typing import Any

from milepost.errors import CorruptCheckpointError


class WholeState:
    """Holds a state between a trainer and a checkpoint.

    Args:
        state: What is saved: dicts, lists, numbers, text, arrays and tensors, nested.

    Example:
        >>> import milepost, tempfile
        >>> path = milepost.Checkpoint(run=WholeState({"step": 3})).write(tempfile.mkdtemp() + "/ckpt")
        >>> restored = WholeState()
        >>> status = milepost.Checkpoint(run=restored).read(path).assert_consumed()
        >>> restored.state
        {'step': 3}
    """

    def __init__(self, state: Any = None) -> None:
        self.state = state

    def state_dict(self) -> Any:
        """What is saved. Called by milepost."""
        return self.state

    def load_state_dict(self, state: Any) -> None:
        """Takes what was saved. Called by milepost."""
        self.state = state


def members(state: Any, names: tuple[str, ...], file: str) -> dict[str, Any]:
    """A state that was read, if it is a dict with these members.

    Raises:
        CorruptCheckpointError: It is not the state of such a run.
    """
    missing = [name for name in names if not isinstance(state, dict) or name not in state]
    if missing:
        raise CorruptCheckpointError(
            "this checkpoint does not hold the run of this trainer",
            file=file,
            expected=f"a dict with {', '.join(names)}",
            found=f"a {type(state).__name__} without {', '.join(missing)}",
            remedy="resume with the trainer that saved it, or use another directory",
        )
    return dict(state)
