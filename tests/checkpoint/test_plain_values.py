"""Numbers, text and None that a program puts into a checkpoint are saved, and come back with their types."""

import collections
import copy
import datetime
import decimal
import enum
import math
import pathlib
import pickle
import struct

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, CheckpointManager, CheckpointOptions, Module, NoDependency, PythonState, Variable
from milepost.errors import MismatchError, RefusedError, UntrackableError

VALUES = [
    3,
    -(2**63),
    2**63,
    -(1 << 20_000),
    True,
    0.1,
    -0.0,
    math.inf,
    1e-320,
    2 - 0.5j,
    "",
    "text",
    "ä\0\ud800😀\0",
    b"",
    b"\xff\0",
    None,
]


def keys(path):
    return [key.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE") for key, _ in milepost.list_variables(path)][1:]


def comes_back(prefix, value, live):
    """Saves a value in each kind of place, and restores it with its type over what is live."""
    path = Checkpoint(value=value, d={"x": [value]}, t=(value,)).write(prefix)
    fresh = Checkpoint(value=live, d={"x": [live]}, t=(live,))
    fresh.read(path).assert_consumed()
    for found in (fresh.value, fresh.d["x"][0], fresh.t[0]):
        assert type(found) is type(value)
        assert found == value
    return fresh.value


@pytest.mark.parametrize("value", VALUES, ids=[type(each).__name__ for each in VALUES])
@pytest.mark.parametrize("live", [0, None, "x", b"x", 0.5, 10**30, [], {"a": 1}, (1, 2)], ids=repr)
def test_a_value_comes_back_with_its_type_whatever_is_live(prefix, value, live):
    found = comes_back(prefix, value, live)
    assert math.copysign(1, found) == math.copysign(1, value) if type(value) is float else True


def test_the_bits_of_a_nan_are_kept(prefix):
    nan = struct.unpack("<d", b"\x01\0\0\0\0\0\xf8\x7f")[0]
    fresh = Checkpoint(value=0.0)
    fresh.read(Checkpoint(value=nan).write(prefix))
    assert struct.pack("<d", fresh.value) == struct.pack("<d", nan)


def test_each_value_has_a_key_of_its_own(prefix):
    path = Checkpoint(epoch=3, meta={"best": 0.5, "name": "run"}, hist=[1.0, (2, None)]).write(prefix)
    assert keys(path) == ["epoch", "hist/0", "hist/1/0", "hist/1/1", "meta/best", "meta/name"]
    reader = milepost.load_checkpoint(path)
    assert reader.get_tensor("epoch/.ATTRIBUTES/VARIABLE_VALUE") == 3
    assert reader.get_tensor("meta/name/.ATTRIBUTES/VARIABLE_VALUE") == b"run"


def test_an_attribute_that_becomes_a_number_is_saved_as_that(prefix):
    checkpoint = Checkpoint(step=Variable(0))
    checkpoint.step = int(checkpoint.step) + 7
    path = checkpoint.write(prefix)
    for fresh in (Checkpoint(step=Variable(0)), Checkpoint(step=0), Checkpoint(step=np.zeros((), np.int8))):
        fresh.read(path).assert_consumed().assert_existing_objects_matched()
        assert int(fresh.step) == 7


def test_a_variable_comes_back_as_a_number_where_a_number_is_live(prefix):
    fresh = Checkpoint(step=0, rate=1.0)
    fresh.read(Checkpoint(step=Variable(7), rate=Variable(0.5)).write(prefix)).assert_consumed()
    assert (fresh.step, fresh.rate) == (7, 0.5)
    assert type(fresh.step) is int


@pytest.mark.parametrize(
    ("number", "live"), [(0.1, Variable(0.0)), (2**40, Variable(0)), (300, np.zeros((), np.uint8))], ids=repr
)
def test_a_number_that_a_live_variable_cannot_hold_is_refused(prefix, number, live):
    path = Checkpoint(a=1, x=number).write(prefix)
    fresh = Checkpoint(a=0, x=live)
    with pytest.raises(MismatchError, match="does not fit") as caught:
        fresh.read(path)
    assert caught.value.key == "x/.ATTRIBUTES/VARIABLE_VALUE"
    assert fresh.a == 0
    assert int(fresh.x) == 0


def test_settings_of_modules_stay_out(prefix):
    module = Module()
    module.units, module.rates, module.w = 5, {"low": 0.1}, Variable(1.0)
    assert keys(Checkpoint(module=module, list=[module]).write(prefix, CheckpointOptions(strict=True))) == ["module/w"]


def test_a_list_or_dict_has_its_saved_members_at_once(prefix):
    saved = Checkpoint(hist=[1.0, 2.0], logs={"loss": [0.5], "best": {"at": 3}}, pair=((), [1], {"a": ("x",)}))
    path = saved.write(prefix)
    for fresh in (Checkpoint(hist=[], logs={}, pair=None), Checkpoint()):
        fresh.read(path).assert_consumed().assert_existing_objects_matched()
        assert fresh.hist == saved.hist
        assert fresh.logs == saved.logs
        assert fresh.pair == saved.pair
        assert type(fresh.pair) is tuple
        fresh.logs["loss"].append(0.25)
        assert "logs/loss/1" in keys(fresh.write(prefix + "-2"))


def test_a_longer_list_is_cut(prefix):
    fresh = Checkpoint(hist=[9, 9, 9], empty=["x"])
    fresh.read(Checkpoint(hist=[1], empty=[]).write(prefix)).assert_existing_objects_matched()
    assert (fresh.hist, fresh.empty) == ([1], [])


def test_a_list_with_a_variable_is_not_cut(prefix):
    path = Checkpoint(mixed=[1]).write(prefix)
    fresh = Checkpoint(mixed=[0, Variable(2)])
    with pytest.raises(AssertionError):
        fresh.read(path).assert_existing_objects_matched()
    assert len(fresh.mixed) == 2


def test_a_container_keeps_its_kind(prefix):
    saved = Checkpoint(c={"a": collections.OrderedDict(z=1, a=2), "b": [], "c": {}, "d": ()})
    fresh = Checkpoint(c={})
    fresh.read(saved.write(prefix))
    assert [type(each) for each in fresh.c.values()] == [type(each) for each in saved.c.values()]
    assert list(fresh.c["a"]) == ["z", "a"]


def test_the_fields_of_a_named_tuple_come_back(prefix):
    point = collections.namedtuple("point", "x y")
    fresh = Checkpoint(p=point(0, Variable(0)))
    fresh.read(Checkpoint(p=point("a", Variable(2))).write(prefix)).assert_consumed()
    assert type(fresh.p) is point
    assert fresh.p.x == "a"
    assert int(fresh.p.y) == 2


def test_a_live_value_that_was_not_saved_is_missing(prefix):
    path = Checkpoint(epoch=1, meta={"a": 1}).write(prefix)
    fresh = Checkpoint(epoch=0, new=0, meta={"a": 0, "b": None})
    status = fresh.read(path)
    missing = [entry.key for entry in status.report().missing]
    assert missing == ["meta/b/.ATTRIBUTES/VARIABLE_VALUE", "new/.ATTRIBUTES/VARIABLE_VALUE"]
    with pytest.raises(AssertionError):
        status.assert_existing_objects_matched()


def test_the_first_plain_value_is_missing_in_a_file_without_any(prefix):
    status = Checkpoint(w=Variable(0.0), epoch=0).read(Checkpoint(w=Variable(1.0)).write(prefix))
    with pytest.raises(AssertionError):
        status.assert_existing_objects_matched()


def test_values_that_the_program_adds_after_the_restore_are_its_own(prefix):
    path = Checkpoint(hist=[1.0], meta={"a": 1}).write(prefix)
    fresh = Checkpoint(hist=[], meta={})
    status = fresh.read(path)
    fresh.hist.append(5.0)
    fresh.hist[0] = 7.0
    fresh.meta["b"] = 2
    fresh.epoch = 4
    status.assert_existing_objects_matched()
    assert (fresh.hist, fresh.meta, fresh.epoch) == ([7.0, 5.0], {"a": 1, "b": 2}, 4)


def test_an_object_may_take_the_place_of_a_none_later(prefix):
    path = Checkpoint(optimizer={"rate": Variable(0.5)}, late=Variable([1.0])).write(prefix)
    fresh = Checkpoint(optimizer=None, late=None)
    fresh.read(path)
    again = fresh.write(prefix + "-2")
    for source in (path, again):
        fresh = Checkpoint(optimizer=None, late=None)
        status = fresh.read(source)
        fresh.optimizer, fresh.late = {"rate": Variable(0.0)}, Variable([0.0])
        status.assert_consumed()
        assert fresh.optimizer["rate"] == 0.5


def test_a_number_that_comes_late_takes_the_variable_that_waits(prefix):
    checkpoint = Checkpoint()
    checkpoint.read(Checkpoint(step=Variable(7)).write(prefix))
    checkpoint.step = 0
    assert checkpoint.step == 7
    checkpoint.step = 0
    assert checkpoint.step == 0


def test_a_program_that_does_not_know_a_value_carries_it_along(prefix):
    module = Module()
    module.w = Variable(0.0)
    path = Checkpoint(module, epoch=3, meta={"a": [1]}).write(prefix)
    older = Checkpoint(module)
    older.read(path)
    newer = Checkpoint(module, epoch=0, meta=None)
    newer.read(older.write(prefix + "-2")).assert_consumed()
    assert (newer.epoch, newer.meta) == (3, {"a": [1]})


class Refuses(PythonState):
    def serialize(self):
        return "state"

    def deserialize(self, string_value):
        raise RuntimeError("no")


def test_a_failed_restore_leaves_every_value_as_it_was(prefix):
    path = Checkpoint(epoch=3, hist=[1], grown=[1, {"a": 2}], meta={"a": 1}, late=5, refuses=Refuses()).write(prefix)
    fresh = Checkpoint(epoch=0, hist=[9, 8], grown=[], meta={}, refuses=Refuses())
    before = copy.deepcopy({name: value for name, value in vars(fresh).items() if name[0] != "_"})
    with pytest.raises(RefusedError):
        fresh.read(path)
    assert fresh.hist == before["hist"]
    assert (fresh.epoch, fresh.grown, fresh.meta) == (0, [], {})
    assert not hasattr(fresh, "late")


def test_containers_that_hold_themselves_come_back(prefix):
    loop, mapping = [1], {}
    loop.append(loop)
    mapping["self"] = mapping
    fresh = Checkpoint()
    fresh.read(Checkpoint(loop=loop, mapping=mapping).write(prefix)).assert_consumed()
    assert fresh.loop[1] is fresh.loop
    assert fresh.mapping["self"] is fresh.mapping


def test_a_container_in_two_places_comes_back_as_one(prefix):
    checkpoint = Checkpoint(a=[1])
    checkpoint.b = {"same": checkpoint.a}
    fresh = Checkpoint()
    fresh.read(checkpoint.write(prefix)).assert_consumed()
    assert fresh.b["same"] is fresh.a


def test_a_dict_as_the_root_is_state(prefix):
    fresh = Checkpoint({"epoch": 0, "hist": []})
    fresh.read(Checkpoint({"epoch": 3, "hist": [1]}).write(prefix)).assert_consumed()
    assert fresh.root == {"epoch": 3, "hist": [1]}


def test_values_beside_a_root_are_saved_and_restored(prefix):
    net = Module()
    net.w, net.units = Variable(1.0), 5
    path = Checkpoint(net, epoch=3, meta={"a": 1}).write(prefix)
    assert keys(path) == ["epoch", "meta/a", "w"]
    fresh = Checkpoint(net, epoch=0, meta={})
    fresh.read(path).assert_consumed().assert_existing_objects_matched()
    assert (fresh.epoch, fresh.meta) == (3, {"a": 1})


class Color(enum.IntEnum):
    RED = 1


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        (datetime.date(2026, 1, 2), "isoformat"),
        (datetime.timedelta(1), "total_seconds"),
        (decimal.Decimal("0.1"), r"str\(\)"),
        (pathlib.Path("x"), r"str\(\)"),
        (Color.RED, "its value or its name"),
        ({1, 2}, "list, tuple or dict"),
        (collections.Counter("a"), "dict"),
        (collections.defaultdict(list), "dict"),
        (range(3), "start, stop and step"),
        (bytearray(b"x"), "bytes"),
        (object(), "milepost.Variable"),
    ],
    ids=lambda each: type(each).__name__,
)
@pytest.mark.parametrize("put", [lambda v: v, lambda v: [v], lambda v: {"k": (1, v)}, lambda v: (Variable(1), v)])
def test_what_has_no_form_in_a_file_is_refused_with_its_path(prefix, value, remedy, put):
    checkpoint = Checkpoint()
    checkpoint.held = put(value)
    with pytest.raises(UntrackableError, match=remedy) as caught:
        checkpoint.write(prefix)
    assert caught.value.key.startswith("held")
    assert type(value).__name__ in str(caught.value)


