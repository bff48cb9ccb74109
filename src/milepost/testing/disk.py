"""Computes what a power cut can leave on a disk. This is the model behind `FaultyStorage`.

A disk consists of directories, which map names to nodes, and files, which hold bytes. Programs see every step immediately. The disk
performs the steps later, in groups and in any order, unless a sync forces it. After a power cut:

- Steps in the **names** of a directory (create, make, rename, remove) that were not followed by a sync of the directory may have
  happened or not. Each happens completely or not at all, in any combination, also across directories. Only steps that concern
  the same name keep their order: if `a` and then `b` was renamed to `x`, the second step cannot survive alone.
- A file that has several names is one file: a sync, and a write that is lost, concern the bytes under each of them.
- **Writes** to a file that were not followed by a sync of the file may be there, be missing, or be there in part. The file may
  already have its new length, with zeros or old contents of the disk instead of the bytes. Bytes that were synced before do not
  change.
- The two are independent. A name may survive whose bytes do not. So renaming an unsynced file can lose both the old content and
  the new.
- A sync that failed promises nothing. For a file, a later sync that succeeds does not repair this, because the system may have
  dropped the bytes and marked them as written. Names stay in the journal, so a later sync can still make them durable.

POSIX allows all of this; no single file system does all of it. Not modelled are renames that are not atomic, bytes that decay
after a sync, and drives that report a sync before it is done.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, Literal, TypeVar

ROOTS: Final = {".": 0, "/": 1}
"""The nodes of the directories that always exist."""

_MOST_NAME_STEPS: Final = 10
"""All combinations of up to this many unsynced steps in names are tried. Of more steps, random combinations are tried."""
_MOST_WRITES: Final = 3


@dataclass(frozen=True, slots=True)
class Link:
    """A new file or directory gets a name, or an existing file gets another one.

    Attributes:
        directory: The number of the directory. Each file and directory of a disk has one, its node.
        name: The name in the directory.
        node: The number of the file or directory that gets the name.
        is_directory: Whether that is a directory.
    """

    directory: int
    name: str
    node: int
    is_directory: bool = False

    def __str__(self) -> str:
        return f"{'make' if self.is_directory else 'create'} {self.name}"


@dataclass(frozen=True, slots=True)
class Rename:
    """A file gets another name in its directory, and replaces the file that had this name.

    Attributes:
        directory: The number of the directory.
        source: The old name.
        target: The new name.
        node: The number of the file.
    """

    directory: int
    source: str
    target: str
    node: int

    def __str__(self) -> str:
        return f"rename {self.source} -> {self.target}"


@dataclass(frozen=True, slots=True)
class Remove:
    """A name is removed.

    Attributes:
        directory: The number of the directory.
        name: The name in it.
    """

    directory: int
    name: str

    def __str__(self) -> str:
        return f"remove {self.name}"


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes are written into a file.

    Attributes:
        node: The number of the file.
        offset: Where in the file the bytes begin.
        data: The bytes.
    """

    node: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Sync:
    """A file, or the names in a directory, were synced, or a sync failed.

    Attributes:
        node: The number of the file or directory.
        succeeded: Whether the sync succeeded.
    """

    node: int
    succeeded: bool = True


NameStep = Link | Rename | Remove
Step = NameStep | Write | Sync
"""One step of an operation on the disk: a change of a name, bytes written, or what is made durable."""


@dataclass(slots=True)
class Image:
    """The contents of a disk.

    Attributes:
        names: For each directory, its names and their nodes.
        files: The bytes of each file.
    """

    names: dict[int, dict[str, int]] = field(default_factory=lambda: {node: {} for node in ROOTS.values()})
    files: dict[int, bytes] = field(default_factory=dict)

    def walk(self) -> Iterator[tuple[str, int]]:
        """Every path, with its node."""
        below = [(root, node) for root, node in ROOTS.items()]
        while below:
            path, node = below.pop()
            yield path, node
            start = {".": "", "/": "/"}.get(path, path + "/")
            below.extend((start + name, child) for name, child in self.names.get(node, {}).items())

    def contents(self) -> dict[str, bytes | None]:
        """By path, the bytes of each file, and None for each directory. Images that programs cannot distinguish have equal contents."""
        return {path: None if node in self.names else self.files[node] for path, node in self.walk()}


@dataclass(frozen=True, slots=True)
class Aftermath:
    """A disk after a power cut.

    Attributes:
        image: The contents that are left.
        story: What happened to the steps that were not synced.
    """

    image: Image
    story: str


