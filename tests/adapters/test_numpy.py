"""NumPy arrays and scalars as values."""

import ml_dtypes
import numpy as np
import pytest

from milepost import Checkpoint, UntrackableError
from milepost.adapters import DType
from milepost.graph.adapter import adapter_of
from tests.objects import module

ALL = [dtype for dtype in DType.all() if not dtype.is_bytes]


@pytest.mark.parametrize("dtype", ALL, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3)], ids=str)
def test_every_dtype_and_shape_round_trips_in_place(tmp_path, dtype, shape):
    count = int(np.prod(shape))
    source = np.arange(count, dtype=np.uint8).view(np.uint8).reshape(shape)
    array = (source % 2).astype(dtype.numpy[0] if dtype.numpy.names else dtype.numpy).view(dtype.numpy).reshape(shape)
    target = np.zeros(shape, dtype.numpy)
    live = Checkpoint(a=target)
    live.read(Checkpoint(a=array).write(tmp_path / "ckpt")).assert_consumed()
    assert live.a is target
    assert target.tobytes() == array.tobytes()


@pytest.mark.parametrize(
    "scalar", [np.float32(1.5), np.int8(-3), np.bool_(True), np.complex64(1j), np.str_("ä"), np.bytes_(b"x")]
)
def test_scalars_keep_their_type(tmp_path, scalar):
    live = module(s=type(scalar)())
    Checkpoint(m=live).read(Checkpoint(m=module(s=scalar)).write(tmp_path / "ckpt")).assert_consumed()
    assert live.s == scalar
    assert type(live.s) is type(scalar)


def test_a_scalar_of_bfloat16_round_trips(tmp_path):
    live = module(s=ml_dtypes.bfloat16(0))
    Checkpoint(m=live).read(Checkpoint(m=module(s=ml_dtypes.bfloat16(1.5))).write(tmp_path / "ckpt")).assert_consumed()
    assert live.s == 1.5


def test_a_memory_mapped_array_is_restored_in_its_file(tmp_path):
    mapped = np.memmap(tmp_path / "array", np.float32, "w+", shape=(4,))
    Checkpoint(a=mapped).read(Checkpoint(a=np.arange(4, dtype=np.float32)).write(tmp_path / "ckpt")).assert_consumed()
    mapped.flush()
    assert np.fromfile(tmp_path / "array", np.float32).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(2, "V0"),
        np.zeros(2, [("a", "i4"), ("b", object)]),
        np.array([1, None], object),
        np.ma.masked_array([1.0], [True]),
    ],
    ids=["no bytes", "records of objects", "objects", "masked"],
)
def test_an_array_that_files_cannot_hold_is_refused_with_its_path(tmp_path, array):
    assert adapter_of(array) is None
    with pytest.raises(UntrackableError) as caught:
        Checkpoint(m=module(a=array)).write(tmp_path / "ckpt")
    assert caught.value.key == "m/a"


def test_views_of_one_array_are_restored_each_for_itself(tmp_path):
    base = np.arange(10.0)
    path = Checkpoint(a=base[:5], b=base[5:]).write(tmp_path / "ckpt")
    target = np.zeros(10)
    Checkpoint(a=target[:5], b=target[5:]).read(path).assert_consumed()
    assert target.tolist() == base.tolist()
