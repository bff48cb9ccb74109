"""Where the records of a zip archive begin."""

import io
import struct
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import CorruptCheckpointError
from milepost.foreign.zip_directory import Archive, starts_of
from milepost.storage import MemoryStorage


def archive_of(data):
    """The archive that these bytes are."""
    storage = MemoryStorage()
    with storage.create("/archive.zip") as file:
        file.write(0, [data])
    return Archive(storage.open("/archive.zip"))


def written(records):
    """An archive of records with these names, lengths, and extra fields."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, size, extra in records:
            info = zipfile.ZipInfo(name)
            info.extra = struct.pack("<HH", 0x4246, extra) + bytes(extra)
            archive.writestr(info, bytes([len(name) % 251]) * size)
    return buffer.getvalue()


SIZES = st.one_of(st.integers(0, 300), st.sampled_from([4095, 4096, 5000, 70_000, (1 << 20) - 20, 1 << 20, 3 << 20]))


@given(
    st.lists(
        st.tuples(st.text("ab/é", min_size=1, max_size=8), SIZES, st.integers(0, 80)),
        max_size=8,
        unique_by=lambda each: each[0],
    )
)
def test_each_record_begins_after_its_own_header(records):
    data = written(records)
    archive = archive_of(data)
    found = archive.records if records else {}
    for (name, size, _), start in zip(records, starts_of(found.values(), archive.file), strict=True):
        assert data[start : start + size] == bytes([len(name) % 251]) * size


def test_the_order_of_records_may_be_any():
    archive = archive_of(written([(f"r{place}", 10 * place, 0) for place in range(9)]))
    records = [*archive.records.values()]
    starts = starts_of(records, archive.file)
    assert starts_of(records[::-1], archive.file) == starts[::-1]


def test_no_more_is_read_than_headers_need():
    archive = archive_of(written([("a", 8 << 20, 0), ("b", 8 << 20, 0), ("c", 10, 0)]))
    archive.records  # noqa: B018 - the directory is read before
    lengths = []
    read = archive.file.read

    class Noted:
        size = archive.file.size

        def read(self, offset, length):
            lengths.append(length)
            return read(offset, length)

    starts_of(archive.records.values(), Noted())
    assert sum(lengths) < 200


def test_an_entry_without_its_signature_is_refused():
    data = bytearray(written([("a", 3, 0), ("b", 3, 0)]))
    place = data.rindex(b"PK\1\2")
    data[place] = 0
    with pytest.raises(CorruptCheckpointError, match="directory is missing or wrong") as refused:
        archive_of(bytes(data)).records  # noqa: B018 - it is read when it is asked for
    assert "no entry at byte" in str(refused.value)
