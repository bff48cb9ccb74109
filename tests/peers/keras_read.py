"""The tests of Keras for its files, with milepost reading them. Keras itself writes them, and makes the models of ``.keras`` files."""

from __future__ import annotations

import contextlib
import re
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.peers.library_texts import accept_own_texts
from tests.peers.suite import Suite

_PRIVATE = "It tests a private class or function of Keras."

SUITE = Suite(
    title="Keras, reading",
    packages=("keras",),
    copied={
        "conftest.py": "conftest.py",
        "keras/src/saving/saving_lib_test.py": "saving_lib_test.py",
        "keras/src/saving/test_data": "test_data",
    },
    files=("saving_lib_test.py",),
    environment={"KERAS_BACKEND": "jax"},
    replaced="Keras writes all files. It makes a model of the description in a `.keras` or `.h5` file, and `milepost.Checkpoint(model).read` restores its values, also where "
    "a test calls Keras' `load_weights`. `skip_mismatch` is `ignore` with the values that milepost says do not fit. As with Keras, every variable of a "
    "layer must be in the file. The backend is JAX.",
    excluded={
        "*::SafeGetH5DatasetTest::test_rejects_shape_bomb": _PRIVATE,
        "*::SafeZipReadTest::test_allows_incompressible_member": _PRIVATE,
        "*::SafeZipReadTest::test_rejects_decompression_bomb": _PRIVATE,
        "*::SavingDiskIOStoreTest::*": _PRIVATE,
        "*::SavingH5IOStoreTest::*": _PRIVATE,
        "*::SavingNpzIOStoreTest::*": _PRIVATE,
        "*::test_load_model_rejects_bomb_config": "It reads no values.",
        "*::test_complex_model_without_explicit_deserialization": "It reads no values.",
        "*::test_custom_object_without_from_config": "It reads no values.",
        "*::test_metadata": "It reads no values.",
        "*::test_model_api_errors": "It reads no values.",
        "*::test_save_model_exception_raised_*": "It reads no values.",
        "*::test_save_weights_only_with_unbuilt_model": "It reads no values.",
        "*::test_saved_module_paths_and_class_names": "It reads no values.",
        "*::test_saving_api_errors": "It reads no values.",
        "*::test_load_model_rejects_extraction_bomb": "milepost extracts nothing from an archive.",
        "*::test_legacy_load_skips_missing_nested_containers": "It wants a warning of Keras. milepost restores every value of this file.",
        "*::test_remove_weights_only_saving_and_loading": "Keras copies a file from another machine. milepost reads files of this one.",
    },
)
_OWN_STATE = "own_state"
"""The end of the key of what a class has saved by a method of its own."""
_NOT_OF_LAYERS = re.compile(r"(^|/)(optimizer|_loss_tracker|_compile_metrics|seed_generator)/")
"""What Keras does not want in every file."""


def pytest_configure(config: Any) -> None:
    """Puts milepost in the place of what reads values in Keras."""
    from keras.src.legacy.saving import legacy_h5_format
    from keras.src.saving import saving_lib

    accept_own_texts()
    saving_lib._load_model_from_fileobj = _model_of_archive
    saving_lib.load_weights_only = _load_weights
    legacy_h5_format.load_weights_from_hdf5_group = _load_group


def _model_of_archive(file: Any, custom_objects: Any, compile: bool, safe_mode: bool) -> Any:
    """What `load_model` does: Keras makes the model from its description, and milepost restores its values."""
    from keras.src.saving import saving_lib

    with zipfile.ZipFile(file) as archive:
        description = saving_lib._safe_zip_read(archive, "config.json")
    model = saving_lib._model_from_config(description, custom_objects, compile, safe_mode)
    with _path_of(file) as path:
        _load_weights(model, path)
    return model


@contextlib.contextmanager
def _path_of(file: Any) -> Iterator[str]:
    """The path of an open file. What is only in memory gets one."""
    if isinstance(getattr(file, "name", None), str):
        yield file.name
        return
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "model.keras")
        path.write_bytes(file.getvalue())
        yield str(path)


def _load_group(group: Any, model: Any, skip_mismatch: bool = False) -> None:
    _load_weights(model, group.file.filename, skip_mismatch)


def _load_weights(model: Any, filepath: Any, skip_mismatch: bool = False, objects_to_skip: Any = None) -> None:
    """What `load_weights` does. Keras raises nothing but ValueError, and wants every variable of the layers in the file."""
    import milepost

    try:
        status = milepost.Checkpoint(model).read(
            filepath, ignore=_not_fitting(model, filepath) if skip_mismatch else ()
        )
    except milepost.MilepostError as error:
        raise ValueError(str(error)) from error
    report = status.expect_partial().report()
    # A class with a method of its own need not save its variables.
    own = tuple(each.key.removesuffix(_OWN_STATE) for each in report.matched if each.key.endswith(_OWN_STATE))
    missing = [each.key for each in report.missing if not _NOT_OF_LAYERS.search(each.key)]
    lacking = [key for key in missing if not key.startswith(own)]
    if lacking and not skip_mismatch:
        raise ValueError(lacking) from milepost.MismatchError("the file has no values for some variables")


def _not_fitting(model: Any, filepath: Any) -> list[str]:
    """The keys of saved values that milepost says do not fit."""
    import milepost

    try:
        milepost.Checkpoint(model).read(filepath).expect_partial()
    except milepost.MismatchError as error:
        return [each.key for each in (*error.report.wrong_shape, *error.report.wrong_dtype)]
    return []
