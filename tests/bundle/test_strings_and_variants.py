import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.bundle.format import strings, variants
from milepost.errors import CorruptCheckpointError, MilepostError, UnsupportedError

ELEMENTS = st.lists(st.binary(max_size=300), max_size=20)
OTHER = "big" if sys.byteorder == "little" else "little"


def joined(pieces_and_crc):
    return b"".join(pieces_and_crc[0])


class TestStrings:
    @given(ELEMENTS)
    def test_round_trip(self, elements):
        """Elements come back, with the checksum that was promised."""
        pieces, crc = strings.encode(elements)
        assert strings.decode(b"".join(pieces), len(elements)) == (elements, crc)

    @pytest.mark.parametrize(
        ("elements", "expected"),
        [([b"hi"], "02 d8d81073 6869"), ([b""], "00 a67b113a"), ([], "d8ea82a2")],
    )
    def test_as_tensorflow(self, elements, expected):
        """The bytes that TensorFlow was seen to write."""
        assert joined(strings.encode(elements)).hex() == expected.replace(" ", "")

    def test_lengths_beyond_one_byte(self):
        """Long and short elements side by side."""
        elements = [b"a" * n for n in (0, 127, 128, 20000, 3)]
        pieces, crc = strings.encode(elements)
        assert strings.decode(b"".join(pieces), 5) == (elements, crc)

    def test_lengths_beyond_four_bytes_count_as_eight(self):
        """Only such a length goes into the checksum as 64 bits; tried on lengths alone."""
        lengths = np.array([3, 1 << 32, 5], np.uint64)
        expected = strings.crc32c(b"\3\0\0\0" + b"\0\0\0\0\1\0\0\0" + b"\5\0\0\0")
        assert strings._crc_of_lengths(lengths, "little") == expected

    @given(ELEMENTS)
    def test_the_other_byte_order(self, elements):
        """Machines of the other byte order count lengths and store the checksum in theirs."""
        lengths = b"".join(strings.varint.encode(len(element)) for element in elements)
        crc = strings.crc32c(b"".join(len(element).to_bytes(4, OTHER) for element in elements))
        check = strings.mask(crc).to_bytes(4, OTHER)
        text = b"".join(elements)
        expected = strings.crc32c(check + text, crc)
        assert strings.decode(lengths + check + text, len(elements), OTHER) == (elements, expected)

    @pytest.mark.parametrize(
        ("array", "expected"),
        [
            (np.array(["é", "b"]), ["é".encode(), b"b"]),
            (np.array([b"a", b"bc"]), [b"a", b"bc"]),
            (np.array([["x", b"y"]], object), [b"x", b"y"]),
            (np.array("s"), [b"s"]),
            (np.array([], object), []),
        ],
    )
    def test_elements(self, array, expected):
        """Arrays of text, of bytes and of objects are strings."""
        assert strings.elements_of(array) == expected

    @pytest.mark.parametrize("wrong", [1, None, 2.5, ["a"], {}])
    def test_other_objects_are_refused(self, wrong):
        """Nothing is turned into text behind the user's back; there is no pickle."""
        array = np.empty(2, object)
        array[:] = [b"fine", wrong]
        with pytest.raises(UnsupportedError, match=f"{type(wrong).__name__} at position 1"):
            strings.elements_of(array)

    @pytest.mark.parametrize(
        ("data", "count", "problem"),
        [
            (b"", 1, "too few bytes"),
            (b"", 0, "do not add up"),
            (b"\x02\xd8\xd8\x10\x73hi", 1 << 60, "too few bytes"),
            (b"\x02\xd8\xd8\x10\x73h", 1, "do not add up"),
            (b"\x02\xd8\xd8\x10\x73hi!", 1, "do not add up"),
            (b"\x02\xd8\xd8\x10\x74hi", 1, "wrong checksum"),
            (b"\xff" * 20, 1, "no number"),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" + bytes(4), 1, "do not add up"),
        ],
    )
    def test_damage(self, data, count, problem):
        """Lengths are checked before anything is made for them."""
        with pytest.raises(CorruptCheckpointError, match=problem):
            strings.decode(data, count)

    @given(st.binary(max_size=50), st.integers(0, 60))
    def test_any_bytes(self, data, count):
        """Whatever the bytes, there are elements or one of our errors."""
        try:
            elements, _ = strings.decode(data, count)
        except MilepostError:
            return
        assert len(elements) == count


class TestVariants:
    @given(ELEMENTS)
    def test_round_trip(self, elements):
        """Elements come back, with the checksum that was promised."""
        pieces, crc = variants.encode(elements)
        assert variants.decode(b"".join(pieces), len(elements)) == (elements, crc)

    @given(st.lists(st.binary(max_size=40), min_size=1, max_size=4), st.data())
    def test_no_flipped_byte_goes_unnoticed(self, elements, data):
        """Each element has a checksum over all before."""
        damaged = bytearray(joined(variants.encode(elements)))
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
        with pytest.raises(CorruptCheckpointError):
            variants.decode(bytes(damaged), len(elements))

    @given(ELEMENTS)
    def test_truncation(self, elements):
        """An end that comes too early or too late is noticed."""
        data = joined(variants.encode(elements))
        for wrong in ([data[:-1]] if data else []) + [data + b"\0"]:
            with pytest.raises(CorruptCheckpointError, match="element"):
                variants.decode(wrong, len(elements))

    def test_a_huge_claim(self):
        """A length of 2**63 in a file of a few bytes makes an error, not an array."""
        with pytest.raises(CorruptCheckpointError, match="element 0"):
            variants.decode(b"\xff" * 9 + b"\x01" + bytes(20), 1)

    @given(st.binary(max_size=50), st.integers(0, 5))
    def test_any_bytes(self, data, count):
        """Whatever the bytes, there are elements or one of our errors."""
        try:
            variants.decode(data, count)
        except MilepostError:
            pass
