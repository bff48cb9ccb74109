"""Tests for the adapters of a framework, for pytest.

Derive a class from `AdapterSuite`, and add a fixture ``specimen``, which makes, trains and reads objects of the framework. It reads
them without the adapters, so that an adapter that saves and restores the same wrong values fails::

    class TestMyAdapters(AdapterSuite):
        @pytest.fixture
        def specimen(self):
            return Specimen(make, read, train, unbuilt=unbuilt, build=build, slots={"velocity of kernel"})

Each test checks one fact. A test that needs something that the specimen does not have is skipped, with the reason.
"""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

import pytest

from milepost import Checkpoint, CheckpointOptions, CheckpointReader, LoadStatus, TrackableView, Variable
from milepost.adapters import adapter_of
from milepost.errors import MismatchError, RefusedError, UnmatchedError, UntrackableError
from milepost.graph.contract.operation import Operation
from milepost.graph.traversal import walk
from milepost.storage import MemoryStorage
from milepost.testing.disturbances import Fuse, GatedStorage
from milepost.testing.specimen import Objects, Specimen, differences

_PATH: Final = "run/ckpt"
_FUSE: Final = "zz_fuse"
"""The last name in the order of a restore, so that the fuse fails after everything else has been restored."""


def _save(storage: MemoryStorage, objects: Objects, **options: Any) -> str:
    return Checkpoint(**objects).write(_PATH, CheckpointOptions(storage=storage, **options))


def _restore(storage: MemoryStorage, objects: Objects, **options: Any) -> tuple[Objects, LoadStatus]:
    """Restores objects. Returns the objects that the checkpoint holds then under the same names, and the status."""
    checkpoint = Checkpoint(**objects)
    status = checkpoint.read(_PATH, CheckpointOptions(storage=storage, **options))
    return {name: getattr(checkpoint, name) for name in objects}, status


def _keys(storage: MemoryStorage) -> set[str]:
    return set(CheckpointReader(_PATH, CheckpointOptions(storage=storage)).get_variable_to_shape_map())


def _refuses_to(do: Callable[[], object]) -> bool:
    try:
        do()
    except UnmatchedError:
        return True
    return False


