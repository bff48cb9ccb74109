"""Deferred restoration: saved values of objects that do not exist yet when a checkpoint is restored.

These are the steps for a kernel that is made when its layer is first called:

1. A restore matches the saved graph with the live one (`milepost.restoring.match`). The layer exists, its kernel does not. So the
   restore puts a *position* (`deferred.position`) into the table of `deferred.table`: under the live layer, the name of the
   edge, ``kernel``, and the saved node. The table refers to the layer weakly, by identity; the layer itself does not change.
2. An object of a framework may not tell when it gets a child. So the restore calls the adapter of the layer
   (`milepost.graph.adapter.Adapter.on_deferred`), which puts a hook where the framework makes children, such as around ``build``.
3. The layer is called and makes its kernel. The hook *scans the layer again* (`deferred.rescan`), which takes the positions of
   the kernel out of the table (`deferred.table.take`). Milepost's own modules, lists and dicts need no hook: before they hold a child,
   they call `deferred.table.admit` (`milepost.graph.attach`), which takes the positions if the program built the child again
   (`deferred.own_values`).
4. The positions *settle* the child, the newest restore first: the saved node and the child go through the steps of any restore, match,
   check and deliver (`milepost.restoring.restore`). Saved nodes that the child lacks are deferred on it.
5. The kernel has its value before it is used. When nothing of a restore is deferred any more, its files are closed
   (`deferred.position`).

A save before step 3 loses nothing: it writes the deferred values again (`deferred.saving`), under the names at which they are
deferred. The values of a restore with ``expect_partial()`` are not written again. A newer restore of the same object *supersedes*
what is deferred there.
"""
