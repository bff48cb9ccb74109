"""Programs of PyTorch, and of what is built on it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from benchmarks.versions.training import EVERY, Run, batch, loop

_EXAMPLES: Final = 32
"""Examples of an epoch, in batches of eight."""


def network() -> Any:
    """The model that is trained."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1)
    )


def examples() -> Any:
    """What it is trained on."""
    import torch

    inputs = np.concatenate([batch(number)[0] for number in range(_EXAMPLES // 8)])
    return torch.utils.data.TensorDataset(torch.from_numpy(inputs), torch.from_numpy(inputs.sum(axis=1, keepdims=True)))


def weights_of(net: Any) -> list[Any]:
    """Its values."""
    return [each.detach().numpy() for each in net.state_dict().values()]


def advance(net: Any, optimizer: Any, taken: Any, backward: Callable[[Any], object]) -> None:
    """Trains on a pair of inputs and targets."""
    inputs, targets = taken
    optimizer.zero_grad()
    backward((net(inputs) - targets).pow(2).mean())
    optimizer.step()


def with_torch(run: Run) -> None:
    """PyTorch: a module, an optimizer and a schedule."""
    import torch

    net = network()
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

    def step(number: int) -> None:
        advance(net, optimizer, [torch.from_numpy(each) for each in batch(number)], lambda loss: loss.backward())
        schedule.step()

    def arrays() -> list[Any]:
        moments = [value.numpy() for state in optimizer.state_dict()["state"].values() for value in state.values()]
        return [*weights_of(net), *moments, *schedule.get_last_lr()]

    loop(run, {"net": net, "optimizer": optimizer, "schedule": schedule}, step, arrays)


def with_torchdata(run: Run) -> None:
    """A ``StatefulDataLoader`` that shuffles."""
    import torch
    from torchdata.stateful_dataloader import StatefulDataLoader

    net = network()
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
    loader = StatefulDataLoader(examples(), batch_size=8, shuffle=True)
    iterator: Any = None

    def step(number: int) -> None:
        nonlocal iterator
        taken = next(iterator, None) if iterator is not None else None
        if taken is None:
            iterator = iter(loader)
            taken = next(iterator, None) or next(iterator := iter(loader))
        advance(net, optimizer, taken, lambda loss: loss.backward())

    loop(run, {"net": net, "optimizer": optimizer, "loader": loader}, step, lambda: weights_of(net))


def with_accelerate(run: Run) -> None:
    """A loop with what an ``Accelerator`` has prepared."""
    import torch
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    net, loader = network(), torch.utils.data.DataLoader(examples(), batch_size=8, shuffle=True)
    net, optimizer, loader = accelerator.prepare(net, torch.optim.AdamW(net.parameters(), 1e-2), loader)
    manager: Any = None
    numbers: Any = None
    first = done = 0
    if not run.without:
        import milepost.accelerate

        numbers = milepost.Variable(np.zeros(2, np.int64))
        checkpoint = milepost.accelerate.checkpoint(accelerator, numbers=numbers)
        manager = milepost.CheckpointManager(checkpoint, run.saves, max_to_keep=2)
        manager.restore_or_initialize()
        first, done = map(int, np.asarray(numbers))

    def save(epoch: int) -> None:
        if manager is not None:
            numbers.assign(np.array([epoch, done]))
            manager.save()

    run.begin(done, weights_of(net))
    for epoch in range(first, 3):
        for taken in loader:
            advance(net, optimizer, taken, accelerator.backward)
            done += 1
            if done % EVERY == 0:
                save(epoch)
            run.after(done, weights_of(net))
        save(epoch + 1)
    run.end(weights_of(net))


def with_ignite(run: Run) -> None:
    """An ``Engine`` with `milepost.ignite.attach`."""
    import torch
    from ignite.engine import Engine, Events

    net = network()
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)

    def step(engine: Any, taken: Any) -> None:
        if watched.pop("first", None):
            run.begin(engine.state.iteration - 1, weights_of(net))
        advance(net, optimizer, taken, lambda loss: loss.backward())

    watched = {"first": True}
    engine = Engine(step)
    if not run.without:
        import milepost.ignite

        objects = {"net": net, "optimizer": optimizer}
        milepost.ignite.attach(engine, objects, run.saves, every_iterations=EVERY, every_epochs=None)
    engine.add_event_handler(Events.ITERATION_COMPLETED, lambda: run.after(engine.state.iteration, weights_of(net)))
    engine.run(torch.utils.data.DataLoader(examples(), batch_size=8, shuffle=True), max_epochs=3)
    run.end(weights_of(net))


def with_lightning(run: Run) -> None:
    """``Trainer.fit()`` with `milepost.lightning.CheckpointCallback`."""
    import torch
    from lightning import pytorch as lightning

    warnings.simplefilter("ignore")

    class Model(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = network()

        def training_step(self, taken: Any, number: int) -> Any:
            return (self.net(taken[0]) - taken[1]).pow(2).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), 1e-2)

    class Watch(lightning.Callback):  # type: ignore[misc]
        begun = False

        def on_train_batch_start(self, trainer: Any, module: Any, *_: Any) -> None:
            if not self.begun:
                self.begun = True
                run.begin(trainer.global_step, weights_of(module))

        def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
            run.after(trainer.global_step, weights_of(module))

    callbacks: list[Any] = [Watch()]
    if not run.without:
        import milepost.lightning

        callbacks.append(milepost.lightning.CheckpointCallback(run.saves, every_steps=EVERY))
    trainer = lightning.Trainer(
        max_epochs=3, accelerator="cpu", callbacks=callbacks, logger=False, enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=not run.without, default_root_dir=run.saves + "-lightning",
    )  # fmt: skip
    model = Model()
    trainer.fit(model, torch.utils.data.DataLoader(examples(), batch_size=8, shuffle=True))
    run.end(weights_of(model))


def with_transformers(run: Run) -> None:
    """``Trainer.train()`` with `milepost.transformers.attach`."""
    import torch
    import transformers

    class Model(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = network()

        def forward(self, inputs: Any = None, labels: Any = None) -> dict[str, Any]:
            outputs = self.net(inputs)
            return {"loss": (outputs - labels).pow(2).mean(), "logits": outputs}

    class Watch(transformers.TrainerCallback):  # type: ignore[misc]
        begun = False

        def on_step_begin(self, arguments: Any, state: Any, control: Any, **_: Any) -> None:
            if not self.begun:
                self.begun = True
                run.begin(state.global_step, weights_of(model))

        def on_step_end(self, arguments: Any, state: Any, control: Any, **_: Any) -> None:
            run.after(state.global_step, weights_of(model))

    model = Model()
    data = [{"inputs": inputs, "labels": labels} for inputs, labels in examples()]
    arguments = transformers.TrainingArguments(
        output_dir=run.saves + "-transformers", per_device_train_batch_size=8, num_train_epochs=3, save_strategy="no", report_to=[],
        disable_tqdm=True, use_cpu=True, logging_strategy="no",
    )  # fmt: skip
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=data, callbacks=[Watch()])
    if not run.without:
        import milepost.transformers

        milepost.transformers.attach(trainer, run.saves, every_steps=EVERY, every_epochs=None)
    trainer.train()
    run.end(weights_of(model))


PROGRAMS: Final[Mapping[str, Callable[[Run], None]]] = {
    "torch": with_torch,
    "torchdata": with_torchdata,
    "accelerate": with_accelerate,
    "ignite": with_ignite,
    "lightning": with_lightning,
    "transformers": with_transformers,
}
