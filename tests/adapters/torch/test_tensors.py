"""PyTorch tensors as values."""

import numpy as np
import pytest

import milepost
from milepost.graph.adapter import adapter_of

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def saved(directory, **children):
    return milepost.Checkpoint(**children).write(directory / "c")


def restored(path, **children):
    checkpoint = milepost.Checkpoint(**children)
    return checkpoint, checkpoint.read(path)


def bits(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


NAMES = [
    "bool",
    "uint8",
    "int8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex32",
    "complex64",
    "complex128",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float4_e2m1fn_x2",
    "int1",
    "int2",
    "int3",
    "int4",
    "int5",
    "int6",
    "int7",
    "uint1",
    "uint2",
    "uint3",
    "uint4",
    "uint5",
    "uint6",
    "uint7",
    "bits8",
    "bits16",
]


@pytest.mark.parametrize("name", [name for name in NAMES if hasattr(torch, name)])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 4)])
def test_every_element_type_comes_back_bit_for_bit(tmp_path, name, shape):
    dtype = getattr(torch, name)
    raw = torch.randint(0, 2, (*shape[:-1], (shape[-1] if shape else 1) * dtype.itemsize), dtype=torch.uint8)
    tensor = raw.view(dtype).reshape(shape)
    path = saved(tmp_path, t=tensor)
    fresh = torch.empty(raw.shape, dtype=torch.uint8).fill_(0).view(dtype).reshape(shape)
    _, status = restored(path, t=fresh)
    status.assert_consumed()
    assert bits(fresh) == bits(tensor)


def test_every_element_type_of_pytorch_is_tried():
    types = {str(each).removeprefix("torch.") for each in vars(torch).values() if isinstance(each, torch.dtype)}
    quantized = {"qint8", "quint8", "qint32", "quint4x2", "quint2x4"}
    packed = {"bits1x8", "bits2x4", "bits4x2"}
    assert types - quantized - packed <= set(NAMES)


def test_a_float8_is_not_mistaken_for_bytes(tmp_path):
    path = saved(tmp_path, t=torch.zeros(3, dtype=torch.uint8).view(torch.float8_e8m0fnu))
    with pytest.raises(milepost.MismatchError, match="float8_e8m0fnu"):
        restored(path, t=torch.zeros(3, dtype=torch.uint8))


def test_bfloat16_is_written_as_tensorflow_knows_it(tmp_path):
    path = saved(tmp_path, t=torch.tensor([1.5, -2.0], dtype=torch.bfloat16))
    value = milepost.load_checkpoint(path).get_tensor("t/.ATTRIBUTES/VARIABLE_VALUE")
    assert value.dtype.name == "bfloat16"
    assert value.astype(np.float32).tolist() == [1.5, -2.0]


def test_restoring_writes_into_the_memory_of_the_tensor(tmp_path):
    path = saved(tmp_path, t=torch.arange(1000.0))
    fresh = torch.zeros(1000)
    alias = fresh.numpy()
    restored(path, t=fresh)
    assert alias[999] == 999


@pytest.mark.parametrize(
    "arrange",
    [
        lambda t: t.to(memory_format=torch.channels_last),
        lambda t: t.transpose(0, 3),
        lambda t: t[:, ::2],
        lambda t: t[..., 1:],
    ],
)
def test_tensors_of_any_strides_are_saved_and_restored_in_place(tmp_path, arrange):
    tensor = arrange(torch.randn(2, 4, 3, 5))
    path = saved(tmp_path, t=tensor)
    fresh = arrange(torch.zeros(2, 4, 3, 5))
    strides, pointer = fresh.stride(), fresh.data_ptr()
    restored(path, t=fresh)
    assert torch.equal(fresh, tensor)
    assert (fresh.stride(), fresh.data_ptr()) == (strides, pointer)


