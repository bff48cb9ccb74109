"""`torch.distributed.checkpoint`, in one process."""

from __future__ import annotations

from pathlib import Path

import torch.distributed.checkpoint
from torch.distributed.checkpoint.api import CheckpointException

from benchmarks.peers.libraries.torch import InModule
from benchmarks.peers.peer import Live


class DistributedCheckpoint(InModule):
    """A state dict in a directory."""

    title = "torch DCP"
    packages = ("torch",)

    def write(self, live: Live, path: Path) -> None:
        torch.distributed.checkpoint.save(live.state_dict(), checkpoint_id=path)

    def read(self, live: Live, path: Path) -> None:
        state = live.state_dict()
        try:
            torch.distributed.checkpoint.load(state, checkpoint_id=path)
        except CheckpointException as error:  # It is no Exception.
            raise RuntimeError(str(error)) from error
        live.load_state_dict(state)

    def tell(self, live: Live, path: Path) -> str:
        self.read(live, path)
        return ""
