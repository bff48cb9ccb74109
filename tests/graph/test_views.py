"""A list or dict that a program passes is itself the state: views show what it holds, and restores change it."""

import collections
import copy
import gc
import heapq
import json
import pickle
import sys
import threading
import weakref

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import milepost
from milepost import Checkpoint, Module, NoDependency, PythonState, UntrackableError, Variable
from milepost.errors import RefusedError, UnrestoredWarning, UntrackedWarning
from milepost.storage import MemoryStorage

CONTAINERS = (list, dict)


def restored_twice(tmp_path, make, change):
    """Saves what `make` returns, changes it, and restores it. Returns the object that was passed."""
    own = make()
    checkpoint = Checkpoint(own=own)
    path = checkpoint.write(tmp_path / "ckpt")
    change(own)
    assert own != make()
    checkpoint.read(path).assert_consumed()
    return own


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (lambda: {"epoch": 3}, lambda own: own.update(epoch=4)),
        (lambda: {"epoch": 3, "best": None}, dict.clear),
        (lambda: [1, 2.5, "x"], lambda own: own.append(4)),
        (lambda: [1, 2.5, "x"], list.clear),
        (lambda: [1, 2.5, "x"], list.reverse),
        (lambda: {"a": {"b": [1, [2]]}}, lambda own: own["a"]["b"][1].append(3)),
        (lambda: {"a": {"b": [1, [2]]}}, lambda own: own["a"].clear()),
        (lambda: {"pair": (1, [2])}, lambda own: own["pair"][1].append(3)),
        (lambda: {"pair": (1, [2])}, lambda own: own.update(pair=(4, own["pair"][1]))),
        (lambda: collections.OrderedDict(a=1), lambda own: own.update(a=2)),
    ],
)
def test_a_restore_changes_the_very_object_that_was_passed(tmp_path, make, change):
    own = restored_twice(tmp_path, make, change)
    assert own == make()
    assert type(own) is type(make())


def test_inner_lists_and_dicts_are_the_very_objects_too(tmp_path):
    losses, best = [0.5], {"at": 3}
    meta = {"losses": losses, "best": best}
    checkpoint = Checkpoint(meta=meta)
    path = checkpoint.write(tmp_path / "ckpt")
    losses.append(0.25)
    best["at"] = 4
    checkpoint.read(path)
    assert (losses, best) == ([0.5], {"at": 3})
    assert meta["losses"] is losses
    assert meta["best"] is best


def test_what_a_restore_adds_to_an_own_dict_is_plain(tmp_path):
    path = Checkpoint(meta={"logs": {"loss": [0.5]}, "order": collections.OrderedDict(a=1)}).write(tmp_path / "ckpt")
    meta = {}
    checkpoint = Checkpoint(meta=meta)
    checkpoint.read(path).assert_consumed()
    assert [type(each) for each in (meta["logs"], meta["logs"]["loss"], meta["order"])] == [
        dict,
        list,
        collections.OrderedDict,
    ]
    meta["logs"]["loss"].append(0.25)
    assert checkpoint.meta["logs"]["loss"] == [0.5, 0.25]


def test_an_ordered_dict_of_the_program_takes_the_members_of_a_dict(tmp_path):
    path = Checkpoint(meta={"epoch": 3}).write(tmp_path / "ckpt")
    meta = collections.OrderedDict(epoch=0)
    Checkpoint(meta=meta).read(path).assert_consumed()
    assert meta == {"epoch": 3}


def test_the_own_dict_as_the_root_is_the_state(tmp_path):
    meta = {"epoch": 3, "losses": [0.5]}
    checkpoint = Checkpoint(meta)
    path = checkpoint.write(tmp_path / "ckpt")
    meta["epoch"] = 4
    meta["losses"].append(1.0)
    checkpoint.read(path)
    assert meta == {"epoch": 3, "losses": [0.5]}


def test_variables_in_the_own_list_of_a_module_are_saved_as_the_list_holds_them(tmp_path):
    layers = [Variable(1.0)]
    module = Module()
    module.layers = layers
    layers.append(Variable(2.0))
    path = Checkpoint(module=module).write(tmp_path / "ckpt")
    assert milepost.load_variable(path, "module/layers/1") == 2
    layers[1].assign(3.0)
    Checkpoint(module=module).read(path).assert_consumed()
    assert layers[1] == 2


