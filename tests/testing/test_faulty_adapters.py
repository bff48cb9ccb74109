"""Each test of the kit for adapters fails for adapters with the very fault that it is about."""

import copy
import threading

import numpy as np
import pytest

from milepost.adapters import VARIABLE_VALUE, Adapter, DType, Omission, Value, restore_children
from milepost.testing.adapter_suite import AdapterSuite
from tests.testing import extending as TINY  # noqa: N812 - a module of classes that are written on a page
from tests.testing.test_adapter_suite import TESTS, OddAdapter, registered, tiny_specimen


class Assigned(TINY.ParamAdapter):
    """Values that go through `assign`."""

    def values(self, param):
        return [Value(VARIABLE_VALUE, DType.of("float32"), param.data.shape, param.data)]

    def assign(self, param, arrays):
        param.data[...] = arrays[VARIABLE_VALUE]
        return param


class HandlesNothing(TINY.DenseAdapter):
    def handles(self, kind):
        return False


class HasNoWayBack(TINY.ParamAdapter):
    def values(self, param):
        return [Value(VARIABLE_VALUE, DType.of("float32"), param.data.shape, param.data)]


class ForgetsToAssign(Assigned):
    def assign(self, param, arrays):
        return param


class LeavesOutAChild(TINY.DenseAdapter):
    def children(self, layer):
        return [("kernel", layer.kernel)]


class MakesAnother(Assigned):
    def assign(self, param, arrays):
        return TINY.Param(arrays[VARIABLE_VALUE])


class ReplacesInACopy(TINY.DenseAdapter):
    def replace(self, layer, changes):
        successor = copy.copy(layer)
        vars(successor).update(changes)
        return successor


class ClearsWhenSaved(TINY.ParamAdapter):
    def values_to_save(self, param):
        param.data[...] = 0
        return self.values(param)


class KeepsTheFirstValue(Assigned):
    def values(self, param):
        first = vars(param).setdefault("first", param.data.copy())
        return [Value(VARIABLE_VALUE, DType.of("float32"), first.shape, first)]


class LocksTheArray(Assigned):
    def assign(self, param, arrays):
        param.data = arrays[VARIABLE_VALUE].copy()
        param.data.flags.writeable = False
        return param


class NamesByIdentity(TINY.DenseAdapter):
    def children(self, layer):
        return [(f"kernel-{id(layer)}", layer.kernel), ("bias", layer.bias)]


class RemembersOneObject(TINY.ParamAdapter):
    def __init__(self):
        self.known = {}

    def values(self, param):
        return self.known.setdefault(param.data.shape, super().values(param))


class View:
    def __init__(self, param):
        self.data = param.data


class ViewAdapter(TINY.ParamAdapter):
    def handles(self, kind):
        return kind is View


class WrapsChildrenAnew(TINY.DenseAdapter):
    def children(self, layer):
        return [(name, View(child)) for name, child in super().children(layer) if child is not None]


class Alias(np.ndarray):
    def copy(self, order="C"):
        return self


class IsNotCopied(Assigned):
    def values(self, param):
        return [Value(VARIABLE_VALUE, DType.of("float32"), param.data.shape, param.data.view(Alias))]


class SavesLess(TINY.ParamAdapter):
    def values(self, param):
        return [*super().values(param), Value("count", DType.of("int64"), (), np.array(0))]

    def values_to_save(self, param):
        return super().values(param)


class ClearsWhenReported(TINY.DenseAdapter):
    def exchanged(self, layer):
        layer.bias.data[...] = 0
        return ()


class HidesWhatWasNeverSaved(TINY.ParamAdapter):
    def values(self, param):
        return super().values(param) if hasattr(param, "was_saved") else ()

    def values_to_save(self, param):
        param.was_saved = True
        return self.values(param)


class HasMoreEachTime(TINY.DenseAdapter):
    def children(self, layer):
        layer.asked = getattr(layer, "asked", 0) + 1
        return [*super().children(layer), (f"cache{layer.asked}", TINY.Param(0.0))]


class ChangesAnother(TINY.MomentumAdapter):
    def on_restored(self, optimizer):
        for param in optimizer.velocity:
            param.data[...] = 0


class TakesAnyShape(Assigned):
    def values(self, param):
        return [Value(VARIABLE_VALUE, DType.of("float32"), (None,) * param.data.ndim, param.data)]

    def assign(self, param, arrays):
        param.data = arrays[VARIABLE_VALUE].copy()
        return param


class PutsNothingBack(Assigned):
    def before_assign(self, param):
        return lambda: None


class DropsNoSlots(TINY.MomentumAdapter):
    def drop_slot(self, optimizer, variable, name):
        pass


class SetsNoHook(TINY.DenseAdapter):
    def on_deferred(self, layer):
        pass


class WantsOnlyWhatThereIs(TINY.DenseAdapter):
    def unwanted(self, layer, saved):
        return [name for name in saved if getattr(layer, name) is None]


class KeepsItAlive(TINY.DenseAdapter):
    alive: list[object] = []  # noqa: RUF012 - the fault

    def on_deferred(self, layer):
        super().on_deferred(layer)
        self.alive.append(layer)


