"""Runs of Lightning."""

from __future__ import annotations

import logging
import warnings

import pytest

pytest.importorskip("lightning.pytorch")

import lightning.pytorch as pl
import torch

import milepost.lightning
from tests.trainers.small import KilledError, Rows, loader, network, seed_all

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="lightning")


class Model(pl.LightningModule):
    def __init__(self, width=8):
        super().__init__()
        self.save_hyperparameters()
        self.net = network()
        self.seen, self.logged = [], []

    def training_step(self, batch, index):
        self.seen.append(batch.sum().item())
        loss = self.net(batch).pow(2).mean()
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", self.net(batch).pow(2).mean() + torch.rand(()))

    def on_train_epoch_end(self):
        self.logged.append({name: float(value) for name, value in self.trainer.callback_metrics.items()})

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), 0.01)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": plateau, "monitor": "val_loss"}}


class At(pl.Callback):
    """Calls a function before a batch of the run."""

    def __init__(self, batch, function):
        self.batch, self.function = batch, function

    def on_train_batch_start(self, trainer, module, batch, index):
        if trainer.fit_loop.total_batch_idx == self.batch:
            self.function()


def kill():
    raise KilledError


def fit(directory, *callbacks, workers=0, kind=None, epochs=3, options=None, plugins=None, root=None, **settings):
    """Trains, and returns the model, the trainer and the callback."""
    seed_all()
    model = Model()
    callback = None
    if directory:
        options = {"every_steps": 1, **(options or {})}
        callback = milepost.lightning.CheckpointCallback(directory, **options)
    trainer = pl.Trainer(
        max_epochs=epochs,
        callbacks=[*callbacks, *([callback] if callback else [])],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        default_root_dir=root,
        enable_checkpointing=bool(directory) or any(isinstance(each, pl.callbacks.Checkpoint) for each in callbacks),
        plugins=plugins,
        **settings,
    )
    try:
        trainer.fit(model, loader(workers, kind), torch.utils.data.DataLoader(Rows(), batch_size=8))
    except KilledError:
        pass
    return model, trainer, callback
