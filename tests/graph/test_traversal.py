"""The graph of live objects: what is an edge, in what order, under what path."""

import collections
import dataclasses
from typing import NamedTuple

import numpy as np
import pytest

import milepost.adapters  # noqa: F401 - which registers the adapter of arrays
from milepost import Module, NoDependency, SlotOwner, UnsupportedError, Variable
from milepost.graph.adapter import Adapter, adapter_during, register, unregister
from milepost.graph.contract.operation import Operation
from milepost.graph.traversal import walk
from tests.objects import module


def paths(root, **options):
    return list(walk(Operation(root), **options).paths)


def test_ids_are_breadth_first_and_the_shortest_path_names_an_object():
    shared = Variable(1)
    root = module(a=module(deep=module(v=shared)), b=shared)
    assert paths(root) == ["", "a", "b", "a/deep"]


def test_every_edge_is_listed_with_repeats_and_cycles():
    root = module(v=Variable(1))
    root.again = root.v
    root.self = root
    assert walk(Operation(root)).edges[0] == [("v", 1), ("again", 1), ("self", 0)]


def test_names_are_escaped_in_paths():
    assert paths(module(d={"a/b": Variable(1), "c.d": Variable(2), "": Variable(3)})) == [
        "",
        "d",
        "d/a.Sb",
        "d/c..d",
        "d/",
    ]


def test_an_attribute_is_ordered_by_its_first_tracked_assignment():
    root = module(later=None, first=Variable(1))
    root.later = Variable(2)
    root.first = Variable(3)
    assert paths(root) == ["", "first", "later"]


def test_a_deleted_and_added_attribute_goes_last():
    root = module(a=Variable(1), b=Variable(2))
    del root.a
    root.a = Variable(3)
    assert paths(root) == ["", "b", "a"]


def test_numbers_text_and_none_are_no_edges():
    assert paths(module(a=1, b="x", c=None, d=1.5, e=b"", f=print)) == [""]


def test_list_numbering_counts_what_is_not_tracked():
    assert paths(module(l=[1, Variable(1), None, Variable(2)])) == ["", "l", "l/1", "l/3"]


def test_named_tuples_have_edges_by_field_and_then_by_index():
    class Pair(NamedTuple):
        x: object
        y: object

    live = walk(Operation(module(p=Pair(Variable(1), 2))))
    assert live.edges[1] == [("x", 2), ("0", 2)]
    assert live.paths[2] == "p/x"


def test_tuples_without_anything_trackable_are_no_nodes():
    assert paths(module(t=(1, 2))) == [""]
    assert paths(module(t=([],))) == ["", "t", "t/0"]


def test_arrays_and_numpy_scalars_are_values():
    live = walk(Operation(module(a=np.zeros(3), s=np.float32(1))))
    assert [path for path, obj in zip(live.paths, live.objects, strict=True) if path] == ["a", "s"]


def test_an_attribute_wrapped_in_no_dependency_is_no_edge():
    root = module(a=NoDependency(Variable(1)), d={})
    root.d["x"] = NoDependency(Variable(2))
    assert paths(root) == ["", "d"]
    root.a = Variable(3)
    assert "a" in paths(root)


def test_a_dict_with_other_keys_than_strings_and_plain_values_is_fine():
    assert paths(module(d={1: "x", "v": Variable(1)})) == ["", "d", "d/v"]


def test_a_trackable_under_a_non_string_key_is_an_omission():
    root = module(m=module(d={1: Variable(1), "v": Variable(1)}))
    assert paths(root) == ["", "m", "m/d", "m/d/v"]
    (omitted,) = walk(Operation(root), omissions=True).omissions
    assert (omitted.path, omitted.doubtful) == ("m/d/1", False)
    assert "key that is not a string" in omitted.reason


def test_one_that_is_held_elsewhere_too_is_none():
    root = module(v=Variable(1))
    root.d = {1: root.v}
    assert not walk(Operation(root), omissions=True).omissions


def test_slots_in_classes_are_edges():
    class Slotted(Module):
        __slots__ = ("inner",)

    root = Slotted()
    root.inner = Variable(1)
    assert paths(root) == ["", "inner"]


@dataclasses.dataclass
class Holder:
    v: object


@pytest.mark.parametrize(
    "container",
    [
        {Variable: 1}.keys() and frozenset([np.float32(1)]),
        {np.float32(1)},
        collections.deque([Variable(1)]),
        collections.defaultdict(list, a=[Variable(1)]),
        type("MyList", (list,), {})([Variable(1)]),
        Holder(Variable(1)),
    ],
    ids=["frozenset", "set", "deque", "defaultdict", "list subclass", "dataclass"],
)
def test_a_container_that_cannot_be_tracked_but_holds_something_is_a_doubtful_omission(container):
    (omitted,) = walk(Operation(module(m=module(c=container))), omissions=True).omissions
    assert (omitted.path, omitted.doubtful) == ("m/c", True)


def test_a_container_that_holds_nothing_trackable_is_fine():
    assert not walk(Operation(module(c={1, 2}, d=collections.defaultdict(list, a=[1]))), omissions=True).omissions


