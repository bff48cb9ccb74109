"""Small tensors that are compared together differ by as much as one by one."""

import ml_dtypes
import numpy as np
import pytest

import milepost
from milepost.errors import CorruptCheckpointError
from milepost.tools.named import open_named
from milepost.tools.values.blocks import Block
from milepost.tools.values.comparison import Comparison
from milepost.tools.values.differences import Differences
from milepost.tools.values.small_tensors import SmallTensors, compare_small, differences_of
from milepost.tools.values.statistics import TensorDifference
from milepost.tools.values.tensors import Tensors

INF, NAN = np.inf, np.nan
PAIRS = [
    ([1.0, 2.0], [1.0, 2.0]),
    ([1.0, NAN], [1.0, NAN]),
    ([1.0, NAN], [NAN, 1.0]),
    ([INF, 1.0, -INF], [INF, 2.0, INF]),
    ([0.0, 0.0], [1e-300, 0.0]),
    ([1e300, 1e308], [-1e300, -1e308]),
    ([0.0], [-0.0]),
    ([3.0, 4.0], [3.0, 4.5]),
]


def one_by_one(old, new):
    found = TensorDifference()
    found.add(Block(np.asarray(old)), Block(np.asarray(new)))
    return found


def test_numbers_of_every_kind():
    together = differences_of(
        *(np.concatenate(side) for side in zip(*PAIRS, strict=True)), [len(old) for old, _ in PAIRS]
    )
    for place, (old, new) in enumerate(PAIRS):
        found, expected = together.get(place), one_by_one(old, new)
        assert (found.count, found.unequal, found.largest) == (expected.count, expected.unequal, expected.largest)
        assert found.norm == pytest.approx(expected.norm, rel=1e-12)
        assert found.before == pytest.approx(expected.before, rel=1e-12)


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint64", "int64", "float16", "bfloat16", "float8_e4m3fn", "int4", "complex64"]
)
def test_every_element_type(dtype):
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    old, new = np.arange(6).astype(kind), np.array([0, 1, 1, 3, 5, 1]).astype(kind)
    found = differences_of(old, new, [6]).get(0)
    expected = one_by_one(old, new)
    assert (found.unequal, found.largest) == (expected.unequal, expected.largest)
    assert found.relative == pytest.approx(expected.relative)


def test_integers_differ_exactly():
    old, new = np.array([2**63 - 1, -(2**63)]), np.array([2**63 - 2, 2**63 - 1])
    assert differences_of(old, new, [1, 1]).largest.tolist() == [1.0, float(2**64)]


def test_squares_that_are_too_large_or_too_small_for_a_number():
    old, new = np.array([3e200, 4e200, 3e-200, 4e-200]), np.zeros(4)
    found = differences_of(old, new, [2, 2])
    assert found.norm.tolist() == pytest.approx([5e200, 5e-200])
    assert found.relative.tolist() == pytest.approx([1.0, 1.0])


def test_relative_differences_are_those_of_one_by_one():
    found = [
        TensorDifference(1, 0, 0.0, 0.0, 0.0),
        TensorDifference(1, 1, 2.0, 2.0, 0.0),
        TensorDifference(1, 1, 2.0, 2.0, 4.0),
        TensorDifference(1, 1, INF, INF, 4.0),
        TensorDifference(1, 0, 0.0, 0.0, 4.0),
    ]
    assert Differences.of(found).relative.tolist() == [each.relative for each in found]


@pytest.fixture
def two(tmp_path):
    """Two checkpoints of as many small tensors, which lie in another order, with large tensors and text among them."""
    random = np.random.default_rng(0)
    trees = [{}, {}]
    for number in range(300):
        value = random.standard_normal(number % 7)
        trees[0][f"a{number}"] = value
        trees[1][f"a{number}"] = value if number % 3 else value.astype(np.float32) + 1
    for tree in trees:
        tree |= {"large": np.arange(10_000.0), "text": "same", "b": random.integers(0, 9, 5).astype(np.int32)}
    trees[1] = dict(reversed(trees[1].items()))
    return [milepost.save(tmp_path / name, tree) for name, tree in zip("ab", trees, strict=True)]


def read_all(first, second):
    """The comparison of two open checkpoints, whose values have been read."""
    comparison = Comparison(first, second)
    comparison.read(comparison.to_read())
    return comparison