def test_a_failed_restore_leaves_the_own_list_and_dict_as_they_were(tmp_path):
    class Refuses(PythonState):
        def serialize(self):
            return "state"

        def deserialize(self, string_value):
            raise RuntimeError("no")

    inner = [3]
    history, meta = [1, 2], {"a": 1}
    checkpoint = Checkpoint(history=history, meta=meta, refuses=Refuses())
    path = checkpoint.write(tmp_path / "ckpt")
    history[:] = [5, 6, 7]
    meta.clear()
    meta["b"] = inner
    with pytest.raises(RefusedError):
        checkpoint.read(path)
    assert (history, meta) == ([5, 6, 7], {"b": [3]})
    assert meta["b"] is inner


def test_one_list_in_several_places_is_one_object(tmp_path):
    own = [1]
    checkpoint = Checkpoint(a=own, b=own, c={"d": own})
    assert checkpoint.a is checkpoint.b is checkpoint.c["d"]
    path = checkpoint.write(tmp_path / "ckpt")
    own.append(2)
    checkpoint.read(path).assert_consumed()
    assert own == [1]


def test_a_list_that_holds_itself_is_restored_in_place(tmp_path):
    loop = [1]
    loop.append(loop)
    checkpoint = Checkpoint(loop=loop)
    path = checkpoint.write(tmp_path / "ckpt")
    loop[0] = 2
    loop.append(3)
    checkpoint.read(path).assert_consumed()
    assert (loop[0], loop[1] is loop, len(loop)) == (1, True, 2)
    assert checkpoint.loop[1] is checkpoint.loop


def test_the_lists_and_dicts_inside_a_view_stay_the_same_objects():
    own = {"inner": [1], "pair": (1, [2]), "nested": {"x": [{}]}}
    view = Checkpoint(own=own).own
    own["new"] = ([3],)
    for get in (lambda: view["inner"], lambda: view["pair"], lambda: view["nested"]["x"][0], lambda: view["new"]):
        assert get() is get()


def test_assigning_the_own_list_again_changes_nothing():
    own = [1]
    checkpoint = Checkpoint(own=own)
    view = checkpoint.own
    checkpoint.own = own
    assert checkpoint.own is view


def test_an_object_in_the_own_list_gets_its_deferred_value_when_the_status_is_asked(tmp_path):
    path = Checkpoint(layers=[Variable(1.0), Variable(2.0)]).write(tmp_path / "ckpt")
    layers = []
    checkpoint = Checkpoint(layers=layers)
    status = checkpoint.read(path)
    layers.append(Variable(0.0))
    with pytest.raises(UntrackableError, match="layers/0"):
        checkpoint.write(tmp_path / "again")
    checkpoint.layers.append(Variable(0.0))
    assert layers[1] == 2
    status.assert_consumed()
    assert layers[0] == 1


def test_an_array_that_is_added_to_the_own_list_keeps_its_value(tmp_path):
    path = Checkpoint(memory=[np.full(1, float(n)) for n in range(3)]).write(tmp_path / "ckpt")
    memory = [np.zeros(1)]
    checkpoint = Checkpoint(memory=memory)
    checkpoint.read(path)
    memory.append(np.full(1, 7.0))
    with pytest.warns(UnrestoredWarning, match="a list got a new member"):
        checkpoint.write(tmp_path / "again")
    assert memory[1] == 7


def test_what_a_function_in_c_does_to_a_view_reaches_the_own_list():
    own = [5, 6, 7]
    view = Checkpoint(own=own).own
    heapq.heappush(view, 1)
    assert len(view) == 4
    assert own[0] == 1
    heapq.heapreplace(view, 3)
    assert view[0] == own[0] == 3


def test_the_own_list_wins_over_what_a_function_in_c_did_to_its_view():
    own = [5, 6, 7]
    view = Checkpoint(own=own).own
    own.append(8)
    heapq.heappush(view, 1)
    with pytest.warns(UntrackedWarning, match="the list stays"):
        assert view == [5, 6, 7, 8]
    assert own == [5, 6, 7, 8]


def test_functions_in_c_read_what_the_view_showed_last():
    own = [1, 2]
    view = Checkpoint(own=own).own
    own.append(3)
    assert list(view) == [1, 2, 3]
    assert json.dumps(view) == "[1, 2, 3]"
    assert np.asarray(view).tolist() == [1, 2, 3]
    view.append(4)
    assert np.asarray(view).tolist() == own == [1, 2, 3, 4]


