"""Tensors that are copied when they are written. Those of the CPU are read in the same way here, since not every machine has a GPU."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
on_gpu = pytest.importorskip("milepost.adapters.torch.on_gpu")

WHOLE = torch.arange(24.0).reshape(4, 6)
BOXES = [(slice(1, 3),), (slice(0, 2), slice(3, 6)), (slice(2, 2),), 3]


@pytest.mark.parametrize("index", BOXES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_a_box_is_that_of_the_tensor(index, dtype):
    tensor = (WHOLE % 5).to(dtype)
    assert np.asarray(on_gpu.in_place(tensor)[index]).tolist() == tensor[index].tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.bool])
def test_a_tensor_with_other_strides_is_copied_into_memory(dtype):
    tensor = (WHOLE % 5).to(dtype).t()
    source = on_gpu.in_place(tensor)
    found = np.empty(source.shape, source.dtype)
    source.copy_into(found)
    assert found.astype(float).tolist() == tensor.float().tolist()


def test_a_parameter_is_copied_without_its_gradient():
    parameter = torch.nn.Parameter(WHOLE.clone())
    found = np.empty((4, 6), np.float32)
    on_gpu.in_place(parameter).copy_into(found)
    assert np.array_equal(found, WHOLE.numpy())


def test_the_elements_are_those_of_the_time_when_they_are_read():
    tensor = WHOLE.clone()
    source = on_gpu.in_place(tensor)
    tensor += 1
    assert np.array_equal(np.asarray(source), WHOLE.numpy() + 1)


def test_a_tensor_on_the_cpu_shares_its_memory():
    tensor = torch.zeros(1 << 20)
    assert np.shares_memory(on_gpu.elements(tensor), tensor.numpy())


@given(st.lists(st.integers(1, 7), max_size=4), st.sampled_from([1, 2, 4, 8]), st.integers(8, 100))
def test_the_parts_of_a_tensor_follow_each_other(shape, itemsize, most):
    numbers = np.arange(math.prod(shape)).reshape(shape)
    found = list(on_gpu.boxes(tuple(shape), itemsize, most))
    parts = [numbers[tuple(slice(start, start + length) for start, length in box)].reshape(-1) for box in found]
    assert np.concatenate(parts).tolist() == numbers.reshape(-1).tolist()
    assert all(part.size * itemsize <= most for part in parts)


class Stored:
    """A saved value that is not one run of bytes. Each box would be read with what is around it."""

    in_one_run = False

    def __init__(self, array):
        self.array, self.dtype, self.shape = array, array.dtype, array.shape
        self.read_boxes = []

    def read(self, box):
        self.read_boxes.append(box)
        return self.array[box.resolve(self.shape)]


def test_a_value_that_is_not_one_run_of_bytes_is_read_once():
    stored = Stored(WHOLE.numpy())
    tensor = torch.zeros(4, 6)
    on_gpu.read_into(tensor, stored)
    assert torch.equal(tensor, WHOLE)
    assert len(stored.read_boxes) == 1
