"""``import milepost`` imports next to nothing, and every public name is there when it is asked for."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import milepost

DECLARED = {
    alias.name: node.module
    for node in ast.walk(ast.parse(Path(milepost.__file__).read_text(encoding="utf-8")))
    if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("milepost.")
    for alias in node.names
    if alias.asname is not None
}
"""The module of each public name, as type checkers see it: a name is public if it is imported as itself."""


def in_new_process(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.split()


def test_importing_the_package_imports_no_other_module_of_it():
    code = "import sys, milepost; print(*(name for name in sys.modules if name.startswith('milepost')))"
    assert in_new_process(code) == ["milepost"]


def test_importing_the_package_imports_neither_numpy_nor_protobuf():
    assert in_new_process("import sys, milepost; print(*({'numpy', 'google.protobuf'} & set(sys.modules)))") == []


def test_type_checkers_are_told_of_every_public_name():
    assert {name: milepost._MODULE_OF[name] for name in milepost.__all__} == DECLARED


@pytest.mark.parametrize("name", milepost.__all__)
def test_a_public_name_is_what_its_module_has(name):
    assert getattr(milepost, name) is getattr(sys.modules[DECLARED[name]], name)


@pytest.mark.parametrize(
    "name", ["adapters", "coordination", "errors", "layouts", "retention", "storage", "tensorflow1"]
)
def test_a_public_package_needs_no_import_of_its_own(name):
    assert in_new_process(f"import milepost; print(milepost.{name}.__name__)") == [f"milepost.{name}"]


def test_completion_offers_every_public_name():
    assert set(milepost.__all__) <= set(dir(milepost))


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'milepost' has no attribute 'Chekpoint'"):
        milepost.Chekpoint  # noqa: B018


def test_a_module_that_is_not_imported_yet_is_told_to_be():
    code = "import milepost\ntry: milepost.jax\nexcept AttributeError as error: print(error)"
    assert " ".join(in_new_process(code)) == "module 'milepost' has no attribute 'jax'; write: import milepost.jax"


def test_python_can_propose_the_name_that_was_meant():
    with pytest.raises(AttributeError) as caught:
        milepost.Chekpoint  # noqa: B018
    assert (caught.value.name, caught.value.obj) == ("Chekpoint", milepost)


def test_a_star_import_gives_the_public_names():
    code = "from milepost import *; print(Checkpoint.__name__, latest_checkpoint.__name__)"
    assert in_new_process(code) == ["Checkpoint", "latest_checkpoint"]


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """The modules that the first save and the first restore of a program with NumPy import."""
    path = str(tmp_path_factory.mktemp("first") / "ckpt")
    return in_new_process(f"""
import sys
import numpy
before = set(sys.modules)
import milepost
milepost.Checkpoint(v=numpy.zeros(3)).read(milepost.Checkpoint(v=numpy.ones(3)).write({path!r})).assert_consumed()
print(*(set(sys.modules) - before))
""")


@pytest.mark.parametrize("name", ["_hashlib", "argparse", "decimal", "difflib", "fractions", "html", "pathlib", "uuid"])
def test_a_first_save_and_restore_import_no_module_that_only_errors_and_notebooks_need(name, imported):
    assert name not in imported


@pytest.mark.parametrize("name", ["google.protobuf.descriptor_pb2", "importlib.util", "zipfile"])
def test_a_first_save_and_restore_import_no_module_that_other_uses_need(name, imported):
    assert name not in imported


def test_a_first_save_and_restore_import_nothing_that_reads_files_of_other_libraries(imported):
    assert [name for name in imported if name.startswith("milepost.foreign")] == []


def test_a_first_save_and_restore_import_nothing_that_reads_checkpoints_of_version_1(imported):
    assert "milepost.bundle.legacy" not in imported


def test_a_process_that_is_alone_imports_nothing_for_messages_to_others(imported):
    found = {name for name in imported if name.startswith(("milepost.distributed.", "milepost.saving.distributed"))}
    assert found == {"milepost.distributed.find", "milepost.distributed.own_values"}


@pytest.mark.parametrize("name", ["below_root", "directories", "load_tree", "reader", "save_tree", "views", "weights"])
def test_a_checkpoint_does_not_import_the_functions_beside_it(name, imported):
    assert f"milepost.checkpoint.{name}" not in imported


def test_the_garbage_collector_runs_as_before_after_a_name_is_imported():
    code = "import gc, milepost; milepost.Checkpoint; print(gc.isenabled()); gc.disable(); milepost.save; print(gc.isenabled())"
    assert in_new_process(code) == ["True", "False"]
