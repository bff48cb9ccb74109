"""Every use of a forged file has a result or one of milepost's errors, in little time, and in memory in proportion to the bytes of the file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.systems import needs_clear_refs

ROOT = Path(__file__).parents[2]
FORMATS = {
    "arrays": ("", 1032),
    "bundles": ("", 32),
    "bundles.PLAIN_STATE": ("", 32),
    "bundles.SAVED_MODELS": ("", 32),
    "bundles.VERSION_1": ("", 32),
    "hdf5_files": ("h5py", 1032),
    "jax_files": ("cramjam", 32),
    "jax_files.ORBAX": ("orbax.checkpoint", 32),
    "torch_files": ("", 32),
    "torch_files.DISTRIBUTED": ("", 32),
    "torch_files.SAFETENSORS": ("", 32),
}
"""Each with the library that it needs, and how many bytes of memory a byte of a file may take: Deflate makes 1,032 of one."""
MEMORY = 64 << 20
SECONDS = 2.0


@needs_clear_refs
@pytest.mark.parametrize("name", FORMATS)
def test_forged_files_take_little_memory_and_time_and_cause_no_other_errors(name: str, tmp_path: Path) -> None:
    library, times = FORMATS[name]
    if library:
        pytest.importorskip(library)
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzzing.forged.measure", name, tmp_path],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": path, "MALLOC_ARENA_MAX": "1"},
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, (rows[-1:], done.stderr[-2000:])
    assert rows
    for file, use, found, memory, seconds, size in rows:
        assert not found.startswith("FOREIGN"), (file, use, found)
        assert memory < MEMORY + times * size, (file, use, f"{memory >> 20} MiB for {size} bytes")
        assert seconds < SECONDS, (file, use, seconds)
