"""`milepost.transformers.attach`: ``Trainer.train()`` goes on to the bit at any step."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import tempfile

import pytest

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

import torch
import transformers
from transformers.trainer_callback import ExportableState

import milepost.transformers
from milepost.retention import Best
from tests.manager.disks import Disk
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


class Stream(torch.utils.data.IterableDataset):
    """Rows without noise, whose number the trainer does not know."""

    def __iter__(self):
        return iter([Examples()[index] for index in range(len(Rows()))])


def train(
    directory, *callbacks, options=None, resume=None, output=None, data=None, kind=transformers.Trainer, **settings
):
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
    trainer = kind(
        model,
        arguments,
        train_dataset=data or Examples(),
        eval_dataset=Examples(),
        data_collator=collate,
        callbacks=list(callbacks),
    )
    trainer.remove_callback(transformers.PrinterCallback)
    if directory:
        options = {"every_steps": 1, **(options or {})}
        options.update({name: value(trainer) for name, value in options.items() if name == "objects"})
        milepost.transformers.attach(trainer, directory, **options)
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


class TestPasses:
    @pytest.mark.parametrize(
        ("settings", "steps"),
        [
            ({"max_steps": 17}, (5, 6, 7, 13)),
            ({"max_steps": 7, "gradient_accumulation_steps": 4}, (1, 2, 5)),
        ],
        ids=["plain", "accumulating over the end of a pass"],
    )
    def test_data_without_length_over_several_passes(self, tmp_path, settings, steps):
        """A pass has 6 batches, so with 4 in a step, 2 are accumulated when it ends."""
        whole, trainer, _ = undisturbed(data=Stream(), **settings)
        for step in steps:
            first, _, _ = train(tmp_path / str(step), At(step, kill), data=Stream(), **settings)
            second, resumed, _ = train(tmp_path / str(step), data=Stream(), **settings)
            assert same(second, whole)
            assert (first.seen + second.seen)[-len(second.seen) :] == whole.seen[-len(second.seen) :]
            assert logs(resumed) == logs(trainer)

    def test_every_epochs_counts_its_passes(self, tmp_path):
        _, trainer, _ = train(tmp_path, options={"every_steps": None}, data=Stream(), max_steps=17)
        trainer._milepost.run.manager.reload()
        assert trainer._milepost.run.manager.steps == [6, 12, 17]

    @pytest.mark.parametrize("step", [3, 4, 5])
    def test_epochs_that_a_callback_ends_early(self, tmp_path, step):
        class Short(transformers.TrainerCallback):
            def on_step_end(self, args, state, control, **others):
                control.should_epoch_stop = state.global_step in (3, 5)

        whole, trainer, _ = train(None, Short())
        first, _, _ = train(tmp_path, Short(), At(step, kill))
        second, resumed, _ = train(tmp_path, Short())
        assert first.seen + second.seen == whole.seen
        assert same(second, whole)
        assert logs(resumed) == logs(trainer)


BEST = {"save_strategy": "epoch", "load_best_model_at_end": True, "greater_is_better": True}
"""The greatest loss is that of the first epoch."""


class TestTheBestModel:
    def test_a_run_that_has_ended_has_it_again(self, tmp_path):
        settings = {**BEST, "output": str(tmp_path / "output")}
        model, trainer, _ = train(tmp_path / "run", **settings)
        assert trainer.state.best_global_step == STEPS
        assert same(train(tmp_path / "run", **settings)[0], model)

    def test_there_is_a_warning_if_it_is_gone(self, tmp_path):
        settings = {**BEST, "output": str(tmp_path / "output")}
        train(tmp_path / "run", **settings)
        shutil.rmtree(tmp_path / "output")
        with pytest.warns(milepost.MilepostWarning, match="those of the best step are gone"):
            train(tmp_path / "run", **settings)


class Counting(transformers.TrainerCallback, ExportableState):
    """Counts steps in what transformers passes to its constructor."""

    def __init__(self, steps=0, pace=1):
        self.steps, self.pace = steps, pace

    def on_step_end(self, args, state, control, **others):
        self.steps += self.pace

    def state(self):
        return {"args": {"steps": self.steps, "pace": self.pace}, "attributes": {}}


class CountingElsewhere(Counting):
    """Keeps its count under another name than that of the argument."""

    def __init__(self, begin=0):
        super().__init__(begin)

    def state(self):
        return {"args": {"begin": self.steps}, "attributes": {}}


class TestCallbacks:
    @pytest.mark.parametrize("kind", [Counting, CountingElsewhere])
    def test_state_among_the_arguments_of_a_callback(self, tmp_path, kind):
        train(tmp_path, kind(), At(5, kill))
        train(tmp_path, kind(), At(9, kill))
        counting = kind()
        train(tmp_path, counting)
        assert counting.steps == 3 * STEPS

    def test_settings_among_them_are_those_of_the_program(self, tmp_path):
        train(tmp_path, Counting(), At(5, kill))
        counting = Counting(pace=10)
        train(tmp_path, counting)
        assert (counting.steps, counting.pace) == (5 + 10 * (3 * STEPS - 5), 10)


class Averaging(transformers.Trainer):
    """Holds averaged weights, and draws numbers from a generator of its own."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.averaged = torch.optim.swa_utils.AveragedModel(self.model)
        self.generator = torch.Generator()

    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)
        self.averaged.update_parameters(self.model)
        return loss * torch.rand((), generator=self.generator)


