"""Nested plain state as named tensors, and back."""

import json
import math
import struct
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from milepost import CorruptCheckpointError, MilepostError, Module, UnsupportedError
from milepost.adapters import DType
from milepost.plain_state.decoding import from_text, unpack
from milepost.plain_state.encoding import pack, register_kind, store_inline, to_text

TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=8)  # with lone surrogates
FLOATS = st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0]) | st.floats()
KEYS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT | st.binary(max_size=8)
SCALARS = st.one_of(
    KEYS, FLOATS, st.complex_numbers(), st.binary(max_size=8).map(bytearray), st.integers(-5, 5).map(np.int64)
)
STORED = [dtype.numpy for dtype in DType.all() if not dtype.is_bytes]
ARRAYS = st.one_of(
    hnp.arrays(
        hnp.scalar_dtypes().filter(lambda dtype: dtype.itemsize <= 8 or dtype.str[1:] == "c16"),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
    ),
    hnp.arrays(hnp.unicode_string_dtypes(max_len=4), hnp.array_shapes(max_side=3)),
    hnp.arrays(hnp.byte_string_dtypes(max_len=4), hnp.array_shapes(max_side=3)),
)


def collections_of(inner):
    pairs = st.lists(st.tuples(KEYS, inner), max_size=4)
    several = st.lists(inner, max_size=4)
    return st.one_of(
        several,
        several.map(tuple),
        several.map(deque),
        several.map(lambda items: deque(items, maxlen=2)),
        pairs.map(dict),
        pairs.map(OrderedDict),
        pairs.map(lambda items: defaultdict(list, items)),
        st.dictionaries(st.sampled_from(["a", "b", "a/b", "!", "items", "py_state", "0"]), inner, max_size=4),
        st.sets(KEYS, max_size=4),
        st.frozensets(KEYS | st.tuples(KEYS, KEYS), max_size=4),
        st.lists(KEYS, max_size=4).map(Counter),
    )


STATES = st.recursive(SCALARS | ARRAYS, collections_of, max_leaves=12)