def test_an_attribute_beside_a_root_that_cannot_be_saved_is_refused(prefix):
    checkpoint = Checkpoint(Module())
    checkpoint.when = datetime.date(2026, 1, 2)
    with pytest.raises(UntrackableError, match="isoformat") as caught:
        checkpoint.write(prefix)
    assert caught.value.key == "when"


def test_what_is_refused_can_be_left_out_knowingly(prefix):
    checkpoint = Checkpoint(a=[1, NoDependency(object())], b=NoDependency(3), c={"x": NoDependency(0), "y": 0})
    checkpoint.when = datetime.date(2026, 1, 2)
    assert keys(checkpoint.write(prefix, CheckpointOptions(allow_unsaved=["when"]))) == ["a/0", "c/y"]


def test_functions_and_classes_are_no_state(prefix):
    checkpoint = Checkpoint(epoch=1)
    checkpoint.schedule, checkpoint.kind, checkpoint.library = lambda epoch: epoch, dict, math
    assert keys(checkpoint.write(prefix, CheckpointOptions(strict=True))) == ["epoch"]


def test_a_key_that_is_no_text_is_refused(prefix):
    with pytest.raises(UntrackableError, match="key that is not a string"):
        Checkpoint(meta={1: "a"}).write(prefix)


def test_copies_and_pickles_still_hold_state(prefix):
    checkpoint = Checkpoint(hist=[1, [2]])
    copied = copy.deepcopy(checkpoint)
    copied.hist.append(3)
    copied.hist[1].append(4)
    assert keys(copied.write(prefix)) == ["hist/0", "hist/1/0", "hist/1/1", "hist/2"]
    assert keys(Checkpoint(h=pickle.loads(pickle.dumps(checkpoint.hist))).write(prefix)) == ["h/0", "h/1/0"]


