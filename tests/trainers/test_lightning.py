"""`milepost.lightning.CheckpointCallback`: a run that was interrupted anywhere computes what an undisturbed one does."""

from __future__ import annotations

import functools
import os
import signal

import pytest

pytest.importorskip("lightning.pytorch")

import lightning.pytorch as pl
import torch

import milepost
from milepost.retention import Best
from tests.manager.disks import Disk
from tests.trainers.lightning_runs import At, Model, fit, kill
from tests.trainers.small import BATCHES, same


@functools.cache
def undisturbed(**settings):
    model, trainer, _ = fit(None, **settings)
    return model, trainer.global_step


def stateful():
    return pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader


SETTINGS = {
    "plain": {},
    "accumulating": {"accumulate_grad_batches": 4},
    "workers": {"workers": 1},
    "validating within epochs": {"val_check_interval": 2},
}


class TestResume:
    @pytest.mark.parametrize(
        ("name", "batch"),
        [
            *(("plain", batch) for batch in (1, 5, 6, 13)),
            *(("accumulating", batch) for batch in (2, 6)),
            ("workers", 3),
            *(("validating within epochs", batch) for batch in (2, 3)),
        ],
    )
    def test_a_killed_run_ends_as_an_undisturbed_one(self, tmp_path, name, batch):
        """Weights, the batches, and what is logged, are the same to the bit."""
        settings = SETTINGS[name]
        whole, steps = undisturbed(**settings)
        first, _, _ = fit(tmp_path, At(batch - 1, kill), **settings)
        second, trainer, _ = fit(tmp_path, **settings)
        assert same(second, whole)
        assert first.seen + second.seen == whole.seen
        assert first.logged + second.logged == whole.logged
        assert trainer.global_step == steps

    def test_a_loader_of_torchdata(self, tmp_path):
        whole, _, _ = fit(None, kind=stateful())
        fit(tmp_path, At(3, kill), kind=stateful())
        assert same(fit(tmp_path, kind=stateful())[0], whole)

    def test_saving_changes_nothing(self, tmp_path):
        assert same(fit(tmp_path)[0], undisturbed()[0])

    def test_lightnings_own_checkpoints_are_not_exact_within_an_epoch(self, tmp_path):
        """What the page says of them."""
        own = pl.callbacks.ModelCheckpoint(tmp_path, every_n_train_steps=1, save_top_k=-1)
        fit(None, At(3, kill), own)
        newest = max(tmp_path.glob("*.ckpt"), key=os.path.getmtime)
        model = Model()
        trainer = pl.Trainer(max_epochs=3, logger=False, enable_progress_bar=False, enable_model_summary=False)
        from tests.trainers.small import Rows, loader

        trainer.fit(model, loader(), torch.utils.data.DataLoader(Rows(), batch_size=8), ckpt_path=newest)
        assert not same(model, undisturbed()[0])

    def test_a_run_that_has_ended_trains_no_more(self, tmp_path):
        fit(tmp_path)
        model, _, _ = fit(tmp_path)
        assert model.seen == []
        assert same(model, undisturbed()[0])

    def test_early_stopping_stays_in_force(self, tmp_path):
        stop = {"monitor": "val_loss", "patience": 0, "mode": "max"}
        whole, _, _ = fit(None, pl.callbacks.EarlyStopping(**stop))
        fit(tmp_path, pl.callbacks.EarlyStopping(**stop), At(3, kill))
        model, _, _ = fit(tmp_path, pl.callbacks.EarlyStopping(**stop))
        again, _, _ = fit(tmp_path, pl.callbacks.EarlyStopping(**stop))
        assert same(model, whole)
        assert again.seen == []

    def test_a_damaged_checkpoint_is_skipped(self, tmp_path):
        fit(tmp_path, At(4, kill))
        data = tmp_path / "ckpt-4.data-00000-of-00001"
        data.write_bytes(data.read_bytes()[:-7])
        with pytest.warns(milepost.SkippedCheckpointWarning):
            model, _, _ = fit(tmp_path)
        assert same(model, undisturbed()[0])


class TestSigterm:
    @pytest.mark.parametrize("batch", [2, BATCHES - 1])
    def test_it_saves_and_ends(self, tmp_path, batch):
        options = {"on_sigterm": True, "every_steps": None}
        terminate = At(batch, lambda: os.kill(os.getpid(), signal.SIGTERM))
        model, _, callback = fit(tmp_path, terminate, options=options)
        assert callback.was_terminated
        assert len(model.seen) == batch + 1
        assert callback.manager.latest_step == batch + 1
        again, _, callback = fit(tmp_path, options=options)
        assert not callback.was_terminated
        assert same(again, undisturbed()[0])


