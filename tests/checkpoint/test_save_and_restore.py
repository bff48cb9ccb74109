"""`Checkpoint`: numbering, roots, matching by names, and what fails."""

import pathlib

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, MismatchError, Module, UntrackableError, Variable
from tests.objects import module


def keys(path):
    return [key for key, _ in milepost.list_variables(path) if not key.startswith("_")]


def test_save_numbers_and_write_does_not(prefix):
    checkpoint = Checkpoint(v=Variable(1.0))
    assert checkpoint.save(prefix) == prefix + "-1"
    assert checkpoint.save(prefix) == prefix + "-2"
    assert checkpoint.write(prefix) == prefix
    assert int(checkpoint.save_counter) == 2


def test_the_counter_is_saved_as_the_number_of_its_own_checkpoint(prefix):
    path = Checkpoint(v=Variable(1.0)).save(prefix)
    assert milepost.load_variable(path, "save_counter/.ATTRIBUTES/VARIABLE_VALUE") == 1


def test_write_makes_no_counter_and_no_state_file(prefix, tmp_path):
    path = Checkpoint(v=Variable(1.0)).write(prefix)
    assert keys(path) == ["v/.ATTRIBUTES/VARIABLE_VALUE"]
    assert not (tmp_path / "checkpoint").exists()


def test_save_makes_directories_and_the_state_file(tmp_path):
    path = Checkpoint(v=Variable(1.0)).save(tmp_path / "a" / "b" / "ckpt")
    assert milepost.latest_checkpoint(tmp_path / "a" / "b") == path


def test_restore_continues_the_numbering(prefix):
    Checkpoint(v=Variable(1.0)).save(prefix)
    second = Checkpoint(v=Variable(0.0))
    second.restore(prefix + "-1").assert_consumed()
    assert second.save(prefix) == prefix + "-2"


def test_read_after_save_defers_the_counter(prefix):
    Checkpoint(v=Variable(1.0)).save(prefix)
    checkpoint = Checkpoint(v=Variable(0.0))
    status = checkpoint.read(prefix + "-1")
    with pytest.raises(
        AssertionError, match=r"save_counter(.|\n)*restore it with restore\(\) of a milepost.Checkpoint"
    ):
        status.assert_consumed()
    assert int(checkpoint.save_counter) == 1
    status.assert_consumed()


def test_restore_of_what_write_wrote_misses_the_counter(prefix):
    Checkpoint(v=Variable(1.0)).write(prefix)
    status = Checkpoint(v=Variable(0.0)).restore(prefix)
    for assertion in (status.assert_consumed, status.assert_existing_objects_matched):
        with pytest.raises(AssertionError, match="save_counter") as caught:
            assertion()
        assert caught.value.remedy == (
            "a checkpoint that write() saved has no save_counter: restore it with read() instead of restore()"
        )


def test_the_remedy_for_the_counter_comes_with_that_for_other_values(prefix):
    Checkpoint(v=Variable(1.0)).write(prefix)
    with pytest.raises(AssertionError) as caught:
        Checkpoint(v=Variable(0.0), other=Variable(0.0)).restore(prefix).assert_consumed()
    assert "with read() instead" in caught.value.remedy
    assert "print status.report()" in caught.value.remedy


def test_a_failed_save_does_not_count(tmp_path):
    (tmp_path / "file").touch()
    checkpoint = Checkpoint(v=Variable(1.0))
    with pytest.raises(OSError, match="directory"):
        checkpoint.save(tmp_path / "file" / "ckpt")
    assert int(checkpoint.save_counter) == 0


@pytest.mark.parametrize("restore", [Checkpoint.restore, Checkpoint.read], ids=["restore", "read"])
def test_restore_of_none_restores_nothing_and_asserts_nothing(restore):
    status = restore(Checkpoint(v=Variable(1.0)), None)
    for assertion in (
        status.assert_consumed,
        status.assert_existing_objects_matched,
        status.assert_nontrivial_match,
        status.run_restore_ops,
    ):
        with pytest.raises(AssertionError, match="no checkpoint"):
            assertion()
    assert status.expect_partial() is status


def test_sync_is_there_when_nothing_is_asynchronous():
    Checkpoint().sync()


# Roots and arguments


