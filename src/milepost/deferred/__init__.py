"""Deferred restoration: saved values of objects that do not exist yet when a checkpoint is restored.

This is the story of a kernel that is made when its layer is first called:

1. A restore matches the saved graph with the live one (`milepost.engine.match`). The layer is there, its kernel is not. So the
   restore puts a *position* (`deferred.position`) into the table of `deferred.table`: under the live layer, the name of the
   edge, ``kernel``, and the saved node. The table refers to the layer weakly, by identity; the layer itself does not change.
2. An object of a framework may not say when it gets a child. The adapter of such a layer is told
   (`milepost.graph.adapter.Adapter.on_deferred`), and puts a hook where the framework makes children, such as around ``build``.
3. The layer is called and makes its kernel. A hook has the layer *scanned again* (`deferred.rescan`); milepost's own modules,
   lists and dicts ask `deferred.table.admit` themselves, before they hold the child (`milepost.graph.attach`).
4. `admit` asks whether the child is one that the program built again (`deferred.own_values`). If so, it lets the positions
   *settle* it, the newest restore first: the saved node and the child are matched, checked and delivered by
   the steps of any restore (`milepost.engine.restore`), and what is missing below the child is deferred in turn.
5. The kernel has its value before anyone has used it. When nothing of a restore is deferred any more, its files are closed
   (`deferred.nodes`).

A save before that loses nothing: it writes the deferred values again (`deferred.saving`), under the names at which they are deferred. What a
restore was told to leave (``expect_partial()``) is not written again. A newer restore of the same object *supersedes* what is deferred
there.
"""
