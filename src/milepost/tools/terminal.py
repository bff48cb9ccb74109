r"""What a command prints: plain lines, tables, JSON and progress.

Every text that comes from a file, a path or an argument passes `shown` before it is printed, so no name sends a control character or a
line end to a terminal. JSON escapes all characters outside of ASCII.

On a terminal, tables and lines are as wide as the terminal (`milepost.tools.fitting`). With rich installed, tables have colours, unless
``NO_COLOR`` is set, and long reads show their progress. Otherwise, and if it has very many rows, a table is plain text: one line for each row, with columns of equal width.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal

from milepost.engine.progress import reported
from milepost.errors import printable
from milepost.storage.output_file import is_written_to
from milepost.tools.fitting import Column, filled, fitted
from milepost.tools.remedies import in_options

_MOST_DRAWN: Final = 500
"""Rows of a table with colours. rich takes seconds for thousands, so longer tables are plain text."""
_MOST_FITTED: Final = 5000
"""Rows of a table that is fitted to a terminal. It takes seconds for a hundred thousand, which nobody reads without a pager."""
_NARROWEST: Final = 20
"""Places of a line, however narrow the terminal is."""
_AT_ONCE: Final = 10_000
"""Rows of plain text that are in memory at once."""
_FINITE: Final = json.JSONEncoder(allow_nan=False).encode
"""What makes JSON of a value without numbers that are not finite. `json.dumps` would make it anew for each value."""
Operation = Literal["compare", "convert", "read", "verify"]


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


def all_named(names: Iterable[str]) -> list[str]:
    """Very many names as `named` gives them.

    Example:
        >>> all_named(["a", "", "b"])
        ['a', "''", 'b']
    """
    all_names = list(names)
    return all_names if all(all_names) and "".join(all_names).isprintable() else [*map(named, all_names)]


def line(text: str = "") -> None:
    """Prints a line. On a terminal that is too narrow for it, it is divided at spaces."""
    print(filled(text, terminal_width()) if is_terminal() else text)


def note(text: str) -> None:
    """Prints a line that is no part of the result, so that a program that reads the output does not see it."""
    print(filled(text, terminal_width()) if is_terminal(sys.stderr) else text, file=sys.stderr)


def line_about_file(path: str, text: str) -> None:
    """Says what was written to a file: on the output, unless the file is a device or a pipe, which may be the output."""
    (note if is_written_to(path) else line)(f"{shown(path)}: {text}")


def warning(text: str) -> None:
    """Prints a warning of the library, with options of commands in the place of arguments of Python."""
    note(f"warning: {printable(in_options(text))}")


def terminal_width() -> int:
    """How many places a line of the terminal has. ``COLUMNS`` says it, too."""
    return max(_NARROWEST, shutil.get_terminal_size().columns)


def is_terminal(stream: Any = None) -> bool:
    """Whether a stream, by default the output, is a terminal that can do more than print lines."""
    stream = sys.stdout if stream is None else stream
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


def can_print(text: str) -> bool:
    """Whether the encoding of the output has all characters of a text. Others are printed as escapes."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def is_drawn(stream: Any = None) -> bool:
    """Whether tables are drawn: the output is a terminal that can do it, and rich is installed."""
    return is_terminal(stream) and importlib.util.find_spec("rich") is not None


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table. The cells are plain text that `shown` has passed.

    Args:
        columns: The columns. Put names last: in plain text they may have any length.
        rows: The cells of each row.
    """
    table_of_columns(columns, [*zip(*rows, strict=True)] or [()] * len(columns))


def table_of_columns(columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> None:
    """Prints a table of very many rows as fast as `table` prints one of few.

    Args:
        columns: As for `table`.
        cells: The cells of each column.
    """
    count = len(cells[0])
    if is_terminal() and count <= _MOST_FITTED:
        _print_fitted(columns, [*zip(*cells, strict=True)])
        return
    widths = [
        max(len(column.title), max(map(len, below), default=0)) for column, below in zip(columns, cells, strict=True)
    ]
    for start in [-1, *range(0, count, _AT_ONCE)]:
        padded = []
        for column, below, width in zip(columns, cells, widths, strict=True):
            batch = [column.title] if start < 0 else below[start : start + _AT_ONCE]
            pad = str.rjust if column.right else str.ljust
            is_padded = column.right or column is not columns[-1]
            padded.append([pad(cell, width) for cell in batch] if is_padded else batch)
        print("\n".join(map(str.rstrip, map("  ".join, zip(*padded, strict=True)))))


def _print_fitted(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    layout = fitted(columns, rows, terminal_width())
    is_coloured = is_drawn() and len(rows) <= _MOST_DRAWN and not os.environ.get("NO_COLOR")
    (_print_coloured if is_coloured else _print_plain)(layout.lines)
    if layout.left_out:
        note(f"left out, since the terminal is narrow: {', '.join(layout.left_out)}")


def _print_plain(lines: Iterable[Sequence[tuple[str, str]]]) -> None:
    for pieces in lines:
        print("".join(text for text, _ in pieces).rstrip())


def _print_coloured(lines: Iterable[Sequence[tuple[str, str]]]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console()
    for pieces in lines:
        console.print(Text.assemble(*pieces), soft_wrap=True)


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
        return _FINITE(value)
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
