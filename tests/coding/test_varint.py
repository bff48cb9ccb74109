import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.coding import varint
from milepost.errors import CorruptCheckpointError


@pytest.mark.parametrize(
    ("n", "encoded"),
    [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**64 - 1, "ffffffffffffffffff01")],
)
def test_known_encodings(n: int, encoded: str) -> None:
    """The encoding is that of protocol buffers."""
    assert varint.encode(n).hex() == encoded
    assert varint.decode(bytes.fromhex(encoded)) == (n, len(encoded) // 2)


@given(st.integers(0, 2**64 - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_round_trip_inside_other_bytes(n: int, before: bytes, after: bytes) -> None:
    """A number is read from where it stands, and the bytes around it do not matter."""
    encoded = varint.encode(n)
    assert varint.decode(before + encoded + after, len(before)) == (n, len(before) + len(encoded))


@pytest.mark.parametrize("n", [-1, 2**64])
def test_encode_refuses_what_does_not_fit(n: int) -> None:
    """Only unsigned 64-bit numbers can be encoded."""
    with pytest.raises(ValueError, match="unsigned 64-bit"):
        varint.encode(n)


@pytest.mark.parametrize(
    "data",
    [b"", b"\x80", b"\xff" * 9, b"\xff" * 10, b"\x80" * 10 + b"\x00", b"\xff" * 9 + b"\x02"],
    ids=["empty", "truncated", "truncated-late", "endless", "eleven-bytes", "65-bits"],
)
def test_decode_refuses_damage(data: bytes) -> None:
    """Truncated, overlong and too large numbers are corrupt."""
    with pytest.raises(CorruptCheckpointError, match="no number at byte 0"):
        varint.decode(data)


def test_decode_refuses_a_position_after_the_end() -> None:
    """There is no number after the end of the data."""
    with pytest.raises(CorruptCheckpointError):
        varint.decode(b"\x01", 1)


@given(st.binary(max_size=12))
def test_any_bytes_decode_or_are_corrupt(data: bytes) -> None:
    """No input raises anything but our error."""
    try:
        n, position = varint.decode(data)
    except CorruptCheckpointError:
        return
    assert 0 <= n < 2**64
    assert 0 < position <= min(10, len(data))
