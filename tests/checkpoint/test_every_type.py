"""Arrays of every element type and every layout come back from a tree as they were, and TensorFlow can read what it has no type for."""

import functools
import subprocess
import sys

import hypothesis
import ml_dtypes
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as of_numpy

import milepost
from milepost.bundle import open_bundle
from milepost.storage.default import DEFAULT_STORAGE

EXTENSIONS = [
    each
    for each in vars(ml_dtypes).values()
    if isinstance(each, type) and each not in (ml_dtypes.finfo, ml_dtypes.iinfo)
]
TYPES = st.one_of(
    of_numpy.scalar_dtypes(),
    of_numpy.complex_number_dtypes(endianness="="),
    of_numpy.array_dtypes(of_numpy.scalar_dtypes(), min_size=1, max_size=3),
    st.sampled_from([np.dtype(each) for each in EXTENSIONS]),
    st.sampled_from([np.dtype(each) for each in ("V1", "V5", "S3", "U3", np.longdouble, np.clongdouble)]),
)
"""Every element type of NumPy and ml_dtypes but objects."""
LAYOUTS = {
    "rows": lambda array: array,
    "columns": np.asfortranarray,
    "reversed": lambda array: array[::-1] if array.ndim else array,
    "steps": lambda array: np.repeat(array, 2, 0)[::2] if array.ndim else array,
    "transposed": lambda array: array.T,
    "read-only": lambda array: (
        np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape) if array.size else array
    ),
}


@st.composite
def arrays(draw):
    dtype = draw(TYPES)
    shape = draw(of_numpy.array_shapes(min_dims=0, max_dims=3, max_side=3))
    if dtype.kind in "US":
        array = (
            np.array(draw(st.lists(st.text("aé", max_size=3), min_size=1, max_size=4)), "U3").astype(
                dtype, casting="unsafe"
            )
            if dtype.kind == "U"
            else np.array([b"a", b"bcd"], dtype)
        )
    else:
        size = int(np.prod(shape)) * dtype.itemsize
        data = draw(st.binary(min_size=size, max_size=size))
        array = np.frombuffer(bytes(each & 1 for each in data) if dtype.kind == "b" else data, dtype).reshape(shape)
    return LAYOUTS[draw(st.sampled_from(sorted(LAYOUTS)))](array)


def same(first, second):
    assert first.dtype == second.dtype
    assert first.shape == second.shape
    assert first.tobytes() == second.tobytes()


@hypothesis.settings(max_examples=300, deadline=None)
@hypothesis.given(array=arrays())
def test_an_array_of_a_tree_comes_back_with_its_type(tmp_path_factory, array):
    path = milepost.save(tmp_path_factory.mktemp("tree") / "tree", {"a": array, "b": [array]})
    loaded = milepost.load(path)
    same(loaded["a"], array)
    same(loaded["b"][0], array)
    assert loaded["a"].flags.fnc or not array.flags.fnc


@hypothesis.settings(max_examples=100, deadline=None)
@hypothesis.given(array=arrays().filter(lambda array: array.dtype.kind not in "US"))
def test_a_restore_gives_an_array_its_bytes(tmp_path_factory, array):
    path = milepost.Checkpoint(a=array).write(tmp_path_factory.mktemp("own") / "own")
    live = milepost.Checkpoint(a=np.zeros_like(array))
    live.read(path).assert_consumed().assert_existing_objects_matched()
    same(np.ascontiguousarray(live.a), np.ascontiguousarray(array))


@pytest.mark.parametrize(
    "array",
    [
        np.array(["a", "bc"], np.dtypes.StringDType()) if hasattr(np.dtypes, "StringDType") else np.array(["a"]),
        np.array(["a", "bc"], object),
        np.array([b"a", b"bc"], object),
        np.array([], "U3"),
        np.zeros((0, 3), "M8[ns]"),
    ],
    ids=["StringDType", "objects of text", "objects of bytes", "no text", "no dates"],
)
def test_text_comes_back_as_the_text_that_it_was(tmp_path, array):
    loaded = milepost.load(milepost.save(tmp_path / "tree", {"a": array}))["a"]
    assert loaded.dtype == array.dtype
    assert loaded.tolist() == array.tolist()
    assert loaded.shape == array.shape