def test_arguments_are_edges_sorted_by_name(prefix):
    path = Checkpoint(b=Variable(1.0), M=Variable(2.0), a=Variable(3.0)).write(prefix)
    assert list(milepost.CheckpointView(path).children(0)) == ["M", "a", "b"]


def test_attributes_set_later_come_after_the_arguments(prefix):
    checkpoint = Checkpoint(z=Variable(1.0))
    checkpoint.a = Variable(2.0)
    path = checkpoint.save(prefix)
    assert list(milepost.CheckpointView(path).children(0)) == ["z", "a", "save_counter"]


def test_a_root_becomes_node_zero_with_an_edge_to_itself(prefix):
    path = Checkpoint(module(v=Variable(1.0))).save(prefix)
    assert milepost.CheckpointView(path).children(0) == {"v": 1, "root": 0, "save_counter": 2}


def test_a_variable_can_be_the_root(prefix):
    path = Checkpoint(Variable(2.0)).write(prefix)
    assert keys(path) == ["/.ATTRIBUTES/VARIABLE_VALUE"]
    variable = Variable(0.0)
    Checkpoint(variable).read(path).assert_consumed()
    assert variable == 2


def test_a_root_and_more_are_restored_together(prefix):
    path = Checkpoint(module(v=Variable(1.0)), extra=Variable(2.0)).save(prefix)
    checkpoint = Checkpoint(root=module(v=Variable(0.0)), extra=Variable(0.0))
    checkpoint.restore(path).assert_consumed()
    assert (checkpoint.root.v, checkpoint.extra) == (1, 2)


def test_a_root_and_the_same_objects_as_arguments_interchange(prefix):
    path = Checkpoint(module(v=Variable(1.0))).write(prefix)
    checkpoint = Checkpoint(v=Variable(0.0))
    checkpoint.read(path)
    assert checkpoint.v == 1


def test_an_argument_may_not_take_the_name_of_another_child_of_the_root():
    with pytest.raises(UntrackableError, match=r"root\..* already exists"):
        Checkpoint(module(v=Variable(1.0)), v=Variable(2.0))


@pytest.mark.parametrize("value", [{1, 2}, object(), print])
def test_an_argument_that_is_not_trackable_is_refused(value):
    with pytest.raises(ValueError, match="trackable"):
        Checkpoint(v=value)


def test_save_counter_is_no_name_for_an_argument():
    with pytest.raises(AttributeError):
        Checkpoint(save_counter=Variable(1))


def test_the_counter_of_a_nested_checkpoint_is_an_ordinary_child(prefix):
    inner = Checkpoint(v=Variable(1.0))
    inner.save(prefix + "-inner")
    path = Checkpoint(inner=inner).write(prefix)
    assert "inner/save_counter/.ATTRIBUTES/VARIABLE_VALUE" in keys(path)


def test_paths_may_be_path_objects(tmp_path):
    checkpoint = Checkpoint(v=Variable(1.0))
    checkpoint.restore(pathlib.Path(checkpoint.save(tmp_path / "ckpt"))).assert_consumed()
    checkpoint.read(pathlib.Path(checkpoint.write(tmp_path / "plain"))).expect_partial()


# Matching


def test_matching_is_by_names_and_not_by_keys(prefix):
    shared = Variable(5.0)
    path = Checkpoint(a=module(deep=module(v=shared)), b=shared).write(prefix)
    assert keys(path) == ["b/.ATTRIBUTES/VARIABLE_VALUE"]
    live = Checkpoint(a=module(deep=module(v=Variable(0.0))))
    live.read(path).expect_partial()
    assert live.a.deep.v == 5


def test_lists_tuples_and_dicts_of_numerals_interchange(prefix):
    path = Checkpoint(c=[Variable(1.0), Variable(2.0)]).write(prefix)
    for container in ((Variable(0.0), Variable(0.0)), {"0": Variable(0.0), "1": Variable(0.0)}):
        checkpoint = Checkpoint(c=container)
        checkpoint.read(path).assert_consumed()


def test_a_shared_object_stays_shared(prefix):
    shared = Variable(1.0)
    path = Checkpoint(a=shared, b=[shared]).write(prefix)
    live = Variable(0.0)
    Checkpoint(a=live, b=[live]).read(path).assert_consumed()
    assert live == 1


