"""Files of torch.save, restored through the same machinery as any checkpoint."""

import collections
import copy
import io
import json
import os
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import milepost
from milepost import CorruptCheckpointError, MilepostError, MismatchError, UnmatchedError, UnsupportedError
from milepost.engine.report import Outcome
from milepost.storage import MemoryStorage
from milepost.tools.cli import main

torch = pytest.importorskip("torch")
nn = pytest.importorskip("torch.nn")


class Net(nn.Module):  # type: ignore[name-defined]
    def __init__(self, width=3):
        super().__init__()
        self.l1 = torch.nn.Linear(2, width)
        self.norm = torch.nn.BatchNorm1d(width)
        self.l2 = torch.nn.Linear(width, 1)

    def forward(self, x):
        return self.l2(self.norm(self.l1(x)))


class Tied(nn.Module):  # type: ignore[name-defined]
    def __init__(self, *, tied=True):
        super().__init__()
        self.embedding = torch.nn.Embedding(5, 3)
        self.head = torch.nn.Linear(3, 5, bias=False)
        if tied:
            self.head.weight = self.embedding.weight


class Buffers(nn.Module):  # type: ignore[name-defined]
    def __init__(self, tensors):
        super().__init__()
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor)


def bits(tensor):
    tensor = tensor.detach().contiguous()
    return (tensor.reshape(1) if tensor.ndim == 0 else tensor).view(torch.uint8).tolist() if tensor.numel() else []


def same(first, second):
    first, second = first.state_dict(), second.state_dict()
    return first.keys() == second.keys() and all(bits(first[name]) == bits(second[name]) for name in first)


def saved(tmp_path, value, **how):
    path = tmp_path / "saved.pt"
    torch.save(value, path, **how)
    return path


def trained(optimizer=torch.optim.Adam, steps=3, **settings):
    torch.manual_seed(1)
    net = Net()
    made = optimizer(net.parameters(), lr=0.01, **settings)
    for _ in range(steps):
        step(net, made)
    return net, made


def step(net, optimizer):
    def loss():
        optimizer.zero_grad()
        value = (net(torch.arange(8.0).reshape(4, 2)) ** 2).mean()
        value.backward()
        return value

    optimizer.step(loss)


FORMATS = pytest.mark.parametrize("zipped", [True, False], ids=["archive", "legacy"])


class TestModels:
    @FORMATS
    def test_a_state_dict_restores_into_the_model(self, tmp_path, zipped):
        net, fresh = Net(), Net()
        path = saved(tmp_path, net.state_dict(), _use_new_zipfile_serialization=zipped)
        milepost.Checkpoint(fresh).read(path).assert_consumed()
        assert same(net, fresh)

    def test_a_model_as_the_root_of_a_checkpoint_takes_a_state_dict(self, tmp_path):
        net, fresh = Net(), Net()
        milepost.Checkpoint(fresh).restore(saved(tmp_path, net.state_dict())).assert_consumed()
        assert same(net, fresh)

    def test_a_model_under_its_name_takes_a_nested_state_dict(self, tmp_path):
        net, fresh = Net(), Net()
        path = saved(tmp_path, {"model": net.state_dict(), "epoch": 3})
        checkpoint = milepost.Checkpoint(model=fresh, epoch=milepost.Variable(0))
        checkpoint.restore(path).assert_consumed()
        assert same(net, fresh)
        assert int(checkpoint.epoch) == 3

    def test_parameters_keep_their_identity(self, tmp_path):
        fresh = Net()
        before = list(fresh.parameters())
        milepost.Checkpoint(fresh).read(saved(tmp_path, Net().state_dict()))
        assert all(first is second for first, second in zip(before, fresh.parameters(), strict=True))

    def test_where_no_name_is_that_of_an_object_the_error_says_what_to_do(self, tmp_path):
        status = milepost.Checkpoint(net=Net()).restore(saved(tmp_path, Net().state_dict())).expect_partial()
        with pytest.raises(UnmatchedError, match=r"make that object the root, as in milepost.Checkpoint\(net\)"):
            status.assert_existing_objects_matched()

    def test_where_the_file_has_a_level_more_the_error_names_it(self, tmp_path):
        status = milepost.Checkpoint(Net()).read(saved(tmp_path, {"model": Net().state_dict()})).expect_partial()
        with pytest.raises(UnmatchedError, match=r"milepost.Checkpoint\(model=...\)"):
            status.assert_consumed()

    def test_what_the_file_lacks_is_missing(self, tmp_path):
        state = Net().state_dict()
        del state["l2.weight"]
        report = milepost.Checkpoint(Net()).read(saved(tmp_path, state)).report()
        assert [entry.key for entry in report.missing] == ["l2/weight/.ATTRIBUTES/VARIABLE_VALUE"]
        assert report.counts()["matched"] == 8

    def test_what_only_the_file_has_waits(self, tmp_path):
        state = {**Net().state_dict(), "l3.weight": torch.ones(2)}
        status = milepost.Checkpoint(Net()).read(saved(tmp_path, state)).expect_partial()
        assert [entry.key for entry in status.report().deferred] == ["l3.weight"]

    def test_a_late_submodule_gets_its_values(self, tmp_path):
        net, fresh = Net(), Net()
        del fresh.l2
        status = milepost.Checkpoint(fresh).read(saved(tmp_path, net.state_dict()))
        fresh.l2 = torch.nn.Linear(3, 1)
        status.assert_consumed()
        assert same(net, fresh)

    def test_a_save_takes_along_what_waits(self, tmp_path):
        net, fresh = Net(), Net()
        del fresh.l2
        status = milepost.Checkpoint(fresh).read(saved(tmp_path, net.state_dict()))
        again = milepost.Checkpoint(fresh).write(tmp_path / "again")
        status.expect_partial()
        other = Net()
        milepost.Checkpoint(other).read(again).assert_consumed()
        assert same(net, other)

    def test_another_element_type_is_refused_and_changes_nothing(self, tmp_path):
        fresh = Net().double()
        before = {name: tensor.clone() for name, tensor in fresh.state_dict().items()}
        with pytest.raises(MismatchError, match=r"float64\[3,2\], as the live object has it"):
            milepost.Checkpoint(fresh).read(saved(tmp_path, Net().state_dict()))
        assert all(torch.equal(before[name], tensor) for name, tensor in fresh.state_dict().items())

    def test_another_shape_is_refused(self, tmp_path):
        with pytest.raises(MismatchError) as caught:
            milepost.Checkpoint(Net(4)).read(saved(tmp_path, Net().state_dict()))
        assert len(caught.value.report.of(Outcome.WRONG_SHAPE)) == 7

    def test_twelve_layers_into_sixteen_leave_four_missing(self, tmp_path):
        layers = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(12)))
        more = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(16)))
        report = milepost.Checkpoint(more).read(saved(tmp_path, layers.state_dict())).report()
        assert {entry.key.partition("/")[0] for entry in report.missing} == {"12", "13", "14", "15"}

    def test_extra_state_is_restored(self, tmp_path):
        class Counting(nn.Linear):
            calls = 0

            def get_extra_state(self):
                return {"calls": self.calls, "seen": [1.5, None], "at": torch.arange(2)}

            def set_extra_state(self, state):
                self.calls, self.state = state["calls"], state

        net, fresh = torch.nn.Sequential(Counting(1, 1)), torch.nn.Sequential(Counting(1, 1))
        net[0].calls = 5
        milepost.Checkpoint(fresh).read(saved(tmp_path, net.state_dict())).assert_consumed()
        assert fresh[0].calls == 5
        assert fresh[0].state["seen"] == [1.5, None]
        assert torch.equal(fresh[0].state["at"], torch.arange(2))

    def test_a_program_without_torch_can_look_into_the_file(self, tmp_path):
        path = saved(tmp_path, {"model": Net().state_dict(), "epoch": 3})
        code = f"import milepost, sys; print(milepost.list_variables({str(path)!r})[:2], 'torch' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == "[('epoch', []), ('model/l1.bias', [3])] False\n"

    def test_a_tensor_is_read_by_its_name(self, tmp_path):
        net = Net()
        read = milepost.load_variable(saved(tmp_path, net.state_dict()), "l1.weight")
        np.testing.assert_array_equal(read, net.l1.weight.detach().numpy())

    def test_any_storage_will_do(self, tmp_path):
        net, fresh = Net(), Net()
        storage = MemoryStorage()
        with storage.create("net.pt") as file:
            file.write(0, [saved(tmp_path, net.state_dict()).read_bytes()])
        milepost.Checkpoint(fresh).read("net.pt", milepost.CheckpointOptions(storage=storage)).assert_consumed()
        assert same(net, fresh)

    def test_it_gives_no_right_to_overwrite_numbered_checkpoints(self, tmp_path):
        milepost.Checkpoint(Net()).save(tmp_path / "ckpt")
        checkpoint = milepost.Checkpoint(Net())
        checkpoint.restore(saved(tmp_path, Net().state_dict()))
        with pytest.raises(milepost.CheckpointExistsError):
            checkpoint.save(tmp_path / "ckpt")


