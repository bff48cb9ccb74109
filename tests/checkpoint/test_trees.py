"""A tree of values is saved and loaded without an object that holds it."""

import math
import warnings
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import milepost
from milepost.graph.keys import OBJECT_GRAPH
from milepost.graph.saved.object_graph import Edge, Node, ObjectGraph
from milepost.storage import MemoryStorage

Point = namedtuple("Point", "x y")
ARRAYS = st.sampled_from([np.float32, np.int64, np.bool_, ml_dtypes.bfloat16, np.complex64]).flatmap(
    lambda dtype: hnp.arrays(np.int8, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)).map(
        lambda array: array.astype(dtype)
    )
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | ARRAYS
)
TREES = st.recursive(
    LEAVES,
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(st.text(max_size=4), below, max_size=3)
        | st.dictionaries(st.integers(), LEAVES, max_size=2)
        | st.tuples(below, below)
        | st.builds(Point, below, below)
        | st.sets(st.integers(), max_size=3)
    ),
    max_leaves=8,
)


def same(a, b):
    """Whether two trees have the same types, structure and values."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def loaded(tree, **options):
    """What comes back of a tree."""
    storage = MemoryStorage()
    milepost.save("tree", tree, milepost.CheckpointOptions(storage=storage))
    return milepost.load("tree", options=milepost.CheckpointOptions(storage=storage), **options)


@given(TREES)
def test_a_tree_comes_back_as_it_was(tree):
    assert same(loaded(tree), tree)


@pytest.mark.parametrize(
    "tree",
    [
        {".value": 1},
        {"__dict__": 1, "a": [2]},
        {"": 1, "a/b": 2, "c.d": 3, ".S": 4},
        {"\0": None, "a": {"\0b": 1}},
        {1: "a", "1": "b"},
        {"a": deque([1, 2], 3), "b": defaultdict(list, {1: [2]}), "c": Counter("aab"), "d": bytearray(b"ab")},
        [{"a": {1, 2}}, {3: 4}],
        OrderedDict(b=1, a=2),
        {"numpy": np.float32(1.5), "text": np.str_("a")},
        2**100,
        -math.inf,
    ],
)
def test_unusual_trees_come_back_as_they_were(tree):
    assert same(loaded(tree), tree)


def test_the_attributes_of_an_ordered_dict_come_back():
    """PyTorch keeps versions in them."""
    tree = OrderedDict(weight=np.ones(2))
    tree._metadata = {"": {"version": 2}}
    assert loaded({"model": tree})["model"]._metadata == {"": {"version": 2}}


def test_an_array_in_two_places_is_one():
    array = np.ones(3)
    tree = loaded({"a": array, "b": [array]})
    assert tree["a"] is tree["b"][0]


def test_keys_are_paths_in_the_tree(tmp_path):
    milepost.save(tmp_path / "tree", {"layers": [{"w": np.ones(2)}], "step": 3})
    assert milepost.list_variables(tmp_path / "tree")[1:] == [
        ("layers/0/w/.ATTRIBUTES/VARIABLE_VALUE", [2]),
        ("step/.ATTRIBUTES/VARIABLE_VALUE", []),
    ]


def test_tensorflow_reads_the_arrays(tmp_path):
    tf = pytest.importorskip("tensorflow")
    milepost.save(tmp_path / "tree", {"w": np.arange(3.0), "s": {1, 2}})
    assert tf.train.load_variable(str(tmp_path / "tree"), "w/.ATTRIBUTES/VARIABLE_VALUE").tolist() == [0, 1, 2]


def test_an_object_restores_from_a_tree():
    storage = MemoryStorage()
    options = milepost.CheckpointOptions(storage=storage)
    milepost.save("tree", {"net": {"w": np.ones(2, np.float32)}, "step": 3}, options)
    live = milepost.Checkpoint(net=milepost.Checkpoint(w=milepost.Variable([0.0, 0.0])), step=0)
    live.read("tree", options).assert_consumed()
    assert (live.net.w.numpy().tolist(), live.step) == ([1, 1], 3)


@pytest.mark.parametrize(
    ("tree", "found"),
    [
        ([1, milepost.Variable(2)], {"0": 1, "1": 2}),
        ((milepost.Variable(2),), {"0": 2}),
        ([[milepost.Variable(2)]], {"0": {"0": 2}}),
        (Point(milepost.Variable(2), 1), {"x": 2, "y": 1, "0": 2, "1": 1}),
    ],
    ids=["list", "tuple", "inside", "named tuple"],
)
def test_containers_of_objects_come_back_as_dicts(tmp_path, tree, found):
    assert milepost.load(milepost.save(tmp_path / "c", {"it": tree})) == {"it": found}


def test_objects_come_back_as_dicts_of_their_values():
    storage = MemoryStorage()
    options = milepost.CheckpointOptions(storage=storage)
    live = milepost.Checkpoint(net=milepost.Checkpoint(w=milepost.Variable([1.0])), sizes=[3, 4])
    live.write("ckpt", options)
    assert same(
        milepost.load("ckpt", options=milepost.CheckpointOptions(storage=storage)),
        {"net": {"w": np.ones(1, np.float32)}, "sizes": [3, 4]},
    )


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [lambda: 1]}, "a/0"),
        ({"a": object()}, "a"),
        ([print], "0"),
        ({"a": int}, "a"),
        ({"a": {1: object()}}, ""),
    ],
)
def test_what_is_no_value_is_refused_with_its_path(tmp_path, value, path):
    with pytest.raises(milepost.MilepostError) as caught:
        milepost.save(tmp_path / "tree", value)
    assert path in str(caught.value.key)
    assert not list(tmp_path.iterdir())


def test_a_tree_that_holds_itself_is_refused(tmp_path):
    tree = {"a": []}
    tree["a"].append(tree)
    with pytest.raises(milepost.UntrackableError, match="holds itself"):
        milepost.save(tmp_path / "tree", tree)


def test_a_very_deep_tree_is_refused(tmp_path):
    tree = []
    for _ in range(5000):
        tree = [tree]
    with pytest.raises(milepost.UntrackableError, match="levels"):
        milepost.save(tmp_path / "tree", tree)


TREE = {"model": {"w": np.ones(2), "b": np.zeros(1)}, "optimizer": {"rate": 0.1}, "epoch": 3}


class TestSelection:
    def test_only_a_part_is_loaded(self):
        assert same(loaded(TREE, only="model"), {"model": TREE["model"]})

    def test_a_part_is_left_out(self):
        assert same(loaded(TREE, ignore=["model/w", "optimizer"]), {"model": {"b": np.zeros(1)}, "epoch": 3})

    def test_names_are_changed(self):
        tree = loaded(TREE, only="model", rename={"model": "", "model/w": "weight"})
        assert same(dict(sorted(tree.items())), {"b": np.zeros(1), "weight": np.ones(2)})

    def test_a_state_dict_has_names_with_dots(self):
        storage = MemoryStorage()
        milepost.save("tree", {"model": {"layers": [{"w": np.ones(2)}]}}, milepost.CheckpointOptions(storage=storage))
        flat = milepost.load(
            "tree", rename={"model": ""}, options=milepost.CheckpointOptions(storage=storage), separator="."
        )
        assert same(flat, {"layers.0.w": np.ones(2)})

    def test_a_state_dict_with_one_name_twice_is_refused(self):
        storage = MemoryStorage()
        milepost.save("tree", {"a.b": 1, "a": {"b": 2}}, milepost.CheckpointOptions(storage=storage))
        with pytest.raises(milepost.UnsupportedError, match=r"key: a\.b"):
            milepost.load("tree", options=milepost.CheckpointOptions(storage=storage), separator=".")


class TestArrays:
    def test_arrays_of_pytorch(self):
        torch = pytest.importorskip("torch")
        tree = loaded({"a": np.arange(3), "b": torch.ones(2, dtype=torch.bfloat16), "s": "text"}, arrays="torch")
        assert torch.equal(tree["a"], torch.arange(3))
        assert torch.equal(tree["b"], torch.ones(2, dtype=torch.bfloat16))
        assert tree["s"] == "text"

    def test_arrays_of_jax(self):
        jax = pytest.importorskip("jax")
        tree = loaded(
            {"a": jax.numpy.ones(3), "b": [jax.numpy.zeros(2, "bfloat16"), (jax.numpy.ones(1), 2)]}, arrays="jax"
        )
        assert isinstance(tree["a"], jax.Array)
        assert tree["b"][0].dtype == "bfloat16"
        assert tree["b"][1][1] == 2

    def test_a_state_of_pytorch_comes_back(self):
        torch = pytest.importorskip("torch")
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
        optimizer = torch.optim.AdamW(net.parameters())
        net(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        tree = loaded({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, arrays="torch")
        other = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
        other.load_state_dict(tree["model"])
        restored = torch.optim.AdamW(other.parameters())
        restored.load_state_dict(tree["optimizer"])
        assert all(
            torch.equal(a, b) for a, b in zip(net.state_dict().values(), other.state_dict().values(), strict=True)
        )
        assert torch.equal(restored.state_dict()["state"][0]["exp_avg"], optimizer.state_dict()["state"][0]["exp_avg"])

    def test_mapped_arrays_are_read_only(self, tmp_path):
        milepost.save(tmp_path / "tree", {"a": np.arange(1000.0), "s": "text"})
        tree = milepost.load(tmp_path / "tree", mapped=True)
        assert not tree["a"].flags.writeable
        assert tree["a"].sum() == 499500

    @pytest.mark.parametrize("options", [{"arrays": "cupy"}, {"arrays": "torch", "mapped": True}])
    def test_what_cannot_be_made_is_refused(self, tmp_path, options):
        milepost.save(tmp_path / "tree", {"a": 1})
        with pytest.raises(milepost.UnsupportedError, match=r"key: (arrays|mapped)"):
            milepost.load(tmp_path / "tree", **options)


class TestOtherFiles:
    def test_a_file_of_pytorch(self, tmp_path):
        torch = pytest.importorskip("torch")
        state = {"model": OrderedDict({"l1.weight": torch.ones(2)}), "state": {0: [1, (2, None)]}, "epoch": 3}
        torch.save(state, tmp_path / "file.pt")
        tree = milepost.load(tmp_path / "file.pt", arrays="torch")
        assert torch.equal(tree["model"]["l1.weight"], torch.ones(2))
        assert (tree["state"], tree["epoch"]) == ({0: [1, (2, None)]}, 3)

    def test_names_of_a_file_of_pytorch_are_changed(self, tmp_path):
        torch = pytest.importorskip("torch")
        torch.save({"net": {"l1.weight": torch.ones(1)}, "epoch": 3}, tmp_path / "file.pt")
        assert same(
            milepost.load(tmp_path / "file.pt", rename={"net.l1": "a"}, only="net"),
            {"a.weight": np.ones(1, np.float32)},
        )

    def test_an_object_of_a_class_is_named_with_the_argument_that_leaves_it_out(self, tmp_path):
        torch = pytest.importorskip("torch")
        torch.save({"a": 1, "config": MemoryStorage}, tmp_path / "file.pt")
        with pytest.raises(milepost.UnsupportedError, match="ignore='config'"):
            milepost.load(tmp_path / "file.pt")
        assert milepost.load(tmp_path / "file.pt", ignore="config") == {"a": 1}

    def test_a_checkpoint_of_tensorflow(self, tmp_path):
        tf = pytest.importorskip("tensorflow")
        path = tf.train.Checkpoint(v=tf.Variable([1.0, 2.0]), step=tf.Variable(3)).save(str(tmp_path / "ckpt"))
        tree = milepost.load(path, ignore="save_counter")
        assert {name: value.tolist() for name, value in tree.items()} == {"v": [1, 2], "step": 3}

    def test_a_checkpoint_by_names(self, tmp_path):
        tf = pytest.importorskip("tensorflow")
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            variable = tf.compat.v1.Variable([1.0], name="dense/kernel")
            session.run(variable.initializer)
            path = tf.compat.v1.train.Saver([variable]).save(session, str(tmp_path / "model"))
        assert same(milepost.load(path), {"dense/kernel": np.ones(1, np.float32)})

    def test_slot_variables_are_in_the_dict_of_their_optimizer(self, tmp_path):
        torch = pytest.importorskip("torch")
        net = torch.nn.Linear(2, 1, bias=False)
        optimizer = torch.optim.SGD(net.parameters(), momentum=0.9)
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        path = milepost.Checkpoint(net=net, optimizer=optimizer).write(tmp_path / "ckpt")
        slots = milepost.load(path)["optimizer"][".OPTIMIZER_SLOT"]
        assert slots["momentum_buffer"]["net/weight"].tolist() == [[1, 1]]

    def test_a_directory_means_its_latest_checkpoint(self, tmp_path):
        checkpoint = milepost.Checkpoint(step=milepost.Variable(1))
        checkpoint.save(tmp_path / "ckpt")
        checkpoint.step.assign(2)
        checkpoint.save(tmp_path / "ckpt")
        assert int(milepost.load(tmp_path)["step"]) == 2


class TestHostileGraphs:
    """A graph says what it likes. A tree of it is made, or it is refused."""

    def with_graph(self, nodes):
        storage = MemoryStorage()
        checkpoint = milepost.Checkpoint(v=milepost.Variable(1.0))
        state = checkpoint.state_dict()
        state[OBJECT_GRAPH] = ObjectGraph(tuple(nodes)).serialize()
        milepost.Checkpoint().load_state_dict(state).expect_partial()
        from milepost.bundle import BundleWriter, data_path, index_path
        from milepost.tensor import DType

        writer = BundleWriter()
        for key, value in sorted(state.items()):
            array = np.asarray(value, object) if isinstance(value, bytes) else np.asarray(value)
            writer.add(key, array, DType.of(array))
        with storage.create(data_path("t", 0, 1)) as data, storage.create(index_path("t")) as index:
            writer.write_shard(0, data)
            index.write(0, [writer.index()])
        return lambda: milepost.load("t", options=milepost.CheckpointOptions(storage=storage))

    def test_objects_that_hold_each_other_come_back_so(self):
        tree = self.with_graph([Node((Edge("a", 1),)), Node((Edge("back", 0),))])()
        assert tree["a"]["back"] is tree

    def test_a_chain_of_100000_objects(self):
        nodes = [Node((Edge("a", number + 1),)) for number in range(100_000)]
        tree = self.with_graph([*nodes, Node()])()
        for _ in range(100_000):
            tree = tree["a"]
        assert tree == {}

    def test_a_tuple_that_holds_itself_is_refused(self):
        load = self.with_graph([Node((Edge("a", 1),)), Node((Edge("0", 1),), python="tuple")])
        with pytest.raises(milepost.CorruptCheckpointError, match="tuple"):
            load()

    @pytest.mark.parametrize(
        "python", ["namedtuple:os:system", "namedtuple:m:a b", "namedtuple:m:class", "namedtuple::"]
    )
    def test_a_named_tuple_of_any_name_runs_no_code(self, python):
        load = self.with_graph([Node((Edge("a", 1),)), Node((Edge("x", 2), Edge("0", 2)), python=python), Node()])
        assert tuple(load()["a"]) == ({},)

    def test_a_plain_value_without_a_value_is_an_empty_dict(self):
        assert self.with_graph([Node((Edge("a", 1),)), Node(python="int")])() == {"a": {}}


def test_a_checkpoint_goes_through_a_dict_in_memory():
    checkpoint = milepost.Checkpoint(v=milepost.Variable([1.0, 2.0]), sizes=[3, (4, "a")], text="b")
    live = milepost.Checkpoint(v=milepost.Variable([0.0, 0.0]), sizes=[], text="")
    live.load_state_dict(checkpoint.state_dict()).assert_consumed()
    assert (live.v.numpy().tolist(), live.sizes, live.text) == ([1, 2], [3, (4, "a")], "b")


def test_a_dict_in_memory_does_not_change_with_the_objects():
    checkpoint = milepost.Checkpoint(v=milepost.Variable([1.0]))
    state = checkpoint.state_dict()
    checkpoint.v.assign([2.0])
    assert state["v/.ATTRIBUTES/VARIABLE_VALUE"].tolist() == [1]


@pytest.mark.parametrize("state", [{}, {"a": 1}, None, [1]])
def test_another_dict_is_refused(state):
    with pytest.raises(milepost.UnsupportedError, match="not the state of a Checkpoint"):
        milepost.Checkpoint().load_state_dict(state)


def test_a_child_may_have_the_name_of_the_method():
    """Files of Lightning have the model under this name."""
    checkpoint = milepost.Checkpoint(state_dict=milepost.Variable(1.0))
    assert float(checkpoint.state_dict) == 1


def test_a_checkpoint_has_no_state_of_its_own_that_is_not_saved(tmp_path, recwarn):
    milepost.Checkpoint(inner=milepost.Checkpoint(v=milepost.Variable(1.0))).write(tmp_path / "ckpt")
    assert [str(each.message) for each in recwarn] == []


def test_tensors_of_tensorflow_are_saved_as_arrays(tmp_path):
    tf = pytest.importorskip("tensorflow")
    tree = {"a": tf.constant([1.5, 2.0]), "b": [tf.constant(b"text"), tf.cast(tf.constant([1.0]), tf.bfloat16)]}
    loaded = milepost.load(milepost.save(tmp_path / "tree", tree))
    assert loaded["a"].tolist() == [1.5, 2]
    assert loaded["b"][0] == b"text"
    assert loaded["b"][1].dtype.name == "bfloat16"


@pytest.mark.parametrize("kind", [np.longlong, np.ulonglong, np.intc, np.int64])
def test_scalars_of_all_integers_of_c_stay_in_their_lists(tmp_path, kind):
    loaded = milepost.load(milepost.save(tmp_path / "tree", {"a": [kind(3)], "b": (kind(3),)}))
    assert loaded == {"a": [3], "b": (3,)}
    assert loaded["a"][0].dtype == np.dtype(kind)


@pytest.mark.parametrize(
    "scalar", [np.longdouble(1) / 3, np.clongdouble(1 + 2j), np.timedelta64(3, "s"), np.datetime64("2026-01-01", "ns")]
)
def test_scalars_of_types_that_tensorflow_lacks_stay_in_their_lists(tmp_path, scalar):
    loaded = milepost.load(milepost.save(tmp_path / "tree", {"a": [scalar], "b": (scalar, 1)}))
    assert loaded == {"a": [scalar], "b": (scalar, 1)}
    assert (type(loaded["a"][0]), loaded["a"][0].dtype) == (type(scalar), scalar.dtype)


def test_mapped_arrays_have_the_types_that_were_saved(tmp_path):
    tree = {
        "text": np.array(["é", "b"]),
        "bytes": np.array([b"ab"], "S4"),
        "big": np.arange(3, dtype=">i4"),
        "numbers": np.arange(3.0),
    }
    found = milepost.load(milepost.save(tmp_path / "ckpt", tree), mapped=True)
    assert same(found, tree)
    assert found["numbers"].base is not None
    assert not found["numbers"].flags.writeable


def test_a_function_that_is_not_asked_leaves_nothing_out(tmp_path):
    """`test_a_tree_and_a_converted_file_have_what_a_restore_takes` has the case of slot variables."""
    path = milepost.save(tmp_path / "c", {"a": np.ones(2)})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert milepost.load(path, only="b", rename=str.upper) == {}
    assert not any("None for every saved name" in str(each.message) for each in caught)