def test_two_objects_for_one_node_are_reported(prefix):
    shared = Variable(1.0)
    path = Checkpoint(a=shared, b=shared).write(prefix)
    checkpoint = Checkpoint(a=Variable(0.0), b=Variable(0.0))
    status = checkpoint.read(path)
    assert (checkpoint.a, checkpoint.b) == (1, 0)
    assert [entry.key for entry in status.report().missing] == ["b/.ATTRIBUTES/VARIABLE_VALUE"]
    with pytest.raises(AssertionError, match="b/"):
        status.assert_existing_objects_matched()


def test_one_object_for_two_nodes_takes_the_first(prefix):
    path = Checkpoint(a=Variable(1.0), b=Variable(2.0)).write(prefix)
    live = Variable(0.0)
    Checkpoint(a=live, b=live).read(path)
    assert live == 1


def test_cycles_are_restored(prefix):
    def build(value):
        root = module(v=Variable(value))
        root.child = module(parent=root)
        return root

    path = Checkpoint(m=build(1.0)).write(prefix)
    live = build(0.0)
    Checkpoint(m=live).read(path).assert_consumed()
    assert live.v == 1


def test_values_are_read_into_the_memory_the_object_has(prefix):
    path = Checkpoint(v=Variable([1.0, 2.0]), a=np.float32([3, 4])).write(prefix)
    variable, array = Variable([0.0, 0.0]), np.float32([0, 0])
    seen = np.asarray(variable)
    Checkpoint(v=variable, a=array).read(path).assert_consumed()
    assert seen.tolist() == [1, 2]
    assert array.tolist() == [3, 4]


def test_strided_arrays_are_saved_and_restored_in_place(prefix):
    whole = np.arange(24.0).reshape(4, 6)
    path = Checkpoint(a=whole[::2, 1::2], t=whole.T).write(prefix)
    target = np.zeros((4, 6))
    transposed = np.zeros((4, 6)).T
    Checkpoint(a=target[::2, 1::2], t=transposed).read(path).assert_consumed()
    np.testing.assert_array_equal(target[::2, 1::2], whole[::2, 1::2])
    np.testing.assert_array_equal(transposed, whole.T)
    assert target[1].sum() == 0


def test_arrays_of_another_byte_order_are_saved_and_restored_in_place(prefix):
    path = Checkpoint(a=np.arange(3, dtype=">i4")).write(prefix)
    target = np.zeros(3, ">i4")
    Checkpoint(a=target).read(path).assert_consumed()
    assert target.tolist() == [0, 1, 2]


def test_what_cannot_change_is_replaced_where_it_is_held(prefix):
    def build(number, array):
        array = np.array(array)
        array.flags.writeable = False
        return module(s=np.float32(number), nested=(np.int64(number), (array, [np.float64(number)])), d={"a": array})

    path = Checkpoint(m=build(7, [1.0, 2.0])).write(prefix)
    live = build(0, [0.0, 0.0])
    Checkpoint(m=live).read(path).assert_consumed()
    assert live.s == 7
    assert isinstance(live.s, np.float32)
    assert live.nested[0] == 7
    assert live.nested[1][0].tolist() == [1, 2]
    assert live.nested[1][1] == [7]
    assert live.d["a"] is live.nested[1][0]
    assert not live.d["a"].flags.writeable


def test_text_arrays_are_restored(prefix):
    path = Checkpoint(u=np.array(["a", "längst"]), s=np.array([b"x", b"yy"]), o=np.array(["t"], object)).write(prefix)
    live = Checkpoint(u=np.array(["", ""]), s=np.array([b"", b""]), o=np.array([""], object))
    live.read(path).assert_consumed()
    assert live.u.tolist() == ["a", "längst"]
    assert live.s.tolist() == [b"x", b"yy"]
    assert live.o.tolist() in ([b"t"], ["t"])


def test_a_variable_of_open_shape_takes_any_length(prefix):
    path = Checkpoint(v=Variable(np.ones((3, 5)))).write(prefix)
    live = Variable(np.zeros((1, 5)), shape=(None, 5))
    Checkpoint(v=live).read(path).assert_consumed()
    assert live.shape == (3, 5)


# Slots