class TestNames:
    @pytest.mark.parametrize(
        "wrap",
        [
            torch.nn.DataParallel,
            torch.compile,
            lambda net: torch.compile(torch.nn.DataParallel(net)),
            lambda net: torch.nn.DataParallel(torch.compile(net)),
        ],
        ids=["DataParallel", "compile", "compile(DataParallel)", "DataParallel(compile)"],
    )
    def test_levels_of_wrappers_are_passed_over(self, tmp_path, wrap):
        net, fresh, wrapped = Net(), Net(), wrap(Net())
        path = saved(tmp_path, wrap(net).state_dict())
        milepost.Checkpoint(fresh).read(path).assert_consumed()
        milepost.Checkpoint(wrapped).read(path).assert_consumed()
        assert same(net, fresh)
        assert same(wrap(net), wrapped)

    def test_a_wrapped_submodule_is_its_plain_twin(self, tmp_path):
        net, fresh = Net(), Net()
        net.l1 = torch.compile(net.l1)
        assert "l1._orig_mod.weight" in net.state_dict()
        milepost.Checkpoint(fresh).read(saved(tmp_path, net.state_dict())).assert_consumed()
        assert torch.equal(fresh.l1.weight, net.l1.weight)

    def test_a_plain_file_fits_a_wrapped_model(self, tmp_path):
        net, fresh = Net(), torch.nn.DataParallel(Net())
        milepost.Checkpoint(fresh).read(saved(tmp_path, net.state_dict())).assert_consumed()
        assert same(net, fresh.module)

    def test_a_child_of_that_name_is_no_wrapper(self, tmp_path):
        net, fresh = torch.nn.Module(), torch.nn.Module()
        net.module, fresh.module = Net(), Net()
        milepost.Checkpoint(fresh).read(saved(tmp_path, net.state_dict())).assert_consumed()
        assert same(net, fresh)

    def test_an_averaged_model_keeps_its_own_level(self, tmp_path):
        net, fresh = (torch.optim.swa_utils.AveragedModel(Net()) for _ in range(2))
        net.n_averaged += 3
        milepost.Checkpoint(fresh).read(saved(tmp_path, net.state_dict())).assert_consumed()
        assert same(net, fresh)

    @pytest.mark.parametrize("tied", [True, False])
    def test_tied_weights_reach_both_names(self, tmp_path, tied):
        net, fresh = Tied(), Tied(tied=tied)
        milepost.Checkpoint(fresh).read(saved(tmp_path, net.state_dict())).assert_consumed()
        assert same(net, fresh)

    @pytest.mark.parametrize("name", ["embedding.weight", "head.weight"])
    def test_one_name_of_tied_weights_is_enough(self, tmp_path, name):
        net, fresh = Tied(), Tied()
        milepost.Checkpoint(fresh).read(saved(tmp_path, {name: net.state_dict()[name]})).assert_consumed()
        assert same(net, fresh)

    def test_different_tensors_for_tied_weights_are_not_passed_over(self, tmp_path):
        status = milepost.Checkpoint(Tied()).read(saved(tmp_path, Tied(tied=False).state_dict())).expect_partial()
        assert [entry.key for entry in status.report().unexpected] == ["embedding.weight"]


