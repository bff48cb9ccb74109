"""Checkpoint keys: how the path to an object becomes the name of its tensors.

::

    tensor key    := object path "/.ATTRIBUTES/" local name
    object path   := escaped edge names, joined by "/"         empty for the root
    local name    := name | name "-" kind "-of-process-" RANK "-of-" SIZE     the second if every process has a value of its own
    kind          := "random" | "data" | "own"
    slot path     := variable's path "/.OPTIMIZER_SLOT/" optimizer's path "/" escaped slot name
    escaped name  := name with "." doubled, then "/" written as ".S"

No escaped name contains ``/`` or a single ``.`` followed by another letter than ``S``, so the two markers cannot be
mistaken for names. Source: TensorFlow 2.21, observed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from milepost.errors import UntrackableError

ATTRIBUTES: Final = "/.ATTRIBUTES/"
SLOT: Final = "/.OPTIMIZER_SLOT/"
_SLOTS: Final = "state"
"""What the slot variables of an optimizer are called in names below it, as PyTorch calls them."""
VARIABLE_VALUE: Final = "VARIABLE_VALUE"
"""Local name of the only tensor of a variable or array."""
_OF_PROCESS: Final = "-of-process-"
_OWN_NAME: Final = re.compile(rf"(.*)-(random|data|own){_OF_PROCESS}(\d{{1,9}})-of-(\d{{1,9}})", re.DOTALL)
LONGEST_PATH: Final = 1 << 15
"""The largest number of characters in the path of a saved object."""
_SHOWN: Final = 60
"""The number of characters at either end of such a path that an error shows."""
OBJECT_GRAPH: Final = "_CHECKPOINTABLE_OBJECT_GRAPH"
"""Key under which a checkpoint holds its object graph."""
STATE_DICT: Final = "state_dict"
"""The name of the edge to what a module or an optimizer of PyTorch has in its ``state_dict()`` by code of its own."""
EXTRA_STATE: Final = "_extra_state"
"""The name of the edge to the extra state of a module of PyTorch, and of this in its ``state_dict()``."""
METADATA: Final = "_MILEPOST_METADATA"
"""Key under which a checkpoint holds the metrics and the metadata that were saved with it. It is not a value of an
object."""
FILES: Final = ".MILEPOST_FILES/"
"""The beginning of the keys under which a checkpoint holds the files that were saved with it. No path of an object begins so."""


def is_value(key: str) -> bool:
    """Whether a tensor of a checkpoint is a value of an object, and not the object graph, the metadata or a file.

    Example:
        >>> is_value("v/.ATTRIBUTES/VARIABLE_VALUE"), is_value("_CHECKPOINTABLE_OBJECT_GRAPH")
        (True, False)
    """
    return key not in (OBJECT_GRAPH, METADATA) and not key.startswith(FILES)


def escape(name: str) -> str:
    """Escapes the name of an edge for a path.

    Example:
        >>> escape("a/b.c")
        'a.Sb..c'
    """
    if "." in name or "/" in name:
        return name.replace(".", "..").replace("/", ".S")
    return name


def unescape(name: str) -> str:
    """Returns the name that `escape` escaped.

    Example:
        >>> unescape("a.Sb..c")
        'a/b.c'
    """
    if "." not in name:
        return name
    return ".".join(part.replace(".S", "/") for part in name.split(".."))


class OwnName(NamedTuple):
    """The local name of a value of which every process has its own.

    Attributes:
        name: The name without the rest.
        kind: ``random``, ``data`` or ``own``; see `Adapter.each_process`.
        rank: The number of the process.
        size: How many processes there were.

    Example:
        >>> str(OwnName("state", "data", 1, 4))
        'state-data-of-process-1-of-4'
        >>> OwnName.parse("state-data-of-process-1-of-4")
        OwnName(name='state', kind='data', rank=1, size=4)
    """

    name: str
    kind: str
    rank: int
    size: int

    def __str__(self) -> str:
        return f"{self.name}-{self.kind}{_OF_PROCESS}{self.rank}-of-{self.size}"

    @classmethod
    def parse(cls, text: str) -> OwnName | None:
        """The inverse of ``str``. None for another name."""
        match = _OWN_NAME.fullmatch(text) if _OF_PROCESS in text else None
        return None if match is None else cls(match[1], match[2], int(match[3]), int(match[4]))


def child_path(parent: str, name: str, *, is_root: bool) -> str:
    """The path of a child at the edge ``name``. ``is_root`` distinguishes an empty name from the path of the root.

    Raises:
        UntrackableError: The path is longer than 32,768 characters. Without a limit, the paths of a chain of n objects would
            take memory in proportion to n squared.
    """
    if "." in name or "/" in name:
        name = escape(name)
    path = name if is_root else f"{parent}/{name}"
    if len(path) > LONGEST_PATH:
        raise UntrackableError(
            "the path of an object is too long",
            key=f"{path[:_SHOWN]}...{path[-_SHOWN:]}",
            expected=f"at most {LONGEST_PATH} characters from the root to an object",
            found=f"{len(path)} characters, {path.count('/') + 1} levels",
            remedy="hold a long chain of objects in one list; if the objects are deferred values of a restore, call expect_partial() on its status",
        )
    return path


class Subtrees:
    """A set of paths. A path is in it if it is one of the given paths, or below one.

    Args:
        paths: The paths.

    Example:
        >>> "memory/3/0" in Subtrees(["memory/3"]), "memory/30" in Subtrees(["memory/3"])
        (True, False)
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = set(paths)
        self._lengths = {len(path) for path in self._paths}  # there are few lengths, even if there are many paths

    def __contains__(self, path: str) -> bool:
        return any(path[:length] in self._paths and path[length : length + 1] in ("", "/") for length in self._lengths)


def tensor_key(path: str, local_name: str) -> str:
    """The key of one tensor of the object at ``path``.

    Example:
        >>> tensor_key("net/l1/bias", "VARIABLE_VALUE")
        'net/l1/bias/.ATTRIBUTES/VARIABLE_VALUE'
    """
    return f"{path}{ATTRIBUTES}{escape(local_name)}"


def short_name(key: str) -> str:
    """The name of a tensor as users write it.

    Example:
        >>> short_name("net/l1/kernel/.ATTRIBUTES/VARIABLE_VALUE"), short_name("global_step")
        ('net/l1/kernel', 'global_step')
    """
    return key.removesuffix(ATTRIBUTES + VARIABLE_VALUE)


def slot_path(variable_path: str, optimizer_path: str, slot_name: str) -> str:
    """The path of a slot variable.

    Example:
        >>> slot_path("net/l1/bias", "optimizer", "m")
        'net/l1/bias/.OPTIMIZER_SLOT/optimizer/m'
    """
    return f"{variable_path}{SLOT}{optimizer_path}/{escape(slot_name)}"


def names_of(path: str) -> tuple[str, ...]:
    """The names that a program may use for the object at a path. A slot variable has one below its optimizer, too.

    Example:
        >>> names_of("net/l1/bias")
        ('net/l1/bias',)
        >>> names_of("net/l1/bias/.OPTIMIZER_SLOT/optimizer/m")
        ('net/l1/bias/.OPTIMIZER_SLOT/optimizer/m', 'optimizer/state/m')
    """
    _, is_slot, rest = path.partition(SLOT)
    if not is_slot:
        return (path,)
    optimizer, _, name = rest.rpartition("/")
    return path, f"{optimizer}/{_SLOTS}/{name}"
