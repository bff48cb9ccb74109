"""The libraries of the table, a module each."""

from __future__ import annotations

import importlib

from benchmarks.peers.peer import Peer

COLUMNS = {
    "milepost": "milepost:Milepost",
    "tf.train.Checkpoint": "tensorflow:TensorFlow",
    "Orbax": "orbax:Orbax",
    "torch DCP": "dcp:DistributedCheckpoint",
    "torch.save": "torch:TorchSave",
    "safetensors": "safetensors:Safetensors",
    "Keras 3 weights": "keras:KerasWeights",
    "Keras 3 models": "keras:KerasModel",
}
CONTROLS = {"a plain file": "plain:PlainFile"}
"""What is in no table, and shows that the experiments find what is wrong."""


def peer(title: str) -> Peer:
    """The peer of a column, or a control."""
    module, _, name = (COLUMNS | CONTROLS)[title].partition(":")
    found: Peer = getattr(importlib.import_module(f"{__name__}.{module}"), name)()
    return found
