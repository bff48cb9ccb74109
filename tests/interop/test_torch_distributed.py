"""Directories of torch.distributed.checkpoint (DCP), read without PyTorch and restored like files of torch.save."""

import argparse
import collections
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import milepost
from milepost import CheckpointNotFoundError, CorruptCheckpointError, MismatchError, UnsupportedError
from milepost.restoring.load import open_any
from milepost.storage import MemoryStorage
from milepost.storage.default import DEFAULT_STORAGE
from milepost.tensor import TensorSlice

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
dcp = pytest.importorskip("torch.distributed.checkpoint")
states = pytest.importorskip("torch.distributed.checkpoint.state_dict")
directories = pytest.importorskip("tests.interop.dcp_directories")

saved, changed, in_pieces = directories.saved, directories.changed, directories.in_pieces

DTYPES = [
    *("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"),
    *("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64", "bool", "complex64", "complex128", "complex32"),
]  # fmt: skip
SHAPES = [(), (5,), (3, 4), (0,), (2, 0, 3), (2, 3, 4, 5)]


def net(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1))


def step(model, optimizer):
    optimizer.zero_grad()
    loss = model(torch.arange(8.0).reshape(4, 2)).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def contents(path):
    """Everything in a file or directory, by key."""
    reader = milepost.load_checkpoint(path)
    found = {key: np.asarray(reader.get_tensor(key)) for key in reader.keys()}  # noqa: SIM118 - a reader is no mapping
    return {
        key: (array.dtype, array.shape, array.tolist() if array.dtype == object else array.tobytes())
        for key, array in found.items()
    }


def as_of_torch_save(tmp_path, state):
    path = tmp_path / "state.pt"
    torch.save(state, path)
    return contents(path)


def random(dtype, shape):
    kind = getattr(torch, dtype)
    width = torch.empty(0, dtype=kind).element_size()
    data = torch.randint(0, 2 if dtype == "bool" else 256, (*shape, width), dtype=torch.uint8)
    return data.view(kind).reshape(shape)


