"""`milepost.transformers.attach`: ``Trainer.train()`` goes on to the bit at any step."""

from __future__ import annotations

import functools
import os
import signal
import tempfile

import pytest

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

import torch
import transformers

import milepost.transformers
from milepost.retention import Best
from tests.trainers.small import KilledError, Rows, loader, network, same, seed_all

STEPS = 6
TIMES = ("runtime", "samples_per_second", "steps_per_second")


class Examples(Rows):
    """Rows without noise, which the collator adds, as one that masks tokens does."""

    def __getitem__(self, index):
        return {"rows": torch.full((4,), index / len(self)), "index": index}


def collate(examples):
    noisy = Rows()
    return {"rows": torch.stack([noisy[each["index"]] for each in examples]), "labels": torch.zeros(len(examples))}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = network()
        self.seen = []

    def forward(self, rows, labels=None):
        if self.training:
            self.seen.append(rows.sum().item())
        found = self.net(rows)
        return {"loss": found.pow(2).mean(), "logits": found}


class At(transformers.TrainerCallback):
    def __init__(self, step, function):
        self.step, self.function = step, function

    def on_step_begin(self, args, state, control, **others):
        if state.global_step == self.step:
            self.function()


def kill():
    raise KilledError


def train(directory, *callbacks, options=None, resume=None, output=None, **settings):
    """Trains; returns the model, the trainer, and what ``train()`` returned."""
    seed_all()
    model = Model()
    arguments = transformers.TrainingArguments(
        output or tempfile.mkdtemp(),
        **{
            "per_device_train_batch_size": 4,
            "num_train_epochs": 3,
            "save_strategy": "no",
            "eval_strategy": "epoch",
            "logging_steps": 4,
            "report_to": [],
            "disable_tqdm": True,
            "use_cpu": True,
            "learning_rate": 0.01,
            "remove_unused_columns": False,
            "metric_for_best_model": "loss",
            **settings,
        },
    )
    data = Examples()
    trainer = transformers.Trainer(
        model, arguments, train_dataset=data, eval_dataset=data, data_collator=collate, callbacks=list(callbacks)
    )
    trainer.remove_callback(transformers.PrinterCallback)
    if directory:
        milepost.transformers.attach(trainer, directory, **{"every_steps": 1, **(options or {})})
    try:
        return model, trainer, trainer.train(resume)
    except KilledError:
        return model, trainer, None


@functools.cache
def undisturbed(**settings):
    return train(None, **settings)


def logs(trainer):
    return [
        {name: value for name, value in each.items() if not name.endswith(TIMES)} for each in trainer.state.log_history
    ]


SETTINGS = {
    "plain": {},
    "accumulating": {"gradient_accumulation_steps": 3},
    "workers": {"dataloader_num_workers": 1},
    "evaluating within epochs": {"eval_strategy": "steps", "eval_steps": 2},
}


class TestResume:
    @pytest.mark.parametrize(
        ("name", "step"),
        [
            *(("plain", step) for step in (1, 5, 6, 13)),
            *(("accumulating", step) for step in (1, 2, 5)),
            ("workers", 3),
            ("evaluating within epochs", 2),
        ],
    )
    def test_a_killed_run_ends_as_an_undisturbed_one(self, tmp_path, name, step):
        """Weights, batches, logs with their averages, and what train() returns, are the same to the bit."""
        settings = SETTINGS[name]
        whole, trainer, output = undisturbed(**settings)
        first, _, _ = train(tmp_path, At(step, kill), **settings)
        second, resumed, again = train(tmp_path, **settings)
        assert same(second, whole)
        assert first.seen + second.seen == whole.seen
        assert logs(resumed) == logs(trainer)
        assert again.training_loss == output.training_loss

    def test_saving_changes_nothing(self, tmp_path):
        assert same(train(tmp_path)[0], undisturbed()[0])

    def test_the_trainers_own_checkpoints_are_not_exact_with_such_data(self, tmp_path):
        """What the page says of them."""
        settings = {"save_strategy": "steps", "save_steps": 1, "output": str(tmp_path)}
        train(None, At(3, kill), **settings)
        assert not same(train(None, resume=True, **settings)[0], undisturbed()[0])

    def test_a_run_that_has_ended_trains_no_more(self, tmp_path):
        _, _, output = train(tmp_path)
        model, _, again = train(tmp_path)
        assert model.seen == []
        assert same(model, undisturbed()[0])
        assert (again.global_step, again.training_loss) == (output.global_step, output.training_loss)

    def test_a_run_that_ends_within_an_epoch(self, tmp_path):
        whole, _, _ = undisturbed(max_steps=8)
        train(tmp_path, At(7, kill), max_steps=8)
        assert same(train(tmp_path, max_steps=8)[0], whole)
        assert train(tmp_path, max_steps=8)[0].seen == []

    def test_early_stopping_stays_in_force(self, tmp_path):
        settings = {"metric_for_best_model": "loss", "greater_is_better": True}
        whole, _, _ = train(None, transformers.EarlyStoppingCallback(1), **settings)
        train(tmp_path, transformers.EarlyStoppingCallback(1), At(8, kill), **settings)
        model, _, _ = train(tmp_path, transformers.EarlyStoppingCallback(1), **settings)
        assert same(model, whole)


class TestSigterm:
    @pytest.mark.parametrize("step", [2, STEPS - 1])
    def test_it_saves_and_ends(self, tmp_path, step):
        options = {"on_sigterm": True, "every_steps": None}
        model, trainer, _ = train(tmp_path, At(step, lambda: os.kill(os.getpid(), signal.SIGTERM)), options=options)
        assert len(model.seen) == trainer.state.global_step == step + 1
        assert same(train(tmp_path, options=options)[0], undisturbed()[0])


class TestRetention:
    def test_the_best_are_kept(self, tmp_path):
        options = {"keep": Best(1, by="eval_loss", mode="min"), "max_to_keep": 1}
        _, trainer, _ = train(tmp_path, options=options)
        losses = [each["eval_loss"] for each in trainer.state.log_history if "eval_loss" in each]
        manager = trainer._milepost.run.manager
        assert manager.best_step() == STEPS * (1 + losses.index(min(losses)))
        assert len(manager.steps) <= 2


class TestRefusals:
    def test_what_is_no_trainer(self, tmp_path):
        with pytest.raises(milepost.UnsupportedError, match="Trainer"):
            milepost.transformers.attach(network(), tmp_path)

    @pytest.mark.parametrize("interval", ["every_epochs", "every_steps", "every_seconds"])
    def test_an_interval_of_nothing_has_a_remedy(self, tmp_path, interval):
        _, trainer, _ = train(None, max_steps=1)
        with pytest.raises(milepost.ArgumentError, match=f"remedy: .* None to save without regard to {interval[6:]}"):
            milepost.transformers.attach(trainer, tmp_path, **{interval: 0})
        milepost.transformers.attach(trainer, tmp_path)  # which the refused call has left as it was

    def test_a_second_directory(self, tmp_path):
        _, trainer, _ = train(tmp_path, max_steps=1)
        with pytest.raises(milepost.UnsupportedError, match="once"):
            milepost.transformers.attach(trainer, tmp_path)

    def test_another_number_of_batches(self, tmp_path):
        train(tmp_path, At(2, kill))
        with pytest.raises(milepost.MismatchError, match="6 batches"):
            train(tmp_path, per_device_train_batch_size=2)


def test_other_loaders_are_skipped_as_before():
    """Importing milepost.transformers changes nothing for loaders that it does not watch."""
    skipped = transformers.trainer.skip_first_batches(loader(), 4)
    assert len(list(skipped)) == 2