def test_a_file_of_another_library_belongs_to_no_series(tmp_path):
    status = milepost.Checkpoint(Net()).read(saved(tmp_path, Net().state_dict()))
    assert not status.belongs_to_series
    with pytest.raises(AttributeError, match="use belongs_to_series"):
        _ = status.foreign


class TestRenaming:
    LAYERS = {  # noqa: RUF012 - never changed
        "model": {"l1.weight": torch.ones(2)},
        "model_ema": {"n": torch.tensor(1), "module.l1.weight": torch.zeros(2)},
    }

    def read(self, path, **arguments):
        live = torch.nn.Module()
        live.l1 = torch.nn.Module()
        live.l1.weight = torch.nn.Parameter(torch.full((2,), 5.0))
        milepost.Checkpoint(model=live).read(path, **arguments).expect_partial()
        return live.l1.weight.tolist()

    def test_names_that_differ_only_in_what_separates_levels_are_one_name(self, tmp_path):
        """As averaged weights do that take the place of the weights themselves."""
        path = saved(tmp_path, self.LAYERS)
        with pytest.raises(milepost.UnsupportedError, match="two saved values would have the same name"):
            self.read(path, rename={"model_ema.module": "model"}, only="model")

    def test_averaged_weights_take_the_place_of_the_weights(self, tmp_path):
        path = saved(tmp_path, self.LAYERS)
        assert self.read(path, rename={"model_ema.module": "model", "model": "raw"}, only="model") == [0, 0]


class TestTensors:
    TENSORS = {  # noqa: RUF012 - never changed
        "permuted": torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1),
        "channels_last": torch.arange(96.0).reshape(2, 3, 4, 4).to(memory_format=torch.channels_last),
        "expanded": torch.ones(3).expand(2, 3),
        "part": torch.arange(10)[3:5],
        "strided": torch.arange(10.0)[1::3],
        "scalar": torch.tensor(3),
        "empty": torch.zeros(0, 2),
        **{
            str(dtype): torch.arange(1, 5).to(dtype)
            for dtype in (
                *(torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128, torch.bool),
                *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.uint16, torch.uint32, torch.uint64),
                *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
                *(torch.float8_e8m0fnu, torch.complex32),
            )
        },
    }

    @FORMATS
    @pytest.mark.parametrize("name", TENSORS)
    def test_every_layout_and_element_type_is_restored(self, tmp_path, name, zipped):
        tensor = self.TENSORS[name]
        path = saved(tmp_path, {"it": tensor}, _use_new_zipfile_serialization=zipped)
        fresh = Buffers({"it": torch.zeros(tensor.shape, dtype=tensor.dtype)})
        milepost.Checkpoint(fresh).read(path).assert_consumed()
        assert bits(fresh.it) == bits(tensor)

    def test_parameters_and_buffers_as_such_are_restored(self, tmp_path):
        parameter = torch.nn.Parameter(torch.ones(2))
        parameter.note = "attributes are of no account"
        state = {"parameter": parameter, "buffer": torch.nn.Buffer(torch.ones(3))}
        fresh = Buffers({"parameter": torch.zeros(2), "buffer": torch.zeros(3)})
        milepost.Checkpoint(fresh).read(saved(tmp_path, state)).assert_consumed()
        assert fresh.parameter.tolist() == [1.0, 1.0]

    @pytest.mark.parametrize(
        ("tensor", "found"),
        [
            (torch.ones(2).to_sparse(), "a sparse tensor"),
            (torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), "a quantised tensor"),
            (torch.ones(2, device="meta"), "a tensor of the meta device"),
            (torch._neg_view(torch.arange(2)), "in a way that milepost does not know"),
        ],
        ids=["sparse", "quantised", "meta", "negated integers"],
    )
    # PyTorch says of some kinds that they are new or deprecated.
    @pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
    def test_tensors_that_are_not_plain_are_refused_when_asked_for(self, tmp_path, tensor, found):
        path = saved(tmp_path, {"it": tensor, "plain": torch.ones(2)})
        with pytest.raises(UnsupportedError, match=found) as caught:
            milepost.load_variable(path, "it")
        assert caught.value.key == "it"
        assert milepost.load_variable(path, "plain").tolist() == [1.0, 1.0]

    @pytest.mark.parametrize("zipped", [True, False])
    @pytest.mark.parametrize(
        "view",
        [torch.conj, lambda x: x.mH, lambda x: x.conj().imag, lambda x: x.conj().imag.T, lambda x: x.conj()[1:, ::2]],
        ids=["conj", "adjoint", "imag", "transposed imag", "slice"],
    )
    def test_views_that_are_conjugated_or_negated_are_read_as_they_are(self, tmp_path, view, zipped):
        tensor = view(torch.randn(3, 4, dtype=torch.complex64))
        path = saved(tmp_path, {"it": tensor}, _use_new_zipfile_serialization=zipped)
        found = milepost.load(path, arrays="torch")["it"]
        assert found.dtype == tensor.dtype
        assert bits(found) == bits(tensor.resolve_conj().resolve_neg())
        fresh = Buffers({"it": torch.zeros(tensor.shape, dtype=tensor.dtype)})
        milepost.Checkpoint(fresh).read(path).assert_consumed()
        assert bits(fresh.it) == bits(tensor.resolve_conj().resolve_neg())

    def test_a_lone_tensor_has_the_key_of_a_root_in_checkpoints(self, tmp_path):
        own = milepost.Checkpoint(milepost.Variable([1.0, 1.0])).write(tmp_path / "own")
        (shown,) = milepost.list_variables(saved(tmp_path, torch.ones(2)))
        assert shown in milepost.list_variables(own)

    def test_numbers_and_arrays_of_numpy_are_read(self, tmp_path):
        values = {"best": np.float64(1.5), "curve": np.arange(6, dtype=np.int32).reshape(2, 3).T}
        reader = milepost.load_checkpoint(saved(tmp_path, values))
        assert reader.get_tensor("best") == 1.5
        np.testing.assert_array_equal(reader.get_tensor("curve"), values["curve"])