class HasSlotsAsChildren(TINY.MomentumAdapter):
    def has_slots(self, optimizer):
        return False

    def children(self, optimizer):
        return [(f"velocity{number}", slot) for number, slot in enumerate(optimizer.velocity.values())]


class IsNeverSure(TINY.DenseAdapter):
    def unfinished(self, layer):
        return Omission("something may be missing", doubtful=True)


class SaysNothingOfOddThings(Adapter):
    def handles(self, kind):
        return OddAdapter().handles(kind)


class HooksALambda(TINY.DenseAdapter):
    def on_deferred(self, layer):
        layer.after_build = lambda built: restore_children(built)


class HoldsALock(TINY.DenseAdapter):
    def on_deferred(self, layer):
        super().on_deferred(layer)
        layer.lock = threading.Lock()


def without_seed(seed):
    return TINY.make(1)


def train_the_kernel(objects):
    objects["optimizer"].step({objects["layer"].kernel: 1.0})


def read_without_copies(objects):
    return {"kernel": objects["layer"].kernel.data}


FAULTS: dict[str, list[list[type]]] = {
    "test_the_objects_have_adapters": [[HandlesNothing]],
    "test_every_value_can_be_restored": [[HasNoWayBack]],
    "test_values_come_back": [[ForgetsToAssign], [LeavesOutAChild]],
    "test_objects_stay_the_same": [[MakesAnother, ReplacesInACopy]],
    "test_saving_changes_nothing": [[ClearsWhenSaved]],
    "test_each_save_reads_anew": [[KeepsTheFirstValue]],
    "test_restored_objects_can_be_trained_and_saved": [[LocksTheArray]],
    "test_names_are_the_same_in_every_run": [[NamesByIdentity]],
    "test_an_adapter_holds_nothing_of_its_objects": [[RemembersOneObject]],
    "test_an_object_with_two_names_is_saved_once": [[WrapsChildrenAnew, ViewAdapter]],
    "test_an_asynchronous_save_is_of_the_moment": [[IsNotCopied]],
    "test_a_whole_restore_is_reported": [[SavesLess]],
    "test_reports_change_nothing": [[ClearsWhenReported]],
    "test_what_was_not_saved_is_missing": [[HidesWhatWasNeverSaved]],
    "test_what_no_object_takes_is_left_over": [[HasMoreEachTime]],
    "test_each_object_can_be_restored_alone": [[ChangesAnother]],
    "test_a_value_that_does_not_fit_changes_nothing": [[TakesAnyShape]],
    "test_a_failed_restore_puts_everything_back": [[PutsNothingBack], [DropsNoSlots]],
    "test_a_failed_restore_defers_nothing": [[DropsNoSlots]],
    "test_deferred_values_come_by_themselves": [[SetsNoHook]],
    "test_deferred_values_are_reported": [[WantsOnlyWhatThereIs]],
    "test_a_save_keeps_what_is_deferred": [[WantsOnlyWhatThereIs]],
    "test_what_is_deferred_keeps_no_object_alive": [[KeepsItAlive]],
    "test_slots_are_saved_as_slots": [[HasSlotsAsChildren]],
    "test_slots_can_be_left_out": [[HasSlotsAsChildren]],
    "test_nothing_is_left_out": [[IsNeverSure]],
    "test_what_cannot_be_saved_fails_the_save": [[SaysNothingOfOddThings]],
    "test_objects_are_copied_as_before": [[HoldsALock]],
    "test_objects_are_pickled_as_before": [[HooksALambda]],
}
SPECIMENS = [
    {"make": without_seed},
    {"train": train_the_kernel},
    {"read": read_without_copies, "slots": ()},
    {"read": lambda objects: {}, "slots": ()},
]


def fails(test, specimen):
    try:
        getattr(AdapterSuite(), test)(specimen)
    except (Exception, pytest.fail.Exception) as error:
        return type(error).__name__
    return None


def right():
    return TINY.ParamAdapter(), TINY.DenseAdapter(), TINY.MomentumAdapter(), OddAdapter()


def test_every_test_has_its_fault():
    assert sorted([*FAULTS, "test_the_specimen_can_tell_values_apart"]) == TESTS


@pytest.mark.parametrize("test", TESTS)
def test_right_adapters_pass(test):
    with registered(*right()):
        getattr(AdapterSuite(), test)(tiny_specimen())


CASES = [pytest.param(test, kinds, id=f"{test}-{kinds[0].__name__}") for test, all in FAULTS.items() for kinds in all]


@pytest.mark.parametrize(("test", "kinds"), CASES)
def test_a_fault_fails_its_test(test, kinds):
    """The faulty ones are asked first, since they are registered later."""
    rest = right()
    if kinds == [HandlesNothing]:
        rest = [each for each in rest if not isinstance(each, TINY.DenseAdapter)]
    if kinds == [SaysNothingOfOddThings]:
        rest = rest[:3]
    with registered(*rest, *(kind() for kind in kinds)):
        assert fails(test, tiny_specimen()) not in (None, "Skipped")


@pytest.mark.parametrize("change", SPECIMENS)
def test_a_specimen_that_proves_nothing_fails(change):
    with registered(*right()):
        assert fails("test_the_specimen_can_tell_values_apart", tiny_specimen(**change)) == "AssertionError"
