import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.bundle.format.entry import Entry, decode, encode, encode_all
from milepost.bundle.format.messages import BundleEntry
from milepost.errors import CorruptCheckpointError, MilepostError, UnsupportedError
from milepost.tensor import DType, TensorSlice
from tests.bundle.bundles import EVERY_DTYPE, NUMBERS

INT64 = st.integers(0, 2**63 - 1)
INT32 = st.integers(0, 2**31 - 1)
FLOAT = DType.of("float32")
GOOD = encode(FLOAT, (2, 3), 1, 64, 24, 0x12345678)


@st.composite
def entries(draw):
    dtype = draw(st.sampled_from(EVERY_DTYPE))
    shape = tuple(draw(st.lists(st.integers(0, 2**20) | st.integers(0, 3), max_size=6)))
    size = Entry(dtype, shape).spec.nbytes
    if dtype.is_bytes:
        size = 5 * Entry(dtype, shape).spec.size + draw(st.integers(4, 2**40))
    if size >= 2**63:
        shape, size = (), dtype.itemsize or 5
    return Entry(dtype, shape, draw(INT32), draw(INT64), size, draw(st.integers(0, 2**32 - 1)))


def message(entry):
    """The entry as protobuf makes it, without any short cut."""
    made = BundleEntry(
        dtype=entry.dtype.number, shard_id=entry.shard, offset=entry.offset, size=entry.size, crc32c=entry.crc
    )
    made.shape.SetInParent()
    for length in entry.shape:
        made.shape.dim.add(size=length)
    return made


class TestEncoding:
    def test_as_tensorflow(self):
        """The entry of the format's worked example."""
        entry = encode(FLOAT, (2,), 0, 7, 8, 0x35E53C59)
        assert entry.hex(" ") == "08 01 12 04 12 02 08 02 20 07 28 08 35 59 3c e5 35"

    @given(st.lists(entries(), max_size=20), INT32)
    def test_many_at_once_are_encoded_like_each(self, found, shard):
        offsets, sizes, crcs = (
            np.array([getattr(entry, name) for entry in found], np.int64) for name in ("offset", "size", "crc")
        )
        specs = [(entry.dtype, entry.shape) for entry in found]
        assert encode_all(specs, shard, offsets, sizes, crcs) == [
            encode(*entry._replace(shard=shard)) for entry in found
        ]

    @given(entries())
    def test_equals_protobuf(self, entry):
        """Joining serialized parts gives what serializing the whole gives."""
        assert encode(*entry) == message(entry).SerializeToString()

    @given(entries())
    def test_round_trip(self, entry):
        """What was encoded is decoded."""
        assert decode(encode(*entry)) == entry

    @given(entries(), st.randoms())
    def test_fields_in_any_order(self, entry, random):
        """Another writer may order and repeat fields; the last one counts, as protobuf says."""
        whole = message(entry)
        parts = []
        for field in ("dtype", "shape", "shard_id", "offset", "size", "crc32c"):
            part = message(entry)
            for other in ("dtype", "shape", "shard_id", "offset", "size", "crc32c"):
                if other != field:
                    part.ClearField(other)
            parts.append(part.SerializeToString())
        random.shuffle(parts)
        assert decode(b"".join(parts)) == entry
        overridden = BundleEntry(dtype=99, shard_id=7, offset=3).SerializeToString() + whole.SerializeToString()
        if all((entry.shard, entry.offset)):
            assert decode(overridden) == entry

    def test_a_later_type_overrides_an_earlier_one(self):
        """The short cut notices that type and shape are not all there is."""
        override = BundleEntry(dtype=3).SerializeToString()
        assert decode(GOOD + override).dtype.name == "int32"

    def test_a_type_beyond_one_byte(self):
        """A type of a newer TensorFlow is refused, not misread."""
        with pytest.raises(UnsupportedError, match="300"):
            decode(BundleEntry(dtype=300).SerializeToString() + GOOD[2:])

    def test_dimension_names_do_not_matter(self):
        """Names of dimensions are skipped."""
        named = message(decode(GOOD))
        named.shape.dim[0].name = b"rows"
        assert decode(named.SerializeToString()).shape == (2, 3)

    def test_slices(self):
        """The pieces of a tensor are part of its entry, whole dimensions among them."""
        pieces = (TensorSlice.parse("0,2:-"), TensorSlice.parse("2,1:0,4"))
        data = encode(FLOAT, (3, 4), slices=pieces)
        assert data.hex(" ").endswith("3a 06 0a 02 10 02 0a 00 3a 0a 0a 04 08 02 10 01 0a 02 10 04")
        assert decode(data) == Entry(FLOAT, (3, 4), slices=pieces)