OPTIMIZERS = {
    "SGD": (torch.optim.SGD, {}),
    "SGD with momentum": (torch.optim.SGD, {"momentum": 0.9}),
    "Adam": (torch.optim.Adam, {}),
    "AdamW amsgrad": (torch.optim.AdamW, {"amsgrad": True}),
    "NAdam": (torch.optim.NAdam, {}),
    "RAdam": (torch.optim.RAdam, {}),
    "Adamax": (torch.optim.Adamax, {}),
    "Adagrad": (torch.optim.Adagrad, {}),
    "Adadelta": (torch.optim.Adadelta, {}),
    "RMSprop": (torch.optim.RMSprop, {"centered": True, "momentum": 0.9}),
    "Rprop": (torch.optim.Rprop, {}),
    "ASGD": (torch.optim.ASGD, {}),
    "Adafactor": (torch.optim.Adafactor, {}),
    "LBFGS": (torch.optim.LBFGS, {"history_size": 3, "max_iter": 2}),
}


class TestOptimizers:
    @pytest.mark.parametrize("name", OPTIMIZERS)
    def test_training_goes_on_as_if_nothing_had_happened(self, tmp_path, name):
        kind, settings = OPTIMIZERS[name]
        net, optimizer = trained(kind, **settings)
        path = saved(tmp_path, {"model": net.state_dict(), "optimizer": optimizer.state_dict()})
        fresh = Net()
        restored = kind(fresh.parameters(), lr=0.5, **settings)
        milepost.Checkpoint(model=fresh, optimizer=restored).restore(path).assert_consumed()
        for _ in range(3):
            step(net, optimizer)
            step(fresh, restored)
        assert same(net, fresh)

    def test_an_optimizer_that_has_taken_steps_is_restored_in_place(self, tmp_path):
        net, optimizer = trained()
        path = saved(tmp_path, {"model": net.state_dict(), "optimizer": optimizer.state_dict()})
        other, used = trained(steps=5)
        milepost.Checkpoint(model=other, optimizer=used).restore(path).assert_consumed()
        step(net, optimizer)
        step(other, used)
        assert same(net, other)

    def test_positions_go_by_the_order_of_the_groups(self, tmp_path):
        def made(net):
            return torch.optim.Adam(
                [{"params": [net.l2.weight, net.l2.bias], "lr": 0.3}, {"params": net.l1.parameters()}]
            )

        net, fresh = Net(), Net()
        optimizer, restored = made(net), made(fresh)
        step(net, optimizer)
        path = saved(tmp_path, {"net": net.state_dict(), "optimizer": optimizer.state_dict()})
        milepost.Checkpoint(net=fresh, optimizer=restored).restore(path).assert_consumed()
        assert restored.param_groups[0]["lr"] == 0.3
        for parameter, other in ((net.l2.bias, fresh.l2.bias), (net.l1.weight, fresh.l1.weight)):
            assert torch.equal(optimizer.state[parameter]["exp_avg"], restored.state[other]["exp_avg"])

    def test_a_file_of_the_optimizer_alone_finds_the_parameters(self, tmp_path):
        net, optimizer = trained()
        fresh = Net()
        restored = torch.optim.Adam(fresh.parameters())
        path = saved(tmp_path, optimizer.state_dict())
        status = milepost.Checkpoint(restored, net=fresh).restore(path)
        assert len(status.report().missing) == len(fresh.state_dict())
        assert torch.equal(restored.state[fresh.l2.weight]["exp_avg"], optimizer.state[net.l2.weight]["exp_avg"])

    def test_parameters_of_a_wrapped_model_are_those_of_the_plain_one(self, tmp_path):
        net, optimizer = trained()
        path = saved(tmp_path, {"model": nn.DataParallel(net).state_dict(), "optimizer": optimizer.state_dict()})
        fresh = Net()
        restored = torch.optim.Adam(fresh.parameters())
        milepost.Checkpoint(model=fresh, optimizer=restored).restore(path).assert_consumed()
        step(net, optimizer)
        step(fresh, restored)
        assert same(net, fresh)

    def test_numbers_stay_numbers_where_the_optimizer_has_them(self, tmp_path):
        def stepped(net, optimizer):
            optimizer.zero_grad()
            net(torch.tensor([1, 3])).sum().backward()
            optimizer.step()

        def made():
            net = nn.Embedding(5, 3, sparse=True)
            return net, torch.optim.SparseAdam(net.parameters())

        (net, optimizer), (fresh, restored) = made(), made()
        stepped(net, optimizer)
        path = saved(tmp_path, {"net": net.state_dict(), "optimizer": optimizer.state_dict()})
        milepost.Checkpoint(net=fresh, optimizer=restored).restore(path).assert_consumed()
        assert restored.state[fresh.weight]["step"] == 1
        stepped(net, optimizer)
        stepped(fresh, restored)
        assert same(net, fresh)

    def test_other_groups_are_refused_and_nothing_changes(self, tmp_path):
        net, optimizer = trained()
        path = saved(tmp_path, {"model": net.state_dict(), "optimizer": optimizer.state_dict()})
        fresh = Net()
        before = fresh.l1.weight.clone()
        restored = torch.optim.Adam(fresh.l1.parameters())
        with pytest.raises(MismatchError, match="groups of 2 parameters, as the live optimizer has"):
            milepost.Checkpoint(model=fresh, optimizer=restored).restore(path)
        assert torch.equal(fresh.l1.weight, before)
        assert not restored.state

    def test_steps_that_are_numbers_become_tensors(self, tmp_path):
        net, optimizer = trained()
        state = copy.deepcopy(optimizer.state_dict())
        for each in state["state"].values():
            each["step"] = int(each["step"])  # as PyTorch wrote them before 1.12
        fresh = Net()
        restored = torch.optim.Adam(fresh.parameters())
        path = saved(tmp_path, {"model": net.state_dict(), "optimizer": state})
        milepost.Checkpoint(model=fresh, optimizer=restored).restore(path).assert_consumed()
        step(net, optimizer)
        step(fresh, restored)
        assert same(net, fresh)

    def test_state_of_a_parameter_that_the_checkpoint_does_not_know_is_unexpected(self, tmp_path):
        _, optimizer = trained()
        restored = torch.optim.Adam(Net().parameters())
        status = milepost.Checkpoint(optimizer=restored).restore(saved(tmp_path, {"optimizer": optimizer.state_dict()}))
        status.expect_partial()
        assert "optimizer/state/0/exp_avg" in [entry.key for entry in status.report().unexpected]

    def test_slot_variables_can_be_left_out(self, tmp_path):
        net, optimizer = trained()
        path = saved(tmp_path, {"model": net.state_dict(), "optimizer": optimizer.state_dict()})
        fresh = Net()
        restored = torch.optim.Adam(fresh.parameters())
        options = milepost.CheckpointOptions(experimental_skip_slot_variables=True)
        milepost.Checkpoint(model=fresh, optimizer=restored).restore(path, options).assert_consumed()
        assert not restored.state


