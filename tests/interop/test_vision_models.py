"""Files as programs with timm and torchvision write them are restored into models that have changed since.

No environment of the Makefile has these libraries: they need the build of torchvision for the PyTorch that is there. Install
timm and torchvision beside PyTorch to run this file.
"""

import argparse

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

import torch

import milepost


def library(name):
    """A module, or a skipped test: torchvision cannot be imported beside a PyTorch that it was not built for."""
    try:
        return __import__(name, fromlist=["_"])
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"{name} is not installed: {error}")


def differing(one, other, without=()):
    """The names of values of two modules that differ."""
    pairs = zip(one.state_dict().items(), other.state_dict().values(), strict=True)
    return [name for (name, a), b in pairs if not name.startswith(tuple(without)) and not torch.equal(a, b)]


def trained(model, optimizer):
    """Gives every parameter a gradient and takes a step, without the time of a pass."""
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()


@pytest.mark.parametrize("name", ["test_resnet", "test_vit", "test_efficientnet"])
class TestTimm:
    @pytest.fixture
    def made(self, name):
        """A function that makes a model, and a model, its average and its optimizer after a step."""
        timm, optim, utils = library("timm"), library("timm.optim"), library("timm.utils")

        def make(seed=1, **settings):
            torch.manual_seed(seed)
            return timm.create_model(name, **settings)

        model = make(0)
        optimizer = optim.create_optimizer_v2(model, opt="adamw", lr=0.1)
        average = utils.ModelEmaV3(model, decay=0.5)
        trained(model, optimizer)
        average.update(model, step=1)
        return make, model, average, optimizer

    @pytest.fixture
    def path(self, made, tmp_path):
        """What the CheckpointSaver of timm writes, with the arguments of a script."""
        _, model, average, optimizer = made
        saver = library("timm.utils").CheckpointSaver(
            model, optimizer, args=argparse.Namespace(model="m"), model_ema=average, checkpoint_dir=tmp_path
        )
        saver.save_checkpoint(1, metric=0.5)
        return tmp_path / "last.pth.tar"

    def test_weights(self, made, path):
        make, model, _, _ = made
        fresh = make()
        milepost.Checkpoint(model=fresh).read(path, rename={"state_dict": "model"}, only="model").assert_consumed()
        assert differing(model, fresh) == []

    def test_averaged_weights(self, made, path):
        make, _, average, _ = made
        fresh = make()
        milepost.Checkpoint(model=fresh).read(path, rename={"state_dict_ema": "model"}, only="model").assert_consumed()
        assert differing(average.module, fresh) == []

    def test_another_head(self, made, path):
        """The error for it offers the argument that leaves it alone."""
        make, model, _, _ = made
        fresh = make(num_classes=7)
        before = [each.clone() for each in fresh.get_classifier().parameters()]
        arguments = {"rename": {"state_dict": "model"}, "only": "model"}
        with pytest.raises(milepost.MismatchError, match="ignore="):
            milepost.Checkpoint(model=fresh).read(path, **arguments)
        head = model.pretrained_cfg["classifier"]
        milepost.Checkpoint(model=fresh).read(path, ignore=f"model.{head}", **arguments).assert_consumed()
        assert differing(model, fresh, [head]) == []
        assert all(map(torch.equal, before, fresh.get_classifier().parameters()))

    def test_the_optimizer(self, made, path):
        make, model, _, optimizer = made
        fresh = make()
        other = library("timm.optim").create_optimizer_v2(fresh, opt="adamw", lr=0.1)
        status = milepost.Checkpoint(state_dict=fresh, optimizer=other).read(path).expect_partial()
        status.assert_existing_objects_matched()
        assert differing(model, fresh) == []
        for number, state in optimizer.state_dict()["state"].items():
            assert all(torch.equal(value, other.state_dict()["state"][number][key]) for key, value in state.items())

    @pytest.mark.parametrize("prefix", ["module.", "model."])
    def test_weights_of_a_wrapped_model(self, made, tmp_path, prefix):
        make, model, _, _ = made
        path = tmp_path / "wrapped.pth"
        torch.save({f"{prefix}{name}": value for name, value in model.state_dict().items()}, path)
        fresh = make()
        rename = {"model": ""} if prefix == "model." else ()  # the level of PyTorch's wrappers is known
        milepost.Checkpoint(fresh).read(path, rename=rename).assert_consumed()
        assert differing(model, fresh) == []


@pytest.mark.parametrize("name", ["squeezenet1_1", "shufflenet_v2_x0_5"])
class TestTorchvision:
    """Dicts as the reference scripts of torchvision write them."""

    def make(self, name, seed=1):
        torch.manual_seed(seed)
        model = library("torchvision.models").get_model(name, weights=None, num_classes=5)
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        return {
            "model": model,
            "optimizer": optimizer,
            "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1),
            "model_ema": torch.optim.swa_utils.AveragedModel(model, use_buffers=True),
        }

    def saved(self, name, tmp_path):
        """A run after two steps, and the path of its file."""
        run = self.make(name, 0)
        for _ in range(2):
            trained(run["model"], run["optimizer"])
            run["lr_scheduler"].step()
            run["model_ema"].update_parameters(run["model"])
        states = {each: run[each].state_dict() for each in run}
        torch.save({**states, "epoch": 3, "args": argparse.Namespace(lr=0.1)}, tmp_path / "checkpoint.pth")
        return run, tmp_path / "checkpoint.pth"

    def test_the_whole_run(self, name, tmp_path):
        run, path = self.saved(name, tmp_path)
        fresh = self.make(name)
        status = milepost.Checkpoint(**fresh).read(path).expect_partial()
        status.assert_existing_objects_matched()
        assert {entry.key.partition("/")[0] for entry in status.report().unexpected} <= {"args"}
        assert differing(run["model"], fresh["model"]) == []
        assert differing(run["model_ema"], fresh["model_ema"]) == []
        assert fresh["lr_scheduler"].state_dict() == run["lr_scheduler"].state_dict()

    def test_averaged_weights_become_the_weights(self, name, tmp_path):
        run, path = self.saved(name, tmp_path)
        fresh = self.make(name)["model"]
        rename = {"model_ema.module": "model", "model": "last"}
        milepost.Checkpoint(model=fresh).read(path, rename=rename, only="model").assert_consumed()
        assert differing(run["model_ema"].module, fresh) == []
