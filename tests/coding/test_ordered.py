from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.coding.ordered import decode_num, decode_snum, decode_str, encode_num, encode_snum, encode_str
from milepost.errors import CorruptCheckpointError

NUM = (encode_num, decode_num, st.integers(0, 2**64 - 1))
STR = (encode_str, decode_str, st.lists(st.sampled_from([b"\x00", b"\x01", b"\xff", b"a"])).map(b"".join) | st.binary())
SNUM = (encode_snum, decode_snum, st.integers(-(2**63), 2**63 - 1) | st.integers(-20000, 20000))
CODES = pytest.mark.parametrize(("encode", "decode", "values"), [NUM, STR, SNUM], ids=["num", "str", "snum"])


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "80"),
        (63, "bf"),
        (64, "c040"),
        (300, "c12c"),
        (8191, "dfff"),
        (8192, "e02000"),
        (2**20, "f0100000"),
        (2**27, "f808000000"),
        (-1, "7f"),
        (-64, "40"),
        (-65, "3fbf"),
        (2**63 - 1, "ffc07fffffffffffffff"),
        (-(2**63), "003f8000000000000000"),
    ],
)
def test_known_signed_numbers(value: int, encoded: str) -> None:
    """Signed numbers are encoded as in the keys of TensorFlow's files."""
    assert encode_snum(value).hex() == encoded
    assert decode_snum(bytes.fromhex(encoded)) == (value, len(encoded) // 2)


@pytest.mark.parametrize(("value", "encoded"), [(0, "00"), (2, "0102"), (256, "020100"), (2**64 - 1, "08" + "ff" * 8)])
def test_known_unsigned_numbers(value: int, encoded: str) -> None:
    """Unsigned numbers are a length and the fewest bytes."""
    assert encode_num(value).hex() == encoded


@pytest.mark.parametrize(
    ("value", "encoded"), [(b"", "0001"), (b"x", "780001"), (b"\x00", "00ff0001"), (b"\xff\x00", "ff0000ff0001")]
)
def test_known_strings(value: bytes, encoded: str) -> None:
    """Strings escape the two bytes that their end mark and order need."""
    assert encode_str(value).hex() == encoded


def test_slice_key_of_tensorflow() -> None:
    """Rows 0 and 1 of a tensor x[3, 4] have the key that TensorFlow 2.21 gives them."""
    parts = [encode_num(0), encode_str(b"x"), encode_num(2), *map(encode_snum, (0, 2, 0, 4))]
    assert b"".join(parts).hex(" ") == "00 78 00 01 01 02 80 82 80 84"


@CODES
def test_round_trip_inside_other_bytes(encode: Any, decode: Any, values: Any) -> None:
    """A value is read from where it stands, and the bytes around it do not matter."""

    @given(values, st.binary(max_size=3), st.binary(max_size=3))
    def check(value: int, before: bytes, after: bytes) -> None:
        encoded = encode(value)
        assert decode(before + encoded + after, len(before)) == (value, len(before) + len(encoded))

    check()


@CODES
def test_order_is_kept(encode: Any, decode: Any, values: Any) -> None:
    """Encoded values sort as the values do."""

    @given(values, values)
    def check(a: bytes, b: bytes) -> None:
        assert (encode(a) < encode(b)) == (a < b)

    check()


@CODES
def test_any_bytes_decode_or_are_corrupt(encode: Any, decode: Any, values: Any) -> None:
    """What decodes is the only encoding of its value; everything else raises our error."""

    @given(st.binary(max_size=12) | st.lists(st.sampled_from([b"\x00", b"\xff", b"\x01", b"\x80"])).map(b"".join))
    def check(data: bytes) -> None:
        try:
            value, position = decode(data)
        except CorruptCheckpointError:
            return
        assert encode(value) == data[:position]

    check()


@pytest.mark.parametrize(
    ("decode", "data"),
    [
        (decode_num, "01"),
        (decode_num, "0100"),
        (decode_num, "09" + "ff" * 9),
        (decode_str, "78"),
        (decode_str, "7800"),
        (decode_str, "7800020001"),
        (decode_str, "ff010001"),
        (decode_snum, "c0"),
        (decode_snum, "c020"),
        (decode_snum, "ff" * 10),
        (decode_snum, "00" * 10),
        (decode_snum, "ffc0ffffffffffffffff"),
    ],
)
def test_damage_is_found(decode: Any, data: str) -> None:
    """Truncated, padded, wrongly escaped and too large values are corrupt."""
    with pytest.raises(CorruptCheckpointError, match="at byte 0"):
        decode(bytes.fromhex(data))


@pytest.mark.parametrize(("encode", "value"), [(encode_num, -1), (encode_num, 2**64), (encode_snum, 2**63)])
def test_encode_refuses_what_does_not_fit(encode: Any, value: int) -> None:
    """Only 64-bit numbers can be encoded."""
    with pytest.raises(ValueError, match="64-bit"):
        encode(value)
