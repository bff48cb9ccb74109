"""The libraries of the table, a module each."""

from __future__ import annotations

import importlib

from benchmarks.peers.peer import Peer

COLUMNS = {
    "milepost": ("milepost:Milepost",),
    "tf.train.Checkpoint": ("tensorflow:TensorFlow",),
    "Orbax": ("orbax:Orbax",),
    "torch DCP": ("dcp:DistributedCheckpoint",),
    "torch.save": ("torch:TorchSave",),
    "safetensors": ("safetensors:Safetensors",),
    "Keras 3 weights": ("keras:KerasWeights",),
    "Keras 3 models": ("keras:KerasModel",),
}


def peer(title: str) -> Peer:
    """The peer of a column."""
    module, _, name = COLUMNS[title][0].partition(":")
    found: Peer = getattr(importlib.import_module(f"{__name__}.{module}"), name)()
    return found
