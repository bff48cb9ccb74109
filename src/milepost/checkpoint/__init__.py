"""Saving and restoring whole object graphs, and looking into checkpoints."""

from milepost import adapters as adapters  # registers those of the libraries that are always there