READS = {
    "len": len,
    "list": list,
    "tuple": tuple,
    "star": lambda each: [*each],
    "arguments": lambda each: (lambda *members: members)(*each),
    "unpacked": lambda each: [(first, rest) for first, *rest in [each]],
    "sorted": sorted,
    "sum": sum,
    "repr": lambda each: repr(list(each)),
    "first": lambda each: each[0],
    "last": lambda each: each[-1],
    "slice": lambda each: each[1:],
    "in": lambda each: 9 in each,
    "count": lambda each: each.count(9),
    "index": lambda each: each.index(9),
    "reversed": lambda each: list(reversed(each)),
    "added": lambda each: each + [1],  # noqa: RUF005
    "multiplied": lambda each: each * 2,
    "equal": lambda each: (each == [1, 2, 9], each != [1, 2, 9]),
    "less": lambda each: (each < [1, 3], each >= [1, 2, 3]),
    "copy": lambda each: list(copy.copy(each)),
    "deepcopy": lambda each: list(copy.deepcopy(each)),
    "pickle": lambda each: list(pickle.loads(pickle.dumps(each))),
    "array": lambda each: np.array(list(each)).tolist(),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_each_way_to_read_a_view_of_a_list_reads_the_list_as_it_is_now(read):
    own = [1, 2]
    view = Checkpoint(own=own).own
    own.append(9)
    assert read(view) == read([1, 2, 9])
    own.append(8)
    assert own == view


READS_OF_DICTS = {
    "len": len,
    "list": list,
    "dict": dict,
    "arguments": lambda each: dict(**each),
    "merged": lambda each: {"z": 0, **each},
    "or": lambda each: ({"z": 0} | each, each | {"z": 0}),
    "item": lambda each: each["new"],
    "get": lambda each: each.get("new"),
    "in": lambda each: "new" in each,
    "keys": lambda each: list(each.keys()),
    "values": lambda each: list(each.values()),
    "items": lambda each: list(each.items()),
    "reversed": lambda each: list(reversed(each)),
    "equal": lambda each: (each == {"a": 1, "new": 9}, each != {"a": 1}),
    "json": json.dumps,
    "copy": lambda each: dict(copy.copy(each)),
    "deepcopy": lambda each: dict(copy.deepcopy(each)),
    "pickle": lambda each: dict(pickle.loads(pickle.dumps(each))),
    "str": lambda each: str(dict(each)),
}


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict])
@pytest.mark.parametrize("read", READS_OF_DICTS.values(), ids=READS_OF_DICTS)
def test_each_way_to_read_a_view_of_a_dict_reads_the_dict_as_it_is_now(read, kind):
    own = kind(a=1)
    view = Checkpoint(own=own).own
    own["new"] = 9
    assert read(view) == read(kind(a=1, new=9))


def test_a_copy_of_a_checkpoint_has_lists_and_dicts_of_its_own():
    own = {"epoch": 1, "losses": [0.5]}
    checkpoint = Checkpoint(own=own)
    for twin in (
        copy.deepcopy(checkpoint.own),
        pickle.loads(pickle.dumps(checkpoint.own)),
        copy.deepcopy(checkpoint).own,
    ):
        twin["epoch"] = 2
        twin["losses"].append(1.0)
        assert own == checkpoint.own == {"epoch": 1, "losses": [0.5]}
        assert twin == {"epoch": 2, "losses": [0.5, 1.0]}


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_a_list_and_its_view_that_are_copied_together_stay_together(copied):
    own = {"losses": [0.5]}
    twin, view = copied((own, Checkpoint(own=own).own))
    twin["losses"].append(1.0)
    view["epoch"] = 3
    assert twin == view == {"losses": [0.5, 1.0], "epoch": 3}
    assert own == {"losses": [0.5]}


def test_members_that_are_not_to_be_saved_stay_marked(tmp_path):
    own = {"a": 1}
    checkpoint = Checkpoint(own=own)
    own["b"] = NoDependency([1])
    checkpoint.own["c"] = NoDependency(2)
    names = [name for name, _ in milepost.list_variables(checkpoint.write(tmp_path / "ckpt"))]
    assert [name for name in names if name.startswith("own/")] == ["own/a/.ATTRIBUTES/VARIABLE_VALUE"]
    assert (checkpoint.own["b"], own["c"]) == ([1], 2)


