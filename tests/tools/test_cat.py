"""`milepost cat` writes what `numpy.load` reads."""

import io
import os
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from milepost import Checkpoint, CheckpointOptions, MaxShardSizePolicy, Variable
from milepost.tools.cli import main
from tests.tools.commands import damage, most_memory, run


def written(tmp_path, values, **options):
    return Checkpoint(v=Variable(values), text=Variable("a")).write(tmp_path / "ckpt", CheckpointOptions(**options))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int64", "uint16", "bool", "complex64"])
@pytest.mark.parametrize("shape", [(), (0,), (3, 5)])
def test_every_type_of_numpy(tmp_path, dtype, shape):
    values = (np.arange(15)[: int(np.prod(shape))].reshape(shape) % 2).astype(dtype)
    path = written(tmp_path, values)
    assert main(["cat", path, "v", "-o", str(tmp_path / "v.npy")]) == 0
    found = np.load(tmp_path / "v.npy")
    assert (found.dtype, found.shape) == (values.dtype, values.shape)
    np.testing.assert_array_equal(found, values)


def test_the_output(tmp_path):
    path = written(tmp_path, np.arange(3.0))
    done = run("cat", path, "v", text=False)
    np.testing.assert_array_equal(np.load(io.BytesIO(done.stdout)), np.arange(3.0))
    assert done.stderr == b""


def test_a_type_without_a_form_in_npy(tmp_path, capsys):
    values = np.linspace(0, 1, 9).astype(ml_dtypes.bfloat16)
    path = written(tmp_path, values)
    target = str(tmp_path / "v.npy")
    assert main(["cat", path, "v", "-o", target]) == 3
    assert "--as float32" in capsys.readouterr().err
    assert not os.path.exists(target)
    assert main(["cat", path, "v", "-o", target, "--as", "float32"]) == 0
    np.testing.assert_array_equal(np.load(target), values.astype(np.float32))


@pytest.mark.parametrize("dtype", ["object", "no-type", "str"])
def test_what_is_no_type_of_numbers_is_a_wrong_argument(tmp_path, capsys, dtype):
    path = written(tmp_path, np.arange(3.0))
    with pytest.raises(SystemExit) as ended:
        main(["cat", path, "v", "--as", dtype, "-o", str(tmp_path / "v.npy")])
    assert ended.value.code == 2
    assert repr(dtype) in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["text"], ["nothing"]])
def test_what_cannot_be_written(tmp_path, capsys, arguments):
    path = written(tmp_path, np.arange(3.0))
    assert main(["cat", path, *arguments, "-o", str(tmp_path / "v.npy")]) == 3
    assert "error: " in capsys.readouterr().err
    assert not os.path.exists(tmp_path / "v.npy")


@pytest.mark.parametrize(
    ("values", "dtype", "said"),
    [
        ([1.0, 2.0], "int8", ""),
        ([1.0, 2.5], "int8", "rounded: 1 element"),
        ([1.0, 0.1], "float32", "rounded: 1 element"),
        ([1.0, np.nan], "float32", ""),
        ([1.0, -np.inf], "float16", ""),
        ([0, 1, 2], "bool", ""),
        ([1 + 0j], "float64", ""),
        ([2**53 + 1], "float64", "rounded: 1 element"),
    ],
)
def test_numbers_that_are_rounded_are_counted(tmp_path, capsys, values, dtype, said):
    path = written(tmp_path, np.array(values))
    assert main(["cat", path, "v", "--as", dtype, "-o", str(tmp_path / "v.npy")]) == 0
    assert capsys.readouterr().err.strip() == said
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), np.array(values).real.astype(dtype))


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1.0, 300.0], "int8"),
        ([1.0, -0.5, -1.5], "uint8"),
        ([1.0, np.nan], "int64"),
        ([1.0, 1e39], "float32"),
        ([1.0, 2.0**63], "int64"),
        ([-1], "uint64"),
        ([300], "int8"),
        ([1j], "float64"),
    ],
)
def test_numbers_that_a_type_cannot_hold_are_an_error(tmp_path, capsys, values, dtype):
    path = written(tmp_path, np.array(values))
    assert main(["cat", path, "v", "--as", dtype, "-o", str(tmp_path / "v.npy")]) == 3
    assert f"the type {dtype} cannot hold a number" in capsys.readouterr().err
    assert not os.path.exists(tmp_path / "v.npy")


def test_a_damaged_tensor_leaves_the_present_file(tmp_path, capsys):
    path = written(tmp_path, np.arange(3.0))
    (tmp_path / "v.npy").write_text("old")
    damage(path, "v")
    before = sorted(os.listdir(tmp_path))
    assert main(["cat", path, "v", "-o", str(tmp_path / "v.npy"), "--overwrite"]) == 3
    assert (tmp_path / "v.npy").read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("target", ["none/v.npy", "."])
def test_a_file_that_cannot_be_written(tmp_path, capsys, target):
    path = written(tmp_path, np.arange(3.0))
    assert main(["cat", path, "v", "-o", str(tmp_path / target)]) == 3
    assert "cannot write this file" in capsys.readouterr().err


def test_pieces_are_joined(tmp_path):
    values = np.random.default_rng(0).standard_normal((100, 3))
    path = written(tmp_path, values, experimental_sharding_callback=MaxShardSizePolicy(500))
    assert main(["cat", path, "v", "-o", str(tmp_path / "v.npy")]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), values)


def test_memory_does_not_grow_with_a_tensor(tmp_path):
    path = written(tmp_path, np.ones(1 << 24))
    assert most_memory("cat", path, "v", "-o", tmp_path / "v.npy") < 60 << 20
    assert os.path.getsize(tmp_path / "v.npy") > 128e6


@pytest.mark.skipif(os.name == "nt", reason="this needs a shell")
def test_a_pipe_that_closes(tmp_path):
    path = written(tmp_path, np.ones(1 << 20))
    shell = f"set -o pipefail; {sys.executable} -m milepost cat {path} v | head -c 10"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (141, b"")