class TestTensors:
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_every_element_type_and_shape_is_read_as_from_a_file_of_torch_save(self, tmp_path, dtype):
        state = {f"w{number}": random(dtype, shape) for number, shape in enumerate(SHAPES)}
        assert contents(saved(tmp_path / "dcp", state)) == as_of_torch_save(tmp_path, state)

    @pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex32", "bool"])
    def test_a_tensor_in_pieces_is_read_as_a_whole(self, tmp_path, dtype):
        tensor = random(dtype, (7, 5))
        boxes = [((0, 4), (0, 5)), ((4, 7), (0, 2)), ((4, 7), (2, 5))]
        path = in_pieces(tmp_path / "dcp", {"w": (tensor, boxes)})
        assert contents(path) == as_of_torch_save(tmp_path, {"w": tensor})

    def test_pieces_with_other_strides_are_read(self, tmp_path):
        tensor = torch.randn(6, 4).t()
        channels = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
        path = saved(tmp_path / "dcp", {"w": tensor, "c": channels, "cut": torch.arange(100)[10:20]})
        reader = milepost.load_checkpoint(path)
        assert np.array_equal(reader.get_tensor("w"), tensor.numpy())
        assert np.array_equal(reader.get_tensor("c"), channels.numpy())
        assert reader.get_tensor("cut").tolist() == list(range(10, 20))

    @given(data=st.data())
    def test_any_box_is_cut_from_the_whole(self, pieces, data):
        path, whole = pieces
        reader = open_any(DEFAULT_STORAGE, str(path))
        name = data.draw(st.sampled_from(sorted(whole)))
        extents = []
        for length in whole[name].shape:
            start = data.draw(st.integers(0, length - 1))
            extents.append((start, data.draw(st.integers(1, length - start))))
        box = TensorSlice(tuple(extents))
        expected = whole[name][box.resolve(whole[name].shape)]
        found = reader.read(name, box)
        assert (found.dtype, found.tobytes()) == (expected.dtype, expected.tobytes())
        target = np.empty(expected.shape, expected.dtype)
        reader.check(name, box)
        reader.read_into(name, target, box)
        assert np.array_equal(target, expected)
        reader.close()

    def test_only_the_pieces_of_a_box_are_read(self, tmp_path):
        tensor = torch.arange(4.0)
        path = in_pieces(tmp_path / "dcp", {"w": (tensor, [((0, 2),), ((2, 4),)])})
        data = bytearray((path / directories.DATA).read_bytes())
        last = data.rindex(tensor[2:].numpy().tobytes())
        data[last] ^= 1
        (path / directories.DATA).write_bytes(data)
        reader = open_any(DEFAULT_STORAGE, str(path))
        assert reader.read("w", TensorSlice(((0, 2),))).tolist() == [0, 1]
        with pytest.raises(CorruptCheckpointError, match="wrong checksum") as caught:
            reader.read("w")
        assert caught.value.key == "w"
        assert caught.value.file == str(path / directories.DATA)

    def test_element_types_that_tensorflow_lacks(self, tmp_path):
        values = torch.arange(4, dtype=torch.uint8)
        saved_values = {"a": torch.ones(2), "b": values.view(torch.float4_e2m1fn_x2), "c": values.view(torch.complex32)}
        loaded = milepost.load(saved(tmp_path / "dcp", saved_values), arrays="torch")
        for name, tensor in saved_values.items():
            assert loaded[name].dtype == tensor.dtype
            assert loaded[name].view(torch.uint8).equal(tensor.view(torch.uint8))

    def test_a_tensor_that_is_not_plain_is_refused_when_it_is_read(self, tmp_path):
        values = {
            "a": torch._neg_view(torch.arange(2)),
            "b": torch.ones(2),
            "c": torch.tensor([1 + 2j]).conj(),
        }
        path = saved(tmp_path / "dcp", values)
        reader = milepost.load_checkpoint(path)
        assert reader.get_tensor("b").tolist() == [1, 1]
        assert reader.get_tensor("c").tolist() == [1 - 2j]
        with pytest.raises(UnsupportedError, match="in a way that milepost does not know") as caught:
            reader.get_tensor("a")
        assert caught.value.key == "a"


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """A directory of tensors in pieces, and the tensors."""
    torch.manual_seed(0)
    tensors = {
        "rows": (torch.randn(7, 5), [((0, 3), (0, 5)), ((3, 4), (0, 5)), ((4, 7), (0, 5))]),
        "columns": (torch.randn(300, 40), [((0, 300), (start, start + 10)) for start in range(0, 40, 10)]),
        "grid": (
            torch.randn(4, 6, 3).half(),
            [((a, a + 2), (b, b + 2), (0, 3)) for a in range(0, 4, 2) for b in range(0, 6, 2)],
        ),
        "whole": (torch.randn(9).double(), [((0, 9),)]),
    }
    path = in_pieces(tmp_path_factory.mktemp("pieces") / "dcp", tensors)
    return path, {name: tensor.numpy() for name, (tensor, _) in tensors.items()}


