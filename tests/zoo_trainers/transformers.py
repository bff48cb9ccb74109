"""The set-ups of Hugging Face's ``Trainer``."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import torch
import transformers
from transformers.trainer_callback import ExportableState

import milepost.transformers
from tests.trainers.small import network, seed_all
from tests.zoo_trainers.data import BATCH, UNSAVED, Rows, Unsized, reach_saves
from tests.zoo_trainers.trace import Trace
from tests.zoo_trainers.verdicts import Row

EPOCHS = 3
TIMES = ("runtime", "samples_per_second", "steps_per_second")


class Model(torch.nn.Module):
    """Notes each batch and its loss, under the step of the trainer."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self.net, self.trace, self.keys = network(), trace, dict[str, int]()
        self.step = 0

    def forward(self, rows: Any, labels: Any = None) -> dict[str, torch.Tensor]:
        if self.training:
            self.trace.reach("batch", "SIGTERM")
        else:
            self.trace.reach("validation")
        kind = f"{'batch' if self.training else 'validation'} {self.step}"
        number = self.keys[kind] = self.keys.get(kind, -1) + 1
        found = self.net(rows)
        loss = found.float().pow(2).mean()
        self.trace.note(f"{kind} {number}", {"batch": rows, "loss": loss})
        return {"loss": loss, "logits": found}


class Moments(transformers.TrainerCallback):
    """Tells where a run is, and draws random numbers.

    ``trainer`` is that of milepost, or None. After SIGTERM it calls the hooks of the ends that a part of an epoch and of a run have.
    """

    def __init__(self, trace: Trace, model: Model, trainer: Any) -> None:
        self.trace, self.model, self.trainer = trace, model, trainer

    def is_terminated(self) -> bool:
        return self.trainer is not None and self.trainer._milepost.terminated

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.trace.reach("epoch's start")

    def on_step_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.model.step = state.global_step

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.trace.reach("end of a batch")
        self.model.step = state.global_step
        self.trace.note(f"after batch {state.global_step}", torch.rand(()))

    def on_evaluate(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.trace.reach("end of a validation")
        self.trace.note(f"after validation {state.global_step}", torch.rand(()))

    def on_epoch_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if self.is_terminated():
            return
        self.trace.reach("epoch's end")
        self.trace.note(f"after epoch {state.global_step}", torch.rand(()))

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **others: Any) -> None:
        if self.is_terminated():
            return
        logged = _timeless(logs)
        self.trace.note(f"log {state.global_step} {','.join(sorted(logged))}", logged)

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if self.is_terminated():
            return
        self.trace.reach("run's end")


class Short(transformers.TrainerCallback):
    """Ends two epochs early."""

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        control.should_epoch_stop = state.global_step in (3, 5)


class Counting(transformers.TrainerCallback, ExportableState):
    """Counts steps in what transformers passes to its constructor, and stops the run by them."""

    def __init__(self, steps: int = 0) -> None:
        self.steps = steps

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.steps += 1
        control.should_training_stop |= self.steps == 12

    def state(self) -> dict[str, Any]:
        return {"args": {"steps": self.steps}, "attributes": {}}


class Forgetting(transformers.TrainerCallback):
    """Counts steps and tells nobody."""

    steps = 0

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.steps += 1
        control.should_training_stop |= self.steps == 12


