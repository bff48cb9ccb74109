"""Object graphs that nobody would save: refused, or read in time and memory in proportion to their size."""

import tracemalloc

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, CorruptCheckpointError, Module, UntrackableError
from milepost.deferred.table import deferred_on
from milepost.graph.contract.operation import Operation
from milepost.graph.saved.object_graph import Edge, Node, ObjectGraph, SavedValue
from milepost.graph.traversal import walk
from milepost.storage import LocalStorage
from tests.bundle.bundles import write


def checkpoint(path, graph, **values):
    """A checkpoint with this object graph, and these values beside it."""
    tensors = {"_CHECKPOINTABLE_OBJECT_GRAPH": np.array(graph.serialize(), object), **values}
    write(LocalStorage(), str(path), tensors)
    return str(path)


def value(key):
    return SavedValue("VARIABLE_VALUE", "", key)


def chain(length, name="next", *, cyclic=False):
    nodes = [Node((Edge(name, number + 1),)) for number in range(length)]
    last = Node((Edge("first", 0),) if cyclic else (), (value("x"),))
    return ObjectGraph((*nodes, last))


class TestChains:
    @pytest.mark.parametrize("cyclic", [False, True])
    def test_100000_objects_in_a_row_that_wait_are_no_problem(self, tmp_path, cyclic):
        prefix = checkpoint(tmp_path / "ckpt", chain(100_000, cyclic=cyclic), x=np.float32(3))
        root = Module()
        status = milepost.Checkpoint(root=root).read(prefix).expect_partial()
        assert [entry.key for entry in status.report().unexpected + status.report().deferred] == ["x"]

    def test_an_object_in_the_middle_takes_its_values(self, tmp_path):
        prefix = checkpoint(tmp_path / "ckpt", chain(3), x=np.float32(3))
        root = Module()
        milepost.Checkpoint(root).read(prefix)
        root.next = Module()
        root.next.next = Module()
        root.next.next.next = milepost.Variable(np.float32(0))
        assert root.next.next.next.numpy() == 3

    def test_a_save_refuses_to_take_along_what_waits_at_the_end_of_100000_objects(self, tmp_path):
        prefix = checkpoint(tmp_path / "ckpt", chain(100_000), x=np.float32(3))
        target = milepost.Checkpoint(Module())
        status = target.read(prefix)
        with pytest.raises(UntrackableError, match="path of an object is too long") as caught:
            target.write(tmp_path / "other")
        assert "32768 characters" in str(caught.value.expected)
        assert "expect_partial()" in caught.value.remedy
        assert len(str(caught.value)) < 1000
        status.expect_partial()
        target.write(tmp_path / "other")

    def test_a_live_chain_of_100000_objects_is_refused(self):
        root = bottom = Module()
        for _ in range(100_000):
            bottom.next = Module()
            bottom = bottom.next
        with pytest.raises(UntrackableError, match="path of an object is too long"):
            walk(Operation(root))


class TestManyNodes:
    def test_empty_nodes_take_little_memory(self):
        tracemalloc.start()
        graph = ObjectGraph.deserialize(b"\x0a\x00" * 100_000)
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(graph.nodes) == 100_000
        assert kept < 20 * 200_000

    def test_300000_empty_nodes_are_restored_reported_and_saved_again(self, tmp_path):
        prefix = str(tmp_path / "ckpt")
        write(LocalStorage(), prefix, {"_CHECKPOINTABLE_OBJECT_GRAPH": np.array(b"\x0a\x00" * 300_000, object)})
        root = Module()
        target = milepost.Checkpoint(root=root)
        assert target.read(prefix).report().entries == ()
        assert not deferred_on(root)
        target.write(tmp_path / "again")

    def test_an_object_that_lacks_100000_saved_values_says_so(self, tmp_path):
        count = 100_000
        names = [SavedValue(f"v{number}", "", f"w/v{number}") for number in range(count)]
        graph = ObjectGraph((Node((Edge("w", 1),)), Node((), tuple(names))))
        prefix = checkpoint(tmp_path / "ckpt", graph)
        target = milepost.Checkpoint(w=milepost.Variable(np.float32(0)))
        report = target.read(prefix).expect_partial().report()
        assert len(report.unexpected) == count


def test_types_of_plain_values_that_lie_are_bounded(tmp_path):
    tuples = [Node((Edge("0", number),), python="tuple") for number in range(2, 3000)]
    names = ("__class__", "__dict__", "_checkpoint_state", "save", "loop", "deep")
    root = Node((*(Edge(name, 1) for name in names[:4]), Edge("loop", 2), Edge("deep", 3000)), python="Checkpoint")
    nodes = (root, Node((), (value("v"),), python="int"), Node((Edge("0", 2),), python="tuple"), *tuples, Node())
    path = checkpoint(tmp_path / "ckpt", ObjectGraph(nodes), v=np.array(7))
    live = Checkpoint()
    before = dict(vars(live))
    live.read(path).expect_partial()
    assert type(live) is Checkpoint
    assert vars(live).keys() == before.keys()


def test_a_plain_value_that_is_not_of_its_type_is_refused(tmp_path):
    graph = ObjectGraph((Node((Edge("n", 1),)), Node((), (value("v"),), python="int")))
    path = checkpoint(tmp_path / "ckpt", graph, v=np.array(b"zz", object))
    live = Checkpoint(n=3)
    with pytest.raises(CorruptCheckpointError, match="not of the type"):
        live.read(path)
    assert live.n == 3
