"""Runs of Lightning that are killed where hooks, schedulers or iterators follow, or that other callbacks set up."""

from __future__ import annotations

import os
import signal

import pytest

pytest.importorskip("lightning.pytorch")

import lightning.pytorch as pl
import torch

import milepost.lightning
from tests.trainers.small import KilledError, Rows, network, same, seed_all

BATCHES = 6


class Unsized(torch.utils.data.IterableDataset):
    def __iter__(self):
        for _ in range(24):
            yield torch.rand(4)


class Plain:
    """Batches of an iterable that is not a loader and has no state."""

    def __len__(self):
        return 5

    def __iter__(self):
        return iter([torch.full((2, 4), number / 7) + torch.rand(()) for number in torch.randperm(5).tolist()])


class Model(pl.LightningModule):
    """Draws a random number in each hook that a run that is resumed must call once, and in the right order."""

    def __init__(self, at=None):
        super().__init__()
        self.net, self.at, self.seen, self.drawn = network(), at, [], []

    def draw(self):
        self.drawn.append(torch.rand(()).item())

    def training_step(self, batch, index):
        if self.at == self.trainer.fit_loop.total_batch_idx + 1:
            raise KilledError
        parts = [each for each in batch.values() if each is not None] if isinstance(batch, dict) else [batch]
        self.seen.append([each.sum().item() for each in parts])
        loss = torch.stack([self.net(each).pow(2).mean() for each in parts]).mean()
        if not index:
            self.log("first", loss, on_epoch=True, reduce_fx="max")
        self.log("loss", loss + index)
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", self.net(batch).pow(2).mean())

    def on_train_batch_end(self, outputs, batch, index):
        self.draw()

    def on_train_epoch_start(self):
        self.draw()

    def on_train_epoch_end(self):
        self.seen.append({name: value.item() for name, value in self.trainer.callback_metrics.items()})

    def on_train_end(self):
        with torch.no_grad():
            self.net[0].weight.mul_(0.5)

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), 0.1)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1, factor=0.5)
        settings = {"scheduler": plateau, "interval": "step", "monitor": "loss"}
        return {"optimizer": optimizer, "lr_scheduler": settings}


def shuffled(dataset=None, size=4):
    return torch.utils.data.DataLoader(dataset or Rows(), batch_size=size, shuffle=True)


def fit(directory=None, at=None, data=shuffled, callbacks=(), validation=None, options=None, kind=Model, **settings):
    """Trains, and returns the model, the trainer and milepost's callback."""
    seed_all()
    own = [milepost.lightning.CheckpointCallback(directory, **(options or {"every_steps": 1}))] if directory else []
    trainer = pl.Trainer(
        max_epochs=settings.pop("epochs", 3),
        callbacks=[*callbacks, *own],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        enable_checkpointing=bool(own),
        **settings,
    )
    model = kind(at)
    try:
        trainer.fit(model, data(), validation)
    except KilledError:
        pass
    return model, trainer, own[0] if own else None


def assert_resumed_exactly(directory, at, **settings):
    whole, trainer, _ = fit(**settings)
    first, _, _ = fit(directory, at, **settings)
    second, resumed, _ = fit(directory, **settings)
    assert first.seen + second.seen == whole.seen
    assert second.drawn == whole.drawn[-len(second.drawn) :]
    assert same(second, whole)
    assert resumed.optimizers[0].param_groups[0]["lr"] == trainer.optimizers[0].param_groups[0]["lr"]


@pytest.mark.parametrize("at", [1, 2, 4, 6, 7])
def test_hooks_and_schedulers_that_follow_a_batch_are_called_once(tmp_path, at):
    """Among them a ``ReduceLROnPlateau`` that is stepped after each batch, and a value that is logged once in an epoch."""
    assert_resumed_exactly(tmp_path, at)


