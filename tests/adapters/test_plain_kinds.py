"""Values of frameworks in the state of other objects."""

import numpy as np
import pytest

from milepost import UnsupportedError
from milepost.plain_state.decoding import unpack
from milepost.plain_state.encoding import pack


class TestPyTorch:
    @pytest.fixture
    def torch(self):
        return pytest.importorskip("torch")

    @pytest.mark.parametrize("name", ["float32", "bfloat16", "int64", "bool", "complex64", "float8_e4m3fn"])
    def test_tensors_come_back_as_tensors_of_their_type(self, torch, name):
        tensor = torch.tensor([0, 1, 1]).to(getattr(torch, name))
        arrays = pack({"a": [tensor]})
        assert set(arrays) == {"py_state", "a/0"}
        (back,) = unpack(arrays)["a"]
        assert back.dtype == tensor.dtype
        assert torch.equal(back.view(torch.uint8), tensor.view(torch.uint8))

    def test_a_tensor_without_dimensions_comes_back(self, torch):
        back = unpack(pack(torch.tensor(3.5)))
        assert (back.shape, float(back)) == ((), 3.5)

    def test_a_state_dict_keeps_the_versions_of_its_modules(self, torch):
        state = torch.nn.Sequential(torch.nn.BatchNorm1d(2)).state_dict()
        assert state._metadata["0"] == {"version": 2}
        back = unpack(pack({"model": state}))["model"]
        assert back._metadata == state._metadata
        assert list(back) == list(state)

    def test_sizes_types_and_devices_come_back(self, torch):
        state = {"size": torch.Size([2, 3]), "dtype": torch.bfloat16, "device": torch.device("cpu")}
        back = unpack(pack(state))
        assert back == state
        assert type(back["size"]) is torch.Size

    @pytest.mark.parametrize("kind", ["mkldnn", "meta"])
    def test_a_tensor_without_elements_to_save_is_refused_with_its_path(self, torch, kind):
        tensor = torch.eye(2).to_mkldnn() if kind == "mkldnn" else torch.zeros(2, device="meta")
        with pytest.raises(UnsupportedError) as caught:
            pack({"a": [tensor]}, "loader")
        assert caught.value.key == "loader/a/0"


class TestJAX:
    @pytest.fixture
    def jax(self):
        return pytest.importorskip("jax")

    @pytest.mark.parametrize("name", ["float32", "bfloat16", "int8", "uint32", "complex64"])
    def test_arrays_come_back_as_arrays_of_their_type(self, jax, name):
        array = jax.numpy.arange(3).astype(name)
        back = unpack(pack({"a": array}))["a"]
        assert isinstance(back, jax.Array)
        assert back.dtype == array.dtype
        assert np.asarray(back).tobytes() == np.asarray(array).tobytes()

    def test_wide_elements_stay_wide(self, jax):
        moved = pytest.importorskip("milepost.adapters.jax.moved")
        with moved.enable_x64(True):
            array = jax.numpy.arange(3.0)
        assert unpack(pack(array)).dtype == np.float64

    @pytest.mark.parametrize("implementation", ["threefry2x32", "rbg"])
    def test_keys_come_back(self, jax, implementation):
        key = jax.random.key(3, impl=implementation)
        back = unpack(pack({"key": key}))["key"]
        assert jax.random.key_impl(back) == jax.random.key_impl(key)
        assert jax.random.key_data(back).tolist() == jax.random.key_data(key).tolist()
