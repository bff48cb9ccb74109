"""What bytes become of each format. A target makes a file of them as a hostile author would, checksums right, and reads it.

A file that is a table of pairs is given as chunks, each of which has its length, two bytes, in front: see `joined`. So a search can
change keys and values without breaking the checksum of the block around them.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import struct
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np

import milepost
from milepost.bundle import BundleWriter, data_path, index_path, open_bundle
from milepost.bundle.format import strings, variants
from milepost.bundle.format.messages import BundleEntry, BundleHeader
from milepost.coding import ordered, snappy
from milepost.coding.crc32c import crc32c, mask
from milepost.coding.json_data import parse_json
from milepost.foreign.jax import orbax
from milepost.graph.saved.object_graph import Edge, Node, ObjectGraph, SavedValue
from milepost.plain_state.decoding import from_text
from milepost.series import metadata
from milepost.series.notes import temporaries
from milepost.series.state_file import STATE_FILE
from milepost.storage import LocalStorage, MemoryStorage
from milepost.table import TableReader
from tests.bundle.bundles import put, put_rows
from tests.fuzzing.outcome import attempt
from tests.table.tables import contents, entry, handle, pairs_in, seal

MOST_READ = 4 << 20
"""Bytes of tensors that are read. A few bytes may describe more, up to the limits that are stated."""

GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
METADATA = "_MILEPOST_METADATA"


@dataclass(frozen=True)
class Target:
    """A format.

    Attributes:
        read: Makes a file of bytes and reads it.
        words: What the format's files often contain.
    """

    read: Callable[[bytes], object]
    words: Sequence[bytes] = ()


def joined(chunks: Sequence[bytes]) -> bytes:
    """An input for a target that takes chunks."""
    return b"".join(struct.pack("<H", len(chunk)) + chunk for chunk in chunks)


def chunks_of(data: bytes) -> list[bytes]:
    """Undoes `joined`. Any bytes are chunks; the last one may be shorter than its length says."""
    found, at = [], 0
    while at + 2 <= len(data):
        (length,) = struct.unpack_from("<H", data, at)
        found.append(data[at + 2 : at + 2 + length])
        at += 2 + length
    return found


def pairs_of(chunks: Sequence[bytes]) -> dict[bytes, bytes]:
    """Keys and values that take turns."""
    return dict(zip_longest(chunks[::2], chunks[1::2], fillvalue=b""))


def use(path: str, storage: Any) -> None:
    """Everything that programs do with what is under a path, once for values that exist, and once for those that come later."""
    reader: Any = None

    def opened() -> None:
        nonlocal reader
        reader = milepost.load_checkpoint(path, milepost.CheckpointOptions(storage=storage))

    if not attempt(opened):
        return
    attempt(reader.metrics)
    attempt(reader.metadata)
    attempt(reader.objects)
    attempt(reader.debug_string)
    attempt(lambda: milepost.list_variables(path, milepost.CheckpointOptions(storage=storage)))
    sizes = 0

    def sized() -> None:
        nonlocal sizes
        sizes = sum(reader._bundle.spec(key).nbytes for key in reader.keys())  # noqa: SIM118 - a reader is no mapping

    if not attempt(sized) or sizes > MOST_READ:
        return
    attempt(reader.verify)
    for key in reader.keys()[:50]:
        attempt(partial(reader.get_tensor, key))
        attempt(partial(reader.map_tensor, key))
    attempt(lambda: milepost.load(path, options=milepost.CheckpointOptions(storage=storage)))
    attempt(lambda: milepost.load(path, options=milepost.CheckpointOptions(storage=storage), separator="."))
    options = milepost.CheckpointOptions(storage=storage)
    attempt(lambda: restored(live(), path, options))
    attempt(lambda: restored(milepost.Checkpoint(model=milepost.Module(), a=milepost.Module()), path, options))


def live() -> Any:
    """Objects of several kinds, under names that the files at the beginning of a search have."""
    module: Any = milepost.Module()
    module.weight = milepost.Variable(np.zeros((2, 3), np.float32))
    module.bias = milepost.Variable(np.zeros(3, np.float32))
    module.layers = [milepost.Variable(np.float32(0)), {"a": milepost.Variable(np.float32(0))}]
    return milepost.Checkpoint(
        model=module, a=module, w=milepost.Variable(np.zeros(3, np.float32)), step=1, name="", plain=[1, {"a": 2.5}, None],
        generator=np.random.default_rng(0), array=np.zeros(2),
    )  # fmt: skip


def restored(checkpoint: Any, path: str, options: milepost.CheckpointOptions) -> None:
    """Restores, makes what was not there, and reads the report."""
    status = checkpoint.read(path, options)
    for root in (getattr(checkpoint, "model", None), getattr(checkpoint, "a", None)):
        if isinstance(root, milepost.Module):
            attempt(partial(setattr, root, "late", milepost.Module()))
            attempt(partial(setattr, root, "kernel", milepost.Variable(np.zeros(2))))
    str(status.report())
    attempt(status.assert_consumed)
    status.expect_partial()
    status.stop_waiting()


# The table, and what is in it


def read_table(data: bytes) -> None:
    """All pairs of a table."""
    storage = MemoryStorage()
    put(storage, "x.index", data)
    table = TableReader(storage.open("x.index"))
    attempt(table.verify)
    for key, value in pairs_in(table):
        assert table.get(key) == value


def read_block(data: bytes) -> None:
    """The contents of a block, which may be compressed: the first byte says so."""
    compression, block = data[0] & 1 if data else 0, data[1:]
    stored = seal(block, compression)
    meta, at = seal(contents([])), len(stored)
    index = seal(contents([entry(0, b"\xff\xff\xff", handle(0, len(block)))]))
    handles = handle(at, len(meta) - 5) + handle(at + len(meta), len(index) - 5)
    read_table(stored + meta + index + handles.ljust(40, b"\0") + bytes.fromhex("57fb808b247547db"))


def read_bundle(data: bytes) -> None:
    """The first chunk is the data file; the others are the pairs of the index."""
    chunks = chunks_of(data)
    stored = chunks[0] if chunks else b""
    pairs = {b"": BundleHeader(num_shards=1).SerializeToString()} | pairs_of(chunks[1:])
    for key, value in pairs.items():
        message = BundleEntry()
        try:
            message.MergeFromString(value)
        except Exception:  # of protobuf; the reader has to find it out
            continue
        part = stored[message.offset : message.offset + message.size] if message.offset >= 0 <= message.size else b""
        if key and message.crc32c and len(part) == message.size:
            message.crc32c = mask(crc32c(part))
            pairs[key] = message.SerializeToString()
    storage = MemoryStorage()
    put_rows(storage, "x", pairs)
    put(storage, data_path("x", 0, 1), stored)
    attempt(lambda: open_bundle(storage, "x").check_files())
    use("x", storage)


def read_legacy(data: bytes) -> None:
    """Pairs of a checkpoint of version 1."""
    storage = MemoryStorage()
    put_rows(storage, "x", {b"": b""} | pairs_of(chunks_of(data)))
    storage.rename(index_path("x"), "x")
    use("x", storage)


def bundle_with(texts: dict[str, bytes]) -> MemoryStorage:
    """A checkpoint of a few tensors, and texts beside them."""
    storage, writer = MemoryStorage(), BundleWriter()
    tensors: dict[str, Any] = {
        "w/.ATTRIBUTES/VARIABLE_VALUE": np.arange(3, dtype=np.float32),
        "a/weight/.ATTRIBUTES/VARIABLE_VALUE": np.ones((2, 3), np.float32),
        "generator/.ATTRIBUTES/seed": np.arange(2),
        **{key: np.array(text, object) for key, text in texts.items()},
    }
    for key in sorted(tensors):
        writer.add(key, tensors[key])
    with storage.create(data_path("x", 0, 1)) as file:
        writer.write_shard(0, file)
    put(storage, index_path("x"), writer.index())
    return storage


def read_graph(data: bytes) -> None:
    """The object graph, as protobuf. One that cannot be parsed is refused before anything is done with it."""
    if attempt(partial(ObjectGraph.deserialize, data)):
        use("x", bundle_with({GRAPH: data}))


def plain_graph() -> bytes:
    """An object graph in which plain state is an object of the root."""
    key = "generator/.ATTRIBUTES/py_state"
    nodes = (
        Node((Edge("generator", 1), Edge("w", 2))),
        Node((), (SavedValue("py_state", "", key), SavedValue("seed", "", "generator/.ATTRIBUTES/seed"))),
        Node((), (SavedValue("VARIABLE_VALUE", "", "w/.ATTRIBUTES/VARIABLE_VALUE"),)),
    )
    return ObjectGraph(nodes).serialize()


def read_plain_state(data: bytes) -> None:
    """The JSON of plain state."""
    if attempt(partial(from_text, data, {"seed": np.arange(2)})):
        use("x", bundle_with({GRAPH: plain_graph(), "generator/.ATTRIBUTES/py_state": data}))


def read_metadata(data: bytes) -> None:
    """The JSON of metrics and metadata."""
    if attempt(partial(metadata.decode, data)):
        use("x", bundle_with({GRAPH: plain_graph(), METADATA: data}))


def read_strings(data: bytes) -> None:
    """Elements of a tensor of strings or variants; the first byte is their number."""
    count, rest = (data[0], data[1:]) if data else (0, b"")
    attempt(lambda: strings.decode(rest, count))
    attempt(lambda: variants.decode(rest, count))


def read_coded(data: bytes) -> None:
    """Ordered code, and compressed blocks."""
    for decode in (ordered.decode_num, ordered.decode_str, ordered.decode_snum):
        attempt(partial(decode, data))
    attempt(lambda: snappy.decompress(data, limit=1 << 20))


# Lists of checkpoints


def read_state_file(data: bytes) -> None:
    """A state file beside one checkpoint."""
    storage = bundle_with({GRAPH: plain_graph()})
    put(storage, STATE_FILE, data)
    attempt(lambda: milepost.get_checkpoint_state("", options=milepost.CheckpointOptions(storage=storage)))
    attempt(lambda: milepost.latest_checkpoint("", options=milepost.CheckpointOptions(storage=storage)))
    manager: Any = None

    def made() -> None:
        nonlocal manager
        options = milepost.CheckpointOptions(storage=storage)
        manager = milepost.CheckpointManager(milepost.Checkpoint(), "", 2, options=options)

    if attempt(made):
        attempt(lambda: (manager.checkpoints, manager.latest_checkpoint, manager.steps))
        attempt(manager.save)


def read_names(data: bytes) -> None:
    """Names of files in the directory of a run, one a line."""
    storage = bundle_with({GRAPH: plain_graph()})
    for name in set(data.decode(errors="replace").split("\n")[:20]):
        if name and "/" not in name and "\0" not in name and name not in (".", "..", STATE_FILE):
            attempt(partial(put, storage, name, b""))
    attempt(lambda: temporaries(storage, ""))
    attempt(lambda: temporaries(storage, "", of_removals=True))
    options = milepost.CheckpointOptions(storage=storage)
    attempt(lambda: milepost.CheckpointManager(milepost.Checkpoint(), "", 2, options=options).save())
    use("x", storage)
    assert storage.is_file("x.index")


# Files of other libraries


def in_file(name: str, data: bytes) -> None:
    """Reads a file of another library."""
    storage = MemoryStorage()
    put(storage, name, data)
    use(name, storage)


def archive(pickled: bytes, records: dict[str, bytes]) -> bytes:
    """A file of torch.save."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("it/data.pkl", pickled)
        for name, record in records.items():
            file.writestr(f"it/{name}", record)
    return buffer.getvalue()


