"""``tf.data`` in TensorFlow's trainers: a `Feed` as a dataset, and datasets whose iterators are observed.

TensorFlow saves an iterator with the whole state of its pipeline: shuffle buffers, prefetched elements, and how often
each shuffle was started. So the position in a dataset is exact if the pipeline can be saved at all. The order of
*later* passes is determined by the seeds of the dataset: for the same order in another process, ``shuffle`` or
``tf.random.set_seed`` needs a seed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from milepost.adapters.tensorflow.private import iterator_resource
from milepost.callbacks.data.batches import leaves, map_leaves
from milepost.callbacks.data.class_weights import targets_of
from milepost.callbacks.data.feed import Feed, other_kind, told_length
from milepost.callbacks.data.iterables import Iterators
from milepost.callbacks.data.sources import Attach
from milepost.callbacks.plain_data import random_state, set_random_state
from milepost.checkpoint.checkpoint import Checkpoint
from milepost.engine.options import CheckpointOptions
from milepost.errors import MilepostError, MismatchError, UnsupportedError, warn
from milepost.storage import MemoryStorage


def dataset_of(feed: Feed) -> Any:
    """A dataset that takes each batch from a feed when it is needed."""
    now = random_state()
    feed.rewind()  # an earlier run may have been interrupted after the last batch of its pass
    probes = [_spec(batch) for batch in itertools.islice(iter(feed), 2)]
    feed.rewind()
    set_random_state(now)
    dataset = tf.data.Dataset.from_generator(lambda: iter(feed), output_signature=_common(probes))
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_optimization.inject_prefetch = False
    dataset = dataset.with_options(options)
    if feed.length is None:
        return _with_methods(dataset, cardinality=lambda _: _cardinality(feed.told_length))
    # This is asked for the length of an epoch, and not read, since a resumed pass has fewer batches.
    sized = dataset.apply(tf.data.experimental.assert_cardinality(feed.length))
    return _with_methods(sized, __iter__=lambda _: iter(dataset))


class DatasetFeed:
    """The batches of one run from a dataset, whose iterators TensorFlow saves.

    Raises:
        UnsupportedError: TensorFlow cannot save its iterators.
    """

    def __init__(self, dataset: Any, one_iterator: bool) -> None:
        copy = copy_of(dataset)
        must_be_saved(dataset if copy is None else copy)
        self._iterators = Iterators(dataset, copy)
        self._cardinality = int(dataset.cardinality())
        self._one_iterator = one_iterator
        self._steps: int | None = None
        self._usual: int | None = None
        self.counted_at_end = 0
        self._is_asked = False
        self._is_unread = False
        self._is_read = False
        self._count = 0
        self.dataset = _with_methods(
            dataset,
            __iter__=lambda _: self._iterator(),
            cardinality=lambda _: _cardinality(told_length(self, self._usual), self._cardinality),
        )
        self._data = dataset

    @property
    def is_read(self) -> bool:
        return self._is_read

    @property
    def length(self) -> int | None:
        return self._cardinality if self._cardinality >= 0 else None

    @property
    def is_over(self) -> bool:
        return 0 <= self._cardinality <= self._count

    @property
    def ends_epochs(self) -> bool:
        return self._goes_on and not self._one_iterator

    def start(self, steps: int | None, usual: int | None = None) -> None:
        self._steps = steps
        self._usual = usual or self._usual

    def begin_epoch(self) -> None:
        if self.is_over and self.ends_epochs and not self._is_unread:
            # The trainer does not know that the pass is over, and does not ask for another iterator.
            self._iterators.again(lambda iterator: begin_again(iterator, self._data))
            self._count = 0
            self._is_unread = True

    def rewind(self) -> None:
        self._is_asked = self._is_unread = self._is_read = False
        self._count = 0

    def check(self, place: dict[str, Any]) -> None:
        if "iterators" not in place:
            raise other_kind(place.get("kind", "other data"), "a tf.data.Dataset")
        if place.get("cardinality", self._cardinality) != self._cardinality:
            raise MismatchError(
                "the data has a different number of batches than when this checkpoint was saved",
                key="data",
                expected=place["cardinality"],
                found=self._cardinality,
                remedy="resume with the same data and batch_size, or use another directory",
            )

    def resume(self, place: dict[str, Any], skipped: int, attach: Attach) -> None:
        self.check(place)
        self.rewind()
        goes_on = skipped > 0 or not place["ended"]
        self._iterators.restored(place["iterators"], attach if goes_on else None)
        self._count = place["count"]
        self._is_unread = goes_on

    def caught_up(self) -> None:
        self._is_unread = False

    def trained(self, batches: int) -> int:
        self._is_read = self._is_asked
        self._is_unread = False
        if self._cardinality >= 0:
            batches = max(0, min(batches, self._cardinality - self._count))
        self._count += batches
        return batches

    def place(self, *, between_epochs: bool = False) -> dict[str, Any]:
        # Without a number of steps, trainers take a new iterator for each epoch.
        ended = self._steps is None if self._cardinality < 0 else self._count >= self._cardinality
        if between_epochs:
            self._note_length()
        return {
            "kind": "tf.data.Dataset",
            "cardinality": self._cardinality,
            "iterators": self._iterators.made,
            "count": self._count,
            "ended": ended,
            "usual": self._usual,
        }

    def tracked(self) -> Any:
        return self._iterators.current

    def stand_in(self) -> Any:
        return self._iterators.stand_in()

    @property
    def _goes_on(self) -> bool:
        """Whether a pass continues in the next epoch."""
        return self._steps is not None and 0 < self._cardinality != self._steps

    def _note_length(self) -> None:
        """Records the number of batches in a pass that has just ended, if nothing else tells it."""
        if self._steps is None and self._cardinality == tf.data.UNKNOWN_CARDINALITY and self._is_read:
            self._usual = self._usual or self._count

    def _iterator(self) -> Any:
        """The iterator for the trainer. Keras 2 asks for it twice before it reads."""
        if self._is_asked and self._is_read and not self._is_unread:
            if self._goes_on and 0 < self._count < self._cardinality:
                return self._iterators.current
            if self._steps is not None and self._cardinality == tf.data.UNKNOWN_CARDINALITY:
                raise UnsupportedError(
                    "the dataset ended within an epoch, so a resumed run would count its batches differently",
                    key="data",
                    expected=f"{self._steps} batches in each epoch",
                    found=f"a pass of {self._count} batches",
                    remedy="pass fit() a dataset with repeat(), or do not pass steps_per_epoch",
                )
        if not self._is_unread:
            self._note_length()
            self._iterators.new()
            self._count = 0
        self._is_asked = self._is_unread = True
        return self._iterators.current


def _cardinality(length: int | None, without: int = tf.data.UNKNOWN_CARDINALITY) -> Any:
    return tf.constant(without if length is None else length, tf.int64)


def must_be_saved(dataset: Any) -> None:
    """Checks that the position in a dataset can be saved.

    Raises:
        UnsupportedError: It cannot be saved.
    """
    try:
        Checkpoint(data=iter(dataset)).write("tried", CheckpointOptions(storage=MemoryStorage()))
    except (tf.errors.OpError, MilepostError) as error:
        raise UnsupportedError(
            "this dataset cannot return to a saved position: TensorFlow cannot save its iterators",
            key="data",
            expected="only transformations made of TensorFlow's own stateless operations",
            found=str(error).partition("\n")[0],
            remedy="wrap it in a class with __iter__(), get_state() and set_state(), and pass an object of that class",
        ) from error


def begin_again(iterator: Any, dataset: Any) -> None:
    """Restarts an iterator that has ended at the beginning of a dataset."""
    resource = iterator_resource(iterator)
    tf.raw_ops.MakeIterator(dataset=tf.data.experimental.to_variant(dataset), iterator=resource)


def _with_methods(dataset: Any, **methods: Any) -> Any:
    """A dataset with the same elements and additional methods."""
    other = dataset.with_options(tf.data.Options())
    object.__setattr__(other, "__class__", type("Observed", (type(other),), {"is_of_resumable": True, **methods}))
    return other


def warn_of_shuffles(dataset: Any) -> None:
    """Warns of shuffles whose later passes will be in a different order after a resume, if this is visible."""
    for complaint in _complaints(dataset):
        warn(complaint)


def _complaints(dataset: Any) -> Iterator[str]:
    for stage, repeated in _pipeline(dataset, False):
        if type(stage).__name__ != "_ShuffleDataset" or not getattr(stage, "_reshuffle_each_iteration", True):
            continue
        if not int(getattr(stage, "_seed", 1)) and not int(getattr(stage, "_seed2", 1)):
            yield "after a resume, later passes will be in a different order: pass a seed to shuffle(), or call tf.random.set_seed()"
        elif repeated:
            yield "after a resume, later passes may be in a different order: call repeat() before shuffle()"


def _pipeline(dataset: Any, repeated: bool) -> Iterator[tuple[Any, bool]]:
    yield dataset, repeated
    repeated = repeated or type(dataset).__name__ == "_RepeatDataset"
    for each in dataset._inputs() if hasattr(dataset, "_inputs") else ():
        yield from _pipeline(each, repeated)


def copy_of(dataset: Any) -> Any:
    """A copy of a dataset with its own shuffles, or None if TensorFlow cannot copy it.

    In TensorFlow's copy, shuffles share the resource that counts how often they were started. Here they get new ones.
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
    flattened = [list(leaves(each)) for each in specs]
    pairs = zip(flattened[0], flattened[-1], strict=True)
    merged = iter([first.most_specific_common_supertype([last]) or first for first, last in pairs])
    return map_leaves(lambda _: next(merged), specs[0])


