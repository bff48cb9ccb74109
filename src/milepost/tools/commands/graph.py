"""`milepost graph`: a picture of the object graph."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from milepost.storage.output_file import write_text
from milepost.tools.arguments import (
    FILES,
    SUCCESS,
    add_checkpoint,
    add_command,
    add_json,
    add_output,
    check_output,
    natural,
    positive,
)
from milepost.tools.drawing.graph import drawing_of
from milepost.tools.drawing.picture import MOST_NODES, tree_rows
from milepost.tools.fitting import NAMES, Column
from milepost.tools.named import open_named
from milepost.tools.terminal import is_terminal, line_about_file, note, print_json, table

_COLUMNS = (Column("NAME", style=NAMES, folds=True), Column("OBJECT", folds=True))


def add(commands: Any) -> None:
    """Adds the command to the parser."""
    command = add_command(
        commands,
        "graph",
        run,
        "draw the object graph of a checkpoint: optimizers red, variables blue, slot variables orange",
        [
            "milepost graph ./tf_ckpts/ckpt-10 -o graph.svg --root net",
            "milepost graph ./tf_ckpts/ckpt-10 -o graph.svg --limit 300",
        ],
        {0: "the graph is drawn"},
        "Objects that hold nothing are left out, and equal blocks are drawn once, with their number, such as × 12. "
        f"At most {MOST_NODES} nodes are drawn unless another limit is given. The rest is folded: a node with a dashed outline stands for several, "
        "and says how many objects they are and how many bytes their tensors have. Of a file without an object graph, such as one of PyTorch, "
        "the names are drawn.",
    )
    add_checkpoint(command, text=FILES)
    add_output(
        command,
        "FILE.svg or FILE.dot; without it, a tree of names is printed on a terminal, and SVG into a pipe or a file",
    )
    command.add_argument(
        "--root",
        default="",
        metavar="PATH",
        help="draw only the object at this path and those below it, such as net/l1",
    )
    command.add_argument(
        "--depth",
        type=natural,
        metavar="N",
        help="draw objects that are at most N edges below the root, or below PATH, and fold the rest",
    )
    command.add_argument(
        "--limit",
        type=positive,
        metavar="N",
        help=f"draw at most N nodes, and fold the rest; by default {MOST_NODES}, or any number with --depth",
    )
    command.add_argument(
        "--everything",
        action="store_true",
        help="draw each object by itself: also those that hold nothing, and each of several equal blocks",
    )
    add_json(command)


def run(options: argparse.Namespace) -> int:
    """Does what the command says."""
    check_output(options, ".svg", ".dot")
    with open_named(options.checkpoint) as reader:
        prefix = reader.prefix
        drawing = drawing_of(reader, options.root, options.depth, options.limit, everything=options.everything)
    picture = drawing.picture
    if options.json:
        print_json(
            {
                "checkpoint": prefix,
                "object_graph": drawing.has_graph,
                "copies": picture.copies,
                "left_out": picture.left_out,
                "nodes": [asdict(node) for node in picture.nodes],
                "edges": [asdict(edge) for edge in picture.edges],
            }
        )
        return SUCCESS
    if options.output is None and is_terminal():
        table(_COLUMNS, tree_rows(picture))
        note(f"{drawing.counts}; -o FILE.svg draws it")
        return SUCCESS
    text = drawing.dot if (options.output or "").lower().endswith(".dot") else drawing.svg
    if options.output is None:
        print(text, end="")
        return SUCCESS
    write_text(options.output, text)
    line_about_file(options.output, drawing.counts)
    return SUCCESS
