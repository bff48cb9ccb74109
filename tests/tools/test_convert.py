"""`milepost convert` writes files that their own libraries read, and says what does not carry over."""

import json
import os

import ml_dtypes
import numpy as np
import pytest

import milepost
from milepost import Checkpoint, Variable
from milepost.tensor import DType
from milepost.tools.cli import main
from milepost.tools.values.statistics import is_numeric
from tests.tools.commands import contents, damage, json_of, most_memory, net, output_of

KERNEL = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def saved(tmp_path):
    model = net(bias=np.float32([1, 2, 3]))
    model.w.assign(KERNEL)
    return Checkpoint(net=model, step=Variable(7)).write(tmp_path / "ckpt")


def loaded(path):
    return {key: milepost.load_variable(str(path), key) for key, _ in milepost.list_variables(str(path))}


def test_safetensors(saved, tmp_path, capsys):
    target = tmp_path / "a.safetensors"
    found = json_of(capsys, "convert", saved, target)
    assert sorted(each["name"] for each in found["tensors"]) == ["net/bias", "net/w", "step"]
    assert found["not_carried_over"] == ["the object graph"]
    values = loaded(target)
    np.testing.assert_array_equal(values["net/w"], KERNEL)
    assert (values["step"], values["step"].dtype) == (7, np.int32)


@pytest.mark.parametrize("target", ["a.safetensors", "as_checkpoint"])
def test_a_name_that_names_nothing_is_warned_of_once(saved, tmp_path, capsys, target):
    assert main(["convert", saved, str(tmp_path / target), "--rename", "nat=x"]) == 1
    said = capsys.readouterr().err
    assert said.count("warning") == said.count("--rename has 'nat', which fits no saved name") == 1


def test_the_library_reads_it(saved, tmp_path):
    numpy = pytest.importorskip("safetensors.numpy")
    target = tmp_path / "a.safetensors"
    assert main(["convert", saved, str(target), "--dots", "--only", "net"]) == 0
    values = numpy.load_file(target)
    assert sorted(values) == ["net.bias", "net.w"]
    np.testing.assert_array_equal(values["net.w"], KERNEL)


def test_every_type_of_safetensors(tmp_path, capsys):
    numeric = [dtype for dtype in DType.all() if is_numeric(dtype)]
    values = {dtype.name: np.ones((3,)).astype(dtype.numpy) for dtype in numeric}
    path = milepost.save(tmp_path / "ckpt", values)
    found = json_of(capsys, "convert", path, tmp_path / "a.safetensors", status=1)
    written = loaded(tmp_path / "a.safetensors")
    for name, value in written.items():
        assert value.dtype == values[name].dtype
        assert value.tobytes() == values[name].tobytes()
    left_out = {each["key"].partition("/")[0] for each in found["left_out"]}
    assert left_out | set(written) == set(values)
    assert {"complex128", "int4"} <= left_out


def test_npz(saved, tmp_path, capsys):
    target = tmp_path / "a.npz"
    json_of(capsys, "convert", saved, target)
    with np.load(target) as values:
        assert sorted(values) == ["net/bias", "net/w", "step"]
        np.testing.assert_array_equal(values["net/w"], KERNEL)


def test_a_checkpoint_of_milepost(saved, tmp_path, capsys):
    """From safetensors, and restored into objects."""
    json_of(capsys, "convert", saved, tmp_path / "a.safetensors")
    found = json_of(capsys, "convert", tmp_path / "a.safetensors", tmp_path / "new")
    assert main(["verify", str(tmp_path / "new")]) == 0
    live = Checkpoint(net=net(bias=np.zeros(3, np.float32)), step=Variable(0))
    live.read(str(tmp_path / "new")).assert_existing_objects_matched()
    np.testing.assert_array_equal(live.net.w.numpy(), KERNEL)
    assert [os.path.basename(path) for path in found["files"]] == ["new.index", "new.data-00000-of-00001"]


