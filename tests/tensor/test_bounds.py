"""An integer of Python that a type does not have is refused, with NumPy 1 as with NumPy 2."""

import numpy as np
import pytest

from milepost.tensor.bounds import check_bounds


@pytest.mark.parametrize(("number", "dtype"), [(256, "uint8"), (-1, "uint64"), (2**31, "int32"), (2**70, "int64")])
def test_an_integer_outside_of_the_type_is_refused(number, dtype):
    with pytest.raises(OverflowError, match=f"{number} out of bounds for {dtype}"):
        check_bounds(number, np.dtype(dtype))


@pytest.mark.parametrize(
    ("number", "dtype"), [(255, "uint8"), (-(2**31), "int32"), (2**64 - 1, "uint64"), (2**70, "float32"), (0.5, "int8")]
)
def test_everything_else_passes(number, dtype):
    check_bounds(number, np.dtype(dtype))
