"""Drawings of object graphs, for programs and notebooks: of live objects, and of checkpoints."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from milepost.bundle import BundleReader
from milepost.checkpoint.checkpoint import Checkpoint, view_of
from milepost.checkpoint.views import TrackableView
from milepost.engine.arguments import is_whole_number, wrong
from milepost.engine.options import CheckpointOptions, resolved, storage_of, takes_options
from milepost.engine.turns import LOOK, Turn
from milepost.errors import ArgumentError, KeyNotFoundError
from milepost.graph.contract.operation import Operation
from milepost.graph.description import counted, of_file
from milepost.graph.description import kind_of as class_of
from milepost.graph.keys import unescape
from milepost.graph.saved.object_graph import ObjectGraph
from milepost.manager import CheckpointManager
from milepost.restoring.load import read_object_graph
from milepost.saving.save import read_state
from milepost.storage.output_file import write_text
from milepost.storage.paths import check_not_empty, plain_path
from milepost.tensor import TensorSpec
from milepost.tools.drawing.name_graph import graph_of_names
from milepost.tools.drawing.picture import Picture, find_node, picture_of
from milepost.tools.drawing.svg import to_dot, to_svg
from milepost.tools.named import open_named
from milepost.tools.names import typed
from milepost.tools.own_names import own_names_of
from milepost.tools.values.tensors import rows_of


@dataclass(frozen=True, repr=False)
class Drawing:
    """An object graph that `draw_graph` has drawn. A notebook shows it as a picture.

    Attributes:
        of: What is drawn: the path of the checkpoint, or the class of the object.
        picture: The nodes and edges that are drawn, as plain data.
        has_graph: Whether they are those of an object graph. Otherwise they are the levels of the names in a file that has none.

    Example:
        >>> import milepost
        >>> drawing = milepost.draw_graph(milepost.Checkpoint(v=milepost.Variable([1.0, 2.0])))
        >>> drawing.svg[:4], drawing.dot.splitlines()[0]
        ('<svg', 'digraph "Object graph of milepost.Checkpoint" {')
    """

    of: str
    picture: Picture
    has_graph: bool = True

    @cached_property
    def svg(self) -> str:
        """The drawing as an SVG document, which refers to nothing outside of it."""
        return to_svg(self.picture, self._title)

    @cached_property
    def dot(self) -> str:
        """The drawing in Graphviz' language."""
        return to_dot(self.picture, self._title)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the drawing to a file. A file that exists is replaced.

        Args:
            path: A path that ends in ``.svg`` or ``.dot``.

        Raises:
            ArgumentError: It ends in something else.
            StorageError: The file cannot be written.
        """
        name = plain_path(path)
        ending = os.path.splitext(name)[1].lower()
        if ending not in (".svg", ".dot"):
            raise ArgumentError(
                "a drawing is written as SVG or in Graphviz' language",
                file=name,
                expected="a path that ends in .svg or .dot",
                found=repr(name),
            )
        write_text(name, self.svg if ending == ".svg" else self.dot)

    def __repr__(self) -> str:
        return of_file(self, self.of, self.counts)

    def _repr_svg_(self) -> str:
        return self.svg

    @property
    def counts(self) -> str:
        """How much is drawn, and how much is folded, in a few words."""
        nodes, edges = self.picture.nodes, self.picture.edges
        folded = sum(node.folded for node in nodes)
        facts = [
            (self.picture.copies, "objects in equal blocks, of which one is drawn"),
            (self.picture.left_out, "objects without values of their own left out"),
            (folded, "more objects folded"),
        ]
        more = "".join(f", {count:,} {text}" for count, text in facts if count)
        return f"{counted(len(nodes), 'node')}, {counted(len(edges), 'edge')}{more}"

    @property
    def _title(self) -> str:
        return f"{'Object graph of' if self.has_graph else 'Names in'} {self.of}"


@takes_options("restore")
def draw_graph(
    source: Any,
    *,
    root: str = "",
    depth: int | None = None,
    limit: int | None = None,
    everything: bool = False,
    options: CheckpointOptions | None = None,
) -> Drawing:
    """Draws the object graph of a live object, or of a checkpoint, as ``milepost graph`` does: optimizers red, variables blue, slot
    variables orange, other objects black.

    An object that holds nothing, or only what the object above it holds under other names, is left out. In a large picture, blocks of which everything below is equal
    (names, shapes, element types, connections) are drawn once, with their number, and the slot variables of a variable as one node
    beside it.

    Of a live object, the drawing shows what a save would write. No file is written. Values are read as a save reads them. Of a file that has no
    object graph, such as one of PyTorch or of TensorFlow 1, the drawing shows the names, a node for each of their levels.

    Args:
        source: A live object: a `Checkpoint`, a `CheckpointManager`, or any object that can be saved, such as a model. Or the path of a
            checkpoint, of a SavedModel, of a file or directory of another library, or of a directory of checkpoints, whose latest is drawn.
        root: The path to the first object to draw: names joined by ``/``. By default the root of the graph.
        depth: The largest number of edges to follow from there; by default any number.
        limit: The largest number of nodes to draw, at least 1. By default 60, or any number if there is a depth. What has no room is
            folded into nodes that say how many objects and bytes they stand for.
        everything: Whether to draw each object by itself: also those that hold nothing, and each of several equal blocks.
        options: How to read: where the checkpoint is.

    Returns:
        The drawing. A notebook shows it; ``svg``, ``dot`` and ``write()`` give it to others.

    Raises:
        UntrackableError: The live object, or one below it, cannot be saved.
        UnsupportedError: The file is one that milepost does not read.
        CheckpointNotFoundError: There is no such checkpoint.
        CorruptCheckpointError: The checkpoint is damaged.
        KeyNotFoundError: There is no object at ``root``.
        ArgumentError: ``depth`` is negative, or ``limit`` is not positive.

    Example:
        >>> import milepost, tempfile
        >>> checkpoint = milepost.Checkpoint(net=milepost.Checkpoint(w=milepost.Variable(1.0)))
        >>> milepost.draw_graph(checkpoint)
        <milepost.Drawing 'milepost.Checkpoint': 3 nodes, 2 edges>
        >>> path = checkpoint.write(tempfile.mkdtemp() + "/ckpt")
        >>> drawing = milepost.draw_graph(path, root="net")
        >>> [node.label for node in drawing.picture.nodes]
        ['', 'float32[]']
    """
    _check_number("depth", depth, 0)
    _check_number("limit", limit, 1)
    settings = resolved(options)
    if not isinstance(source, (str, os.PathLike)):
        return _of_live(source, root, depth, limit, everything=bool(everything))
    path = plain_path(source)
    check_not_empty(path)
    with open_named(path, storage_of(settings)) as reader:
        return drawing_of(reader, root, depth, limit, everything=bool(everything))


def drawing_of(
    reader: BundleReader, root: str, depth: int | None, limit: int | None, *, everything: bool = False
) -> Drawing:
    """Draws an open checkpoint. Only its index and its object graph are read.

    Args:
        reader: The checkpoint.
        root: As for `draw_graph`.
        depth: As for `draw_graph`.
        limit: As for `draw_graph`.
        everything: As for `draw_graph`.

    Raises:
        KeyNotFoundError: There is no object at ``root``.
    """
    graph = read_object_graph(reader)
    rows = rows_of(reader)
    shown, own_names = (graph, {}) if graph is not None else graph_of_names(rows, own_names_of(reader))
    picture = picture_of(
        shown,
        {row.key: row.spec for row in rows},
        sizes={row.key: row.size for row in rows},
        own_names=own_names,
        root=_path_in(shown, root, dotted=graph is None),
        depth=depth,
        limit=limit,
        everything=everything,
    )
    return Drawing(reader.prefix, picture, graph is not None)


def _check_number(name: str, number: Any, least: int) -> None:
    expected = f"a whole number from {least} on, or None"
    if number is None:
        return
    if not is_whole_number(number):
        raise wrong(name, number, expected)
    if number < least:
        raise ArgumentError(f"{name} must be at least {least}", key=name, expected=expected, found=number)


def _of_live(source: Any, root: str, depth: int | None, limit: int | None, *, everything: bool) -> Drawing:
    live = source.checkpoint if isinstance(source, CheckpointManager) else source
    view = partial(view_of, live) if isinstance(live, Checkpoint) else partial(Operation, TrackableView(live).root)
    with Turn(LOOK, f"the drawing of a {class_of(source)}", view):
        state = read_state(view(), CheckpointOptions())
    picture = picture_of(
        state.graph,
        {write.key: str(TensorSpec(write.dtype, write.shape)) for write in state.writes},
        sizes={write.key: write.nbytes for write in state.writes},
        root=_path_in(state.graph, root),
        depth=depth,
        limit=limit,
        everything=everything,
    )
    return Drawing(class_of(source), picture)


def _path_in(graph: ObjectGraph, text: str, *, dotted: bool = False) -> str:
    """The path of names of edges that a user means, who may have typed it as it was printed, or as it is in keys.

    Args:
        graph: The graph.
        text: What was typed.
        dotted: Whether dots may separate names, as in a file of PyTorch.
    """
    path = typed(text, [edge.name for node in graph.nodes for edge in node.children])
    others = ["/".join(map(unescape, path.split("/"))), *([path.replace(".", "/")] if dotted else [])]
    for candidate in (path, *others):
        with suppress(KeyNotFoundError):
            find_node(graph, candidate)
            return candidate
    return path