@pytest.mark.parametrize("at", [2, 5, 6, 8])
@pytest.mark.parametrize(
    "data",
    [
        lambda: {"a": shuffled(), "b": shuffled()},
        lambda: {"a": shuffled(), "b": shuffled(size=8)},
        lambda: {"a": torch.utils.data.DataLoader(Unsized(), batch_size=4), "b": shuffled(size=8)},
        lambda: torch.utils.data.DataLoader(Unsized(), batch_size=4),
        Plain,
    ],
    ids=["of one length", "of other lengths", "with and without length", "without length", "not a loader"],
)
def test_loaders_continue_in_their_order(tmp_path, data, at):
    assert_resumed_exactly(tmp_path, at, data=data)


@pytest.mark.parametrize("mode", ["min_size", "max_size"])
def test_loaders_that_do_not_cycle_continue(tmp_path, mode):
    def data():
        return pl.utilities.CombinedLoader({"a": shuffled(), "b": shuffled(size=8)}, mode)

    for at in (1, 2, 4):
        assert_resumed_exactly(tmp_path / str(at), at, data=data)


@pytest.mark.parametrize("at", [3, 9, 15, 20])
def test_stochastic_weight_averaging_is_set_up_again(tmp_path, at):
    """In the middle of an epoch too, and in the additional one for the statistics of the normalization."""
    averaging = pl.callbacks.StochasticWeightAveraging
    whole, trainer, _ = fit(callbacks=[averaging(0.05, swa_epoch_start=1, annealing_epochs=2)])
    fit(tmp_path, at, callbacks=[averaging(0.05, swa_epoch_start=1, annealing_epochs=2)])
    model, resumed, _ = fit(tmp_path, callbacks=[averaging(0.05, swa_epoch_start=1, annealing_epochs=2)])
    assert same(model, whole)
    assert resumed.optimizers[0].param_groups[0]["lr"] == trainer.optimizers[0].param_groups[0]["lr"]


@pytest.mark.parametrize("at", [3, 9])
def test_the_accumulation_of_an_epoch_is_set_again(tmp_path, at):
    schedule = pl.callbacks.GradientAccumulationScheduler
    whole, _, _ = fit(callbacks=[schedule({0: 2, 1: 3})])
    fit(tmp_path, at, callbacks=[schedule({0: 2, 1: 3})])
    assert same(fit(tmp_path, callbacks=[schedule({0: 2, 1: 3})])[0], whole)


@pytest.mark.parametrize("at", [1, 8])
def test_sigterm_calls_no_hooks_of_an_epoch_that_has_not_ended(tmp_path, at):
    """``EarlyStopping`` would ask for a metric that there is not."""

    class Terminate(pl.Callback):
        def on_train_batch_start(self, trainer, module, batch, index):
            if trainer.fit_loop.total_batch_idx == at:
                os.kill(os.getpid(), signal.SIGTERM)

    stopping = pl.callbacks.EarlyStopping
    options = {"on_sigterm": True}
    validation = torch.utils.data.DataLoader(Rows(), batch_size=8)
    whole, _, _ = fit(callbacks=[stopping("val_loss")], validation=validation)
    first, _, callback = fit(
        tmp_path, callbacks=[stopping("val_loss"), Terminate()], validation=validation, options=options
    )
    assert callback.was_terminated
    assert callback.manager.latest_step == at + 1
    second, _, _ = fit(tmp_path, callbacks=[stopping("val_loss")], validation=validation, options=options)
    assert first.seen + second.seen == whole.seen
    assert same(second, whole)


def test_the_metrics_of_callbacks_come_back(tmp_path):
    seen = {}

    class Look(pl.Callback):
        def on_train_batch_start(self, trainer, module, batch, index):
            seen.setdefault("first", set(trainer.callback_metrics))

    validation = torch.utils.data.DataLoader(Rows(), batch_size=8)
    fit(tmp_path, 9, validation=validation)
    fit(tmp_path, callbacks=[Look()], validation=validation)
    assert "val_loss" in seen["first"]


