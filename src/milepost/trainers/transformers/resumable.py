"""The methods that `milepost.transformers.attach` changes in a ``Trainer``.

A save follows all that ``Trainer`` itself does after a step: logs, evaluation and its own checkpoints. A save that is due at the last
step of an epoch follows all that it does after the epoch. ``train()`` resumes by its own steps, which ask this class instead of files.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

from milepost.adapters.random_state import global_state, set_global_state
from milepost.adapters.transformers import private
from milepost.errors import UnsupportedError, warn
from milepost.trainers.loaders import LoaderPosition
from milepost.trainers.runs import TrainerRun
from milepost.trainers.transformers.exported_states import ExportedStates
from milepost.trainers.transformers.passes import Passes

NAMES = ("model", "optimizer", "scheduler", "state")
OWN_NAMES = ("random", "loader")


class Attached:
    """The run that is attached to a trainer."""

    def __init__(self, run: TrainerRun) -> None:
        self.run = run
        self.position: LoaderPosition | None = None
        self.steps_per_epoch = 0
        self.begin([], None)

    def begin(self, callbacks: list[Any], saved: dict[str, Any] | None) -> None:
        """Begins a call of ``train()`` that continues from a saved state, if there is one."""
        self.callbacks = ExportedStates(callbacks)
        self.passes = Passes()
        self.saved = saved
        self.to_go_on = saved is not None
        self.is_training = self.waits = self.terminated = False
        self.loss: Any = None
        self.last_step: int | None = None


class Resumable:
    """A mixin before ``Trainer`` or a class derived from it."""

    _milepost: Attached

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Trains, or continues the run in the directory that `milepost.transformers.attach` was given.

        ``resume_from_checkpoint`` and further arguments are those of ``Trainer.train()``. A path of a checkpoint of transformers has
        an effect only if the directory holds no run.
        """
        trainer: Any = super()
        attached = self._milepost
        self._refuse()
        this: Any = self
        attached.begin(this.callback_handler.callbacks, attached.run.begin())
        attached.is_training = True
        try:
            saved = attached.saved
            if saved is None:
                checkpoint = None if isinstance(resume_from_checkpoint, bool) else resume_from_checkpoint
                return trainer.train(checkpoint, *args, **kwargs)
            with tempfile.TemporaryDirectory(prefix="milepost-") as directory:
                path = os.path.join(directory, private.STATE_FILE)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(saved["state"])
                if saved["ended"] == self._lengths():
                    return self._ended(saved, path)
                return trainer.train(directory, *args, **kwargs)
        finally:
            attached.is_training = False
            attached.saved = None
            if attached.position is not None:
                attached.position.forget()
                attached.position = None
            attached.run.end()

    def get_train_dataloader(self) -> Any:
        """The loader of ``Trainer``, whose position is saved."""
        trainer: Any = super()
        loader = trainer.get_train_dataloader()
        attached = self._milepost
        if attached.is_training:
            attached.position = LoaderPosition(loader)
            if attached.saved is not None:
                attached.position.load(attached.saved["loader"], attached.saved["random"])
        return loader

    def set_initial_training_values(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the numbers of steps that ``Trainer`` computes, and remembers two of them."""
        this: Any = self
        trainer: Any = super()
        values = trainer.set_initial_training_values(*args, **kwargs)
        attached = self._milepost
        attached.steps_per_epoch = values[1]
        attached.passes.length = values[5] or values[6] * this.args.gradient_accumulation_steps
        return values

    def _init_training_state(self, *args: Any, **kwargs: Any) -> tuple[int, int]:
        trainer: Any = super()
        computed = trainer._init_training_state(*args, **kwargs)
        attached = self._milepost
        return attached.passes.begin_at(*(attached.saved or {}).get("pass", computed))

    def get_batch_samples(self, iterator: Any, *args: Any, **kwargs: Any) -> Any:
        """The batches of a step; the first ones of a resumed run in the random state of that time."""
        self._go_on()
        trainer: Any = super()
        passes = self._milepost.passes
        passes.read_from(iterator)
        batches, *others = trainer.get_batch_samples(iterator, *args, **kwargs)
        passes.batches += len(batches)
        return batches, *others

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """The loss of a batch. To the first one of a resumed run, those are added that only ``train()`` has added up in older versions."""
        trainer: Any = super()
        loss = trainer.training_step(*args, **kwargs)
        attached = self._milepost
        if attached.loss is not None and loss.isfinite():  # other losses may be left out of the sum
            loss, attached.loss = attached.loss.to(loss.device) + loss, None
        return loss

    def _maybe_log_save_evaluate(self, tr_loss: Any, *args: Any, **kwargs: Any) -> None:
        this: Any = self
        trainer: Any = super()
        attached = self._milepost
        if attached.terminated:
            return  # an evaluation of a part of an epoch would delay the end
        trainer._maybe_log_save_evaluate(tr_loss, *args, **kwargs)
        step, is_over = this.state.global_step, this.control.should_training_stop
        is_last = self._is_last_of_pass()
        is_after_pass = step == attached.last_step
        attached.last_step = step
        if (is_last or is_over) and not is_after_pass:
            attached.waits = True  # until this method is called once more, after the epoch
            return
        if is_after_pass and not attached.waits and not is_over:
            return  # batches after the last step of the pass wait for the next step, and what they have accumulated is not saved
        attached.waits = False
        is_due, must_end = attached.run.is_due(step), attached.run.must_end(step)
        if is_last:
            is_due |= attached.run.is_due_after(attached.passes.number + 1)
        attached.terminated = must_end and not is_over
        if is_due or must_end or is_over:
            attached.run.save(step, lambda: self._state(tr_loss, is_last), _evaluated(self, step))
        if must_end:
            this.control.should_training_stop = True

    def _load_from_checkpoint(self, resume_from_checkpoint: Any, model: Any = None) -> None:
        saved = self._milepost.saved
        this: Any = self
        trainer: Any = super()
        if saved is None:
            trainer._load_from_checkpoint(resume_from_checkpoint, model)
        else:
            (this.model if model is None else model).load_state_dict(saved["model"])

    def _load_optimizer_and_scheduler(self, checkpoint: Any) -> None:
        saved = self._milepost.saved
        this: Any = self
        trainer: Any = super()
        if saved is None:
            trainer._load_optimizer_and_scheduler(checkpoint)
        else:
            this.optimizer.load_state_dict(saved["optimizer"])
            this.lr_scheduler.load_state_dict(saved["scheduler"])

    def _load_scaler(self, checkpoint: Any) -> None:
        saved = self._milepost.saved
        this: Any = self
        trainer: Any = super()
        if saved is None:
            trainer._load_scaler(checkpoint)
        elif saved["scaler"] is not None:
            this.accelerator.scaler.load_state_dict(saved["scaler"])

    def _load_callback_state(self) -> None:
        saved = self._milepost.saved
        trainer: Any = super()
        if saved is None:
            trainer._load_callback_state()
        else:
            this: Any = self
            callbacks = this.callback_handler.callbacks
            self._milepost.callbacks.restore(callbacks, saved["callbacks"], saved.get("callback arguments", {}))

    def _load_rng_state(self, checkpoint: Any) -> None:
        trainer: Any = super()
        if self._milepost.saved is None:
            trainer._load_rng_state(checkpoint)
        else:
            self._go_on()

    def _go_on(self) -> None:
        """Restores the parts that depend on no other part. It does so once, before the first batches are read."""
        attached = self._milepost
        saved = attached.saved
        if saved is None or not attached.to_go_on:
            return
        attached.to_go_on = False
        this: Any = self
        self._must_be_in_pass()
        for name, value in saved["losses"].items():
            setattr(this, name, value)
        if hasattr(this, "_tr_loss"):
            this._tr_loss = saved["loss"].to(this._tr_loss.device)
        else:
            attached.loss = saved["loss"]
        assert attached.position is not None
        attached.position.arrived()
        attached.run.restore_objects()
        set_global_state(saved["random"])

    def _must_be_in_pass(self) -> None:
        """Raises an error if ``train()`` does not begin where the run was saved."""
        this: Any = self
        attached, accumulated = self._milepost, this.args.gradient_accumulation_steps
        if attached.passes.has_begun:
            return
        passes, steps = divmod(this.state.global_step, attached.steps_per_epoch)
        computed = [passes, steps * accumulated]
        saved = (attached.saved or {}).get("pass", computed)
        if list(saved) != computed:
            raise UnsupportedError(
                "this version of transformers resumes at the pass that it computes from the step; nothing was trained",
                expected=f"batch {saved[1]} of pass {saved[0]}",
                found=f"batch {computed[1]} of pass {computed[0]}",
                remedy="resume with the newest transformers, or train with data that has a length",
            )
        attached.passes.begin_at(*computed)

    def _is_last_of_pass(self) -> bool:
        """Whether the last step was that of its pass."""
        this: Any = self
        attached = self._milepost
        is_read = attached.position is not None and attached.position.has_ended
        is_over = bool(this.control.should_epoch_stop)
        return is_read or is_over or attached.passes.batches >= attached.passes.length

    def _state(self, loss: Any, ended: bool) -> dict[str, Any]:
        this: Any = self
        attached = self._milepost
        assert attached.position is not None
        ahead = 0 if ended else attached.position.fetched - attached.passes.batches
        callbacks = this.callback_handler.callbacks
        scaler = getattr(this.accelerator, "scaler", None)
        is_over = this.control.should_training_stop and not attached.terminated
        return {
            "model": this.accelerator.unwrap_model(this.model).state_dict(),
            "optimizer": this.optimizer.state_dict(),
            "scheduler": this.lr_scheduler.state_dict(),
            "scaler": None if scaler is None else scaler.state_dict(),
            "state": _text(this.state),
            "callbacks": attached.callbacks.attributes(callbacks),
            "callback arguments": attached.callbacks.arguments(callbacks),
            "losses": {name: getattr(this, name) for name in private.LOSSES if hasattr(this, name)},
            "loss": getattr(this, "_tr_loss", loss).clone(),
            "ended": self._lengths() if is_over else None,
            "random": global_state(),
            "loader": attached.position.state(ahead, ended=ended),
            "pass": attached.passes.next(ended=ended),
        }

    def _lengths(self) -> list[float]:
        this: Any = self
        return [this.args.num_train_epochs, this.args.max_steps]

    def _ended(self, saved: dict[str, Any], path: str) -> Any:
        """What ``train()`` returned for a run that has ended."""
        from transformers.trainer_utils import TrainOutput

        this: Any = self
        this.model.load_state_dict(saved["model"])
        this.state = private.state_from(path)
        best = this.state.best_model_checkpoint
        if this.args.load_best_model_at_end and best is not None:
            if os.path.isdir(best):
                this._load_best_model()
            else:
                warn(
                    f"the model has the weights of the last step, because those of the best step are gone: {best} does not exist"
                )
        losses = saved["losses"]
        steps = max(this.state.global_step - losses.get("_initial_global_step", 0), 0.001)
        loss = (losses["_total_loss_scalar"] + saved["loss"].item()) / steps
        return TrainOutput(this.state.global_step, loss, {"train_loss": loss})

    def _refuse(self) -> None:
        this: Any = self
        if this.is_fsdp_enabled or this.is_deepspeed_enabled:
            raise UnsupportedError(
                "the state of this trainer is spread over processes, and each process gets only its own part from transformers",
                expected="a trainer in which each process has the whole model",
                found="DeepSpeed" if this.is_deepspeed_enabled else "FSDP",
                remedy="keep the checkpoints of transformers for this run",
            )
        if this.args.ignore_data_skip:
            raise UnsupportedError(
                "ignore_data_skip makes a resumed run read other batches",
                expected="ignore_data_skip=False",
                found="ignore_data_skip=True",
            )


def _evaluated(trainer: Any, step: int) -> dict[str, float]:
    """The metrics of the evaluation after a step, if there was one."""
    metrics: dict[str, float] = {}
    for logged in reversed(trainer.state.log_history):
        if logged.get("step") != step:
            break
        metrics = {name: value for name, value in logged.items() if isinstance(value, (int, float))} | metrics
    return metrics if any(name.startswith("eval_") for name in metrics) else {}


def _text(state: Any) -> str:
    with tempfile.TemporaryDirectory(prefix="milepost-") as directory:
        path = os.path.join(directory, private.STATE_FILE)
        state.save_to_json(path)
        with open(path, encoding="utf-8") as file:
            return file.read()


def hold(trainer: Any, attached: Attached) -> None:
    """Attaches a run to a trainer."""
    trainer._milepost = attached
