"""Random object graphs that come into being piece by piece after they were restored."""

import operator

from hypothesis import given
from hypothesis import strategies as st

from milepost import Checkpoint, CheckpointOptions, CheckpointReader, Module, Variable
from milepost.storage import MemoryStorage

first = operator.itemgetter(0)
names = st.sampled_from(["a", "b", "x.y", "x/y", "0", "1", "ä", "_p"])
recipes = st.recursive(
    st.tuples(st.just("variable"), st.integers(0, 1000)) | st.tuples(st.just("shared"), st.integers(0, 20)),
    lambda inner: st.one_of(
        st.tuples(st.just("module"), st.lists(st.tuples(names, inner), max_size=4, unique_by=first)),
        st.tuples(st.just("dict"), st.lists(st.tuples(names, inner), max_size=4, unique_by=first)),
        st.tuples(st.just("list"), st.lists(inner, max_size=4)),
    ),
    max_leaves=12,
)
roots = st.lists(st.tuples(names, recipes), min_size=1, max_size=4, unique_by=first)


class Grower:
    """Grows a graph from the root downwards: every object is attached before anything is attached to it."""

    def __init__(self, *, blank):
        self.blank = blank
        self.objects = []

    def grow(self, root, recipe):
        for name, inner in recipe:
            self.attach(lambda new, name=name: setattr(root, name, new), lambda name=name: getattr(root, name), inner)
        return root

    def attach(self, put, get, recipe):
        kind, detail = recipe
        if kind == "shared":
            if self.objects:
                put(self.objects[detail % len(self.objects)])
        elif kind == "variable":
            put(Variable(-1 if self.blank else detail))
            self.objects.append(get())
        elif kind == "module":
            put(Module())
            self.objects.append(get())
            self.grow(get(), detail)
        elif kind == "dict":
            put({})
            table = get()
            for name, inner in detail:
                self.attach(lambda new, name=name: table.__setitem__(name, new), lambda name=name: table[name], inner)
        else:
            put([])
            items = get()
            for inner in detail:
                self.attach(items.append, lambda: items[-1], inner)


def values(grower):
    return [int(each) for each in grower.objects if isinstance(each, Variable)]


@given(roots)
def test_every_value_arrives_as_its_object_is_attached(recipe):
    options = CheckpointOptions(storage=MemoryStorage())
    source, target = Grower(blank=False), Grower(blank=True)
    path = saved(source, recipe, options)
    live = Checkpoint()
    status = live.read(path, options)
    target.grow(live, recipe)
    assert values(target) == values(source)
    status.assert_consumed().assert_existing_objects_matched()


@given(roots, roots)
def test_what_is_restored_into_another_graph_is_only_what_has_the_same_names(recipe, other):
    """Whatever the two graphs are, every value is accounted for, and none of the wrong place is taken."""
    options = CheckpointOptions(storage=MemoryStorage())
    source, target = Grower(blank=False), Grower(blank=True)
    path = saved(source, recipe, options)
    live = target.grow(Checkpoint(), other)
    status = live.read(path, options).expect_partial()
    report = status.report()
    accounted = {entry.key for entry in report.matched + report.deferred + report.unexpected}
    assert accounted == {key for key in CheckpointReader(path, options).get_variable_to_shape_map() if "/." in key}
    restored = [value for value in values(target) if value != -1]
    assert set(restored) <= set(values(source))
    assert len(restored) <= len(report.matched)


def saved(grower, recipe, options):
    return grower.grow(Checkpoint(), recipe).write("ckpt", options)


def test_waiting_values_are_settled_one_by_one():
    options = CheckpointOptions(storage=MemoryStorage())
    path = Checkpoint(items=[Variable(n) for n in range(5000)]).write("ckpt", options)
    live = Checkpoint(items=[])
    status = live.read(path, options)
    for _ in range(3000):
        live.items.append(Variable(-1))
    assert [int(each) for each in live.items] == list(range(3000))
    assert len(status.report().deferred) == 2000
    status.expect_partial()
