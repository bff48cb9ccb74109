"""Element types of milepost where TensorFlow's are expected."""

import numpy as np
import pytest

import milepost
from milepost.adapters import DType
from tests.adapters.tensorflow.frameworks import tf


def known(dtype):
    """Whether this version of TensorFlow has the element type."""
    try:
        tf.dtypes.as_dtype(dtype.number)
    except TypeError:
        return False
    return True


@pytest.mark.parametrize("dtype", filter(known, DType.all()), ids=str)
def test_an_element_type_equals_tensorflows_and_is_found_by_it(dtype):
    theirs = tf.dtypes.as_dtype(dtype.number)
    assert dtype == theirs
    assert theirs == dtype
    assert {theirs: 1}[dtype] == {dtype: 1}[theirs] == 1
    assert dtype != tf.resource


@pytest.mark.parametrize("dtype", filter(known, DType.all()), ids=str)
def test_tensorflow_and_numpy_convert_an_element_type(dtype):
    assert tf.as_dtype(dtype) is tf.dtypes.as_dtype(dtype.number)
    assert np.dtype(dtype) == dtype.numpy


def test_the_types_that_a_reader_tells_make_tensors(tmp_path):
    path = milepost.Checkpoint(v=tf.Variable([1.0], dtype=tf.float16)).write(tmp_path / "ckpt")
    found = milepost.load_checkpoint(path).get_variable_to_dtype_map()["v/.ATTRIBUTES/VARIABLE_VALUE"]
    assert found == tf.float16
    assert tf.zeros(2, found).dtype == tf.float16


def test_other_values_are_no_element_type():
    assert DType.of("float32") != "nonsense"
    assert DType.of("float32") is not None
    assert DType.of("float32") != 1.0