class TestValues:
    STATE = {  # noqa: RUF012 - no test changes it
        "model": {"l1.weight": torch.ones(2, 3), "l1.bias": torch.zeros(2)},
        "epoch": 3,
        "loss": 0.25,
        "flag": True,
        "note": "text",
        "none": None,
        "numbers": [1, 2.5, "three"],
        "deep": [{"a": torch.ones(1)}, [torch.zeros(2), 7]],
        "pair": (torch.arange(3), 5),
        "counts": collections.Counter(a=2),
        "big": 1 << 70,
        "array": np.arange(4),
        "a": {"b.c": torch.ones(1), "d": {"e": 2}},
    }

    def test_names_and_values_are_those_of_a_file_of_torch_save(self, tmp_path):
        assert contents(saved(tmp_path / "dcp", self.STATE)) == as_of_torch_save(tmp_path, self.STATE)

    def test_a_state_that_was_not_flattened_is_read(self, tmp_path):
        path = saved(tmp_path / "dcp", self.STATE, planner=dcp.DefaultSavePlanner(flatten_state_dict=False))
        assert contents(path) == as_of_torch_save(tmp_path, self.STATE)

    def test_objects_of_classes_are_named_and_not_made(self, tmp_path):
        path = saved(tmp_path / "dcp", {"args": argparse.Namespace(lr=0.1), "w": torch.ones(2)})
        reader = milepost.load_checkpoint(path)
        assert reader.objects() == {"args": "argparse.Namespace"}
        assert reader.keys() == ["w"]

    def test_tensors_in_objects_are_read_by_name(self, tmp_path):
        path = saved(tmp_path / "dcp", {"ema": argparse.Namespace(shadow=torch.arange(3)), "w": (torch.ones(1),)})
        assert milepost.load_variable(path, "ema/shadow").tolist() == [0, 1, 2]
        assert milepost.load_variable(path, "w/0").tolist() == [1]

    def test_no_code_is_run(self, tmp_path):
        class Evil:
            def __reduce__(self):
                return os.mkdir, (str(tmp_path / "ran"),)

        path = changed(
            saved(tmp_path / "dcp", {"w": torch.ones(2)}), lambda metadata: setattr(metadata, "storage_meta", Evil())
        )
        assert milepost.load_variable(path, "w").tolist() == [1, 1]
        assert not (tmp_path / "ran").exists()

    def test_a_program_without_torch_reads_it(self, tmp_path):
        path = saved(tmp_path / "dcp", self.STATE)
        program = """
import sys
sys.modules["torch"] = None
import milepost
print(milepost.list_variables(sys.argv[1])[:2])
w = milepost.Variable(milepost.load_variable(sys.argv[1], "a/b.c") * 0)
milepost.Checkpoint(a={"b": {"c": w}}).read(sys.argv[1]).expect_partial()
print(w.numpy(), int(milepost.load_checkpoint(sys.argv[1]).get_tensor("epoch")))
"""
        done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
        assert done.stdout == "[('a/b.c', [1]), ('a/d/e', [])]\n[1.] 3\n"

    def test_any_storage_will_do(self, tmp_path):
        path = saved(tmp_path / "dcp", self.STATE)
        storage = MemoryStorage()
        storage.make_directory("run")
        for file in path.iterdir():
            with storage.create(f"run/{file.name}") as copy:
                copy.write(0, [file.read_bytes()])
        assert milepost.load_checkpoint("run", milepost.CheckpointOptions(storage=storage)).get_tensor(
            "pair/0"
        ).tolist() == [0, 1, 2]


OPTIMIZERS = {
    "adamw": lambda parameters, lr: torch.optim.AdamW(parameters, lr=lr, amsgrad=True),
    "momentum": lambda parameters, lr: torch.optim.SGD(parameters, lr=lr, momentum=0.9),
    "without state": lambda parameters, lr: torch.optim.SGD(parameters, lr=lr),
    "nadam": lambda parameters, lr: torch.optim.NAdam(parameters, lr=lr),
}


def program(make, lr=0.1, seed=0, groups=None):
    model = net(seed)
    return milepost.Checkpoint(model=model, optimizer=make(groups(model) if groups else model.parameters(), lr))


def state_of(checkpoint, way):
    if way == "numbers":
        return {"model": checkpoint.model.state_dict(), "optimizer": checkpoint.optimizer.state_dict()}
    options = states.StateDictOptions(flatten_optimizer_state_dict=way == "flat")
    model, optimizer = states.get_state_dict(checkpoint.model, checkpoint.optimizer, options=options)
    return {"model": model, "optimizer": optimizer}


def two_groups(model, order=(0, 1)):
    groups = [{"params": list(model[0].parameters())}, {"params": [*model[1].parameters(), *model[2].parameters()]}]
    return [groups[number] for number in order]