class TestOtherState:
    @pytest.mark.parametrize(
        "make",
        [
            lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 2),
            lambda optimizer: torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 4]),
            lambda optimizer: torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer),
            lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3),
        ],
        ids=["StepLR", "MultiStepLR", "ReduceLROnPlateau", "CosineAnnealingWarmRestarts"],
    )
    def test_schedulers_are_restored(self, tmp_path, make):
        def stepped(scheduler, times):
            plateau = isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)
            for _ in range(times):
                scheduler.optimizer.step()
                scheduler.step(*((1.0,) if plateau else ()))
            return scheduler.state_dict()

        net, optimizer = trained()
        scheduler = make(optimizer)
        stepped(scheduler, 3)
        state = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
        path = saved(tmp_path, state)
        fresh = Net()
        restored = torch.optim.Adam(fresh.parameters(), lr=0.5)
        other = make(restored)
        milepost.Checkpoint(net=fresh, optimizer=restored, scheduler=other).restore(path).assert_consumed()
        assert stepped(other, 2) == stepped(scheduler, 2)
        assert restored.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]

    def test_a_scheduler_that_is_made_later_is_restored(self, tmp_path):
        _, optimizer = trained()
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        scheduler.step()
        checkpoint = milepost.Checkpoint()
        status = checkpoint.restore(saved(tmp_path, {"scheduler": scheduler.state_dict()}))
        checkpoint.scheduler = torch.optim.lr_scheduler.StepLR(trained()[1], 2)
        status.assert_consumed()
        assert checkpoint.scheduler.last_epoch == 1

    def test_a_generator_is_restored(self, tmp_path):
        generator, fresh = torch.Generator().manual_seed(3), torch.Generator()
        path = saved(tmp_path, {"generator": generator.get_state()})
        milepost.Checkpoint(generator=fresh).restore(path).assert_consumed()
        assert torch.equal(torch.rand(3, generator=generator), torch.rand(3, generator=fresh))

    def test_objects_with_a_state_dict_get_all_plain_kinds_of_values(self, tmp_path):
        class Loader:
            def state_dict(self):
                return {}

            def load_state_dict(self, state):
                self.state = state

        state = {
            "text": "ab",
            "bytes": b"\xff\x00",
            "tuple": (1, None, True),
            "set": {1, 2},
            "big": 1 << 80,
            "complex": 1j,
            "size": torch.Size([2]),
            "counter": collections.Counter([1, 1]),
            "default": collections.defaultdict(list, a=[1]),
            "ordered": collections.OrderedDict(a=1),
            "array": bytearray(b"x"),
            "infinite": float("inf"),
        }
        loader = Loader()
        path = saved(tmp_path, {"loader": {**state, "tensor": torch.arange(3)}})
        milepost.Checkpoint(loader=loader).restore(path).assert_consumed()
        assert torch.equal(loader.state.pop("tensor"), torch.arange(3))
        assert loader.state == state

    @pytest.mark.parametrize("old", [False, True])
    @pytest.mark.parametrize("kind", [torch.Tensor, torch.nn.Parameter])
    def test_a_file_of_one_tensor_is_the_root(self, tmp_path, kind, old):
        tensor = torch.arange(6.0).reshape(2, 3)
        path = tmp_path / "tensor.pt"
        torch.save(kind(tensor), path, _use_new_zipfile_serialization=not old)
        ((key, shape),) = milepost.list_variables(path)
        assert shape == [2, 3]
        assert np.array_equal(milepost.load_variable(path, key), tensor.numpy())
        for live in (milepost.Variable(np.zeros((2, 3), np.float32)), torch.zeros(2, 3)):
            milepost.Checkpoint(live).read(path).assert_consumed()
            assert np.array_equal(live.numpy(), tensor.numpy())

    def test_a_file_of_one_tensor_fits_no_name(self, tmp_path):
        path = tmp_path / "tensor.pt"
        torch.save(torch.ones(2), path)
        status = milepost.Checkpoint(w=milepost.Variable(np.zeros(2, np.float32))).read(path).expect_partial()
        with pytest.raises(milepost.UnmatchedError, match="make its variable or tensor the root"):
            status.assert_consumed()

    @pytest.mark.parametrize("value", [7, "a", None])
    def test_a_file_of_one_plain_value_is_refused(self, tmp_path, value):
        path = tmp_path / "value.pt"
        torch.save(value, path)
        with pytest.raises(UnsupportedError, match="single value without a name"):
            milepost.list_variables(path)

    def test_values_that_no_array_expresses_are_listed_as_text(self, tmp_path):
        path = saved(
            tmp_path, {"seen": {3, 1}, "frozen": frozenset("a"), "big": 1 << 80, "raw": bytearray(b"ab"), "no": None}
        )
        reader = milepost.load_checkpoint(path)
        assert {key: json.loads(reader.get_tensor(key)) for key in reader.keys()} == {  # noqa: SIM118 - a reader is no mapping
            "seen": {"!": "set", "items": [1, 3]},
            "frozen": {"!": "frozenset", "items": ["a"]},
            "big": 1 << 80,
            "raw": {"!": "bytearray", "text": "ab"},
        }

    def test_a_set_of_objects_is_listed_among_the_objects(self, tmp_path):
        path = saved(tmp_path, {"epoch": 1, "seen": {(1, Own())}})
        reader = milepost.load_checkpoint(path)
        assert "epoch" in reader.keys()  # noqa: SIM118 - a reader is no mapping
        assert "seen" not in reader.keys()  # noqa: SIM118 - a reader is no mapping

    @pytest.mark.parametrize(
        ("value", "variable"), [(3, 0), (3, np.int64(0)), (2.5, 0.0), (True, False), ("ab", ""), ([1, 2], [0, 0])]
    )
    def test_plain_values_go_to_variables(self, tmp_path, value, variable):
        checkpoint = milepost.Checkpoint(it=milepost.Variable(variable))
        checkpoint.restore(saved(tmp_path, {"it": value})).assert_consumed()
        found = checkpoint.it.numpy()
        assert found.tolist() == (value.encode() if isinstance(value, str) else value)

    def test_a_number_that_a_variable_cannot_hold_is_refused(self, tmp_path):
        with pytest.raises(MismatchError, match="float64"):
            milepost.Checkpoint(it=milepost.Variable(0)).restore(saved(tmp_path, {"it": 2.5}))

    def test_lists_of_states_are_matched_by_position(self, tmp_path):
        nets, fresh = [Net(), Net()], [Net(), Net()]
        path = saved(tmp_path, {"nets": [net.state_dict() for net in nets]})
        milepost.Checkpoint(nets=fresh).restore(path).assert_consumed()
        assert all(map(same, nets, fresh))


