"""Objects into which a framework has converted restored ones."""

import numpy as np
import pytest

from milepost import Checkpoint, UnmatchedError, Variable
from milepost.graph.adapter import Adapter, Value, register, unregister
from milepost.tensor import DType, Shard, ShardedArray

FLOAT = DType.of("float32")


class Layer:
    def __init__(self, weight):
        self.weight = weight


class LayerAdapter(Adapter):
    def handles(self, kind):
        return kind is Layer

    def children(self, obj):
        return [("weight", obj.weight)]

    def converted(self, obj):
        return ["weight"]


class Half:
    """The second half of a tensor, as one of two processes holds it."""

    name = "VARIABLE_VALUE"

    def __init__(self, *elements):
        self.elements = np.array(elements, np.float32)


class HalfAdapter(Adapter):
    leaf = True

    def handles(self, kind):
        return kind is Half

    def values(self, obj):
        array = ShardedArray(FLOAT.numpy, (4,), [Shard((2,), obj.elements, (1,))], "halves")
        return [Value(obj.name, FLOAT, (4,), lambda: array)]


@pytest.fixture(autouse=True)
def adapters():
    added = [LayerAdapter(), HalfAdapter()]
    for each in added:
        register(each)
    yield
    for each in added:
        unregister(each)


@pytest.fixture
def restored(prefix):
    """A layer that was restored, and the status."""
    path = Checkpoint(layer=Layer(Variable([1.0, np.nan, 3.0, 4.0]))).write(prefix)
    layer = Layer(Variable([0.0, 0.0, 0.0, 0.0]))
    return layer, Checkpoint(layer=layer), path


@pytest.mark.parametrize("new", [Variable([1.0, np.nan, 3.0, 4.0]), Half(3, 4)], ids=["whole", "half"])
def test_one_that_holds_the_saved_values_counts_as_restored(restored, new):
    layer, checkpoint, path = restored
    status = checkpoint.read(path)
    layer.weight = new
    status.assert_consumed()


@pytest.mark.parametrize(
    "new",
    [Variable([1.0, 2.0, 3.0, 4.0]), Variable([1.0]), Variable([1, 2, 3, 4]), Half(1, 2)],
    ids=["values", "shape", "type", "half"],
)
def test_another_one_does_not(restored, new):
    layer, checkpoint, path = restored
    status = checkpoint.read(path)
    layer.weight = new
    with pytest.raises(UnmatchedError):
        status.assert_consumed()


def test_one_with_values_of_other_names_does_not(restored):
    layer, checkpoint, path = restored
    status = checkpoint.read(path)
    layer.weight = Half(3, 4)
    layer.weight.name = "OTHER"
    with pytest.raises(UnmatchedError):
        status.assert_consumed()