class TestRestoring:
    def test_a_model_alone(self, tmp_path):
        fresh, trained = net(1), net(2)
        milepost.Checkpoint(fresh).read(saved(tmp_path / "dcp", trained.state_dict())).assert_consumed()
        assert all(torch.equal(a, b) for a, b in zip(fresh.parameters(), trained.parameters(), strict=True))

    @pytest.mark.parametrize("way", ["names", "flat", "numbers"])
    @pytest.mark.parametrize("kind", OPTIMIZERS)
    def test_training_goes_on_bit_for_bit(self, tmp_path, kind, way):
        first = program(OPTIMIZERS[kind])
        for _ in range(2):
            step(first.model, first.optimizer)
        path = saved(tmp_path / "dcp", state_of(first, way))
        second = program(OPTIMIZERS[kind], lr=0.7, seed=9)
        second.restore(path).assert_consumed()
        assert [step(second.model, second.optimizer) for _ in range(3)] == [
            step(first.model, first.optimizer) for _ in range(3)
        ]

    @pytest.mark.parametrize("way", ["names", "flat"])
    def test_state_with_names_is_restored_into_groups_in_another_order(self, tmp_path, way):
        first = program(OPTIMIZERS["adamw"], groups=two_groups)
        first.optimizer.param_groups[1]["lr"] = 0.03
        step(first.model, first.optimizer)
        path = saved(tmp_path / "dcp", state_of(first, way))
        second = program(OPTIMIZERS["adamw"], seed=9, groups=lambda model: two_groups(model, (1, 0)))
        second.restore(path).assert_consumed()
        assert [group["lr"] for group in second.optimizer.param_groups] == [0.03, 0.1]
        assert step(second.model, second.optimizer) == step(first.model, first.optimizer)

    @pytest.mark.parametrize("way", ["names", "flat"])
    @pytest.mark.parametrize("parts", ["together", "model and optimizer"])
    @pytest.mark.parametrize(
        "rename",
        [
            {"model/0": "model/first"},
            [(r"(^|[/.])0[.]", r"\1first.")],
            lambda name: re.sub(r"(model|state|param_groups)([./])0[.]", r"\1\2first.", name),
        ],
        ids=["mapping", "expression", "function"],
    )
    def test_the_state_of_an_optimizer_follows_renamed_parameters(self, tmp_path, way, parts, rename):
        first = program(OPTIMIZERS["adamw"])
        step(first.model, first.optimizer)
        state = state_of(first, way)
        files = [state] if parts == "together" else [{name: part} for name, part in state.items()]
        model = torch.nn.Sequential(collections.OrderedDict(zip(["first", "1", "2"], net(9), strict=True)))
        second = milepost.Checkpoint(model=model, optimizer=OPTIMIZERS["adamw"](model.parameters(), 0.7))
        for number, part in enumerate(files):
            second.restore(saved(tmp_path / str(number), part), rename=rename).expect_partial()
        assert step(second.model, second.optimizer) == step(first.model, first.optimizer)

    @pytest.mark.parametrize("way", ["names", "flat"])
    def test_the_state_of_an_optimizer_follows_layers_that_are_exchanged(self, tmp_path, way):
        def layers(seed):
            torch.manual_seed(seed)
            model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
            return milepost.Checkpoint(model=model, optimizer=torch.optim.Adam(model.parameters()))

        first, second = layers(1), layers(2)
        step(first.model, first.optimizer)
        path = saved(tmp_path / "dcp", state_of(first, way))
        second.restore(path, rename={"model/0": "model/1", "model/1": "model/0"}).assert_consumed()
        for number in (0, 1):
            old, new = first.model[number].weight, second.model[1 - number].weight
            assert torch.equal(old, new)
            assert torch.equal(first.optimizer.state[old]["exp_avg"], second.optimizer.state[new]["exp_avg"])

    @pytest.mark.parametrize("way", ["names", "flat"])
    def test_the_state_of_other_parameters_is_refused(self, tmp_path, way):
        first = program(OPTIMIZERS["adamw"])
        path = saved(tmp_path / "dcp", state_of(first, way))
        second = program(OPTIMIZERS["adamw"], groups=lambda model: model[0].parameters())
        before = second.model[0].weight.clone()
        with pytest.raises(MismatchError, match="belongs to other parameters") as caught:
            second.restore(path)
        assert "'0.weight', '0.bias', '1.weight', '1.bias', '2.weight', ... (6 in all)" in caught.value.found
        assert torch.equal(before, second.model[0].weight)

    def test_the_state_of_other_groups_is_refused(self, tmp_path):
        path = saved(tmp_path / "dcp", state_of(program(OPTIMIZERS["adamw"]), "names"))
        second = program(OPTIMIZERS["adamw"], groups=two_groups)
        with pytest.raises(MismatchError, match="belongs to other parameter groups"):
            second.restore(path)

    @pytest.mark.parametrize("way", ["numbers", "names", "flat"])
    @pytest.mark.parametrize(
        "selection",
        [
            {"ignore": "optimizer/param_groups"},
            {"only": ["model", "optimizer/state"]},
            {"rename": lambda name: None if "param_groups" in name else name},
        ],
        ids=["ignore", "only", "function"],
    )
    def test_groups_that_are_left_out_may_be_others(self, tmp_path, way, selection):
        first = program(OPTIMIZERS["adamw"], groups=two_groups)
        first.optimizer.param_groups[1]["lr"] = 0.03
        step(first.model, first.optimizer)
        second = program(OPTIMIZERS["adamw"], lr=0.7, seed=9)
        second.restore(saved(tmp_path / "dcp", state_of(first, way)), **selection).expect_partial()
        assert second.optimizer.param_groups[0]["lr"] == 0.7
        for one, other in zip(first.model.parameters(), second.model.parameters(), strict=True):
            assert torch.equal(first.optimizer.state[one]["exp_avg"], second.optimizer.state[other]["exp_avg"])

    @pytest.mark.parametrize("way", ["numbers", "names", "flat"])
    def test_what_means_parameters_does_not_mean_their_state(self, tmp_path, way):
        first = program(OPTIMIZERS["adamw"])
        step(first.model, first.optimizer)
        second = program(OPTIMIZERS["adamw"], seed=9)
        second.restore(saved(tmp_path / "dcp", state_of(first, way)), only="*.weight").assert_consumed()
        assert torch.equal(second.model[0].weight, first.model[0].weight)
        assert not second.optimizer.state

    def test_state_of_other_groups_by_positions_in_another_order_is_refused(self, tmp_path):
        first = program(OPTIMIZERS["adamw"], groups=lambda model: two_groups(model, (1, 0)))
        step(first.model, first.optimizer)
        path = saved(tmp_path / "dcp", state_of(first, "numbers"))
        with pytest.raises(MismatchError, match="belongs to other parameter groups"):
            program(OPTIMIZERS["adamw"]).restore(path, ignore="optimizer/param_groups")

    def test_different_hyperparameters_in_one_live_group_are_refused(self, tmp_path):
        first = program(OPTIMIZERS["adamw"], groups=two_groups)
        first.optimizer.param_groups[1]["lr"] = 0.03
        path = saved(tmp_path / "dcp", state_of(first, "flat"))
        with pytest.raises(MismatchError, match="saved with different hyperparameters"):
            program(OPTIMIZERS["adamw"]).restore(path)

    def test_an_optimizer_without_its_model_is_refused(self, tmp_path):
        path = saved(tmp_path / "dcp", state_of(program(OPTIMIZERS["adamw"]), "names"))
        model = net()
        with pytest.raises(MismatchError, match="put the model into the same Checkpoint"):
            milepost.Checkpoint(optimizer=OPTIMIZERS["adamw"](model.parameters(), 0.1)).restore(path)

    @pytest.mark.parametrize("flat", [True, False])
    def test_names_of_a_file_of_torch_save_are_matched_too(self, tmp_path, flat):
        first = program(OPTIMIZERS["adamw"])
        step(first.model, first.optimizer)
        torch.save(state_of(first, "flat" if flat else "names"), tmp_path / "state.pt")
        second = program(OPTIMIZERS["adamw"], seed=9)
        second.restore(tmp_path / "state.pt").assert_consumed()
        assert step(second.model, second.optimizer) == step(first.model, first.optimizer)

    def test_an_optimizer_in_a_directory_of_its_own(self, tmp_path):
        """As Accelerate saves FSDP, for example."""
        first = program(OPTIMIZERS["adamw"])
        step(first.model, first.optimizer)
        for name, part in state_of(first, "names").items():
            saved(tmp_path / name, {name: part})
        second = program(OPTIMIZERS["adamw"], seed=9)
        second.restore(tmp_path / "model").expect_partial()
        second.restore(tmp_path / "optimizer").expect_partial()
        assert step(second.model, second.optimizer) == step(first.model, first.optimizer)

    def test_a_scheduler_and_numbers(self, tmp_path):
        first = program(OPTIMIZERS["adamw"])
        first.schedule = torch.optim.lr_scheduler.OneCycleLR(first.optimizer, max_lr=0.5, total_steps=9)
        for _ in range(3):
            step(first.model, first.optimizer)
            first.schedule.step()
        state = {**state_of(first, "names"), "schedule": first.schedule.state_dict(), "epoch": 4}
        path = saved(tmp_path / "dcp", state)
        second = program(OPTIMIZERS["adamw"], seed=9)
        second.schedule = torch.optim.lr_scheduler.OneCycleLR(second.optimizer, max_lr=0.1, total_steps=5)
        second.epoch = milepost.Variable(0)
        second.restore(path).assert_consumed()
        assert int(second.epoch) == 4
        assert second.schedule.state_dict() == first.schedule.state_dict()
        assert second.optimizer.param_groups[0]["lr"] == first.optimizer.param_groups[0]["lr"]

    def test_a_model_that_is_made_later_gets_its_values(self, tmp_path):
        trained = net(2)
        path = saved(tmp_path / "dcp", {"model": trained.state_dict()})
        late = milepost.Checkpoint()
        status = late.restore(path)
        late.model = net(3)
        status.assert_consumed()
        assert torch.equal(late.model[0].weight, trained[0].weight)

    def test_tied_weights_that_were_saved_twice(self, tmp_path):
        def tied():
            model = torch.nn.Sequential(torch.nn.Embedding(5, 3), torch.nn.Linear(3, 5, bias=False))
            model[1].weight = model[0].weight
            return model

        first, second = tied(), tied()
        milepost.Checkpoint(second).read(saved(tmp_path / "dcp", first.state_dict())).assert_consumed()
        assert torch.equal(first[0].weight, second[1].weight)

    def test_two_tensors_for_one_live_parameter_are_compared_in_blocks(self, tmp_path, monkeypatch):
        monkeypatch.setattr("milepost.foreign.reader._BLOCK", 16)
        model = torch.nn.Sequential(torch.nn.Embedding(5, 3), torch.nn.Linear(3, 5, bias=False))
        model[1].weight = model[0].weight
        state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        state["1.weight"][4, 2] += 1
        report = milepost.Checkpoint(model).read(saved(tmp_path / "dcp", state)).expect_partial().report()
        assert [entry.key for entry in report.unexpected + report.deferred] == ["0.weight"]

    def test_the_next_save_is_an_ordinary_checkpoint(self, tmp_path):
        checkpoint = program(OPTIMIZERS["adamw"])
        step(checkpoint.model, checkpoint.optimizer)
        checkpoint.restore(saved(tmp_path / "dcp", state_of(checkpoint, "names")))
        again = program(OPTIMIZERS["adamw"], seed=4)
        again.restore(checkpoint.save(tmp_path / "run" / "ckpt")).assert_consumed()
        assert torch.equal(again.model[0].weight, checkpoint.model[0].weight)


