"""`milepost.accelerate`: prepared objects, and the position in their data."""

from __future__ import annotations

import os
import signal

import pytest

pytest.importorskip("accelerate")

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration

import milepost.accelerate
from tests.trainers.small import Rows, loader, network, same, seed_all


def make(stateful=False, workers=0, accumulate=1):
    configuration = DataLoaderConfiguration(use_stateful_dataloader=stateful)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulate, dataloader_config=configuration)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    return accelerator, accelerator.prepare(model, optimizer, scheduler, loader(workers))


def train(directory, stop=None, seed=0, on_sigterm=False, signal_at=None, **settings):
    """A loop as programs with Accelerate have it. Returns the model and the batches it saw.

    Args:
        directory: The directory of the checkpoints.
        stop: The batch after which the loop is left.
        seed: The seed of all generators.
        on_sigterm: Whether it saves when SIGTERM comes, and then ends. Otherwise it saves after each batch.
        signal_at: The batch during which SIGTERM comes.
        **settings: As for `make`.
    """
    seed_all(seed)
    accelerator, (model, optimizer, scheduler, data) = make(**settings)
    epoch = milepost.Variable(0)
    manager = milepost.CheckpointManager(
        milepost.accelerate.checkpoint(accelerator, epoch=epoch), directory, max_to_keep=2, on_sigterm=on_sigterm
    )
    manager.restore_or_initialize()
    seen = []
    for number in range(int(epoch), 3):
        for batch in data:
            seen.append(batch.sum().item())
            with accelerator.accumulate(model):
                accelerator.backward(model(batch).pow(2).mean())
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if len(seen) == signal_at:
                os.kill(os.getpid(), signal.SIGTERM)
            terminated = manager.reached_preemption(len(seen))
            if terminated or not on_sigterm:
                manager.save()
            if terminated or len(seen) == stop:
                manager.close()
                return model, seen
        epoch.assign(number + 1)
        if not on_sigterm:
            manager.save()
    manager.close()
    return model, seen


class TestCheckpoint:
    @pytest.mark.parametrize("settings", [{}, {"workers": 1}, {"stateful": True}], ids=str)
    @pytest.mark.parametrize("stop", [1, 5, 6, 13])
    def test_a_stopped_run_ends_as_an_undisturbed_one(self, tmp_path, settings, stop):
        """Also where the new process was seeded otherwise."""
        if settings.get("stateful"):
            pytest.importorskip("torchdata")
        whole, seen = train(tmp_path / "whole", **settings)
        _, first = train(tmp_path / "run", stop, **settings)
        model, second = train(tmp_path / "run", seed=5, **settings)
        assert same(model, whole)
        assert first + second == seen

    @pytest.mark.parametrize("batch", [2, 9])
    def test_sigterm_saves_and_ends(self, tmp_path, batch):
        whole, seen = train(tmp_path / "whole")
        _, first = train(tmp_path / "run", on_sigterm=True, signal_at=batch)
        model, second = train(tmp_path / "run", seed=5, on_sigterm=True)
        assert len(first) == batch
        assert first + second == seen
        assert same(model, whole)

    def test_prepared_objects_are_saved_whole(self, tmp_path):
        """By milepost.Checkpoint itself, with names of the program's own, and restored without Accelerate."""
        _, (model, optimizer, scheduler, _) = make()
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
        scheduler.step()
        path = milepost.Checkpoint(model=model, optimizer=optimizer, scheduler=scheduler).write(tmp_path / "ckpt")
        plain = network()
        other = torch.optim.AdamW(plain.parameters(), 0.1)
        milepost.Checkpoint(model=plain, optimizer=other).read(path).expect_partial()
        assert same(plain, model)
        expected = optimizer.state_dict()
        assert other.state_dict()["param_groups"] == expected["param_groups"]
        for number, state in expected["state"].items():
            assert all(torch.equal(value, other.state_dict()["state"][number][name]) for name, value in state.items())
        _, (_, _, again, _) = make()
        milepost.Checkpoint(scheduler=again).read(path).expect_partial()
        assert again.state_dict() == scheduler.state_dict()

    def test_nothing_is_prepared(self):
        with pytest.raises(milepost.UnsupportedError, match="prepared nothing"):
            milepost.accelerate.checkpoint(Accelerator(cpu=True))


