"""``tf.data`` under TensorFlow's trainers: batches of a `Feed` as a dataset, and datasets whose iterators are known.

TensorFlow saves an iterator with all that is in its pipeline: shuffle buffers, what is prefetched, and how often a shuffle
was begun. So the place in a dataset is exact, if the pipeline can be saved at all. The order of *later* passes follows
from the seeds of the dataset: ``shuffle`` needs one, or ``tf.random.set_seed``, to come out the same in another process.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from milepost.callbacks.batches import leaves, map_leaves
from milepost.callbacks.feed import Feed
from milepost.callbacks.iterables import Iterators
from milepost.callbacks.random_state import random_state, set_random_state
from milepost.callbacks.sources import Attach
from milepost.errors import warn


def dataset_of(feed: Feed) -> Any:
    """A dataset that takes each batch from a feed, not before it is needed."""
    now = random_state()
    probes = [_spec(batch) for batch in itertools.islice(iter(feed), 2)]
    feed.rewind()
    set_random_state(now)
    dataset = tf.data.Dataset.from_generator(lambda: iter(feed), output_signature=_common(probes))
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_optimization.inject_prefetch = False
    dataset = dataset.with_options(options)
    if feed.length is not None:
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(feed.length))
    return dataset


class DatasetFeed:
    """A run's way through a dataset, whose iterators TensorFlow saves."""

    def __init__(self, dataset: Any) -> None:
        self._iterators = Iterators(dataset, copy_of(dataset))
        self._cardinality = int(dataset.cardinality())
        self._steps: int | None = None
        self._is_asked = False
        self._is_unread = False
        self._is_read = False
        self._count = 0
        self.dataset = self._observed(dataset)

    @property
    def is_read(self) -> bool:
        return self._is_read

    def start(self, steps: int | None) -> None:
        self._steps = steps

    def rewind(self) -> None:
        self._is_asked = self._is_unread = self._is_read = False
        self._count = 0

    def resume(self, place: dict[str, Any], skipped: int, attach: Attach) -> None:
        self.rewind()
        goes_on = skipped > 0 or not place["ended"]
        self._iterators.restored(place["iterators"], attach if goes_on else None)
        self._count = place["count"]
        self._is_unread = goes_on

    def caught_up(self) -> None:
        self._is_unread = False

    def trained(self, batches: int) -> None:
        self._is_read = self._is_asked
        self._is_unread = False
        self._count += batches

    def place(self) -> dict[str, Any]:
        # Without a number of steps, trainers take a new iterator for each epoch.
        ended = self._steps is None if self._cardinality < 0 else self._count >= self._cardinality
        return {"iterators": self._iterators.made, "count": self._count, "ended": ended}

    def tracked(self) -> Any:
        return self._iterators.current

    def stand_in(self) -> Any:
        return self._iterators.stand_in()

    def _iterator(self) -> Any:
        """The iterator for the trainer; Keras 2 asks twice before it reads."""
        if not self._is_unread:
            self._iterators.new()
            self._count = 0
        self._is_asked = self._is_unread = True
        return self._iterators.current

    def _observed(self, dataset: Any) -> Any:
        feed = self
        observed = dataset.with_options(tf.data.Options())  # another object of the same elements

        class Observed(type(observed)):  # type: ignore[misc]
            def __iter__(self) -> Any:
                return feed._iterator()

        object.__setattr__(observed, "__class__", Observed)
        return observed


def warn_of_shuffles(dataset: Any) -> None:
    """Warns of what will come out in another order after a resume, as far as that can be seen."""
    for complaint in _complaints(dataset):
        warn(complaint)


def _complaints(dataset: Any) -> Iterator[str]:
    for each, repeated in _pipeline(dataset, False):
        if type(each).__name__ != "_ShuffleDataset" or not getattr(each, "_reshuffle_each_iteration", True):
            continue
        if not int(getattr(each, "_seed", 1)) and not int(getattr(each, "_seed2", 1)):
            yield "after a resume, later passes come in another order: give shuffle() a seed, or call tf.random.set_seed()"
        elif repeated:
            yield "after a resume, later passes may come in another order: write repeat() before shuffle()"


def _pipeline(dataset: Any, repeated: bool) -> Iterator[tuple[Any, bool]]:
    yield dataset, repeated
    repeated = repeated or type(dataset).__name__ == "_RepeatDataset"
    for each in dataset._inputs() if hasattr(dataset, "_inputs") else ():
        yield from _pipeline(each, repeated)


def copy_of(dataset: Any) -> Any:
    """The same dataset with shuffles of its own, or None if TensorFlow cannot copy it.

    In TensorFlow's copy, shuffles share the resource that counts how often they were begun; here they get new ones.
    """
    try:
        graph = tf.compat.v1.GraphDef.FromString(
            tf.raw_ops.DatasetToGraphV2(input_dataset=tf.data.experimental.to_variant(dataset)).numpy()
        )
        nodes = {node.name: node for node in graph.node}
        for node in graph.node:
            if node.op == "ShuffleDatasetV3":
                counter = nodes[node.input[4]]
                counter.op = "DummySeedGenerator"
                counter.attr.clear()
        variant = tf.raw_ops.DatasetFromGraph(graph_def=graph.SerializeToString())
        return tf.data.experimental.from_variant(variant, dataset.element_spec)
    except tf.errors.OpError:
        return None


def _spec(batch: Any) -> Any:
    def spec(leaf: Any) -> Any:
        tensor = tf.convert_to_tensor(leaf)
        return tf.TensorSpec([None, *tensor.shape[1:]] if tensor.shape.rank else [], tensor.dtype)

    return map_leaves(spec, batch)


def _common(specs: list[Any]) -> Any:
    found = [list(leaves(each)) for each in specs]
    pairs = zip(found[0], found[-1], strict=True)
    merged = iter([first.most_specific_common_supertype([last]) or first for first, last in pairs])
    return map_leaves(lambda _: next(merged), specs[0])


def trace(function: Any, dataset: Any) -> None:
    """Traces a train function, which makes all variables that a step needs, without running it.

    Functions that are not compiled run once instead; what they change is restored afterwards.
    """
    iterator = iter(dataset)
    if hasattr(function, "get_concrete_function"):
        function.get_concrete_function(iterator)
    else:
        function(iterator)
