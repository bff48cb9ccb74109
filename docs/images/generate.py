"""Draws the pictures in this directory: ``python docs/images/generate.py``."""

import os
import tempfile
from pathlib import Path

import numpy as np

import milepost
from milepost.tools import guide_numpy
from milepost.tools.cli import main

HERE = Path(__file__).resolve().parent


def generate() -> None:
    """Trains as the guide does, and draws its whole checkpoint and that of the bias alone."""
    os.chdir(tempfile.mkdtemp())
    guide_numpy.train_and_checkpoint(*guide_numpy.create("./tf_ckpts"), steps=10)
    bias = milepost.Variable(np.zeros(5, np.float32))
    layer = milepost.Checkpoint(bias=bias)
    part = milepost.Checkpoint(net=milepost.Checkpoint(l1=layer))
    part.restore("./tf_ckpts/ckpt-1").expect_partial()
    part.write("./bias_alone")
    for path, name in (("./tf_ckpts/ckpt-1", "whole_checkpoint.svg"), ("./bias_alone", "partial_checkpoint.svg")):
        if main(["graph", path, "-o", str(HERE / name), "--overwrite"]):
            raise SystemExit(f"{name} was not drawn")


if __name__ == "__main__":
    generate()