def is_same(one, other):
    """Whether types, order and bits are equal, all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, (np.ndarray, np.generic)):
        if one.dtype == object:
            return one.shape == other.shape and is_same(one.tolist(), other.tolist())
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, float):
        return struct.pack("<d", one) == struct.pack("<d", other)
    if isinstance(one, complex):
        return is_same((one.real, one.imag), (other.real, other.imag))
    if isinstance(one, dict):
        factories = [getattr(each, "default_factory", None) for each in (one, other)]
        return factories[0] is factories[1] and is_same(list(one.items()), list(other.items()))
    if isinstance(one, (set, frozenset)):
        return is_same(sorted(map(repr, one)), sorted(map(repr, other)))
    if isinstance(one, (list, tuple, deque)):
        limits = [getattr(each, "maxlen", None) for each in (one, other)]
        return limits[0] == limits[1] and len(one) == len(other) and all(map(is_same, one, other))
    return one == other


@given(STATES)
def test_any_plain_state_comes_back_with_its_types_and_bits(state):
    assert is_same(unpack(pack(state)), state)


@given(STATES)
def test_any_plain_state_comes_back_from_a_text_alone(state):
    assert is_same(from_text(to_text(state, "", store_inline), {}), state)


@given(STATES)
def test_the_text_is_strict_json_in_utf8(state):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    json.loads(pack(state)["py_state"].item().decode("utf-8"), parse_constant=refuse)


@given(STATES)
def test_every_entry_has_a_type_that_files_hold_and_a_name_that_utf8_holds(state):
    for name, array in pack(state).items():
        assert name.encode()
        assert DType.of(array)
        if array.dtype == object:
            assert all(isinstance(each, bytes) for each in array.reshape(-1).tolist())


@pytest.mark.parametrize("dtype", STORED, ids=str)
def test_arrays_and_scalars_of_every_stored_type_come_back(dtype):
    array = np.arange(64, dtype=np.uint8)[: 4 * dtype.itemsize] % 2
    array = array.view(dtype) if not dtype.names else array.astype(np.uint8).view(dtype)
    assert is_same(unpack(pack(array)), array)
    assert is_same(unpack(pack(list(array))), list(array))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.complex64, ml_dtypes.bfloat16], ids=str)
def test_scalars_that_are_no_numbers_keep_their_bits(dtype):
    for value in (np.array(math.nan, dtype)[()], np.array(-math.inf, dtype)[()], np.array(-0.0, dtype)[()]):
        assert is_same(unpack(pack(value)), value)
    odd = np.frombuffer(b"\x01" * (np.dtype(dtype).itemsize - 2) + b"\xc1\xff", dtype)[0]
    assert is_same(unpack(pack(odd)), odd)


@pytest.mark.parametrize("dates", ["M8[ns]", "m8[D]", ">M8[25s]"])
def test_dates_come_back(dates):
    array = np.array([0, 5, -(2**63)], "i8").view("M8[ns]" if "M" in dates else "m8[D]").astype(dates)
    assert is_same(unpack(pack(array)), array)
    assert is_same(unpack(pack(array[1])), array[1])


def test_arrays_of_any_objects_come_back():
    array = np.empty((2, 1), object)
    array[0, 0], array[1, 0] = [1, 2], {"a": np.arange(2)}
    assert is_same(unpack(pack(array)), array)


@pytest.mark.parametrize("number", [10**5000, -(1 << 100_000), 2**127 - 1], ids=["long", "longer", "short"])
def test_integers_of_any_size_come_back(number):
    assert unpack(pack(number)) == number


def test_simple_state_reads_as_the_json_one_would_write():
    state = {
        "epoch": 3,
        "sampler": {"seed": 2**62, "order": [2, 0, 1]},
        "done": False,
        "lr": 0.1,
        "name": "ä",
        "x": None,
    }
    assert json.loads(pack(state)["py_state"].item()) == state
    assert "ä" in pack(state)["py_state"].item().decode()


def test_bytes_that_are_text_are_written_as_text():
    assert json.loads(pack(b'{"index": 3}\n')["py_state"].item())["text"] == '{"index": 3}\n'


def test_entries_are_named_by_their_paths():
    state = {"a": [{"b": np.zeros(2)}], 3: (np.ones(1),)}
    assert list(pack(state)) == ["py_state", "a/0/b", "3/0"]


def test_a_state_that_is_an_array_has_an_entry_of_its_own():
    assert list(pack(np.zeros(2))) == ["py_state", "value"]


def test_entries_whose_paths_collide_stay_apart():
    state = {"a/b": np.array(1), "a": {"b": np.array(2)}, "py_state": np.array(3), 1: np.array(4), "1": np.array(5)}
    assert is_same(unpack(pack(state)), state)
    assert len(pack(state)) == 6


def test_arrays_and_long_byte_strings_are_not_in_the_text():
    arrays = pack({"array": np.zeros(10**6), "bytes": b"\xff" * 10**6, "text": b"a" * 10**6})
    assert len(arrays["py_state"].item()) < 200


def test_arrays_are_not_copied():
    array = np.zeros(4)
    assert np.shares_memory(pack({"a": array})["a"], array)


def test_sets_are_written_in_the_same_order_in_every_process():
    assert json.loads(pack({"b", "a", "c"})["py_state"].item())["items"] == ["a", "b", "c"]


def test_lists_and_dicts_that_an_attribute_has_wrapped_become_plain_again():
    module = Module()
    module.state = {"a": [1, {"b": 2}]}
    assert is_same(unpack(pack(module.state)), {"a": [1, {"b": 2}]})


_Point = namedtuple("_Point", ["x"])


@pytest.mark.parametrize(
    "value",
    [
        object(),
        int,
        _Point(1),
        defaultdict(lambda: 3),
        np.zeros(2, [("a", "i4"), ("b", object)]),
        np.ma.masked_array([1.0], [True]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_plain_state_is_refused_with_its_path(value):
    with pytest.raises(UnsupportedError) as caught:
        pack({"a": [0, value]}, "loader")
    assert caught.value.key == "loader/a/1"


def test_state_that_holds_itself_is_refused():
    state = {"a": []}
    state["a"].append(state)
    with pytest.raises(UnsupportedError, match="holds itself"):
        pack(state)


def test_an_object_in_several_places_is_no_cycle():
    shared = [1]
    assert unpack(pack({"a": shared, "b": [shared, shared]})) == {"a": [1], "b": [[1], [1]]}


def nested(levels):
    state = [1]
    for _ in range(levels):
        state = [state]
    return state


def below(frames, call):
    """What a function returns that is called below other functions."""
    return call() if frames == 0 else below(frames - 1, call)


@pytest.mark.parametrize(
    "held", [lambda value: [value], lambda value: (value,), lambda value: OrderedDict([((1,), value)])]
)
def test_state_of_a_hundred_levels_comes_back(held):
    """Whatever holds each level, also if each is in two places, and in a program that is itself deep in calls."""
    state, levels = 1, []
    for _ in range(97):
        state = held(state)
        levels.append(state)
    state = [state, levels]
    assert repr(below(300, lambda: unpack(pack(state)))) == repr(state)


def test_state_of_more_levels_is_refused():
    assert unpack(pack(nested(99))) == nested(99)
    with pytest.raises(UnsupportedError, match="more than 100 levels"):
        pack(nested(100))


def test_text_that_is_mostly_padding_is_refused():
    with pytest.raises(UnsupportedError, match="padding"):
        pack(np.array(["x"], "U20000000"))


def text(content):
    array = np.empty((), object)
    array[()] = content if isinstance(content, bytes) else content.encode()
    return {"py_state": array, "a": np.arange(2), "s": np.array([b"x"], object)}


@pytest.mark.parametrize(
    "content",
    [
        b"\xff",
        "",
        "{",
        "[" * 100_000,
        '{"a":' * 400 + "1" + "}" * 400,
        '{"!": "tuple"}',
        '{"!": "tuple", "items": 3}',
        '{"!": []}',
        '{"!": 3}',
        '{"!": "dict", "items": [[[], 1]]}',
        '{"!": "dict", "items": [[1]]}',
        '{"!": "set", "items": [[1]]}',
        '{"!": "deque", "items": [], "maxlen": "x"}',
        '{"!": "defaultdict", "factory": "eval", "items": []}',
        '{"!": "int", "hex": "xyz"}',
        '{"!": "float", "bits": "00"}',
        '{"!": "str", "escaped": "\\\\x"}',
        '{"!": "bytes", "base64": "a"}',
        '{"!": "bytes", "entry": "a"}',
        '{"!": "array", "entry": "missing"}',
        '{"!": "array", "entry": "py_state"}',
        '{"!": "array", "entry": 3}',
        '{"!": "array", "entry": "a", "as": "O"}',
        '{"!": "array", "entry": "a", "as": "i8,i8"}',
        '{"!": "array", "entry": "a", "as": "<f4"}',
        '{"!": "array", "entry": "s", "as": "<U900000000"}',
        '{"!": "array", "dtype": "<u4", "shape": [1000000000000], "base64": "AAAA"}',
        '{"!": "array", "dtype": "O", "shape": [1], "base64": "AAAA"}',
        '{"!": "objects", "shape": [1000000000000], "items": []}',
        '{"!": "objects", "shape": "ab", "items": []}',
        '{"!": "scalar", "dtype": "<U900000000", "value": ""}',
        '{"!": "scalar", "dtype": "uint8", "value": 1000}',
        '{"!": "scalar", "dtype": "uint8", "value": {}}',
    ],
)
def test_text_that_pack_never_wrote_is_an_error_of_ours(content):
    with pytest.raises(CorruptCheckpointError):
        unpack(text(content))


@given(
    st.recursive(
        st.none() | st.integers() | st.sampled_from(["", "a", "s", "<u4", "float32", "AAAA", "list", "torch"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.fixed_dictionaries(
                {
                    "!": st.sampled_from(
                        ["tuple", "dict", "deque", "array", "objects", "scalar", "bytes", "float", "tensor", "x"]
                    )
                },
                optional=dict.fromkeys(
                    ["items", "value", "dtype", "shape", "base64", "entry", "maxlen", "factory", "as"], inner
                ),
            )
        ),
        max_leaves=8,
    )
)
def test_no_text_whatsoever_raises_anything_else(content):
    try:
        unpack(text(json.dumps(content)))
    except MilepostError:
        pass


@pytest.mark.parametrize(
    "arrays", [{}, {"py_state": np.zeros(3)}, {"py_state": np.array(3)}], ids=["none", "many", "int"]
)
def test_a_missing_text_is_an_error_of_ours(arrays):
    with pytest.raises(CorruptCheckpointError, match="not plain state"):
        unpack(arrays)


class _Tensor:
    def __init__(self, array):
        self.array = array


register_kind("test tensor", lambda value: type(value) is _Tensor, lambda value: value.array, _Tensor)


def test_a_registered_kind_becomes_an_entry_and_comes_back():
    arrays = pack({"x": _Tensor(np.arange(3))})
    assert arrays["x"].tolist() == [0, 1, 2]
    assert type(unpack(arrays)["x"]) is _Tensor


def test_an_array_of_a_kind_that_nobody_registered_comes_as_it_is():
    assert unpack(text('{"!": "other", "value": {"!": "array", "entry": "a"}}')).tolist() == [0, 1]


def test_a_kind_that_cannot_be_made_is_an_error_of_ours():
    register_kind("test picky", lambda value: False, lambda value: value, lambda value: value.missing)
    with pytest.raises(CorruptCheckpointError, match="test picky"):
        unpack(text('{"!": "test picky", "value": 3}'))


def test_the_first_form_of_arrays_is_still_read():
    state = unpack(text('[NaN, {"!": "array", "dtype": "<u4", "shape": [2], "base64": "AQAAAAIAAAA="}]'))
    assert math.isnan(state[0])
    assert is_same(state[1], np.array([1, 2], np.uint32))
