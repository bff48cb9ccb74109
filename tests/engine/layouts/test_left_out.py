"""Steps of `convert` on a checkpoint whose save has left values out: the record of them follows, and the base is still compared where it can be."""

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, CheckpointOptions, MismatchError, UnsupportedError
from milepost.engine.layouts.left_out import absent_values
from milepost.engine.left_out import LeftOut
from milepost.layouts import Concatenate, Stack, Transpose, inverse

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
STEPS = [Concatenate(["**/q", "**/k"], "**/qk"), Transpose("**/adapter/weight")]
BASE = CheckpointOptions(base="org/base@1")


class Block(torch.nn.Module):  # type: ignore[name-defined]
    """A frozen base with an adapter."""

    def __init__(self, fused=False, seed=1):
        super().__init__()
        torch.manual_seed(seed)
        for name in ["qk"] if fused else ["q", "k"]:
            setattr(self, name, torch.nn.Linear(3, 6 if fused else 3))
        self.out = torch.nn.Linear(3, 2)
        self.requires_grad_(False)
        self.adapter = torch.nn.Linear(2, 3, bias=False) if fused else torch.nn.Linear(3, 2, bias=False)


def fused_like(block):
    live = Block(fused=True, seed=2)
    with torch.no_grad():
        live.qk.weight.copy_(torch.cat([block.q.weight, block.k.weight]))
        live.qk.bias.copy_(torch.cat([block.q.bias, block.k.bias]))
        live.out.load_state_dict(block.out.state_dict())
    return live


@pytest.fixture
def block():
    return Block()


@pytest.fixture
def path(block, tmp_path):
    return Checkpoint(model=block).write(tmp_path / "saved", BASE)


def names(entries):
    return sorted(entry.key.partition("/.")[0] for entry in entries)


def test_what_was_saved_is_converted_and_the_rest_of_the_base_is_compared(block, path):
    live = fused_like(block)
    report = Checkpoint(model=live).read(path, convert=STEPS).expect_partial().report()
    assert torch.equal(live.adapter.weight, block.adapter.weight.T)
    assert names(report.matched) == ["model/adapter/weight", "model/out/bias", "model/out/weight"]
    assert names(report.left_out) == ["model/qk/bias", "model/qk/weight"]
    assert all("not compared with it, because convert" in entry.note for entry in report.left_out)
    assert not report.missing


def test_another_base_is_refused_where_convert_does_not_change_it(block, path):
    live = fused_like(block)
    live.out.bias.data += 1
    with pytest.raises(MismatchError, match="the base is another one") as caught:
        Checkpoint(model=live).read(path, convert=STEPS)
    assert caught.value.key.startswith("model/out/bias")
    assert not torch.equal(live.adapter.weight, block.adapter.weight.T)


def test_steps_for_what_was_saved_alone_compare_the_whole_base(block, path):
    live = Block()
    live.adapter = torch.nn.Linear(2, 3, bias=False)
    steps = [Transpose("**/adapter/weight")]
    Checkpoint(model=live).read(path, convert=steps).assert_consumed().assert_existing_objects_matched()
    assert torch.equal(live.adapter.weight, block.adapter.weight.T)


def test_one_value_of_saved_ones_and_others_is_refused(path):
    with pytest.raises(UnsupportedError, match="saved values and of values that the save has left out") as caught:
        Checkpoint(model=Block()).read(path, convert=[Stack(["**/out/weight", "**/adapter/weight"], "**/both")])
    assert (caught.value.key, caught.value.file) == ("model/both", path)


