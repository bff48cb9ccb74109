"""States with NaN and infinity: what is marked, and that the last finite checkpoint stays, each with one checkpoint to keep."""

import logging
import warnings

import ml_dtypes
import numpy as np
import pytest

from milepost import (
    Checkpoint,
    CheckpointManager,
    CheckpointNotFoundError,
    CheckpointOptions,
    KeepLastFinite,
    MilepostWarning,
    UnsupportedError,
    Variable,
    load_checkpoint,
)
from milepost.retention import Best
from milepost.testing import FaultyStorage
from tests.manager.runs import indexes, new, value

NAN, INF = float("nan"), float("inf")
EITHER = pytest.mark.parametrize("enable_async", [False, True], ids=["waits", "background"])
pytestmark = pytest.mark.filterwarnings("ignore:.*not finite")


def save(manager, step, number=None):
    """Saves a state all of whose elements are a number, which is that of the step by default."""
    manager.checkpoint.v.assign(np.full(100, float(step if number is None else number)))
    path = manager.save(step)
    manager.sync()
    return path


def of(directory, nonfinite="keep_last_finite", **arguments):
    return CheckpointManager(arguments.pop("checkpoint", None) or new(), directory, 1, nonfinite=nonfinite, **arguments)


def restored(manager):
    """The value that a new run goes on with."""
    assert manager.restore_or_initialize() is not None
    return value(manager.checkpoint)


class TestLastFinite:
    @EITHER
    @pytest.mark.parametrize("poison", [NAN, INF, -INF])
    def test_it_stays_until_a_newer_one_is_committed(self, tmp_path, poison, enable_async):
        """However many checkpoints that are not finite come after it. Of these, the newest stays."""
        run = of(tmp_path, options=CheckpointOptions(enable_async=enable_async))
        save(run, 1)
        for step in (2, 3, 4):
            save(run, step, poison)
            assert (indexes(tmp_path), run.last_finite_step) == (["ckpt-1", f"ckpt-{step}"], 1)
        assert run.nonfinite(4) == ("v",)
        save(run, 5)
        assert (indexes(tmp_path), run.last_finite_step, run.nonfinite(5)) == (["ckpt-5"], 5, ())

    def test_a_manager_that_does_not_look_keeps_the_newest_alone(self, tmp_path):
        """As before. What it saves counts as finite."""
        run = CheckpointManager(new(), tmp_path, 1)
        save(run, 1)
        save(run, 2, NAN)
        assert (indexes(tmp_path), run.nonfinite(2), run.last_finite_step) == (["ckpt-2"], (), 2)

    def test_the_next_run_keeps_it_too(self, tmp_path):
        save(of(tmp_path), 1)
        first = of(tmp_path)
        first.restore(1)
        save(first, 2, NAN)
        second = of(tmp_path)
        second.restore(2)
        save(second, 3, NAN)
        assert indexes(tmp_path) == ["ckpt-1", "ckpt-3"]

    def test_it_stays_beside_what_a_policy_keeps(self, tmp_path):
        run = of(tmp_path, keep=Best(1, by="loss", mode="min"))
        for step, number, loss in [(1, 1, 0.1), (2, 2, 0.5), (3, NAN, 0.9), (4, NAN, 0.9)]:
            run.checkpoint.v.assign(np.full(100, float(number)))
            run.save(step, metrics={"loss": loss})
        assert run.steps == [1, 2, 4]
        assert "ckpt-2: keep: the last finite one" in str(run.dry_run())

    def test_it_is_told_apart_after_a_crash_at_any_moment(self):
        """The mark is in the commit of the checkpoint: no crash leaves one without the other."""
        storage = FaultyStorage()
        run = of("run", options=CheckpointOptions(storage=storage))
        save(run, 1)
        storage.settle()
        save(run, 2, NAN)
        for point in storage.crash_points():
            for after in storage.crash_states(point, limit=20):
                found = of("run", options=CheckpointOptions(storage=after))
                assert found.last_finite_step == 1, after
                assert not [step for step in found.steps if step == 2 and not found.nonfinite(2)], after

    def test_an_explicit_deletion_deletes_it(self, tmp_path):
        run = of(tmp_path)
        save(run, 1)
        save(run, 2, NAN)
        run.delete(1)
        assert (indexes(tmp_path), run.last_finite_step) == (["ckpt-2"], None)


