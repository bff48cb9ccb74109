"""State that a checkpoint of an object would leave out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from milepost.graph.omissions import Accounted, Omission


class Completeness:
    """Methods that tell what a save would leave out. The save then fails, with the path and a remedy.

    A restore calls the same methods, so that live state that cannot be saved is *missing* in its report.
    """

    searched: bool = False
    """Set if no framework states which parts of an object are saved. A save then searches the values that the object
    holds and does not track."""

    def omission(self, obj: Any) -> Omission | None:
        """Why an object of a handled type is not tracked (`tracks`), if the user should know."""
        return None

    def unfinished(self, obj: Any) -> Omission | None:
        """Why a save now would leave something out, although ``obj`` itself is saved. It must change nothing.

        It is not called for leaves. An adapter overrides it if objects have state between two steps that their framework does not
        save, such as accumulated gradients. `DeferredChildren.on_attached` can begin to note what this needs to know.
        """
        return None

    def account(self, obj: Any) -> Iterable[Accounted]:
        """The parts that the framework itself would save of ``obj`` and of everything in it, such as those of its
        ``state_dict()``.

        A save compares it with what it is about to write, and fails if a part is missing there. It is not called for objects
        that are in the account of an object above them.
        """
        return ()
