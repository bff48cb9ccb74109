"""The docstring of `Adapter` tells the order in which its methods are called: compared with the calls that are recorded."""

import inspect
import re
from typing import NamedTuple

import numpy as np
import pytest

import milepost
from milepost.adapters import Adapter
from milepost.deferred import table
from milepost.errors import RefusedError
from milepost.facts import ListedFact
from milepost.storage import MemoryStorage
from milepost.testing.disturbances import Fuse
from tests.testing import extending as TINY  # noqa: N812 - a module of classes that are written on a page
from tests.testing.test_adapter_suite import registered

METHODS = {
    name for name in dir(Adapter) if name[0] != "_" and inspect.isfunction(inspect.getattr_static(Adapter, name))
}
ANYWHERE = {"handles", "during", "tracks"}
HEADINGS = {
    "attaching": "When an object becomes an attribute",
    "save": "A save:",
    "restore": "A restore:",
    "deferred": "A deferred restore, when",
    "failed": "A restore that fails",
    "report": "A report or an assertion",
}


class Line(NamedTuple):
    """One line of a list: the methods in it, and whether they are called anew for each slot variable of an object."""

    methods: list[str]
    repeats: bool


def documented(heading):
    """The lines of one list in the docstring that name methods; a line may stand for lines of another list."""
    text = inspect.getdoc(Adapter).split(HEADINGS[heading])[1]
    lines = re.search(r"\n\n((?:- .*\n(?:  .*\n)*)+)", text)[1]
    found = []
    for line in re.findall(r"- (.*(?:\n  .*)*)", lines):
        if "first four lines of a save" in line:
            found += documented("save")[:4]
        elif "all lines of a restore" in line:
            found += documented("restore")
        else:
            names = [name for name in re.findall(r"``(\w+)``", line) if name in METHODS]
            found.append(Line(names, line.startswith(("each saved slot variable", "each optimizer"))))
    return [line for line in found if line.methods]


class Recorder:
    """Records the calls that milepost makes, and not those that an adapter makes itself."""

    def __init__(self):
        self.calls = []
        self.depth = 0

    def adapter(self, kind):
        recorder = self

        class Recorded(kind):
            def __getattribute__(self, name):
                value = object.__getattribute__(self, name)
                return recorder.recorded(name, value) if name in METHODS else value

        Recorded.overrides = METHODS - {"tracks"}  # as one who has an answer to everything
        return Recorded()

    def recorded(self, name, method):
        def call(*arguments):
            if not self.depth and name not in ANYWHERE:
                self.calls.append((id(arguments[0]), name))
            self.depth += 1
            try:
                return method(*arguments)
            finally:
                self.depth -= 1

        return call

    def take(self):
        calls, self.calls = self.calls, []
        return calls


class FrozenDense(TINY.DenseAdapter):
    """With a value that cannot change, so that the layer gets its successor."""

    def children(self, layer):
        return [*super().children(layer), ("scale", layer.scale)]

    def replace(self, layer, changes):
        vars(layer).update(changes)
        return layer


class AssignedParam(TINY.ParamAdapter):
    def values(self, param):
        (value,) = super().values(param)
        value.destination = None
        return [value]

    def assign(self, param, arrays):
        (param.data[...],) = arrays.values()
        return param


class RemovingMomentum(TINY.MomentumAdapter):
    def before_make_slot(self, optimizer, variable, name):
        former = dict(optimizer.velocity)
        return lambda: optimizer.velocity.update(former)

    def removable_slots(self, optimizer, saved):
        return [(variable, "velocity") for variable in optimizer.velocity]


def objects(*, built, stepped):
    layer, optimizer = TINY.Dense(2), TINY.Momentum()
    layer.scale = np.float32(1)
    if built:
        layer(np.ones((1, 3), np.float32))
    if stepped:
        optimizer.step({layer.bias: 1.0, **({layer.kernel: 1.0} if built else {})})
    return {"layer": layer, "optimizer": optimizer}


@pytest.fixture(autouse=True)
def nothing_deferred(monkeypatch):
    """Values that other tests have left deferred would be looked for, too."""
    monkeypatch.setattr(table, "_entries", ListedFact())


@pytest.fixture
def recorder():
    recorder = Recorder()
    with registered(*map(recorder.adapter, (AssignedParam, FrozenDense, TINY.MomentumAdapter))):
        yield recorder


@pytest.fixture
def options(recorder):
    options = milepost.CheckpointOptions(storage=MemoryStorage())
    milepost.Checkpoint(**objects(built=True, stepped=True), zz_fuse=Fuse()).write("ckpt", options)
    recorder.take()
    return options


def lines_of(calls, lines):
    """Sorts calls into the lines: each takes the calls that it names, for one object in the order in which it names them.

    Returns:
        For each line, the names of the methods that were called.
    """
    called = [set() for _ in lines]
    number, progress = 0, {}
    for obj, name in calls:
        while name not in lines[number].methods or (
            lines[number].methods.index(name) < progress.get(obj, 0) and not lines[number].repeats
        ):
            number, progress = number + 1, {}
            assert number < len(lines), f"{name} is called after all that is documented, or is not: {calls}"
        called[number].add(name)
        progress[obj] = lines[number].methods.index(name)
    return called


