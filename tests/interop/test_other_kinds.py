"""Files of kinds that milepost does not read, under any name: every call says what they are, and what to do."""

import bz2
import gzip
import io
import json
import lzma
import pickle
import tarfile
import zipfile

import numpy as np
import pytest

import milepost
from milepost import CorruptCheckpointError, MilepostError, UnsupportedError
from milepost.tools.cli import main


def archive(**members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, data in members.items():
            file.writestr(name.replace("__", "."), data)
    return buffer.getvalue()


def written(save, *arguments, **keywords):
    buffer = io.BytesIO()
    save(buffer, *arguments, **keywords)
    return buffer.getvalue()


def tar():
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as file:
        file.addfile(tarfile.TarInfo("model.pt"))
    return buffer.getvalue()


def protobuf(*fields):
    """A message of fields, each a number and an integer below 128 or bytes."""
    data = b""
    for number, value in fields:
        if isinstance(value, int):
            data += bytes([number << 3, value])
        else:
            data += bytes([number << 3 | 2, len(value)]) + value
    return data


FILES = {
    "npy": (written(np.save, np.ones(3)), "numpy.save", "numpy.load"),
    "zip": (archive(readme__txt=b"a"), "zip archive", "unpack"),
    "zip of weights": (archive(policy__pth=b"a"), "files of weights", "unpack"),
    "empty zip": (archive(), "empty zip", "checkpoint"),
    "gzip": (gzip.compress(b"a" * 99), "gzip", "gzip -dk"),
    "bzip2": (bz2.compress(b"a" * 99), "bzip2", "bzip2 -dk"),
    "xz": (lzma.compress(b"a" * 99), "xz", "xz -dk"),
    "zstd": (b"\x28\xb5\x2f\xfd\x04\x00" + bytes(50), "Zstandard", "zstd"),
    "tar": (tar(), "tar archive", "tar -xf"),
    "HTML": (b"<!DOCTYPE html>\n<html><head><title>404</title></head></html>", "HTML", "download"),
    "HTML after a mark": (b"\xef\xbb\xbf\n<html lang='en'><body>Sign in</body></html>", "HTML", "download"),
    "XML": (b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "XML", "download"),
    "JSON": (json.dumps({"error": "Repository not found"}).encode(), "JSON", "download"),
    "text": (b"Entry not found", "a text file", "download"),
    "text of other letters": ("Zugriff verweigert: \u00e4\u4e2d".encode() * 99, "a text file", "download"),
    "index": (json.dumps({"weight_map": {"w": "a.safetensors"}}).encode(), "JSON", ".index.json"),
    "LFS": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "Git LFS", "git lfs pull"),
    "annex": (b"/annex/objects/MD5E-s9--00.pt\n", "git-annex", "git annex get"),
    "state file": (b'model_checkpoint_path: "ckpt-1"\n', "state file", "directory"),
    "GGUF": (b"GGUF\x03\0\0\0" + bytes(50), "GGUF", "converted"),
    "TFLite": (b"\x1c\0\0\0TFL3" + bytes(50), "TensorFlow Lite", "converted"),
    "Parquet": (b"PAR1" + bytes(50) + b"PAR1", "Parquet", "library that wrote it"),
    "Arrow": (b"ARROW1\0\0" + bytes(50), "Arrow", "library that wrote it"),
    "PNG": (b"\x89PNG\r\n\x1a\n" + bytes(50), "image", "checkpoint"),
    "JPEG": (b"\xff\xd8\xff\xe0" + bytes(50), "image", "checkpoint"),
    "PDF": (b"%PDF-1.7\n" + bytes(50), "PDF", "checkpoint"),
    "pickle": (pickle.dumps({"w": np.ones(2)}), "pickled data", "pickle"),
    "pickle of Python 2": (pickle.dumps({"w": np.ones(2)}, 2), "pickled data", "pickle"),
    "ONNX": (protobuf((1, 8), (2, b"pytorch"), (3, b"2.1")) + bytes(50), "ONNX", "exported"),
    "ONNX of no producer": (protobuf((1, 7), (7, b"graph"))[:2] + b"\x3a\x04" + bytes(50), "ONNX", "exported"),
    "SavedModel": (protobuf((1, 1), (2, b"\n\x05\x12\x03abc")) + bytes(50), "SavedModel", "directory"),
    "Core ML": (protobuf((1, 4), (2, b"\n\x05\x12\x03abc")) + bytes(50), "Core ML", "converted"),
    "SQLite": (b"SQLite format 3\0" + bytes(50), "SQLite", "checkpoint"),
}
NAMES = ("model.pt", "model.safetensors", "weights", "ckpt-1")


def calls(path):
    yield lambda: milepost.load_checkpoint(path)
    yield lambda: milepost.list_variables(path)
    yield lambda: milepost.load_variable(path, "w")
    yield lambda: milepost.CheckpointReader(path)
    yield lambda: milepost.Checkpoint(w=milepost.Variable(0.0)).restore(path)
    yield lambda: milepost.Checkpoint(w=milepost.Variable(0.0)).read(path)
    yield lambda: milepost.Checkpoint(milepost.Module()).read(path)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", FILES)