def test_loaders_that_are_made_again_are_made_in_their_epoch(tmp_path):
    """With ``reload_dataloaders_every_n_epochs``, also if they are divided at random."""

    class Data(pl.LightningDataModule):
        def train_dataloader(self):
            part, _ = torch.utils.data.random_split(Rows(), [14, 8])
            rows = torch.utils.data.Subset(part, range(14 - self.trainer.current_epoch))
            return torch.utils.data.DataLoader(rows, batch_size=4, shuffle=True)

    settings = {"data": Data, "epochs": 5, "reload_dataloaders_every_n_epochs": 2}
    for at in (5, 10, 15):
        assert_resumed_exactly(tmp_path / str(at), at, **settings)


def test_a_run_that_has_ended_shows_its_metrics_again(tmp_path):
    _, trainer, _ = fit(tmp_path)
    expected = torch.rand(())
    _, again, _ = fit(tmp_path)
    assert trainer.callback_metrics
    assert again.callback_metrics == trainer.callback_metrics
    assert torch.rand(()) == expected


@pytest.mark.parametrize("at", [3, 8, 13])
def test_parameters_that_a_hook_has_thawed_stay_so(tmp_path, at):
    """``BackboneFinetuning`` freezes its part whenever a run begins, and thaws it in the hook of one epoch."""

    class Thaw(pl.callbacks.BackboneFinetuning):
        def setup(self, trainer, pl_module, stage):
            pl_module.backbone = torch.nn.Sequential(pl_module.net[0], pl_module.net[1])
            super().setup(trainer, pl_module, stage)

    def settings():
        return {"callbacks": [Thaw(1, lambda epoch: 1.5)]}

    whole, _, _ = fit(**settings())
    fit(tmp_path, at, **settings())
    model, _, _ = fit(tmp_path, **settings())
    assert same(model, whole)


def test_batches_that_a_step_takes_itself_have_their_numbers(tmp_path):
    numbers = []

    class Taking(Model):
        def training_step(self, dataloader_iter):
            batch, index, _ = next(dataloader_iter)
            numbers.append(index)
            return super().training_step(batch, index)

        def log(self, *args, **kwargs):
            super().log(*args, batch_size=4, **kwargs)

    for at in (3, None):
        fit(tmp_path, at, kind=Taking, epochs=1)
    assert numbers == [0, 1, *range(2, BATCHES)] or numbers == [0, 1, 2, *range(2, BATCHES)]


class TestRefusals:
    @pytest.mark.parametrize(
        "make",
        [
            lambda: pl.callbacks.ModelPruning("l1_unstructured", amount=0.2),
            lambda: pl.callbacks.LearningRateFinder(update_attr=False),
            pl.callbacks.BatchSizeFinder,
        ],
        ids=["ModelPruning", "LearningRateFinder", "BatchSizeFinder"],
    )
    def test_callbacks_that_change_a_resumed_run(self, tmp_path, make):
        callback = make()
        trainer = pl.Trainer(callbacks=[callback], logger=False, accelerator="cpu", enable_checkpointing=False)
        own = milepost.lightning.CheckpointCallback(tmp_path)
        with pytest.raises(milepost.UnsupportedError, match=f"no {type(callback).__name__} beside CheckpointCallback"):
            own.setup(trainer, Model(), "fit")
        assert os.listdir(tmp_path) == []

    def test_the_trials_of_a_tuner_are_not_refused(self, tmp_path):
        _, trainer, _ = fit(tmp_path, epochs=1)
        tuner = pl.tuner.Tuner(trainer)
        assert tuner.lr_find(Model(), shuffled(), num_training=3, update_attr=False) is not None

    def test_one_loader_in_two_places(self, tmp_path):
        loader = shuffled()
        with pytest.raises(milepost.UnsupportedError, match="one object twice"):
            fit(tmp_path, data=lambda: {"a": loader, "b": loader})

    def test_an_iterator(self, tmp_path):
        with pytest.raises(milepost.UnsupportedError, match="it is an iterator"):
            fit(tmp_path, data=lambda: iter([torch.rand(2, 4)]))

    def test_another_number_of_loaders(self, tmp_path):
        fit(tmp_path, 2, data=lambda: {"a": shuffled(), "b": shuffled()})
        with pytest.raises(milepost.MismatchError, match="2 loaders"):
            fit(tmp_path)
