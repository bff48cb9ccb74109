import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.bundle.memory import blocks, bytes_of, new_array, object_array, scatter, swap_bytes
from milepost.errors import CorruptCheckpointError
from milepost.tensor import DType
from tests.bundle.bundles import NUMBERS, example

SHAPES = st.lists(st.integers(1, 5), max_size=4).map(tuple)


@st.composite
def layouts(draw):
    """An array whose memory is laid out in any way."""
    array = np.arange(np.prod(shape := draw(SHAPES), dtype=int), dtype=np.int32).reshape(shape)
    array = array.transpose(draw(st.permutations(range(array.ndim))))
    return array[tuple(slice(None, None, draw(st.sampled_from([1, 2, -1]))) for _ in array.shape)]


class TestBlocks:
    @given(layouts(), st.integers(1, 200))
    def test_follow_each_other_in_row_major_order(self, array, most):
        """Blocks joined are the array."""
        joined = b"".join(block.tobytes() for block in blocks(array, most))
        assert joined == array.tobytes()

    @given(layouts(), st.integers(4, 200))
    def test_are_no_larger_than_asked_for(self, array, most):
        """A block takes as much as it may, but no more."""
        assert all(block.nbytes <= most for block in blocks(array, most))

    def test_are_views(self):
        """Nothing is copied."""
        array = np.zeros((100, 100)).T
        assert all(np.shares_memory(block, array) for block in blocks(array, 1000))

    def test_of_one_row_are_as_large_as_can_be(self):
        """A flat array is cut into few blocks."""
        assert [len(block) for block in blocks(np.zeros(10, np.uint8), 4)] == [4, 4, 2]


class TestScatter:
    @given(st.data())
    def test_puts_every_run_where_it_belongs(self, data):
        """However a tensor is cut into runs, a box of it gets what it would by indexing."""
        shape = data.draw(SHAPES)
        tensor = np.arange(np.prod(shape, dtype=int)).reshape(shape)
        origin = [data.draw(st.integers(0, length - 1)) for length in shape]
        sizes = [data.draw(st.integers(1, length - start)) for length, start in zip(shape, origin, strict=True)]
        box = (*(slice(start, start + size) for start, size in zip(origin, sizes, strict=True)), ...)
        target = np.full(sizes, -1)
        flat = tensor.reshape(-1)
        start = 0
        while start < len(flat):
            stop = start + data.draw(st.integers(1, len(flat)))
            scatter(target, origin, shape, start, flat[start:stop])
            start = stop
        np.testing.assert_array_equal(target, tensor[box])


class TestSwapBytes:
    @pytest.mark.parametrize("dtype", NUMBERS, ids=str)
    def test_elements_change_their_order(self, dtype):
        """Each number turns around; complex numbers part by part."""
        array = example(dtype, (4,))
        swapped = bytes_of(array).copy()
        swap_bytes(swapped, dtype)
        width = dtype.itemsize // 2 if dtype.name.startswith("complex") else dtype.itemsize
        numbers = [array.tobytes()[n : n + width] for n in range(0, array.nbytes, width)]
        assert swapped.tobytes() == b"".join(number[::-1] for number in numbers)


class TestNewArray:
    @pytest.mark.parametrize("shape", [(0, 2**62, 2**62), (0, 2**63), (0,) * 70])
    def test_impossible_shapes(self, shape):
        """A shape without elements can still be one that no array has."""
        with pytest.raises(CorruptCheckpointError, match="no array can have"):
            new_array(DType.of("float32"), shape)
        with pytest.raises(CorruptCheckpointError, match="no array can have"):
            object_array([], shape)


@pytest.mark.parametrize("size", [16 << 10, 100_000, 3 << 20])
def test_a_large_new_array_begins_at_a_multiple_of_64_bytes(size):
    array = new_array(DType.of("uint8"), (size,))
    assert (array.ctypes.data % 64, array.shape) == (0, (size,))
