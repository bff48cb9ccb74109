"""What is reported where a training state and a program differ, slot variables included; TensorFlow reads all of it."""

import numpy as np
import pytest

import milepost

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn
SLOTS = ("exp_avg", "exp_avg_sq", "step")


class Encoder(nn.Module):  # type: ignore[name-defined]
    def __init__(self, names):
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.layers = nn.ModuleDict({name: nn.TransformerEncoderLayer(4, 2, 8) for name in names})

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers.values():
            x = layer(x)
        return x


def trainer(names):
    net = Encoder(names)
    return milepost.Checkpoint(net=net, optimizer=torch.optim.AdamW(net.parameters()))


def train(trainer):
    trainer.net(torch.tensor([[1, 2, 3]])).sum().backward()
    trainer.optimizer.step()


def numbered(count):
    return [f"layer{number}" for number in range(count)]


def keys_below(layer, net, slots):
    """The keys of all values of a layer, and of their slot variables."""
    found = set()
    for name, _ in net.layers[layer].named_parameters():
        below = f"net/layers/{layer}/{name.replace('.', '/')}"
        kinds = [below, *(f"{below}/.OPTIMIZER_SLOT/optimizer/{slot}" for slot in SLOTS)] if slots else [below]
        found.update(f"{each}/.ATTRIBUTES/VARIABLE_VALUE" for each in kinds)
    return found


def keys(entries):
    return {entry.key for entry in entries}


@pytest.fixture(scope="module")
def twelve(tmp_path_factory):
    first = trainer(numbered(12))
    train(first)
    return first.write(tmp_path_factory.mktemp("twelve") / "c")


def test_sixteen_layers_from_a_file_of_twelve_miss_exactly_the_other_four(twelve):
    larger = trainer(numbered(16))
    status = larger.read(twelve)
    report = status.report()
    added = set().union(*(keys_below(f"layer{number}", larger.net, slots=False) for number in range(12, 16)))
    assert keys(report.missing) == added
    assert report.counts() == {
        **dict.fromkeys(report.counts(), 0),
        "matched": len(report.matched),
        "missing": len(added),
    }


@pytest.mark.parametrize("assertion", ["assert_consumed", "assert_existing_objects_matched"])
def test_sixteen_layers_from_a_file_of_twelve_fail_if_asked_to(twelve, assertion):
    status = trainer(numbered(16)).read(twelve)
    with pytest.raises(AssertionError, match="net/layers/layer12/linear1/weight"):
        getattr(status, assertion)()


def test_sixteen_layers_train_on_with_the_twelve_that_there_were(twelve):
    larger = trainer(numbered(16))
    larger.read(twelve).expect_partial()
    train(larger)
    steps = [larger.optimizer.state[layer.linear1.weight]["step"].item() for layer in larger.net.layers.values()]
    assert steps == [2] * 12 + [1] * 4


def test_twelve_layers_from_a_file_of_sixteen_leave_exactly_the_other_four(tmp_path):
    larger = trainer(numbered(16))
    train(larger)
    report = trainer(numbered(12)).read(larger.write(tmp_path / "c")).report()
    left = set().union(*(keys_below(f"layer{number}", larger.net, slots=True) for number in range(12, 16)))
    assert keys(report.deferred) | keys(report.unexpected) == left
    assert not report.missing


def test_a_renamed_layer_is_missing_under_one_name_and_left_under_the_other_with_its_slots(twelve):
    renamed = trainer([*numbered(11), "last"])
    status = renamed.read(twelve)
    report = status.report()
    assert keys(report.missing) == keys_below("last", renamed.net, slots=False)
    assert keys(report.deferred) | keys(report.unexpected) == keys_below(
        "layer11", trainer(numbered(12)).net, slots=True
    )
    with pytest.raises(AssertionError, match="net/layers/layer11/linear1/weight"):
        status.assert_consumed()
    with pytest.raises(AssertionError, match="net/layers/last/linear1/weight"):
        status.assert_existing_objects_matched()


def test_tensorflow_reads_every_value_of_a_training_state(tmp_path):
    tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    first = trainer(numbered(2))
    first.half = nn.Linear(2, 2, dtype=torch.bfloat16)
    first.bytes = torch.arange(4, dtype=torch.uint8).view(torch.float8_e4m3fn)
    first.schedule = torch.optim.lr_scheduler.MultiStepLR(first.optimizer, [3, 4])
    first.scaler = torch.amp.GradScaler("cpu")
    first.averaged = torch.optim.swa_utils.AveragedModel(first.net)
    first.random = milepost.RandomState(own=torch.Generator())
    first.step = milepost.Variable(3)
    train(first)
    path = first.save(tmp_path / "c")
    theirs, ours = tf.train.load_checkpoint(path), milepost.load_checkpoint(path)
    assert theirs.get_variable_to_shape_map() == ours.get_variable_to_shape_map()
    for key in theirs.get_variable_to_shape_map():
        one, other = np.asarray(theirs.get_tensor(key)), np.asarray(ours.get_tensor(key))
        assert one.tolist() == other.tolist() if one.dtype == object else one.tobytes() == other.tobytes(), key