def test_names_are_changed_and_left_out_as_by_restore(saved, tmp_path, capsys):
    found = json_of(
        capsys,
        "convert",
        saved,
        tmp_path / "a.npz",
        "--rename",
        "net=model/layer",
        "--ignore",
        "model/layer/bias",
        "--ignore",
        "step",
    )
    assert [each["name"] for each in found["tensors"]] == ["model/layer/w"]
    assert len(found["unwanted"]) == 2
    found = json_of(capsys, "convert", saved, tmp_path / "b", "--rename", "net=model", "--only", "model")
    assert sorted(key.split("/")[0] for key in loaded(tmp_path / "b"))[1:] == ["model", "model"]


def test_two_of_one_name_are_refused(saved, tmp_path, capsys):
    assert main(["convert", saved, str(tmp_path / "a.npz"), "--rename", "net/w=x", "--rename", "net/bias=x"]) == 3
    assert "same name" in capsys.readouterr().err
    assert not os.path.exists(tmp_path / "a.npz")


def test_a_small_type_that_the_format_lacks_has_a_remedy(tmp_path, capsys):
    path = milepost.save(tmp_path / "ckpt", {"a": np.ones(2, ml_dtypes.bfloat16), "b": np.ones(2)})
    told = output_of(capsys, "convert", path, tmp_path / "a.npz", status=1).err
    assert "the format has no bfloat16; pass --as float32 to convert it" in told
    json_of(capsys, "convert", path, tmp_path / "a.npz", "--as", "float32", "--overwrite")
    assert np.load(tmp_path / "a.npz")["a"].tolist() == [1, 1]


def test_another_type(saved, tmp_path, capsys):
    json_of(capsys, "convert", saved, tmp_path / "a.safetensors", "--as", "bfloat16")
    values = loaded(tmp_path / "a.safetensors")
    assert values["net/w"].dtype == ml_dtypes.bfloat16
    assert values["step"].dtype == np.int32
    assert main(["convert", saved, str(tmp_path / "b.safetensors"), "--as", "float16"]) == 0


def test_text_stays_behind_and_is_named(tmp_path, capsys):
    path = Checkpoint(name=Variable("text"), v=Variable(1.0)).write(tmp_path / "ckpt")
    assert [each["reason"] for each in json_of(capsys, "convert", path, tmp_path / "a.npz", status=1)["left_out"]] == [
        "text"
    ]
    said = output_of(capsys, "convert", path, tmp_path / "a.safetensors", status=1).err
    assert "left out: name/.ATTRIBUTES/VARIABLE_VALUE: text" in said
    assert "not carried over: the object graph" in said


def test_several_files_and_their_index(tmp_path, capsys):
    values = {f"v{number}": np.full(100, number, np.float32) for number in range(5)}
    path = milepost.save(tmp_path / "ckpt", values)
    target = tmp_path / "model" / "model.safetensors"
    os.mkdir(tmp_path / "model")
    found = json_of(capsys, "convert", path, target, "--max-shard-size", "800B")
    assert [os.path.basename(each) for each in found["files"]] == [
        "model-00001-of-00003.safetensors",
        "model-00002-of-00003.safetensors",
        "model-00003-of-00003.safetensors",
        "model.safetensors.index.json",
    ]
    index = json.loads((tmp_path / "model" / "model.safetensors.index.json").read_text())
    assert index["metadata"] == {"total_size": 2000}
    read = loaded(tmp_path / "model")
    assert sorted(read) == sorted(values)
    np.testing.assert_array_equal(read["v4"], values["v4"])


def test_a_checkpoint_in_several_files(saved, tmp_path, capsys):
    found = json_of(capsys, "convert", saved, tmp_path / "new", "--max-shard-size", "20")
    assert len(found["files"]) > 2
    assert main(["verify", str(tmp_path / "new")]) == 0


