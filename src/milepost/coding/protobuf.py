"""Protocol buffer messages declared in Python, in a descriptor pool of their own.

TensorFlow registers its messages in the default pool of the process, and fails to import if another library has registered
the same names before. A separate pool avoids that. It also needs no generated code, which would tie milepost to the protobuf
runtimes that the generator supports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError as DecodeError

from milepost.errors import CorruptCheckpointError

_POOL: Final = descriptor_pool.DescriptorPool()
_PACKAGE: Final = "milepost.formats"
_SCALARS: Final = {
    name: getattr(descriptor_pb2.FieldDescriptorProto, "TYPE_" + name.upper())
    for name in (["int32", "int64", "uint32", "uint64", "bool", "string", "bytes", "fixed32", "float", "double"])
}

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
    proto = descriptor_pb2.FileDescriptorProto(name=file, package=_PACKAGE, syntax="proto3")
    for name, fields in messages.items():
        declared = proto.message_type.add(name=name)
        for field in fields:
            scalar = _SCALARS.get(field.type)
            label = "LABEL_REPEATED" if field.repeated else "LABEL_OPTIONAL"
            entry = declared.field.add(
                name=field.name, number=field.number, label=getattr(descriptor_pb2.FieldDescriptorProto, label)
            )
            if scalar is None:
                entry.type = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
                entry.type_name = f".{_PACKAGE}.{field.type}"
            else:
                entry.type = scalar
    _POOL.AddSerializedFile(proto.SerializeToString())
    return {
        name: message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in messages
    }


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