def read_pickle(data: bytes) -> None:
    """The pickled data of a file of torch.save, with two storages."""
    records = {"data/0": bytes(range(64)), "data/1": bytes(16), "version": b"3\n", "byteorder": b"little"}
    in_file("x.pt", archive(data, records))


def read_distributed(data: bytes) -> None:
    """The metadata of a directory of torch.distributed.checkpoint. The first chunk is the data file."""
    chunks = chunks_of(data)
    storage = MemoryStorage()
    put(storage, "x/.metadata", chunks[1] if len(chunks) > 1 else b"")
    put(storage, "x/__0_0.distcp", chunks[0] if chunks else b"")
    use("x", storage)


def read_safetensors(data: bytes) -> None:
    """The header of a file of safetensors, before 64 bytes of data."""
    in_file("x.safetensors", struct.pack("<Q", len(data)) + data + bytes(range(64)))


def read_index(data: bytes) -> None:
    """The index of a model in two files."""
    storage = MemoryStorage()
    put(storage, "x/model.safetensors.index.json", data)
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    for name in ("a.safetensors", "b.safetensors"):
        put(storage, f"x/{name}", struct.pack("<Q", len(header)) + header + bytes(8))
    use("x", storage)


def read_json(data: bytes) -> None:
    """JSON as milepost itself reads it of Orbax: metadata of steps, and generators of arrays."""
    attempt(lambda: parse_json(data, "it"))
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as directory:
        os.mkdir(f"{directory}/array_metadatas")
        put(LocalStorage(), f"{directory}/array_metadatas/process_0", data)
        attempt(lambda: orbax._implementations(directory))


