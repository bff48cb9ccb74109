"""Directories with one model, whatever Hugging Face's libraries call its file, and models in several files."""

import json

import numpy as np
import pytest

import milepost
from milepost.foreign import files_of_model


def file_of(path, value=1.0):
    own = milepost.save(path.parent / "own" / "own", {"w": np.full(3, value)})
    milepost.convert(own, path, overwrite=True)
    for each in (path.parent / "own").iterdir():
        each.unlink()
    (path.parent / "own").rmdir()


def in_several_files(directory, index, names):
    for number, name in enumerate(names):
        file_of(directory / name, float(number))
        loaded = milepost.load(directory / name)
        milepost.convert(
            milepost.save(directory / "own", {f"w{number}": loaded["w"]}), directory / name, overwrite=True
        )
    for each in directory.glob("own*"):
        each.unlink()
    weights = {f"w{number}": name for number, name in enumerate(names)}
    (directory / index).write_text(json.dumps({"metadata": {"total_size": 48}, "weight_map": weights}))


@pytest.mark.parametrize(
    "name",
    [
        "model.safetensors",
        "diffusion_pytorch_model.safetensors",
        "adapter_model.safetensors",
        "adapter_model.bin",
        "model.fp16.safetensors",
        "diffusion_pytorch_model.fp16.safetensors",
        "my_finetune.safetensors",
        "open_clip_pytorch_model.bin",
    ],
)
def test_the_model_of_a_directory_is_opened(tmp_path, name):
    file_of(tmp_path / name)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "optimizer.bin").write_bytes(b"not a model")
    assert milepost.load(tmp_path)["w"].tolist() == [1, 1, 1]
    live = milepost.Checkpoint(w=milepost.Variable(np.zeros(3)))
    live.read(tmp_path).assert_consumed()
    assert live.w.numpy().tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("index", "names"),
    [
        ("model.safetensors.index.json", ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]),
        (
            "diffusion_pytorch_model.safetensors.index.fp16.json",
            [
                "diffusion_pytorch_model.fp16-00001-of-00002.safetensors",
                "diffusion_pytorch_model.fp16-00002-of-00002.safetensors",
            ],
        ),
        (
            "diffusion_pytorch_model.fp16.safetensors.index.json",
            [
                "diffusion_pytorch_model.fp16-00001-of-00002.safetensors",
                "diffusion_pytorch_model.fp16-00002-of-00002.safetensors",
            ],
        ),
        ("pytorch_model.bin.index.json", ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"]),
        ("other.safetensors.index.json", ["other-00001-of-00001.safetensors"]),
    ],
)
def test_a_model_in_several_files(tmp_path, index, names):
    in_several_files(tmp_path, index, names)
    found = milepost.load(tmp_path)
    assert {name: value.tolist() for name, value in found.items()} == {
        f"w{number}": [number] * 3 for number in range(len(names))
    }
    assert files_of_model(milepost.storage.default.DEFAULT_STORAGE, str(tmp_path)) == [
        str(tmp_path / index),
        *sorted(str(tmp_path / name) for name in names),
    ]


def test_safetensors_is_preferred(tmp_path):
    file_of(tmp_path / "adapter_model.bin", 1.0)
    file_of(tmp_path / "adapter_model.safetensors", 2.0)
    assert milepost.load(tmp_path)["w"].tolist() == [2, 2, 2]


def test_a_model_without_a_variant_is_preferred(tmp_path):
    file_of(tmp_path / "model.safetensors", 1.0)
    file_of(tmp_path / "model.fp16.safetensors", 2.0)
    assert milepost.load(tmp_path)["w"].tolist() == [1, 1, 1]


def test_several_models_are_named(tmp_path):
    file_of(tmp_path / "first.safetensors")
    file_of(tmp_path / "second.safetensors")
    with pytest.raises(milepost.UnsupportedError, match="several models") as caught:
        milepost.load(tmp_path)
    assert caught.value.found == "first.safetensors, second.safetensors"
    assert str(tmp_path / "first.safetensors") in caught.value.remedy


def test_a_model_beside_checkpoints_is_not_taken_for_the_directory(tmp_path):
    path = milepost.Checkpoint(w=milepost.Variable(np.full(3, 5.0))).save(tmp_path / "ckpt")
    file_of(tmp_path / "exported.safetensors")
    assert milepost.load(tmp_path)["w"].tolist() == [5, 5, 5]
    assert milepost.load(path)["w"].tolist() == [5, 5, 5]