def test_whole_checkpoints(two):
    with open_named(two[0]) as first, open_named(two[1]) as second:
        comparison = read_all(first, second)
        together = {change.key: change.difference for change in comparison.changes()}
        expected = {}
        for old, new in map(comparison.rows, comparison.to_read().tolist()):
            found = comparison._difference(old, new)
            if found is not None and (found.unequal or old.dtype is not new.dtype):
                expected[old.key] = found
    assert len(expected) > 80
    assert together.keys() == expected.keys()
    for key, found in together.items():
        assert (found.count, found.unequal) == (expected[key].count, expected[key].unequal)
        assert found.relative == pytest.approx(expected[key].relative)


def test_many_are_read_with_few_calls(two, monkeypatch):
    with open_named(two[0]) as first, open_named(two[1]) as second:
        comparison = Comparison(first, second)
        sides = [SmallTensors(*each) for each in zip((first, second), comparison.sides, strict=True)]
        is_small = sides[0].contains(comparison.pairs[0]) & sides[1].contains(comparison.pairs[1])
        small = [places[is_small] for places in comparison.pairs]
        assert len(small[0]) > 200
        calls = []
        for reader, side, places in zip((first, second), comparison.sides, small, strict=True):
            file, _ = reader.extent(side.keys[places[0]])
            read = file.read
            monkeypatch.setattr(file, "read", lambda *place, read=read: calls.append(place) or read(*place))
        list(compare_small(*sides, *small))
    assert 0 < len(calls) < 50


@pytest.fixture(params=["safetensors", "pt", "npz"])
def converted(two, request):
    """The same as files of another library, in which no tensor is text."""
    paths = [f"{path}.{request.param}" for path in two]
    for source, target in zip(two, paths, strict=True):
        milepost.convert(source, target, ignore=["text"])
    return paths


def test_files_of_other_libraries(converted):
    with open_named(converted[0]) as first, open_named(converted[1]) as second:
        comparison = read_all(first, second)
        together = {change.key: change.difference for change in comparison.changes()}
        for old, new in map(comparison.rows, comparison.to_read().tolist()):
            expected = comparison._difference(old, new)
            found = together.pop(old.key, None)
            assert (found is not None) == (expected.unequal > 0 or old.dtype is not new.dtype)
            assert found is None or (found.count, found.unequal) == (expected.count, expected.unequal)
            assert found is None or found.relative == pytest.approx(expected.relative)
    assert not together


@pytest.mark.parametrize("ending", ["safetensors", "pt"])
def test_small_tensors_of_other_libraries_are_read_together(two, ending):
    milepost.convert(two[0], path := f"{two[0]}.{ending}", ignore=["text"])
    with open_named(path) as reader:
        tensors = Tensors(reader)
        small = SmallTensors(reader, tensors)
        places = np.flatnonzero(small.contains(np.arange(len(tensors.keys))))
        assert len(places) > 200
        read = [
            np.frombuffer(data, tensors.specs[tensors.spec[place]].dtype.numpy)
            for place, data in zip(places, small.read(places), strict=True)
        ]
        for place, found in zip(places.tolist(), read, strict=True):
            assert found.tolist() == reader.read(tensors.keys[place]).reshape(-1).tolist()


def test_a_damaged_one_of_pytorch_is_named(two):
    milepost.convert(two[0], path := f"{two[0]}.pt", ignore=["text"])
    with open_named(path) as reader:
        found = reader.catalogue()
        offset = int(found.start[found.keys.index("a250")])
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(b"\xff")
    with open_named(path) as reader:
        small = SmallTensors(reader, Tensors(reader))
        with pytest.raises(CorruptCheckpointError, match="checksum") as caught:
            small.read(np.arange(len(reader.keys())))
    assert (caught.value.key, caught.value.file) == ("a250", path)


def test_a_damaged_one_is_named(two):
    with open_named(two[0]) as reader:
        file, entry = reader.extent("a250/.ATTRIBUTES/VARIABLE_VALUE")
        path, place = file.path, entry.offset
    with open(path, "r+b") as file:
        file.seek(place)
        file.write(b"\xff")
    with (
        open_named(two[0]) as first,
        open_named(two[1]) as second,
        pytest.raises(CorruptCheckpointError, match="wrong checksum") as caught,
    ):
        read_all(first, second)
    assert (caught.value.key, caught.value.file) == ("a250/.ATTRIBUTES/VARIABLE_VALUE", path)
