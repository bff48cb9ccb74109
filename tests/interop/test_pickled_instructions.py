"""Frequent instructions of pickled data are carried out without a call each. They do what their handlers do, errors included."""

import pickle
import re
from collections import OrderedDict
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from milepost import MilepostError
from milepost.foreign import rebuilt
from milepost.foreign.pickled import PickledData, _Machine

VALUES = [
    {"a": [1, 2.5, "x", None, True, (1, 2, 3), b"y", {"z": {1, 2}}], "b" * 300: OrderedDict(k=1), "same": ["q", "q"]},
    [["é" * 100, (1,), (1, 2), [()], -5, 1 << 40, {}]] * 3,
    [str(number) for number in range(300)] * 2,
]
STREAMS = [pickle.dumps(value, protocol) for value in VALUES for protocol in range(6)]
CODES = st.sampled_from(sorted(b"\x94\x8chjqr(t\x85\x86.XK)\x8902")) | st.integers(0, 255)
CHANGES = st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 2), st.none() | CODES), max_size=3)


def read(data):
    """What is read from a stream, or the error, without the position that it names."""
    stream = PickledData(data, rebuilt.meaning, rebuilt.call, rebuilt.build, lambda identity: identity)
    try:
        found = repr(stream.read())
    except MilepostError as error:
        found = re.sub(r"at byte \d+", "", f"{type(error).__name__}: {error.problem}; {error.found}")
    return re.sub(r"0x[0-9a-f]{6,}", "", found)  # where an object is in memory


@given(st.sampled_from(STREAMS), CHANGES)
def test_frequent_instructions_do_what_their_handlers_do(stream, changes):
    data = bytearray(stream)
    for place, length, code in changes:
        place %= len(data)
        data[place : place + length] = b"" if code is None else bytes([code])
        data = data or bytearray(b".")
    together = read(bytes(data))
    with patch.object(_Machine, "_run_frequent", lambda machine: None):
        assert read(bytes(data)) == together
