"""Modules that change the shapes of their tensors when they load state."""

import pytest

import milepost

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = pytest.importorskip("torch.nn")


class Growing(nn.Module):  # type: ignore[name-defined]
    """Gives its buffer the shape that is loaded, in a hook before it loads, and notes the length."""

    def __init__(self, size):
        super().__init__()
        self.register_buffer("rows", torch.full((size,), float(size)))
        self.size = size
        self.register_load_state_dict_pre_hook(type(self)._take)

    def _take(self, state, prefix, *rest):
        self.size = len(state[prefix + "rows"])
        self.rows.resize_(self.size)


def observers():
    from torch.ao.quantization import PerChannelMinMaxObserver

    return nn.Sequential(PerChannelMinMaxObserver())


def test_an_observer_that_has_seen_nothing_takes_the_saved_ranges(tmp_path):
    net, fresh = observers(), observers()
    net(torch.arange(12.0).reshape(4, 3))
    path = milepost.Checkpoint(net).write(tmp_path / "w")
    milepost.Checkpoint(fresh).read(path).assert_consumed()
    assert fresh[0].min_val.tolist() == [0.0, 3.0, 6.0, 9.0]


def test_a_hook_before_loading_does_what_it_does_beside_the_shape(tmp_path):
    path = milepost.Checkpoint(nn.Sequential(Growing(5))).write(tmp_path / "w")
    fresh = nn.Sequential(Growing(2))
    milepost.Checkpoint(fresh).read(path).assert_consumed()
    assert (fresh[0].rows.tolist(), fresh[0].size) == ([5.0] * 5, 5)


def test_a_class_that_loads_only_its_own_shape_is_refused_and_unchanged(tmp_path):
    path = milepost.Checkpoint(nn.Sequential(nn.BatchNorm1d(4), Growing(5))).write(tmp_path / "w")
    fresh = nn.Sequential(nn.BatchNorm1d(3), Growing(2))
    with pytest.raises(milepost.MismatchError, match="wrong shape") as caught:
        milepost.Checkpoint(fresh).read(path)
    assert "rows" not in str(caught.value)
    assert (fresh[1].rows.tolist(), fresh[1].size) == ([2.0, 2.0], 2)


class Refusing(nn.Module):  # type: ignore[name-defined]
    """Raises an error after it has loaded its state."""

    def __init__(self):
        super().__init__()
        self.register_buffer("loaded", torch.zeros(1))
        self.register_load_state_dict_post_hook(type(self)._refuse)

    def _refuse(self, keys):
        raise ValueError("not now")


def test_a_failed_restore_gives_a_reshaped_tensor_its_old_shape_back(tmp_path):
    path = milepost.Checkpoint([Growing(5), Refusing()]).write(tmp_path / "w")
    fresh = [Growing(2), Refusing()]
    with pytest.raises(milepost.MilepostError, match="not now"):
        milepost.Checkpoint(fresh).read(path)
    assert (fresh[0].rows.tolist(), fresh[0].size) == ([2.0, 2.0], 2)
