"""`CheckpointOptions(only=, ignore=)`: a save takes a part of the objects, and the checkpoint says what was left out."""

import os
import warnings

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, CheckpointManager, CheckpointOptions, UnmatchedError, UnsupportedError, Variable
from milepost.errors import UnrestoredWarning, UntrackableError

OPTIONS = [
    {"ignore": "model/0"},
    {"ignore": "optimizer"},
    {"ignore": ["*exp_avg", "n"]},
    {"ignore": "*lr"},
    {"only": "optimizer"},
    {"only": ["model/1", "n"]},
    {"only": ["model", "optimizer"], "ignore": "*bias"},
]


def plain(seed=1):
    rows = np.random.default_rng(seed).normal(size=(3, 4)).astype(np.float32)
    return Checkpoint(model=Checkpoint(w=Variable(rows), b=rows[0].copy()), head=Variable(rows[1]), sizes=[seed, 2])


def training(seed, stepped=True):
    torch = pytest.importorskip("torch")
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1 * seed)
    if stepped:
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
    return Checkpoint(model=model, optimizer=optimizer, n=seed)


def values(checkpoint):
    """All values of a checkpoint, by key."""
    state = checkpoint.state_dict()
    return {key: array for key, array in state.items() if key.endswith("VARIABLE_VALUE")}


def names(path):
    return {key.partition("/.ATT")[0] for key, _ in milepost.list_variables(path) if not key.startswith("_")}


def test_what_is_ignored_is_not_in_the_files(tmp_path):
    path = plain().save(tmp_path / "ckpt", CheckpointOptions(ignore=["model/b", "head"]))
    assert names(path) == {"model/w", "sizes/0", "sizes/1", "save_counter"}


def test_only_what_is_named_is_in_the_files(tmp_path):
    path = plain().save(tmp_path / "ckpt", CheckpointOptions(only="model"))
    assert names(path) == {"model/w", "model/b", "save_counter"}


def test_what_is_left_out_is_never_read(tmp_path):
    class Costly(milepost.PythonState):
        def serialize(self):
            raise AssertionError("it was read")

        def deserialize(self, string_value):
            raise AssertionError

    checkpoint = Checkpoint(v=Variable(1.0), iterator=Costly())
    assert names(checkpoint.write(tmp_path / "ckpt", CheckpointOptions(ignore="iterator"))) == {"v"}


def test_what_cannot_be_saved_may_be_left_out(tmp_path):
    torch = pytest.importorskip("torch")
    checkpoint = Checkpoint(v=Variable(1.0), model=torch.nn.Linear(2, 2, device="meta"))
    with pytest.raises(UnsupportedError, match="meta device"):
        checkpoint.write(tmp_path / "ckpt")
    assert names(checkpoint.write(tmp_path / "ckpt", CheckpointOptions(ignore="model"))) == {"v"}


@pytest.mark.parametrize("selection", OPTIONS, ids=str)
def test_a_save_takes_what_a_restore_takes(tmp_path, selection):
    """The rule of both is one: the part that a save writes is the part that a restore of the whole would change."""
    saved = training(1)
    whole, part = saved.write(tmp_path / "whole"), saved.write(tmp_path / "part", CheckpointOptions(**selection))
    one, other = training(2), training(2)
    one.read(whole, **selection).assert_consumed()
    other.read(part).expect_partial()
    first, second = values(one), values(other)
    assert first.keys() == second.keys()
    for key, array in first.items():
        np.testing.assert_array_equal(array, second[key], err_msg=key)


@pytest.mark.parametrize("selection", OPTIONS, ids=str)
def test_a_restore_of_a_part_fails_the_assertions_unless_it_leaves_the_same_out(tmp_path, selection):
    path = training(1).write(tmp_path / "ckpt", CheckpointOptions(**selection))
    status = training(2).read(path)
    for check in (status.assert_consumed, status.assert_existing_objects_matched):
        with pytest.raises(UnmatchedError, match="left out when it was saved, by "):
            check()
    report = status.report()
    assert report.left_out
    assert not report.missing
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = training(2).read(path, **selection)
        again.assert_consumed().assert_existing_objects_matched()
        with_options = training(2).read(path, CheckpointOptions(**selection))
        with_options.assert_consumed().assert_existing_objects_matched()
    for each in (again, with_options):
        assert len(each.report().ignored) == len(report.left_out)