def check(calls, heading, *, but=()):
    """Compares calls with a list: they come in its order, and all methods that it names are called, but for some."""
    lines = documented(heading)
    called = lines_of(calls, lines)
    assert called == [{*line.methods} - {*but} for line in lines]


def test_all_methods_are_in_the_docstring():
    named = set(re.findall(r"``(\w+)``", inspect.getdoc(Adapter)))
    assert METHODS - named == set()


def test_attaching(recorder):
    milepost.Checkpoint(**objects(built=True, stepped=True))
    check(recorder.take(), "attaching")


def test_a_save(recorder):
    checkpoint = milepost.Checkpoint(**objects(built=True, stepped=True))
    recorder.take()
    checkpoint.write("ckpt", milepost.CheckpointOptions(storage=MemoryStorage()))
    check(recorder.take(), "save")


def test_a_restore(recorder, options):
    checkpoint = milepost.Checkpoint(**objects(built=False, stepped=True))
    recorder.take()
    checkpoint.read("ckpt", options).expect_partial()
    check(recorder.take(), "restore", but={"before_make_slot", "make_slot", "drop_slot"})


def test_a_restore_that_makes_a_slot_variable(recorder, options):
    checkpoint = milepost.Checkpoint(**objects(built=True, stepped=False))
    recorder.take()
    checkpoint.read("ckpt", options).expect_partial()
    lines = documented("restore")
    *called, last = lines_of(recorder.take(), lines)
    of_removed, others = {"before_make_slot", "drop_slot"}, {"slot_fits", "stand_ins", "on_deferred"}
    assert called == [
        {*line.methods} - (others if {*line.methods} != of_removed else of_removed) for line in lines[:-1]
    ]
    assert last == set(), "nothing is deferred"


def test_a_restore_that_removes_slot_variables(recorder):
    options = milepost.CheckpointOptions(storage=MemoryStorage())
    with registered(recorder.adapter(RemovingMomentum)):
        milepost.Checkpoint(**objects(built=True, stepped=False)).write("ckpt", options)
        checkpoint = milepost.Checkpoint(**objects(built=True, stepped=True))
        recorder.take()
        checkpoint.read("ckpt", options)
    names = [name for _, name in recorder.take()]
    walk = slice(len(names) - names[::-1].index("removable_slots"), names.index("may_refuse"))
    assert {*names[walk]} >= {"children", "slot_names", "slot"}
    del names[walk]
    assert names[names.index("replace") :] == [
        "replace",
        *("loads_saved",) * 4,
        *("before_make_slot", "drop_slot") * 2,
        *("on_restored",) * 4,
    ]
    assert checkpoint.optimizer.velocity == {}


def test_a_deferred_restore(recorder, options):
    checkpoint = milepost.Checkpoint(**objects(built=False, stepped=True))
    checkpoint.read("ckpt", options).expect_partial()
    recorder.take()
    checkpoint.layer(np.ones((1, 3), np.float32))
    calls = recorder.take()
    assert [name for _, name in calls] == [
        *("stand_ins", "children"),
        *("values", "has_slots", "slot", "before_make_slot", "make_slot", "values"),
        *("may_refuse", "may_refuse"),
        *("before_assign", "assign") * 2,
        *("loads_saved", "loads_saved"),
        *("on_restored", "on_restored", "on_restored"),
    ]
    lines_of(calls, documented("deferred"))


def test_a_restore_that_fails(recorder, options):
    checkpoint = milepost.Checkpoint(**objects(built=True, stepped=False), zz_fuse=Fuse())
    recorder.take()
    with pytest.raises(RefusedError):
        checkpoint.read("ckpt", options)
    calls = recorder.take()
    names = [name for _, name in calls]
    blown = names.index("replace", names.index("on_restored"))  # objects have been told, and the fuse fails
    check(calls[blown:], "failed", but={"before_assign", "before_make_slot"})


def test_a_report(recorder, options):
    missing = objects(built=True, stepped=False)["layer"]
    checkpoint = milepost.Checkpoint(**objects(built=True, stepped=True), missing=missing)
    status = checkpoint.read("ckpt", options).expect_partial()
    status.stop_waiting()  # for the fuse
    recorder.take()
    status.report()
    calls = recorder.take()
    first = [name for _, name in calls].index(
        "exchanged"
    )  # before that a walk, if another test has left something deferred
    check(calls[first:], "report")


def test_a_list_in_another_order_does_not_fit():
    lines = documented("save")
    walk, values = lines[0].methods, lines[-1].methods
    calls = [(1, name) for name in (*walk, *values)]
    lines_of(calls, lines)
    with pytest.raises(AssertionError, match="after all that is documented"):
        lines_of(calls[::-1], lines)
