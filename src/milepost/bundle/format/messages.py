"""The protocol buffer messages of tensor bundles and of the older checkpoints.

::

    BundleHeader         := 1 num_shards int32  2 endianness int32  3 version Version       endianness: 0 little, 1 big
    Version              := 1 producer int32  2 min_consumer int32  {3 bad_consumers int32}
    BundleEntry          := 1 dtype int32  2 shape Shape  3 shard_id int32  4 offset int64  5 size int64
                            6 crc32c fixed32  {7 slices Slice}  (1001 element_type string)?   see `milepost.bundle.format.entry`
    Shape                := {2 dim Dimension}  3 unknown_rank bool
    Dimension            := 1 size int64  2 name bytes
    Slice                := {1 extent Extent}                                               one for each dimension
    Extent               := 1 start int64  2 length int64                                   no length: the whole dimension
    SavedTensorSlices    := (1 meta SavedTensorSliceMeta)?  (2 data SavedSlice)?            see `milepost.bundle.legacy`
    SavedTensorSliceMeta := {1 tensor SavedSliceMeta}  2 versions Version
    SavedSliceMeta       := 1 name bytes  2 shape Shape  3 type int32  {4 slice Slice}
    SavedSlice           := 1 name bytes  2 slice Slice  3 data TensorProto
    TensorProto          := the values, in the repeated field for their type                its fields are listed below

TensorFlow calls some of them otherwise: ``BundleHeaderProto``, ``VersionDef``, ``BundleEntryProto``, ``TensorShapeProto``,
``TensorSliceProto``. Names are declared as ``bytes``, because nothing but convention makes them UTF-8. Fields that milepost never
reads are left out; parsers skip them. Source: TensorFlow 2.21, ``tensor_bundle.proto``, ``tensor_shape.proto``,
``tensor_slice.proto``, ``versions.proto``, ``tensor.proto`` and ``saved_tensor_slice.proto``.
"""

from __future__ import annotations

from typing import Final

from milepost.coding.protobuf import Field, declare

_MESSAGES: Final = declare(
    "bundle.proto",
    {
        "Version": [
            Field("producer", 1, "int32"),
            Field("min_consumer", 2, "int32"),
            Field("bad_consumers", 3, "int32", repeated=True),
        ],
        "Dimension": [Field("size", 1, "int64"), Field("name", 2, "bytes")],
        "Shape": [Field("dim", 2, "Dimension", repeated=True), Field("unknown_rank", 3, "bool")],
        # an absent length is 0 here; empty extents are never written
        "Extent": [Field("start", 1, "int64"), Field("length", 2, "int64")],
        "Slice": [Field("extent", 1, "Extent", repeated=True)],
        "BundleHeader": [
            Field("num_shards", 1, "int32"),
            Field("endianness", 2, "int32"),
            Field("version", 3, "Version"),
        ],
        "BundleEntry": [
            Field("dtype", 1, "int32"),
            Field("shape", 2, "Shape"),
            Field("shard_id", 3, "int32"),
            Field("offset", 4, "int64"),
            Field("size", 5, "int64"),
            Field("crc32c", 6, "fixed32"),
            Field("slices", 7, "Slice", repeated=True),
            Field("element_type", 1001, "bytes"),
        ],
        "TensorProto": [
            Field("float_val", 5, "float", repeated=True),
            Field("double_val", 6, "double", repeated=True),
            Field("int_val", 7, "int32", repeated=True),
            Field("string_val", 8, "bytes", repeated=True),
            Field("scomplex_val", 9, "float", repeated=True),
            Field("int64_val", 10, "int64", repeated=True),
            Field("bool_val", 11, "bool", repeated=True),
            Field("dcomplex_val", 12, "double", repeated=True),
            Field("half_val", 13, "int32", repeated=True),
            Field("uint32_val", 16, "uint32", repeated=True),
            Field("uint64_val", 17, "uint64", repeated=True),
        ],
        "SavedSliceMeta": [
            Field("name", 1, "bytes"),
            Field("shape", 2, "Shape"),
            Field("type", 3, "int32"),
            Field("slice", 4, "Slice", repeated=True),
        ],
        "SavedTensorSliceMeta": [Field("tensor", 1, "SavedSliceMeta", repeated=True), Field("versions", 2, "Version")],
        "SavedSlice": [Field("name", 1, "bytes"), Field("slice", 2, "Slice"), Field("data", 3, "TensorProto")],
        "SavedTensorSlices": [Field("meta", 1, "SavedTensorSliceMeta"), Field("data", 2, "SavedSlice")],
    },
)

BundleHeader: Final = _MESSAGES["BundleHeader"]
BundleEntry: Final = _MESSAGES["BundleEntry"]
SavedTensorSlices: Final = _MESSAGES["SavedTensorSlices"]
Shape: Final = _MESSAGES["Shape"]
Slice: Final = _MESSAGES["Slice"]
