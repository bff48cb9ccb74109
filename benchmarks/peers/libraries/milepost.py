"""milepost: `Checkpoint` and `CheckpointManager`."""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import milepost
from benchmarks.peers.exploit import pickled
from benchmarks.peers.peer import Late, Live, Peer, Values, distinct


class _Late(milepost.Module):
    """A layer that makes its kernel when it is first called."""

    def __init__(self) -> None:
        self.bias = milepost.Variable(np.random.default_rng().normal(size=8).astype(np.float32))

    def __call__(self, x: Any) -> Any:
        if not hasattr(self, "kernel"):
            self.kernel = milepost.Variable(np.random.default_rng().normal(size=(x.shape[-1], 8)).astype(np.float32))
        return x @ self.kernel + self.bias


def _attached(make: Callable[[], Any]) -> Callable[[], Live]:
    return lambda: milepost.Checkpoint(model=make())


def _to_model(call: Callable[[Any], object]) -> Callable[[Live], object]:
    return lambda live: call(live.model)


class Milepost(Peer):
    """Variables, and models of PyTorch and Keras where those are installed."""

    title = "milepost"
    packages = ("milepost",)

    def hold(self, values: Values) -> Live:
        return milepost.Checkpoint(**{name: milepost.Variable(value) for name, value in values.items()})

    def values(self, live: Live) -> Values:
        if hasattr(live, "model"):
            return self._of_model(live.model)
        held = {name: value for name, value in vars(live).items() if isinstance(value, milepost.Variable)}
        return {name: np.array(value) for name, value in held.items() if name != "save_counter"}

    def _of_model(self, model: Any) -> Values:
        if isinstance(model, _Late):
            return {name: np.array(variable) for name, variable in vars(model).items()}
        if hasattr(model, "weights") or hasattr(model, "variables"):
            weights = model.weights if hasattr(model, "weights") else model.variables
            return {str(number): weight.numpy() for number, weight in enumerate(weights)}
        return {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}

    def write(self, live: Live, path: Path) -> None:
        live.write(path)

    def read(self, live: Live, path: Path) -> None:
        live.read(path)

    def map(self, path: Path) -> object:
        return milepost.load(path, mapped=True)

    def tell(self, live: Live, path: Path) -> str:
        try:
            return str(live.read(path).report())
        except milepost.MismatchError as error:
            return str(error.report)

    def save_next(self, live: Live, folder: Path, number: int) -> None:
        # All saves stand for those of one run, although each has objects of its own.
        options = milepost.CheckpointOptions(overwrite=True)
        milepost.CheckpointManager(live, folder, max_to_keep=5, options=options).save(checkpoint_number=number)

    def restore_newest(self, live: Live, folder: Path) -> None:
        if milepost.CheckpointManager(live, folder, max_to_keep=5).restore_or_initialize() is None:
            raise FileNotFoundError(folder)

    def unbuilt(self) -> Mapping[str, Late]:
        kinds = {"a milepost.Module": Late(_Late, lambda model: model(np.ones((2, 4), np.float32)))}
        if importlib.util.find_spec("torch"):
            from benchmarks.peers.libraries import torch

            kinds |= torch.unbuilt()
        if importlib.util.find_spec("keras") and importlib.util.find_spec("tensorflow"):
            from benchmarks.peers.libraries import tensorflow

            kinds |= tensorflow.unbuilt()
        return {kind: Late(_attached(make), _to_model(call)) for kind, (make, call) in kinds.items()}

    shares = True

    def save_share(self, path: Path, rank: int, port: int) -> None:
        import torch
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor

        torch.distributed.init_process_group("gloo", f"tcp://localhost:{port}", rank=rank, world_size=2)
        rows = torch.from_numpy(distinct(1, "rows")["rows"])
        milepost.Checkpoint(rows=distribute_tensor(rows, init_device_mesh("cpu", (2,)), [Shard(0)])).write(path)
        torch.distributed.destroy_process_group()

    def restore_shares(self, path: Path) -> Any:
        rows = milepost.Variable(np.zeros((128, 128), np.float32))
        milepost.Checkpoint(rows=rows).read(path).assert_consumed()
        return rows.numpy()

    def exploits(self, path: Path, code: str) -> list[tuple[str, Callable[[], object]]]:
        def of_torch() -> None:
            file = path.with_suffix(".pt")
            with zipfile.ZipFile(file, "w") as archive:
                archive.writestr("archive/data.pkl", pickled(code))
                archive.writestr("archive/version", "3\n")
            milepost.Checkpoint(model=milepost.Variable(0.0)).read(file)

        return [("a file of torch.save", of_torch)]
