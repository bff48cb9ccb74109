"""Protocol buffer messages declared in Python, in a descriptor pool of their own.

TensorFlow registers its messages in the default pool of the process, and fails to import if another library has registered
the same names before. A separate pool avoids that. It also needs no generated code, which would tie milepost to the protobuf
runtimes that the generator supports. The declaration of a group of messages is made of its fields, without the modules of
protobuf that have classes for it, because these take milliseconds to import::

    FileDescriptorProto  := 1 name string  2 package string  {4 message_type DescriptorProto}  12 syntax string
    DescriptorProto      := 1 name string  {2 field FieldDescriptorProto}
    FieldDescriptorProto := 1 name string  3 number int32  4 label int32  5 type int32  (6 type_name string)?

Source: Protocol Buffers, ``descriptor.proto``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import DecodeError as DecodeError

from milepost.coding.fields import message_field, number_field, text_field
from milepost.errors import CorruptCheckpointError

_POOL: Final = descriptor_pool.DescriptorPool()
_PACKAGE: Final = "milepost.formats"
_SCALARS: Final = {
    "double": 1,
    "float": 2,
    "int64": 3,
    "uint64": 4,
    "int32": 5,
    "fixed32": 7,
    "bool": 8,
    "string": 9,
    "bytes": 12,
    "uint32": 13,
}
_MESSAGE: Final = 11
"""The number of the type of a field that is a message."""
_OPTIONAL, _REPEATED = 1, 3
"""The numbers of labels."""

Message = Any
"""An object of a declared message class. Its fields are attributes, which are known only at run time."""


class Field(NamedTuple):
    """One field of a message.

    Attributes:
        name: The field's name.
        number: The field number.
        type: A scalar type (``"int64"``, ``"bytes"``, ...), or the name of a message that is declared earlier or in the
            same call.
        repeated: Whether the field may occur many times. Numbers are packed then, as in proto3.
    """

    name: str
    number: int
    type: str
    repeated: bool = False


def declare(file: str, messages: Mapping[str, Sequence[Field]]) -> dict[str, Any]:
    """Declares message classes.

    Enumerations are declared as ``int32``, which has the same encoding and also keeps numbers that this version does not know.

    Args:
        file: A name for this group of messages, which no other group has.
        messages: The fields of each message, by its name.

    Returns:
        The class of each message, by its name.
    """
    declared = text_field(b"\x0a", file) + text_field(b"\x12", _PACKAGE)
    for name, fields in messages.items():
        members = b"".join([message_field(b"\x12", _declared(field)) for field in fields])
        declared += message_field(b"\x22", text_field(b"\x0a", name) + members)
    _POOL.AddSerializedFile(declared + text_field(b"\x62", "proto3"))
    return {
        name: message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in messages
    }


def _declared(field: Field) -> bytes:
    """A field as a FieldDescriptorProto."""
    scalar = _SCALARS.get(field.type)
    parts = [
        text_field(b"\x0a", field.name),
        number_field(b"\x18", field.number),
        number_field(b"\x20", _REPEATED if field.repeated else _OPTIONAL),
        number_field(b"\x28", _MESSAGE if scalar is None else scalar),
        text_field(b"\x32", f".{_PACKAGE}.{field.type}" if scalar is None else ""),
    ]
    return b"".join(parts)


def parse(cls: Any, data: bytes, *, what: str) -> Message:
    """Parses untrusted bytes.

    Args:
        cls: A class from `declare`.
        data: The serialized message.
        what: What the message is, for the error.

    Raises:
        CorruptCheckpointError: The bytes are not such a message.
    """
    parsed = cls()
    try:
        parsed.MergeFromString(data)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptCheckpointError(
            f"{what} cannot be decoded: {error}", expected=f"a {cls.DESCRIPTOR.name}"
        ) from None
    return parsed