def test_an_array_of_records_with_objects_is_an_omission():
    (omitted,) = walk(Operation(module(a=np.zeros(1, [("field", object)]))), omissions=True).omissions
    assert "field" in omitted.reason
    assert not omitted.doubtful


def test_members_that_were_added_to_the_assigned_list_or_dict_itself_are_reached():
    layers, table = [Variable(1)], {"a": Variable(2)}
    root = module(layers=layers, table=table)
    layers.append(Variable(3))
    table["b"] = [Variable(4)]
    live = walk(Operation(root), omissions=True)
    assert not live.omissions
    assert list(live.paths) == ["", "layers", "table", "layers/0", "layers/1", "table/a", "table/b", "table/b/0"]


def test_slot_variables_come_last_by_owner_name_and_variable():
    root = module(a=Variable(1.0), opt=SlotOwner(), b=Variable(2.0))
    for variable in (root.b, root.a):
        root.opt.add_slot(variable, "m")
        root.opt.add_slot(variable, "v")
    live = walk(Operation(root))
    assert live.paths[live.first_slot :] == [f"{v}/.OPTIMIZER_SLOT/opt/{s}" for s in "mv" for v in "ab"]


def test_slots_of_variables_that_are_not_reachable_are_left_out():
    root = module(opt=SlotOwner())
    root.opt.add_slot(Variable(1.0), "m")
    assert paths(root) == ["", "opt"]


def test_a_slot_that_is_an_ordinary_child_too_is_refused():
    root = module(v=Variable(1.0), opt=SlotOwner())
    root.m = root.opt.add_slot(root.v, "m")
    with pytest.raises(UnsupportedError, match="ordinary child"):
        walk(Operation(root))


def test_any_object_with_get_slot_is_an_optimizer():
    class Other(Module):
        def get_slot_names(self):
            return ["s"]

        def get_slot(self, variable, name):
            return self.made[0] if variable is self.v else None

    root = Other()
    root.v = Variable(1.0)
    root.made = NoDependency([Variable(0.0)])
    assert paths(root) == ["", "v", "v/.OPTIMIZER_SLOT//s"]


def test_very_deep_graphs_are_no_problem():
    root = bottom = Module()
    for _ in range(5000):
        bottom.next = Module()
        bottom = bottom.next
    assert len(walk(Operation(root)).objects) == 5001


class Skipping(dict[str, object]):
    """Holds objects, of which TensorFlow skips those whose names begin with ``_``."""


class SkippingAdapter(Adapter):
    def handles(self, kind):
        return kind is Skipping

    def children(self, obj):
        return obj.items()

    def skipped_by_tensorflow(self, obj):
        return [name for name in obj if name.startswith("_")]


@pytest.fixture
def skipping():
    adapter = SkippingAdapter()
    register(adapter)
    yield Skipping
    unregister(adapter)


def test_what_tensorflow_skips_is_numbered_last(skipping):
    """All of it, and what only it leads to; so what TensorFlow saves has the numbers that TensorFlow gives it."""
    below = Variable(4)
    root = skipping(
        _one=Variable(1), two=Variable(2), _three=module(v=below), _four=Variable(3), five=skipping(_six=Variable(5))
    )
    graph = walk(Operation(root))
    assert list(graph.paths) == ["", "two", "five", "_one", "_three", "_three/v", "_four", "five/_six"]
    assert graph.skipped_by_tensorflow == range(3, 8)
    assert graph.edges[0] == [("two", 1), ("five", 2), ("_one", 3), ("_three", 4), ("_four", 6)]
    assert graph.first_slot == 8


def test_an_object_with_another_edge_is_not_skipped(skipping):
    shared = Variable(1)
    graph = walk(Operation(skipping(_one=shared, two=module(v=shared))))
    assert list(graph.paths) == ["", "two", "two/v"]
    assert graph.edges[0] == [("two", 1), ("_one", 2)]
    assert list(graph.skipped_by_tensorflow) == []


def test_an_attached_edge_replaces_the_roots_own_edge_of_that_name():
    own, attached, other = Variable(1), Variable(2), Variable(3)
    graph = walk(Operation(module(a=own, b=other), [("a", attached)]))
    assert graph.edges[0] == [("b", 1), ("a", 2)]
    assert graph.objects[1:] == [other, attached]


class Switch:
    def __init__(self, is_on):
        self.is_on = is_on


class SwitchAdapter(Adapter):
    def handles(self, kind):
        return kind is Switch

    def tracks(self, obj):
        return obj.is_on

    def children(self, obj):
        return ()


def test_each_object_of_a_type_is_asked_for_whether_it_is_tracked():
    adapter = SwitchAdapter()
    register(adapter)
    try:
        assert paths(module(a=module(s=Switch(True)), b=module(s=Switch(False)), c=module(s=Switch(True)))) == [
            *("", "a", "b", "c", "a/s", "c/s")
        ]
    finally:
        unregister(adapter)


def test_an_object_that_is_not_tracked_has_no_adapter_in_an_operation():
    adapter = SwitchAdapter()
    register(adapter)
    try:
        found = [adapter_during(Operation(None), Switch(is_on)) for is_on in (True, False)]
    finally:
        unregister(adapter)
    assert found == [adapter, None]