@pytest.mark.parametrize("name", ["a.npz", "a.safetensors", "a.pt", "new"])
def test_what_is_there_is_replaced_only_if_asked(saved, tmp_path, capsys, name):
    target = str(tmp_path / name)
    assert main(["convert", saved, target]) == 0
    before = contents(tmp_path)
    assert main(["convert", saved, target]) == 3
    assert "--overwrite" in capsys.readouterr().err
    assert contents(tmp_path) == before
    assert main(["convert", saved, target, "--overwrite"]) == 0


@pytest.mark.parametrize("target", ["flat.pt", "flat.safetensors", "flat.npz"])
def test_nested_dicts_that_become_flat_names_are_told_with_the_remedy(tmp_path, capsys, target):
    source = milepost.save(tmp_path / "source", {"model": {"w": np.ones(2)}, "step": 1})
    assert main(["convert", source, str(tmp_path / target)]) == 0
    told = capsys.readouterr().err
    assert (
        "what was nested has flat names now, such as model/w; '--only model --rename model=' writes that part" in told
    )
    part = ["--only", "model", "--rename", "model=", "--overwrite"]
    assert main(["convert", source, str(tmp_path / target), *part]) == 0
    assert "flat names" not in capsys.readouterr().err
    assert [*milepost.load(tmp_path / target)] == ["w"]


def test_names_that_were_flat_before_are_not_told(tmp_path, capsys):
    np.savez(tmp_path / "a.npz", **{"model/w": np.ones(2)})
    assert main(["convert", str(tmp_path / "a.npz"), str(tmp_path / "a.safetensors")]) == 0
    assert "flat names" not in capsys.readouterr().err


@pytest.mark.parametrize("form", ["orbax", "tensorflow1"])
def test_a_directory_or_prefix_is_replaced_only_if_asked(saved, tmp_path, capsys, form):
    target = str(tmp_path / "target")
    assert main(["convert", saved, target, "--to", form]) == 0
    before = contents(tmp_path)
    assert main(["convert", saved, target, "--to", form]) == 3
    assert contents(tmp_path) == before
    assert main(["convert", saved, target, "--to", form, "--overwrite", "--only", "step"]) == 0
    pytest.importorskip({"orbax": "orbax.checkpoint"}.get(form, "numpy"))
    assert sorted(milepost.load(target)) == ["step"]