class TestDataPosition:
    def test_it_can_be_registered_for_accelerates_own_checkpoints(self, tmp_path):
        """Then these go on in the middle of an epoch too."""

        def read(count, load):
            seed_all()
            accelerator, (_, _, _, data) = make()
            accelerator.register_for_checkpointing(milepost.accelerate.DataPosition(data))
            if load:
                accelerator.load_state(tmp_path)
            batches = []
            for batch in data:
                batches.append(batch.sum().item())
                if len(batches) == count:
                    accelerator.save_state(tmp_path)
            return batches

        whole = read(2, load=False)
        assert read(None, load=True) == whole[2:]

    def test_a_plain_loader(self, tmp_path):
        seed_all()
        data = loader()
        position, random = milepost.accelerate.DataPosition(data), milepost.RandomState()
        batches = iter(data)
        next(batches)
        path = milepost.Checkpoint(position=position, random=random).write(tmp_path / "ckpt")
        rest = [each.sum().item() for each in batches]
        seed_all(7)
        data = loader()
        position = milepost.accelerate.DataPosition(data)
        milepost.Checkpoint(position=position, random=milepost.RandomState()).read(path)
        assert [each.sum().item() for each in data] == rest

    def test_a_pass_that_was_left_is_over(self, tmp_path):
        """By ``break``, or by ``zip()`` with a shorter loader."""

        def run(name, epochs):
            seed_all()
            long, short = loader(), torch.utils.data.DataLoader(torch.arange(9), batch_size=3, shuffle=True)
            count, seen = milepost.Variable(0), []
            objects = {"long": milepost.accelerate.DataPosition(long), "short": milepost.accelerate.DataPosition(short)}
            checkpoint = milepost.Checkpoint(**objects, count=count, random=milepost.RandomState())
            manager = milepost.CheckpointManager(checkpoint, tmp_path / name, max_to_keep=1)
            manager.restore_or_initialize()
            while int(count) < epochs:
                for batch, other in zip(long, short, strict=False):
                    seen.append((batch.sum().item(), other.tolist()))
                for number, batch in enumerate(long):
                    if number == 2:
                        break
                    seen.append(batch.sum().item())
                count.assign_add(1)
                manager.save()
            return seen

        assert run("run", 1) + run("run", 2) + run("run", 3) == run("whole", 3)

    def test_a_pass_of_a_prepared_loader_that_was_left_is_over(self, tmp_path):
        def run(epochs):
            seed_all()
            accelerator, (_, _, _, data) = make()
            count, seen = milepost.Variable(0), []
            checkpoint = milepost.accelerate.checkpoint(accelerator, count=count)
            manager = milepost.CheckpointManager(checkpoint, tmp_path / f"run-{epochs is None}", max_to_keep=1)
            manager.restore_or_initialize()
            while int(count) < (epochs or 3):
                for number, batch in enumerate(data):
                    seen.append(batch.sum().item())
                    if number == (2, 5, 3)[int(count)]:
                        break
                count.assign_add(1)
                manager.save()
            return seen

        assert run(1) + run(2) + run(3) == run(None)

    @pytest.mark.parametrize("sizes", [(4, 4), (8, 4), (4, 8)], ids=str)
    @pytest.mark.parametrize("seeded", [False, True], ids=["", "seeded"])
    def test_prepared_loaders_in_zip_are_saved_at_their_last_batch(self, tmp_path, sizes, seeded):
        """The iterators after the first one are dropped unread by a resumed run, also if it is stopped again after the loop."""

        def run(name, stops):
            seed_all()
            configuration = DataLoaderConfiguration(use_seedable_sampler=seeded)
            accelerator = Accelerator(cpu=True, dataloader_config=configuration)
            data = accelerator.prepare(*(torch.utils.data.DataLoader(Rows(), size, shuffle=True) for size in sizes))
            count, seen = milepost.Variable(0), []
            checkpoint = milepost.accelerate.checkpoint(accelerator, count=count)
            manager = milepost.CheckpointManager(checkpoint, tmp_path / name, max_to_keep=1)
            manager.restore_or_initialize()
            while int(count) < 3:
                for batches in zip(*data, strict=False):
                    seen.append([batch.sum().item() for batch in batches])
                    manager.save()
                    if len(seen) == stops:
                        return seen
                count.assign_add(1)
                manager.save()
                if stops == 0:
                    return seen
            return seen

        batches = -(-len(Rows()) // max(sizes))
        assert run("run", batches) + run("run", 0) + run("run", None) == run("whole", None)

    def test_a_last_batch_of_dispatched_data_is_saved(self, tmp_path):
        """Accelerate itself raises an error for a pass without a batch."""

        class Stream(torch.utils.data.IterableDataset):
            def __iter__(self):
                return iter(torch.rand(4, 2))

        def read(load):
            seed_all()
            accelerator = Accelerator(cpu=True)
            data = accelerator.prepare(torch.utils.data.DataLoader(Stream(), 2))
            checkpoint = milepost.accelerate.checkpoint(accelerator)
            seen = []
            if load:
                checkpoint.read(tmp_path / "ckpt")
                assert list(data) == []
            for batch in data:
                seen.append(batch.sum().item())
                if len(seen) == 2 and not load:
                    checkpoint.write(tmp_path / "ckpt")
            return seen if load else [batch.sum().item() for batch in data]

        assert read(load=False) == read(load=True)

    def test_a_position_that_was_restored_is_saved_again_before_anything_is_read(self):
        data = loader()
        position = milepost.accelerate.DataPosition(data)
        batches = iter(data)
        next(batches)
        saved = position.state_dict()
        again = milepost.accelerate.DataPosition(loader())
        again.load_state_dict(saved)
        assert again.state_dict()["position"]["batches"] == 1