class Own:
    """A class of a user's, which only code could make an object of."""


class Malicious:
    def __reduce__(self):
        return os.mkdir, ("made by unpickling",)


def nested(levels):
    return {"d": nested(levels - 1)} if levels else 1


def with_itself():
    made = {}
    made["self"] = made
    return made


class TestHostileFiles:
    @FORMATS
    def test_an_object_that_needs_code_is_refused_by_name(self, tmp_path, zipped):
        path = saved(tmp_path, {"net": Net().state_dict(), "args": Own()}, _use_new_zipfile_serialization=zipped)
        with pytest.raises(UnsupportedError) as caught:
            milepost.load_variable(path, "args")
        assert caught.value.found == f"{Own.__module__}.Own"
        assert "torch.load" in caught.value.remedy

    @FORMATS
    def test_no_code_is_run(self, tmp_path, monkeypatch, zipped):
        monkeypatch.chdir(tmp_path)
        path = saved(tmp_path, {"it": Malicious()}, _use_new_zipfile_serialization=zipped)
        with pytest.raises(UnsupportedError, match=r"(posix|nt|os)\.mkdir"):
            milepost.load_variable(path, "it")
        assert not (tmp_path / "made by unpickling").exists()

    def test_an_array_of_objects_is_refused_as_such(self, tmp_path):
        with pytest.raises(UnsupportedError, match="arrays of Python objects"):
            milepost.load_variable(saved(tmp_path, {"words": np.array(["a", None], object)}), "words")

    def test_a_class_by_itself_is_refused(self, tmp_path):
        with pytest.raises(UnsupportedError, match="Own"):
            milepost.load_variable(saved(tmp_path, {"kind": Own}), "kind")

    def test_a_program_of_torchscript_is_refused(self, tmp_path):
        torch.jit.script(torch.nn.Linear(1, 1)).save(str(tmp_path / "program.pt"))
        with pytest.raises(UnsupportedError, match="TorchScript"):
            milepost.list_variables(tmp_path / "program.pt")

    def test_a_damaged_storage_is_found_before_anything_changes(self, tmp_path):
        net = Net()
        path = saved(tmp_path, net.state_dict())
        data = bytearray(path.read_bytes())
        data[data.index(net.l2.weight.detach().numpy().tobytes())] ^= 1
        path.write_bytes(data)
        fresh = Net()
        before = {name: tensor.clone() for name, tensor in fresh.state_dict().items()}
        with pytest.raises(CorruptCheckpointError, match="wrong checksum") as caught:
            milepost.Checkpoint(fresh).read(path)
        assert caught.value.key == "l2.weight"
        assert all(torch.equal(before[name], tensor) for name, tensor in fresh.state_dict().items())

    def test_a_file_without_checksums_is_read(self, tmp_path):
        net, fresh = Net(), Net()
        torch.serialization.set_crc32_options(False)
        try:
            path = saved(tmp_path, net.state_dict())
        finally:
            torch.serialization.set_crc32_options(True)
        milepost.Checkpoint(fresh).read(path).assert_consumed()
        assert same(net, fresh)

    def test_verify_compares_checksums_of_what_is_no_tensor(self, tmp_path):
        path = saved(tmp_path, Net().state_dict())
        with zipfile.ZipFile(path) as archive:
            record = archive.getinfo("saved/version")
            size = len(archive.read(record))
        data = bytearray(path.read_bytes())
        start = record.header_offset + 30 + sum(struct.unpack_from("<2H", data, record.header_offset + 26))
        data[start + size - 1] ^= 1
        path.write_bytes(data)
        with pytest.raises(CorruptCheckpointError, match="wrong checksum") as caught:
            milepost.load_checkpoint(path).verify()
        assert caught.value.key == "saved/version"

    def test_a_file_without_checksums_is_verified(self, tmp_path):
        torch.serialization.set_crc32_options(False)
        try:
            path = saved(tmp_path, Net().state_dict())
        finally:
            torch.serialization.set_crc32_options(True)
        milepost.load_checkpoint(path).verify()

    @FORMATS
    def test_a_file_that_is_cut_off_anywhere_is_refused(self, tmp_path, zipped):
        path = saved(tmp_path, Net().state_dict(), _use_new_zipfile_serialization=zipped)
        data = path.read_bytes()
        for size in range(0, len(data) - 1, 31):
            path.write_bytes(data[:size])
            with pytest.raises(MilepostError):
                milepost.list_variables(path)

    @FORMATS
    @given(data=st.data())
    def test_damage_anywhere_gives_errors_of_milepost_only(self, tmp_path_factory, zipped, data):
        content = _content(zipped)
        for _ in range(data.draw(st.integers(1, 4))):
            position = data.draw(st.integers(0, len(content) - 1))
            content[position] = data.draw(st.integers(0, 255))
        _open_all(tmp_path_factory.getbasetemp() / "damaged.pt", bytes(content))

    @given(pickled=st.binary(max_size=60))
    def test_any_pickled_bytes_give_errors_of_milepost_only(self, tmp_path_factory, pickled):
        _open_all(tmp_path_factory.getbasetemp() / "any.pt", _archive(b"\x80\x02" + pickled))

    @given(
        pickled=st.lists(
            st.sampled_from(
                [
                    *(
                        bytes([code])
                        for code in b"().012NIJKMRQUX]a}stuedbhqlroVS\n\x81\x82\x85\x86\x87\x88\x89\x8a\x90\x91"
                    ),
                    *(
                        b"\x92",
                        b"\x93",
                        b"\x94",
                        b"cm\nC\n",
                        b"cm\nC\n)\x81",
                        b"im\nC\n",
                        b"ccopyreg\n_reconstructor\n",
                    ),
                    *(b"cnumpy\ndtype\n", b"cnumpy._core.multiarray\n_reconstruct\n", b"ccollections\nOrderedDict\n"),
                    *(
                        b"ctorch._utils\n_rebuild_tensor_v2\n",
                        b"ctorch._utils\n_rebuild_parameter\n",
                        b"cbuiltins\nset\n",
                    ),
                    *(b"X\x01\x00\x00\x00a", b"K\x01", b"q\x00", b"h\x00", b"ctorch._tensor\n_rebuild_from_type_v2\n"),
                ]
            ),
            max_size=40,
        )
    )
    def test_any_instructions_give_errors_of_milepost_only(self, tmp_path_factory, pickled):
        _open_all(tmp_path_factory.getbasetemp() / "any.pt", _archive(b"\x80\x02" + b"".join(pickled) + b"."))

    def test_a_few_bytes_that_stand_for_very_many_are_refused(self, tmp_path):
        bomb = b"\x80\x02]q\x00" + b"".join(
            b"](" + b"h" + bytes([level]) + (b"h" + bytes([level])) * 9 + b"eq" + bytes([level + 1])
            for level in range(9)
        )
        path = tmp_path / "bomb.pt"
        path.write_bytes(_archive(bomb + b"."))
        with pytest.raises(MilepostError):
            milepost.list_variables(path)

    def test_a_key_whose_hash_would_take_for_ever_is_never_hashed(self, tmp_path):
        path = tmp_path / "key.pt"
        path.write_bytes(_archive(b"\x80\x02}K\x01" + b"2\x86" * 60 + b"K\x07s."))
        assert milepost.load_variable(path, "builtins.tuple") == 7

    def test_calls_that_copy_again_and_again_are_refused(self, tmp_path):
        text = b"X" + (1 << 20).to_bytes(4, "little") + b"a" * (1 << 20) + b"q\x00"
        copies = b"c_codecs\nencode\nq\x010](" + b"h\x01h\x00X\x06\x00\x00\x00latin1\x86R" * 10_000 + b"e."
        path = tmp_path / "copies.pt"
        path.write_bytes(_archive(b"\x80\x02" + text + b"0" + copies))
        with pytest.raises(CorruptCheckpointError, match="copy far more"):
            milepost.list_variables(path)

    @FORMATS
    @pytest.mark.parametrize(
        ("make", "problem"),
        [
            (lambda: with_itself(), "holds itself"),
            (lambda: nested(150), "too many levels"),
            (lambda: {"n": 10**5000}, "too many digits"),
        ],
        ids=["itself", "deep", "digits"],
    )
    def test_what_is_beyond_a_limit_is_not_called_damaged(self, tmp_path, zipped, make, problem, capsys):
        path = saved(tmp_path, {"w": torch.ones(2), "more": make()}, _use_new_zipfile_serialization=zipped)
        assert main(["verify", str(path)]) == 3
        captured = capsys.readouterr()
        assert "not read" in captured.out
        assert problem in captured.err
        assert "download" not in captured.err

    def test_a_list_that_holds_itself_is_refused(self, tmp_path):
        path = tmp_path / "endless.pt"
        path.write_bytes(_archive(b"\x80\x02]q\x00h\x00a."))
        with pytest.raises(UnsupportedError, match="holds itself"):
            milepost.list_variables(path)

    @pytest.mark.parametrize("size", [(1 << 40,), (1 << 20, 1 << 20, 1 << 20)])
    def test_a_tensor_of_few_elements_cannot_claim_many(self, tmp_path, size):
        strides = b"".join([b"K\x00"] * len(size))
        sizes = b"".join(b"\x8a\x08" + each.to_bytes(8, "little") for each in size)
        pickled = (
            b"\x80\x02}X\x01\x00\x00\x00actorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\n"
            b"X\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x01tQK\x00(" + sizes + b"t(" + strides + b"t\x89}tRs."
        )
        path = tmp_path / "claims.pt"
        path.write_bytes(_archive(pickled, bytes(4)))
        with pytest.raises(UnsupportedError, match="far more elements than are stored"):
            milepost.load_variable(path, "a")

    def test_other_archives_are_told_apart(self, tmp_path):
        (tmp_path / "program.zip").write_bytes(_archive(b"", b"").replace(b"data.pkl", b"data.txt"))
        with pytest.raises(UnsupportedError, match="neither PyTorch's nor Keras'"):
            milepost.list_variables(tmp_path / "program.zip")


