r"""What a command prints: plain lines, tables, JSON and progress.

Every text that comes from a file, a path or an argument passes `shown` before it is printed, so no name sends a control character or a
line end to a terminal. JSON escapes all characters outside of ASCII.

On a terminal, with rich installed, tables and progress are rich's, which observes the width of the terminal. With ``NO_COLOR`` a table is plain text
of the same width. Otherwise, and
if a table has too many rows or is too wide, it is plain text: one line for each row, with columns of equal width.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal, NamedTuple

from milepost.engine.progress import reported
from milepost.errors import printable
from milepost.tools import amounts

_MOST_DRAWN: Final = 500
"""Rows of a table of rich. It takes seconds for thousands, so longer tables are plain text."""
_LEAST_FOLDED: Final = 8
"""Characters of a line of a cell that is divided."""
Operation = Literal["compare", "convert", "read", "verify"]


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        title: Its heading.
        right: Whether its cells are aligned to the right.
        style: The style of rich for its cells.
        folds: Whether long cells are divided into several lines where the terminal is too narrow.
        spare: How soon the column is left out, with a message, where the terminal is still too narrow: the one with the largest number
            first, and one with 0 never.
    """

    title: str
    right: bool = False
    style: str = ""
    folds: bool = False
    spare: int = 0


def shown(text: object) -> str:
    r"""Text of a file, a path or an argument, as it can be printed: on one line, without invisible characters.

    Example:
        >>> shown("a\x1b[2J\nb\udcff")
        'a\\x1b[2J\\nb\\udcff'
    """
    return text if isinstance(text, str) and text.isprintable() else printable(str(text), one_line=True)


def named(name: str) -> str:
    """A name as it can be printed. One without characters, as a dict may have, is printed as two quotation marks.

    Example:
        >>> named("a"), named("")
        ('a', "''")
    """
    return shown(name) or "''"


def metrics_text(metrics: Any, prefix: str = "") -> str:
    """The metrics that were saved with a checkpoint, on one line.

    Example:
        >>> metrics_text({"loss": 0.25, "of": {"classes": 10}})
        'loss=0.25 of/classes=10'
    """
    parts = []
    for name, value in metrics.items():
        if isinstance(value, dict):
            parts.append(metrics_text(value, f"{prefix}{shown(name)}/"))
        else:
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            parts.append(f"{prefix}{shown(name)}={amounts.number(value) if is_number else shown(value)}")
    return " ".join(parts)


def line(text: str = "") -> None:
    """Prints a line."""
    print(text)


def note(text: str) -> None:
    """Prints a line that is no part of the result, so that a program that reads the output does not see it."""
    print(text, file=sys.stderr)


def is_drawn(stream: Any = None) -> bool:
    """Whether tables are drawn: the output is a terminal that can do it, and rich is installed."""
    stream = sys.stdout if stream is None else stream
    is_terminal = stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
    return is_terminal and importlib.util.find_spec("rich") is not None


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table. The cells are plain text that `shown` has passed.

    Args:
        columns: The columns. Put names last: in plain text they may have any length.
        rows: The cells of each row.
    """
    cells: Sequence[Sequence[str]] = [*zip(*rows, strict=True)] or [()] * len(columns)
    widths = [
        max(len(column.title), max(map(len, below), default=0)) for column, below in zip(columns, cells, strict=True)
    ]
    if is_drawn() and len(rows) <= _MOST_DRAWN:
        kept = _that_fit(columns, widths)
        if kept:
            _drawn([columns[place] for place in kept], [[row[place] for place in kept] for row in rows])
            left_out = [column.title for place, column in enumerate(columns) if place not in kept]
            if left_out:
                note(f"left out, since the terminal is narrow: {', '.join(left_out)}")
            return
    forms = [f"{{:{'>' if column.right else '<'}{width}}}" for column, width in zip(columns, widths, strict=True)]
    form = "  ".join(forms).format
    print(form(*(column.title for column in columns)).rstrip())
    if rows:
        print("\n".join(form(*row).rstrip() for row in rows))


def _that_fit(columns: Sequence[Column], widths: Sequence[int]) -> list[int]:
    """The places of the columns that fit if cells are divided. None if not even these do: rich would leave out parts of cells."""
    kept = list(range(len(columns)))
    spare = sorted((place for place in kept if columns[place].spare), key=lambda place: columns[place].spare)
    while True:
        needed = sum(min(widths[place], _LEAST_FOLDED) if columns[place].folds else widths[place] for place in kept)
        if needed + 2 * (len(kept) - 1) <= shutil.get_terminal_size().columns:
            return kept
        if not spare:
            return []
        kept.remove(spare.pop())


def _drawn(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for column in columns:
        drawn.add_column(
            Text(column.title),
            justify="right" if column.right else "left",
            style=column.style,
            overflow="fold",
            no_wrap=not column.folds,
            min_width=None if column.folds else len(column.title),
        )
    for row in rows:
        drawn.add_row(*map(Text, row))
    # without colours rich would still print bold text
    Console(color_system=None if os.environ.get("NO_COLOR") else "auto").print(drawn)


def json_text(value: Any) -> str:
    """A value as JSON, with one line for each key of the outermost object and for each member of a list in it.

    Numbers that are not finite are written as the texts ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``, since JSON has none.

    Example:
        >>> print(json_text({"a": [{"b": 1}, {"b": float("nan")}], "c": {}}))
        {
        "a": [
        {"b": 1},
        {"b": "NaN"}
        ],
        "c": {}
        }
    """
    if not isinstance(value, dict):
        return _listed(value) if isinstance(value, list) else _encoded(value)
    parts = (
        f"{_encoded(key)}: {_listed(each) if isinstance(each, list) else _encoded(each)}" for key, each in value.items()
    )
    return "{\n" + ",\n".join(parts) + "\n}"


def print_json(value: Any) -> None:
    """Prints a value as `json_text` gives it."""
    print(json_text(value))


def _listed(members: list[Any]) -> str:
    return "[\n" + ",\n".join(map(_encoded, members)) + "\n]" if members else "[]"


def _encoded(value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, (list, tuple)) else value


@contextmanager
def progress(operation: Operation, path: str, total: int) -> Iterator[None]:
    """Shows on the terminal of the error output how much of checkpoints has been read, if that takes more than a second.

    Args:
        operation: What is done.
        path: With which checkpoint.
        total: The bytes of all tensors that are read.
    """
    with reported(is_drawn(sys.stderr), operation, path, [total]):
        yield