def test_a_method_is_not_hidden_by_a_number():
    with pytest.raises(UntrackableError, match="method of this name"):
        Checkpoint().save = 3


def test_a_manager_saves_and_restores_them(tmp_path):
    checkpoint = Checkpoint(epoch=0, hist=[])
    manager = CheckpointManager(checkpoint, tmp_path, max_to_keep=2)
    for epoch in range(3):
        checkpoint.epoch = epoch
        checkpoint.hist.append(epoch / 2)
        manager.save(options=CheckpointOptions(enable_async=True))
    checkpoint.sync()
    fresh = Checkpoint(epoch=0, hist=[])
    CheckpointManager(fresh, tmp_path, max_to_keep=2).restore_or_initialize()
    assert (fresh.epoch, fresh.hist) == (2, [0.0, 0.5, 1.0])


def test_values_beside_arrays_of_jax_and_of_pytorch_are_saved(prefix):
    jnp = pytest.importorskip("jax.numpy")
    torch = pytest.importorskip("torch")

    def checkpoint(epoch):
        return Checkpoint(params={"w": jnp.ones(1) * epoch}, net=torch.nn.Linear(1, 1), meta={"epoch": epoch}, e=epoch)

    fresh = checkpoint(0)
    fresh.read(checkpoint(3).write(prefix, CheckpointOptions(strict=True))).assert_consumed()
    assert (fresh.params["w"], fresh.meta, fresh.e) == (3, {"epoch": 3}, 3)


