"""Values that arrive when their objects do."""

import gc
import pathlib
import warnings

import numpy as np
import pytest

from milepost import Checkpoint, MismatchError, Module, UnrestoredWarning, Variable
from milepost.deferred import table
from tests.objects import module


def test_an_attribute_has_its_value_when_it_can_first_be_read(prefix):
    path = Checkpoint(layer=module(kernel=Variable([1.0, 2.0]))).write(prefix)
    live = Checkpoint(layer=Module())
    live.read(path)
    live.layer.kernel = Variable([0.0, 0.0])
    assert live.layer.kernel.tolist() == [1, 2]


def test_a_whole_subgraph_arrives_with_its_top(prefix):
    path = Checkpoint(net=module(layers=[module(w=Variable(1.0)), module(w=Variable(2.0))])).write(prefix)
    live = Checkpoint()
    status = live.read(path)
    live.net = module(layers=[module(w=Variable(0.0))])
    assert live.net.layers[0].w == 1
    late = Module()
    live.net.layers.append(late)
    late.w = Variable(0.0)
    assert late.w == 2
    status.assert_consumed()


@pytest.mark.parametrize(
    "grow",
    [
        lambda items, new: items.append(new),
        lambda items, new: items.extend([new]),
        lambda items, new: items.__iadd__([new]),
        lambda items, new: items.insert(1, new),
        lambda items, new: items.__setitem__(slice(1, 1), [new]),
    ],
    ids=["append", "extend", "+=", "insert", "slice"],
)
def test_a_list_item_arrives_however_it_is_added(prefix, grow):
    path = Checkpoint(items=[Variable(1.0), Variable(2.0)]).write(prefix)
    live = Checkpoint(items=[Variable(0.0)])
    live.read(path)
    new = Variable(0.0)
    grow(live.items, new)
    assert new == 2


def test_a_list_item_that_is_replaced_arrives(prefix):
    path = Checkpoint(items=[Variable(1.0)]).write(prefix)
    live = Checkpoint(items=[None])
    live.read(path)
    live.items[0] = Variable(0.0)
    assert live.items[0] == 1


def test_an_item_that_moves_into_a_waiting_place_keeps_its_value(prefix):
    path = Checkpoint(items=[Variable(1.0), Variable(2.0)]).write(prefix)
    live = Checkpoint(items=[Variable(0.0)])
    live.read(path).expect_partial()
    live.items.insert(0, Variable(9.0))
    assert [float(item) for item in live.items] == [9, 1]


@pytest.mark.parametrize(
    "put",
    [
        lambda table, new: table.__setitem__("k", new),
        lambda table, new: table.update(k=new),
        lambda table, new: table.setdefault("k", new),
        lambda table, new: table.__ior__({"k": new}),
    ],
    ids=["[]=", "update", "setdefault", "|="],
)
def test_a_dict_item_arrives_however_it_is_put(prefix, put):
    path = Checkpoint(table={"k": Variable(1.0)}).write(prefix)
    live = Checkpoint(table={})
    live.read(path)
    new = Variable(0.0)
    put(live.table, new)
    assert new == 1


def test_a_late_numpy_scalar_is_replaced_as_it_arrives(prefix):
    path = Checkpoint(m=module(s=np.float32(3), l=[np.int64(4)], t=(np.int64(5),))).write(prefix)
    live = Checkpoint(m=Module())
    status = live.read(path)
    live.m.s = np.float32(0)
    live.m.l = []
    live.m.l.append(np.int64(0))
    live.m.t = (np.int64(0),)
    assert (live.m.s, live.m.l[0], live.m.t[0]) == (3, 4, 5)
    status.assert_consumed()


def test_reassigning_a_name_does_not_restore_again(prefix):
    path = Checkpoint(v=Variable(1.0)).write(prefix)
    live = Checkpoint(v=Variable(0.0))
    live.read(path).expect_partial()
    live.v = Variable(5.0)
    assert live.v == 5
    del live.v
    live.v = Variable(6.0)
    assert live.v == 6


def test_a_plain_value_does_not_use_up_what_waits(prefix):
    path = Checkpoint(v=Variable(1.0)).write(prefix)
    live = Checkpoint()
    live.read(path)
    live.v = None
    live.v = Variable(0.0)
    assert live.v == 1


def test_a_value_that_does_not_fit_raises_out_of_the_assignment_and_goes_on_waiting(prefix):
    path = Checkpoint(v=Variable([1.0, 2.0])).write(prefix)
    live = Checkpoint()
    live.read(path)
    with pytest.raises(MismatchError, match="wrong shape"):
        live.v = Variable([0.0])
    assert not hasattr(live, "v")
    live.v = Variable([0.0, 0.0])
    assert live.v.tolist() == [1, 2]