class TestRestore:
    @pytest.fixture
    def poisoned(self, tmp_path):
        run = of(tmp_path)
        save(run, 1)
        save(run, 2, NAN)
        return tmp_path

    def test_the_newest_by_default_with_a_warning(self, poisoned):
        run = of(poisoned)
        with pytest.warns(
            MilepostWarning, match=r"ckpt-2 was restored, and is not finite: .* in v; restore\(1\) restores"
        ):
            assert np.isnan(restored(run))

    def test_the_last_finite_one_on_request(self, poisoned):
        run = of(poisoned, KeepLastFinite(restore=True))
        with pytest.warns(MilepostWarning, match=r"ckpt-2 was passed over, .* in v; restored instead: .*ckpt-1"):
            assert restored(run) == 1
        assert run.restore().assert_consumed()
        assert value(run.checkpoint) == 1

    def test_the_run_goes_on_from_it(self, poisoned):
        """And takes the numbers of the others again."""
        run = of(poisoned, KeepLastFinite(restore=True))
        restored(run)
        save(run, 2)
        assert (indexes(poisoned), run.nonfinite(2)) == (["ckpt-2"], ())

    def test_one_by_its_number(self, poisoned):
        run = of(poisoned)
        run.restore(run.last_finite_step)
        assert value(run.checkpoint) == 1

    def test_no_run_starts_over_in_silence_because_none_is_finite(self, tmp_path):
        save(of(tmp_path), 1, NAN)
        with pytest.raises(CheckpointNotFoundError, match="no checkpoint is finite"):
            of(tmp_path, KeepLastFinite(restore=True)).restore_or_initialize()

    def test_the_first_run_begins_without_one(self, tmp_path):
        assert of(tmp_path, KeepLastFinite(restore=True)).restore_or_initialize() is None


class TestWhatCounts:
    @pytest.mark.parametrize(
        "dtype", ["float16", "float64", "complex64", ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn]
    )
    @pytest.mark.parametrize("size", [1, 100_000])
    def test_one_element_of_a_large_state(self, tmp_path, dtype, size):
        """In any floating-point or complex type."""
        poisoned = np.ones(size, dtype)
        poisoned[-1] = NAN
        checkpoint = Checkpoint(values=[np.ones(1000), np.ones(5, np.float32), poisoned, np.arange(5)])
        run = of(tmp_path, checkpoint=checkpoint)
        run.save(1)
        assert run.nonfinite(1) == ("values/2",)

    def test_infinity_that_was_there_from_the_beginning_does_not(self, tmp_path):
        """Masks of attention, and best values that begin as infinity; also in the runs that go on."""
        mask = np.triu(np.full((50, 50), -INF, np.float32))
        run = of(tmp_path, checkpoint=Checkpoint(v=Variable(np.zeros(100)), mask=mask, best=np.array(INF)))
        save(run, 1)
        assert run.nonfinite(1) == ()
        second = of(tmp_path, checkpoint=Checkpoint(v=Variable(np.zeros(100)), mask=mask.copy(), best=np.array(0.0)))
        second.restore(1)
        save(second, 2)
        assert second.nonfinite(2) == ()
        save(second, 3, INF)
        assert second.nonfinite(3) == ("v",)

    def test_nan_counts_in_the_first_checkpoint_too(self, tmp_path):
        run = of(tmp_path)
        save(run, 1, NAN)
        assert run.nonfinite(1) == ("v",)

    def test_numbers_of_python_do_not(self, tmp_path):
        run = of(tmp_path, checkpoint=Checkpoint(v=Variable(np.zeros(100)), best=INF, history=[NAN, 1.0]))
        save(run, 1)
        run.checkpoint.best = NAN
        save(run, 2)
        assert run.nonfinite(2) == ()

    def test_names_that_are_ignored_do_not(self, tmp_path):
        checkpoint = Checkpoint(v=Variable(np.zeros(100)), metrics={"loss": np.array(NAN), "other": np.array(NAN)})
        run = of(tmp_path, KeepLastFinite(ignore="metrics/loss"), checkpoint=checkpoint)
        save(run, 1)
        assert run.nonfinite(1) == ("metrics/other",)

    @pytest.mark.parametrize("options", [{"incremental": True}, {"cast": "bfloat16"}], ids=str)
    def test_values_that_are_not_written_as_they_are(self, tmp_path, options):
        """Unchanged ones that are linked, and converted ones."""
        checkpoint = Checkpoint(v=Variable(np.zeros(100)), large=np.full(1 << 18, 1.0))
        run = of(tmp_path, checkpoint=checkpoint, options=CheckpointOptions(**options))
        save(run, 1)
        checkpoint.large[-1] = NAN
        save(run, 2)
        save(run, 3)
        assert run.nonfinite(3) == ("large",)
        assert run.steps == [1, 3]

    def test_optimizers_and_buffers_of_pytorch(self, tmp_path):
        torch = pytest.importorskip("torch")
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
        model.register_buffer("mask", torch.full((3, 3), -INF))
        optimizer = torch.optim.Adam(model.parameters())
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        model(torch.ones(4, 3)).sum().backward()
        optimizer.step()
        run = of(tmp_path, checkpoint=Checkpoint(model=model, optimizer=optimizer, plateau=plateau))
        run.save(1)
        assert run.nonfinite(1) == ()
        model[1].running_var[0] = NAN
        run.save(2)
        assert run.nonfinite(2) == ("model/1/running_var",)
        model[1].running_var[0] = 1.0
        optimizer.state[model[0].weight]["exp_avg_sq"][0, 0] = INF
        run.save(3)
        (name,) = run.nonfinite(3)
        assert "exp_avg_sq" in name

    def test_slots_and_layers_of_keras(self, tmp_path):
        keras = pytest.importorskip("keras")
        model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(2)])
        model.compile(optimizer="adam", loss="mse")
        model.fit(np.ones((4, 2)), np.ones((4, 2)), verbose=0)
        run = of(tmp_path, checkpoint=Checkpoint(model=model))
        run.save(1)
        assert run.nonfinite(1) == ()
        model.layers[0].bias.assign([NAN, 0.0])
        run.save(2)
        assert any("bias" in name for name in run.nonfinite(2))

    def test_trees_of_jax(self, tmp_path):
        jnp = pytest.importorskip("jax.numpy")
        import milepost.jax

        run = milepost.jax.TreeManager(tmp_path, 1, nonfinite=KeepLastFinite(restore=True))
        tree = {"w": jnp.ones(3), "half": jnp.ones(3, jnp.bfloat16), "mask": jnp.full(3, -INF)}
        run.save(tree, 1)
        run.save({**tree, "half": tree["half"] * NAN}, 2)
        assert run.nonfinite(2) == ("half",)
        restored_tree, _ = milepost.jax.TreeManager(tmp_path, 1, nonfinite=KeepLastFinite(restore=True)).restore_latest(
            tree
        )
        assert restored_tree["half"].tolist() == [1, 1, 1]


