"""What the page holds, as plain data: columns of numbers, as JSON has them.

Of very many tensors the page cannot hold everything in three megabytes. `DETAILS` says what is left out first; the page says what it lacks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np

from milepost.engine.left_out import NOTHING, LeftOut
from milepost.graph.description import metrics_text, shortened
from milepost.graph.keys import is_value
from milepost.tools.files import files_text
from milepost.tools.report.measurement import Pair
from milepost.tools.report.outline import Outline
from milepost.tools.report.subject import Subject
from milepost.tools.terminal import shown
from milepost.tools.values.comparison import KINDS, Kind
from milepost.tools.values.histogram import Bins
from milepost.tools.values.statistics import Statistics, TensorDifference
from milepost.tools.values.tensors import Row

_HEIGHT: Final = 90
"""The largest height of a bar of a histogram. Each height is one character."""
_FIRST: Final = 35
"""The character of a bar without height. Of the characters of the other heights only the backslash needs an escape in JSON."""
_BACKSLASH: Final = 92
_MOST_BARS: Final = 48
_MOST_NAMES: Final = 2000
"""Tensors that are listed, for all pairs together, of those that were added, removed or reshaped between two checkpoints."""
_LONGEST_NAME: Final = 300
"""Characters of one name. The middle of a longer one is left out."""
_MOST_OBJECTS: Final = 200
_MOST_TEXT: Final = 2000
_LEAST_USUAL: Final = 1e-14
_MOST_USUAL: Final = 1e14
"""Between these, numbers are rounded many at a time."""
_COLUMNS: Final = ("minimum", "maximum", "mean", "deviation", "norm")


class Detail(NamedTuple):
    """How much of everything the page has.

    Attributes:
        digits: Of each number.
        histograms: Of the largest tensors.
        moved: The tensors whose movement is listed: those that moved most.
        tensors: The tensors that are listed: the largest.
    """

    digits: int
    histograms: int
    moved: int
    tensors: int


DETAILS: Final = (
    Detail(6, 4_000, 20_000, 150_000),
    Detail(4, 2_000, 10_000, 150_000),
    Detail(3, 1_000, 4_000, 110_000),
    Detail(3, 300, 1_000, 40_000),
    Detail(3, 100, 300, 10_000),
    Detail(3, 50, 100, 1_000),
)
MOST_HISTOGRAMS: Final = DETAILS[0].histograms


@dataclass(slots=True)
class Described:
    """A checkpoint as the page names it.

    Attributes:
        path: Its path.
        kind: What it is.
        files: The number of its data files.
        rows: Its tensors.
        metrics: The metrics that were saved with it.
        metadata: The metadata that was saved with it.
        saved_files: The sizes of the files that were saved with it, by name.
        left_out: What its save has left out on purpose.
        unread: Keys and classes of objects in a file of another library that are not read, or only in part.
        own_names: What layers are called themselves in a file of Keras, by path.
    """

    path: str
    kind: str
    files: int
    rows: list[Row]
    metrics: Any = None
    metadata: Any = None
    saved_files: Mapping[str, int] = field(default_factory=dict)
    left_out: LeftOut = NOTHING
    unread: dict[str, str] = field(default_factory=dict)
    own_names: dict[str, str] = field(default_factory=dict)


def contents_of(
    checkpoints: Sequence[Described],
    outline: Outline,
    subjects: Sequence[Subject],
    pairs: Sequence[Pair],
    compared: Sequence[dict[str, Any]],
    detail: Detail,
    *,
    values: bool,
) -> dict[str, Any]:
    """The data of the page.

    Args:
        checkpoints: The checkpoints. The last one is shown as a whole.
        outline: The tree of the last one.
        subjects: The tensors of all.
        pairs: Which of them are compared.
        compared: What `pairs_for_page` says of these pairs.
        detail: How much of everything.
        values: Whether values were read.
    """
    rows = checkpoints[-1].rows
    by_key = {subject.rows[-1].key: subject for subject in subjects if subject.rows[-1] is not None}
    listed = _largest(range(len(rows)), lambda position: rows[position].size, detail.tensors)
    number = {position: new for new, position in enumerate(listed)}
    tensors = [rows[position] for position in listed]
    tensor_subjects = [by_key.get(row.key) for row in tensors]
    last = [
        subject.statistics[-1] if subject is not None and subject.statistics else None for subject in tensor_subjects
    ]
    specs = {spec: position for position, spec in enumerate(dict.fromkeys((row.dtype, row.shape) for row in tensors))}
    return {
        "checkpoints": [_checkpoint(each) for each in checkpoints],
        "values": values,
        "outline": _outline(outline, number),
        "specs": [[dtype.name, list(shape)] for dtype, shape in specs],
        "spec": [specs[row.dtype, row.shape] for row in tensors],
        "bytes": [row.size for row in tensors],
        "statistics": _statistics(last, detail.digits),
        "histograms": _histograms(tensors, last, detail),
        "problems": _problems(tensor_subjects, len(checkpoints) - 1),
        "movement": _movement(tensor_subjects, len(checkpoints), pairs, detail),
        "pairs": compared,
        "left_out": {
            "tensors": len(rows) - len(tensors),
            "bytes": sum(row.size for row in rows) - sum(row.size for row in tensors),
        },
    }


def _largest(positions: Iterable[int], size: Any, most: int) -> list[int]:
    """The positions with the largest sizes, in their own order."""
    listed = list(positions)
    if len(listed) <= most:
        return listed
    return sorted(sorted(listed, key=size, reverse=True)[:most])


def _named(name: str) -> str:
    return shortened(name, _LONGEST_NAME)


def _checkpoint(checkpoint: Described) -> dict[str, Any]:
    dtypes: Counter[str] = Counter()
    records = 0
    for row in checkpoint.rows:
        if is_value(row.key):
            dtypes[row.dtype.name] += row.size
        else:
            records += row.size
    unread = [[_named(key), _named(kind)] for key, kind in list(checkpoint.unread.items())[:_MOST_OBJECTS]]
    return {
        "path": _named(checkpoint.path),
        "kind": checkpoint.kind,
        "files": checkpoint.files,
        "tensors": len(checkpoint.rows),
        "bytes": sum(row.size for row in checkpoint.rows),
        "types": dtypes,
        "records": records,
        "metrics": None if checkpoint.metrics is None else _text(metrics_text(checkpoint.metrics)),
        "metadata": None if checkpoint.metadata is None else _text(checkpoint.metadata),
        "saved_files": _text(files_text(checkpoint.saved_files)) if checkpoint.saved_files else None,
        "left_out": _text("; ".join(checkpoint.left_out.summary())) if checkpoint.left_out.values else None,
        "unread": unread,
        "unread_count": len(checkpoint.unread),
    }


def _text(value: Any) -> str:
    text = shown(value)
    return text if len(text) <= _MOST_TEXT else text[:_MOST_TEXT] + "..."


def _outline(outline: Outline, number: dict[int, int]) -> dict[str, Any]:
    kept = outline.rows
    if any(row.tensor is not None and row.tensor not in number for row in kept):
        kept = _above(outline, number)
    # many names occur many times
    names = {name: _named(name) for name in {row.name for row in kept}}
    roles = {"object": "o", "optimizer": "p", "variable": "v", "slot": "s", "record": "r"}
    return {
        "depth": [row.depth for row in kept],
        "name": [*map(names.__getitem__, (row.name for row in kept))],
        "role": "".join(roles[row.role] for row in kept),
        "tensor": [-1 if row.tensor is None else number.get(row.tensor, -1) for row in kept],
        "keys": {position: _named(row.key) for position, row in enumerate(kept) if row.key is not None},
        "others": {position: [_named(name) for name in row.others] for position, row in enumerate(kept) if row.others},
        "own": {position: row.own_name for position, row in enumerate(kept) if row.own_name},
        "separator": outline.separator,
        "suffix": outline.suffix,
        "objects": outline.objects,
    }


def _above(outline: Outline, number: dict[int, int]) -> list[Any]:
    """The rows of tensors that are listed, and those above them."""
    kept, needed = [], 0
    for row in reversed(outline.rows):
        if row.tensor in number or row.depth < needed:
            kept.append(row)
            needed = row.depth
    return kept[::-1]


def _statistics(last: Sequence[Statistics | None], digits: int) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    known = [position for position, each in enumerate(last) if each is not None and each.finite]
    measured = [each for each in last if each is not None and each.finite]
    for name in _COLUMNS:
        column: list[float | int | None] = [None] * len(last)
        for position, value in zip(known, all_rounded(list(map(attrgetter(name), measured)), digits), strict=True):
            column[position] = value
        columns[name] = column
    for name in ("zeros", "nan", "infinite"):
        columns[name] = {
            position: getattr(statistics, name)
            for position, statistics in enumerate(last)
            if statistics is not None and getattr(statistics, name)
        }
    return columns


def rounded(value: float, digits: int) -> float | int | None:
    """A number with this many digits, written as shortly as JSON can; None if it is not finite.

    Example:
        >>> rounded(1 / 3, 4), rounded(1234567.0, 3), rounded(2.0, 3)
        (0.3333, 1230000, 2)
    """
    if not math.isfinite(value):
        return None
    short = float(f"{value:.{digits}g}")
    if math.isinf(short):  # rounded up from the largest number that there is
        return value
    return int(short) if short == int(short) and abs(short) < 10**15 else short


def all_rounded(values: Sequence[float], digits: int) -> list[float | int | None]:
    """What `rounded` makes of each of many numbers.

    Example:
        >>> all_rounded([1 / 3, 1234567.0, float("nan"), 2.0, 1e300], 3)
        [0.333, 1230000, None, 2, 1e+300]
    """
    numbers = np.array(values, np.float64)
    sizes = np.abs(numbers)
    is_usual = (sizes > _LEAST_USUAL) & (sizes < _MOST_USUAL)
    numbers = np.where(is_usual, numbers, 1.0)
    exponents = np.floor(np.log10(np.abs(numbers))).astype(np.int64)
    # whole numbers of so few digits, and powers of ten up to 22, are exact; so each quotient is the number nearest to the short one
    decimals = digits - 1 - exponents
    shifts = 10.0 ** np.abs(decimals)
    whole = np.rint(np.where(decimals >= 0, numbers * shifts, numbers / shifts))
    short = np.where(decimals >= 0, whole / shifts, whole * shifts)
    rounded_values: list[float | int | None] = [int(each) if each.is_integer() else each for each in short.tolist()]
    for position in np.flatnonzero(~is_usual).tolist():
        rounded_values[position] = rounded(float(values[position]), digits)
    return rounded_values


def _histograms(tensors: Sequence[Row], last: Sequence[Statistics | None], detail: Detail) -> dict[int, list[Any]]:
    counted = [position for position, each in enumerate(last) if each is not None and each.histogram is not None]
    histograms = {}
    for position in _largest(counted, lambda position: tensors[position].size, detail.histograms):
        statistics = last[position]
        histogram = statistics.histogram if statistics is not None else None
        bins = None if histogram is None else histogram.bins(_MOST_BARS)
        if histogram is not None and bins is not None and len(bins.counts) > 1:
            histograms[position] = [bins.start, bins.width, _bars(bins), histogram.step]
    return histograms


def _bars(bins: Bins) -> str:
    """The heights of the bars, one character each. Whatever has a number has at least the least height."""
    most = max(bins.counts) or 1
    heights = (_FIRST + math.ceil(count * _HEIGHT / most) for count in bins.counts)
    return "".join(chr(height + (height >= _BACKSLASH)) for height in heights)


def _problems(tensor_subjects: Sequence[Subject | None], last: int) -> dict[int, str]:
    return {
        position: _in_lines(subject.problems[last])
        for position, subject in enumerate(tensor_subjects)
        if subject is not None and last in subject.problems
    }


def _in_lines(problem: str) -> str:
    """The message of an error, without the key of the tensor that it is shown with."""
    lines = map(str.strip, problem.splitlines())
    return "\n".join(shown(line) for line in lines if not line.startswith("key: "))


def _movement(
    tensor_subjects: Sequence[Subject | None], count: int, pairs: Sequence[Pair], detail: Detail
) -> dict[str, Any]:
    """Norms in each checkpoint and relative differences of each pair, of the tensors that moved most."""
    moved = [
        position for position, subject in enumerate(tensor_subjects) if subject is not None and subject.differences
    ]
    weight = max(1, (count + len(pairs)) // 2)
    listed = _largest(moved, lambda position: _most_moved(tensor_subjects[position]), max(100, detail.moved // weight))
    subjects = [subject for position in listed if (subject := tensor_subjects[position]) is not None]
    digits = min(4, detail.digits)
    norms = [[_norm(subject.statistics[checkpoint], digits) for subject in subjects] for checkpoint in range(count)]
    differences = [[subject.differences.get(pair) for subject in subjects] for pair in pairs]
    return {
        "tensor": listed,
        "norms": norms,
        "relative": [
            [_relative(subject, each, digits) for subject, each in zip(subjects, column, strict=True)]
            for column in differences
        ],
        "largest": [[_finite_largest(each, digits) for each in column] for column in differences],
        "unequal": [[None if each is None else each.unequal for each in column] for column in differences],
        "left_out": len(moved) - len(listed),
    }


def _most_moved(subject: Subject | None) -> float:
    differences = [] if subject is None else list(subject.differences.values())
    return max((each.relative if each.unequal else -1.0 for each in differences), default=-1.0)


def _norm(statistics: Statistics | None, digits: int) -> float | int | None:
    return None if statistics is None or not statistics.finite else rounded(statistics.norm, digits)


def _relative(subject: Subject, difference: TensorDifference | None, digits: int) -> float | int | str | None:
    if difference is None:
        return None
    if not any(subject.statistics):
        return "text"
    return (
        "infinite"
        if math.isinf(difference.relative) or math.isnan(difference.relative)
        else rounded(difference.relative, digits)
    )


def _finite_largest(difference: TensorDifference | None, digits: int) -> float | int | str | None:
    if difference is None:
        return None
    return "infinite" if not math.isfinite(difference.largest) else rounded(difference.largest, digits)


def changes_of(subjects: Sequence[Subject], pair: Pair) -> list[tuple[Kind, Subject]]:
    """What differs between two checkpoints, as `milepost diff` names it.

    Args:
        subjects: The tensors.
        pair: The positions of the checkpoints.
    """
    subjects_by_kind: dict[Kind, list[Subject]] = {kind: [] for kind in KINDS}
    for subject in subjects:
        old, new = subject.rows[pair[0]], subject.rows[pair[1]]
        if old is None and new is None:
            continue
        if new is None:
            subjects_by_kind["removed"].append(subject)
        elif old is None:
            subjects_by_kind["added"].append(subject)
        elif old.shape != new.shape:
            subjects_by_kind["reshaped"].append(subject)
        elif old.dtype is not new.dtype:
            subjects_by_kind["retyped"].append(subject)
        elif (difference := subject.differences.get(pair)) is not None and difference.unequal:
            subjects_by_kind["changed"].append(subject)
    return [(kind, subject) for kind in KINDS for subject in sorted(subjects_by_kind[kind], key=attrgetter("name"))]


def pairs_for_page(subjects: Sequence[Subject], pairs: Sequence[Pair], *, values: bool) -> list[dict[str, Any]]:
    """What differs in each pair, which the page says in every detail.

    Args:
        subjects: The tensors.
        pairs: Which checkpoints are compared.
        values: Whether values were read.
    """
    return [_pair(subjects, pair, _MOST_NAMES // len(pairs), values=values) for pair in pairs]


def _pair(subjects: Sequence[Subject], pair: Pair, most: int, *, values: bool) -> dict[str, Any]:
    changes = changes_of(subjects, pair)
    counts = Counter(kind for kind, _ in changes)
    both = sum(subject.rows[pair[0]] is not None and subject.rows[pair[1]] is not None for subject in subjects)
    structure = [(kind, subject) for kind, subject in changes if kind != "changed"]
    listed = []
    for kind, subject in structure[:most]:
        old, new = subject.rows[pair[0]], subject.rows[pair[1]]
        specs = ["" if row is None else row.spec for row in (old, new)]
        size = next((row.size for row in (new, old) if row is not None), 0)
        listed.append([kind, _named(subject.name), *specs, size])
    unchanged = both - counts["changed"] - counts["reshaped"] - counts["retyped"]
    return {
        "old": pair[0],
        "new": pair[1],
        "counts": {kind: counts[kind] for kind in KINDS} | {"unchanged": unchanged},
        "structure": listed,
        "structure_left_out": len(structure) - len(listed),
        "values": values,
    }