def test_a_value_that_does_not_fit_keeps_an_item_out_of_a_list_and_a_dict(prefix):
    path = Checkpoint(l=[Variable([1.0])], d={"k": Variable([1.0])}).write(prefix)
    live = Checkpoint(l=[], d={})
    live.read(path).expect_partial()
    with pytest.raises(MismatchError):
        live.l.append(Variable([1.0, 2.0]))
    with pytest.raises(MismatchError):
        live.d["k"] = Variable([1.0, 2.0])
    assert live.l == []
    assert live.d == {}


def test_the_newest_of_several_restores_wins(prefix):
    for number in (1, 2):
        Checkpoint(v=Variable(float(number))).write(f"{prefix}{number}")
    live = Checkpoint()
    older, newer = live.read(prefix + "1"), live.read(prefix + "2")
    live.v = Variable(0.0)
    assert live.v == 2
    older.assert_consumed()
    newer.assert_consumed()


def test_an_older_restore_never_overwrites_a_newer_one_through_another_parent(prefix):
    shared = Variable(1.0)
    Checkpoint(a=module(v=shared), b=module(v=shared)).write(prefix + "1")
    Checkpoint(v=Variable(2.0)).write(prefix + "2")
    live, other = Checkpoint(a=Module()), Checkpoint()
    live.read(prefix + "1").expect_partial()
    other.read(prefix + "2")
    variable = Variable(0.0)
    other.v = variable
    live.a.v = variable
    assert variable == 2


def test_values_wait_even_if_the_files_are_deleted(prefix, tmp_path):
    path = Checkpoint(v=Variable(1.0)).write(prefix)
    live = Checkpoint()
    live.read(path)
    for file in pathlib.Path(tmp_path).iterdir():
        file.unlink()
    live.v = Variable(0.0)
    assert live.v == 1


def test_values_wait_even_if_the_checkpoint_is_replaced(prefix):
    path = Checkpoint(v=Variable(1.0)).write(prefix)
    live = Checkpoint()
    live.read(path)
    Checkpoint(v=Variable(2.0)).write(prefix)
    live.v = Variable(0.0)
    assert live.v == 1


def test_two_late_objects_for_one_node_warn_and_the_second_keeps_its_value(prefix):
    shared = Variable(1.0)
    path = Checkpoint(a=module(v=shared), b=module(v=shared)).write(prefix)
    live = Checkpoint(a=Module(), b=Module())
    status = live.read(path)
    live.a.v = Variable(0.0)
    with pytest.warns(UnrestoredWarning, match="two live objects"):
        live.b.v = Variable(5.0)
    assert (live.a.v, live.b.v) == (1, 5)
    with pytest.raises(AssertionError):
        status.assert_existing_objects_matched()


def test_what_waits_goes_with_the_object_it_waits_on(prefix):
    path = Checkpoint(m=module(v=Variable(1.0))).write(prefix)
    live = Checkpoint(m=Module())
    status = live.read(path)
    del live.m
    gc.collect()
    assert [entry.key for entry in status.report().unexpected] == ["m/v/.ATTRIBUTES/VARIABLE_VALUE"]
    status.expect_partial()


def test_nothing_is_left_in_the_table_when_all_is_restored(prefix):
    before = len(table._entries)
    path = Checkpoint(v=Variable(1.0), l=[Variable(1.0)]).write(prefix)
    live = Checkpoint(l=[])
    live.read(path).expect_partial()
    assert len(table._entries) == before + 2
    live.v = Variable(0.0)
    live.l.append(Variable(0.0))
    assert len(table._entries) == before


def test_values_never_used_are_warned_of_when_nobody_can_use_them_any_more(prefix):
    path = Checkpoint(v=Variable(1.0), w=Variable(2.0)).write(prefix)
    live = Checkpoint(v=Variable(0.0))
    status = live.read(path)
    with pytest.warns(UnrestoredWarning, match=r"w/\.ATTRIBUTES"):  # noqa: PT031 - they may go with the first
        del live, status
        gc.collect()


def test_expect_partial_silences_the_warning(prefix):
    path = Checkpoint(v=Variable(1.0), w=Variable(2.0)).write(prefix)
    live = Checkpoint(v=Variable(0.0))
    live.read(path).expect_partial()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnrestoredWarning)
        del live
        gc.collect()


def test_nothing_is_warned_of_if_all_was_used(prefix):
    path = Checkpoint(v=Variable(1.0)).write(prefix)
    live = Checkpoint(v=Variable(0.0))
    status = live.read(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnrestoredWarning)
        del live, status
        gc.collect()
