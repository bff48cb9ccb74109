"""The set-ups of Lightning."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch import callbacks as theirs
from torch.utils.data import DataLoader

import milepost.lightning
from tests.trainers.small import network, seed_all
from tests.zoo_trainers.data import BATCH, ROWS, Rows, Unsized, generated, of_torchdata, reach_saves, rows
from tests.zoo_trainers.trace import Trace
from tests.zoo_trainers.verdicts import Row

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
EPOCHS = 3
_OF_ITS_OWN = (theirs.Checkpoint, theirs.Timer)
"""Callbacks whose states name files and times."""


class Plain:
    """Batches of an iterable that is not a loader and has no state."""

    def __len__(self) -> int:
        return 5

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter([torch.full((2, 4), number / 7) + torch.rand(()) for number in torch.randperm(5).tolist()])


class Logger(pl.loggers.logger.Logger):
    """Writes what is logged into the notes."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self.trace = trace

    name = property(lambda self: "notes")
    version = property(lambda self: 0)

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        pass

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        names = ",".join(sorted(metrics))
        self.trace.note(f"log {step} {names}", metrics)


class Model(pl.LightningModule):
    """Notes all that it computes, and draws random numbers in its hooks."""

    def __init__(self, trace: Trace, configure: Callable[[Any], Any] | None = None, monitor: str = "loss") -> None:
        super().__init__()
        self.net, self.own_trace, self.configure, self.monitor = network(), trace, configure, monitor

    @property
    def trace(self) -> Trace:
        """The trace of the run. The trials of a tuner, which have another logger, have none."""
        return self.own_trace if isinstance(self.trainer.logger, Logger) else Trace(Path(os.devnull))

    @property
    def number(self) -> int:
        return int(self.trainer.fit_loop.total_batch_idx)

    def loss_of(self, batch: Any) -> torch.Tensor:
        parts = batch.values() if isinstance(batch, dict) else [batch]
        return torch.stack([self.net(each).pow(2).mean() for each in parts if each is not None]).mean()

    def training_step(self, batch: Any, index: int) -> torch.Tensor | None:
        self.trace.reach("batch", "SIGTERM")
        loss = self.loss_of(batch)
        self.trace.note(f"batch {self.number}", {"index": index, "batch": batch, "loss": loss})
        self.log("loss", loss, batch_size=BATCH)
        self.log("mean", loss, on_step=True, on_epoch=True, batch_size=BATCH)
        if index == 1:
            self.log("rare", loss, on_epoch=True, on_step=False, reduce_fx="sum", batch_size=BATCH)
        return loss

    def validation_step(self, batch: Any, index: int, dataloader_idx: int = 0) -> None:
        loss = self.loss_of(batch)
        self.log("val_loss", loss, batch_size=BATCH)
        if not self.trainer.sanity_checking:
            self.trace.reach("validation")
            self.trace.note(f"validation {self.number} {dataloader_idx} {index}", {"batch": batch, "loss": loss})

    def on_train_batch_end(self, outputs: Any, batch: Any, index: int) -> None:
        self.trace.reach("end of a batch")
        self.trace.note(f"after batch {self.number}", torch.rand(()))

    def on_validation_end(self) -> None:
        if not self.trainer.sanity_checking:
            self.trace.reach("end of a validation")
            self.trace.note(f"after validation {self.number}", torch.rand(()))

    def on_train_epoch_start(self) -> None:
        self.trace.reach("epoch's start")
        self.trace.note(f"epoch {self.trainer.current_epoch}", torch.rand(()))

    def on_train_epoch_end(self) -> None:
        self.trace.reach("epoch's end")
        metrics = {**self.trainer.callback_metrics, "draw": torch.rand(())}
        self.trace.note(f"after epoch {self.trainer.current_epoch}", metrics)

    def on_train_end(self) -> None:
        self.trace.reach("run's end")
        with torch.no_grad():
            self.net[0].bias.mul_(0.5)

    def configure_optimizers(self) -> Any:
        if self.configure is not None:
            return self.configure(self)
        optimizer = torch.optim.AdamW(self.parameters(), 0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.7)]