def test_a_directory_of_something_else_is_never_replaced(saved, tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    assert main(["convert", saved, str(tmp_path / "mine"), "--to", "orbax", "--overwrite"]) == 3
    assert "not replaced" in capsys.readouterr().err
    assert (tmp_path / "mine" / "notes.txt").read_text() == "keep"


@pytest.mark.parametrize("form", ["orbax", "tensorflow1", "torch"])
def test_a_damaged_source_leaves_nothing_of_other_formats(saved, tmp_path, capsys, form):
    damage(saved, "net/w")
    before = contents(tmp_path)
    assert main(["convert", saved, str(tmp_path / "target"), "--to", form]) == 3
    assert contents(tmp_path) == before


def test_rounding_is_said(saved, tmp_path, capsys):
    path = milepost.save(tmp_path / "thirds", {"a": np.float32([1 / 3]), "b": np.float32([0.5]), "n": 3})
    found = json_of(capsys, "convert", path, tmp_path / "a.pt", "--as", "float16")
    assert list(found["rounded"]) == ["a"]
    assert 0 < found["rounded"]["a"] < 1e-3
    said = output_of(capsys, "convert", path, tmp_path / "b.pt", "--as", "float16").err
    assert "rounded: numbers of 1 tensor, which have changed by up to 0.0244% of their value" in said
    assert "have become 0" not in said


def test_numbers_that_rounding_makes_0_are_said(tmp_path, capsys):
    path = milepost.save(tmp_path / "small", {"a": np.float32([1e-30])})
    said = output_of(capsys, "convert", path, tmp_path / "b.pt", "--as", "float16").err
    assert (
        "rounded: numbers of 1 tensor, which have changed by up to 100% of their value; the smallest have become 0"
        in said
    )


def test_a_number_that_would_become_infinite_is_refused(tmp_path, capsys):
    path = milepost.save(tmp_path / "ckpt", {"a": np.float32([1, 1e30])})
    before = contents(tmp_path)
    assert main(["convert", path, str(tmp_path / "a.safetensors"), "--as", "float16"]) == 3
    assert "1e+30" in capsys.readouterr().err
    assert contents(tmp_path) == before
    assert main(["convert", path, str(tmp_path / "a.safetensors"), "--as", "bfloat16"]) == 0


def test_if_nothing_can_be_held_nothing_is_written(tmp_path, capsys):
    path = milepost.Checkpoint(name=Variable("text")).write(tmp_path / "ckpt")
    assert main(["convert", path, str(tmp_path / "a.npz"), "--only", "name"]) == 3
    assert not os.path.exists(tmp_path / "a.npz")


@pytest.mark.parametrize("target", ["a.npz", "a.safetensors", "new"])
def test_objects_that_are_not_read_stay_behind_and_are_named(tmp_path, capsys, target):
    torch = pytest.importorskip("torch")
    sparse = torch.eye(2).to_sparse()
    torch.save({"w": torch.ones(2), "mask": sparse, "all": {"b": torch.ones(3), "mask": sparse}}, tmp_path / "a.pt")
    found = json_of(capsys, "convert", tmp_path / "a.pt", tmp_path / target, status=1)
    assert sorted(each["key"] for each in found["left_out"]) == ["all/mask", "mask"]
    values = milepost.load(tmp_path / target)
    values = values if "all" in values else {"w": values["w"], "all": {"b": values["all/b"]}}
    assert (values["w"].tolist(), values["all"]["b"].tolist()) == ([1, 1], [1, 1, 1])


@pytest.mark.parametrize("target", ["a.npz", "a.weights.h5", "new"])
def test_if_nothing_is_read_the_remedy_is_another_file(tmp_path, capsys, target):
    torch = pytest.importorskip("torch")
    torch.save({"mask": torch.eye(2).to_sparse()}, tmp_path / "a.pt")
    assert main(["convert", str(tmp_path / "a.pt"), str(tmp_path / target)]) == 3
    assert "remedy: load the file with PyTorch, and save plain tensors" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:.*names 'zzz'")
@pytest.mark.parametrize("target", ["a.npz", "a.safetensors", "a.pt", "new"])
def test_if_nothing_is_left_nothing_is_written(saved, tmp_path, capsys, target):
    before = contents(tmp_path)
    assert (
        "there is no value to write"
        in output_of(capsys, "convert", saved, tmp_path / target, "--only", "zzz", status=3).err
    )
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", ["a.npz", "a.safetensors", "new"])
def test_a_damaged_source_leaves_nothing(saved, tmp_path, capsys, name):
    damage(saved, "net/w")
    before = contents(tmp_path)
    assert main(["convert", saved, str(tmp_path / name)]) == 3
    assert "damaged" in capsys.readouterr().err
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "options",
    [
        ["a.npz", "--max-shard-size", "5"],
        ["a.npz", "--as", "int8"],
        ["a.safetensor"],
        ["new", "--as", "float16"],
        ["new", "--dots"],
        ["dir", "--to", "orbax", "--max-shard-size", "5"],
        ["a.npz", "--max-shard-size", "much"],
    ],
)
def test_wrong_arguments(saved, tmp_path, options):
    with pytest.raises(SystemExit) as ended:
        main(["convert", saved, str(tmp_path / options[0]), *options[1:]])
    assert ended.value.code == 2