def weighted_dataset(dataset: Any, class_weight: Mapping[int, float], floatx: str) -> Any:
    """A dataset of batches ``(x, y)`` as one of ``(x, y, sample_weight)``."""
    kinds, weights = tf.constant(list(class_weight), tf.int32), tf.constant(list(class_weight.values()), floatx)

    def weigh(*batch: Any) -> Any:
        targets = targets_of(batch)
        if targets.shape.rank is not None and targets.shape.rank > 1:
            wide = targets.shape[-1] != 1
            targets = tf.argmax(targets, axis=-1) if wide else tf.squeeze(targets, axis=-1)
        if targets.dtype.is_floating:
            targets = tf.round(targets)
        hits = tf.cast(targets, tf.int32)[..., tf.newaxis] == kinds
        sample_weights = tf.reduce_sum(tf.where(hits, weights, tf.zeros_like(weights)), axis=-1)
        return (*batch, tf.where(tf.reduce_any(hits, axis=-1), sample_weights, tf.ones_like(sample_weights)))

    return dataset.map(weigh)


def is_of_arrays(data: Any) -> bool:
    """Whether this is an array or tensor, or a structure of them, and no dataset."""
    leaves = [] if isinstance(data, tf.data.Dataset) else tf.nest.flatten(data)
    return bool(leaves) and all(hasattr(leaf, "shape") for leaf in leaves)


def trace(function: Any, dataset: Any) -> bool:
    """Traces a train function without running it, which makes all variables that a step needs.

    Returns:
        Whether the function ran once instead and trained a step, as a function does that is not compiled as a whole.
    """
    iterator = iter(dataset)
    if hasattr(function, "get_concrete_function"):
        function.get_concrete_function(iterator)
        return False
    function(iterator)
    return True