class Optimizer(milepost.SlotOwner):
    def __init__(self):
        self.rate = Variable(0.1)


def trained():
    net, optimizer = module(w=Variable([1.0, 2.0]), b=Variable([3.0])), Optimizer()
    for name, factor in (("m", 10), ("v", 100)):
        for variable in (net.w, net.b):
            optimizer.add_slot(variable, name, variable * np.float32(factor))
    return net, optimizer


def test_slots_have_tensorflows_keys(prefix):
    net, optimizer = trained()
    path = Checkpoint(net=net, optimizer=optimizer).write(prefix)
    assert [key for key in keys(path) if "SLOT" in key] == [
        f"net/{v}/.OPTIMIZER_SLOT/optimizer/{s}/.ATTRIBUTES/VARIABLE_VALUE" for v in "bw" for s in "mv"
    ]


def test_slots_are_saved_only_if_variable_and_optimizer_are(prefix):
    net, optimizer = trained()
    assert not any("SLOT" in key for key in keys(Checkpoint(net=net).write(prefix + "a")))
    assert not any("SLOT" in key for key in keys(Checkpoint(optimizer=optimizer).write(prefix + "b")))


def test_restoring_makes_the_slots(prefix):
    net, optimizer = trained()
    path = Checkpoint(net=net, optimizer=optimizer).write(prefix)
    net, optimizer = module(w=Variable([0.0, 0.0]), b=Variable([0.0])), Optimizer()
    Checkpoint(net=net, optimizer=optimizer).read(path).assert_consumed()
    assert optimizer.get_slot(net.w, "m").tolist() == [10, 20]
    assert optimizer.get_slot(net.b, "v").tolist() == [300]


@pytest.mark.parametrize("order", ["variable first", "optimizer first"])
def test_slots_wait_for_both_variable_and_optimizer(prefix, order):
    net, optimizer = trained()
    path = Checkpoint(net=net, optimizer=optimizer).write(prefix)
    live = Checkpoint()
    status = live.read(path)
    net, optimizer = module(w=Variable([0.0, 0.0]), b=Variable([0.0])), Optimizer()
    if order == "variable first":
        live.net, live.optimizer = net, optimizer
    else:
        live.optimizer, live.net = optimizer, net
    status.assert_consumed()
    assert optimizer.get_slot(net.w, "v").tolist() == [100, 200]


def test_slots_wait_for_optimizers_that_make_them_later(prefix):
    class Lazy(Module):
        """Makes slots when it pleases, and tells of it."""

        def __init__(self):
            self.slots = milepost.NoDependency({})

        def get_slot_names(self):
            return ["m"]

        def get_slot(self, variable, name):
            return self.slots.get(id(variable))

    net = module(w=Variable([1.0]))
    optimizer = Lazy()
    optimizer.slots[id(net.w)] = Variable([5.0])
    path = Checkpoint(net=net, optimizer=optimizer).write(prefix)
    live = Checkpoint(net=module(w=Variable([0.0])), optimizer=Lazy())
    status = live.read(path)
    assert [entry.outcome.value for entry in status.report() if "SLOT" in entry.key] == ["deferred"]
    from milepost.deferred.table import admit

    live.optimizer.slots[id(live.net.w)] = admit(live.optimizer, (id(live.net.w), "m"), Variable([0.0]))
    status.assert_consumed()
    assert live.optimizer.slots[id(live.net.w)] == 5


def test_slots_can_be_skipped(prefix):
    net, optimizer = trained()
    path = Checkpoint(net=net, optimizer=optimizer).write(prefix)
    net, optimizer = module(w=Variable([0.0, 0.0]), b=Variable([0.0])), Optimizer()
    options = milepost.CheckpointOptions(experimental_skip_slot_variables=True)
    Checkpoint(net=net, optimizer=optimizer).read(path, options).assert_consumed()
    assert optimizer.get_slot_names() == []


# State of other kinds


class Text(milepost.PythonState):
    def __init__(self, text):
        self.text = text

    def serialize(self):
        return self.text

    def deserialize(self, string_value):
        if string_value == "refuse":
            raise RuntimeError("refused")
        self.text = string_value


class Tensors(milepost.TensorState):
    def __init__(self, tensors):
        self.tensors = tensors

    def serialize(self):
        return self.tensors

    def deserialize(self, tensors):
        self.tensors = tensors


