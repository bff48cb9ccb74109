"""`milepost report`: one page about one or several checkpoints."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from typing import Any

from milepost.bundle import BundleReader
from milepost.collector import collection_paused
from milepost.engine.left_out import NOTHING, LeftOut
from milepost.errors import MilepostError, UnsupportedError, without_remedy
from milepost.graph.saved.object_graph import ObjectGraph
from milepost.restoring.load import read_object_graph
from milepost.series.files import file_sizes
from milepost.series.metadata import read_metadata
from milepost.series.series import split_number
from milepost.storage.output_file import write_text
from milepost.tools import amounts
from milepost.tools.arguments import DIFFERS, FILES, SUCCESS, add_command, add_json, add_output, check_output
from milepost.tools.drawing.picture import picture_of
from milepost.tools.drawing.svg import to_svg
from milepost.tools.inventory import inventory_of
from milepost.tools.named import kind_of, open_named
from milepost.tools.names import ROOT
from milepost.tools.own_names import own_names_of
from milepost.tools.paths import typed_path
from milepost.tools.report.contents import MOST_HISTOGRAMS, Described, Detail, changes_of, contents_of, pairs_for_page
from milepost.tools.report.measurement import Pair
from milepost.tools.report.outline import outline_of
from milepost.tools.report.page import page_of
from milepost.tools.report.subject import Subject
from milepost.tools.report.survey import measure, pairs_of, sizes_read, subjects_of
from milepost.tools.terminal import line_about_file, note, print_json, progress, shown
from milepost.tools.values.statistics import is_numeric
from milepost.tools.values.tensors import Row, Tensors


def add(commands: Any) -> None:
    """Adds the command to the parser."""
    command = add_command(
        commands,
        "report",
        run,
        "write one page about a checkpoint, or several, for a browser: objects, sizes, statistics, and how the tensors moved",
        [
            "milepost report ./tf_ckpts -o report.html",
            "milepost report ./tf_ckpts --all -o training.html",
            "milepost report before.safetensors after.safetensors -o change.html",
        ],
        {
            0: "the page is written",
            1: "the page is written, and it names tensors whose bytes are damaged, or a checkpoint is left out",
        },
        "The page is one file, needs no network, and sends nothing. All values are read once, in pieces; --names-only reads none. Of several "
        "checkpoints the last one is shown as a whole, and each is compared with the one before it, and the last with the first. Those of one "
        "series are put in the order of their numbers, others stay in the order given.",
    )
    command.add_argument("checkpoints", metavar="CHECKPOINT", nargs="+", type=typed_path, help=FILES)
    add_output(command, "the page to write; by default the output, which must not be a terminal")
    command.add_argument(
        "--all",
        action="store_true",
        help="take every checkpoint of a directory of checkpoints, not only the latest; one that cannot be opened is left out, with a message, "
        "and so is a file of another library beside the checkpoints of a run",
    )
    command.add_argument(
        "--names-only", action="store_true", help="show names, shapes, element types and sizes only; no values are read"
    )
    add_json(command)


@collection_paused()
def run(options: argparse.Namespace) -> int:
    """Does what the command says."""
    if options.output is None and not options.json and sys.stdout.isatty():
        raise UnsupportedError(
            "the page is HTML for a browser, and would be printed on a terminal",
            expected="a file, or an output that is no terminal",
            remedy="pass -o FILE, or redirect the output to a file or a program",
        )
    check_output(options, ".html", ".htm")
    with contextlib.ExitStack() as stack:
        readers, left_out = _opened(options, stack)
        readers.sort(key=_order(readers))
        tensors = [Tensors(reader) for reader in readers]
        rows = [list(each.rows()) for each in tensors]
        subjects, pairs = subjects_of(readers, rows), pairs_of(len(readers))
        if not options.names_only:
            last = ((each.name, each.rows[-1]) for each in subjects)
            numeric = [(name, row.size) for name, row in last if row is not None and is_numeric(row.dtype)]
            numeric.sort(key=lambda pair: -pair[1])
            binned = {name for name, _ in numeric[:MOST_HISTOGRAMS]}
            with progress("read", readers[-1].prefix, sum(sizes_read(subjects))):
                measure(subjects, readers, tensors, pairs, binned)
        checkpoints = [_described(*each) for each in zip(readers, rows, strict=True)]
        graph = _graph(readers[-1])
    if options.output is not None or not options.json:
        _write(options, checkpoints, graph, subjects, pairs)
    if options.json:
        print_json(_json(checkpoints, subjects, pairs, values=not options.names_only))
    damaged = [each for each in subjects if each.problems]
    for subject in damaged:
        for position, problem in subject.problems.items():
            note(f"damaged: {shown(checkpoints[position].path)}: {shown(subject.name)}: {problem}")
    return DIFFERS if damaged or left_out else SUCCESS


def _opened(options: argparse.Namespace, stack: contextlib.ExitStack) -> tuple[list[BundleReader], list[str]]:
    """The open checkpoints, and the paths of those that are left out because they cannot be opened."""
    readers: list[BundleReader] = []
    left_out: dict[str, MilepostError] = {}
    for path in _paths(options):
        try:
            readers.append(stack.enter_context(open_named(path)))
        except MilepostError as error:
            if not options.all:
                raise
            left_out[path] = error
    if left_out and not readers:
        raise next(iter(left_out.values()))
    for path, problem in left_out.items():
        note(f"left out: {shown(path)}: {without_remedy(problem)}")
    return readers, [*left_out]


def _paths(options: argparse.Namespace) -> list[str]:
    if not options.all:
        return list(options.checkpoints)
    return [path for each in options.checkpoints for path in _of_run(each)]


def _of_run(path: str) -> list[str]:
    """The checkpoints at a path. Of a directory with a state file, files of other libraries are left out, with a message."""
    places = inventory_of(path).places
    is_run = any(each.is_listed for each in places)
    paths = [each.path for each in places if not is_run or each.is_listed or each.is_left_out]
    for each in places:
        if each.path not in paths:
            note(f"left out: {shown(each.path)}: it lies beside the checkpoints of the run")
    return paths


def _order(readers: Sequence[BundleReader]) -> Any:
    """By number, if all checkpoints are of one series; otherwise as they are."""
    split = [split_number(reader.prefix) for reader in readers]
    series = {None if each is None else each[0] for each in split}
    if len(series) == 1 and None not in series:
        return lambda reader: (split_number(reader.prefix) or ("", 0))[1]
    return lambda reader: 0


def _described(reader: BundleReader, rows: list[Row]) -> Described:
    saved_with, left_out = None, NOTHING
    with contextlib.suppress(MilepostError):  # the survey has noted it
        saved_with = read_metadata(reader)
        left_out = LeftOut.parsed(saved_with.left_out)
    return Described(
        reader.prefix,
        kind_of(reader),
        len(reader.shard_paths),
        rows,
        saved_with and saved_with.metrics,
        saved_with and saved_with.metadata,
        file_sizes(reader),
        left_out,
        _objects_of(reader),
        own_names_of(reader),
    )


def _objects_of(reader: BundleReader) -> dict[str, str]:
    """The objects that are not read, or only in part, with their classes."""
    catalogue = reader.catalogue()
    return {
        key: kind if key in catalogue.unread else f"{kind}, read in part" for key, kind in catalogue.objects.items()
    }


def _graph(reader: BundleReader) -> ObjectGraph | None:
    try:
        return read_object_graph(reader)
    except MilepostError as error:
        note(f"warning: the object graph cannot be read, so the tree is made of names: {without_remedy(error)}")
        return None


def _write(
    options: argparse.Namespace,
    checkpoints: Sequence[Described],
    graph: ObjectGraph | None,
    subjects: Sequence[Subject],
    pairs: Sequence[Pair],
) -> None:
    last = checkpoints[-1]
    outline = outline_of(last.rows, graph, last.own_names)
    values = not options.names_only
    compared = pairs_for_page(subjects, pairs, values=values)

    def contents(detail: Detail) -> dict[str, Any]:
        return contents_of(checkpoints, outline, subjects, pairs, compared, detail, values=values)

    picture = ""
    if graph is not None:
        specs, sizes = {row.key: row.spec for row in last.rows}, {row.key: row.size for row in last.rows}
        picture = to_svg(picture_of(graph, specs, sizes=sizes, everything=False), f"Object graph of {shown(last.path)}")
    counted = f"{amounts.plural(len(last.rows), 'tensor')}, {amounts.size(sum(row.size for row in last.rows))}"
    more = f", compared with {amounts.plural(len(checkpoints) - 1, 'other checkpoint')}" if len(checkpoints) > 1 else ""
    summary = f"{shown(last.path)}: {last.kind}, {counted}{more}"
    page = page_of(contents, title=f"{shown(last.path)} - milepost report", summary=summary, picture=picture)
    if options.output is None:
        # as it is, since the page's policy names the bytes of its script
        sys.stdout.buffer.write(page.encode())
        return
    write_text(options.output, page)
    line_about_file(options.output, f"{counted}{more}; {amounts.size(len(page))}")


def _json(
    checkpoints: Sequence[Described], subjects: Sequence[Subject], pairs: Sequence[Pair], *, values: bool
) -> dict[str, Any]:
    tensors = []
    for subject in subjects:
        rows = [None if row is None else row.to_dict() for row in subject.rows]
        statistics = [None if each is None else each.to_dict() for each in subject.statistics]
        problems = [subject.problems.get(position) for position in range(len(checkpoints))]
        tensors.append({"name": subject.name, "tensors": rows, "statistics": statistics or None, "problems": problems})
    changes = []
    for pair in pairs:
        listed = [
            {
                "change": kind,
                "name": subject.name,
                **(found.to_dict() if (found := subject.differences.get(pair)) else {}),
            }
            for kind, subject in changes_of(subjects, pair)
        ]
        changes.append({"a": checkpoints[pair[0]].path, "b": checkpoints[pair[1]].path, "changes": listed})
    return {
        "checkpoints": [
            {
                "path": checkpoint.path,
                "kind": checkpoint.kind,
                "data_files": checkpoint.files,
                "tensors": len(checkpoint.rows),
                "bytes": sum(row.size for row in checkpoint.rows),
                "metrics": checkpoint.metrics,
                "metadata": checkpoint.metadata,
                "files": checkpoint.saved_files,
                "left_out": checkpoint.left_out.plain() if checkpoint.left_out.values else None,
                "objects_not_read": [{"key": key or ROOT, "object": kind} for key, kind in checkpoint.unread.items()],
            }
            for checkpoint in checkpoints
        ],
        "values_read": values,
        "tensors": tensors,
        "comparisons": changes,
    }