def test_a_list_that_nobody_else_holds_is_held_once():
    class Member:
        pass

    checkpoint = Checkpoint(own=[1, [2]], other={"a": Variable(0.0)})
    assert list(checkpoint.own) == [1, [2]]
    assert not hasattr(checkpoint.own, "_former")
    module = Module()
    module.members = [Member()]
    gone = weakref.ref(module.members.pop())
    gc.collect()
    assert gone() is None


def test_threads_that_read_and_change_a_view_and_its_list_lose_nothing():
    own = []
    view = Checkpoint(own=own).own
    done = threading.Event()

    def read():
        while not done.is_set():
            list(view)
            len(view)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    readers = [threading.Thread(target=read) for _ in range(2)]
    try:
        for reader in readers:
            reader.start()
        for number in range(2_000):
            view.append(number)
    finally:
        done.set()
        for reader in readers:
            reader.join()
        sys.setswitchinterval(interval)
    assert own == list(range(2_000))
    assert view == own


def test_a_save_beside_changes_of_the_own_dict_fails_never_and_loses_nothing():
    own = {"list": [], "dict": {}}
    checkpoint = Checkpoint(own=own)
    options = milepost.CheckpointOptions(storage=MemoryStorage())
    done = threading.Event()
    errors = []

    def save():
        while not done.is_set():
            try:
                checkpoint.write("ckpt", options)
            except Exception as error:
                errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    saver = threading.Thread(target=save)
    try:
        saver.start()
        for number in range(1_000):
            (own if number % 2 else checkpoint.own)["list"].append(number)
            (checkpoint.own if number % 3 else own)["dict"][str(number % 40)] = number
            own["dict"].pop(str(number % 7), None)
    finally:
        done.set()
        saver.join()
        sys.setswitchinterval(interval)
    assert not errors
    assert own["list"] == list(range(1_000))
    assert checkpoint.own == own


values = st.recursive(
    st.none() | st.integers(0, 9) | st.text(max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(collections.OrderedDict)
        | st.tuples(inner, inner)
    ),
    max_leaves=6,
)
keys = st.sampled_from("abc")


