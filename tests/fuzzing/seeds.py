"""Adds files of the real libraries to the kept inputs: ``python -m tests.fuzzing.seeds``, where they are installed."""

from __future__ import annotations

import collections
import io
import json
import struct
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

import milepost
from milepost.bundle.format import variants
from milepost.coding import ordered
from milepost.storage import LocalStorage, MemoryStorage
from milepost.table import TableReader
from tests.bundle.bundles import content, rows, write
from tests.fuzzing import corpus
from tests.fuzzing.targets import GRAPH, METADATA, joined, live
from tests.table.tables import TENSORFLOW_ENTRIES, TENSORFLOW_INDEX, pairs_in


class Point(NamedTuple):
    """A named tuple."""

    x: int
    y: int


OLD = Path(__file__).parents[1] / "data" / "tf115"


def of_checkpoints() -> Iterator[tuple[str, bytes]]:
    """Checkpoints of milepost and TensorFlow."""
    yield "table", TENSORFLOW_INDEX
    yield "any_file", TENSORFLOW_INDEX
    yield "table_block", b"\0" + TENSORFLOW_INDEX[:0xCE]
    state = live()
    state.table = {
        "a": (1, 2.5, "text", None, True),
        "c": [np.float32(1), {"b": 7}],
        "point": Point(1, 2),
    }
    storage = MemoryStorage()
    options = milepost.CheckpointOptions(storage=storage)
    manager = milepost.CheckpointManager(state, "run", 2, options=options)
    manager.save(metrics={"loss": 0.5}, metadata={"run": "a", "list": [1, None, {"b": True}]})
    manager.save(metrics={"loss": 0.25})
    reader = milepost.load_checkpoint("run/ckpt-1", milepost.CheckpointOptions(storage=storage))
    yield "state_file", content(storage, "run/checkpoint")
    yield "state_file", content(storage, "run/checkpoint").replace(b"ckpt-1", b"x").replace(b"ckpt-2", b"x")
    yield (
        "state_file",
        b'model_checkpoint_path: "/x"\nall_model_checkpoint_paths: "../x"\nlast_preserved_timestamp: 1e9\n',
    )
    yield "object_graph", bytes(reader.get_tensor(GRAPH))
    yield "metadata", bytes(reader.get_tensor(METADATA))
    for key in reader.keys():  # noqa: SIM118 - a reader is no mapping
        if key.endswith("py_state") or "generator" in key:
            value = reader.get_tensor(key)
            if isinstance(value, bytes):
                yield "plain_state", value
    for path in ("run/ckpt-1",):
        data = content(storage, f"{path}.data-00000-of-00001")
        table = rows(storage, path)
        yield "bundle", joined([data, *(part for pair in table.items() for part in pair)])
    write(storage, "sliced", {"w": ((3, 4), {"0,2:-": np.ones((2, 4), np.float32), "2,1:-": np.ones((1, 4), np.float32)}), "s": np.array([b"a", b""], object)})  # fmt: skip
    yield (
        "bundle",
        joined(
            [
                content(storage, "sliced.data-00000-of-00001"),
                *(part for pair in rows(storage, "sliced").items() for part in pair),
            ]
        ),
    )
    yield "bundle", joined([bytes(40), *(part for pair in TENSORFLOW_ENTRIES for part in pair)])
    for name in ("v1/ckpt", "v1_sharded/ckpt-00000-of-00002"):
        pairs = pairs_in(TableReader(LocalStorage().open(str(OLD / name))))
        yield "version_1", joined([part for pair in pairs for part in pair])
    yield "strings", bytes([2]) + content(storage, "sliced.data-00000-of-00001")
    yield "strings", bytes([1]) + b"".join(bytes(part) for part in variants.encode([b"abc"])[0])
    for coded in (ordered.encode_num(1000), ordered.encode_str(b"a\0\xffb"), ordered.encode_snum(-70000)):
        yield "coded", coded
    yield "coded", b"\x0c\x0cabcd\x15\x04"
    token = "milepost-0123456789abcdef"
    yield (
        "names",
        f"x.index.{token}-of-00001.tmp\nx.data-00000-of-00001.{token}.tmp\nx.pinned\nx.{token}-index-590407b549d6e3b4.tmp\nx.{token}-removal-{'0' * 16}.tmp".encode(),
    )


def of_plain_state() -> Iterator[tuple[str, bytes]]:
    """Plain state of every kind."""
    from milepost.plain_state.encoding import store_inline, to_text

    shared = [1, 2]
    states = [
        {"a": (1, 2.5), "b": {3: {4}}, "c": collections.deque([1], 3), "d": b"\0\xff", "e": 1j, "f": float("nan")},
        {"x": np.arange(3), "y": np.float32(2), "z": np.array(["a", "bc"]), "w": np.array([b"a", b"b"], object)},
        [shared, shared, frozenset({1, "a"}), None, True, 2**80, -0.0, collections.OrderedDict(a=1)],
        np.random.default_rng(0).bit_generator.state,
    ]
    for state in states:
        yield "plain_state", to_text(state, "", store_inline).encode()
    yield "plain_state", b'{"a": {"!": "array", "entry": "seed"}}'


def of_json() -> Iterator[tuple[str, bytes]]:
    """JSON of safetensors and Orbax."""
    header = {
        "__metadata__": {"format": "pt"},
        "a.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "a.bias": {"dtype": "BF16", "shape": [3], "data_offsets": [24, 30]},
        "w": {"dtype": "I64", "shape": [], "data_offsets": [30, 38]},
        "q": {"dtype": "F8_E4M3", "shape": [26], "data_offsets": [38, 64]},
    }
    yield "safetensors", json.dumps(header).encode()
    yield "any_file", struct.pack("<Q", len(json.dumps(header))) + json.dumps(header).encode() + bytes(64)
    yield "safetensors_index", b'{"metadata": {"total_size": 16}, "weight_map": {"w": "a.safetensors"}}'
    yield "orbax_json", b'{"array_metadatas": [{"array_metadata": {"param_name": "k", "ext_metadata": {"random_key_impl": "threefry2x32"}}}]}'  # fmt: skip