def aftermaths(before: Image, steps: Iterable[Step], *, limit: int, seed: int) -> Iterator[Aftermath]:
    """Yields what a power cut after some steps can leave, each image once, beginning with the extremes.

    Args:
        before: The disk at the beginning, which is durable.
        steps: The steps of programs since.
        limit: The most aftermaths. If there are more, a random choice of them.
        seed: The seed of the random choice.
    """
    crash = _Crash(before, steps, random.Random(seed))
    seen = set()
    for choice in crash.choices(limit):
        aftermath = crash.apply(*choice)
        key = frozenset(aftermath.image.contents().items())
        if key not in seen:
            seen.add(key)
            yield aftermath
        if len(seen) >= limit:
            return


_S = TypeVar("_S")


@dataclass(slots=True)
class _NameTable(Generic[_S]):
    step: _S
    fate: Literal["open", "sure", "doomed"] = "open"


def _settle(pending: list[_NameTable[_S]]) -> list[_S]:
    """Records a sync that succeeded. Returns the steps that are durable now and that follow no step that is not durable."""
    for each in pending:
        if each.fate == "open":
            each.fate = "sure"
    count = next((n for n, each in enumerate(pending) if each.fate != "sure"), len(pending))
    settled = [each.step for each in pending[:count]]
    del pending[:count]
    return settled


_Variant = tuple[str, bytes]
_Choice = tuple[int, dict[int, _Variant]]


class _Crash:
    """The durable contents of the disk, and the steps that are not durable, at one moment."""

    def __init__(self, before: Image, steps: Iterable[Step], chance: random.Random) -> None:
        self._chance = chance
        self._names = {node: dict(names) for node, names in before.names.items()}
        self._files = dict(before.files)
        self._writes: dict[int, list[_NameTable[Write]]] = defaultdict(list)
        pending: dict[int, list[_NameTable[NameStep]]] = defaultdict(list)
        for step in steps:
            if isinstance(step, Write):
                self._writes[step.node].append(_NameTable(step))
            elif not isinstance(step, Sync):
                pending[step.directory].append(_NameTable(step))
                if isinstance(step, Link):
                    if step.is_directory:
                        self._names[step.node] = {}
                    else:
                        self._files.setdefault(step.node, b"")
            elif step.succeeded:
                for settled in _settle(pending[step.node]):
                    _apply_names(self._names, settled)
                for write in _settle(self._writes[step.node]):
                    self._files[step.node] = _apply_write(self._files[step.node], write)
            else:
                for each in self._writes[step.node]:
                    each.fate = "doomed" if each.fate == "open" else each.fate
        self._pending = [each for steps_of_one in pending.values() for each in steps_of_one]
        self._needs: list[int] = []
        for n in range(len(self._pending)):
            self._needs.append(self._needed_by(n))
        self._sure = sum(1 << n for n, each in enumerate(self._pending) if each.fate == "sure")
        self._variants = {
            node: _variants(self._files[node], writes, chance) for node, writes in self._writes.items() if writes
        }

    def choices(self, limit: int) -> Iterator[_Choice]:
        """Choices of the steps in names that survive, and of the contents of each file that has a name then."""
        masks = self._masks(limit)
        reachable = {mask: self._unsynced(mask) for mask in masks}
        if sum(math.prod(len(self._variants[node]) for node in nodes) for nodes in reachable.values()) <= limit:
            for mask, nodes in reachable.items():
                for variants in itertools.product(*(self._variants[node] for node in nodes)):
                    yield mask, dict(zip(nodes, variants, strict=True))
            return
        everything = masks[0]
        nodes = reachable[everything]
        # The first variants are everything that was written, and nothing of it.
        whole = {node: self._variants[node][0] for node in nodes}
        yield everything, whole
        for mask in masks[:2]:
            yield mask, {node: self._variants[node][:2][-1] for node in reachable[mask]}
        for node in nodes:
            for variant in self._variants[node]:
                yield everything, {**whole, node: variant}
        for _ in range(8 * limit):
            mask = self._chance.choice(masks)
            yield mask, {node: self._chance.choice(self._variants[node]) for node in reachable[mask]}

    def apply(self, mask: int, variants: Mapping[int, _Variant]) -> Aftermath:
        """The disk after one choice."""
        names = self._survivors(mask)
        image = Image(names, self._files | {node: content for node, (_, content) in variants.items()})
        paths = {node: path for path, node in image.walk()}
        story = [f"lost: {each.step}" for n, each in enumerate(self._pending) if not mask >> n & 1]
        story += [f"{paths[node]}: {label}" for node, (label, _) in variants.items()]
        return Aftermath(image, "; ".join(story) or "everything survived")

    def _survivors(self, mask: int) -> dict[int, dict[str, int]]:
        names = {node: dict(children) for node, children in self._names.items()}
        for n, each in enumerate(self._pending):
            if mask >> n & 1:
                _apply_names(names, each.step)
        return names

    def _unsynced(self, mask: int) -> list[int]:
        reachable = {node for _, node in Image(self._survivors(mask), self._files).walk()}
        return [node for node in self._variants if node in reachable]

    def _needed_by(self, n: int) -> int:
        """The steps, as bits, that must have happened if the n-th step has happened."""
        step = self._pending[n].step
        needed = 0
        for m in range(n):
            other = self._pending[m].step
            if other.directory == step.directory and not _concerned(other).isdisjoint(_concerned(step)):
                needed |= 1 << m | self._needs[m]
        return needed

    def _masks(self, limit: int) -> list[int]:
        """Sets of steps in names that can survive, as bits: first all steps, then the fewest, then others."""
        count = len(self._pending)
        everything = (1 << count) - 1
        least = self._closed(self._sure)
        if count <= _MOST_NAME_STEPS:
            others: Iterable[int] = range(everything + 1)
        else:
            others = (self._chance.getrandbits(count) for _ in range(4 * limit))
        return list(dict.fromkeys([everything, least, *(self._closed(mask | least) for mask in others)]))

    def _closed(self, mask: int) -> int:
        return functools.reduce(
            lambda a, n: a | (self._needs[n] if mask >> n & 1 else 0), range(len(self._needs)), mask
        )


