"""Gives an open file of any kind another layout."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, cast

from milepost.bundle import BundleReader
from milepost.engine.layouts.checkpoints import LaidOutReader
from milepost.engine.layouts.foreign_files import LaidOutForeignReader, laid_out_file
from milepost.engine.layouts.steps import Step
from milepost.errors import UnrestoredWarning, warn
from milepost.foreign import ForeignReader
from milepost.graph.keys import ATTRIBUTES
from milepost.graph.saved.object_graph import ObjectGraph

_MOST_LISTED: Final = 5


def sources_of(reader: BundleReader, key: str) -> list[str]:
    """The keys of the saved values that a value is made of, or an empty list if it is as it was saved.

    Args:
        reader: A file of `laid_out`, or any other open file.
        key: The key of the value.
    """
    return reader.made_of(key) if isinstance(reader, (LaidOutReader, LaidOutForeignReader)) else []


def warn_of_copies(reader: BundleReader, keys: Iterable[str]) -> None:
    """Warns of values that stay as they are although converted ones have their names, such as moments beside parameters.

    Args:
        reader: A file of `laid_out`, or any other open file.
        keys: The keys of the values that are used.
    """
    copies = reader.copies if isinstance(reader, (LaidOutReader, LaidOutForeignReader)) else frozenset()
    used = sorted(copies.intersection(keys)) if copies else []
    if used:
        names = [key.partition(ATTRIBUTES)[0] for key in used[:_MOST_LISTED]]
        warn(
            f"{reader.prefix}: convert changes values whose names are in others too, which stay as they are: {', '.join(names)}"
            f"{', ...' if len(used) > _MOST_LISTED else ''}. If these belong to them, as the moments of an optimizer do, begin the names of the "
            "steps with **/ in place of the first levels",
            UnrestoredWarning,
        )


def laid_out(reader: BundleReader, graph: ObjectGraph | None, steps: Sequence[Step]) -> BundleReader:
    """An open file with its values laid out otherwise. To close it closes the file.

    Args:
        reader: The open file.
        graph: Its object graph, if it has one.
        steps: What is made of its values.

    Raises:
        MilepostError: As for `milepost.engine.layouts.applying.applied`.
    """
    if reader.origin.is_checkpoint:
        return LaidOutReader(reader, graph, steps)
    return laid_out_file(cast("ForeignReader", reader), steps)