def test_every_call_says_what_a_file_is_and_what_to_do(tmp_path, kind, name):
    content, said, remedy = FILES[kind]
    path = tmp_path / name
    path.write_bytes(content)
    for call in calls(path):
        with pytest.raises(UnsupportedError, match=said) as caught:
            call()
        assert remedy in caught.value.remedy
        assert caught.value.file == str(path)


def test_a_relative_path_is_told_apart_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.pt").write_bytes(FILES["HTML"][0])
    for call in calls("model.pt"):
        with pytest.raises(UnsupportedError, match="HTML"):
            call()


def test_the_command_says_it_too(tmp_path, capsys):
    path = tmp_path / "model.pt"
    path.write_bytes(FILES["LFS"][0])
    for command in ("show", "verify"):
        assert main([command, str(path)]) == 3
        assert "Git LFS" in capsys.readouterr().err


def test_jax_says_it_too(tmp_path):
    pytest.importorskip("jax")
    import milepost.jax

    path = tmp_path / "model.gz"
    path.write_bytes(FILES["gzip"][0])
    with pytest.raises(UnsupportedError, match="gzip"):
        milepost.jax.restore(path, {"w": np.zeros(2)})


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_file_is_called_empty(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b"")
    for call in calls(path):
        with pytest.raises(CorruptCheckpointError, match="empty") as caught:
            call()
        assert "again" in caught.value.remedy


@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_is_cut_off_after_any_byte_gives_errors_of_milepost(tmp_path, kind):
    path = tmp_path / "model.pt"
    for size in range(min(len(FILES[kind][0]), 64)):
        path.write_bytes(FILES[kind][0][:size])
        with pytest.raises(MilepostError):
            milepost.list_variables(path)


@pytest.mark.parametrize("size", range(8, 8 + 4 * 60, 7))
def test_a_header_of_safetensors_of_any_length_is_none_of_another_kind(tmp_path, size):
    """Its first bytes are a number, and so may be those of anything."""
    name = "n" * size
    header = json.dumps({name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    for length in (len(header), 0x8B1F if size == 8 else len(header)):
        padded = header + b" " * (length - len(header))
        path = tmp_path / "weights"
        path.write_bytes(len(padded).to_bytes(8, "little") + padded + np.float32(3).tobytes())
        assert milepost.load_variable(path, name).tolist() == [3]


def test_a_broken_header_of_safetensors_is_damage(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes((1 << 40).to_bytes(8, "little") + b"{" + bytes(20))
    with pytest.raises(CorruptCheckpointError, match="truncated, or is not a safetensors file"):
        milepost.list_variables(path)


def test_the_index_of_a_checkpoint_is_opened_whatever_it_begins_with(tmp_path):
    prefix = milepost.Checkpoint(w=milepost.Variable(1.0)).write(tmp_path / "ckpt")
    assert milepost.load_variable(prefix, "w/.ATTRIBUTES/VARIABLE_VALUE") == 1


class TestRealFiles:
    def test_a_program_of_torchscript(self, tmp_path):
        torch = pytest.importorskip("torch")
        path = tmp_path / "model.pt"
        torch.jit.trace(torch.nn.Linear(1, 1), torch.ones(1, 1)).save(str(path))
        with pytest.raises(UnsupportedError, match="TorchScript") as caught:
            milepost.Checkpoint(torch.nn.Linear(1, 1)).read(path)
        assert "torch.jit.load" in caught.value.remedy

    def test_a_program_of_torch_export(self, tmp_path):
        torch = pytest.importorskip("torch")
        path = tmp_path / "model.pt"
        torch.export.save(torch.export.export(torch.nn.Linear(1, 1), (torch.ones(1, 1),)), path)
        with pytest.raises(UnsupportedError, match=r"torch\.export") as caught:
            milepost.Checkpoint(torch.nn.Linear(1, 1)).read(path)
        assert "torch.export.load" in caught.value.remedy

    def test_tables_of_arrow(self, tmp_path):
        arrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        feather = pytest.importorskip("pyarrow.feather")
        table = arrow.table({"a": [1, 2]})
        parquet.write_table(table, tmp_path / "parquet")
        feather.write_feather(table, tmp_path / "arrow")
        for name in ("parquet", "arrow"):
            with pytest.raises(UnsupportedError, match=f"(?i){name}"):
                milepost.load_checkpoint(tmp_path / name)

    def test_the_graph_of_a_saved_model_without_its_variables(self, tmp_path):
        tf = pytest.importorskip("tensorflow")
        module = tf.Module()
        module.v = tf.Variable(1.0)
        tf.saved_model.save(module, str(tmp_path / "saved"))
        alone = tmp_path / "alone.pb"
        alone.write_bytes((tmp_path / "saved" / "saved_model.pb").read_bytes())
        with pytest.raises(UnsupportedError, match="SavedModel"):
            milepost.load_checkpoint(alone)


def test_an_archive_that_is_cut_off_is_damaged_and_of_no_other_kind(tmp_path):
    path = tmp_path / "model.keras"
    path.write_bytes(archive(metadata__json=b"{}", config__json=b"{}", model__weights__h5=b"weights")[:-30])
    with pytest.raises(CorruptCheckpointError, match="cut off or damaged") as caught:
        milepost.load(path)
    assert caught.value.remedy == "copy or download it again"
