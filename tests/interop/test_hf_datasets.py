"""Iterable data sets of Hugging Face in the same checkpoint as everything else."""

import itertools

import pytest

pytest.importorskip("datasets")
import datasets

from milepost import Checkpoint, MismatchError, Variable


def dataset(buffer_size=1):
    rows = datasets.Dataset.from_dict({"x": list(range(20))})
    return rows.to_iterable_dataset(num_shards=4).shuffle(seed=3, buffer_size=buffer_size)


def numbers(examples, count=None):
    return [example["x"] for example in itertools.islice(examples, count)]


def test_a_data_set_goes_on_in_the_middle_of_a_pass(prefix):
    saved = dataset()
    iterator = iter(saved)
    numbers(iterator, 7)
    Checkpoint(data=saved, step=Variable(7)).write(prefix)
    expected = numbers(iterator)
    live = Checkpoint(data=dataset(), step=Variable(0))
    live.read(prefix).assert_consumed()
    assert live.step.numpy() == 7
    assert numbers(live.data) == expected


def test_a_later_pass_goes_on_in_its_own_order(prefix):
    saved = dataset()
    saved.set_epoch(2)
    iterator = iter(saved)
    numbers(iterator, 7)
    Checkpoint(data=saved).write(prefix)
    live = Checkpoint(data=dataset())
    live.read(prefix)
    assert live.data.epoch == 2
    assert numbers(live.data) == numbers(iterator)


def test_a_data_set_saved_again_right_after_it_was_restored_goes_on(prefix, tmp_path):
    saved = dataset()
    iterator = iter(saved)
    numbers(iterator, 7)
    Checkpoint(data=saved).write(prefix)
    middle = Checkpoint(data=dataset())
    middle.read(prefix)
    live = Checkpoint(data=dataset())
    live.read(middle.write(tmp_path / "again"))
    assert numbers(live.data) == numbers(iterator)


def test_a_data_set_saved_after_it_went_on_goes_on_from_there(prefix, tmp_path):
    saved = dataset()
    iterator = iter(saved)
    numbers(iterator, 7)
    Checkpoint(data=saved).write(prefix)
    middle = Checkpoint(data=dataset())
    middle.read(prefix)
    numbers(iter(middle.data), 3)
    live = Checkpoint(data=dataset())
    live.read(middle.write(tmp_path / "again"))
    numbers(iterator, 3)
    assert numbers(live.data) == numbers(iterator)


def test_a_failed_restore_leaves_a_data_set_where_it_was(prefix):
    class Refusing:
        def get_state(self):
            return 1

        def set_state(self, state):
            raise ValueError(state)

    saved = dataset()
    saved.set_epoch(1)
    numbers(iter(saved), 7)
    Checkpoint(data=saved, other=Refusing()).write(prefix)
    live = Checkpoint(data=dataset(), other=Refusing())
    with pytest.raises(MismatchError):
        live.read(prefix)
    assert live.data.epoch == 0
    assert numbers(live.data) == numbers(dataset())


def test_examples_in_a_shuffle_buffer_are_lost_which_the_documentation_says(prefix):
    saved = dataset(buffer_size=5)
    iterator = iter(saved)
    numbers(iterator, 7)
    Checkpoint(data=saved).write(prefix)
    live = Checkpoint(data=dataset(buffer_size=5))
    live.read(prefix)
    assert len(numbers(live.data)) < len(numbers(iterator))
