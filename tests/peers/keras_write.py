"""The tests of Keras for its files, with milepost writing the values, and Keras reading them."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from tests.peers.library_texts import accept_own_texts
from tests.peers.suite import Suite

_PRIVATE = "It tests a private class or function of Keras."
_OLD = "milepost does not write the files `.h5` of Keras 2."
_EMPTY = "milepost refuses to write a file for a model that is not built, so that Keras has no names for its variables."

SUITE = Suite(
    title="Keras, writing",
    packages=("keras",),
    copied={
        "conftest.py": "conftest.py",
        "keras/src/saving/saving_lib_test.py": "saving_lib_test.py",
        "keras/src/saving/test_data": "test_data",
    },
    files=("saving_lib_test.py",),
    environment={"KERAS_BACKEND": "jax"},
    replaced="`milepost.Checkpoint(model).write` saves a model, `milepost convert --object` writes the file `.weights.h5`, and Keras reads it. Keras puts it into a "
    "`.keras` file, with its description of the model. The backend is JAX.",
    excluded={
        "*::SafeGetH5DatasetTest::test_rejects_shape_bomb": _PRIVATE,
        "*::SafeZipReadTest::test_allows_incompressible_member": _PRIVATE,
        "*::SafeZipReadTest::test_rejects_decompression_bomb": _PRIVATE,
        "*::SavingDiskIOStoreTest::*": _PRIVATE,
        "*::SavingH5IOStoreTest::*": _PRIVATE,
        "*::SavingNpzIOStoreTest::*": _PRIVATE,
        "*::test_load_model_rejects_bomb_config": "It writes no values.",
        "*::test_legacy_load_skips_missing_nested_containers": "It writes no values.",
        "*::test_model_api_errors": "It writes no values.",
        "*::test_saving_api_errors": "It writes no values.",
        "*::test_model_api_endpoint_h5": _OLD,
        "*::test_legacy_h5_format": _OLD,
        "*::test_normalization_legacy_h5_format": _OLD,
        "*::test_remove_weights_only_saving_and_loading": "Keras copies a file to another machine. milepost writes files on this one.",
    },
    failing={
        "*::test_metadata": _EMPTY,
        "*::test_saving_preserve_unbuilt_state": _EMPTY,
        "*::test_compile_overridden_warnings_*": _EMPTY,
        "*::test_weights_sharding_efficientnet_b0_10": "It counts the files. milepost puts the variables into files in the order of their names, and needs one less.",
    },
)
_WEIGHTS = "model.weights.h5"
_saved: list[Any] = []


def pytest_configure(config: Any) -> None:
    """Puts milepost in the place of what writes values in Keras."""
    from keras.src.saving import saving_lib

    accept_own_texts()
    saving_lib._save_model_to_fileobj = _save_archive
    saving_lib.save_weights_only = _save_weights


def saved_model() -> Any:
    """The model that is being saved, for `milepost convert --object`."""
    return _saved[-1]


def _save_archive(model: Any, file: Any, weights_format: str) -> None:
    """What `save_model` does: Keras describes the model, and milepost writes its values."""
    from keras.src.saving import saving_lib

    description, facts = saving_lib._serialize_model_as_json(model)
    with zipfile.ZipFile(file, "w") as archive, tempfile.TemporaryDirectory() as directory:
        archive.writestr("metadata.json", facts)
        archive.writestr("config.json", description)
        weights = Path(directory, _WEIGHTS)
        _save_weights(model, weights)
        archive.write(weights, _WEIGHTS)


def _save_weights(model: Any, filepath: Any, max_shard_size: Any = None, objects_to_skip: Any = None) -> None:
    """What `save_weights` does: a checkpoint of the model, which `milepost convert` writes as a file of Keras."""
    import milepost
    from milepost.tools.cli import main

    with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            prefix = milepost.Checkpoint(model).write(f"{directory}/state")
        except milepost.MilepostError as error:
            raise ValueError(str(error)) from error
        _saved.append(model)
        options = ["--object", f"{__name__}:{saved_model.__name__}", "--overwrite"]
        if max_shard_size is not None:
            options += ["--max-shard-size", f"{int(max_shard_size * 2**30)}"]
        code = main(["convert", prefix, os.fspath(filepath), *options])
        _saved.pop()
    if code > 1:
        raise ValueError(said.getvalue()) from milepost.UnsupportedError(said.getvalue())