@pytest.mark.parametrize(
    "scalar", [np.datetime64("2026-01-01"), np.timedelta64(3, "s"), np.longdouble(1) / 3, np.void(b"ab")]
)
def test_scalars_of_types_that_tensorflow_lacks_come_back(tmp_path, scalar):
    path = milepost.Checkpoint(s=scalar).write(tmp_path / "own")
    live = milepost.Checkpoint(
        s=type(scalar)(b"xy")
        if isinstance(scalar, np.void)
        else type(scalar)(0, "D")
        if isinstance(scalar, np.datetime64)
        else scalar - scalar
    )
    live.read(path).assert_consumed()
    assert live.s == scalar
    assert type(live.s) is type(scalar)


OF_NEWER_ML_DTYPES = pytest.mark.skipif(
    not hasattr(ml_dtypes, "float8_e8m0fnu"), reason="this ml_dtypes has no float8_e8m0fnu"
)


@OF_NEWER_ML_DTYPES
def test_what_tensorflow_lacks_is_bytes_to_tensorflow(tmp_path):
    saved = {"scale": np.array([1, 2], ml_dtypes.float8_e8m0fnu), "dates": np.array([3], "M8[s]")}
    path = milepost.Checkpoint(**saved).write(tmp_path / "own")
    train = pytest.importorskip("tensorflow").train
    reader = train.load_checkpoint(path)
    assert reader.get_tensor("scale/.ATTRIBUTES/VARIABLE_VALUE").tobytes() == saved["scale"].tobytes()
    dates = reader.get_tensor("dates/.ATTRIBUTES/VARIABLE_VALUE")
    assert (dates.dtype, dates.shape, dates.tobytes()) == (np.uint8, (1, 8), saved["dates"].tobytes())


@OF_NEWER_ML_DTYPES
def test_lists_of_variables_name_the_true_type(tmp_path):
    path = milepost.Checkpoint(scale=np.zeros((2, 3), ml_dtypes.float8_e8m0fnu)).write(tmp_path / "own")
    with open_bundle(DEFAULT_STORAGE, path) as reader:
        assert str(reader.spec("scale/.ATTRIBUTES/VARIABLE_VALUE")) == "float8_e8m0fnu[2,3]"


def test_a_type_that_this_machine_lacks_is_an_error_of_ours(tmp_path):
    """Such as ``longdouble`` of another kind of processor."""
    path = milepost.Checkpoint(a=np.zeros(2, "V5"), b=np.ones(1)).write(tmp_path / "own")
    program = """
import sys, milepost
from milepost.tensor import dtype
known = dtype._numpy_type
dtype._numpy_type = lambda name: None if name == "V5" else known(name)
try:
    milepost.load(sys.argv[1])
except milepost.UnsupportedError as error:
    print(error.key, "V5" in str(error))
print(milepost.load(sys.argv[1], ignore="a"))
"""
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
    assert done.stdout == "a/.ATTRIBUTES/VARIABLE_VALUE True\n{'b': array([1.])}\n"


def torch_types():
    torch = pytest.importorskip("torch")
    found = {each for each in map(vars(torch).get, dir(torch)) if type(each) is torch.dtype}
    return sorted((each for each in found if "q" not in str(each)), key=str)


def of_torch(dtype, shape=(2, 3, 4, 5)):
    import torch

    width = torch.empty(0, dtype=dtype).element_size()
    data = torch.arange(120 * width, dtype=torch.uint8)
    return (data % 2 if dtype is torch.bool else data).view(dtype).reshape(shape)


def same_bytes(first, second):
    import torch

    assert (first.dtype, first.shape) == (second.dtype, second.shape)
    assert first.contiguous().view(torch.uint8).equal(second.contiguous().view(torch.uint8))


def test_tensors_of_every_type_of_pytorch_come_back(tmp_path):
    tree = {str(each): of_torch(each) for each in torch_types()}
    loaded = milepost.load(milepost.save(tmp_path / "tree", tree), arrays="torch")
    for name, tensor in tree.items():
        same_bytes(loaded[name], tensor)