class TestTelling:
    @EITHER
    def test_a_warning_and_a_line_of_the_log_name_path_and_value(self, tmp_path, caplog, enable_async):
        run = of(tmp_path, options=CheckpointOptions(enable_async=enable_async))
        save(run, 1)
        with warnings.catch_warnings(record=True) as caught, caplog.at_level(logging.WARNING, "milepost"):
            warnings.simplefilter("always")
            save(run, 2, NAN)
        (warning,) = caught
        assert f"{tmp_path}/ckpt-2 is saved, and marked as not finite: NaN or infinity is in v" in str(warning.message)
        assert f"{tmp_path}/ckpt-1, which stays" in str(warning.message)
        assert [each.levelname for each in caplog.records] == ["WARNING"]

    def test_metrics_and_metadata_stay_what_they_were(self, tmp_path):
        run = of(tmp_path)
        run.checkpoint.v.assign(np.full(100, NAN))
        path = run.save(1, metrics={"loss": NAN}, metadata={"run": "a"})
        reader = load_checkpoint(path)
        assert np.isnan(reader.metrics()["loss"])
        assert (reader.metadata(), run.metadata(1)) == ({"run": "a"}, {"run": "a"})

    def test_few_of_many_names_are_saved(self, tmp_path):
        run = of(tmp_path, checkpoint=Checkpoint(values=[np.array(NAN) for _ in range(1000)]))
        run.save(1)
        assert len(run.nonfinite(1)) == 20


@pytest.mark.parametrize("wrong", [True, "keep", 3, KeepLastFinite])
def test_what_is_no_policy_is_refused(tmp_path, wrong):
    with pytest.raises(UnsupportedError, match="nonfinite"):
        of(tmp_path, wrong)


@pytest.mark.parametrize("arguments", [{"restore": 1}, {"ignore": 3}, {"ignore": [""]}])
def test_a_policy_checks_its_arguments(arguments):
    with pytest.raises(UnsupportedError, match=next(iter(arguments))):
        KeepLastFinite(**arguments)
