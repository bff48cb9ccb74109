"""What commands say of the files that were saved with a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from milepost.bundle import BundleReader
from milepost.graph.keys import FILES
from milepost.series.files import file_sizes
from milepost.tools import amounts


def first_names(sizes: Mapping[str, int]) -> list[str]:
    """The first parts of the names of files, each once; that of a directory ends with a slash.

    Example:
        >>> first_names({"tokenizer/a": 3, "tokenizer/b": 4, "notes": 5})
        ['tokenizer/', 'notes']
    """
    return list(dict.fromkeys("".join(name.partition("/")[:2]) for name in sizes))


def files_text(sizes: Mapping[str, int]) -> str:
    """How many files there are, and how large they are, by the first parts of their names.

    Example:
        >>> files_text({"tokenizer/a": 3, "tokenizer/b": 4, "notes": 5})
        'tokenizer/ (2 files, 7 B), notes (5 B)'
    """
    texts = []
    for first in first_names(sizes):
        below = [
            size for name, size in sizes.items() if (name.startswith(first) and first.endswith("/")) or name == first
        ]
        counted = f"{amounts.plural(len(below), 'file')}, " if first.endswith("/") else ""
        texts.append(f"{first} ({counted}{amounts.size(sum(below))})")
    return ", ".join(texts)


class ChangedFiles:
    """How the files of two checkpoints differ. It is true if they do.

    Args:
        first: One open checkpoint.
        second: The other one.
        values: Whether the bytes of files of one name and size are compared. Otherwise none is read.
    """

    def __init__(self, first: BundleReader, second: BundleReader, *, values: bool) -> None:
        old, new = file_sizes(first), file_sizes(second)
        self.removed = [name for name in old if name not in new]
        self.added = [name for name in new if name not in old]
        self.changed = [
            name
            for name in old
            if name in new and (old[name] != new[name] or (values and not _are_same(first, second, name)))
        ]

    def __bool__(self) -> bool:
        return bool(self.removed or self.added or self.changed)

    def to_dict(self) -> dict[str, Sequence[str]]:
        """The names, by what has become of the files."""
        return {"removed": self.removed, "added": self.added, "changed": self.changed}


def _are_same(first: BundleReader, second: BundleReader, name: str) -> bool:
    contents: list[Any] = [reader.read(FILES + name) for reader in (first, second)]
    return bool((contents[0] == contents[1]).all())