def _concerned(step: NameStep) -> set[str]:
    return {step.source, step.target} if isinstance(step, Rename) else {step.name}


def _apply_names(names: dict[int, dict[str, int]], step: NameStep) -> None:
    children = names[step.directory]
    if isinstance(step, Link):
        children[step.name] = step.node
    elif isinstance(step, Rename):
        children.pop(step.source, None)
        children[step.target] = step.node
    else:
        children.pop(step.name, None)


def _apply_write(content: bytes, write: Write) -> bytes:
    end = write.offset + len(write.data)
    return content[: write.offset].ljust(write.offset, b"\0") + write.data + content[end:]


def _variants(synced: bytes, writes: Sequence[_NameTable[Write]], chance: random.Random) -> list[_Variant]:
    """Possible contents of a file: first everything that was written, then as little as possible, then others."""
    optional = [n for n, each in enumerate(writes) if each.fate != "sure"]

    def content(fates: Mapping[int, str]) -> bytes:
        data = synced
        for n, write in enumerate(writes):
            fate = fates.get(n, "kept")
            if fate == "torn":
                data = _apply_write(data, Write(write.step.node, write.step.offset, _half(write.step.data)))
            elif fate == "kept":
                data = _apply_write(data, write.step)
        return data

    def label(fates: Mapping[int, str]) -> str:
        numbers_by_fate = {
            fate: [n for n, each in fates.items() if each == fate] for fate in dict.fromkeys(fates.values())
        }
        return ", ".join(f"write {'+'.join(map(str, which))} {fate}" for fate, which in numbers_by_fate.items())

    whole, lost = content({}), content(dict.fromkeys(optional, "lost"))
    variants = [("whole", whole), ("unsynced writes lost", lost)]
    if len(optional) <= _MOST_WRITES:
        combinations = itertools.product(("kept", "lost", "torn"), repeat=len(optional))
        choices = [dict(zip(optional, fates, strict=True)) for fates in combinations]
    else:
        choices = [{n: fate} for n in optional for fate in ("lost", "torn")]
        choices += [dict.fromkeys(optional[n:], "lost") for n in range(1, len(optional))]
        choices += [{n: chance.choice(("kept", "lost", "torn")) for n in optional} for _ in range(8)]
    variants += [(label(fates), content(fates)) for fates in choices]
    if len(whole) > len(lost):
        missing = len(whole) - len(lost)
        variants += [
            ("zeros", lost.ljust(len(whole), b"\0")),
            ("zeros in the second half", whole[: len(lost) + missing // 2].ljust(len(whole), b"\0")),
            ("rubbish", lost + chance.randbytes(missing)),
        ]
    distinct: dict[bytes, str] = {}
    for how, data in variants:
        distinct.setdefault(data, how)
    return [(how, data) for data, how in distinct.items()]


def _half(data: bytes) -> bytes:
    return data[: len(data) // 2]