@pytest.mark.parametrize("name", ["a.safetensor", "a.onnx", "a.h5", "a.keras", "a.ckpts"])
def test_an_ending_of_no_format_makes_a_checkpoint_only_if_asked(saved, tmp_path, capsys, name):
    with pytest.raises(SystemExit):
        main(["convert", saved, str(tmp_path / name)])
    said = capsys.readouterr().err
    assert ".safetensors, .pt" in said
    assert "--to checkpoint" in said
    assert not list(tmp_path.glob("a.*"))
    assert main(["convert", saved, str(tmp_path / name), "--to", "checkpoint"]) == 0
    assert sorted(milepost.load(tmp_path / name)) == ["net", "step"]


@pytest.mark.parametrize("name", ["ckpt", "model.ckpt", "model.ckpt-7", "ckpt-0.5"])
def test_usual_prefixes_need_no_format(saved, tmp_path, name):
    os.mkdir(tmp_path / "to")
    assert main(["convert", saved, str(tmp_path / "to" / name)]) == 0
    assert os.path.exists(tmp_path / "to" / f"{name}.index")


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A checkpoint of 128 MiB, in each format that is read in pieces."""
    directory = tmp_path_factory.mktemp("large")
    path = Checkpoint(vars=[Variable(np.ones(1 << 24))]).write(directory / "ckpt")
    for name in ("a.safetensors", "a.pt", "a.npz"):
        milepost.convert(path, directory / name, only="vars")
    return directory


FORMS = {"a.npz": "npz", "a.safetensors": "safetensors", "a.pt": "torch", "a.weights.h5": "keras", "orbax": "orbax"}
FORMS |= {"tf1": "tensorflow1", "new": "checkpoint"}


@pytest.mark.parametrize("name", FORMS)
def test_memory_does_not_grow_with_a_file(large, tmp_path, name):
    if FORMS[name] == "keras":
        pytest.importorskip("h5py")
    target = tmp_path / name
    assert most_memory("convert", large / "ckpt", target, "--to", FORMS[name], "--only", "vars") < 70 << 20
    files = [each for each in tmp_path.rglob("*") if each.is_file()]
    assert 128e6 < sum(map(os.path.getsize, files)) < 140e6


@pytest.mark.parametrize("name", ["a.safetensors", "a.pt", "a.npz"])
def test_memory_does_not_grow_with_a_file_of_another_library(large, tmp_path, name):
    assert most_memory("convert", large / name, tmp_path / "new") < 70 << 20
    np.testing.assert_array_equal(milepost.load(tmp_path / "new", mapped=True)["vars"]["0"][-2:], [1, 1])


def test_a_file_of_pytorch(tmp_path, capsys):
    torch = pytest.importorskip("torch")
    numpy = pytest.importorskip("safetensors.numpy")
    net_of_torch = torch.nn.Sequential(torch.nn.Linear(2, 3))
    torch.save({"model": net_of_torch.state_dict()}, tmp_path / "a.pt")
    found = json_of(capsys, "convert", tmp_path / "a.pt", tmp_path / "a.safetensors", "--rename", "model=")
    assert [each["name"] for each in found["tensors"]] == ["0.bias", "0.weight"]
    values = numpy.load_file(tmp_path / "a.safetensors")
    np.testing.assert_array_equal(values["0.weight"], net_of_torch[0].weight.detach().numpy())
    assert main(["diff", str(tmp_path / "a.pt"), str(tmp_path / "a.safetensors")]) == 1


def test_a_checkpoint_of_tensorflow_1(tmp_path, capsys):
    tf = pytest.importorskip("tensorflow").compat.v1
    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable("layer/w", initializer=tf.constant(KERNEL))
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, str(tmp_path / "model.ckpt"))
    assert json_of(capsys, "convert", tmp_path / "model.ckpt", tmp_path / "a.npz")["tensors"][0]["name"] == "layer/w"


def safetensors_with(path, name):
    header = json.dumps({name: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    return path


@pytest.mark.parametrize(
    ("name", "target", "problem"),
    [
        ("half \ud800", "a.npz", "names in UTF-8 only"),
        ("half \ud800", "a.safetensors", "names in UTF-8 only"),
        ("half \ud800", "ckpt", "not valid Unicode"),
        ("a\0b", "a.npz", "without NUL"),
        ("a" * 70_000, "a.npz", "at most 65531 bytes"),
    ],
)
def test_a_name_that_the_format_cannot_hold_is_refused(tmp_path, capsys, name, target, problem):
    source = safetensors_with(tmp_path / "source.safetensors", name)
    assert problem in output_of(capsys, "convert", source, tmp_path / target, status=3).err
    assert os.listdir(tmp_path) == ["source.safetensors"]


def in_parts(saved, target, *options, capsys, status=0):
    return output_of(capsys, "convert", saved, target, "--max-shard-size", "20", *options, status=status)


@pytest.mark.parametrize("ending", ["safetensors", "pt"])
def test_of_several_files_the_index_is_printed(saved, tmp_path, capsys, ending):
    """It is what opens all of them."""
    target = tmp_path / f"a.{ending}"
    printed = in_parts(saved, target, capsys=capsys).out
    assert printed.startswith(f"{target}.index.json: 3 tensors, ")
    assert printed.endswith(" in 4 files\n")


@pytest.mark.parametrize("form", ["checkpoint", "tensorflow1"])
def test_of_a_checkpoint_the_prefix_is_printed(saved, tmp_path, capsys, form):
    printed = output_of(capsys, "convert", saved, tmp_path / "b", "--to", form).out
    assert printed.startswith(f"{tmp_path / 'b'}: 3 tensors, ")


def test_another_number_of_files_replaces_all_of_the_earlier_ones(saved, tmp_path, capsys):
    """An index that stays would be read instead of the new file."""
    target = tmp_path / "new" / "model.safetensors"
    target.parent.mkdir()
    other = target.parent / "model-of-mine.safetensors"
    other.write_bytes(b"")
    in_parts(saved, target, capsys=capsys)
    before = contents(target.parent)
    told = output_of(capsys, "convert", saved, target, "--as", "float16", status=3).err
    assert f"found: a part of {target}, as it was written before" in told
    assert contents(target.parent) == before
    output_of(capsys, "convert", saved, target, "--as", "float16", "--overwrite")
    assert sorted(os.listdir(target.parent)) == ["model-of-mine.safetensors", "model.safetensors"]
    assert loaded(target.parent)["net/w"].dtype == np.float16
    assert f"file: {target}\n" in in_parts(saved, target, capsys=capsys, status=3).err
    in_parts(saved, target, "--overwrite", capsys=capsys)
    assert sorted(contents(target.parent)) == sorted(before)


def test_an_optimizer_of_pytorch_becomes_a_checkpoint(tmp_path, capsys):
    """Its state has the numbers of parameters as names."""
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "a.pt")
    output_of(capsys, "convert", tmp_path / "a.pt", tmp_path / "b")
    state = milepost.load(tmp_path / "b")["optimizer"]["state"]
    assert state.keys() == {0, 1}
    np.testing.assert_array_equal(state[0]["exp_avg"], optimizer.state_dict()["state"][0]["exp_avg"])
    counts = json_of(capsys, "diff", tmp_path / "a.pt", tmp_path / "b", status=1)["counts"]
    assert (counts["removed"], counts["changed"]) == (0, 0)


@pytest.mark.parametrize("form", ["tensorflow1", "checkpoint", "safetensors", "orbax"])
@pytest.mark.parametrize("target", ["", ".", "..", "new/."])
def test_a_target_without_a_name_is_refused(saved, tmp_path, capsys, monkeypatch, form, target):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "new").mkdir()
    before = contents(tmp_path)
    if (form, target) != ("orbax", "new/."):  # which is another name of the directory "new"
        assert "the prefix has no file name" in output_of(capsys, "convert", saved, target, "--to", form, status=3).err
    assert contents(tmp_path) == before
    assert not os.listdir(tmp_path / "new")