def with_changes(**fields):
    changed = message(decode(GOOD))
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed.SerializeToString()


def with_shape(*lengths, **fields):
    changed = message(decode(GOOD))
    changed.ClearField("shape")
    changed.shape.SetInParent()
    for length in lengths:
        changed.shape.dim.add(size=length)
    for name, value in fields.items():
        setattr(changed.shape, name, value)
    return changed.SerializeToString()


def with_slice(*extents):
    changed = message(Entry(FLOAT, (2, 3)))
    piece = changed.slices.add()
    for start, length in extents:
        piece.extent.add(start=start, length=length)
    return changed.SerializeToString()


class TestDamage:
    @pytest.mark.parametrize(
        ("data", "problem"),
        [
            (b"", "without an element type"),
            (b"\xff", "cannot be decoded"),
            (GOOD[:-1], "cannot be decoded"),
            (GOOD[:7], "cannot be decoded"),
            (b"\x08\x01\x12\x7f", "cannot be decoded"),
            (with_changes(size=23), "size does not fit"),
            (with_changes(size=25), "size does not fit"),
            (with_changes(size=-24), "size does not fit"),
            (with_changes(offset=-1), "negative place"),
            (with_changes(shard_id=-1), "negative place"),
            (with_changes(dtype=0), "without an element type"),
            (with_shape(2, -3), "not that of a tensor"),
            (with_shape(2, 3, unknown_rank=True), "not that of a tensor"),
            (with_shape(*[1] * 255), "not that of a tensor"),
            (with_shape(2**62, 2**62), "size does not fit"),
            (with_shape(6, 1, 2**62, 0), "size does not fit"),
            (with_slice((0, 3), (0, 3)), "reaches outside"),
            (with_slice((-1, 2), (0, 3)), "reaches outside"),
            (with_slice((1, 0), (0, 3)), "no positive length"),
            (with_slice((9, 0), (0, 3)), "no positive length"),
            (with_slice((0, -2), (0, 3)), "no positive length"),
            (with_slice((0, 2)), "another rank"),
        ],
    )
    def test_one_error_for_each(self, data, problem):
        """An entry that contradicts itself is refused before anything is read or made for it."""
        with pytest.raises(CorruptCheckpointError, match=problem):
            decode(data)

    def test_a_resource_has_no_value(self):
        """TensorFlow would end the process."""
        with pytest.raises(UnsupportedError, match="resource"):
            decode(with_changes(dtype=20))

    @given(st.binary(max_size=60))
    def test_any_bytes(self, data):
        """Whatever the bytes, there is an entry or one of our errors."""
        try:
            decode(data)
        except MilepostError:
            pass

    @given(st.data())
    def test_any_change(self, data):
        """Whatever byte of an entry changes, there is an entry or one of our errors."""
        changed = bytearray(encode(*data.draw(entries())))
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
        try:
            entry = decode(bytes(changed))
        except MilepostError:
            return
        assert entry.dtype.is_bytes or entry.slices or entry.size == entry.spec.nbytes


def test_all_types_can_be_stored():
    """Each type is found again by its number."""
    for dtype in NUMBERS:
        assert decode(encode(dtype, (), 0, 0, dtype.itemsize)).dtype is dtype


def test_a_checksum_that_is_not_given_is_zero():
    assert decode(encode(DType.of("float32"), (2,), size=8)).crc == 0
    assert encode(DType.of("float32"), (2,), size=8) == encode(DType.of("float32"), (2,), size=8, crc=0)
