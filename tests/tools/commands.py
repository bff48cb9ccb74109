"""What tests of the commands share: checkpoints, damage, and runs of the real command in a process of its own."""

import json
import os
import pathlib
import subprocess
import sys
from contextlib import redirect_stdout

import numpy as np

from milepost import Checkpoint, CheckpointManager, Module, Variable
from milepost.bundle import open_bundle
from milepost.storage.default import DEFAULT_STORAGE
from milepost.tools.cli import main
from tests.counting import most_bytes


def run(*arguments, **options):
    """Runs the command in a process of its own. The output is not that of a terminal."""
    command = [sys.executable, "-m", "milepost", *map(str, arguments)]
    return subprocess.run(command, **{"capture_output": True, "text": True, "check": False} | options)


def most_memory(*arguments):
    """The most memory, in bytes, that Python and NumPy allocate for a command."""
    with open(os.devnull, "w", encoding="utf-8") as nothing, redirect_stdout(nothing):
        return most_bytes(lambda: main([*map(str, arguments)]))


def json_of(capsys, *arguments, status=0):
    """What a command prints as JSON."""
    capsys.readouterr()  # what the test has printed before
    assert main([*map(str, arguments), "--json"]) == status
    return json.loads(capsys.readouterr().out)


def output_of(capsys, *arguments, status=0):
    """What a command prints."""
    assert main([*map(str, arguments)]) == status
    return capsys.readouterr()


def net(weight=1.0, **more):
    module = Module()
    module.w = Variable(np.full((2, 3), weight, np.float32))
    for name, value in more.items():
        setattr(module, name, Variable(value))
    return module


def series(directory, losses, **options):
    """Saves one checkpoint for each loss, with the numbers 10, 20, ... and equal weights."""
    model = net()
    manager = CheckpointManager(Checkpoint(net=model), directory, **{"max_to_keep": None} | options)
    paths = []
    for place, loss in enumerate(losses, start=1):
        model.w.assign(np.full((2, 3), place, np.float32))
        paths.append(manager.save(place * 10, metrics={"loss": loss}))
    return paths


def data_of(prefix):
    return pathlib.Path(prefix + ".data-00000-of-00001")


def damage(prefix, key=None, at=0):
    """Changes one byte of a checkpoint's data: the first one of a tensor, or that at another place in it, or the last one of all."""
    data = data_of(prefix)
    damaged = bytearray(data.read_bytes())
    with open_bundle(DEFAULT_STORAGE, prefix) as reader:
        damaged[-1 if key is None else reader.entry(key + "/.ATTRIBUTES/VARIABLE_VALUE").offset + at] ^= 1
    data.write_bytes(damaged)
    return str(data)


def truncate(prefix):
    """Cuts a checkpoint's data."""
    os.truncate(data_of(prefix), 10)


def contents(directory):
    """Names and bytes of all files of a directory."""
    return {path.name: path.read_bytes() for path in pathlib.Path(directory).iterdir() if path.is_file()}