def test_conjugated_and_negated_views_are_saved_as_what_they_show(tmp_path):
    tensor = torch.randn(3, dtype=torch.complex64)
    path = saved(tmp_path, c=tensor.conj(), n=tensor.conj().imag)
    checkpoint, _ = restored(path, c=torch.zeros(3, dtype=torch.complex64), n=torch.zeros(3))
    assert torch.equal(checkpoint.c, tensor.conj().resolve_conj())
    assert torch.equal(checkpoint.n, -tensor.imag)


def test_an_expanded_tensor_gets_a_successor(tmp_path):
    path = saved(tmp_path, t=torch.arange(6.0).reshape(2, 3))
    checkpoint, status = restored(path, t=torch.zeros(3).expand(2, 3))
    status.assert_consumed()
    assert checkpoint.t.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_buffer_that_is_expanded_gets_a_successor_in_its_module(tmp_path):
    module = torch.nn.Module()
    module.register_buffer("b", torch.arange(6.0).reshape(2, 3))
    path = saved(tmp_path, m=module)
    fresh = torch.nn.Module()
    fresh.register_buffer("b", torch.zeros(3).expand(2, 3))
    restored(path, m=fresh)
    assert torch.equal(fresh.b, module.b)


def test_backward_notices_that_a_restored_tensor_has_changed(tmp_path):
    weight = torch.nn.Parameter(torch.ones(3))
    path = saved(tmp_path, w=weight)
    result = (weight**2).sum()
    restored(path, w=weight)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()


def test_an_inference_tensor_is_restored(tmp_path):
    with torch.inference_mode():
        tensor = torch.zeros(3)
    path = saved(tmp_path, t=torch.ones(3))
    restored(path, t=tensor)
    assert tensor.tolist() == [1, 1, 1]


def test_parameters_keep_their_identity_and_need_for_gradients(tmp_path):
    path = saved(tmp_path, w=torch.nn.Parameter(torch.ones(3)))
    weight = torch.nn.Parameter(torch.zeros(3), requires_grad=False)
    checkpoint, _ = restored(path, w=weight)
    assert checkpoint.w is weight
    assert not weight.requires_grad


def test_a_meta_tensor_gets_memory_and_stays_the_same_object(tmp_path):
    path = saved(tmp_path, w=torch.nn.Parameter(torch.arange(3.0)))
    weight = torch.nn.Parameter(torch.zeros(3, device="meta"))
    weight.note = "kept"
    restored(path, w=weight)
    assert weight.tolist() == [0, 1, 2]
    assert weight.note == "kept"
    assert type(weight) is torch.nn.Parameter
    assert weight.requires_grad


def test_a_meta_tensor_keeps_its_strides(tmp_path):
    path = saved(tmp_path, t=torch.randn(1, 2, 3, 4))
    with torch.device("meta"):
        tensor = torch.zeros(1, 2, 3, 4).to(memory_format=torch.channels_last)
    restored(path, t=tensor)
    assert tensor.is_contiguous(memory_format=torch.channels_last)


def test_a_meta_tensor_cannot_be_saved(tmp_path):
    with pytest.raises(milepost.UnsupportedError, match="meta device"):
        saved(tmp_path, w=torch.zeros(3, device="meta"))


class _Scaled(torch.nn.Module):  # type: ignore[name-defined]
    """Has a tensor in its extra state."""

    def __init__(self):
        super().__init__()
        self.scale = torch.ones(3)

    def get_extra_state(self):
        return {"scale": self.scale}


@pytest.mark.parametrize(
    "make", [lambda: torch.ones(2, 3), lambda: torch.ones(2, 3).t(), lambda: torch.ones(2).bfloat16()]
)
def test_a_tensor_whose_memory_was_freed_is_neither_saved_nor_restored(tmp_path, make):
    path = saved(tmp_path, tensor=make())
    tensor = make()
    tensor.untyped_storage().resize_(0)
    for attempt in (saved, restored):
        with pytest.raises(milepost.UnsupportedError, match="memory of this tensor was freed") as caught:
            attempt(tmp_path if attempt is saved else path, tensor=tensor)
        assert caught.value.key == "tensor"


