"""What a feed has saved before it is read, and what no feed is made of."""

import pytest

from milepost import Checkpoint
from milepost.callbacks.data.feed import Feed
from milepost.callbacks.data.iterables import TrackedSource
from milepost.callbacks.data.resumable import Trainer, make_feed
from milepost.errors import UnsupportedError

tf = pytest.importorskip("tensorflow")


def test_an_iterator_from_before_is_not_saved_for_a_resumed_place(tmp_path):
    """A trainer may have looked at a batch to find out about shapes."""
    saved = Feed(TrackedSource(tf.data.Dataset.range(10)))
    iterator = iter(saved)
    for _ in range(3):
        next(iterator)
        saved.trained(1)
    place = saved.place()
    path = Checkpoint(data=saved.tracked()).write(tmp_path / "place")

    feed = Feed(TrackedSource(tf.data.Dataset.range(10)))
    next(iter(feed))
    feed.rewind()
    feed.resume(place, 3, lambda tracked: Checkpoint(data=tracked).read(path))
    assert feed.tracked() is None
    assert int(next(iter(feed))) == 3
    assert feed.tracked() is not None


@pytest.mark.parametrize("in_tensorflow", [True, False], ids=["TensorFlow's trainer", "another trainer"])
def test_a_dataset_whose_iterators_cannot_be_saved_is_refused_at_once(in_tensorflow):
    rows = tf.data.Dataset.from_generator(lambda: iter(range(3)), output_signature=tf.TensorSpec([], tf.int32))
    with pytest.raises(UnsupportedError, match="TensorFlow cannot save its iterators"):
        make_feed((rows, None, None), 4, False, None, Trainer("float32", in_tensorflow, placeholders=not in_tensorflow))
