"""Checkpoints that others made: those that published packages carry."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from milepost.bundle import Fetch, open_bundle
from milepost.storage import LocalStorage
from tests.bundle.bundles import same

CACHE = Path(__file__).parents[2] / ".cache" / "wheels"

# Version, hash of the wheel, and how many checkpoints are in it.
WHEELS = {
    "basic-pitch": ("0.4.0", "738adb503aae7fdfc7d1e1511aa0ce35052315f260a19531ef4c356708425db0", 1),
    "tfx": ("1.21.0", "51032ac740ac6d28185c2814ada5a7e917f3016bcd2043f03ba98e7e674e4165", 14),
}


def download(name):
    """The unpacked wheel. It is made under another name first, as several workers may do so at once."""
    version, sha256, _ = WHEELS[name]
    target = CACHE / f"{name}-{version}"
    if target.is_dir():
        return target
    making = target.with_name(f"{target.name}.{os.getpid()}")
    making.mkdir(parents=True)
    try:
        requirement = making / "requirements.txt"
        requirement.write_text(f"{name}=={version} --hash=sha256:{sha256}\n")
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        # Nothing of the package is run, so it does not matter for which Python it was made.
        command = [*pip, "--ignore-requires-python", "--dest", str(making), "--requirement", str(requirement)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=250)
        if done.returncode:
            pytest.skip(f"{name} {version} cannot be downloaded: {done.stderr.strip()[-200:]}")
        (wheel,) = making.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(making)
        wheel.unlink()
        try:
            making.rename(target)
        except OSError:
            assert target.is_dir()
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return target


@pytest.fixture(scope="module", params=WHEELS)
def wheel(request):
    return request.param, download(request.param)


def test_every_checkpoint_is_whole(wheel):
    """Each loads, every checksum is right, and every tensor can be fetched."""
    name, directory = wheel
    found = sorted(directory.rglob("*.index"))
    assert len(found) == WHEELS[name][2]
    for index in found:
        with open_bundle(LocalStorage(), index) as reader:
            reader.verify()
            keys = reader.keys()
            fetch = Fetch(reader)
            for key in keys:
                fetch.add(key, None)
            fetch.verify()
            for key, array in zip(keys, fetch.deliver(), strict=True):
                assert array.shape == reader.spec(key).shape


def test_tensorflow_reads_the_same(wheel):
    """milepost finds the keys, types, shapes and values that TensorFlow finds."""
    tf = pytest.importorskip("tensorflow")
    for index in sorted(wheel[1].rglob("*.index")):
        theirs = tf.train.load_checkpoint(str(index.with_suffix("")))
        with open_bundle(LocalStorage(), index) as reader:
            assert set(reader.keys()) == set(theirs.get_variable_to_shape_map())
            for key, dtype in theirs.get_variable_to_dtype_map().items():
                assert reader.spec(key).dtype.number == dtype.as_datatype_enum
                ours = reader.read(key)
                assert same(ours, np.asarray(theirs.get_tensor(key), ours.dtype))