def test_extra_state_with_a_tensor_whose_memory_was_freed_is_not_saved(tmp_path):
    module = _Scaled()
    module.scale.untyped_storage().resize_(0)
    with pytest.raises(milepost.UnsupportedError, match="memory of this tensor was freed"):
        saved(tmp_path, module=module)


def test_another_shape_changes_nothing(tmp_path):
    path = saved(tmp_path, a=torch.ones(2), b=torch.ones(3))
    a, b = torch.zeros(2), torch.zeros(4)
    with pytest.raises(milepost.MismatchError, match=r"b/.*float32\[4\].*float32\[3\]|wrong shape"):
        restored(path, a=a, b=b)
    assert a.tolist() == [0, 0]


def test_another_element_type_is_refused(tmp_path):
    path = saved(tmp_path, a=torch.ones(2, dtype=torch.float64))
    with pytest.raises(milepost.MismatchError, match="float64"):
        restored(path, a=torch.zeros(2))


@pytest.mark.filterwarnings("ignore:.*:UserWarning")  # PyTorch says of some kinds that they are new or deprecated
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: torch.eye(3).to_sparse(), "layout"),
        (lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), "quantized"),
    ],
)
def test_tensors_that_are_not_plain_are_refused(tmp_path, make, reason):
    module = torch.nn.Module()
    module.register_buffer("odd", make())
    checkpoint = milepost.Checkpoint(m=module)
    with pytest.raises(milepost.UntrackableError, match=reason) as caught:
        checkpoint.write(tmp_path / "c")
    assert caught.value.key == "m/odd"


def test_a_tensor_that_is_made_of_others_is_saved_by_its_parts(tmp_path):
    class Pair(torch.Tensor):
        @staticmethod
        def __new__(cls, a, b):
            return torch.Tensor._make_wrapper_subclass(cls, a.shape, dtype=a.dtype)

        def __init__(self, a, b):
            self.a, self.b = a, b

        def __tensor_flatten__(self):
            return ["a", "b"], None

        @staticmethod
        def __tensor_unflatten__(parts, context, size, stride):
            return Pair(parts["a"], parts["b"])

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            raise NotImplementedError(func)

    path = saved(tmp_path, t=Pair(torch.ones(2), torch.full((2,), 2.0)))
    fresh = Pair(torch.zeros(2), torch.zeros(2))
    restored(path, t=fresh)[1].assert_consumed()
    assert (fresh.a.tolist(), fresh.b.tolist()) == ([1, 1], [2, 2])


def test_a_numpy_array_and_a_tensor_are_interchangeable(tmp_path):
    path = saved(tmp_path, t=torch.arange(3.0))
    array = np.zeros(3, np.float32)
    restored(path, t=array)
    assert array.tolist() == [0, 1, 2]


def test_a_generator_goes_on_where_it_was(tmp_path):
    generator = torch.Generator().manual_seed(3)
    torch.randn(5, generator=generator)
    path = saved(tmp_path, g=generator)
    expected = torch.randn(5, generator=generator)
    fresh = torch.Generator()
    restored(path, g=fresh)[1].assert_consumed()
    assert torch.equal(torch.randn(5, generator=fresh), expected)


def test_a_state_of_another_kind_of_generator_is_refused(tmp_path):
    path = saved(tmp_path, g=torch.zeros(torch.Generator().get_state().numel(), dtype=torch.uint8))
    generator = torch.Generator().manual_seed(1)
    before = generator.get_state()
    with pytest.raises(milepost.MismatchError, match="generator"):
        restored(path, g=generator)
    assert torch.equal(generator.get_state(), before)


def test_tensors_have_an_adapter_only_where_they_can_be_saved():
    assert adapter_of(torch.ones(1)) is not None
    assert adapter_of(torch.eye(2).to_sparse()) is None
