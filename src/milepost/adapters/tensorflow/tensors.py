"""Converts tensors to arrays and back. A variant tensor becomes an array of serialized elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2

from milepost.coding import varint
from milepost.graph.adapter import Array
from milepost.tensor import DType


def dtype_of(tensor: Any) -> DType:
    """The element type of a tensor or variable."""
    return DType.from_number(tensor.dtype.base_dtype.as_datatype_enum)


def to_array(tensor: Any) -> Array:
    """The value of an eager tensor, without a copy if it is in the machine's main memory.

    The array shares the tensor's buffer. TensorFlow does not write to a shared buffer: a variable that changes gets a new one. So
    the array does not change.
    """
    dtype = dtype_of(tensor)
    if dtype.name == "variant":
        message = tensor_pb2.TensorProto.FromString(tf.io.serialize_tensor(tensor).numpy())
        shape = [dimension.size for dimension in message.tensor_shape.dim]
        elements = np.empty(math.prod(shape), object)
        elements[:] = _split(message.tensor_content, elements.size)
        return elements.reshape(shape)
    if dtype.is_bytes:
        return np.asarray(tensor.numpy(), object)
    array: Array = np.asarray(tensor)
    return (
        array if array.dtype == dtype.numpy else array.view(dtype.numpy)
    )  # TensorFlow has plain integers for quantised types


def from_array(array: Array, dtype: DType) -> Any:
    """An eager tensor of a value that was read from a checkpoint."""
    if dtype.name == "variant":
        message = tensor_pb2.TensorProto(dtype=dtype.number)
        for length in array.shape:
            message.tensor_shape.dim.add(size=length)
        for element in array.reshape(-1):
            message.variant_val.add().ParseFromString(element)
        return tf.io.parse_tensor(message.SerializeToString(), tf.variant)
    if array.dtype.fields is not None:  # a quantised type
        plain = next(iter(array.dtype.fields.values()))[0]
        return tf.bitcast(tf.constant(array.view(plain)), tf.dtypes.as_dtype(dtype.number))
    return tf.constant(array, tf.dtypes.as_dtype(dtype.number))


def _split(content: bytes, count: int) -> list[bytes]:
    """The elements of a list that TensorFlow has encoded: all lengths as varints, followed by all bytes.

    Source: TensorFlow 2.21, ``tensorflow/core/platform/tensor_coding.cc``, ``NewStringListEncoder``.
    """
    lengths = []
    position = 0
    for _ in range(count):
        length, position = varint.decode(content, position)
        lengths.append(length)
    elements = []
    for length in lengths:
        elements.append(content[position : position + length])
        position += length
    return elements