HELD = {"objects": lambda trainer: {"averaged": trainer.averaged, "generator": trainer.generator}}


class TestObjects:
    def test_what_a_subclass_holds(self, tmp_path):
        _, whole, output = train(None, kind=Averaging)
        train(tmp_path, At(8, kill), kind=Averaging, options=HELD)
        _, resumed, again = train(tmp_path, kind=Averaging, options=HELD)
        assert same(resumed.averaged, whole.averaged)
        assert again.training_loss == output.training_loss

    def test_a_run_that_has_ended_has_it_again(self, tmp_path):
        _, whole, _ = train(tmp_path, kind=Averaging, options=HELD)
        assert same(train(tmp_path, kind=Averaging, options=HELD)[1].averaged, whole.averaged)

    @pytest.mark.parametrize("saved", [True, False])
    def test_a_run_with_other_objects_is_refused(self, tmp_path, saved):
        train(tmp_path, At(8, kill), kind=Averaging, options=HELD if saved else None)
        with pytest.raises(milepost.MismatchError, match="averaged, generator"):
            train(tmp_path, kind=Averaging, options=None if saved else HELD)

    def test_the_names_of_other_parts_are_refused(self, tmp_path):
        with pytest.raises(milepost.ArgumentError, match="run, save_counter"):
            train(tmp_path, options={"objects": lambda trainer: {"run": trainer.model, "save_counter": trainer.model}})


class TestSigterm:
    @pytest.mark.parametrize(
        ("step", "number"), [(2, signal.SIGTERM), (2, signal.SIGUSR1), (STEPS - 1, signal.SIGTERM)], ids=str
    )
    def test_it_saves_and_ends(self, tmp_path, step, number):
        options = {"on_sigterm": True, "on_signal": signal.SIGUSR1, "every_steps": None}
        model, trainer, _ = train(tmp_path, At(step, lambda: os.kill(os.getpid(), number)), options=options)
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


def test_files_are_saved_with_each_checkpoint(tmp_path):
    _, trainer, _ = train(tmp_path, options={"files": {"tokenizer/vocab": b"a b"}})
    manager = trainer._milepost.run.manager
    assert [manager.files(step) for step in manager.steps] == [{"tokenizer/vocab": b"a b"}] * len(manager.steps)


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


@pytest.mark.filterwarnings("ignore:.*(the run goes on|not finite|passed over)")
class TestFailures:
    """What is passed to the manager: failed saves, states that are not finite, and a function that is told of each checkpoint."""

    def test_the_run_goes_on_through_failed_saves_and_saves_its_end(self, tmp_path):
        disk = Disk()
        options = {"options": milepost.CheckpointOptions(storage=disk), "on_failure": milepost.Tolerate(saves=9)}
        options["max_to_keep"] = 1
        whole, _, _ = train(tmp_path, At(2, disk.fill), At(5, disk.recover), options=options)
        assert same(whole, undisturbed()[0])
        assert train(tmp_path)[0].seen == []

    def test_a_run_whose_last_save_has_failed_ends_in_an_error(self, tmp_path):
        disk = Disk()
        options = {"options": milepost.CheckpointOptions(storage=disk), "on_failure": milepost.Tolerate(saves=99)}
        with pytest.raises(milepost.StorageError, match="the last save has failed"):
            train(tmp_path, At(2, disk.fill), options=options)

    def test_a_run_that_became_nan_continues_from_its_last_finite_checkpoint(self, tmp_path):
        told = []
        options = {"nonfinite": milepost.KeepLastFinite(restore=True), "max_to_keep": 1, "on_committed": told.append}
        train(tmp_path, Poison(4), At(6, kill), options=options)
        assert [each.step for each in told if not each.nonfinite][-1] == 4
        assert same(train(tmp_path, options=options)[0], undisturbed()[0])

    def test_arguments_are_checked_at_once(self, tmp_path):
        for name in ("on_failure", "nonfinite", "on_committed"):
            with pytest.raises(milepost.UnsupportedError, match=name):
                train(tmp_path, options={name: 3})


class Poison(transformers.TrainerCallback):
    """Makes a weight NaN before a step."""

    def __init__(self, step):
        self.step = step

    def on_step_begin(self, args, state, control, model=None, **others):
        if state.global_step == self.step:
            with torch.no_grad():
                model.net[0].weight[0] = float("nan")