class TestOtherVersions:
    def test_metadata_of_earlier_versions_lack_fields(self, tmp_path):
        def older(metadata):
            for name in ("planner_data", "storage_meta", "version"):
                del vars(metadata)[name]

        path = changed(saved(tmp_path / "dcp", {"a": {"w": torch.ones(2)}, "n": 3}), older)
        assert contents(path) == as_of_torch_save(tmp_path, {"a.w": torch.ones(2), "n": 3})

    def test_dicts_without_tensors_were_values_until_version_2_3(self, tmp_path, monkeypatch):
        monkeypatch.setattr(dcp._version, "_derived_version", "2_3")
        first = program(OPTIMIZERS["adamw"])
        step(first.model, first.optimizer)
        path = saved(tmp_path / "dcp", state_of(first, "names"))
        second = program(OPTIMIZERS["adamw"], seed=9)
        second.restore(path).assert_consumed()
        assert step(second.model, second.optimizer) == step(first.model, first.optimizer)

    def test_a_later_version_is_refused(self, tmp_path):
        path = changed(saved(tmp_path / "dcp", {"n": 3}), lambda metadata: setattr(metadata, "version", "2.0.0"))
        with pytest.raises(UnsupportedError, match="update milepost"):
            milepost.load_checkpoint(path)

    @pytest.mark.parametrize("how", [{}, {"save_distributed": True, "enable_consolidation": True}])
    def test_what_the_writer_for_hugging_face_joins_is_read(self, tmp_path, how):
        writer = dcp.HuggingFaceStorageWriter(str(tmp_path / "hf"), **how)
        dcp.save({"l1.weight": torch.ones(2)}, storage_writer=writer, no_dist=True)
        assert milepost.load_variable(tmp_path / "hf", "l1.weight").tolist() == [1, 1]

    def test_what_it_does_not_join_is_refused(self, tmp_path):
        writer = dcp.HuggingFaceStorageWriter(str(tmp_path / "hf"), save_distributed=True)
        dcp.save({"l1.weight": torch.ones(2)}, storage_writer=writer, no_dist=True)
        with pytest.raises(UnsupportedError, match="enable_consolidation=True"):
            milepost.load_checkpoint(tmp_path / "hf")

    def test_compressed_values_are_refused(self, tmp_path):
        def compress(metadata):
            for info in metadata.storage_data.values():
                info.transform_descriptors = ["stream.zstd/1"]

        path = changed(saved(tmp_path / "dcp", {"w": torch.ones(2)}), compress)
        with pytest.raises(UnsupportedError, match="compressed or encrypted") as caught:
            milepost.Checkpoint(w=torch.zeros(2)).restore(path)
        assert caught.value.key == "w"
        assert "stream.zstd/1" in caught.value.found

    def test_processes_that_saved_for_themselves_are_refused(self, tmp_path):
        path = saved(tmp_path / "dcp", {"w": torch.ones(2)})
        (path / ".metadata").rename(path / "__0.metadata")
        with pytest.raises(UnsupportedError, match="use_collectives=False"):
            milepost.load_checkpoint(path)