@pytest.mark.parametrize("ending", ["pt", "safetensors"])
def test_tensors_of_every_type_that_a_format_has_keep_it(tmp_path, ending):
    torch = pytest.importorskip("torch")
    tree = {str(each).removeprefix("torch."): of_torch(each) for each in torch_types()}
    done = milepost.convert(milepost.save(tmp_path / "tree", tree), tmp_path / f"a.{ending}", partial=True)
    if ending == "pt":
        loaded = torch.load(tmp_path / "a.pt", weights_only=True)
    else:
        loaded = pytest.importorskip("safetensors.torch").load_file(tmp_path / "a.safetensors")
    missing = {key.partition("/")[0] for key in done.left_out}
    assert {*loaded, *missing} == {*tree}
    assert not missing & ({*tree} if ending == "pt" else {"float8_e8m0fnu", "float4_e2m1fn_x2", "bfloat16"})
    own = milepost.load(tmp_path / f"a.{ending}", arrays="torch")
    for name, tensor in loaded.items():
        same_bytes(tensor, tree[name])
        same_bytes(own[name], tree[name])


@pytest.mark.parametrize("layout", ["channels_last", "transposed", "expanded"])
def test_tensors_of_pytorch_come_back_with_their_strides(tmp_path, layout):
    torch = pytest.importorskip("torch")
    tensor = torch.arange(120.0).reshape(2, 3, 4, 5)
    tensor = {
        "channels_last": lambda: tensor.to(memory_format=torch.channels_last),
        "transposed": tensor.mT.contiguous,
        "expanded": lambda: tensor[:1].expand(2, 3, 4, 5),
    }[layout]()
    tensor = tensor.mT if layout == "transposed" else tensor
    loaded = milepost.load(milepost.save(tmp_path / "tree", {"a": tensor}), arrays="torch")["a"]
    assert loaded.equal(tensor)
    assert loaded.stride() == tensor.stride() or layout == "expanded"
    torch.save({"a": tensor}, tmp_path / "a.pt")
    again = milepost.load(tmp_path / "a.pt", arrays="torch")["a"]
    assert again.stride() == loaded.stride()


def test_arrays_of_every_type_of_jax_come_back(tmp_path):
    jax = pytest.importorskip("jax")
    names = ["float8_e3m4", "float8_e4m3", "float8_e8m0fnu", "float4_e2m1fn", "int2", "uint4", "bfloat16", "complex64"]
    tree = {name: jax.numpy.zeros((2, 3), getattr(jax.numpy, name)).at[1].set(1) for name in names}
    loaded = milepost.load(milepost.save(tmp_path / "tree", tree), arrays="jax")
    for name, array in tree.items():
        assert isinstance(loaded[name], jax.Array)
        same(np.asarray(loaded[name]), np.asarray(array))


@pytest.mark.parametrize("ending", ["npz", "safetensors", "pt", "orbax"])
@hypothesis.settings(
    max_examples=25, deadline=None, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
@hypothesis.given(tree=st.lists(arrays(), min_size=1, max_size=4))
def test_a_converted_array_keeps_its_type_or_is_named(tmp_path_factory, ending, tree):
    if ending == "orbax":
        pytest.importorskip("orbax.checkpoint")
    directory = tmp_path_factory.mktemp("convert")
    saved = {f"a{number}": array for number, array in enumerate(tree)}
    path = milepost.save(directory / "tree", saved)
    convert = functools.partial(
        milepost.convert, path, directory / f"to.{ending}", format={"orbax": "orbax"}.get(ending)
    )
    try:
        done = convert(partial=True)
    except milepost.UnsupportedError:
        return  # the format holds none of them
    loaded = milepost.load(directory / f"to.{ending}")
    assert len(loaded) + len(done.left_out) == len(saved)
    for name, array in loaded.items():
        is_record = saved[name].dtype.kind == "V"
        assert array.dtype == (saved[name].dtype if is_record else saved[name].dtype.newbyteorder("="))
        assert array.tobytes() == saved[name].astype(array.dtype).tobytes()