def test_only_and_ignore_of_a_save_go_with_convert(block, tmp_path):
    path = Checkpoint(model=block).write(tmp_path / "part", CheckpointOptions(ignore=["model/q", "model/k"]))
    live = fused_like(block)
    live.out = torch.nn.Linear(3, 2)
    status = Checkpoint(model=live).read(path, convert=STEPS, ignore="model/qk")
    status.assert_consumed().assert_existing_objects_matched()
    assert torch.equal(live.out.weight, block.out.weight)
    report = Checkpoint(model=live).read(path, convert=STEPS).expect_partial().report()
    assert names(report.left_out) == ["model/qk/bias", "model/qk/weight"]
    assert "by ignore=" in report.left_out[0].note


def test_a_converted_checkpoint_has_the_converted_record(block, path, tmp_path):
    milepost.convert(path, tmp_path / "fused", convert=STEPS)
    live = fused_like(block)
    report = Checkpoint(model=live).read(tmp_path / "fused").expect_partial().report()
    assert names(report.left_out) == ["model/qk/bias", "model/qk/weight"]
    assert report.left_out[0].note.endswith("because convert has laid it out otherwise")
    live.out.bias.data += 1
    with pytest.raises(MismatchError, match="the base is another one"):
        Checkpoint(model=live).read(tmp_path / "fused")


def test_no_digest_is_made_of_a_base_that_nobody_has_seen(path, tmp_path):
    milepost.convert(path, tmp_path / "fused", convert=STEPS)
    with pytest.raises(UnsupportedError, match="is not known") as caught:
        milepost.digest(tmp_path / "fused")
    assert caught.value.key.startswith("model/qk/")
    assert milepost.digest(tmp_path / "fused", only="model/adapter")


def test_there_and_back_the_record_has_the_first_names_again(path, tmp_path):
    milepost.convert(path, tmp_path / "fused", convert=[STEPS[0]])
    milepost.convert(tmp_path / "fused", tmp_path / "back", convert=inverse([STEPS[0]]))
    report = Checkpoint(model=Block()).read(tmp_path / "back").expect_partial().report()
    assert names(report.left_out) == ["model/k/bias", "model/k/weight", "model/q/bias", "model/q/weight"]
    assert len(report.matched) == 3


def test_state_of_optimizers_goes_along(tmp_path):
    keys = ["w/.ATTRIBUTES/VARIABLE_VALUE", "w/.OPTIMIZER_SLOT/opt/m/.ATTRIBUTES/VARIABLE_VALUE"]
    (name, value), *others = absent_values(LeftOut(values=dict.fromkeys(keys, "float32[2,3]"))).items()
    assert (name, not others) == ("w", True)
    ((kind, recipe),) = value.state.items()
    assert (kind.owner, kind.name, str(recipe.spec)) == ("opt", "m", "float32[2,3]")


@pytest.mark.parametrize("text", ["float32[?]", "float32[...]", "strange[2]", "", "float32"])
def test_what_has_no_shape_is_left_alone(text):
    assert absent_values(LeftOut(values={"w/.ATTRIBUTES/VARIABLE_VALUE": text})) == {}


def test_slot_variables_of_a_converted_variable_have_its_name(tmp_path):
    tf = pytest.importorskip("tensorflow")
    optimizer = pytest.importorskip("tf_keras").optimizers.legacy.Adam()
    weights = {name: tf.Variable(np.ones((2, 3), np.float32)) for name in ("q", "k", "other")}
    optimizer.apply_gradients([(tf.ones((2, 3)), each) for each in weights.values()])
    path = Checkpoint(**weights, opt=optimizer).write(tmp_path / "c", CheckpointOptions(ignore=["q", "k"]))
    milepost.convert(path, tmp_path / "fused", convert=[Concatenate(["q", "k"], "qk")])
    with milepost.load_checkpoint(tmp_path / "fused") as reader:
        record = reader._saved_with().left_out["values"]
    assert set(record) == {
        f"{path}/.ATTRIBUTES/VARIABLE_VALUE" for path in ("qk", "qk/.OPTIMIZER_SLOT/opt/m", "qk/.OPTIMIZER_SLOT/opt/v")
    }
    assert set(record.values()) == {"float32[4,3]"}
