"""Files that lack what newer versions of PyTorch have: completed as PyTorch's own load_state_dict completes them."""

import collections
import copy

import pytest

import milepost
from milepost import UnmatchedError
from milepost.engine.report import Outcome

torch = pytest.importorskip("torch")

NEWER = ("decoupled_weight_decay", "capturable", "differentiable", "fused", "foreach", "maximize")
"""Hyperparameters that came after the optimizers that have them."""
OPTIMIZERS = ("Adam", "AdamW", "SGD", "Adadelta", "Adagrad", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop")


def trained(kind, **settings):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1))
    optimizer = getattr(torch.optim, kind)(net.parameters(), lr=0.01, **settings)
    for _ in range(3):
        step(net, optimizer)
    return net, optimizer


def step(net, optimizer):
    optimizer.zero_grad()
    net(torch.arange(8.0).reshape(4, 2)).square().mean().backward()
    optimizer.step()


def aged(optimizer, *more):
    """The state as an older version would have written it."""
    state = copy.deepcopy(optimizer.state_dict())
    for group in state["param_groups"]:
        for name in (*NEWER, *more):
            group.pop(name, None)
    for each in state["state"].values():
        for name in ("step", "eta", "mu", "mu_product"):
            if isinstance(each.get(name), torch.Tensor):
                each[name] = int(each[name]) if name == "step" else float(each[name])
    return state


class TestOptimizers:
    @pytest.mark.parametrize("kind", OPTIMIZERS)
    def test_one_that_lacks_newer_settings_goes_on_as_pytorch_would(self, tmp_path, kind):
        net, optimizer = trained(kind)
        path = tmp_path / "old.pt"
        torch.save({"model": net.state_dict(), "optimizer": aged(optimizer)}, path)
        (theirs, by_torch), (ours, restored) = trained(kind), trained(kind)
        state = torch.load(path)
        theirs.load_state_dict(state["model"])
        by_torch.load_state_dict(state["optimizer"])
        milepost.Checkpoint(model=ours, optimizer=restored).restore(path).assert_consumed()
        for _ in range(3):
            step(theirs, by_torch)
            step(ours, restored)
        assert all(torch.equal(a, b) for a, b in zip(theirs.parameters(), ours.parameters(), strict=True))

    def test_such_a_setting_gets_the_default_whatever_the_live_optimizer_has(self, tmp_path):
        net, optimizer = trained("Adam")
        path = tmp_path / "old.pt"
        torch.save({"model": net.state_dict(), "optimizer": aged(optimizer, "amsgrad")}, path)
        fresh, by_torch = trained("Adam", maximize=True)
        by_torch.load_state_dict(torch.load(path)["optimizer"])
        fresh, restored = trained("Adam", maximize=True)
        milepost.Checkpoint(model=fresh, optimizer=restored).restore(path).assert_consumed()
        assert restored.param_groups[0]["maximize"] is by_torch.param_groups[0]["maximize"] is False

    def test_the_report_says_so(self, tmp_path):
        net, optimizer = trained("Adam")
        path = tmp_path / "old.pt"
        torch.save({"model": net.state_dict(), "optimizer": aged(optimizer)}, path)
        fresh, restored = trained("Adam")
        report = milepost.Checkpoint(model=fresh, optimizer=restored).restore(path).report()
        assert "decoupled_weight_decay" in str(report)
        assert "the default that load_state_dict of PyTorch gives it too" in str(report)
        assert not report.missing

    def test_a_class_of_a_users_that_derives_from_one_is_treated_alike(self, tmp_path):
        class Own(torch.optim.Adam):
            pass

        net, optimizer = trained("Adam")
        path = tmp_path / "old.pt"
        torch.save({"model": net.state_dict(), "optimizer": aged(optimizer)}, path)
        fresh = trained("Adam")[0]
        restored = Own(fresh.parameters())
        milepost.Checkpoint(model=fresh, optimizer=restored).restore(path).assert_consumed()
        step(net, optimizer)
        step(fresh, restored)
        assert torch.equal(net[0].weight, fresh[0].weight)

    def test_a_setting_that_pytorch_knows_no_default_of_is_missing(self, tmp_path):
        net, optimizer = trained("Adam")
        path = tmp_path / "old.pt"
        torch.save({"model": net.state_dict(), "optimizer": aged(optimizer, "betas")}, path)
        fresh, restored = trained("Adam")
        status = milepost.Checkpoint(model=fresh, optimizer=restored).restore(path).expect_partial()
        with pytest.raises(UnmatchedError, match="betas"):
            status.assert_existing_objects_matched()


