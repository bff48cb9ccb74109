"""The commands understand the files of the libraries that wrote them."""

import io
import json
import os
import shutil
import sys
import zipfile

import numpy as np
import pytest

from milepost.tools.cli import main
from tests.tools.commands import json_of, output_of, run

W = np.arange(6, dtype=np.float32).reshape(2, 3)


def torch_file(directory):
    torch = pytest.importorskip("torch")
    torch.save({"model": {"l1.weight": torch.tensor(W)}, "epoch": 3}, directory / "a.pt")
    return directory / "a.pt", "model/l1.weight"


def safetensors_file(directory):
    numpy = pytest.importorskip("safetensors.numpy")
    numpy.save_file({"l1.weight": W}, directory / "a.safetensors")
    return directory / "a.safetensors", "l1.weight"


def hugging_face_directory(directory):
    """Two files of a model, and their index."""
    numpy = pytest.importorskip("safetensors.numpy")
    names = {"l1.weight": "model-00001-of-00002.safetensors", "l2.weight": "model-00002-of-00002.safetensors"}
    for key, name in names.items():
        numpy.save_file({key: W}, directory / name)
    (directory / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
    return directory, "l1.weight"


def torch_distributed_directory(directory):
    torch = pytest.importorskip("torch")
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    dcp.save({"model": {"w": torch.tensor(W)}}, checkpoint_id=directory / "dcp", no_dist=True)
    return directory / "dcp", "model/w"


def orbax_directory(directory):
    orbax = pytest.importorskip("orbax.checkpoint")
    with orbax.StandardCheckpointer() as checkpointer:
        checkpointer.save(directory / "orbax", {"params": {"w": W}})
    return directory / "orbax", "params/w"


def saved_model(directory):
    tf = pytest.importorskip("tensorflow")
    module = tf.Module()
    module.w = tf.Variable(W)
    tf.saved_model.save(module, str(directory / "exported"))
    return directory / "exported", "w"


def keras_saved_model(directory):
    keras = pytest.importorskip("keras")
    pytest.importorskip("tensorflow")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("another backend of Keras")
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(3, name="dense")])
    model.layers[0].kernel.assign(W)
    model.export(str(directory / "exported"), verbose=False)
    with_kernel = json.loads(run("show", directory / "exported", "--json").stdout)["tensors"]
    return directory / "exported", next(row["key"] for row in with_kernel if row["shape"] == [2, 3])


def keras_file(directory):
    h5py = pytest.importorskip("h5py")
    with h5py.File(directory / "a.weights.h5", "w") as file:
        file["layers/dense/vars/0"] = W
    return directory / "a.weights.h5", "layers/dense/vars/0"


def numpy_file(directory):
    np.savez(directory / "a.npz", **{"l1.weight": W})
    return directory / "a.npz", "l1.weight"


def tensorflow_1(directory, version=2):
    tf = pytest.importorskip("tensorflow").compat.v1
    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable("layer/w", initializer=tf.constant(W))
        session.run(tf.global_variables_initializer())
        tf.train.Saver(write_version=version).save(session, str(directory / "model.ckpt"), global_step=7)
    return directory / "model.ckpt-7", "layer/w"


def tensorflow_1_version_1(directory):
    return tensorflow_1(directory, version=1)


FORMATS = [
    torch_file,
    safetensors_file,
    hugging_face_directory,
    torch_distributed_directory,
    orbax_directory,
    keras_file,
    numpy_file,
    saved_model,
    keras_saved_model,
    tensorflow_1,
    tensorflow_1_version_1,
]


@pytest.fixture(scope="module", params=FORMATS, ids=lambda function: function.__name__)
def made(request, tmp_path_factory):
    path, key = request.param(tmp_path_factory.mktemp("made"))
    return str(path), key


def test_ls_lists_it(made, capsys):
    path, _ = made
    (row,) = json_of(capsys, "ls", path)["checkpoints"]
    assert row["state"] == ("not checked" if path.endswith("orbax") else "complete")
    assert row["bytes"] > W.nbytes
    assert row["age_seconds"] < 3600


def test_ls_lists_it_in_its_directory(made, capsys):
    """Once, and none of its parts."""
    path, _ = made
    if os.path.basename(path).startswith("made"):
        pytest.skip("it is the directory itself")
    (row,) = json_of(capsys, "ls", os.path.dirname(path))["checkpoints"]
    assert row["path"].startswith(path)