class AdapterSuite:
    """Tests of the adapters of a framework; see `milepost.testing.adapter_suite`."""

    # The specimen itself. If these tests fail, the others may pass by chance.

    def test_the_specimen_can_tell_values_apart(self, specimen: Specimen) -> None:
        """Equal seeds give equal values, and different seeds differ in every value. Training changes every value, but no copy."""
        one, again, other = (specimen.values(specimen.make(seed)) for seed in (1, 1, 2))
        assert one, "the specimen has no values"
        assert differences(again, one) == [], "equal seeds give other values"
        assert differences(other, one) == sorted(one), "other seeds give equal values"
        objects = specimen.make(1)
        read = specimen.read(objects)
        assert differences(specimen.values(specimen.trained(objects)), one) == sorted(one), "training leaves values"
        assert specimen.functional or differences(read, one) == [], "read() gives no copies"

    def test_the_objects_have_adapters(self, specimen: Specimen) -> None:
        """Each object that the specimen makes has an adapter."""
        without = [name for name, each in specimen.make(1).items() if adapter_of(each) is None]
        assert without == [], f"no registered adapter handles {', '.join(without)}"

    def test_every_value_can_be_restored(self, specimen: Specimen) -> None:
        """Each value has a destination, or its adapter overrides `assign`, so that a restore can give it to the object."""
        live = walk(Operation(Checkpoint(**specimen.make(1))))
        lost = [
            f"{type(live.adapters[number]).__name__} of {live.paths[number]}: {value.name}"
            for number, values in live.values()
            for value in values
            if value.destination is None and "assign" not in live.adapters[number].overrides
        ]
        assert lost == [], "these values have no destination, and their adapter does not override assign()"

    # Saving and restoring.

    def test_values_come_back(self, specimen: Specimen) -> None:
        """Every restored value equals the saved one, bit for bit."""
        storage, saved = MemoryStorage(), specimen.make(1)
        _save(storage, saved)
        objects, _ = _restore(storage, specimen.make(2))
        assert differences(specimen.values(objects), specimen.values(saved)) == []

    def test_objects_stay_the_same(self, specimen: Specimen) -> None:
        """A restore changes the program's objects instead of replacing them."""
        if specimen.functional:
            pytest.skip("the specimen's values cannot change")
        storage, live = MemoryStorage(), specimen.make(2)
        _save(storage, specimen.make(1))
        objects, _ = _restore(storage, live)
        same = [name for name, each in live.items() if not isinstance(each, (list, dict))]  # these are wrapped
        assert [name for name in same if objects[name] is not live[name]] == []
        assert differences(specimen.values(live), specimen.values(specimen.make(1))) == []

    def test_saving_changes_nothing(self, specimen: Specimen) -> None:
        """A save does not change the values of the objects."""
        storage, live = MemoryStorage(), specimen.make(1)
        before = specimen.values(live)
        _save(storage, live)
        assert differences(specimen.values(live), before) == []

    def test_each_save_reads_anew(self, specimen: Specimen) -> None:
        """A second save holds the values that the objects have at that time."""
        storage, live = MemoryStorage(), specimen.make(1)
        _save(storage, live)
        trained = specimen.trained(live)
        _save(storage, trained)
        objects, _ = _restore(storage, specimen.make(2))
        assert differences(specimen.values(objects), specimen.values(trained)) == []

    def test_restored_objects_can_be_trained_and_saved(self, specimen: Specimen) -> None:
        """Restored objects train like the saved ones, and can be saved again."""
        storage, saved = MemoryStorage(), specimen.make(1)
        _save(storage, saved)
        objects, _ = _restore(storage, specimen.make(2))
        going_on = specimen.trained(objects)
        assert differences(specimen.values(going_on), specimen.values(specimen.trained(saved))) == []
        _save(storage, going_on)
        again, _ = _restore(storage, specimen.make(3))
        assert differences(specimen.values(again), specimen.values(going_on)) == []

    def test_names_are_the_same_in_every_run(self, specimen: Specimen) -> None:
        """The keys of a checkpoint do not depend on values, on identities, or on objects that were made before."""
        keys = []
        # Both are kept alive. Otherwise the second could have the identity of the first.
        for objects in [specimen.make(seed) for seed in (1, 2)]:
            storage = MemoryStorage()
            _save(storage, objects)
            keys.append(_keys(storage))
        assert keys[0] == keys[1]

    def test_an_adapter_holds_nothing_of_its_objects(self, specimen: Specimen) -> None:
        """Two objects of a kind in one checkpoint each have their own values."""
        storage = MemoryStorage()

        def two(first: int, second: int) -> tuple[Objects, Objects]:
            pair = [specimen.make(seed) for seed in (first, second)]
            return {f"a_{name}": each for name, each in pair[0].items()}, {
                f"b_{name}": each for name, each in pair[1].items()
            }

        _save(storage, dict(item for each in two(1, 2) for item in each.items()))
        objects, _ = _restore(storage, dict(item for each in two(3, 4) for item in each.items()))
        for start, seed in (("a_", 1), ("b_", 2)):
            subset = {name.removeprefix(start): each for name, each in objects.items() if name.startswith(start)}
            assert differences(specimen.values(subset), specimen.values(specimen.make(seed))) == []

    def test_an_object_with_two_names_is_saved_once(self, specimen: Specimen) -> None:
        """`children` returns the same objects each time, so that milepost recognises shared objects."""
        if specimen.functional:
            pytest.skip("the specimen's values cannot change, so each place is saved by itself")
        once, twice, objects = MemoryStorage(), MemoryStorage(), specimen.make(1)
        checkpoint = Checkpoint(**objects)
        descendants, again = (TrackableView(checkpoint).descendants() for _ in range(2))
        assert [id(each) for each in again] == [id(each) for each in descendants], (
            "children() returns other objects each time"
        )
        _save(once, objects)
        _save(twice, {**objects, **{f"zz_{name}": each for name, each in objects.items()}})
        assert _keys(twice) == _keys(once)

    def test_an_asynchronous_save_is_of_the_moment(self, specimen: Specimen) -> None:
        """Training while an asynchronous save is written does not change what is saved."""
        storage, live = GatedStorage(), specimen.make(1)
        before = specimen.values(live)
        checkpoint = Checkpoint(**live)
        checkpoint.write(_PATH, CheckpointOptions(storage=storage, enable_async=True))
        specimen.trained(live)
        storage.gate.set()
        checkpoint.sync()
        objects, _ = _restore(storage, specimen.make(2))
        assert differences(specimen.values(objects), before) == []

    # Reports and assertions.

    def test_a_whole_restore_is_reported(self, specimen: Specimen) -> None:
        """After a complete restore, all saved values are matched, no live value is missing, and every assertion passes."""
        storage = MemoryStorage()
        _save(storage, specimen.make(1))
        _, status = _restore(storage, specimen.make(2))
        counts = status.report().counts()
        assert counts["matched"] > 0
        assert {name: count for name, count in counts.items() if count and name != "matched"} == {}
        status.assert_consumed().assert_existing_objects_matched()

    def test_reports_change_nothing(self, specimen: Specimen) -> None:
        """A report after training does not change the trained values."""
        storage = MemoryStorage()
        _save(storage, specimen.make(1))
        objects, status = _restore(storage, specimen.make(2))
        if not specimen.functional:
            objects = specimen.trained(objects)
        before = specimen.values(objects)
        status.report()
        status.assert_consumed()
        assert differences(specimen.values(objects), before) == []

    def test_what_was_not_saved_is_missing(self, specimen: Specimen) -> None:
        """Objects that are not in the checkpoint are not changed, and the status reports them as missing."""
        storage = MemoryStorage()
        _save(storage, {"other": Variable(1.0)})
        objects, status = _restore(storage, {**specimen.make(2), "other": Variable(0.0)})
        assert differences(specimen.values(objects), specimen.values(specimen.make(2))) == []
        assert status.report().counts()["missing"] >= len(specimen.values(objects))
        assert _refuses_to(status.assert_existing_objects_matched)
        assert _refuses_to(status.assert_consumed)

    def test_what_no_object_takes_is_left_over(self, specimen: Specimen) -> None:
        """Objects are restored from a checkpoint that holds more, and the status reports the rest."""
        storage, saved = MemoryStorage(), specimen.make(1)
        _save(storage, {**saved, "other": Variable(1.0)})
        objects, status = _restore(storage, specimen.make(2))
        assert differences(specimen.values(objects), specimen.values(saved)) == []
        status.assert_existing_objects_matched()
        assert _refuses_to(status.assert_consumed)
        status.expect_partial()

    def test_each_object_can_be_restored_alone(self, specimen: Specimen) -> None:
        """A restore of one object does not change the others. Slot variables need both the optimizer and the variable."""
        storage, saved = MemoryStorage(), specimen.values(specimen.make(1))
        _save(storage, specimen.make(1))
        restored: set[str] = set()
        for name in specimen.make(2):
            live = dict(specimen.make(2))
            before = specimen.values(live)
            objects, status = _restore(storage, {name: live[name]})
            status.expect_partial()
            now = specimen.values({**live, **objects})
            changed = set(differences(now, before))
            assert differences({each: now[each] for each in changed}, {each: saved[each] for each in changed}) == []
            restored |= changed
        assert restored >= saved.keys() - set(specimen.slots)

    # Restores that fail.

    def test_a_value_that_does_not_fit_changes_nothing(self, specimen: Specimen) -> None:
        """If one value has another shape or type, no object is changed."""
        if specimen.misfit is None:
            pytest.skip("the specimen has no misfit")
        storage, live = MemoryStorage(), specimen.make(2)
        _save(storage, specimen.misfit())
        checkpoint = Checkpoint(**live)
        with pytest.raises(MismatchError):
            checkpoint.read(_PATH, CheckpointOptions(storage=storage))
        objects = {name: getattr(checkpoint, name) for name in live}
        assert differences(specimen.values(objects), specimen.values(specimen.make(2))) == []

    def test_a_failed_restore_puts_everything_back(self, specimen: Specimen) -> None:
        """If an object fails after all others have been restored, these get their old values back, and can be restored again."""
        storage, saved = MemoryStorage(), specimen.make(1)
        _save(storage, {**saved, _FUSE: Fuse()})
        for make in _makers(specimen):
            live, expected = make(2), specimen.values(make(2))
            objects, blown = _blow(storage, live)
            assert differences(specimen.values(objects), expected) == []
            if not specimen.functional:
                assert differences(specimen.values(live), expected) == []
            blown.blows = False
            checkpoint = Checkpoint(**{**objects, _FUSE: blown})
            checkpoint.read(_PATH, CheckpointOptions(storage=storage)).expect_partial()
            objects = {name: getattr(checkpoint, name) for name in objects}
            _build(specimen, make, objects)
            assert differences(specimen.values(objects), specimen.values(saved)) == []

    def test_a_failed_restore_defers_nothing(self, specimen: Specimen) -> None:
        """After a restore that failed, new children and slot variables have the program's values."""
        unbuilt, build = _late(specimen)
        storage = MemoryStorage()
        _save(storage, {**specimen.make(1), _FUSE: Fuse()})
        expected = unbuilt(2)
        build(expected)
        objects, _ = _blow(storage, unbuilt(2))
        build(objects)
        assert differences(specimen.values(objects), specimen.values(expected)) == []

    # Deferred values.

    def test_deferred_values_come_by_themselves(self, specimen: Specimen) -> None:
        """Children and slot variables that are made after a restore have their saved values, without a call of the status."""
        unbuilt, build = _late(specimen)
        storage, saved = MemoryStorage(), specimen.make(1)
        _save(storage, saved)
        objects, _status = _restore(storage, unbuilt(2))
        build(objects)
        assert differences(specimen.values(objects), specimen.values(saved)) == []

    def test_deferred_values_are_reported(self, specimen: Specimen) -> None:
        """The status reports values as deferred until their objects are made, and then as matched."""
        unbuilt, build = _late(specimen)
        storage, saved = MemoryStorage(), specimen.make(1)
        _save(storage, saved)
        objects, status = _restore(storage, unbuilt(2))
        lacking = specimen.values(saved).keys() - specimen.values(objects).keys()
        counts = status.report().counts()
        assert counts["deferred"] >= len(lacking)
        assert counts["unexpected"] == 0
        status.assert_existing_objects_matched()
        if lacking:
            assert _refuses_to(status.assert_consumed)
        build(objects)
        status.assert_consumed()
        assert status.report().counts()["deferred"] == 0

    def test_a_save_keeps_what_is_deferred(self, specimen: Specimen) -> None:
        """A save of objects that are restored and not built yet holds the deferred values."""
        unbuilt, _ = _late(specimen)
        storage, saved = MemoryStorage(), specimen.make(1)
        _save(storage, saved)
        objects, status = _restore(storage, unbuilt(2))
        _save(storage, objects)
        again, _ = _restore(storage, specimen.make(3))
        assert differences(specimen.values(again), specimen.values(saved)) == []
        status.expect_partial()

    def test_what_is_deferred_keeps_no_object_alive(self, specimen: Specimen) -> None:
        """Objects for which values are deferred are freed when the program has no references to them."""
        unbuilt, _ = _late(specimen)
        storage = MemoryStorage()
        _save(storage, specimen.make(1))
        objects = dict(unbuilt(2))
        references = {name: weakref.ref(each) for name, each in objects.items() if _takes_weak_references(each)}
        checkpoint = Checkpoint(**objects)
        checkpoint.read(_PATH, CheckpointOptions(storage=storage)).expect_partial()
        del checkpoint
        objects.clear()
        gc.collect()
        assert [name for name, each in references.items() if each() is not None] == []

    # Slot variables.

    def test_slots_are_saved_as_slots(self, specimen: Specimen) -> None:
        """Slot variables have the keys of slot variables, which name the variable and the optimizer."""
        slots = _slots(specimen)
        storage = MemoryStorage()
        _save(storage, specimen.make(1))
        assert sum("/.OPTIMIZER_SLOT/" in key for key in _keys(storage)) >= len(slots)

    def test_slots_can_be_left_out(self, specimen: Specimen) -> None:
        """A restore without slot variables restores everything else."""
        slots = _slots(specimen)
        storage = MemoryStorage()
        saved, live = specimen.values(specimen.make(1)), specimen.values(specimen.make(2))
        _save(storage, specimen.make(1))
        objects, _ = _restore(storage, specimen.make(2), experimental_skip_slot_variables=True)
        expected = {name: live[name] if name in slots else value for name, value in saved.items()}
        assert differences(specimen.values(objects), expected) == []

    # Completeness.

    def test_nothing_is_left_out(self, specimen: Specimen) -> None:
        """A strict save, which fails if it would leave anything out, succeeds."""
        _save(MemoryStorage(), specimen.make(1), strict=True)

    def test_what_cannot_be_saved_fails_the_save(self, specimen: Specimen) -> None:
        """A save that would leave something out fails and names it, unless the options allow it."""
        if specimen.unsaveable is None:
            pytest.skip("the specimen has nothing that cannot be saved")
        with pytest.raises(UntrackableError) as caught:
            _save(MemoryStorage(), specimen.unsaveable())
        assert caught.value.key, "the error does not name the path"
        _save(MemoryStorage(), specimen.unsaveable(), allow_unsaved=[caught.value.key])

    # Copies.

    def test_objects_are_copied_as_before(self, specimen: Specimen) -> None:
        """Objects that can be copied can be copied after a save, after a restore, and while values are deferred for them."""
        self._check_copies(specimen, copy.deepcopy)

    def test_objects_are_pickled_as_before(self, specimen: Specimen) -> None:
        """Objects that can be pickled can be pickled after a save, after a restore, and while values are deferred for them."""
        self._check_copies(specimen, lambda objects: pickle.loads(pickle.dumps(objects)))

    def _check_copies(self, specimen: Specimen, copied: Callable[[Any], Any]) -> None:
        for make in _makers(specimen):
            objects = dict(make(1))
            try:
                lost = differences(specimen.values(copied(objects)), specimen.values(objects))
            except Exception as error:
                pytest.skip(f"the specimen cannot be copied in this way: {type(error).__name__}: {error}")
            if lost:
                pytest.skip(f"the framework's copies lose values: {', '.join(lost)}")
        storage, saved = MemoryStorage(), specimen.make(1)
        _save(storage, saved)
        values = specimen.values(saved)
        assert differences(specimen.values(copied(dict(saved))), values) == []
        for make in _makers(specimen):
            originals, status = _restore(storage, make(2))
            there = specimen.values(originals)
            twins = copied(dict(originals))
            assert differences(specimen.values(twins), there) == []
            specimen_of_twins = specimen.values(specimen.trained(copied(dict(saved))))
            assert differences(specimen_of_twins, values) == sorted(values)
            assert differences(specimen.values(originals), there) == [], "a change of a copy changes the original"
            again, _ = _restore(storage, copied(dict(originals)))
            _build(specimen, make, again)
            assert differences(specimen.values(again), values) == []
            status.expect_partial()


