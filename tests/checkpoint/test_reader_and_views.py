"""Readers and views: what they say about what is not there."""

import array
import errno
import re
import types
import warnings
import zlib

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, CheckpointNotFoundError, KeyNotFoundError, Module, Variable
from milepost.bundle import BundleWriter
from milepost.storage.default import DEFAULT_STORAGE


@pytest.fixture
def saved(tmp_path):
    net = Module()
    net.kernel = Variable([1.0])
    net.name = Variable("text")
    return Checkpoint(model=net, step=Variable(1)).write(tmp_path / "ckpt")


def test_a_reader_lists_its_keys(saved):
    reader = milepost.load_checkpoint(saved)
    assert reader.keys() == [name for name, _ in milepost.list_variables(saved)]


def test_a_key_that_is_not_there_names_those_that_are_meant(saved):
    reader = milepost.load_checkpoint(saved)
    for asked in ("kernel", "model/kernel/.ATTRIBUTES/VARIABLE_VALU"):
        with pytest.raises(KeyNotFoundError, match=r"did you mean 'model/kernel/.ATTRIBUTES/VARIABLE_VALUE'"):
            reader.get_tensor(asked)


def test_a_key_like_no_other_is_told_where_to_look(saved):
    with pytest.raises(KeyNotFoundError, match=r"keys\(\).*list_variables\(\)") as caught:
        milepost.load_variable(saved, "?")
    assert hasattr(milepost.CheckpointReader, "keys")
    assert caught.value.key == "?"


class TestShortNames:
    """`get_tensor` and `load_variable` take the path of an object for the key of its value."""

    def test_the_path_of_a_variable_is_enough(self, saved):
        assert milepost.load_variable(saved, "model/kernel") == [1.0]
        assert milepost.load_variable(saved, "step:0") == 1
        assert milepost.load_checkpoint(saved).get_tensor("model/name") == b"text"
        assert milepost.load_checkpoint(saved).map_tensor("model/kernel") == [1.0]

    def test_a_name_that_is_escaped_in_the_key_may_be_given_as_it_is(self, tmp_path):
        path = Checkpoint(table={"a.b": Variable(2.0)}).write(tmp_path / "ckpt")
        assert "table/a..b/.ATTRIBUTES/VARIABLE_VALUE" in milepost.load_checkpoint(path).get_variable_to_shape_map()
        assert milepost.load_variable(path, "table/a.b") == milepost.load_variable(path, "table/a..b") == 2.0

    def test_a_full_key_comes_first(self, tmp_path):
        """Here the key of one tensor is the short name of another."""
        writer = BundleWriter()
        writer.add("v", np.float32(1.0))
        writer.add("v/.ATTRIBUTES/VARIABLE_VALUE", np.float32(2.0))
        with DEFAULT_STORAGE.create(str(tmp_path / "ckpt.data-00000-of-00001")) as file:
            writer.write_shard(0, file)
        (tmp_path / "ckpt.index").write_bytes(writer.index())
        assert milepost.load_variable(tmp_path / "ckpt", "v") == 1.0

    def test_a_name_of_several_tensors_is_refused_with_their_keys(self, tmp_path):
        class Pair(milepost.TensorState):
            def serialize(self):
                return {"a": np.float32(1.0), "b": np.float32(2.0)}

            def deserialize(self, tensors):
                pass

        path = Checkpoint(pair=Pair()).write(tmp_path / "ckpt")
        with pytest.raises(KeyNotFoundError, match="stands for 2 tensors") as caught:
            milepost.load_variable(path, "pair")
        assert "'pair/.ATTRIBUTES/a', 'pair/.ATTRIBUTES/b'" in caught.value.found
        assert milepost.load_variable(path, "pair/.ATTRIBUTES/b") == 2.0

    def test_has_tensor_goes_by_full_keys_as_the_maps_do(self, saved):
        reader = milepost.load_checkpoint(saved)
        assert not reader.has_tensor("model/kernel")
        assert reader.has_tensor("model/kernel/.ATTRIBUTES/VARIABLE_VALUE")

    @pytest.mark.parametrize("name", ["", "/", "model", "model/", "v\x1b[2J"])
    def test_other_names_are_still_not_found(self, saved, name):
        with pytest.raises(KeyNotFoundError, match="no such key"):
            milepost.load_variable(saved, name)


