"""The page for those who come from another library has each library, and each argument of the callbacks that it replaces."""

import importlib.util
import inspect
import re
from pathlib import Path

import pytest

import milepost

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "coming_from.md").read_text()
TITLE = PAGE.splitlines()[0]
LIBRARIES = ["tf.train", "torch.save", "DCP", "Orbax", "safetensors", "Keras"]


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_is_in_the_title_and_has_a_section(library):
    """The title is what the index and the sidebar show."""
    assert library in TITLE
    assert f"\n## From {library}\n" in PAGE


def test_the_index_and_the_readme_lead_to_the_page():
    index, readme = (ROOT / "docs" / "index.md").read_text(), (ROOT / "README.md").read_text()
    assert f"[{TITLE.removeprefix('# ')}](coming_from.md)" in index
    assert "](docs/coming_from.md)" in readme


@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed")
def test_each_name_of_tf_train_for_checkpoints_is_named_and_exists():
    import tensorflow as tf

    names = [name for name in vars(tf.train) if "heckpoint" in name or "variable" in name]
    assert names
    assert [name for name in names if name not in PAGE or not hasattr(milepost, name)] == []


@pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="Keras is not installed")
@pytest.mark.parametrize("callback", ["BackupAndRestore", "ModelCheckpoint"])
def test_each_argument_of_a_callback_of_keras_has_a_row(callback):
    import keras

    table = PAGE.split(f"\n| `{callback}` |")[1].split("\n\n")[0]
    left = " ".join(re.findall(r"^\| (.*?) \|", table, re.MULTILINE))
    arguments = inspect.signature(getattr(keras.callbacks, callback)).parameters
    assert [name for name in arguments if not re.search(rf"\b{name}\b", left)] == []
