"""Views of the two sides of a restore: live objects, and the object graph of a checkpoint."""

from __future__ import annotations

import os
from collections import deque
from itertools import islice
from typing import Any, Final

from milepost.bundle import open_whole
from milepost.engine.options import CheckpointOptions, resolved, storage_of, takes_options
from milepost.errors import UnrestoredWarning, UnsupportedError, UntrackableError, warn
from milepost.graph.adapter import adapter_during, adapter_of
from milepost.graph.contract.operation import Operation
from milepost.graph.description import MOST_ROWS, counted, html_table, kind_of, of_file
from milepost.graph.keys import short_name
from milepost.graph.saved.object_graph import ObjectGraph
from milepost.graph.traversal import live_children, reachable
from milepost.graph.trees.places import Place
from milepost.restoring.load import read_object_graph
from milepost.series.saved_model import checkpoint_of
from milepost.storage.paths import check_not_empty, plain_path

PathLike = str | os.PathLike[str]
_MOST_LISTED: Final = 5


class TrackableView:
    """The live objects reachable from a root, as ``tf.train.TrackableView`` shows them.

    Args:
        root: The object to start from.

    Raises:
        UntrackableError: The root cannot be saved.

    Example:
        >>> import milepost
        >>> root = milepost.Checkpoint(v=milepost.Variable(1.0))
        >>> list(milepost.TrackableView.children(root))
        ['v']
    """

    def __init__(self, root: Any) -> None:
        if adapter_of(root) is None:
            raise UntrackableError(
                "this object cannot be saved, so it has no object graph",
                found=f"an object of type {type(root).__name__}",
                remedy="pass a milepost.Checkpoint or Module, or an object of a supported framework",
            )
        self.root = root

    def __repr__(self) -> str:
        root = self.__dict__.get("root")
        return f"<{kind_of(self)}, not initialized>" if root is None else f"<{kind_of(self)} of {kind_of(root)}>"

    @staticmethod
    def children(obj: Any) -> dict[str, Any]:
        """The trackable children of an object, by the names of their edges."""
        return _children(_operation_at(obj), obj)

    def descendants(self) -> list[Any]:
        """All objects reachable from the root, the root included, nearest first."""
        return reachable(self.root)


def _children(operation: Operation, obj: Any) -> dict[str, Any]:
    adapter = adapter_during(operation, obj)
    return dict(live_children(operation, adapter, obj)) if adapter is not None else {}


def _operation_at(obj: Any) -> Operation:
    """An operation that begins at an object, and knows its value if it is a place."""
    operation, above = Operation(obj), []
    while isinstance(obj, Place) and obj.parent is not None:
        obj = obj.parent
        above.append(obj)
    if isinstance(obj, Place) and obj.holder is not None:
        for each in (obj.holder(), *reversed(above)):
            _children(operation, each)
    return operation


class CheckpointView:
    """The object graph of a checkpoint, as ``tf.train.CheckpointView`` shows it.

    Args:
        path: The checkpoint, or a SavedModel.
        options: How to read: where the files are.

    Raises:
        CheckpointNotFoundError: There is no such checkpoint.
        CorruptCheckpointError: The checkpoint is damaged.
        UnsupportedError: The checkpoint is name-based and has no object graph.

    Example:
        >>> import milepost, tempfile
        >>> path = milepost.Checkpoint(v=milepost.Variable(1.0)).write(tempfile.mkdtemp() + "/ckpt")
        >>> milepost.CheckpointView(path).children(0)
        {'v': 1}
    """

    @takes_options("restore")
    def __init__(self, path: PathLike, options: CheckpointOptions | None = None) -> None:
        files, path = storage_of(resolved(options)), plain_path(path)
        check_not_empty(path)
        with open_whole(files, checkpoint_of(files, path)) as reader:
            graph = read_object_graph(reader)
        if graph is None:
            raise UnsupportedError(
                "a name-based checkpoint has no object graph",
                file=path,
                remedy="use milepost.load_checkpoint to look at its tensors",
            )
        self._graph: ObjectGraph = graph
        self._prefix = path

    def __repr__(self) -> str:
        path = self.__dict__.get("_prefix")
        return of_file(self, None) if path is None else of_file(self, path, counted(len(self._graph.nodes), "object"))

    def _repr_html_(self) -> str:
        """A table of the first objects, which a notebook shows."""
        graph: ObjectGraph | None = self.__dict__.get("_graph")
        nodes = () if graph is None else graph.nodes
        rows = (
            [
                str(number),
                ", ".join(f"{edge.name}: {edge.node}" for edge in islice(node.children, MOST_ROWS)),
                ", ".join(short_name(each.key) or each.key for each in islice(node.values, MOST_ROWS)),
            ]
            for number, node in enumerate(nodes)
        )
        return html_table(repr(self), ["object", "children", "its values"], rows, len(nodes))

    @property
    def graph(self) -> ObjectGraph:
        """The saved object graph as plain data."""
        return self._graph

    def children(self, node_id: int) -> dict[str, int]:
        """The ids of a node's children, by the names of their edges."""
        return {edge.name: edge.node for edge in self._graph.nodes[node_id].children}

    def descendants(self) -> list[int]:
        """The ids of all nodes reachable from the root, the root included, nearest first."""
        reached = {0: None}
        queue = deque([0])
        while queue:
            for edge in self._graph.nodes[queue.popleft()].children:
                if edge.node not in reached:
                    reached[edge.node] = None
                    queue.append(edge.node)
        return list(reached)

    def match(self, obj: Any) -> dict[int, Any]:
        """The live objects that a restore into ``obj`` would match, by the ids of their nodes.

        If several live objects correspond to one saved object, only the first is matched, and a warning is issued.

        Args:
            obj: The live object to match with the root.
        """
        operation = _operation_at(obj)
        matched = {0: obj}
        split: dict[int, str] = {}
        queue = deque([0])
        while queue:
            node = queue.popleft()
            children = _children(operation, matched[node])
            for edge in self._graph.nodes[node].children:
                if edge.node not in matched and edge.name in children:
                    matched[edge.node] = children[edge.name]
                    queue.append(edge.node)
                elif edge.name in children and children[edge.name] is not matched[edge.node]:
                    split.setdefault(edge.node, edge.name)
        if split:
            listed = ", ".join(f"node {node} (here {name!r})" for node, name in list(split.items())[:_MOST_LISTED])
            warn(
                f"inconsistent references: {len(split)} saved objects each match several live objects, and only the first "
                f"live object of each is matched: {listed}; share the live objects as they were shared when they were saved",
                UnrestoredWarning,
            )
        return matched

    def diff(self, obj: Any) -> tuple[dict[int, Any], list[int], list[Any]]:
        """Compares the checkpoint with live objects. No object changes.

        Args:
            obj: The live object to match with the root.

        Returns:
            The result of `match`, the ids of nodes without a live object, and the live objects without a node.
        """
        matched = self.match(obj)
        identities = {id(each) for each in matched.values()}
        unmatched_nodes = [node for node in self.descendants() if node not in matched]
        unmatched_objects = [each for each in reachable(obj) if id(each) not in identities]
        return matched, unmatched_nodes, unmatched_objects
