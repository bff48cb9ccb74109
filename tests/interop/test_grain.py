"""Grain's iterators and loaders in the same checkpoint as everything else."""

import json

import numpy as np
import pytest

pytest.importorskip("grain.python")
import grain.python as grain

from milepost import Checkpoint, MismatchError, Variable, load_checkpoint


def dataset(seed=1):
    return grain.MapDataset.range(24).shuffle(seed=seed).repeat(2).batch(3).to_iter_dataset()


def lists(batches):
    return [np.asarray(batch).tolist() for batch in batches]


@pytest.mark.parametrize("begun", [0, 2], ids=["before its first batch", "while it runs"])
def test_an_iterator_goes_on_whether_the_new_one_has_begun_or_not(prefix, begun):
    iterator = iter(dataset())
    for _ in range(5):
        next(iterator)
    Checkpoint(data=iterator, step=Variable(5)).write(prefix)
    expected = lists(iterator)
    live = Checkpoint(data=iter(dataset()), step=Variable(0))
    for _ in range(begun):
        next(live.data)
    live.read(prefix).assert_consumed()
    assert live.step.numpy() == 5
    assert lists(live.data) == expected


def test_an_iterator_that_was_not_begun_begins_at_the_start(prefix):
    Checkpoint(data=iter(dataset())).write(prefix)
    live = Checkpoint(data=iter(dataset()))
    next(live.data)
    live.read(prefix)
    assert lists(live.data) == lists(dataset())


def test_an_iterator_saved_again_right_after_it_was_restored_goes_on(prefix, tmp_path):
    iterator = iter(dataset())
    next(iterator)
    Checkpoint(data=iterator).write(prefix)
    middle = Checkpoint(data=iter(dataset()))
    middle.read(prefix)
    live = Checkpoint(data=iter(dataset()))
    live.read(middle.write(tmp_path / "again"))
    assert lists(live.data) == lists(iterator)


def test_an_iterator_that_is_attached_after_the_restore_goes_on(prefix):
    iterator = iter(dataset())
    next(iterator)
    Checkpoint(data=iterator).write(prefix)
    live = Checkpoint(step=Variable(0))
    live.read(prefix)
    live.data = iter(dataset())
    assert lists(live.data) == lists(iterator)


def test_the_place_in_the_data_is_readable(prefix):
    iterator = iter(dataset())
    next(iterator)
    Checkpoint(data=iterator).write(prefix)
    assert json.loads(load_checkpoint(prefix).get_tensor("data/.ATTRIBUTES/py_state")) == {"next_index": 1}


class Source:
    """Has the usual repr, with an address in it."""

    def __len__(self):
        return 24

    def __getitem__(self, index):
        return index


def loader(source=None, seed=1):
    sampler = grain.IndexSampler(24, grain.NoSharding(), shuffle=True, seed=seed, num_epochs=1)
    return grain.DataLoader(
        data_source=Source() if source is None else source,
        sampler=sampler,
        operations=[grain.Batch(2)],
        worker_count=0,
    )


def test_the_iterator_of_a_loader_goes_on_although_its_source_is_at_another_address(prefix):
    first = loader()
    iterator = iter(first)
    for _ in range(3):
        next(iterator)
    Checkpoint(data=iterator, step=Variable(3)).write(prefix)
    live = Checkpoint(data=iter(loader()), step=Variable(0))
    live.read(prefix).assert_consumed()
    assert lists(live.data) == lists(iterator)


def test_the_text_of_a_loader_is_readable(prefix):
    Checkpoint(data=iter(loader())).write(prefix)
    text = json.loads(load_checkpoint(prefix).get_tensor("data/.ATTRIBUTES/py_state"))["text"]
    assert json.loads(text)["worker_count"] == 0


@pytest.mark.parametrize("other", [{"seed": 2}, {"source": range(24)}], ids=["sampler", "source"])
def test_a_loader_of_other_data_refuses_and_nothing_changes(prefix, other):
    iterator = iter(loader())
    next(iterator)
    Checkpoint(data=iterator, step=Variable(1)).write(prefix)
    live = Checkpoint(data=iter(loader(**other)), step=Variable(0))
    with pytest.raises(MismatchError, match=r"ValueError: .* in checkpoint does not match") as caught:
        live.read(prefix)
    assert caught.value.key.startswith("data/")
    assert live.step.numpy() == 0
    assert len(lists(live.data)) == 12