class TestRetention:
    def test_the_best_are_kept(self, tmp_path):
        options = {"keep": Best(1, by="val_loss", mode="min"), "max_to_keep": 1}
        model, _trainer, callback = fit(tmp_path, options=options)
        losses = [each["val_loss"] for each in model.logged]
        best = BATCHES * (1 + losses.index(min(losses)))
        assert callback.manager.best_step() == best
        assert callback.best_model_path.endswith(f"ckpt-{best}")
        assert set(callback.manager.steps) == {best, 3 * BATCHES}
        loaded = Model.load_from_checkpoint(callback.best_model_path)
        assert same(loaded, model) == (best == 3 * BATCHES)


class TestRefusals:
    def test_intervals_are_positive(self, tmp_path):
        with pytest.raises(ValueError, match="every_epochs"):
            milepost.lightning.CheckpointCallback(tmp_path, every_epochs=0)
        with pytest.raises(ValueError, match="every_steps"):
            milepost.lightning.CheckpointCallback(tmp_path, every_steps=0)

    @pytest.mark.parametrize("interval", ["every_epochs", "every_steps", "every_seconds"])
    def test_an_interval_of_nothing_has_a_remedy(self, tmp_path, interval):
        with pytest.raises(milepost.ArgumentError, match=f"remedy: .* None to save without regard to {interval[6:]}"):
            milepost.lightning.CheckpointCallback(tmp_path, **{interval: 0})
        with pytest.raises(milepost.UnsupportedError, match=f"key: {interval}"):
            milepost.lightning.CheckpointCallback(tmp_path, **{interval: "often"})

    def test_another_number_of_batches(self, tmp_path):
        fit(tmp_path, At(2, kill))
        trainer = pl.Trainer(callbacks=[milepost.lightning.CheckpointCallback(tmp_path)], logger=False, max_epochs=3)
        with pytest.raises(milepost.MismatchError, match="6 batches"):
            trainer.fit(Model(), torch.utils.data.DataLoader(torch.rand(8, 4), batch_size=4))

    def test_a_checkpoint_of_something_else(self, tmp_path):
        checkpoint = milepost.Checkpoint(value=milepost.Variable(1))
        milepost.CheckpointManager(checkpoint, tmp_path, max_to_keep=1).save()
        with pytest.raises(milepost.CorruptCheckpointError, match="does not hold the run"):
            fit(tmp_path)


@pytest.mark.filterwarnings("ignore:.*(the run goes on|not finite|passed over)")
class TestFailures:
    """What is passed to the manager: failed saves, states that are not finite, and a function that is told of each checkpoint."""

    def test_the_run_goes_on_through_failed_saves_and_saves_its_end(self, tmp_path):
        disk = Disk()
        options = {"options": milepost.CheckpointOptions(storage=disk), "on_failure": milepost.Tolerate(saves=9)}
        model, _, callback = fit(tmp_path, At(2, disk.fill), At(5, disk.recover), options=options)
        assert callback.manager.health.state == "good"
        assert same(fit(tmp_path)[0], model)

    def test_a_run_whose_last_save_has_failed_ends_in_an_error(self, tmp_path):
        disk = Disk()
        options = {"options": milepost.CheckpointOptions(storage=disk), "on_failure": milepost.Tolerate(saves=99)}
        with pytest.raises(milepost.StorageError, match="the last save has failed"):
            fit(tmp_path, At(2, disk.fill), options=options)

    def test_a_run_that_became_nan_continues_from_its_last_finite_checkpoint(self, tmp_path):
        told = []
        options = {"nonfinite": milepost.KeepLastFinite(restore=True), "max_to_keep": 1, "on_committed": told.append}
        fit(tmp_path, Poison(4), At(6, kill), options=options)
        assert [each.step for each in told if not each.nonfinite][-1] == 4
        model, _, callback = fit(tmp_path, options=options)
        assert same(model, undisturbed()[0])
        assert callback.manager.health.last_good.step == 3 * BATCHES

    def test_files_are_saved_with_each_checkpoint(self, tmp_path):
        options = {"files": {"tokenizer/vocab": b"a b"}}
        _, _, callback = fit(tmp_path, options=options)
        assert len(callback.manager.steps) > 1
        assert all(callback.manager.files(step) == {"tokenizer/vocab": b"a b"} for step in callback.manager.steps)

    def test_arguments_are_checked_at_once(self, tmp_path):
        for name in ("on_failure", "nonfinite", "on_committed", "files"):
            with pytest.raises(milepost.UnsupportedError, match=name):
                milepost.lightning.CheckpointCallback(tmp_path, **{name: 3})


class Poison(pl.Callback):
    """Makes a weight NaN before a batch."""

    def __init__(self, batch):
        self.batch = batch

    def on_train_batch_start(self, trainer, module, batch, index):
        if trainer.fit_loop.total_batch_idx == self.batch:
            with torch.no_grad():
                next(module.parameters())[0] = float("nan")