def of_torch() -> Iterator[tuple[str, bytes]]:
    """Files of PyTorch."""
    import torch
    import torch.distributed.checkpoint as dcp

    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(3)).sum().backward()
    optimizer.step()
    base = torch.arange(16.0)
    states = [
        {"w": torch.arange(3.0), "a": {"weight": torch.ones(2, 3).t()}, "n": 3, "t": (1, "x", None, True, 2.5), "l": [1, {2}]},
        {"s": base[2:8:2], "t": base.view(4, 4), "h": torch.ones(3, dtype=torch.bfloat16), "z": torch.zeros(0), "p": torch.nn.Parameter(base[:2])},
        {"n": np.arange(3), "m": np.float64(2), "o": collections.OrderedDict(a=torch.Size([1])), "d": collections.defaultdict(list), "c": 1j},
        {"sparse": torch.eye(2).to_sparse(), "csr": torch.eye(2).to_sparse_csr(), "q": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)},
        torch.ones(2),
        optimizer.state_dict(),
        {"model": model.state_dict(), "module": model, "b": bytearray(b"ab"), "dev": torch.device("cpu"), "dt": torch.float16},
        {"meta": torch.ones(2, device="meta"), "neg": torch.ones(2, dtype=torch.complex64).conj()},
    ]  # fmt: skip
    for state in states:
        for protocol in (2, 4):
            buffer = io.BytesIO()
            torch.save(state, buffer, pickle_protocol=protocol)
            with zipfile.ZipFile(buffer) as archive:
                pickled = next(name for name in archive.namelist() if name.endswith("data.pkl"))
                yield "torch_pickle", archive.read(pickled)
            if protocol == 2 and len(buffer.getvalue()) < 4000:
                yield "torch_archive", buffer.getvalue()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            buffer = io.BytesIO()
            torch.save(state, buffer, _use_new_zipfile_serialization=False)
        if len(buffer.getvalue()) < 4000:
            yield "torch_legacy", buffer.getvalue()
    for state in ({"w": torch.arange(3.0)}, {"a": {"weight": torch.ones(2, 3)}, "n": 3}):
        with tempfile.TemporaryDirectory() as directory, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dcp.save(state, checkpoint_id=directory, no_dist=True)
            yield (
                "torch_distributed",
                joined([(Path(directory) / name).read_bytes() for name in ("__0_0.distcp", ".metadata")]),
            )


def of_flax() -> Iterator[tuple[str, bytes]]:
    """Files of Flax."""
    from flax import serialization

    states = [
        {"a": {"weight": np.ones((2, 3), np.float32)}, "step": 3, "c": 1j, "s": np.float32(1)},
        {
            "list": {"0": np.arange(3), "1": None},
            "t": "text",
            "b": b"bytes",
            "n": -5,
            "big": 2**40,
            "f": 0.5,
            "t2": True,
        },
    ]
    for state in states:
        yield "flax", serialization.msgpack_serialize(state)
    yield "flax", b"\x81\xa1a\x83\xb9__msgpack_chunked_array__\xc3\xa5shape\x81\xa10\x02\xa6chunks\x81\xa10\xc7\x13\x01\x93\x91\x02\xa7float32\xc4\x08" + bytes(8)  # fmt: skip


def of_orbax() -> Iterator[tuple[str, bytes]]:
    """Directories of Orbax: an item in each form, and steps of a manager."""
    import orbax.checkpoint as ocp

    tree = {"model": {"weight": np.ones((2, 3), np.float32)}, "layers": [np.float32(1), None], "name": "text"}
    for ocdbt, zarr3 in ((True, False), (False, False), (False, True)):
        with tempfile.TemporaryDirectory() as above:
            handler = ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt, use_zarr3=zarr3)
            ocp.Checkpointer(handler).save(f"{above}/item", args=ocp.args.PyTreeSave(tree))
            yield "orbax", _directory(Path(above) / "item")
    with tempfile.TemporaryDirectory() as above, ocp.CheckpointManager(above, item_names=("state", "run")) as manager:
        items = ocp.args.Composite(
            state=ocp.args.PyTreeSave({"w": np.ones(2)}), run=ocp.args.JsonSave({"a": [1, None]})
        )
        manager.save(3, args=items, metrics={"loss": 0.5})
        manager.wait_until_finished()
        yield "orbax", _directory(Path(above))
        yield "orbax", _directory(Path(above) / "3")
    yield "orbax", joined([b"checkpoint", b"\x82\xa1a\x03\xa1b\xa1x"])


def _directory(above: Path) -> bytes:
    """The names and contents of all files below a directory."""
    files = sorted(each for each in above.rglob("*") if each.is_file())
    return joined([part for each in files for part in (str(each.relative_to(above)).encode(), each.read_bytes())])


def main() -> None:
    """Adds the files."""
    found = collections.defaultdict(list)
    for source in (of_checkpoints, of_plain_state, of_json, of_torch, of_flax, of_orbax):
        for target, data in source():
            found[target].append(data)
    for target, inputs in found.items():
        corpus.store(target, [*corpus.load(target), *inputs])
        print(f"{target}: {len(inputs)} files")


if __name__ == "__main__":
    main()
