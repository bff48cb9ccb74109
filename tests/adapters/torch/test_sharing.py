"""What stands in several places of a state is one object after a restore too, as it is in files of `torch.save`."""

import json

import pytest

import milepost
from milepost.plain_state.decoding import unpack
from milepost.plain_state.encoding import TEXT, pack

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = pytest.importorskip("torch.nn")
optim = pytest.importorskip("torch.optim")


class Holder:
    def __init__(self, state):
        self.held = state

    def state_dict(self):
        return self.held

    def load_state_dict(self, state):
        self.held = state


def resumed(tmp_path, state):
    path = milepost.Checkpoint(holder=Holder(state)).write(tmp_path / "ckpt")
    holder = Holder(None)
    milepost.Checkpoint(holder=holder).read(path).assert_consumed()
    return holder.held


def test_one_tensor_in_two_places_stays_one(tmp_path):
    tensor = torch.arange(3.0)
    state = resumed(tmp_path, {"first": tensor, "others": [tensor]})
    assert state["first"] is state["others"][0]
    assert state["first"].tolist() == [0, 1, 2]


def test_a_tensor_that_lies_in_another_lies_there_again(tmp_path):
    whole = torch.arange(6.0).reshape(2, 3)
    state = resumed(tmp_path, {"row": whole[1], "turned": whole.t(), "whole": whole})
    state["whole"].add_(10)
    assert state["row"].tolist() == [13, 14, 15]
    assert state["turned"].tolist() == [[10, 13], [11, 14], [12, 15]]


def test_tensors_that_overlap_do_so_again(tmp_path):
    memory = torch.arange(8.0)
    state = resumed(tmp_path, {"low": memory[:5], "high": memory[3:7]})
    state["low"].zero_()
    assert state["high"].tolist() == [0, 0, 5, 6]


def test_tensors_of_two_types_in_one_memory_are_in_one_again(tmp_path):
    reals = torch.arange(5.0)[1:]
    state = resumed(tmp_path, {"reals": reals, "complex": torch.view_as_complex(reals.clone().view(2, 2))})
    assert state["complex"].tolist() == [1 + 2j, 3 + 4j]
    pairs = torch.arange(4.0)
    state = resumed(tmp_path, {"reals": pairs, "complex": torch.view_as_complex(pairs.view(2, 2))})
    state["reals"].add_(1)
    assert state["complex"].tolist() == [1 + 2j, 3 + 4j]


def test_parts_of_one_memory_that_do_not_overlap_are_written_alone(tmp_path):
    memory = torch.arange(6.0)
    packed = pack({"low": memory[:3], "high": memory[3:]})
    assert packed.keys() == {TEXT, "low", "high"}
    assert "shared" not in packed[TEXT].item().decode()


def test_a_view_past_the_end_of_its_memory_is_an_error_and_takes_no_memory():
    memory = torch.arange(4.0)
    packed = pack({"a": memory, "b": memory[1:]})
    text = json.loads(packed[TEXT].item())
    text["b"]["value"]["shape"] = [1 << 40]
    packed[TEXT][()] = json.dumps(text).encode()
    with pytest.raises(milepost.CorruptCheckpointError, match=r"not a value of kind 'torch\.view'"):
        unpack(packed)


def listed(parameter):
    last = torch.zeros_like(parameter)
    return {"last": last, "history": [last]}


def nested(parameter):
    last = torch.zeros_like(parameter)
    return {"last": last, "a": {"m": last}, "b": {"m": last}}


def viewed(parameter):
    last = torch.zeros_like(parameter)
    return {"last": last, "same": last.view(-1)}


def look(state):
    for name in ("history", "a", "same"):
        if name in state:
            held = state[name]
            return held[0] if name == "history" else held["m"] if name == "a" else held
    raise AssertionError(state)


@pytest.mark.parametrize("make", [listed, nested, viewed])
def test_a_tensor_in_several_parts_of_an_optimizers_state_stays_one(tmp_path, make):
    def program():
        net = nn.Linear(2, 1)
        optimizer = optim.SGD(net.parameters(), lr=0.1)
        return milepost.Checkpoint(net=net, optimizer=optimizer)

    saved = program()
    for parameter in saved.net.parameters():
        saved.optimizer.state[parameter].update(make(parameter))
    path = saved.write(tmp_path / "ckpt")
    live = program()
    live.read(path).assert_consumed()
    for parameter in live.net.parameters():
        state = live.optimizer.state[parameter]
        state["last"].add_(1)
        assert look(state).reshape(-1).tolist() == state["last"].reshape(-1).tolist()


def test_state_that_is_no_dict_for_each_parameter_comes_back_in_an_optimizer_without_any(tmp_path):
    def program():
        net = nn.Linear(2, 1)
        return milepost.Checkpoint(net=net, optimizer=optim.SGD(net.parameters(), lr=0.1))

    saved = program()
    for parameter in saved.net.parameters():
        saved.optimizer.state[parameter] = torch.full_like(parameter, 2.0)
    path = saved.write(tmp_path / "ckpt")
    live = program()
    live.read(path).assert_consumed()
    assert live.optimizer.state[live.net.bias].tolist() == [2.0]
