"""Gives an open file of any kind another layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from milepost.bundle import BundleReader
from milepost.engine.layouts.checkpoints import LaidOutReader
from milepost.engine.layouts.foreign_files import LaidOutForeignReader, laid_out_file
from milepost.engine.layouts.steps import Step
from milepost.foreign import ForeignReader
from milepost.graph.saved.object_graph import ObjectGraph


def sources_of(reader: BundleReader, key: str) -> list[str]:
    """The keys of the saved values that a value is made of, or an empty list if it is as it was saved.

    Args:
        reader: A file of `laid_out`, or any other open file.
        key: The key of the value.
    """
    return reader.made_of(key) if isinstance(reader, (LaidOutReader, LaidOutForeignReader)) else []


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