def test_a_tensor_that_cannot_be_mapped_names_the_method_that_reads_it(saved):
    reader = milepost.load_checkpoint(saved)
    with pytest.raises(milepost.UnsupportedError, match=r"get_tensor\(\)"):
        reader.map_tensor("model/name/.ATTRIBUTES/VARIABLE_VALUE")


def test_a_directory_without_a_state_file_says_so_and_names_what_is_in_it(saved, tmp_path):
    with pytest.raises(CheckpointNotFoundError, match="has no state file") as caught:
        milepost.load_checkpoint(tmp_path)
    assert repr(str(saved)) in caught.value.remedy


def test_a_directory_whose_state_file_names_lost_checkpoints_says_that(tmp_path):
    checkpoint = Checkpoint(v=Variable(1.0))
    path = checkpoint.save(tmp_path / "ckpt")
    milepost.tensorflow1.remove_checkpoint(path)
    milepost.tensorflow1.update_checkpoint_state(tmp_path, path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", milepost.SkippedCheckpointWarning)
        with pytest.raises(CheckpointNotFoundError, match="names checkpoints that do not exist") as caught:
            milepost.load_checkpoint(tmp_path)
    assert str(path) in caught.value.expected


def test_a_view_warns_where_one_saved_object_meets_two(tmp_path):
    made = Module()
    made.a = made.b = Module()
    made.a.v = Variable(1.0)
    view = milepost.CheckpointView(Checkpoint(root=made).save(tmp_path / "ckpt"))
    live = Module()
    live.a, live.b = Module(), Module()
    with pytest.warns(milepost.UnrestoredWarning, match="inconsistent references.*'b'"):
        matched = view.match(live)
    assert matched[view.children(0)["a"]] is live.a


def test_a_view_says_nothing_where_references_agree(tmp_path):
    made = Module()
    made.a = made.b = Module()
    view = milepost.CheckpointView(Checkpoint(root=made).save(tmp_path / "ckpt"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        view.match(made)


def test_a_diff_tells_what_is_on_both_sides_and_what_is_on_one(tmp_path):
    saved = Module()
    saved.both, saved.only_saved = Variable(1.0), Variable(2.0)
    view = milepost.CheckpointView(Checkpoint(model=saved).write(tmp_path / "ckpt"))
    live = Module()
    live.both, live.only_live = Variable(0.0), Variable(0.0)
    checkpoint = Checkpoint(model=live)
    matched, nodes, objects = view.diff(checkpoint)
    model = view.children(0)["model"]
    assert matched == {0: checkpoint, model: live, view.children(model)["both"]: live.both}
    assert nodes == [view.children(model)["only_saved"]]
    assert len(objects) == 1
    assert objects[0] is live.only_live


def test_a_diff_of_what_was_saved_itself_leaves_nothing_over(tmp_path):
    checkpoint = Checkpoint(model={"v": Variable(1.0)}, w=Variable(2.0))
    view = milepost.CheckpointView(checkpoint.write(tmp_path / "ckpt"))
    matched, nodes, objects = view.diff(checkpoint)
    assert (sorted(matched), nodes, objects) == (view.descendants(), [], [])


def test_a_diff_changes_no_object(tmp_path):
    path = Checkpoint(v=Variable(1.0)).write(tmp_path / "ckpt")
    live = Checkpoint(v=Variable(0.0))
    milepost.CheckpointView(path).diff(live)
    assert float(live.v) == 0.0


def test_the_lists_of_a_state_are_lists(tmp_path):
    path = Checkpoint(v=Variable(1.0)).save(tmp_path / "ckpt")
    milepost.tensorflow1.update_checkpoint_state(tmp_path, path, all_model_checkpoint_timestamps=[2.0])
    state = milepost.get_checkpoint_state(tmp_path)
    assert state.all_model_checkpoint_paths == [path]
    assert state.all_model_checkpoint_timestamps == [2.0]


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        (Module, "not the class itself"),
        (print, "objects that the function uses"),
        (type("Own", (), {})(), "Own is a class of your own, derive it from milepost.Module"),
        (np.array([1, "a"], object), "^hold it as a list, as tolist"),
        (np.zeros(2, [("a", object)]), "^hold each of its fields as an array"),
        (array.array("i", [1]), r"^hold it as a NumPy array, as numpy.asarray\(\)"),
        (types.SimpleNamespace(a=1), r"^hold its attributes in a dict, as vars\(\)"),
        (slice(1, 2), "^hold its start, stop and step in a tuple"),
        (zlib.compressobj(), "^hold what is to be saved of it in milepost.Variable"),
    ],
)
def test_the_remedy_for_what_is_not_trackable_fits_it(value, remedy):
    with pytest.raises(milepost.UntrackableError) as raised:
        Checkpoint(x=value)
    assert re.search(remedy, raised.value.remedy)


def test_the_remedy_for_a_container_in_an_attribute_is_another_container(tmp_path):
    net = Module()
    net.layers = frozenset([Module()])
    with pytest.warns(milepost.UntrackedWarning, match="hold its members in a list, tuple or dict") as caught:
        Checkpoint(net=net).write(tmp_path / "ckpt")
    assert "hold it in an attribute" not in str(caught[0].message)


def test_debug_string_of_a_name_that_is_not_valid_unicode(tmp_path):
    header = b'{"\\ud800": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}}'
    (tmp_path / "a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    assert milepost.load_checkpoint(tmp_path / "a.safetensors").debug_string() == b"\\ud800 (DT_FLOAT) []\n"


def test_debug_string_has_tensorflows_names_of_types(tmp_path):
    variables = {name: Variable(np.zeros((2, 3), name)) for name in ("float16", "float32", "float64", "int64")}
    path = Checkpoint(**variables).write(tmp_path / "ckpt")
    lines = milepost.load_checkpoint(path).debug_string().decode().splitlines()
    assert [line.partition(" ")[2] for line in lines if not line.startswith("_")] == [
        "(DT_HALF) [2,3]",
        "(DT_FLOAT) [2,3]",
        "(DT_DOUBLE) [2,3]",
        "(DT_INT64) [2,3]",
    ]


READS = {
    "keys": lambda reader: reader.keys(),
    "shapes": lambda reader: reader.get_variable_to_shape_map(),
    "types": lambda reader: reader.get_variable_to_dtype_map(),
    "objects": lambda reader: reader.objects(),
    "metrics": lambda reader: reader.metrics(),
    "has_tensor": lambda reader: reader.has_tensor("x"),
    "get_tensor": lambda reader: reader.get_tensor("step"),
    "map_tensor": lambda reader: reader.map_tensor("step"),
    "verify": lambda reader: reader.verify(),
    "debug_string": lambda reader: reader.debug_string(),
    "with": lambda reader: reader.__enter__(),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
@pytest.mark.parametrize("is_known", [True, False])
def test_a_closed_reader_says_so(saved, read, is_known):
    """Also of what it had answered before."""
    with milepost.load_checkpoint(saved) as reader:
        if is_known:
            reader.keys()
            read(reader)
    with pytest.raises(milepost.StorageError, match="reader of a checkpoint is closed") as caught:
        read(reader)
    assert caught.value.errno == errno.EBADF
    assert saved in str(caught.value)


def test_a_closed_reader_has_a_path_and_is_closed_again(saved):
    reader = milepost.load_checkpoint(saved)
    value = reader.map_tensor("step")
    reader.close()
    reader.close()
    assert reader.prefix == saved
    assert repr(reader).endswith(": closed>")
    assert "closed" in reader._repr_html_()
    assert value == 1


def test_a_name_with_a_slash_is_found_as_the_program_has_it(tmp_path):
    path = Checkpoint(d={"a/b": Variable(3.0), "a": {"c": Variable(4.0)}}).write(tmp_path / "ckpt")
    reader = milepost.load_checkpoint(path)
    assert [reader.get_tensor(name) for name in ("d/a/b", "d/a.Sb", "d/a/c")] == [3.0, 3.0, 4.0]
    assert not reader.has_tensor("d/a/b")
    with pytest.raises(KeyNotFoundError):
        reader.get_tensor("d/a")
