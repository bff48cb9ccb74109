"""The methods by which children that an object makes later get their saved values."""

from __future__ import annotations

from typing import Any


class DeferredChildren:
    """The calls when values are deferred, and when values have arrived.

    A value is *deferred* if its object does not exist yet. milepost does not change objects, so the adapter must tell when a
    child has been made. For this it installs a hook in `on_deferred`, which calls `milepost.adapters.restore_child`,
    `milepost.adapters.restore_slot` or `milepost.adapters.restore_children`. Without a hook, the value arrives when the
    program asks the status for a report or an assertion, and a save before that fails.
    """

    saved_whole: bool = False
    """Set if a checkpoint that has such an object has all children that it had. Then a newer restore of it also supersedes children
    that an older one has deferred and that the newer checkpoint does not have."""

    def on_attached(self, obj: Any) -> None:
        """Called when ``obj`` becomes an attribute of a `Checkpoint` or `Module`, and by each save that holds it.

        An adapter overrides it to watch an object from then on. Each save calls it again, because objects deeper in the graph,
        such as members of a list, are not such attributes.
        """

    def on_deferred(self, obj: Any) -> None:
        """Called for each value that is deferred for a child or a slot variable of ``obj``.

        A hook that it installs must not keep ``obj`` alive, and must not prevent copying or pickling it. It is called
        again if more is deferred.
        """

    def on_restored(self, obj: Any) -> None:
        """Called after ``obj`` was restored, and again after a child of it got its deferred value.

        It computes what depends on the values. If it raises an error, the restore fails and is undone, and it is called once
        more.
        """
