"""Tuples that are in more places than a file has bytes."""

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, UnsupportedError, Variable
from milepost.graph.saved.object_graph import Edge, Node, ObjectGraph
from milepost.storage.default import DEFAULT_STORAGE
from tests.bundle.bundles import write


def test_a_restore_ends_soon(tmp_path):
    levels = [Node(tuple(Edge(str(n), each + 1) for n in range(10)), python="tuple") for each in range(1, 61)]
    graph = ObjectGraph((Node((Edge("t", 1),), python="Checkpoint"), *levels, Node((), python="tuple")))
    path = tmp_path / "ckpt"
    write(DEFAULT_STORAGE, str(path), {"_CHECKPOINTABLE_OBJECT_GRAPH": np.array(graph.serialize(), object)})
    live = Checkpoint(a=Variable(0.0))
    live.t = None
    with pytest.raises(UnsupportedError, match="so many places"):
        live.read(path)
    assert live.t is None
    assert len(milepost.load(path)["t"]) == 10
