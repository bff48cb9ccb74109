"""What a variable is given is stored as it is, or refused."""

import ml_dtypes
import numpy as np
import pytest

from milepost import MismatchError, Variable

NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("int32", 0.93),
        ("int32", 2**40),
        ("int32", 2**70),
        ("int32", NAN),
        ("int32", INFINITE),
        ("int32", 2.0**31),
        ("int32", 1 + 1j),
        ("int32", "1"),
        ("int32", None),
        ("int32", object()),
        ("int32", np.datetime64("2020-01-01")),
        ("int32", np.array(2.5, ml_dtypes.bfloat16)),
        ("int64", np.uint64(2**63)),
        ("int64", 2.0**63),
        ("uint8", -1),
        ("uint8", 256),
        ("int4", 8),
        ("bool", 2),
        ("bool", -1),
        ("bool", 0.5),
        ("bool", "True"),
        ("float32", 1j),
        ("float32", 1e300),
        ("float32", np.float64(1e39)),
        ("float32", 10**40),
        ("float32", 10**400),
        ("float32", "1.5"),
        ("float32", None),
        ("float16", 70000),
        ("bfloat16", np.float64(1e300)),
        ("float8_e4m3fn", 1e6),
        *[("float4_e2m1fn", 100.0)] * hasattr(ml_dtypes, "float4_e2m1fn"),
        ("complex64", 1e300j),
        ("string", 5),
    ],
)
def test_a_value_that_would_be_stored_as_another_is_refused_and_changes_nothing(dtype, value):
    variable = Variable("kept" if dtype == "string" else 1, dtype)
    before = variable.numpy()
    with pytest.raises(MismatchError, match=dtype) as caught:
        variable.assign(value)
    assert variable.numpy() == before
    assert caught.value.found
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("dtype", "value", "stored"),
    [
        ("int32", 2.0, 2),
        ("int32", True, 1),
        ("int32", 2 + 0j, 2),
        ("int32", np.array(2, ml_dtypes.bfloat16), 2),
        ("uint64", 2**64 - 1, 2**64 - 1),
        ("int64", -(2.0**63), -(2**63)),
        ("bool", 1, True),
        ("bool", 0.0, False),
        ("float32", 0.1, np.float32(0.1)),
        ("float32", 2**24 + 1, 2**24),
        ("float32", INFINITE, INFINITE),
        ("float32", 1e-300, 0),
        ("bfloat16", 1.1, ml_dtypes.bfloat16(1.1)),
        ("complex64", 1, 1),
    ],
)
def test_a_value_that_the_type_has_is_stored_and_precision_is_rounded(dtype, value, stored):
    variable = Variable(0, dtype)
    variable.assign(value)
    assert variable.numpy() == stored
    assert variable.tensor_dtype.name == dtype


def test_not_a_number_stays_one_among_floating_point_numbers():
    assert np.isnan(Variable(0.0).assign(np.float64(NAN)))


@pytest.mark.parametrize(
    "change",
    [
        lambda v: v.assign([0.5, 1]),
        lambda v: v.assign_add([0.5, 1]),
        lambda v: v.assign_sub([0.5, 1]),
        lambda v: v.__setitem__(0, 0.5),
        lambda v: v.__setitem__(slice(None), 0.5),
        lambda v: v.__iadd__(0.5),
        lambda v: v.__itruediv__(2),
        lambda v: v.__imul__(2**40),
        lambda v: np.add(v, 0.5, out=v),
    ],
)
def test_every_way_to_change_a_variable_refuses(change):
    variable = Variable([1, 2], name="steps")
    with pytest.raises(MismatchError) as caught:
        change(variable)
    assert caught.value.key == "steps"
    assert variable.tolist() == [1, 2]


def test_an_initial_value_is_held_to_the_same():
    with pytest.raises(MismatchError, match="int32"):
        Variable(0.93, "int32")
    assert Variable(2.0, "int32") == 2


def test_the_remedy_fits_the_value():
    with pytest.raises(MismatchError, match=r"Variable\(0\.0\), or assign int\(value\)"):
        Variable(0).assign(0.93)
    with pytest.raises(MismatchError, match="'int32', or assign True or False"):
        Variable(True).assign(2)
    with pytest.raises(MismatchError, match="the dtype 'int64'"):
        Variable(0).assign(2**40)


def test_ragged_lists_are_refused_by_our_error():
    with pytest.raises(MismatchError, match="array"):
        Variable([0.0]).assign([[1.0], [2.0, 3.0]])


def test_text_that_is_put_in_an_item_is_held_as_bytes():
    variable = Variable(["a", "b"])
    variable[0] = "ä"
    assert variable[0] == "ä".encode()


@pytest.mark.parametrize(("letters", "shown"), [(58, "'" + "x" * 58 + "'"), (59, "'" + "x" * 56 + "...")])
def test_a_refused_value_is_shown_with_at_most_60_letters(letters, shown):
    with pytest.raises(MismatchError) as caught:
        Variable(1).assign("x" * letters)
    assert caught.value.found == shown


def test_the_parts_of_quantised_numbers_are_no_numbers():
    quantised = np.zeros(2, [("f0", np.int8)])
    with pytest.raises(MismatchError):
        Variable([1, 2]).assign(quantised)
