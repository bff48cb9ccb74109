"""JSON in files of other libraries that nobody would write: refused by milepost's errors, within the limits that are stated."""

import json
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

import milepost
from milepost import CorruptCheckpointError, MilepostError, UnsupportedError
from milepost.coding.json_data import parse_json, parse_object


def safetensors(header, data=b""):
    return struct.pack("<Q", len(header)) + header + data


NESTED = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
QUOTES = b'{"a":' + b"[" * 100_000 + b'"' + b'\\"' * 1_000_000
"""After the levels, a text without an end. Whoever counts the levels must not begin again at each of its quotation marks."""
MANY = b'{"a":[' + b"[]," * 4_000_001 + b"[]]}"
LARGE = b'{"a":{"dtype":"F32","shape":[' + b"9223372036854775807," * 200_000 + b'1],"data_offsets":[0,4]}}'


class TestSafetensors:
    @pytest.mark.parametrize(
        ("header", "kind"),
        [
            (NESTED, CorruptCheckpointError),
            (QUOTES, CorruptCheckpointError),
            (MANY, UnsupportedError),
            (LARGE, CorruptCheckpointError),
        ],
        ids=[
            "very many levels",
            "levels and quotation marks",
            "very many lists",
            "a shape whose product has millions of digits",
        ],
    )
    @pytest.mark.parametrize("name", ["model.safetensors", "model.safetensors.index.json"])
    def test_a_header_beyond_the_limits_is_refused(self, tmp_path, header, kind, name):
        path = tmp_path / name
        path.write_bytes(header if name.endswith("json") else safetensors(header, b"1234"))
        if name.endswith("json") and header is LARGE:
            kind = CorruptCheckpointError
        with pytest.raises(kind) as caught:
            milepost.list_variables(path)
        assert caught.value.file == str(path)
        assert len(str(caught.value)) < 1000

    def test_a_name_of_very_many_levels_is_read_as_one_name(self, tmp_path):
        name = ".".join("a" * 200_000)
        header = {name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
        path = tmp_path / "model.safetensors"
        path.write_bytes(safetensors(json.dumps(header).encode(), struct.pack("<f", 3)))
        assert milepost.load_checkpoint(path).get_tensor(name).tolist() == [3]


class TestParser:
    @given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))  # fmt: skip
    def test_what_python_writes_is_read(self, value):
        assert parse_json(json.dumps(value).encode(), "it") == value

    @given(st.binary(max_size=40) | st.text('[]{}":,1eE.-+ntf\\u', max_size=40).map(str.encode))
    def test_any_bytes_give_errors_of_milepost_only(self, data):
        with suppress(MilepostError):
            assert isinstance(parse_object(data, "it"), dict)