class Averaging(transformers.Trainer):
    """Holds averaged weights, and a generator that its losses depend on."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.averaged = torch.optim.swa_utils.AveragedModel(self.model.net)
        self.generator = torch.Generator()

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        loss = super().training_step(*args, **kwargs)
        self.averaged.update_parameters(self.model.net)
        return loss * torch.rand((), generator=self.generator)


def collate(examples: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    return {"rows": torch.stack(examples) + 0.01 * torch.rand(4), "labels": torch.zeros(len(examples))}


def setup(
    *callbacks: Callable[[], Any],
    data: Callable[[], Any] = Rows,
    evaluated: Callable[[], Any] = lambda: Rows(10, counted=False),
    kind: type = transformers.Trainer,
    objects: Callable[[Any], dict[str, Any]] | None = None,
    said: str = "",
    **settings: Any,
) -> Row:
    """A set-up: the callbacks and the arguments of the trainer, and what the page says of it."""

    def run(trace: Trace, directory: str | None, options: dict[str, Any]) -> None:
        seed_all()
        torch.set_num_threads(1)
        model = Model(trace)
        trainer = kind(
            model,
            _arguments(f"{directory}-output" if directory else tempfile.mkdtemp(), settings),
            train_dataset=data(),
            eval_dataset=evaluated(),
            data_collator=collate,
            callbacks=[each() for each in callbacks],
        )
        trainer.add_callback(Moments(trace, model, directory and trainer))
        trainer.remove_callback(transformers.PrinterCallback)
        if directory:
            reach_saves(trace)
            held = objects(trainer) if objects else None
            milepost.transformers.attach(trainer, directory, on_sigterm=True, objects=held, **options)
        output = trainer.train()
        if not (directory and trainer._milepost.terminated):
            _note_end(trace, trainer, output)

    return Row(run, said)


def _arguments(output: str, settings: dict[str, Any]) -> Any:
    return transformers.TrainingArguments(
        output,
        **{
            "per_device_train_batch_size": BATCH,
            "num_train_epochs": EPOCHS,
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


def _note_end(trace: Trace, trainer: Any, output: Any) -> None:
    ended = {
        "weights": trainer.model.state_dict(),
        "loss": output.training_loss,
        "step": trainer.state.global_step,
        "log": [_timeless(each) for each in trainer.state.log_history],
        "averages": trainer.averaged.state_dict() if hasattr(trainer, "averaged") else None,
    }
    for name, value in ended.items():
        trace.note(f"end: {name}", value)


def _timeless(logged: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in logged.items() if not name.endswith(TIMES)}


def early() -> Any:
    return transformers.EarlyStoppingCallback(1)


_BEST: dict[str, Any] = {"save_strategy": "epoch", "load_best_model_at_end": True, "greater_is_better": True}
SETUPS = {
    "the defaults": setup(),
    "data of an evaluation with a counter": setup(evaluated=lambda: Rows(10), said=UNSAVED),
    "no evaluation": setup(eval_strategy="no"),
    "workers": setup(dataloader_num_workers=1),
    "`gradient_accumulation_steps=3`": setup(gradient_accumulation_steps=3),
    "`eval_strategy=steps`, `eval_steps=2`": setup(eval_strategy="steps", eval_steps=2),
    "`max_steps=8`": setup(max_steps=8),
    "`num_train_epochs=2.5`": setup(num_train_epochs=2.5),
    "`dataloader_drop_last`": setup(dataloader_drop_last=True),
    "data without length, `max_steps=12`": setup(data=Unsized, max_steps=12),
    "data without length, `gradient_accumulation_steps=4`": setup(
        data=Unsized, max_steps=5, gradient_accumulation_steps=4
    ),
    "`use_seedable_sampler=False`": setup(accelerator_config={"use_seedable_sampler": False}),
    "prefetching workers": setup(dataloader_num_workers=2, dataloader_prefetch_factor=3),
    "`train_sampling_strategy=sequential`": setup(train_sampling_strategy="sequential"),
    "`data_seed`": setup(data_seed=7),
    "cosine schedule with warm-up": setup(lr_scheduler_type="cosine", warmup_steps=3),
    "`reduce_lr_on_plateau`": setup(lr_scheduler_type="reduce_lr_on_plateau", lr_scheduler_kwargs={"patience": 0}),
    "Adafactor": setup(optim="adafactor"),
    "`bf16`, `max_grad_norm`": setup(bf16=True, max_grad_norm=0.1),
    "`EarlyStoppingCallback`": setup(early, greater_is_better=True, load_best_model_at_end=False),
    "`load_best_model_at_end`": setup(**_BEST),
    "epochs that a callback ends early": setup(Short),
    "a callback with `ExportableState` that ends the run": setup(Counting),
    "a callback without `ExportableState` that ends the run": setup(
        Forgetting, said="A callback without `ExportableState` keeps nothing"
    ),
    "a class derived from `Trainer`, `objects=`": setup(
        kind=Averaging, objects=lambda trainer: {"averaged": trainer.averaged, "generator": trainer.generator}
    ),
}
