"""Recipes read what NumPy would compute, whatever box is asked for, and only what they need."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import milepost
from milepost.engine.layouts import recipes
from milepost.errors import CorruptCheckpointError, MismatchError
from milepost.graph.keys import VARIABLE_VALUE, tensor_key
from milepost.restoring.load import open_any
from milepost.storage import LocalStorage
from tests.engine.layouts.files import reader_of

TYPES = ("float32", "int8", "bool", "complex64")


def key(name):
    return tensor_key(name, VARIABLE_VALUE)


@st.composite
def arrays(draw):
    """An array of some type, whose elements differ as far as the type allows."""
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    dtype = draw(st.sampled_from(TYPES))
    return np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)


@st.composite
def changed(draw, recipe, array):
    """A recipe and the array that it stands for, after one more change."""
    kinds = ["joined", "section", "stacked", "permuted", "reshaped"] + ["member"] * (array.ndim > 1)
    kind, axis = draw(st.sampled_from(kinds)), draw(st.integers(0, array.ndim - 1))
    if kind == "joined":
        return recipes.Joined([recipe, recipe], axis), np.concatenate([array, array], axis)
    if kind == "section":
        start = draw(st.integers(0, array.shape[axis] - 1))
        stop = draw(st.integers(start + 1, array.shape[axis]))
        return recipes.Stretch(recipe, axis, start, stop), np.take(array, range(start, stop), axis)
    if kind == "stacked":
        return recipes.Stacked([recipe, recipe], axis), np.stack([array, array], axis)
    if kind == "member":
        number = draw(st.integers(0, array.shape[axis] - 1))
        return recipes.Unstacked(recipe, axis, number), np.take(array, number, axis)
    if kind == "permuted":
        axes = draw(st.permutations(range(array.ndim)))
        return recipes.Permuted(recipe, axes), array.transpose(axes)
    count = draw(st.integers(1, array.ndim - axis))
    size = int(np.prod(array.shape[axis : axis + count]))
    first = draw(st.sampled_from([each for each in range(1, size + 1) if size % each == 0]))
    lengths = draw(st.sampled_from([(size,), (first, size // first), (1, first, size // first)]))
    shape = (*array.shape[:axis], *lengths, *array.shape[axis + count :])
    return recipes.Reshaped(recipe, axis, count, lengths), array.reshape(shape)


@given(arrays(), st.data())
def test_a_recipe_reads_what_numpy_computes(array, data):
    """All of it, and any box."""
    with reader_of({"a": array}) as reader:
        recipe = recipes.AsSaved(reader, key("a"))
        for _ in range(data.draw(st.integers(0, 4))):
            recipe, array = data.draw(changed(recipe, array))
        assert recipe.shape == array.shape
        np.testing.assert_array_equal(recipe.read(recipe.whole), array)
        starts = [data.draw(st.integers(0, length - 1)) for length in array.shape]
        box = tuple(
            (start, data.draw(st.integers(start + 1, length)))
            for start, length in zip(starts, array.shape, strict=True)
        )
        np.testing.assert_array_equal(recipe.read(box), array[tuple(slice(*each) for each in box)])
        recipe.check(box)


class _Noting:
    """A reader that notes the keys and boxes that are read."""

    def __init__(self, reader):
        self._reader = reader
        self.noted = []

    def spec(self, name):
        return self._reader.spec(name)

    def read_into(self, name, destination, box=None):
        self.noted.append((name, box))
        self._reader.read_into(name, destination, box)


def test_only_the_members_that_a_box_needs_are_read():
    with reader_of({name: np.ones((2, 3)) for name in "abc"}) as reader:
        noting = _Noting(reader)
        joined = recipes.Joined([recipes.AsSaved(noting, key(name)) for name in "abc"], 0)
        joined.read(((2, 4), (0, 3)))
    assert noting.noted == [(key("b"), None)]


def test_a_reshape_reads_whole_rows_around_a_box():
    with reader_of({"a": np.arange(24).reshape(6, 4)}) as reader:
        noting = _Noting(reader)
        reshaped = recipes.Reshaped(recipes.AsSaved(noting, key("a")), 0, 2, (3, 8))
        assert reshaped.read(((1, 2), (0, 2))).tolist() == [[8, 9]]
    assert [str(box) for _, box in noting.noted] == ["2,2:0,4"]


def test_a_common_number_is_that_of_all():
    with reader_of({"a": np.float32(3), "b": np.float32(3)}) as reader:
        same = recipes.Same([recipes.AsSaved(reader, key(name)) for name in "ab"], "a, b")
        same.check(())
        assert same.read(()) == 3


def test_numbers_that_differ_are_refused_before_anything_is_assigned():
    with reader_of({"a": np.float32(3), "b": np.float32(4)}) as reader:
        same = recipes.Same([recipes.AsSaved(reader, key(name)) for name in "ab"], "a, b")
        with pytest.raises(MismatchError, match="different numbers") as caught:
            same.check(())
    assert (caught.value.key, caught.value.expected) == ("a, b", f"3.0, as {key('a')} has")
    assert caught.value.found == f"4.0 in {key('b')}"


def test_damage_in_a_part_is_found_by_the_check(tmp_path):
    path = milepost.save(str(tmp_path / "state"), {"a": np.ones(64), "b": np.full(64, 7.0)})
    (file,) = tmp_path.glob("state.data*")
    data = bytearray(file.read_bytes())
    data[data.index(np.full(64, 7.0).tobytes())] ^= 1
    file.write_bytes(data)
    with open_any(LocalStorage(), path) as reader:
        joined = recipes.Joined([recipes.AsSaved(reader, key(name)) for name in "ab"], 0)
        joined.check(((0, 64),))
        with pytest.raises(CorruptCheckpointError):
            joined.check(((0, 128),))
