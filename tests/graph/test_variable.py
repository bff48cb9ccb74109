"""`Variable` feels like an array, and changes in place."""

import copy
import pickle

import ml_dtypes
import numpy as np
import pytest

from milepost import MismatchError, UnsupportedError, Variable
from milepost.graph.variable import own


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1.0, np.float32),
        ([1.0, 2.0], np.float32),
        (1, np.int32),
        (2**40, np.int64),
        (-(2**31), np.int32),
        (-(2**63), np.int64),
        ([], np.float32),
        (True, np.bool_),
        (1j, np.complex128),
        (np.float64(1), np.float64),
        (np.arange(3), np.int64),
        ([np.float64(1), 2.0], np.float64),
        ("text", object),
        (b"bytes", object),
    ],
)
def test_python_numbers_get_tensorflows_types_and_arrays_keep_theirs(value, dtype):
    assert Variable(value).dtype == dtype


def test_text_is_held_as_utf8_bytes():
    assert Variable("ä").numpy()[()] == "ä".encode()


def test_a_dtype_may_be_given_by_any_name():
    assert Variable(1.0, "bfloat16").dtype == ml_dtypes.bfloat16
    assert Variable(1.0, np.float64).dtype == np.float64


def test_the_initial_value_is_copied():
    array = np.zeros(3)
    variable = Variable(array)
    array[0] = 1
    assert variable[0] == 0


def test_another_byte_order_becomes_this_machines():
    assert Variable(np.arange(3, dtype=">i4")).dtype.isnative


def test_records_with_objects_are_refused():
    with pytest.raises(UnsupportedError, match="field"):
        Variable(np.zeros(2, [("field", object)]))


def test_objects_that_are_no_text_are_refused():
    with pytest.raises(MismatchError, match="text and bytes"):
        Variable(np.array([1, None], object))


def test_assign_changes_the_value_in_place():
    variable = Variable([1.0, 2.0])
    seen = np.asarray(variable)
    assert variable.assign([3, 4]) is variable
    assert seen.tolist() == [3, 4]


def test_assign_of_another_shape_is_refused_and_changes_nothing():
    variable = Variable([1.0, 2.0])
    with pytest.raises(MismatchError, match=r"\[2\]"):
        variable.assign([1.0])
    assert variable.tolist() == [1, 2]


def test_assign_of_a_scalar_to_a_vector_is_no_broadcast():
    with pytest.raises(ValueError, match="shape"):
        Variable([1.0, 2.0]).assign(0.0)


def test_an_open_dimension_takes_any_length():
    variable = Variable(np.zeros((2, 5)), shape=(None, 5))
    variable.assign(np.ones((3, 5)))
    assert variable.shape == (3, 5)
    with pytest.raises(MismatchError):
        variable.assign(np.ones((3, 4)))


def test_assign_add_and_sub_return_the_variable():
    variable = Variable(1)
    assert variable.assign_add(2) is variable
    assert variable == 3
    assert variable.assign_sub(1) == 2


def test_augmented_assignment_keeps_the_variable():
    variable = same = Variable([1.0])
    variable += 1
    variable *= 3
    assert variable is same
    assert variable.tolist() == [6]


def test_arithmetic_gives_arrays():
    a, b = Variable([1.0, 2.0]), Variable([3.0, 4.0])
    for result in (a + b, 2 * a, a @ b, -a, a > 1, np.exp(a), np.ones((2, 2)) @ a, a @ np.ones((2, 2))):
        assert not isinstance(result, Variable)
    assert (a + b).dtype == np.float32
    assert a @ b == 11


def test_numpy_copies_and_asarray_does_not():
    variable = Variable([1.0])
    copied, seen = variable.numpy(), np.asarray(variable)
    variable.assign([2.0])
    assert copied[0] == 1
    assert seen[0] == 2


def test_value_is_a_read_only_view():
    variable = Variable([1.0])
    with pytest.raises(ValueError, match="read-only"):
        variable.value()[0] = 2


def test_scalars_convert_to_python_numbers():
    variable = Variable(3)
    assert (int(variable), float(variable), bool(variable), complex(variable)) == (3, 3.0, True, 3 + 0j)
    assert [0, 1, 2, 3][variable] == 3
    assert f"{Variable(1.5):.2f}" == "1.50"


def test_indexing_slicing_and_iteration():
    variable = Variable([[1, 2], [3, 4]])
    variable[0, 0] = 9
    assert variable[0].tolist() == [9, 2]
    assert [row.tolist() for row in variable] == [[9, 2], [3, 4]]
    assert len(variable) == 2
    assert 9 in variable


def test_methods_of_arrays_work():
    assert Variable([[1.0, 2.0]]).sum() == 3
    assert Variable([1.0]).reshape(1, 1).shape == (1, 1)
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        _ = Variable(1.0).missing


def test_a_comparison_is_elementwise_so_variables_are_unhashable():
    assert (Variable([1, 2]) == [1, 3]).tolist() == [True, False]
    with pytest.raises(TypeError):
        hash(Variable(1))


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda v: pickle.loads(pickle.dumps(v))])
def test_copies_have_their_own_memory(duplicate):
    variable = Variable([1.0, 2.0], name="w", trainable=False)
    twin = duplicate(variable)
    twin.assign([3.0, 4.0])
    assert variable.tolist() == [1, 2]
    assert (twin.name, twin.trainable, twin.dtype) == ("w", False, np.float32)


def test_the_repr_tells_shape_type_and_value():
    assert repr(Variable(1, name="n")) == "<milepost.Variable 'n' shape=() dtype=int32, numpy=1>"


def test_dtype_conversion_through_asarray():
    assert np.asarray(Variable([1.0]), np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="copy"):
        np.asarray(Variable([1.0])).__class__ and Variable([1.0]).__array__(np.float64, copy=False)


def test_a_number_is_formatted_as_a_number_and_an_array_as_text():
    number, array = Variable(1.25), Variable([1.0, 2.0])
    assert f"{number:.1f}" == "1.2"
    assert (f"{number}", f"{array}") == (str(number), str(array))
    assert f"{array:>200}" == str(array).rjust(200)


def test_an_array_is_copied_unless_its_memory_is_its_own():
    array = np.arange(6)
    assert own(array) is array
    view = array.reshape(2, 3)
    assert own(view) is view
    foreign = np.frombuffer(b"abc", np.uint8)
    assert own(foreign).flags.owndata
    assert own(foreign).tolist() == foreign.tolist()
