"""What an object is told so that children which it makes later get their saved values."""

from __future__ import annotations

from typing import Any


class DeferredChildren:
    """What an adapter is called for when values are deferred, and when values have come.

    A value is *deferred* if the object that is to take it does not exist yet. milepost does not change objects, so the adapter
    says when a child has come: it installs a hook in `on_deferred`, which calls `milepost.adapters.restore_child`,
    `milepost.adapters.restore_slot` or `milepost.adapters.restore_children`. Without a hook, the value arrives when
    somebody asks the status for a report or an assertion, and a save before that fails.
    """

    def on_attached(self, obj: Any) -> None:
        """Called when ``obj`` becomes an attribute of a `Checkpoint` or `Module`, and by each save that holds it.

        It begins to watch what must be watched from then on. It is called again by each save, because objects deeper in the
        graph, such as members of a list, are not attributes of these.
        """

    def on_deferred(self, obj: Any) -> None:
        """Called for each value that is deferred for a child or a slot variable of ``obj``.

        What it installs must not keep ``obj`` alive, and must not be in the way of copying and pickling it. It is
        called again if more is deferred.
        """

    def on_restored(self, obj: Any) -> None:
        """Called after ``obj`` was restored, and again after a child of it got its deferred value.

        It computes what follows from the values. If it raises, the restore fails, everything is put back, and it is called once
        more.
        """
