"""`milepost.lightning.MilepostIO`: the files of ``ModelCheckpoint`` and ``trainer.save_checkpoint()``."""

from __future__ import annotations

import argparse
import os

import pytest

pytest.importorskip("lightning.pytorch")

import lightning.pytorch as pl
import torch

import milepost
from milepost.lightning import MilepostIO
from tests import interrupts
from tests.trainers.lightning_runs import Model, fit
from tests.trainers.small import same


def assert_equal(one, other):
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        for name in one:
            assert_equal(one[name], other[name])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_equal(a, b)
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    else:
        assert one == other


class TestFiles:
    @pytest.mark.parametrize("asynchronous", [False, True])
    def test_the_dict_comes_back_as_it_was(self, tmp_path, asynchronous):
        """Optimizer state with numbers as keys, tuples and all."""
        _, trainer, _ = fit(None, epochs=1, plugins=[MilepostIO(asynchronous)])
        expected = trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
        trainer.save_checkpoint(tmp_path / "one.ckpt")
        trainer.save_checkpoint(tmp_path / "one.ckpt")
        assert_equal(MilepostIO().load_checkpoint(tmp_path / "one.ckpt"), expected) if not asynchronous else None
        trainer.strategy.checkpoint_io.sync()
        assert_equal(MilepostIO().load_checkpoint(tmp_path / "one.ckpt"), expected)
        assert os.listdir(tmp_path) == ["one.ckpt"]

    def test_model_checkpoint_keeps_the_best_and_the_last(self, tmp_path):
        own = pl.callbacks.ModelCheckpoint(tmp_path / "milepost", monitor="val_loss", save_top_k=1, save_last=True)
        fit(None, own, plugins=[MilepostIO()])
        other = pl.callbacks.ModelCheckpoint(tmp_path / "torch", monitor="val_loss", save_top_k=1, save_last=True)
        fit(None, other)
        names = sorted(os.listdir(tmp_path / "torch"))
        assert sorted(os.listdir(tmp_path / "milepost")) == names
        for name in names:
            ours, theirs = (Model.load_from_checkpoint(tmp_path / each / name) for each in ("milepost", "torch"))
            assert same(ours, theirs)
        assert Model.load_from_checkpoint(own.best_model_path).hparams == {"width": 8}

    def test_a_fit_goes_on_from_it(self, tmp_path):
        fit(None, pl.callbacks.ModelCheckpoint(tmp_path, save_last=True), epochs=1, plugins=[MilepostIO()])
        trainer = pl.Trainer(max_epochs=2, logger=False, enable_progress_bar=False, plugins=[MilepostIO()])
        from tests.trainers.small import loader

        trainer.fit(Model(), loader(), loader(), ckpt_path=tmp_path / "last.ckpt")
        assert trainer.global_step == 12

    def test_files_of_torch_are_read_too(self, tmp_path):
        model, trainer, _ = fit(None, epochs=1)
        trainer.save_checkpoint(tmp_path / "torch.ckpt")
        assert_equal(MilepostIO().load_checkpoint(tmp_path / "torch.ckpt")["state_dict"], model.state_dict())
        assert same(Model.load_from_checkpoint(tmp_path / "torch.ckpt"), model)

    def test_damage_is_found_before_anything_is_loaded(self, tmp_path):
        _, trainer, _ = fit(None, epochs=1, plugins=[MilepostIO()])
        trainer.save_checkpoint(tmp_path / "one.ckpt")
        (data,) = (tmp_path / "one.ckpt").glob("*.data-*")
        content = bytearray(data.read_bytes())
        content[len(content) // 2] ^= 1
        data.write_bytes(content)
        with pytest.raises(milepost.CorruptCheckpointError):
            MilepostIO().load_checkpoint(tmp_path / "one.ckpt")
        with pytest.raises(milepost.CorruptCheckpointError):
            Model.load_from_checkpoint(tmp_path / "one.ckpt")

    def test_a_missing_file(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            MilepostIO().load_checkpoint(tmp_path / "none.ckpt")

    def test_what_is_no_plain_data_is_named(self, tmp_path):
        with pytest.raises(milepost.UnsupportedError, match="hyper_parameters/model"):
            MilepostIO().save_checkpoint(
                {"state_dict": {}, "hyper_parameters": {"model": argparse.Namespace()}}, tmp_path / "one.ckpt"
            )
        assert not (tmp_path / "one.ckpt").exists()

    def test_a_failed_save_in_the_background_is_raised_by_the_next_call(self, tmp_path):
        io = MilepostIO(asynchronous=True)
        io.save_checkpoint({"state_dict": argparse.Namespace()}, tmp_path / "one.ckpt")
        with pytest.raises(milepost.UnsupportedError):
            io.sync()

    def test_a_save_in_the_background_goes_on_after_an_interrupt(self, tmp_path):
        """Ctrl-C at every line of the plugin in a save and in the wait for it. The next save waits for the one before."""

        def make(directory):
            io = MilepostIO(asynchronous=True)
            io.save_checkpoint({"state_dict": {"epoch": 1}}, f"{directory}/one.ckpt")
            return io, f"{directory}/one.ckpt"

        def operate(setting):
            io, path = setting
            io.save_checkpoint({"state_dict": {"epoch": 2}}, path)
            io.sync()

        def check(setting):
            io, path = setting
            io.save_checkpoint({"state_dict": {"epoch": 3}}, path)
            assert io.load_checkpoint(path) == {"state_dict": {"epoch": 3}}
            assert os.listdir(os.path.dirname(path)) == ["one.ckpt"]

        assert interrupts.found(make, operate, check, only="lightning.py:") == []

    def test_it_removes_what_it_saved(self, tmp_path):
        io = MilepostIO()
        io.save_checkpoint({"state_dict": {}}, tmp_path / "one.ckpt")
        io.remove_checkpoint(tmp_path / "one.ckpt")
        io.remove_checkpoint(tmp_path / "one.ckpt")
        assert os.listdir(tmp_path) == []