class Manual(Model):
    """Two optimizers, and gradients that are accumulated by the model itself."""

    def __init__(self, trace: Trace, **settings: Any) -> None:
        super().__init__(trace, **settings)
        self.automatic_optimization = False

    def training_step(self, batch: Any, index: int) -> None:
        loss = super().training_step(batch, index)
        self.manual_backward(loss)
        for number, optimizer in enumerate(self.optimizers()):
            if (self.number + 1) % (2 + number) == 0:
                optimizer.step()
                optimizer.zero_grad()

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.net[0].parameters(), 0.01), torch.optim.SGD(self.net[3].parameters(), 0.01)


class Skipping(Model):
    """Leaves the rest of an epoch out, and trains nothing at one batch."""

    def on_train_batch_start(self, batch: Any, index: int) -> int | None:
        return -1 if self.trainer.current_epoch == 1 and index == 3 else None

    def training_step(self, batch: Any, index: int) -> torch.Tensor | None:
        loss = super().training_step(batch, index)
        return None if index == 2 else loss


class Metrics(Model):
    """With a metric of torchmetrics that is logged, and one that is not reset."""

    def __init__(self, trace: Trace, **settings: Any) -> None:
        super().__init__(trace, **settings)
        import torchmetrics

        self.mean, self.total = torchmetrics.MeanMetric(), torchmetrics.SumMetric()

    def training_step(self, batch: Any, index: int) -> torch.Tensor | None:
        loss = super().training_step(batch, index)
        self.mean(loss)
        self.log("metric", self.mean, on_step=False, on_epoch=True)
        self.total(loss)
        self.trace.note(f"total {self.number}", self.total.compute())
        return loss


class Thawing(Model):
    """Freezes a part of itself, thaws it in the second epoch, and keeps another part in the mode of evaluation."""

    def setup(self, stage: str) -> None:
        self.net[0].requires_grad_(False)

    def on_train_epoch_start(self) -> None:
        super().on_train_epoch_start()
        if self.trainer.current_epoch == 1:
            self.net[0].requires_grad_(True)
            self.net[1].eval()


class OfIterator(Model):
    """Gets the iterator of the data."""

    def training_step(self, dataloader_iter: Any) -> torch.Tensor | None:  # type: ignore[override]
        batch, index, _ = next(dataloader_iter)
        return super().training_step(batch, index)