def test_numbers_of_a_tree_of_jax_fit_a_checkpoint_and_back(tmp_path):
    pytest.importorskip("jax")
    import milepost.jax

    fresh = Checkpoint(meta={}, epoch=None)
    fresh.read(milepost.jax.save(tmp_path / "tree", {"meta": {"best": 0.5}, "epoch": 3})).expect_partial()
    assert fresh.epoch == 3
    path = Checkpoint(meta={"best": 0.5}, epoch=3).write(tmp_path / "checkpoint")
    tree, _ = milepost.jax.restore(path, {"meta": {"best": 0.0}, "epoch": 0})
    assert tree == {"meta": {"best": 0.5}, "epoch": 3}


def test_tensorflow_is_not_told_of_them(prefix):
    tf = pytest.importorskip("tensorflow")
    path = Checkpoint(w=Variable([1.0]), epoch=3, hist=[1.0, None], mixed={"a": 1, "v": Variable(2.0)}).write(prefix)
    live = tf.train.Checkpoint(w=tf.Variable([0.0]), hist=[], mixed={"v": tf.Variable(0.0)})
    live.read(path).assert_consumed().assert_existing_objects_matched()
    assert live.mixed["v"].numpy() == 2


def test_tensorflows_files_lack_no_plain_values(prefix):
    tf = pytest.importorskip("tensorflow")
    path = tf.train.Checkpoint(w=tf.Variable([1.0])).write(prefix)
    status = Checkpoint(w=Variable([0.0]), epoch=0, hist=[1]).read(path)
    status.assert_consumed()
    assert all(entry.skipped_by_tensorflow for entry in status.report().missing)


