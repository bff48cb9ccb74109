"""A training of a hundred steps that can be killed: ``python -m tests.interop.torch_training DIRECTORY NAME [MOMENT STEP]``.

Goes on from the newest checkpoint and saves again at once, then every ten steps. Writes the step that it starts from and
each step's loss, exactly, to the file NAME, and in the end what describes its state. With a moment it kills itself:
``step`` is between the backward pass and the optimizer, ``save`` is right before a checkpoint becomes visible.

What it draws at random differs from process to process, so that it can only go on as the first one did if everything came
from the checkpoint.
"""

import hashlib
import os
import random
import signal
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torchdata.stateful_dataloader import StatefulDataLoader

import milepost

STEPS, EVERY = 100, 10


class Sequences(torch.utils.data.Dataset):
    """Noisy waves; the noise depends on the index alone, for it is added in other processes."""

    def __len__(self):
        return 72

    def __getitem__(self, index):
        noise = torch.rand(6, 3, generator=torch.Generator().manual_seed(index))
        wave = torch.sin(torch.arange(18.0).reshape(6, 3) * (1 + index / 10))
        return wave + noise / 10, wave.sum(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 8, num_layers=2, dropout=0.3, batch_first=True)
        self.norm = nn.BatchNorm1d(8)
        self.dropout = nn.Dropout(0.3)
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        with torch.autocast("cpu", enabled=False):  # PyTorch has no LSTM in bfloat16 for processors without AVX-512
            states = self.lstm(x)[0]
        return self.out(self.dropout(self.norm(states[:, -1])))


def build():
    """Everything that is trained, in one checkpoint."""
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    return milepost.Checkpoint(
        net=net,
        averaged=torch.optim.swa_utils.AveragedModel(
            net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True
        ),
        optimizer=optimizer,
        schedule=torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=STEPS),
        scaler=torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=7),
        loader=StatefulDataLoader(Sequences(), batch_size=4, shuffle=True, num_workers=2),
        random=milepost.RandomState(),
        step=milepost.Variable(0),
    )


def train_step(run, x, y, kill):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.mse_loss(run.net(x + torch.randn_like(x) * random.random() / 10), y)
    run.optimizer.zero_grad()
    run.scaler.scale(loss).backward()
    if kill:
        os.kill(os.getpid(), signal.SIGKILL)
    run.scaler.unscale_(run.optimizer)
    nn.utils.clip_grad_norm_(run.net.parameters(), 1.0 + np.random.random())
    run.scaler.step(run.optimizer)
    run.scaler.update()
    run.schedule.step()
    run.averaged.update_parameters(run.net)
    run.step.assign_add(1)
    return loss.item()


def digest(run):
    """One number for all state."""
    found = hashlib.sha256()
    parts = [run.net.state_dict(), run.averaged.state_dict(), run.scaler.state_dict(), run.schedule.state_dict()]
    held = run.optimizer.state_dict()
    for part in [*parts, *held["state"].values(), *held["param_groups"]]:
        for name, value in part.items():
            data = value.detach().numpy().tobytes() if isinstance(value, torch.Tensor) else repr(value).encode()
            found.update(name.encode() + data)
    return found.hexdigest()


def kill_before_the_index_is_visible(event, arguments):
    if event == "os.rename" and str(arguments[1]).endswith(".index"):
        os.kill(os.getpid(), signal.SIGKILL)


def main(directory, name, moment="", kill_at="0"):
    torch.set_num_threads(1)
    first = not Path(directory, "checkpoint").exists()
    for seed in (torch.manual_seed, random.seed, np.random.seed):
        seed(0 if first else os.getpid())
    run = build()
    manager = milepost.CheckpointManager(run, directory, max_to_keep=3)
    if not first:
        run.restore(manager.latest_checkpoint).assert_consumed()
        manager.save()
    with Path(directory, name).open("w", buffering=1) as output:
        print("from", int(run.step), file=output)
        while int(run.step) < STEPS:
            for x, y in run.loader:
                at = int(run.step) + 1 == int(kill_at)
                print(int(run.step) + 1, train_step(run, x, y, at and moment == "step").hex(), file=output)
                if at and moment == "save":
                    sys.addaudithook(kill_before_the_index_is_visible)
                if int(run.step) % EVERY == 0:
                    manager.save()
                if int(run.step) == STEPS:
                    break
        print("end", digest(run), file=output)


if __name__ == "__main__":
    main(*sys.argv[1:])