def test_a_warning_names_what_was_left_out_if_nobody_asks_the_status(tmp_path):
    path = plain().write(tmp_path / "ckpt", CheckpointOptions(ignore="head"))
    with pytest.warns(UnrestoredWarning, match=r"head/.ATTRIBUTES/VARIABLE_VALUE .*by ignore='head'"):
        plain(2).read(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain(2).read(path).expect_partial()
        plain(2).read(path, CheckpointOptions(ignore="head"))


def test_state_of_an_optimizer_that_the_save_has_left_out_is_not_removed(tmp_path):
    """A restore removes state that did not exist at the save, and this did."""
    saved, live = training(1), training(2)
    path = saved.write(tmp_path / "ckpt", CheckpointOptions(ignore="*exp_avg"))
    live.read(path).expect_partial()
    assert all("exp_avg" in state for state in live.optimizer.state.values())


def test_state_of_a_variable_that_the_save_has_left_out_is_not_removed(tmp_path):
    saved, live = training(1, stepped=False), training(2)
    path = saved.write(tmp_path / "ckpt", CheckpointOptions(ignore="model/0"))
    live.read(path).expect_partial()
    assert set(live.optimizer.state) == set(live.model[0].parameters())


def test_a_list_that_a_save_cuts_does_not_shorten_the_live_one(tmp_path):
    path = plain(1).write(tmp_path / "ckpt", CheckpointOptions(ignore="sizes/1"))
    live = plain(5)
    live.read(path).expect_partial()
    assert list(live.sizes) == [1, 2]


def test_renamed_objects_are_known_to_be_left_out(tmp_path):
    path = plain().write(tmp_path / "ckpt", CheckpointOptions(ignore="model/b"))
    old = plain(2)
    live = Checkpoint(net=old.model, head=old.head, sizes=old.sizes)
    status = live.read(path, rename={"model": "net"})
    assert [entry.key for entry in status.report().left_out] == ["net/b/.ATTRIBUTES/VARIABLE_VALUE"]


@pytest.mark.parametrize("options", [{"only": "modle"}, {"ignore": ["head", "modle"]}])
def test_a_name_that_names_nothing_fails_the_save(tmp_path, options):
    with pytest.raises(UnsupportedError, match="did you mean 'model'") as caught:
        plain().save(tmp_path / "ckpt", CheckpointOptions(**options))
    assert f"{next(iter(options))} names 'modle', and no live object has this name" in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("options", [{"only": []}, {"only": ""}, {"only": 3}, {"ignore": 3}, {"ignore": [""]}])
def test_other_names_are_refused(options):
    with pytest.raises(UnsupportedError) as caught:
        CheckpointOptions(**options)
    assert caught.value.key == next(iter(options))


def test_deferred_values_are_left_out_too(tmp_path):
    """A save writes them again, unless it leaves them out."""
    path = plain().write(tmp_path / "whole")
    live = Checkpoint()
    live.read(path)
    part = live.write(tmp_path / "part", CheckpointOptions(ignore="model/b"))
    assert names(part) == names(path) - {"model/b"}
    status = plain(2).read(part)
    assert [entry.key for entry in status.report().left_out] == ["model/b/.ATTRIBUTES/VARIABLE_VALUE"]


def test_asynchronous_saves_divided_into_files(tmp_path):
    options = CheckpointOptions(
        ignore="head", enable_async=True, experimental_sharding_callback=milepost.MaxShardSizePolicy(20)
    )
    checkpoint = plain()
    path = checkpoint.save(tmp_path / "ckpt", options)
    checkpoint.sync()
    assert "head" not in names(path)
    assert plain(2).restore(path, options).assert_consumed().report().ignored[-1].key.startswith("head")


def test_a_manager_passes_its_options(tmp_path):
    options = CheckpointOptions(ignore="model")
    manager = CheckpointManager(plain(), tmp_path, max_to_keep=2, options=options)
    path = manager.save(metrics={"loss": 0.5}, metadata={"run": "a"})
    assert names(path) == {"head", "sizes/0", "sizes/1", "save_counter"}
    assert (manager.metrics(1), manager.metadata(1)) == ({"loss": 0.5}, {"run": "a"})
    reader = milepost.load_checkpoint(path)
    assert (reader.metrics(), reader.metadata()) == ({"loss": 0.5}, {"run": "a"})
    other = CheckpointManager(plain(2), tmp_path, max_to_keep=2, options=options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert other.restore_or_initialize() == path


def test_incremental_saves_of_a_part(tmp_path):
    checkpoint = Checkpoint(a=Variable(np.arange(1 << 16)), b=Variable(np.arange(1 << 16)))
    options = CheckpointOptions(ignore="b", incremental=True)
    first, second = checkpoint.save(tmp_path / "c", options), checkpoint.save(tmp_path / "c", options)
    assert names(second) == {"a", "save_counter"}
    inodes = [{each.stat().st_ino for each in tmp_path.glob(f"c-{number}.data*")} for number in (1, 2)]
    assert inodes[0] & inodes[1]
    assert milepost.load(first)["a"].tolist() == milepost.load(second)["a"].tolist()


def test_trees_of_jax(tmp_path):
    jax = pytest.importorskip("jax")
    import milepost.jax

    tree = {"params": {"w": jax.numpy.ones(3), "lora": jax.numpy.ones(2)}, "step": 3}
    path = milepost.jax.save(tmp_path / "ckpt", tree, options=CheckpointOptions(ignore="params/w"))
    assert names(path) >= {"params/lora", "step"}
    assert "params/w" not in names(path)
    target = {"params": {"w": jax.numpy.zeros(3), "lora": jax.numpy.zeros(2)}, "step": 0}
    restored, status = milepost.jax.restore(path, target)
    assert (restored["params"]["w"].tolist(), restored["params"]["lora"].tolist()) == ([0, 0, 0], [1, 1])
    assert [entry.key.partition("/.")[0] for entry in status.report().left_out] == ["params/w"]


def test_a_checkpoint_of_a_part_is_one_of_tensorflow(tmp_path):
    tf = pytest.importorskip("tensorflow")
    saved = Checkpoint(a=tf.Variable([1.0]), b=tf.Variable([2.0]))
    path = saved.write(tmp_path / "ckpt", CheckpointOptions(ignore="b"))
    a, b = tf.Variable([0.0]), tf.Variable([0.0])
    tf.train.Checkpoint(a=a, b=b).read(path).expect_partial()
    assert (a.numpy().tolist(), b.numpy().tolist()) == ([1.0], [0.0])


def test_the_record_is_refused_if_it_is_damaged(tmp_path):
    from milepost.engine.left_out import LeftOut
    from milepost.errors import CorruptCheckpointError

    for data in ({"values": 3}, [], {"base": 3}, {"unknown": 1}, {"values": {"a": 1}}):
        with pytest.raises(CorruptCheckpointError):
            LeftOut.parsed(data)


def test_an_object_that_cannot_be_saved_still_fails_where_it_is_not_left_out(tmp_path):
    torch = pytest.importorskip("torch")

    class Holder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.members = [torch.nn.Linear(1, 1)]

    checkpoint = Checkpoint(model=Holder(), v=Variable(1.0))
    with pytest.raises(UntrackableError):
        checkpoint.write(tmp_path / "a", CheckpointOptions(strict=True, ignore="v"))
    path = checkpoint.write(tmp_path / "b", CheckpointOptions(strict=True, ignore="model"))
    assert os.path.exists(f"{path}.index")