def test_show_lists_its_tensors(made, capsys):
    path, key = made
    shapes = {
        row["key"].removesuffix("/.ATTRIBUTES/VARIABLE_VALUE"): row["shape"]
        for row in json_of(capsys, "show", path)["tensors"]
    }
    assert shapes[key.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE")] == [2, 3]
    assert "[2,3]" in output_of(capsys, "show", path, "--tree").out


def test_show_has_statistics(made, capsys):
    path, key = made
    shown = json_of(capsys, "show", path, key)
    assert shown["statistics"]["mean"] == 2.5
    assert shown["first_values"] == W.reshape(-1).tolist()


WITH_CHECKSUMS = ["torch_file", "torch_distributed", "numpy", "saved_model", "tensorflow_1"]


def test_verify_says_whether_checksums_were_compared(made, capsys, request):
    (found,) = json_of(capsys, "verify", made[0])["checkpoints"]
    is_compared = any(name in request.node.name for name in WITH_CHECKSUMS)
    assert found["tensors_without_checksum"] == (0 if is_compared else found["tensors"])
    text = output_of(capsys, "verify", made[0]).out
    assert ("all checksums correct" in text) == is_compared
    assert ("changed bytes may go unnoticed" in text) != is_compared


def test_verify_reads_it(made, capsys):
    (found,) = json_of(capsys, "verify", made[0])["checkpoints"]
    assert found["state"] == "whole"


def test_diff_compares_it(made, capsys, tmp_path):
    path, _ = made
    assert json_of(capsys, "diff", path, path)["changes"] == []
    from milepost import save

    other = save(tmp_path / "other", {"x": np.zeros(2)})
    kinds = {change["change"] for change in json_of(capsys, "diff", path, other, status=1)["changes"]}
    assert kinds >= {"removed", "added"}


def test_cat_writes_it(made, capsys, tmp_path):
    path, key = made
    assert main(["cat", path, key, "-o", str(tmp_path / "w.npy")]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "w.npy"), W)


def test_graph_draws_it_or_says_why_not(made, capsys):
    path, _ = made
    status = main(["graph", path])
    captured = capsys.readouterr()
    assert status == 0 or ("error: " in captured.err and "milepost show" in captured.err)


def test_report_shows_it(made, capsys):
    path, key = made
    (found,) = [each for each in json_of(capsys, "report", path)["tensors"] if key in each["name"]]
    assert found["statistics"][0]["mean"] == 2.5
    assert output_of(capsys, "report", path).out.startswith("<!doctype html>")


def test_a_state_dict_is_compared_with_a_checkpoint_of_its_module(tmp_path, capsys):
    """Dots and slashes separate the same names."""
    torch = pytest.importorskip("torch")
    import milepost

    module = torch.nn.Sequential(torch.nn.Linear(2, 3))
    torch.save(module.state_dict(), tmp_path / "a.pt")
    path = milepost.Checkpoint(module).write(tmp_path / "ckpt")
    changes = json_of(capsys, "diff", tmp_path / "a.pt", path)["changes"]
    assert changes == []
    with torch.no_grad():
        module[0].bias += 1
    path = milepost.Checkpoint(module).write(tmp_path / "ckpt2")
    (change,) = json_of(capsys, "diff", tmp_path / "a.pt", path, status=1)["changes"]
    assert change["max_abs_difference"] == pytest.approx(1.0)


def test_a_damaged_file_of_another_library(tmp_path, capsys):
    path, _ = torch_file(tmp_path)
    with zipfile.ZipFile(path) as archive:
        at = next(info for info in archive.infolist() if info.filename.endswith("data/0")).header_offset
    content = bytearray(path.read_bytes())
    content[content.index(W.tobytes(), at)] ^= 1
    path.write_bytes(content)
    assert main(["verify", str(path)]) == 1
    assert main(["show", str(path), "model/l1.weight"]) == 3
    capsys.readouterr()


def test_the_weights_of_a_checkpoint_are_matched(tmp_path, capsys, monkeypatch):
    """A file of PyTorch and the module that it is for, which is not built to match."""
    torch = pytest.importorskip("torch")
    (tmp_path / "for_a_file.py").write_text(
        "import torch\nnet = torch.nn.Sequential(torch.nn.Linear(2, 3))\nlarger = torch.nn.Sequential(torch.nn.Linear(2, 4))\n"
    )
    torch.save(torch.nn.Sequential(torch.nn.Linear(2, 3)).state_dict(), tmp_path / "net.pt")
    monkeypatch.chdir(tmp_path)
    assert json_of(capsys, "match", "net.pt", "for_a_file:net")["counts"]["matched"] == 2
    counts = json_of(capsys, "match", "net.pt", "for_a_file:larger", status=1)["counts"]
    assert (counts["wrong shape"], counts["matched"]) == (2, 0)