class TestIncomplete:
    def test_an_interrupted_save(self, tmp_path):
        path = saved(tmp_path / "dcp", {"w": torch.ones(2)})
        (path / ".metadata").rename(path / ".metadata.tmp")
        for opened in (milepost.load_checkpoint, milepost.Checkpoint().restore, milepost.list_variables):
            with pytest.raises(CorruptCheckpointError, match="has not finished writing") as caught:
                opened(path)
            assert caught.value.file == str(path)
            assert "copy .metadata too" in caught.value.remedy

    def test_a_data_file_that_is_missing(self, tmp_path):
        path = saved(tmp_path / "dcp", {"w": torch.ones(2)})
        (path / directories.DATA).unlink()
        with pytest.raises(CheckpointNotFoundError) as caught:
            milepost.load_checkpoint(path)
        assert (caught.value.key, caught.value.file) == ("w", str(path / directories.DATA))

    def test_a_data_file_that_is_cut_off(self, tmp_path):
        path = saved(tmp_path / "dcp", {"v": 3, "w": torch.ones(2)})
        data = (path / directories.DATA).read_bytes()
        (path / directories.DATA).write_bytes(data[:-1])
        with pytest.raises(CorruptCheckpointError, match="cut off") as caught:
            milepost.load_checkpoint(path)
        assert (caught.value.key, caught.value.file) == ("w", str(path / directories.DATA))

    @pytest.mark.parametrize("name", [".metadata", directories.DATA])
    def test_a_file_of_the_directory_is_refused(self, tmp_path, name):
        path = saved(tmp_path / "dcp", {"w": torch.ones(2)})
        with pytest.raises(UnsupportedError) as caught:
            milepost.load_checkpoint(path / name)
        assert caught.value.remedy == f"pass the directory: {str(path)!r}"

    def test_another_directory_with_a_file_of_this_name_is_none(self, tmp_path):
        (tmp_path / ".metadata").write_text("{}")
        with pytest.raises(CheckpointNotFoundError):
            milepost.load_checkpoint(tmp_path)

    def test_deferred_values_arrive_after_the_current_directory_has_changed(self, tmp_path, monkeypatch):
        saved(tmp_path / "dcp", {"w": torch.ones(2)})
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("milepost.foreign.pytorch.distributed._MOST_OPEN", 0)
        checkpoint = milepost.Checkpoint()
        status = checkpoint.restore("dcp")
        monkeypatch.chdir(Path(tmp_path).parent)
        checkpoint.w = torch.zeros(2)
        status.assert_consumed()
        assert checkpoint.w.tolist() == [1, 1]
