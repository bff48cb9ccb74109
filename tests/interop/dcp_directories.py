"""Directories of `torch.distributed.checkpoint`, saved in one process, and changed afterwards as a test needs it."""

import pickle
import warnings
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

DATA = "__0_0.distcp"


def saved(path, state, **how):
    """Saves a state; returns the directory."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(state, checkpoint_id=path, no_dist=True, **how)
    return Path(path)


def changed(path, change):
    """Changes the metadata of a directory; returns the directory."""
    file = path / ".metadata"
    metadata = pickle.loads(file.read_bytes())
    file.write_bytes(pickle.dumps(change(metadata) or metadata))
    return path


def in_pieces(path, tensors):
    """Saves tensors in boxes, as processes do.

    Args:
        path: The directory.
        tensors: By name, a tensor and its boxes, each the start and the stop in each dimension.
    """
    path.mkdir()
    described, stored = {}, {}
    with (path / DATA).open("wb") as file:
        for name, (tensor, boxes) in tensors.items():
            chunks = []
            for box in boxes:
                start = torch.Size(first for first, _ in box)
                index = tuple(slice(*bounds) for bounds in box)
                part = tensor[index].clone() if index else tensor.clone()
                begin = file.tell()
                torch.save(part, file)
                stored[MetadataIndex(name, start)] = dcp.filesystem._StorageInfo(DATA, begin, file.tell() - begin)
                chunks.append(ChunkStorageMetadata(start, part.size()))
            described[name] = TensorStorageMetadata(TensorProperties(dtype=tensor.dtype), tensor.size(), chunks)
    (path / ".metadata").write_bytes(pickle.dumps(Metadata(described, None, stored, version="1.0.0")))
    return path