def _content(zipped):
    buffer = io.BytesIO()
    state = {"l.weight": torch.ones(2), "epoch": 3, "more": [1.5, "text", None, {"a": (1, 2)}]}
    torch.save(state, buffer, _use_new_zipfile_serialization=zipped)
    return bytearray(buffer.getvalue())


def _archive(pickled, storage=None):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("it/data.pkl", pickled)
        if storage is not None:
            archive.writestr("it/data/0", storage)
    return buffer.getvalue()


def _open_all(path, content):
    path.write_bytes(content)
    try:
        reader = milepost.load_checkpoint(path)
        for key in reader.get_variable_to_shape_map():
            reader.get_tensor(key)
    except MilepostError:
        pass


MEASURE = """
import resource, sys
import torch, milepost
net = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(10)))
def peak():
    return next(int(line.split()[1]) >> 10 for line in open("/proc/self/status") if line.startswith("VmHWM"))
open("/proc/self/clear_refs", "w").write("5")
before = peak()
milepost.Checkpoint(net).read(sys.argv[1]).assert_consumed()
print(peak() - before)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="only Linux tells")
def test_a_restore_takes_little_more_memory_than_the_state(tmp_path):
    path = saved(tmp_path, torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(10))).state_dict())
    done = subprocess.run([sys.executable, "-c", MEASURE, str(path)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 64


@pytest.mark.parametrize(
    ("ignored", "kept"),
    [
        ("optimizer/state/1", {("exp_avg", 1), ("exp_avg_sq", 1), ("step", 1)}),
        ("optimizer/state/1/exp_avg", {("exp_avg", 1)}),
        ("optimizer/state/*/exp_avg", {("exp_avg", 0), ("exp_avg", 1)}),
        ("optimizer/state/exp_avg", {("exp_avg", 0), ("exp_avg", 1)}),
    ],
)
def test_state_that_is_ignored_by_its_name_in_the_file_stays(tmp_path, ignored, kept):
    def made(steps):
        layer = nn.Linear(2, 1)
        optimizer = torch.optim.Adam(layer.parameters())
        for _ in range(steps):
            optimizer.zero_grad()
            layer(torch.full((1, 2), float(steps))).sum().backward()
            optimizer.step()
        return layer, optimizer

    (saved, old), (live, new) = made(1), made(3)
    before = [dict(new.state[each]) for each in live.parameters()]
    before = [{name: each.clone() for name, each in state.items()} for state in before]
    torch.save({"model": saved.state_dict(), "optimizer": old.state_dict()}, tmp_path / "c.pt")
    status = milepost.Checkpoint(model=live, optimizer=new).read(tmp_path / "c.pt", ignore=ignored)
    status.assert_consumed().assert_existing_objects_matched()
    for number, (mine, other) in enumerate(zip(live.parameters(), saved.parameters(), strict=True)):
        assert new.state[mine].keys() == old.state[other].keys()
        for name, value in new.state[mine].items():
            expected = before[number][name] if (name, number) in kept else old.state[other][name]
            assert torch.equal(value, expected)


@pytest.mark.parametrize("form", ["torch.save", "milepost"])
def test_adamw_stays_what_it_is_after_the_state_of_adam(tmp_path, form):
    def made(kind):
        layer = nn.Linear(2, 1)
        return layer, kind(layer.parameters(), lr=0.1, weight_decay=0.1)

    (layer, adam), (live, adamw) = made(torch.optim.Adam), made(torch.optim.AdamW)
    if form == "milepost":
        path = milepost.Checkpoint(model=layer, optimizer=adam).write(tmp_path / "ckpt")
    else:
        path = tmp_path / "c.pt"
        torch.save({"model": layer.state_dict(), "optimizer": adam.state_dict()}, path)
    milepost.Checkpoint(model=live, optimizer=adamw).read(path).assert_consumed()
    assert adamw.param_groups[0]["decoupled_weight_decay"] is True


@pytest.mark.parametrize("options", [{}, {"cast": True}])
def test_a_number_that_would_become_infinite_is_refused(tmp_path, options):
    torch.save({"x": 1e300}, tmp_path / "x.pt")
    live = milepost.Variable(np.float32(0))
    with pytest.raises(MismatchError):
        milepost.Checkpoint(x=live).read(tmp_path / "x.pt", **options)
    assert live.numpy() == 0
