"""What is saved of a tensor besides its values shows nowhere: in lists, trees, converted files, comparisons and counts."""

import json

import pytest

import milepost
from milepost.tools.cli import main

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = pytest.importorskip("torch.nn")


def made():
    net = nn.Sequential(nn.Conv2d(3, 4, 2)).to(memory_format=torch.channels_last)
    return net, torch.optim.Adam(net.parameters())


@pytest.fixture
def saved(tmp_path):
    """A model in channels_last, and its optimizer after a step."""
    net, optimizer = made()
    net(torch.ones(1, 3, 2, 2)).sum().backward()
    optimizer.step()
    assert not net[0].weight.is_contiguous()
    return net, milepost.Checkpoint(net=net, optimizer=optimizer).write(tmp_path / "c")


def test_lists_have_values_alone(saved):
    names = {name.rpartition("/.ATTRIBUTES/")[2] for name, _ in milepost.list_variables(saved[1])}
    assert names == {"_CHECKPOINTABLE_OBJECT_GRAPH", "VARIABLE_VALUE"}


@pytest.mark.parametrize("arrays", ["numpy", "torch"])
def test_a_tree_has_arrays_alone(saved, arrays):
    net, path = saved
    tree = milepost.load(path, only="net", arrays=arrays)
    assert {name: type(value) for name, value in tree["net"]["0"].items()} == dict.fromkeys(
        ("weight", "bias"), torch.Tensor if arrays == "torch" else type(torch.ones(1).numpy())
    )
    assert torch.equal(torch.as_tensor(tree["net"]["0"]["weight"]), net[0].weight)


@pytest.mark.parametrize("ending", [".pt", ".safetensors"])
def test_a_converted_model_is_loaded_strictly(saved, tmp_path, ending):
    net, path = saved
    file = tmp_path / f"m{ending}"
    milepost.convert(path, file, only="net", rename={"net": ""}, separator=".")
    load = torch.load if ending == ".pt" else pytest.importorskip("safetensors.torch").load_file
    state = load(file)
    fresh, _ = made()
    fresh.load_state_dict(state, strict=True)
    assert torch.equal(fresh[0].weight, net[0].weight)


def test_commands_count_values_alone(saved, capsys):
    assert main(["show", saved[1], "--json"]) == 0
    assert all("strides" not in row["key"] for row in json.loads(capsys.readouterr().out)["tensors"])


def test_a_report_counts_values_alone(saved):
    net, optimizer = made()
    report = milepost.Checkpoint(net=net, optimizer=optimizer).read(saved[1]).assert_consumed().report()
    assert all("strides" not in entry.key for entry in report)


def test_a_tree_of_tensors_of_any_layout_comes_back(tmp_path):
    tree = {"transposed": torch.arange(6.0).reshape(2, 3).T, "expanded": torch.ones(1, 3).expand(2, 3), "step": 3}
    found = milepost.load(milepost.save(tmp_path / "t", tree), arrays="torch")
    assert found["step"] == 3
    for name in ("transposed", "expanded"):
        assert torch.equal(found[name], tree[name])