@pytest.mark.parametrize("text", ["", "plain", "ä\n\0", b"\xff\xfe"])
def test_python_state_round_trips(prefix, text):
    path = Checkpoint(state=Text(text)).write(prefix)
    live = Text("before")
    Checkpoint(state=live).read(path).assert_consumed()
    assert live.text == text


def test_python_state_may_be_a_module_too(prefix):
    class Both(Text, Module):
        pass

    def build(text, value):
        made = Both(text)
        made.v = Variable(value)
        return made

    path = Checkpoint(state=build("a", 1.0)).write(prefix)
    assert keys(path) == ["state/.ATTRIBUTES/py_state", "state/v/.ATTRIBUTES/VARIABLE_VALUE"]
    live = build("", 0.0)
    Checkpoint(state=live).read(path).assert_consumed()
    assert (live.text, live.v) == ("a", 1)


def test_tensor_state_takes_back_whatever_it_gave(prefix):
    path = Checkpoint(state=Tensors({"n": 3, "words": ["a", "b"], "deep/er.x": np.zeros((2, 0))})).write(prefix)
    live = Tensors({})
    Checkpoint(state=live).read(path).assert_consumed()
    assert live.tensors["n"] == 3
    assert live.tensors["words"].tolist() == [b"a", b"b"]
    assert live.tensors["deep/er.x"].shape == (2, 0)


def test_an_object_that_refuses_its_state_leaves_all_as_it_was(prefix):
    path = Checkpoint(a=Text("new"), b=Text("refuse"), v=Variable(1.0)).write(prefix)
    live = Checkpoint(a=Text("old"), b=Text("old"), v=Variable(0.0))
    with pytest.raises(RuntimeError, match="refused"):
        live.read(path)
    assert (live.a.text, live.b.text, live.v) == ("old", "old", 0)


# Failures


def test_a_wrong_shape_names_key_file_expected_and_found_and_changes_nothing(prefix):
    path = Checkpoint(a=Variable([1.0]), b=Variable([1.0, 2.0])).write(prefix)
    live = Checkpoint(a=Variable([0.0]), b=Variable([0.0]))
    with pytest.raises(MismatchError, match="wrong shape") as caught:
        live.read(path)
    assert caught.value.key == "b/.ATTRIBUTES/VARIABLE_VALUE"
    assert caught.value.file == path
    assert "float32[1]" in str(caught.value.expected)
    assert "float32[2]" in str(caught.value.found)
    assert [entry.key for entry in caught.value.report.wrong_shape] == ["b/.ATTRIBUTES/VARIABLE_VALUE"]
    assert live.a == 0


def test_a_wrong_dtype_is_never_converted(prefix):
    path = Checkpoint(v=Variable(1, np.int64)).write(prefix)
    with pytest.raises(MismatchError, match="wrong dtype") as caught:
        Checkpoint(v=Variable(1, np.int32)).read(path)
    assert len(caught.value.report.wrong_dtype) == 1


def test_all_that_does_not_fit_is_named_at_once(prefix):
    path = Checkpoint(l=[Variable([1.0]) for _ in range(20)]).write(prefix)
    with pytest.raises(MismatchError, match="and 10 more") as caught:
        Checkpoint(l=[Variable([1.0, 2.0]) for _ in range(20)]).read(path)
    assert len(caught.value.report.entries) == 20


def test_a_restore_that_fails_leaves_no_slots_behind(prefix):
    net, optimizer = trained()
    path = Checkpoint(net=net, optimizer=optimizer).write(prefix)
    net, optimizer = module(w=Variable([0.0, 0.0]), b=Variable([0.0, 0.0])), Optimizer()
    with pytest.raises(MismatchError):
        Checkpoint(net=net, optimizer=optimizer).read(path)
    assert optimizer.get_slot(net.w, "m") is None


def test_a_restore_that_fails_leaves_nothing_waiting(prefix):
    path = Checkpoint(a=Variable([1.0]), b=Variable([1.0])).write(prefix)
    live = Checkpoint(a=Variable([1.0, 2.0]))
    with pytest.raises(MismatchError):
        live.read(path)
    live.b = Variable([0.0])
    assert live.b == 0