def _makers(specimen: Specimen) -> Iterator[Callable[[int], Objects]]:
    yield specimen.make
    if specimen.unbuilt is not None:
        yield specimen.unbuilt


def _late(specimen: Specimen) -> tuple[Callable[[int], Objects], Callable[[Objects], object]]:
    if specimen.unbuilt is None or specimen.build is None:
        pytest.skip("the specimen has no objects to build after a restore")
    return specimen.unbuilt, specimen.build


def _slots(specimen: Specimen) -> Collection[str]:
    if not specimen.slots:
        pytest.skip("the specimen has no slot variables")
    return specimen.slots


def _build(specimen: Specimen, make: Callable[[int], Objects], objects: Objects) -> None:
    if make is specimen.unbuilt and specimen.build is not None:
        specimen.build(objects)


def _blow(storage: MemoryStorage, live: Objects) -> tuple[Objects, Fuse]:
    """Restores objects together with a fuse, which makes the restore fail. Returns what the checkpoint holds then, and the fuse."""
    fuse = Fuse()
    checkpoint = Checkpoint(**{**live, _FUSE: fuse})
    with pytest.raises(RefusedError, match="the fuse has blown"):
        checkpoint.read(_PATH, CheckpointOptions(storage=storage))
    return {name: getattr(checkpoint, name) for name in live}, fuse


def _takes_weak_references(obj: Any) -> bool:
    try:
        weakref.ref(obj)
    except TypeError:
        return False
    return True