def test_a_preview_leaves_a_model_and_its_optimizer_as_they_are(tmp_path):
    """It is the report of the restore that follows, slot variables included."""
    torch = pytest.importorskip("torch")
    import milepost
    from milepost.checkpoint.checkpoint import view_of
    from milepost.engine.options import CheckpointOptions, resolved
    from milepost.restoring.load import preview

    def training(width):
        module = torch.nn.Linear(2, width)
        return milepost.Checkpoint(net=module, optimizer=torch.optim.Adam(module.parameters()))

    first = training(3)
    first.net(torch.ones(1, 2)).sum().backward()
    first.optimizer.step()
    path = first.save(tmp_path / "ckpt")
    live = training(3)
    _ = live.save_counter
    before = {key: value.clone() for key, value in live.net.state_dict().items()}
    found = preview(path, lambda: view_of(live), resolved(CheckpointOptions()))
    assert live.optimizer.state_dict()["state"] == {}
    assert all(torch.equal(value, before[key]) for key, value in live.net.state_dict().items())
    assert [each.outcome.value for each in found.entries].count("matched") == len(found.entries)
    status = live.restore(path)
    assert status.assert_consumed().report().to_dict() == found.to_dict()
    misfit = training(4)
    with pytest.raises(milepost.MismatchError) as refused:
        misfit.restore(path)
    _ = misfit.save_counter
    previewed = preview(path, lambda: view_of(misfit), resolved(CheckpointOptions()))
    assert previewed.wrong_shape == refused.value.report.wrong_shape


def test_a_preview_of_keras(tmp_path):
    """Values whose variables are not built yet are deferred, and those of the optimizer too."""
    keras = pytest.importorskip("keras")
    import milepost
    from milepost.checkpoint.checkpoint import view_of
    from milepost.engine.options import CheckpointOptions, resolved
    from milepost.restoring.load import preview

    def training():
        model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(3)])
        model.compile(optimizer="adam", loss="mse")
        return milepost.Checkpoint(model=model)

    first = training()
    first.model.fit(np.ones((4, 2)), np.ones((4, 3)), verbose=0)
    path = first.save(tmp_path / "ckpt")
    live = training()
    _ = live.save_counter
    before = [weight.copy() for weight in live.model.get_weights()]
    found = preview(path, lambda: view_of(live), resolved(CheckpointOptions()))
    assert all(np.array_equal(*pair) for pair in zip(before, live.model.get_weights(), strict=True))
    status = live.restore(path).expect_partial()
    assert status.report().to_dict() == found.to_dict()


def test_without_h5py_files_of_keras_are_refused_with_a_remedy(tmp_path, capsys, monkeypatch):
    keras_file(tmp_path)
    monkeypatch.setitem(sys.modules, "h5py", None)
    rows = json_of(capsys, "ls", tmp_path)["checkpoints"]
    assert [row["state"] for row in rows] == ["not read"]
    assert main(["show", str(tmp_path / "a.weights.h5")]) == 3
    assert 'remedy: run: pip install "milepost[keras]"' in capsys.readouterr().err


def test_a_directory_of_many_kinds(tmp_path, capsys):
    torch_file(tmp_path)
    safetensors_file(tmp_path)
    saved_model(tmp_path)
    shutil.copy(tmp_path / "a.pt", tmp_path / "b.pt")
    (tmp_path / "notes.txt").write_text("not a checkpoint")
    names = [os.path.basename(row["path"]) for row in json_of(capsys, "ls", tmp_path)["checkpoints"]]
    assert sorted(names) == ["a.pt", "a.safetensors", "b.pt", "exported"]


def test_a_hugging_face_directory_is_one_model_and_no_shards(tmp_path, capsys):
    hugging_face_directory(tmp_path)
    (row,) = json_of(capsys, "ls", tmp_path)["checkpoints"]
    assert row["tensors"] == 2
    assert row["bytes"] > 2 * W.nbytes


def test_a_directory_of_files_is_no_checkpoint_and_the_error_says_how_to_list_it(tmp_path, capsys):
    np.savez(tmp_path / "a.npz", w=W)
    assert main(["show", str(tmp_path)]) == 3
    assert f"'milepost ls {tmp_path}' lists the checkpoints and files in it" in capsys.readouterr().err
    os.remove(tmp_path / "a.npz")
    assert main(["show", str(tmp_path)]) == 3
    assert "name another directory" in capsys.readouterr().err


