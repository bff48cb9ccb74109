"""Members of enumerations as parts of plain state.

::

    {"!": "enum", "value": {"module": "library", "class": "Kind", "name": "FIRST"}}

Nothing is imported to decode one. The program must have imported the class, which must be an enumeration with this member.
Otherwise decoding fails.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterable
from typing import Any

from milepost.errors import UnsupportedError
from milepost.plain_state.kinds import register_kind


def _to_plain(member: enum.Enum) -> dict[str, Any]:
    kind = type(member)
    name = member.name
    if (
        name is None
        or _class_of(kind.__module__, kind.__qualname__) is not kind
        or kind.__members__.get(name) is not member
    ):
        raise TypeError("it cannot be found by its module, class and name")
    return {"module": kind.__module__, "class": kind.__qualname__, "name": name}


def member_of_value(module: str, qualname: str, value: Any) -> enum.Enum | None:
    """The member of an enumeration that has a value; None if the program has no such enumeration, or it has no such member.

    No code of the enumeration runs.

    Args:
        module: The module of its class.
        qualname: The name of its class.
        value: A number or text.
    """
    kind = _class_of(module, qualname)
    if not isinstance(kind, enum.EnumType) or type(value) not in (int, str, float, bool):
        return None
    members: Iterable[enum.Enum] = kind.__members__.values()
    return next((each for each in members if type(each._value_) is type(value) and each._value_ == value), None)


def _class_of(module: str, qualname: str) -> Any:
    obj: Any = sys.modules.get(module)
    for name in qualname.split("."):
        # Reads the dict itself, so that no code of the module or class runs.
        obj = vars(obj).get(name) if hasattr(obj, "__dict__") else None
    return obj


def _from_plain(members: Any) -> enum.Enum:
    kind = _class_of(members["module"], members["class"])
    if not isinstance(kind, enum.EnumType) or members["name"] not in kind.__members__:
        raise UnsupportedError(
            "this member of an enumeration is not in the program",
            found=f"{members['module']}.{members['class']}.{members['name']}"[:200],
            remedy="import the module of its class before the restore",
        )
    member: enum.Enum = kind.__members__[members["name"]]
    return member


register_kind("enum", lambda value: isinstance(value, enum.Enum), _to_plain, _from_plain)