class TestSchedulers:
    def test_the_rate_that_a_new_one_has_noted_stays_if_the_file_has_none(self, tmp_path):
        net, optimizer = trained("SGD")
        path = tmp_path / "without.pt"
        torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, path)
        fresh, restored = trained("SGD")
        restored.param_groups[0]["lr"] = 0.25
        torch.optim.lr_scheduler.StepLR(restored, 2)
        status = milepost.Checkpoint(model=fresh, optimizer=restored).restore(path).assert_consumed()
        assert restored.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"] != 0.25
        assert restored.param_groups[0]["initial_lr"] == 0.25
        assert any("initial_lr" in entry.key and "the live value stays" in entry.note for entry in status.report())

    def test_one_with_a_function_and_without_newer_settings_is_restored(self, tmp_path):
        def made():
            optimizer = torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=0.1, momentum=0.9)
            return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=10)

        old, fresh = made(), made()
        for _ in range(3):
            old.optimizer.step()
            old.step()
        state = old.state_dict()
        del state["_anneal_func_type"]
        state["anneal_func"] = torch.optim.lr_scheduler.OneCycleLR._annealing_cos  # as PyTorch before 1.13 wrote it
        path = tmp_path / "old.pt"
        torch.save({"scheduler": state}, path)
        status = milepost.Checkpoint(scheduler=fresh).restore(path).assert_consumed()
        assert fresh.last_epoch == 3
        assert "anneal_func" in str(status.report())
        fresh.optimizer.step()
        fresh.step()


class TestBatchNormalisation:
    def without_counts(self, net):
        return {name: tensor for name, tensor in net.state_dict().items() if "num_batches" not in name}

    @pytest.mark.parametrize("wrap", [torch.nn.Identity, torch.nn.DataParallel, lambda net: torch.nn.ModuleList([net])])
    def test_a_count_that_the_file_lacks_stays_as_it_is(self, tmp_path, wrap):
        net, fresh = trained("SGD")[0], trained("SGD")[0]
        fresh[1].num_batches_tracked += 4
        if wrap is not torch.nn.Identity:
            net, fresh = wrap(net), wrap(fresh)
        path = tmp_path / "old.pt"
        torch.save(self.without_counts(net), path)
        status = milepost.Checkpoint(fresh).read(path).assert_consumed()
        assert [int(each) for name, each in fresh.state_dict().items() if "num_batches" in name] == [7]
        assert [entry.outcome for entry in status.report() if "num_batches" in entry.key] == [Outcome.MATCHED]

    @pytest.mark.parametrize("version", [None, 1, 2])
    def test_the_version_in_the_file_decides_as_in_pytorch(self, tmp_path, version):
        net = trained("SGD")[0]
        state = collections.OrderedDict(self.without_counts(net))
        state._metadata = collections.OrderedDict(
            {"": {"version": 1}, "1": {} if version is None else {"version": version}}
        )
        path = tmp_path / "old.pt"
        torch.save({"model": state}, path)
        status = milepost.Checkpoint(model=net).restore(path).expect_partial()
        if version == 2:
            with pytest.raises(RuntimeError, match="Missing key"):
                net.load_state_dict(torch.load(path)["model"])
            with pytest.raises(UnmatchedError, match="num_batches_tracked"):
                status.assert_consumed()
        else:
            net.load_state_dict(torch.load(path)["model"])
            status.assert_consumed()


class TestWeightNormalisation:
    def test_the_names_of_its_first_form_fit_the_present_one(self, tmp_path):
        old = torch.nn.Sequential(torch.nn.utils.weight_norm(torch.nn.Linear(2, 3)))
        fresh = torch.nn.Sequential(torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(2, 3)))
        path = tmp_path / "old.pt"
        torch.save(old.state_dict(), path)
        milepost.Checkpoint(fresh).read(path).assert_consumed()
        assert torch.equal(old(torch.ones(1, 2)), fresh(torch.ones(1, 2)))
