"""Descriptions of NumPy types that files may hold."""

import io
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost import UnsupportedError
from milepost.tensor import DType
from milepost.tensor.numpy_types import numpy_type

TYPES = ["f4", ">i8", "?", "S5", "<U3", "V4", "M8[ns]", "m8[25s]", "c16", "float32", "datetime64[D]", "longdouble"]


@pytest.mark.parametrize("name", TYPES)
def test_a_description_of_numpy_is_a_type(name):
    dtype = np.dtype(name)
    assert numpy_type(name) == dtype
    assert numpy_type(np.lib.format.dtype_to_descr(dtype)) == dtype


def test_records_are_types():
    dtype = np.dtype([("a", "<f4", (2, 3)), ("b", [("c", "|S3"), ("d", "<M8[us]")])])
    assert numpy_type(np.lib.format.dtype_to_descr(dtype)) == dtype


WRONG = [
    "m8[s/0]",
    "timedelta64[s/0]",
    "f4,(",
    ",",
    "(1,",
    "9999999999999f4",
    "V9999999999",
    "U1073741824",
    "",
    "nothing",
    (),
    ((),),
    [],
    [("a", ())],
    [("a", "<m8[s/0]")],
    (("<f4",), 1),
    [("a", "<f4", (-1,))],
    7,
    None,
]


@pytest.mark.parametrize("description", WRONG, ids=repr)
def test_anything_else_is_refused(description):
    with pytest.raises(ValueError, match="not the description"):
        numpy_type(description)


@given(st.text(st.sampled_from("<>|fimMSUV?0123456789[]()/,s ndatelt"), max_size=16))
def test_no_text_raises_another_error(text):
    try:
        found = numpy_type(text)
    except ValueError:
        return
    assert isinstance(found, np.dtype)


def test_an_element_type_of_a_file_does_not_end_the_process(tmp_path):
    header = b"{'descr': '<m8[s/0]', 'fortran_order': False, 'shape': (1,), }".ljust(117) + b"\n"
    stream = io.BytesIO()
    np.savez(stream, a=np.zeros(1, "m8[s]"))
    data = stream.getvalue()
    at = data.index(b"{'descr'")
    (tmp_path / "a.npz").write_bytes(data[:at] + header + data[at + len(header) :])
    program = (
        "import milepost, sys\ntry: milepost.list_variables(sys.argv[1])\nexcept milepost.MilepostError: print('ours')"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path / "a.npz"], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "ours")
    with pytest.raises(UnsupportedError):
        DType.of("m8[s/0]")