def test_text_of_tensorflow_1_has_a_size(tmp_path, capsys):
    tf = pytest.importorskip("tensorflow").compat.v1
    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable("text", initializer="hello")
        tf.get_variable("w", initializer=tf.constant(W))
        session.run(tf.global_variables_initializer())
        tf.train.Saver(write_version=1).save(session, str(tmp_path / "model.ckpt"))
    rows = json_of(capsys, "show", tmp_path / "model.ckpt")["tensors"]
    assert {row["key"]: row["bytes"] for row in rows} == {"text": 5, "w": W.nbytes}


def test_a_damaged_one_of_tensorflow_1_is_called_damaged(tmp_path, capsys):
    path, _ = tensorflow_1_version_1(tmp_path)
    content = bytearray(path.read_bytes())
    for damaged in (content[:20] + b"damage" + content[26:], content[:-10]):
        path.write_bytes(damaged)
        for command in (["verify", str(path)], ["show", str(path)]):
            main(command)
            assert "remedy: use an intact copy" in capsys.readouterr().err


def test_steps_of_orbax_are_listed(tmp_path, capsys):
    orbax = pytest.importorskip("orbax.checkpoint")
    with orbax.CheckpointManager(tmp_path / "run") as manager:
        for step in (1, 2):
            manager.save(step, args=orbax.args.StandardSave({"w": W}))
            manager.wait_until_finished()
    rows = json_of(capsys, "ls", tmp_path / "run")["checkpoints"]
    assert [os.path.basename(row["path"]) for row in rows] == ["1", "2"]
    assert {row["state"] for row in rows} == {"not checked"}
    above = json_of(capsys, "ls", tmp_path)["checkpoints"]
    assert [row["path"] for row in above] == [row["path"] for row in rows]
    lines = output_of(capsys, "ls", tmp_path).out.splitlines()
    assert [line.split()[-1] for line in lines[1:]] == [os.path.join("run", step) for step in "12"]


