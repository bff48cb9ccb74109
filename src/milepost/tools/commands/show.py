"""`milepost show`: the tensors of a checkpoint, or the values and statistics of one."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from milepost.bundle import BundleReader
from milepost.bundle.memory import Array
from milepost.conversion.chunks import chunks_of
from milepost.engine.left_out import LeftOut
from milepost.errors import MilepostError
from milepost.graph.description import metrics_text
from milepost.graph.keys import FILES as SAVED_FILES
from milepost.graph.keys import METADATA, OBJECT_GRAPH
from milepost.series.files import file_sizes
from milepost.series.metadata import read_metadata
from milepost.tools import amounts
from milepost.tools.arguments import FILES, SUCCESS, add_checkpoint, add_command, add_json, natural
from milepost.tools.files import files_text
from milepost.tools.fitting import Column
from milepost.tools.named import kind_of, open_named
from milepost.tools.names import ROOT, all_printed, nameless, printed
from milepost.tools.own_names import layer_of, own_names_of
from milepost.tools.terminal import (
    can_print,
    is_drawn,
    is_terminal,
    line,
    named,
    note,
    print_json,
    progress,
    shown,
    table_of_columns,
    terminal_width,
)
from milepost.tools.tree import Line, folded, tree_of
from milepost.tools.values.blocks import COMPLEX
from milepost.tools.values.statistics import (
    BARS,
    BARS_IN_ASCII,
    Statistics,
    bars,
    histogram_of,
    is_numeric,
    statistics_of,
)
from milepost.tools.values.tensors import Row, row_of, rows_of, selected

_MOST_LINES: Final = 200
"""Lines of a tree on a terminal. Deeper levels are folded."""
_MOST_VALUES: Final = 100
"""Values that are printed of one tensor."""
_MOST_TEXT: Final = 2000
"""Characters that are printed of one string."""
_WIDTH: Final = 80
"""Places of a line of values where the output is no terminal."""
_MOST_BINNED: Final = 256 << 20
"""Bytes of a tensor that is read a second time for its histogram without being asked for it."""
_MOST_LISTED: Final = 5
"""How many names of what is not an array are listed."""


def add(commands: Any) -> None:
    """Adds the command to the parser."""
    command = add_command(
        commands,
        "show",
        run,
        "list the tensors of a checkpoint, or show the values and statistics of one",
        [
            "milepost show ./tf_ckpts",
            "milepost show model.safetensors 'decoder.*.weight'",
            "milepost show ./tf_ckpts/ckpt-10 net/l1/kernel",
        ],
        {0: "the tensors are shown"},
        "On a terminal the tensors are a tree, otherwise one line each. A list reads the index only. Statistics read the one tensor, in "
        "pieces, so memory does not grow with it.",
    )
    add_checkpoint(command, text=FILES)
    command.add_argument(
        "key",
        metavar="KEY",
        nargs="?",
        help="a key, its short name such as net/l1/kernel, the name of an object such as net, or a pattern such as '*kernel*'; several "
        "tensors are listed, of one the values are shown",
    )
    command.add_argument("--tree", action="store_true", help="print a tree, even if the output is not a terminal")
    command.add_argument("--flat", action="store_true", help="print one line for each tensor, also on a terminal")
    command.add_argument("--depth", type=natural, metavar="N", help="fold everything that is deeper than N levels")
    command.add_argument(
        "--histogram",
        action="store_true",
        help="show the histogram of a tensor of more than 256 MiB, too, which is read twice",
    )
    add_json(command)


def run(options: argparse.Namespace) -> int:
    """Does what the command says."""
    with open_named(options.checkpoint) as reader:
        keys = None if options.key is None else selected(reader, options.key)
        if keys is not None and len(keys) == 1:
            _show_one(reader, keys[0], options)
        else:
            rows = rows_of(reader, keys)
            _show_all(reader, rows, options, is_part=keys is not None)
    return SUCCESS


def _show_all(reader: BundleReader, rows: list[Row], options: argparse.Namespace, *, is_part: bool) -> None:
    catalogue = reader.catalogue()
    objects, unread, not_arrays = catalogue.objects, catalogue.unread, [*catalogue.not_arrays]
    saved_with, saved_files = None, file_sizes(reader)
    try:
        saved_with = read_metadata(reader)
    except MilepostError as error:  # the list of tensors needs the index only
        note(f"metrics and metadata cannot be read: {error.problem}")
    if options.json:
        print_json(
            {
                "checkpoint": reader.prefix,
                "kind": kind_of(reader),
                "data_files": len(reader.shard_paths),
                "metrics": saved_with and saved_with.metrics,
                "metadata": saved_with and saved_with.metadata,
                "left_out": saved_with and saved_with.left_out,
                "nonfinite": saved_with and list(saved_with.nonfinite),
                "files": saved_files,
                "tensors": [row.to_dict() for row in rows],
                "layer_names": own_names_of(reader),
                "objects_not_read": [
                    {"key": key, "object": kind, "read_in_part": key not in unread} for key, kind in objects.items()
                ],
                "not_arrays": not_arrays,
            }
        )
        return
    total = sum(row.size for row in rows)
    files = f" in {amounts.plural(len(reader.shard_paths), 'data file')}" if not is_part else ""
    counted = f"{amounts.plural(len(rows), 'tensor')}, {amounts.size(total)}{files}"
    line(f"{shown(reader.prefix)}: {kind_of(reader)}, {counted}")
    if saved_with is not None and not is_part:
        if saved_with.metrics:
            line(f"metrics: {metrics_text(saved_with.metrics)}")
        if saved_with.nonfinite:
            line(f"not finite: NaN or infinity is in {', '.join(map(shown, saved_with.nonfinite))}")
        if saved_with.metadata is not None:
            line(f"metadata: {shown(saved_with.metadata)}")
        if saved_files:
            line(f"files: {shown(files_text(saved_files))}")
        for text in LeftOut.parsed(saved_with.left_out).summary():
            line(shown(text))
    _print_rows(reader, rows, options)
    if not is_part:
        for key, kind in objects.items():
            how = "not read" if key in unread else "read in part"
            line(f"object, {how}: {printed(key, reader)}  {shown(kind)}")
        if not_arrays:
            listed = [printed(key, reader) for key in not_arrays[:_MOST_LISTED]]
            more = f", and {len(not_arrays) - _MOST_LISTED} more" if len(not_arrays) > _MOST_LISTED else ""
            line(f"what no array can hold, such as None: {', '.join(listed)}{more}")


def _print_rows(reader: BundleReader, rows: list[Row], options: argparse.Namespace) -> None:
    has_shards = len(reader.shard_paths) > 1 and reader.origin.is_checkpoint
    columns = [Column("TYPE", folds=True), Column("BYTES", right=True)]
    columns += [Column("SHARD", right=True, spare=1)] if has_shards else []
    is_terminal = is_drawn()
    own_names = own_names_of(reader)
    if options.flat or not (options.tree or options.depth is not None or is_terminal):
        shards = [[_shard(row) for row in rows]] if has_shards else []
        keys = all_printed([row.key for row in rows], reader)
        layers = [[layer_of(row.key.split("/"), own_names) for row in rows]] if own_names else []
        columns += [Column("LAYER", folds=True)] if own_names else []
        listed = [[row.spec for row in rows], [str(row.size) for row in rows], *shards, *layers, keys]
        table_of_columns([*columns, Column("KEY", style="cyan", folds=True)], listed)
        return
    tree = tree_of(rows)
    lines = folded(tree, options.depth, _MOST_LINES if is_terminal else None, own_names)
    names = [
        nameless(reader)
        if tree_line.row is not None and tree_line.row.key == ROOT
        else f"{'  ' * tree_line.depth}{named(tree_line.name)}{f' ({tree_line.own_name})' if tree_line.own_name else ''}"
        for tree_line in lines
    ]
    specs = [_what(each) for each in lines]
    sizes = [amounts.size(each.size) if each.row is not None or each.is_folded else "" for each in lines]
    shards = [[_shard(each.row) if each.row is not None else "" for each in lines]] if has_shards else []
    table_of_columns([Column("NAME", style="cyan", folds=True), *columns], [names, specs, sizes, *shards])
    if any(each.is_folded for each in lines) and options.depth is None:
        note("deeper levels are folded; --depth N or --flat shows more")


def _what(line_of_tree: Line) -> str:
    """The cell of a line of a tree that says what is there."""
    if line_of_tree.row is not None:
        return line_of_tree.row.spec
    return f"({amounts.plural(line_of_tree.count, 'tensor')})" if line_of_tree.is_folded else ""


def _shard(row: Row) -> str:
    if row.shard is not None:
        return str(row.shard)
    return f"{row.pieces} pieces" if row.pieces > 1 else ""


def _show_one(reader: BundleReader, key: str, options: argparse.Namespace) -> None:
    row = row_of(reader, key)
    if key.startswith(SAVED_FILES) and reader.origin.is_checkpoint and not options.json:
        line(f"{shown(key.removeprefix(SAVED_FILES))}: a file of {amounts.size(row.size)}; 'milepost files' writes it")
        return
    if row.is_none or not is_numeric(row.dtype):
        _show_other(reader, row, options)
        return
    first: list[Array] = []
    with progress("read", reader.prefix, row.size):
        statistics = statistics_of(_watched(chunks_of(reader, key), first))
    counts: list[int] = []
    is_binned = statistics.finite > 1 and statistics.minimum != statistics.maximum
    if is_binned and (row.size <= _MOST_BINNED or options.histogram):
        with progress("read", reader.prefix, row.size):
            counts = histogram_of(chunks_of(reader, key), statistics.minimum or 0, statistics.maximum or 0)
    values = first[0] if first else np.empty(0)
    if options.json:
        bins = {"min": statistics.minimum, "max": statistics.maximum, "counts": counts} if counts else None
        listed = [_plain(value) for value in values]
        print_json(
            {
                "checkpoint": reader.prefix,
                **row.to_dict(),
                "statistics": statistics.to_dict(),
                "histogram": bins,
                "first_values": listed,
            }
        )
        return
    _print_head(reader, row)
    _print_statistics(statistics, is_complex=row.dtype.numpy.kind in COMPLEX)
    if counts:
        _print_histogram(statistics, counts)
    if statistics.count:
        line("values" if statistics.count <= _MOST_VALUES else f"first {len(values)} of {statistics.count:,} values")
        shape = row.shape if statistics.count <= _MOST_VALUES else (len(values),)
        width = (terminal_width() if is_terminal() else _WIDTH) - 2
        for each in np.array2string(values.reshape(shape), max_line_width=width).splitlines():
            line(f"  {each}")


def _show_other(reader: BundleReader, row: Row, options: argparse.Namespace) -> None:
    """Strings, variants, None, records, bytes, and quantised numbers, of which there are no statistics."""
    array = reader.read(row.key).reshape(-1)
    values: list[str | None]
    if row.is_none:
        values = [None]
    elif row.dtype.is_bytes:
        values = [_text(each) for each in array[:_MOST_VALUES]]
    else:
        is_quantised = len(row.dtype.numpy.names or ()) == 1
        values = [str(each[0] if is_quantised else each) for each in array[:_MOST_VALUES]]
    if options.json:
        print_json({"checkpoint": reader.prefix, **row.to_dict(), "first_values": values})
        return
    _print_head(reader, row)
    if row.key == OBJECT_GRAPH:
        line("the object graph of the checkpoint; 'milepost graph' draws it")
    elif row.key == METADATA:
        line(f"metrics and metadata: {values[0]}")
    elif not row.is_none:
        line("values" if array.size == len(values) else f"first {len(values)} of {array.size:,} values")
        for each in values:
            line(f"  {each}")


def _print_head(reader: BundleReader, row: Row) -> None:
    location = (
        f", in {row.pieces} pieces" if row.pieces > 1 else f", shard {row.shard}" if row.shard is not None else ""
    )
    line(printed(row.key, reader))
    if layer := layer_of(row.key.split("/"), own_names_of(reader)):
        line(f"layer: {layer}")
    line("None" if row.is_none else f"{row.spec}, {amounts.size(row.size)}{location}")


def _print_statistics(statistics: Statistics, *, is_complex: bool) -> None:
    if statistics.finite:
        number = amounts.number
        of = "absolute values: " if is_complex else ""
        line(
            f"{of}min {number(statistics.minimum or 0)}  max {number(statistics.maximum or 0)}  mean {number(statistics.mean)}  "
            f"std {number(statistics.deviation)}  norm {number(statistics.norm)}"
        )
    line(f"zeros {statistics.zeros:,}  NaN {statistics.nan:,}  infinite {statistics.infinite:,}")


def _print_histogram(statistics: Statistics, counts: list[int]) -> None:
    ends = amounts.number(statistics.minimum or 0), amounts.number(statistics.maximum or 0)
    letters = BARS if can_print(BARS) else BARS_IN_ASCII
    text = f"histogram  {ends[0]} |{bars(counts, letters)}| {ends[1]}"
    width = terminal_width() if is_terminal() else len(text)
    if len(text) <= width:
        print(text)
        return
    while len(counts) + 4 > width:
        counts = [sum(counts[start : start + 2]) for start in range(0, len(counts), 2)]
    print(f"histogram  {ends[0]} to {ends[1]}")
    print(f"  |{bars(counts, letters)}|")


def _watched(chunks: Iterator[Array], first: list[Array]) -> Iterator[Array]:
    """The chunks; the first values of the first one are kept."""
    for chunk in chunks:
        if not first:
            first.append(chunk[:_MOST_VALUES].copy())
        yield chunk


def _text(value: bytes) -> str:
    text = value[: 4 * _MOST_TEXT].decode(errors="backslashreplace")
    is_cut = len(value) > 4 * _MOST_TEXT or len(text) > _MOST_TEXT
    return shown(text[:_MOST_TEXT]) + (f"... ({len(value):,} bytes)" if is_cut else "")


def _plain(value: Any) -> Any:
    """A number for JSON: of small element types as a float, of complex numbers as a pair."""
    if isinstance(value, (np.bool_, np.integer)):
        return value.item()
    if isinstance(value, np.complexfloating):
        return [float(value.real), float(value.imag)]
    return float(value)
