"""`torch.distributed.checkpoint`, in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch.distributed.checkpoint
from torch.distributed.checkpoint.api import CheckpointException

from benchmarks.peers.libraries.torch import InModule
from benchmarks.peers.peer import Live, distinct


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

    shares = True

    def save_share(self, path: Path, rank: int, port: int) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor

        torch.distributed.init_process_group("gloo", f"tcp://localhost:{port}", rank=rank, world_size=2)
        rows = torch.from_numpy(distinct(1, "rows")["rows"])
        state = {"rows": distribute_tensor(rows, init_device_mesh("cpu", (2,)), [Shard(0)])}
        torch.distributed.checkpoint.save(state, checkpoint_id=path)
        torch.distributed.destroy_process_group()

    def restore_shares(self, path: Path) -> Any:
        state = {"rows": torch.zeros(128, 128)}
        torch.distributed.checkpoint.load(state, checkpoint_id=path)
        return state["rows"].numpy()
