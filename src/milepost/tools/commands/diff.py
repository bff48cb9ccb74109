"""`milepost diff`: what differs between two checkpoints."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np

from milepost.bundle import BundleReader
from milepost.collector import collection_paused
from milepost.engine.left_out import LeftOut
from milepost.errors import MilepostError
from milepost.foreign import called
from milepost.graph.keys import short_name
from milepost.series.metadata import read_metadata
from milepost.tools import amounts
from milepost.tools.arguments import DIFFERS, FILES, SUCCESS, add_checkpoint, add_command, add_json, add_rename
from milepost.tools.files import ChangedFiles
from milepost.tools.fitting import Column
from milepost.tools.named import open_named
from milepost.tools.names import ROOT, nameless, translation_of
from milepost.tools.own_names import layer_of, own_names_of
from milepost.tools.terminal import all_named, line, named, note, print_json, progress, shown, table_of_columns, warning
from milepost.tools.values.comparison import KINDS, Comparison, Kind, NotArrays, Places
from milepost.tools.values.tensors import Tensors

_MOST_LISTED: Final = 5
_SIGNS: Final[dict[Kind, str]] = {"removed": "-", "added": "+", "reshaped": "!", "retyped": "!", "changed": "~"}


def add(commands: Any) -> None:
    """Adds the command to the parser."""
    command = add_command(
        commands,
        "diff",
        run,
        "compare two checkpoints: which tensors and files were added, removed, reshaped or changed, and by how much",
        [
            "milepost diff ./tf_ckpts/ckpt-9 ./tf_ckpts/ckpt-10",
            "milepost diff --names-only model.safetensors ./tf_ckpts",
            "milepost diff pretrained.safetensors ./tf_ckpts --rename transformer=model/backbone",
        ],
        {0: "they are the same", 1: "they differ, or --rename names nothing"},
        "All values are read that both have in one shape, which takes as long as reading both checkpoints; --names-only reads none. An element "
        "that is NaN in both is equal. Of values that differ, 'max' is the largest absolute difference of two elements, and 'relative' the norm (the square root of the sum of "
        "squares) of the difference divided by the norm of the values of A.",
    )
    add_checkpoint(command, "a", FILES)
    add_checkpoint(command, "b", "as A")
    add_rename(
        command,
        "compare what A has under OLD, with everything below it, with what B has under NEW, as restore(rename={OLD: NEW}) names it",
    )
    command.add_argument(
        "--names-only", action="store_true", help="compare names, shapes and element types only; no values are read"
    )
    command.add_argument(
        "--trust-checksums",
        action="store_true",
        help="take tensors for equal, without reading them, if their types, sizes and CRC-32C are; this is fast, but no proof",
    )
    add_json(command)


@collection_paused()
def run(options: argparse.Namespace) -> int:
    """Does what the command says."""
    with open_named(options.a) as first, open_named(options.b) as second:
        unused: list[str] = []
        translation = translation_of(first.keys(), options.rename, tell=unused.append, escaped=True)
        comparison = Comparison(first, second, translation)
        for each in unused:
            warning(each)
        if not options.names_only:
            pairs = comparison.to_read(trust_checksums=options.trust_checksums)
            with progress("compare", second.prefix, comparison.sizes(pairs)):
                comparison.read(pairs)
        by_kind = comparison.by_kind()
        counts = {kind: len(by_kind[kind]) for kind in KINDS}
        same = len(comparison.pairs[0]) - sum(counts[kind] for kind in ("reshaped", "retyped", "changed"))
        others, files = comparison.not_arrays, ChangedFiles(first, second, values=not options.names_only)
        if options.json:
            print_json(
                {
                    "a": first.prefix,
                    "b": second.prefix,
                    "values_compared": not options.names_only,
                    "counts": {**counts, "unchanged": same},
                    "unused_names": list(unused),
                    "changes": [change.to_dict() for change in comparison.changes()],
                    "not_arrays": others.to_dict(),
                    "files": files.to_dict(),
                }
            )
        else:
            _print_changes(comparison, by_kind)
            compared = "of the same name, shape and type" if options.names_only else "the same"
            parts = [f"{counts[kind]:,} {kind}" for kind in KINDS if counts[kind]]
            line(", ".join([*parts, f"{same:,} {compared}"]))
            _print_others(others)
            for change, names in files.to_dict().items():
                if names:
                    line(f"files {change}: {_listed([*map(shown, names)])}")
        _note_objects(comparison.readers)
        _note_left_out(comparison.readers)
    return DIFFERS if any(counts.values()) or others.differ or files or unused else SUCCESS


def _print_changes(comparison: Comparison, by_kind: Mapping[Kind, Places]) -> None:
    signs: list[str] = []
    specs: list[str] = []
    differences: list[str] = []
    keys: list[str] = []
    first, second = comparison.sides
    for kind, positions in by_kind.items():
        signs += [_SIGNS[kind]] * len(positions)
        if kind in ("removed", "added"):
            side = first if kind == "removed" else second
            specs += map(side.texts.__getitem__, side.spec[positions].tolist())
            differences += [""] * len(positions)
            keys += map(side.keys.__getitem__, positions.tolist())
            continue
        old, new = (each[positions] for each in comparison.pairs)
        specs += _texts_of_pairs(first, second, first.spec[old], second.spec[new])
        pair_differences = comparison.differences.take(positions)
        fields = (pair_differences.count, pair_differences.unequal, pair_differences.largest, pair_differences.relative)
        differences += map(amounts.difference, *(field.tolist() for field in fields))
        keys += map(first.keys.__getitem__, old.tolist())
    if not keys:
        return
    columns = [(Column(""), signs), (Column("TYPE", folds=True), specs)]
    if any(differences):
        columns.append((Column("DIFFERENCE", folds=True), differences))
    names = all_named(map(short_name, keys))
    for position in (position for position, key in enumerate(keys) if key == ROOT):
        names[position] = nameless(comparison.readers[0])
    own_names = {path: name for reader in comparison.readers for path, name in own_names_of(reader).items()}
    if own_names:
        columns.append((Column("LAYER", folds=True), [layer_of(key.split("/"), own_names) for key in keys]))
    columns.append((Column("KEY", style="cyan", folds=True), names))
    table_of_columns([column for column, _ in columns], [cells for _, cells in columns])


def _print_others(others: NotArrays) -> None:
    changed = {name: f"{old} -> {new}" for name, (old, new) in others.changed.items()}
    for label, entries in (("only in A", others.removed), ("only in B", others.added), ("changed", changed)):
        if entries:
            line(
                f"what no array can hold, {label}: {_listed([f'{_called(key)} = {what}' for key, what in entries.items()])}"
            )


def _note_objects(readers: Sequence[BundleReader]) -> None:
    catalogues = [each.catalogue() for each in readers]
    unread = {key for each in catalogues for key in each.unread}
    objects = {key: kind for each in catalogues for key, kind in each.objects.items()}
    for how, keys in (
        ("not compared, since milepost does not read it", [key for key in objects if key in unread]),
        ("compared in part, since milepost does not read all of it", [key for key in objects if key not in unread]),
    ):
        if keys:
            note(f"{how}: {_listed([f'{_called(key)} ({shown(objects[key])})' for key in keys])}")


def _note_left_out(readers: Sequence[BundleReader]) -> None:
    for reader in readers:
        with suppress(MilepostError):  # metadata that cannot be read has no part in the comparison
            for text in LeftOut.parsed(read_metadata(reader).left_out).summary():
                note(f"{shown(reader.prefix)}: {shown(text)}")


def _listed(texts: Sequence[str]) -> str:
    more = f", and {len(texts) - _MOST_LISTED:,} more" if len(texts) > _MOST_LISTED else ""
    return f"{', '.join(texts[:_MOST_LISTED])}{more}"


def _called(key: str) -> str:
    return named(called(key))


def _texts_of_pairs(first: Tensors, second: Tensors, old: Places, new: Places) -> list[str]:
    """The cells of the types of pairs. There are few types and many pairs."""
    kinds, kind = np.unique(old * len(second.texts) + new, return_inverse=True)
    texts = []
    for both in kinds.tolist():
        before, after = first.texts[both // len(second.texts)], second.texts[both % len(second.texts)]
        texts.append(before if before == after else f"{before} -> {after}")
    return [texts[number] for number in kind.tolist()]
