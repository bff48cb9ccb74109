"""What the instructions of pickled data make: the values of Python's own reader, and for damaged streams only errors of milepost."""

import pickle
from collections import OrderedDict
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost import MilepostError
from milepost.foreign.pytorch import rebuilt
from milepost.foreign.pytorch.pickled import PickledData

VALUES = [
    {"a": [1, 2.5, "x", None, True, (1, 2, 3), b"y", {"z": {1, 2}}], "b" * 300: OrderedDict(k=1), "same": ["q", "q"]},
    [["é" * 100, (1,), (1, 2), [()], -5, 1 << 40, {}]] * 3,
    [str(number) for number in range(300)] * 2,
]
STREAMS = [pickle.dumps(value, protocol) for value in VALUES for protocol in range(6)]
CODES = st.sampled_from(sorted(b"\x94\x8chjqr(t\x85\x86.XK)\x8902")) | st.integers(0, 255)
CHANGES = st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 2), st.none() | CODES), min_size=1, max_size=3)


def read(data):
    """What is read from a stream."""
    return PickledData(data, rebuilt.meaning, rebuilt.call, rebuilt.build, lambda identity: identity).read()


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: f"{len(stream)} bytes")
def test_values_are_those_of_python(stream):
    assert read(stream) == read(memoryview(stream)) == pickle.loads(stream)


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: f"{len(stream)} bytes")
def test_a_stream_that_is_cut_off_has_ended_early(stream):
    for end in range(0, len(stream), 7):
        data = PickledData(stream[:end], rebuilt.meaning, rebuilt.call, rebuilt.build, lambda identity: identity)
        with pytest.raises(MilepostError, match="ends too early"):
            data.read()
        assert data.ended_early


@given(st.sampled_from(STREAMS), CHANGES)
def test_a_damaged_stream_gives_a_value_or_an_error_of_milepost(stream, changes):
    data = bytearray(stream)
    for place, length, code in changes:
        place %= len(data)
        data[place : place + length] = b"" if code is None else bytes([code])
        data = data or bytearray(b".")
    with suppress(MilepostError):
        read(bytes(data))
