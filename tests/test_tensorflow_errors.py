"""Errors where TensorFlow is imported, and where it is not."""

import copy
import errno
import pickle
import subprocess
import sys

import pytest

import milepost
from milepost import Checkpoint, CheckpointOptions, Variable
from milepost.errors import StorageError

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

COUNTERPARTS = [
    (milepost.CheckpointNotFoundError, tf.errors.NotFoundError, FileNotFoundError),
    (milepost.KeyNotFoundError, tf.errors.NotFoundError, KeyError),
    (milepost.CorruptCheckpointError, tf.errors.DataLossError, ValueError),
    (milepost.CheckpointExistsError, tf.errors.AlreadyExistsError, FileExistsError),
    (milepost.UnsupportedError, tf.errors.UnimplementedError, NotImplementedError),
]


@pytest.mark.parametrize(("kind", "theirs", "builtin"), COUNTERPARTS)
def test_an_error_is_caught_as_ours_as_theirs_and_as_the_builtin(kind, theirs, builtin):
    error = kind("a problem", key="k", file="f", remedy="r")
    assert isinstance(error, (kind,))
    assert isinstance(error, (theirs,))
    assert isinstance(error, (builtin,))
    assert error.error_code == theirs(None, None, "").error_code
    assert error.message == str(error)
    assert (error.op, error.node_def, error.experimental_payloads) == (None, None, {})
    assert (type(error).__module__, type(error).__qualname__) == ("milepost.errors", kind.__name__)


@pytest.mark.parametrize("kind", [milepost.MismatchError, milepost.UnmatchedError, milepost.StateFileError])
def test_an_error_without_a_counterpart_is_what_it_was(kind):
    assert type(kind("a problem")) is kind


@pytest.mark.parametrize(
    ("code", "theirs"),
    [
        (errno.ENOENT, tf.errors.NotFoundError),
        (errno.EACCES, tf.errors.PermissionDeniedError),
        (errno.ENOSPC, tf.errors.ResourceExhaustedError),
        (errno.EIO, tf.errors.UnknownError),
        (None, tf.errors.UnknownError),
    ],
)
def test_a_storage_error_is_what_its_number_says(code, theirs):
    error = StorageError("cannot write", errno=code, file="f")
    assert isinstance(error, (theirs,))
    assert isinstance(error, OSError)
    assert error.errno == code


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
@pytest.mark.parametrize(
    "error",
    [
        milepost.CheckpointNotFoundError("a problem", file="f", remedy="r"),
        milepost.CorruptCheckpointError("a problem", key="k"),
        milepost.MismatchError("a problem", expected=1, found=2),
        StorageError("a problem", errno=errno.ENOSPC, file="f"),
        StorageError("a problem"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_can_be_copied_and_pickled(error, duplicate):
    twin = duplicate(error)
    assert type(twin) is type(error)
    assert str(twin) == str(error)
    assert twin.args == error.args
    assert vars(twin) == vars(error)
    assert getattr(twin, "errno", None) == getattr(error, "errno", None)


def test_programs_that_catch_tensorflows_errors_go_on_working(tmp_path):
    checkpoint = Checkpoint(v=Variable(1.0))
    path = checkpoint.write(tmp_path / "ckpt")
    with pytest.raises(tf.errors.NotFoundError):
        checkpoint.restore(tmp_path / "none")
    with pytest.raises(tf.errors.NotFoundError):
        milepost.load_checkpoint(path).get_tensor("none")
    with pytest.raises(tf.errors.OpError):
        checkpoint.write("/proc/none/ckpt", CheckpointOptions())
    with open(path + ".index", "r+b") as index:
        index.truncate(10)
    with pytest.raises(tf.errors.DataLossError):
        checkpoint.restore(path)


def test_an_error_that_crosses_to_a_process_without_tensorflow_is_ours_there():
    data = pickle.dumps(milepost.CheckpointNotFoundError("a problem", file="f"))
    program = (
        "import pickle, sys\n"
        f"error = pickle.loads({data!r})\n"
        "assert 'tensorflow' not in sys.modules\n"
        "print(type(error).__mro__[0].__name__, isinstance(error, FileNotFoundError), error.file)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["CheckpointNotFoundError", "True", "f"]
