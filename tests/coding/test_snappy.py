import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.coding import varint
from milepost.coding.snappy import decompress
from milepost.errors import CorruptCheckpointError
from tests.counting import lines_run

cramjam = pytest.importorskip("cramjam")

LIMIT = 1 << 24


def compress(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


@st.composite
def repetitive(draw: st.DrawFn) -> bytes:
    """Text that repeats itself at many distances, near and far."""
    pieces = draw(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=5))
    order = draw(st.lists(st.tuples(st.integers(0, len(pieces) - 1), st.integers(1, 60)), max_size=40))
    return b"".join(pieces[which] * times for which, times in order)


@given(st.binary(max_size=300) | repetitive())
def test_another_library_compresses(data: bytes) -> None:
    """What another implementation compresses comes back."""
    assert decompress(compress(data), limit=len(data)) == data


@pytest.mark.parametrize("size", [0, 1, 59, 60, 61, 62, 256, 257, 65535, 65536, 65537, 1 << 20])
def test_sizes_around_the_steps_of_the_format(size: int) -> None:
    """Literals and runs of every width of length are read."""
    for data in (bytes(size), bytes(n * n >> 3 & 255 for n in range(size))):
        assert decompress(compress(data), limit=LIMIT) == data


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        ("00", b""),
        ("03 08616263", b"abc"),
        ("04 f0 03 61626364", b"abcd"),
        ("04 f4 0300 61626364", b"abcd"),
        ("04 f8 030000 61626364", b"abcd"),
        ("04 fc 03000000 61626364", b"abcd"),
        ("06 04 6162 01 02", b"ababab"),
        ("05 04 6162 0a 0200", b"ababa"),
        ("05 04 6162 0b 02000000", b"ababa"),
        ("42 04 6162 fe 0100", b"a" + b"b" * 65),
    ],
)
def test_every_element(stream: str, expected: bytes) -> None:
    """Every kind of element is read, the long forms of short lengths too."""
    assert decompress(bytes.fromhex(stream), limit=100) == expected


@pytest.mark.parametrize(
    ("stream", "how"),
    [
        ("", "no number"),
        ("80", "no number"),
        ("04 08616263", "less than it claims"),
        ("02 08616263", "more than it claims"),
        ("03 086162", "inside a literal"),
        ("03 f0", "inside a literal"),
        ("03 fcffffffff", "inside a literal"),
        ("06 04 6162 01", "inside a copy"),
        ("06 04 6162 0e 02", "inside a copy"),
        ("06 04 6162 01 03", "outside the output"),
        ("06 04 6162 01 00", "outside the output"),
        ("ffffffff0f 00", "too much"),
        ("ffffffffffffffffff01 00", "too much"),
        ("65" + "fe0100" * 2, "too much"),
    ],
)
def test_damage_is_found(stream: str, how: str) -> None:
    """Each way of being damaged has its own sentence."""
    with pytest.raises(CorruptCheckpointError, match=how):
        decompress(bytes.fromhex(stream), limit=100)


@given(st.binary(max_size=40), st.integers(0, 100))
def test_any_bytes_decompress_or_are_corrupt(data: bytes, claimed: int) -> None:
    """No input raises anything but our error, and none that decompresses breaks its claim."""
    data = varint.encode(claimed) + data
    try:
        assert len(decompress(data, limit=50)) == claimed <= 50
    except CorruptCheckpointError:
        pass


@given(repetitive().map(compress), st.data())
def test_flipped_bits_agree_with_another_library(data: bytes, draw: st.DataObject) -> None:
    """A damaged stream gives the same bytes as another implementation, or our error."""
    place = draw.draw(st.integers(0, len(data) - 1))
    damaged = bytearray(data)
    damaged[place] ^= draw.draw(st.integers(1, 255))
    try:
        ours = decompress(bytes(damaged), limit=LIMIT)
    except CorruptCheckpointError:
        return
    assert ours == bytes(cramjam.snappy.decompress_raw(bytes(damaged)))


def test_the_best_possible_compression_is_accepted_and_takes_few_steps() -> None:
    """A stream of nothing but the cheapest copies is within the bound, and takes no byte-by-byte loop."""
    copies = 10_000
    stream = varint.encode(1 + 64 * copies) + b"\x00a" + b"\xfe\x01\x00" * copies
    found: list[bytes] = []
    assert lines_run(lambda: found.append(decompress(stream, limit=LIMIT))) < 30 * copies
    assert found == [b"a" * (1 + 64 * copies)]