def plain(value):
    """A copy of a value without views."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        kind = collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict
        return kind((key, plain(each)) for key, each in value.items())
    return tuple(plain(each) for each in value) if isinstance(value, tuple) else value


def below(value):
    """A list or dict, and all that are reached from it, in order."""
    found, left = [], [value]
    for each in left:
        if isinstance(each, CONTAINERS):
            found.append(each)
        if isinstance(each, (*CONTAINERS, tuple)):
            left += each.values() if isinstance(each, dict) else each
    return found


class OneTruth(RuleBasedStateMachine):
    """Any sequence of operations on a program's own dict and on its view has the effect that it has on one dict."""

    def __init__(self):
        super().__init__()
        self.own = {"a": [1, {"b": [2]}], "b": (3, [4])}
        self.expected = copy.deepcopy(self.own)
        self.checkpoint = Checkpoint(own=self.own)
        self.saved = 0
        self.storage = MemoryStorage()
        self.options = milepost.CheckpointOptions(storage=self.storage)

    def do(self, data, kind, operation):
        """Does the same to the expected value, and to the own one or the view."""
        numbers = [n for n, each in enumerate(below(self.expected)) if isinstance(each, kind)]
        if not numbers or len(below(self.expected)) > 40:
            return
        number = data.draw(st.sampled_from(numbers))
        side = self.own if data.draw(st.booleans()) else self.checkpoint.own
        outcomes = []
        for each in (below(self.expected)[number], below(side)[number]):
            try:
                outcomes.append(plain(operation(each)))
            except (IndexError, KeyError, ValueError) as error:
                outcomes.append(type(error))
        assert outcomes[0] == outcomes[1]

    @rule(data=st.data(), value=values, name=st.sampled_from(["append", "extend"]))
    def add(self, data, value, name):
        self.do(data, list, lambda each: getattr(each, name)([copy.deepcopy(value)][: 1 if name == "extend" else None]))

    @rule(data=st.data(), value=values, index=st.integers(-4, 4))
    def insert(self, data, value, index):
        self.do(data, list, lambda each: each.insert(index, copy.deepcopy(value)))

    @rule(data=st.data(), value=values, index=st.integers(-4, 4))
    def set_item(self, data, value, index):
        self.do(data, list, lambda each: each.__setitem__(index, copy.deepcopy(value)))

    @rule(data=st.data(), value=st.lists(values, max_size=3), start=st.integers(-4, 4), stop=st.integers(-4, 4))
    def set_slice(self, data, value, start, stop):
        self.do(data, list, lambda each: each.__setitem__(slice(start, stop), copy.deepcopy(value)))

    @rule(data=st.data(), index=st.integers(-4, 4))
    def pop(self, data, index):
        self.do(data, list, lambda each: each.pop(index))

    @rule(data=st.data(), index=st.integers(-4, 4))
    def get_item(self, data, index):
        self.do(data, list, lambda each: each[index])

    @rule(data=st.data(), start=st.integers(-4, 4), stop=st.integers(-4, 4))
    def delete_slice(self, data, start, stop):
        self.do(data, list, lambda each: each.__delitem__(slice(start, stop)))

    @rule(data=st.data(), value=st.integers(0, 9))
    def remove(self, data, value):
        self.do(data, list, lambda each: each.remove(value))

    @rule(data=st.data(), name=st.sampled_from(["reverse", "clear"]))
    def whole(self, data, name):
        self.do(data, list, lambda each: getattr(each, name)())

    @rule(data=st.data())
    def sort(self, data):
        self.do(data, list, lambda each: each.sort(key=lambda member: repr(plain(member))))

    @rule(data=st.data(), value=values)
    def append_in_c(self, data, value):
        self.checkpoint.own == self.own  # noqa: B015 - the views show all that was done to the own lists
        self.do(data, list, lambda each: list.append(each, copy.deepcopy(value)))

    @rule(data=st.data(), key=keys, value=values)
    def set_key(self, data, key, value):
        self.do(data, dict, lambda each: each.__setitem__(key, copy.deepcopy(value)))

    @rule(data=st.data(), key=keys, name=st.sampled_from(["pop", "__delitem__", "__getitem__", "get", "setdefault"]))
    def with_key(self, data, key, name):
        self.do(data, dict, lambda each: getattr(each, name)(key))

    @rule(data=st.data(), others=st.dictionaries(keys, values), name=st.sampled_from(["update", "__ior__"]))
    def update(self, data, others, name):
        self.do(data, dict, lambda each: getattr(each, name)(copy.deepcopy(others)) and None)

    @rule(data=st.data(), name=st.sampled_from(["popitem", "clear"]))
    def shrink(self, data, name):
        self.do(data, dict, lambda each: getattr(each, name)())

    @rule(data=st.data(), key=keys, last=st.booleans())
    def move(self, data, key, last):
        self.do(data, collections.OrderedDict, lambda each: each.move_to_end(key, last))

    @rule()
    def save(self):
        self.saved += 1
        self.checkpoint.write(f"ckpt-{self.saved}", self.options)

    @rule(back=st.integers(0, 3))
    def restore(self, back):
        """It has the effect that it has on lists and dicts that the program does not keep."""
        if self.saved:
            path = f"ckpt-{max(1, self.saved - back)}"
            kept_by_nobody = Checkpoint(own=copy.deepcopy(self.expected))
            kept_by_nobody.read(path, self.options).expect_partial()
            self.checkpoint.read(path, self.options).expect_partial()
            self.expected = plain(kept_by_nobody.own)

    @rule()
    def copy_together(self):
        self.own, self.checkpoint = copy.deepcopy((self.own, self.checkpoint))

    @invariant()
    def alike(self):
        view = self.checkpoint.own
        assert plain(view) == self.expected
        assert view == self.own == self.expected
        assert plain(self.own) == self.own
        assert [type(each) for each in below(self.own)] == [type(each) for each in below(self.expected)]
        assert json.dumps(view) == json.dumps(self.own)


TestOneTruth = OneTruth.TestCase
TestOneTruth.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_a_member_that_the_program_exchanges_is_exchanged_in_the_memory_of_the_view():
    original = {"a": [1], "b": [2]}
    view = Checkpoint(meta=original).meta
    original["a"] = [7]
    assert list(view.items()) == [("a", [7]), ("b", [2])]
    assert dict.__getitem__(view, "a") == [7]


def test_a_dict_that_a_function_in_c_appends_to_a_view_is_the_one_that_a_restore_changes(tmp_path):
    original = [{"a": 1}]
    checkpoint = Checkpoint(items=original)
    path = Checkpoint(items=[{"a": 1}, {"a": 2}]).write(tmp_path / "ckpt")
    appended = {"b": 3}
    list.append(checkpoint.items, appended)
    checkpoint.read(path)
    assert original[1] is appended
    assert appended == {"a": 2, "b": 3}