def test_plain_members_of_a_list_with_variables_leave_positions_to_the_program(tmp_path):
    path = Checkpoint(a=[{}, Variable(5)]).write(tmp_path / "ckpt")
    live = Checkpoint()
    live.read(path)
    live.a = []
    live.a.append({})
    live.a.append(Variable(0))
    assert int(live.a[1]) == 5


SCALARS = [
    np.float64(0.1),
    np.float32(0.1),
    np.float16(0.5),
    np.int8(-3),
    np.uint64(2**64 - 1),
    np.bool_(True),
    np.complex64(1 - 2j),
    np.str_("ä\0\ud800"),
    np.bytes_(b"\xff"),
]


@pytest.mark.parametrize("value", SCALARS, ids=[type(each).__name__ for each in SCALARS])
@pytest.mark.parametrize("live", [0, None, "x", 0.5, np.float64(7), [], {"a": 1}], ids=repr)
def test_a_scalar_of_numpy_comes_back_with_its_type_whatever_is_live(prefix, value, live):
    comes_back(prefix, value, live)


def test_a_history_of_scalars_of_numpy_goes_on_where_it_stopped(prefix):
    history = [np.float64(0.5), np.float64(0.25)]
    path = Checkpoint(history=history, best=min(history)).write(prefix)
    fresh = Checkpoint(history=[], best=None)
    status = fresh.read(path).assert_consumed()
    fresh.history.append(np.float64(0.125))
    status.assert_consumed()
    assert fresh.history == [0.5, 0.25, 0.125]
    assert (type(fresh.best), fresh.best) == (np.float64, 0.25)


def test_a_scalar_of_numpy_takes_an_array_of_its_own_type_only(prefix):
    path = Checkpoint(x=np.array(0.5)).write(prefix)
    fresh = Checkpoint(x=np.float64(0))
    fresh.read(path).assert_consumed()
    assert (type(fresh.x), fresh.x) == (np.float64, 0.5)
    with pytest.raises(MismatchError, match="float64"):
        Checkpoint(x=np.float32(0)).read(path)


def test_a_number_of_python_comes_back_in_place_of_a_scalar_of_numpy(prefix):
    fresh = Checkpoint(x=np.uint8(0))
    fresh.read(Checkpoint(x=300).write(prefix)).assert_consumed()
    assert (type(fresh.x), fresh.x) == (int, 300)


def test_a_scalar_of_numpy_fits_a_variable_of_its_type(prefix):
    path = Checkpoint(step=np.int64(7)).write(prefix)
    fresh = Checkpoint(step=Variable(0))
    fresh.read(path).assert_consumed()
    assert int(fresh.step) == 7