class Reloaded(pl.LightningDataModule):
    """Data that is divided at random and depends on the epoch, and a state of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.made = 0

    def train_dataloader(self) -> Any:
        self.made += 1
        part, _ = torch.utils.data.random_split(Rows(), [14, ROWS - 14])
        return DataLoader(
            torch.utils.data.Subset(part, range(14 - 2 * self.trainer.current_epoch)), BATCH, shuffle=True
        )

    def val_dataloader(self) -> Any:
        part, _ = torch.utils.data.random_split(Rows(), [10, ROWS - 10])
        return DataLoader(torch.utils.data.Subset(part, range(10 - self.trainer.current_epoch)), 8, shuffle=True)


def pair(mode: str, size: int = 8, unsized: bool = False) -> Callable[[], Any]:
    def make() -> Any:
        first = DataLoader(Unsized(), BATCH) if unsized else rows()
        return pl.utilities.CombinedLoader({"a": first, "b": rows(size)}, mode)

    return make


def plateau(interval: str, monitor: str, **settings: Any) -> Callable[[Any], Any]:
    def configure(model: Any) -> Any:
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
        options = {"scheduler": scheduler, "interval": interval, "monitor": monitor, **settings}
        return {"optimizer": optimizer, "lr_scheduler": options}

    return configure


def by_step(model: Any) -> Any:
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=40)
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step", "frequency": 2}}


def headed(model: Any) -> Any:
    model.backbone = torch.nn.Sequential(model.net[0], model.net[1])
    return torch.optim.SGD(model.net[3].parameters(), 0.05)


class Unfreeze(theirs.BackboneFinetuning):
    """The backbone is a part of the network."""

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        pl_module.backbone = torch.nn.Sequential(pl_module.net[0], pl_module.net[1])
        super().setup(trainer, pl_module, stage)


def averaging(**settings: Any) -> list[Any]:
    return [theirs.StochasticWeightAveraging(0.02, swa_epoch_start=2, annealing_epochs=2, **settings)]


def early(**settings: Any) -> list[Any]:
    return [theirs.EarlyStopping(**{"monitor": "val_loss", "patience": 1, "mode": "max", **settings})]


def setup(
    model: Callable[..., Any] = Model,
    train: Callable[[], Any] | None = rows,
    val: Callable[[], Any] | None = lambda: rows(8),
    callbacks: Callable[[], list[Any]] = list,
    configure: Callable[[Any], Any] | None = None,
    data: Callable[[], Any] | None = None,
    said: str = "",
    **settings: Any,
) -> Row:
    """A set-up: what ``fit()`` gets, and what the page says of it."""

    def run(trace: Trace, directory: str | None, options: dict[str, Any]) -> None:
        seed_all()
        torch.set_num_threads(1)
        own = [milepost.lightning.CheckpointCallback(directory, on_sigterm=True, **options)] if directory else []
        if own:
            reach_saves(trace)
        trainer = pl.Trainer(
            callbacks=[*callbacks(), *own],
            logger=Logger(trace),
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=bool(own),
            accelerator="cpu",
            **{"max_epochs": EPOCHS, "log_every_n_steps": 2, **settings},
        )
        module = model(trace, configure=configure)
        if data is not None:
            trainer.fit(module, datamodule=data())
        else:
            trainer.fit(module, train and train(), val and val())
        if not (own and own[0].was_terminated):
            note_end(trace, trainer, module)

    return Row(run, said)


def note_end(trace: Trace, trainer: Any, module: Any) -> None:
    """Notes the state at the end of a run."""
    ended = {
        "weights": module.state_dict(),
        "optimizers": [each.state_dict() for each in trainer.optimizers],
        "schedulers": [config.scheduler.state_dict() for config in trainer.lr_scheduler_configs],
        "metrics": trainer.callback_metrics,
        "steps": [trainer.global_step, trainer.current_epoch],
        "callbacks": [each.state_dict() for each in trainer.callbacks if not isinstance(each, _OF_ITS_OWN)],
    }
    for name, value in ended.items():
        trace.note(f"end: {name}", value)


SETUPS = {
    "a shuffled loader": setup(),
    "no validation": setup(val=None),
    "workers": setup(train=functools.partial(rows, num_workers=1)),
    "persistent workers": setup(
        train=functools.partial(rows, num_workers=2, persistent_workers=True),
        said="Workers end with each pass, even with `persistent_workers=True`",
    ),
    "loaders with generators": setup(train=generated, val=generated),
    "`StatefulDataLoader`": setup(train=of_torchdata),
    "an iterable that is not a loader": setup(train=Plain),
    "data without length": setup(train=lambda: DataLoader(Unsized(), BATCH)),
    "data without length, `limit_train_batches=3`": setup(
        train=lambda: DataLoader(Unsized(), BATCH), limit_train_batches=3
    ),
    "a dict of loaders": setup(train=lambda: {"a": rows(), "b": rows()}),
    "`CombinedLoader`: `max_size_cycle`": setup(train=pair("max_size_cycle")),
    "`CombinedLoader`: `max_size_cycle`, the longer one without length": setup(train=pair("max_size_cycle", 8, True)),
    "`CombinedLoader`: `max_size_cycle`, the shorter one without length": setup(train=pair("max_size_cycle", 3, True)),
    "`CombinedLoader`: `max_size`": setup(train=pair("max_size")),
    "`CombinedLoader`: `max_size`, one without length": setup(train=pair("max_size", 8, True)),
    "`CombinedLoader`: `min_size`": setup(train=pair("min_size")),
    "`CombinedLoader`: `min_size`, one without length": setup(train=pair("min_size", 8, True)),
    "several loaders for validation": setup(val=lambda: [rows(8), generated()]),
    "`reload_dataloaders_every_n_epochs=1`": setup(data=Reloaded, reload_dataloaders_every_n_epochs=1),
    "`reload_dataloaders_every_n_epochs=2`": setup(data=Reloaded, reload_dataloaders_every_n_epochs=2, max_epochs=5),
    "loaders of a data module, divided at random": setup(data=Reloaded),
    "`val_check_interval=2`": setup(val_check_interval=2),
    "`val_check_interval=0.5`, two loaders": setup(val_check_interval=0.5, train=pair("max_size_cycle")),
    "`val_check_interval=3, check_val_every_n_epoch=None`": setup(val_check_interval=3, check_val_every_n_epoch=None),
    "`check_val_every_n_epoch=2`": setup(
        check_val_every_n_epoch=2, configure=plateau("epoch", "val_loss", strict=False)
    ),
    "`accumulate_grad_batches=3`": setup(accumulate_grad_batches=3),
    "`accumulate_grad_batches=2, val_check_interval=2`, data without length": setup(
        accumulate_grad_batches=2, val_check_interval=2, train=lambda: DataLoader(Unsized(), BATCH)
    ),
    "`limit_train_batches=3, limit_val_batches=1`": setup(limit_train_batches=3, limit_val_batches=1),
    "`limit_train_batches=0.5`, two loaders": setup(limit_train_batches=0.5, train=pair("max_size_cycle")),
    "`overfit_batches=2`": setup(overfit_batches=2),
    "`max_steps=7`": setup(max_steps=7, max_epochs=-1),
    "`max_steps=7, accumulate_grad_batches=2`": setup(max_steps=7, max_epochs=-1, accumulate_grad_batches=2),
    "`gradient_clip_val`, `bf16-mixed`": setup(gradient_clip_val=0.1, precision="bf16-mixed"),
    "`ReduceLROnPlateau` after each batch": setup(configure=plateau("step", "loss")),
    "`ReduceLROnPlateau` after each epoch": setup(configure=plateau("epoch", "val_loss")),
    "`OneCycleLR` after every second batch": setup(configure=by_step),
    "manual optimization, two optimizers": setup(model=Manual),
    "steps without loss, an epoch that is left": setup(model=Skipping),
    "metrics of torchmetrics": setup(model=Metrics),
    "parameters that thaw in a hook of an epoch": setup(model=Thawing),
    "`training_step(dataloader_iter)`": setup(model=OfIterator),
    "`StochasticWeightAveraging`": setup(callbacks=averaging, max_epochs=4),
    "`StochasticWeightAveraging`, linear": setup(
        callbacks=lambda: averaging(annealing_strategy="linear"),
        max_epochs=4,
        configure=lambda m: torch.optim.SGD(m.parameters(), 0.1),
    ),
    "`EMAWeightAveraging`": setup(callbacks=lambda: [theirs.EMAWeightAveraging(decay=0.9)]),
    "`GradientAccumulationScheduler`": setup(
        callbacks=lambda: [theirs.GradientAccumulationScheduler({0: 2, 1: 3, 2: 1})]
    ),
    "`EarlyStopping`": setup(callbacks=early),
    "`EarlyStopping` within an epoch": setup(callbacks=early, val_check_interval=2),
    "`EarlyStopping`, `min_epochs=3`": setup(callbacks=early, min_epochs=3, max_epochs=5),
    "`EarlyStopping` of a metric of training": setup(callbacks=lambda: early(monitor="mean"), val=None),
    "`BackboneFinetuning`": setup(
        callbacks=lambda: [Unfreeze(1, lambda epoch: 1.5, verbose=False)],
        configure=lambda m: torch.optim.SGD(filter(lambda p: p.requires_grad, m.parameters()), 0.05),
        max_epochs=4,
    ),
    "`ModelPruning`": setup(callbacks=lambda: [theirs.ModelPruning("l1_unstructured", amount=0.2)]),
    "`LearningRateFinder`": setup(
        callbacks=lambda: [theirs.LearningRateFinder(num_training_steps=5, update_attr=False)]
    ),
    "`LearningRateMonitor`, `Timer`": setup(
        callbacks=lambda: [theirs.LearningRateMonitor("step"), theirs.Timer("00:01:00:00")]
    ),
}