def read_orbax(data: bytes) -> None:
    """A directory of Orbax, whose files are names and contents that take turns. Orbax reads it, so each use of it takes some time."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as above:
        directory = os.path.join(above, "item")
        os.mkdir(directory)
        for name, content in pairs_of(chunks_of(data)).items():
            path = os.path.join(directory, name.decode(errors="replace").replace("\0", ""))
            if ".." in path or not os.path.abspath(path).startswith(directory + os.sep) or len(name) > 200:
                continue
            with contextlib.suppress(OSError):  # one name is a directory of another
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as file:
                    file.write(content)
        reader: Any = None
        sizes = 0

        def opened() -> None:
            nonlocal reader
            reader = milepost.load_checkpoint(directory)

        def sized() -> None:
            nonlocal sizes
            sizes = sum(spec.nbytes for spec in map(reader._bundle.spec, reader.keys()))

        if attempt(opened) and attempt(sized) and sizes <= MOST_READ:
            for key in reader.keys()[:4]:
                attempt(partial(reader.get_tensor, key))
            attempt(lambda: restored(live(), directory, milepost.CheckpointOptions()))


_OPCODES = [
    bytes([each])
    for each in range(256)
    if chr(each) in "()]}aeubcR0q\x85\x86\x87\x88\x89\x8f\x90\x93\x81\x94hjQPNKMJ.Xlts"
]
_TORCH = [
    b"ctorch._utils\n_rebuild_tensor_v2\n", b"ctorch._utils\n_rebuild_parameter\n", b"ctorch\nFloatStorage\n", b"ccollections\nOrderedDict\n",
    b"ctorch\nSize\n", b"cnumpy.core.multiarray\n_reconstruct\n", b"cnumpy\ndtype\n", b"cnumpy\nndarray\n", b"ctorch\nfloat32\n",
    b"ctorch.serialization\n_get_layout\n", b"cbuiltins\nset\n", b"ctorch._utils\n_rebuild_sparse_tensor\n", b"X\x07\x00\x00\x00storage",
    b"X\x03\x00\x00\x00cpu", b"X\x01\x00\x00\x000", b"_codecs\nencode\n", b"ctorch._tensor\n_rebuild_from_type_v2\n", b"ccopyreg\n_reconstructor\n",
    b"ctorch._utils\n_rebuild_qtensor\n", b"ctorch._utils\n_rebuild_wrapper_subclass\n", b"ctorch._utils\n_rebuild_meta_tensor_no_storage\n",
    b"cnumpy.core.multiarray\nscalar\n", b"ccollections\ndeque\n", b"ccollections\ndefaultdict\n", b"cpathlib\nPosixPath\n",
]  # fmt: skip
_DISTRIBUTED = [
    *(f"ctorch.distributed.checkpoint.metadata\n{name}\n".encode() for name in (
        "Metadata", "TensorStorageMetadata", "BytesStorageMetadata", "ChunkStorageMetadata", "MetadataIndex", "TensorProperties", "_MEM_FORMAT_ENCODING")),
    b"ctorch.distributed.checkpoint.filesystem\n_StorageInfo\n", b"state_dict_metadata", b"planner_data", b"storage_data", b"relative_path",
    b"offset", b"length", b"transform_descriptors", b"fqn", b"index", b"chunks", b"offsets", b"sizes", b"properties", b"size", b"version", b"1.0.0",
]  # fmt: skip
_JSON = [
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"null",
    b"true",
    b"1e400",
    b"-0",
    b"NaN",
    b"Infinity",
    b"\\ud800",
    b"\\u0000",
    b"\\\\",
]
_PLAIN = [
    b'"!"', b'"items"', b'"entry"', b'"dtype"', b'"shape"', b'"base64"', b'"float32"', b'"tuple"', b'"array"', b'"set"', b'"deque"', b'"dict"',
    b'"bytes"', b'"complex"', b'"scalar"', b'"float"', b'"again"', b'"frozenset"', b'"enum"', b'"seed"', b'"torch.Tensor"', b'"object"',
]  # fmt: skip
_ORBAX = [
    b"_METADATA", b"_CHECKPOINT_METADATA", b"manifest.ocdbt", b"_strings.json", b".zarray", b"zarr.json", b"checkpoint", b"metadata", b"metrics",
    b'"tree_metadata"', b'"key_metadata"', b'"key"', b'"key_type"', b'"value_metadata"', b'"value_type"', b'"np.ndarray"', b'"scalar"', b'"string"',
    b'"None"', b'"Dict"', b'"skip_deserialize"', b'"use_ocdbt"', b'"use_zarr3"', b'"shape"', b'"chunks"', b'"dtype"', b'"<f4"', b'"float32"',
    b'"compressor"', b'"fill_value"', b'"data_type"', b'"codecs"', b"('model', 'w')",
]  # fmt: skip
_KEYS = [
    b"a",
    b"w",
    b"weight",
    b"bias",
    b"model",
    b"layers",
    b"0",
    b"/.ATTRIBUTES/VARIABLE_VALUE",
    b".OPTIMIZER_SLOT",
    b"generator",
]
_LINES = [
    b"model_checkpoint_path: ",
    b"all_model_checkpoint_paths: ",
    b"all_model_checkpoint_timestamps: ",
    b"last_preserved_timestamp: ",
]

TARGETS = {
    "table": Target(read_table, [bytes.fromhex("57fb808b247547db")]),
    "table_block": Target(read_block),
    "bundle": Target(read_bundle, _KEYS),
    "version_1": Target(read_legacy, _KEYS),
    "object_graph": Target(read_graph, [*_KEYS, b"int", b"list", b"dict", b"Checkpoint", b"namedtuple:module:Class", b"tuple", b"None", b"str"]),
    "plain_state": Target(read_plain_state, [*_JSON, *_PLAIN]),
    "metadata": Target(read_metadata, [*_JSON, b'"metrics"', b'"metadata"', b'"version"']),
    "strings": Target(read_strings),
    "coded": Target(read_coded),
    "state_file": Target(read_state_file, [*_LINES, b'"x"', b'"/x"', b'"../x"', b'"ckpt-1"', b"\\000", b"nan", b"inf", b"-1"]),
    "names": Target(
        read_names, [b"x.index", b".milepost-0123456789abcdef", b".tmp", b"-of-00001", b"-index-", b"-removal-", b".pinned", b"ckpt-1", b".data-00000-of-00001"]
    ),
    "torch_pickle": Target(read_pickle, [*_OPCODES, *_TORCH]),
    "torch_archive": Target(lambda data: in_file("x.pt", data), [b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06", b"PK\x06\x06", b"data.pkl", *_TORCH]),
    "torch_legacy": Target(lambda data: in_file("x.pt", data), [*_OPCODES, *_TORCH]),
    "torch_distributed": Target(read_distributed, [*_OPCODES, *_TORCH, *_DISTRIBUTED]),
    "safetensors": Target(
        read_safetensors, [*_JSON, b'"dtype"', b'"shape"', b'"data_offsets"', b'"__metadata__"', b'"F32"', b'"BF16"', b'"F8_E4M3"', b'"I64"', b'"F4"']
    ),
    "safetensors_index": Target(read_index, [*_JSON, b'"weight_map"', b'"metadata"', b'"a.safetensors"', b'"b.safetensors"', b'"../a.safetensors"']),
    "flax": Target(lambda data: in_file("x.msgpack", data), [b"\x81\xa1a", b"\xc7", b"\xc8", b"\xc9", b"\xa7float32", b"\x01", b"\x02", b"\x03", b"\xb9__msgpack_chunked_array__"]),
    "orbax_json": Target(read_json, [*_JSON, b'"array_metadatas"', b'"array_metadata"', b'"param_name"', b'"ext_metadata"', b'"random_key_impl"']),
    "orbax": Target(read_orbax, [*_JSON, *_ORBAX]),
    "any_file": Target(lambda data: in_file("x", data), [b"PK\x03\x04", b"\x89HDF\r\n\x1a\n", b"\x93NUMPY", b"GGUF", b"\x1f\x8b", b"\x08\x01"]),
}  # fmt: skip
"""All formats, by name."""
