"""What options, paths, names and keys are refused, with what was expected and found."""

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, CheckpointOptions, MaxShardSizePolicy, Variable
from milepost.errors import UnmatchedError, UnsupportedError, UntrackableError
from milepost.storage import LocalStorage


class Half:
    def open(self, path): ...


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("enable_async", "yes"),
        ("strict", 1.5),
        ("data_alignment", "x"),
        ("data_alignment", 0),
        ("data_alignment", -1),
        ("data_alignment", 3),
        ("storage", "s3"),
        ("storage", LocalStorage),
        ("allow_unsaved", "net"),
        ("allow_unsaved", [3]),
    ],
)
def test_a_wrong_option_is_refused_when_it_is_given(name, value):
    with pytest.raises(UnsupportedError) as caught:
        CheckpointOptions(**{name: value})
    assert caught.value.key == name
    assert caught.value.expected
    assert caught.value.found
    assert caught.value.remedy


def test_an_option_that_was_set_later_is_checked_by_the_save(tmp_path):
    options = CheckpointOptions()
    options.allow_unsaved = "net"
    with pytest.raises(UnsupportedError, match=r"pass \['net'\]"):
        Checkpoint(v=Variable(1.0)).write(tmp_path / "ckpt", options)


def test_a_storage_that_lacks_methods_is_told_which():
    with pytest.raises(UnsupportedError, match="add create, rename"):
        CheckpointOptions(storage=Half())


@pytest.mark.parametrize("given", [{"data_alignment": np.int64(8)}, {"enable_async": np.True_}, {"strict": None}])
def test_what_means_the_same_is_accepted(given):
    CheckpointOptions(**given)


def test_the_size_of_a_shard_is_a_number():
    with pytest.raises(UnsupportedError, match="1GB"):
        MaxShardSizePolicy("1GB")


@pytest.mark.parametrize("path", ["", "w/"])
@pytest.mark.parametrize("method", ["save", "write"])
def test_a_prefix_without_a_file_name_is_refused(tmp_path, monkeypatch, method, path):
    monkeypatch.chdir(tmp_path)
    checkpoint = Checkpoint(v=Variable(1.0))
    with pytest.raises(UnsupportedError, match=f"pass '{path}ckpt'"):
        getattr(checkpoint, method)(path)
    assert list(tmp_path.iterdir()) == []
    assert int(checkpoint.save_counter) == 0


def test_a_checkpoint_keeps_its_own_state(tmp_path):
    with pytest.raises(UntrackableError, match="reserved"):
        Checkpoint(_checkpoint_state=Variable(1.0))
    checkpoint = Checkpoint(v=Variable(1.0))
    with pytest.raises(UntrackableError, match="reserved"):
        checkpoint._checkpoint_state = Variable(1.0)
    checkpoint.write(tmp_path / "ckpt")


@pytest.mark.parametrize("key", [3, None])
def test_a_key_is_text(tmp_path, key):
    path = Checkpoint(v=Variable(1.0)).write(tmp_path / "ckpt")
    for read in (milepost.load_checkpoint(path).get_tensor, lambda key: milepost.load_variable(path, key)):
        with pytest.raises(UnsupportedError, match=rf"(?s)a key must be text.*{key!r} of type {type(key).__name__}"):
            read(key)


def test_a_save_counter_alone_is_no_match(tmp_path):
    path = Checkpoint(a=Variable(1.0)).save(tmp_path / "ckpt")
    status = Checkpoint(b=Variable(0.0)).restore(path).expect_partial()
    with pytest.raises(UnmatchedError, match="no value was restored"):
        status.assert_nontrivial_match()
    Checkpoint(a=Variable(0.0)).restore(path).assert_nontrivial_match()