def test_a_directory_of_steps_of_orbax_means_the_newest_complete_one(tmp_path, capsys):
    orbax = pytest.importorskip("orbax.checkpoint")
    run = tmp_path / "run"
    with orbax.CheckpointManager(run) as manager:
        for step in (9, 10, 11):
            manager.save(step, args=orbax.args.StandardSave({"w": W + step}))
    (run / "11").rename(run / "11.orbax-checkpoint-tmp-1")
    assert main(["show", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["checkpoint"] == str(run / "10")
    (unfinished,) = [row for row in json_of(capsys, "ls", run, status=1)["checkpoints"] if row["state"] == "damaged"]
    assert unfinished["step"] == 11
    told = output_of(capsys, "prune", run, "--keep", "1", "--delete", status=3).err
    assert "this is a directory of Orbax, whose steps are not pruned" in told
    assert "3 directories, left as they are; Orbax has not finished 11.orbax-checkpoint-tmp-1" in told
    assert sorted(each.name for each in run.iterdir() if each.is_dir()) == ["10", "11.orbax-checkpoint-tmp-1", "9"]


def test_match_tells_of_the_newest_complete_step_of_orbax(tmp_path, capsys, monkeypatch):
    orbax = pytest.importorskip("orbax.checkpoint")
    with orbax.CheckpointManager(tmp_path / "run") as manager:
        manager.save(9, args=orbax.args.StandardSave({"v": W}))
        manager.save(10, args=orbax.args.StandardSave({"w": W}))
    (tmp_path / "program_of_orbax.py").write_text(
        f"import numpy as np\nstate = {{'w': np.zeros({W.shape}, '{W.dtype}')}}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    told = json_of(capsys, "match", "run", "program_of_orbax:state")
    assert told["prefix"] == os.path.join("run", "10")


def test_a_step_that_orbax_has_not_finished_is_damaged(tmp_path, capsys):
    path, _ = orbax_directory(tmp_path)
    os.rename(path, tmp_path / "orbax.orbax-checkpoint-tmp-1")
    (row,) = json_of(capsys, "ls", tmp_path, status=1)["checkpoints"]
    assert row["state"] == "damaged"
    assert "not finished" in row["problem"]


@pytest.mark.parametrize("killed", ["before the name", "before _METADATA", "before anything"])
def test_what_orbax_has_not_finished_is_recognised(tmp_path, capsys, killed):
    """A killed save leaves a temporary directory, or arrays without the file that describes them."""
    orbax = pytest.importorskip("orbax.checkpoint")
    with orbax.CheckpointManager(tmp_path / "run") as manager:
        manager.save(1, args=orbax.args.StandardSave({"w": W}))
    step = tmp_path / "run" / "1"
    if killed == "before the name":
        (step / "default").rename(step / "default.orbax-checkpoint-tmp")
        step = step.rename(tmp_path / "run" / "1.orbax-checkpoint-tmp-17")
    elif killed == "before _METADATA":
        (step / "default" / "_METADATA").unlink()
    else:
        shutil.rmtree(step)
        step = tmp_path / "run" / "1.orbax-checkpoint-tmp-17"
        step.mkdir()
    for listed in (tmp_path, tmp_path / "run", step):
        (row,) = json_of(capsys, "ls", listed, status=1)["checkpoints"]
        assert (row["path"], row["state"]) == (str(step), "damaged")
        assert "Orbax has not finished writing" in row["problem"]
    for command in ("show", "verify"):
        main([command, str(step)])
        assert "its save is running, or was killed" in capsys.readouterr().err


def test_a_step_without_the_time_of_its_commit_is_read_as_orbax_reads_it(tmp_path, capsys):
    orbax = pytest.importorskip("orbax.checkpoint")
    with orbax.CheckpointManager(tmp_path / "run") as manager:
        manager.save(1, args=orbax.args.StandardSave({"w": W}))
    told = tmp_path / "run" / "1" / "_CHECKPOINT_METADATA"
    told.write_text(json.dumps(json.loads(told.read_text()) | {"commit_timestamp_nsecs": None}))
    with orbax.CheckpointManager(tmp_path / "run") as manager:
        assert manager.restore(1, args=orbax.args.StandardRestore())["w"].tolist() == W.tolist()
    (row,) = json_of(capsys, "ls", tmp_path / "run")["checkpoints"]
    assert row["state"] == "not checked"
    assert output_of(capsys, "verify", tmp_path / "run" / "1", status=0)


def test_a_missing_file_of_a_model_has_a_remedy_that_fits(tmp_path, capsys):
    directory, _ = hugging_face_directory(tmp_path)
    os.remove(directory / "model-00002-of-00002.safetensors")
    for command, status in (("show", 3), ("ls", 1), ("verify", 1)):
        told = output_of(capsys, command, directory, status=status).err
        assert told.rstrip().endswith("remedy: copy all files of the model")


@pytest.mark.parametrize("make", [hugging_face_directory, torch_distributed_directory])
def test_a_damaged_directory_is_listed_alike_from_above(tmp_path, capsys, make):
    (tmp_path / "made").mkdir()
    directory, _ = make(tmp_path / "made")
    for name in ("model-00002-of-00002.safetensors", ".metadata"):
        if (directory / name).exists():
            os.remove(directory / name)
    rows = [json_of(capsys, "ls", each, status=1)["checkpoints"] for each in (directory, directory.parent)]
    assert [[(row["state"], row["bytes"]) for row in each] for each in rows] == [[("damaged", rows[0][0]["bytes"])]] * 2


def test_what_a_file_of_keras_needs_is_said(tmp_path, capsys, monkeypatch):
    path, _ = keras_file(tmp_path)
    shutil.copy(path, tmp_path / "b.keras")
    monkeypatch.setitem(sys.modules, "h5py", None)
    told = output_of(capsys, "ls", tmp_path).err
    assert told.count("not read: ") == 2
    assert told.count('remedy: run: pip install "milepost[keras]"') == 1


def test_an_array_of_bfloat16(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save({"w": torch.tensor(W).bfloat16()}, tmp_path / "a.pt")
    done = run("cat", tmp_path / "a.pt", "w", "--as", "float32", text=False)
    np.testing.assert_array_equal(np.load(io.BytesIO(done.stdout)), W)


def test_of_a_pickled_module_the_tensors_are_read(tmp_path, capsys):
    torch = pytest.importorskip("torch")
    torch.save(torch.nn.Linear(2, 3), path := tmp_path / "module.pt")
    assert "1 object read in part" in output_of(capsys, "verify", path).out
    (found,) = json_of(capsys, "verify", path)["checkpoints"]
    assert (found["objects_not_read"], found["objects_read_in_part"]) == (1, 1)
    told = output_of(capsys, "diff", path, path)
    assert "2 the same" in told.out
    assert "compared in part" in told.err


def test_of_an_object_without_tensors_nothing_is_read(tmp_path, capsys):
    torch = pytest.importorskip("torch")
    torch.save({"w": torch.ones(2), "sparse": torch.eye(2).to_sparse()}, path := tmp_path / "a.pt")
    assert "1 object not read" in output_of(capsys, "verify", path).out
    (found,) = json_of(capsys, "show", path)["objects_not_read"]
    assert not found["read_in_part"]
    assert "not compared, since milepost does not read it: sparse" in output_of(capsys, "diff", path, path).err
