"""Series of numbered checkpoints in a directory."""

from milepost.manager.checkpoint_manager import CheckpointManager

__all__ = ["CheckpointManager"]
