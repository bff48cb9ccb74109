"""One-line descriptions of objects, for `repr`.

They read no files, call no code of other objects, and raise no errors, because debuggers call them at any time, even during
``__init__``. Control characters in names are escaped.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np

from milepost.errors import printable
from milepost.tensor.spec import format_shape

_MOST_CHILDREN: Final = 6
_LONGEST: Final = 60
_LONGEST_VALUE: Final = 600
_MOST_ELEMENTS: Final = 100
MOST_ROWS: Final = 30
"""Rows of a table in a notebook."""
_LONGEST_CELL: Final = 200
_LONGEST_LINE: Final = 100
"""Letters of a cell that a notebook does not divide; of what it divides, a letter may be alone in the last line."""
_DIGITS: Final = 6
_ALL_DIGITS: Final = 17
"""Digits that distinguish any two numbers of 64 bits."""
_NO_FORMULAS: Final = "tex2jax_ignore mathjax_ignore"
"""The classes of an element in which MathJax 2 and 3 look for no formulas, as notebooks do between dollar signs."""


def shortened(text: str, most: int = _LONGEST) -> str:
    r"""Text in one line of printable characters. The middle of a long text is left out.

    Example:
        >>> shortened("a\x1b[2J")
        'a\\x1b[2J'
        >>> shortened("a" * 50 + "b" * 50, 20)
        'aaaaaaaa...bbbbbbbbb'
    """
    text = printable(text[: 2 * most] + text[max(2 * most, len(text) - 2 * most) :], one_line=True)
    if len(text) <= most:
        return text
    kept = most - len("...")
    return f"{text[: kept // 2]}...{text[len(text) - (kept + 1) // 2 :]}"


def shown(value: Any, most: int = 200) -> str:
    """The `repr` of a value of the program in one line, or only its class if its `repr` raises an error.

    Example:
        >>> shown({"loss": 0.5})
        "{'loss': 0.5}"
    """
    try:
        return shortened(repr(value), most)
    except Exception:  # a `repr` of the program may raise anything
        return f"<{kind_of(value)}>"


def kind_of(obj: Any) -> str:
    """The name of the class of an object. Public classes of milepost have the name of the package before it.

    Example:
        >>> kind_of(3)
        'int'
    """
    kind = type(obj)
    if kind.__module__.partition(".")[0] != "milepost":
        return shortened(kind.__qualname__)
    package = "milepost.jax" if kind.__module__ == "milepost.jax" else "milepost"
    return f"{package}.{kind.__qualname__}"


def with_children(obj: Any, children: Mapping[str, Any], hidden: Collection[str] = ()) -> str:
    """A description of an object by the names of its attributes, each with its type, number or shape.

    Args:
        obj: The object.
        children: Its attributes.
        hidden: Names of those that are left out.

    Example:
        >>> with_children(object(), {"epoch": 3, "history": [1.5], "w": np.zeros((2, 3), np.float32), "_cache": {}})
        '<object: epoch=3, history=list of 1, w=ndarray float32[2,3]>'
    """
    named = [(name, each) for name, each in children.items() if name not in hidden and not name.startswith("_")]
    listed = [f"{shortened(name)}={_child(each)}" for name, each in named[:_MOST_CHILDREN]]
    if len(named) > _MOST_CHILDREN:
        listed.append(f"and {len(named) - _MOST_CHILDREN} more")
    return f"<{kind_of(obj)}: {', '.join(listed)}>" if listed else f"<{kind_of(obj)}, empty>"


def _child(value: Any) -> str:
    if value is None or type(value) in (bool, float) or (type(value) is int and value.bit_length() <= 64):
        return repr(value)
    name = shortened(type(value).__name__)
    of_milepost = type(value).__module__.startswith("milepost.")  # whose methods can be relied on
    if isinstance(value, list):
        return f"list of {len(value)}" if of_milepost else f"{name} of {list.__len__(value)}"
    if isinstance(value, dict):
        return f"dict of {len(value)}" if of_milepost else f"{name} of {dict.__len__(value)}"
    array = np.asarray(value) if kind_of(value) == "milepost.Variable" else value
    if not isinstance(array, np.ndarray):
        return name
    if array.ndim or array.dtype.hasobject:
        return f"{name} {array.dtype}[{format_shape(array.shape)}]"
    return f"{name}({array})"


def of_file(obj: Any, path: Any, *facts: str) -> str:
    """A description of an object that represents a file or directory.

    Args:
        obj: The object.
        path: The path of the file. None if the object is not initialized.
        *facts: Other facts to list.

    Example:
        >>> of_file(object(), "run/ckpt-3", "12 tensors")
        "<object 'run/ckpt-3': 12 tensors>"
    """
    if path is None:
        return f"<{kind_of(obj)}, not initialized>"
    listed = f": {', '.join(facts)}" if facts else ""
    return f"<{kind_of(obj)} '{shortened(str(path))}'{listed}>"


def counted(count: int, singular: str) -> str:
    """A number and a noun.

    Example:
        >>> counted(1, "tensor"), counted(2, "tensor")
        ('1 tensor', '2 tensors')
    """
    return f"{count} {singular}{'' if count == 1 else 's'}"


def metric(value: float) -> str:
    """A number with six digits, and with more if these would make a whole number of one that is none.

    Example:
        >>> metric(1 / 3), metric(0.9999995), metric(12345678), metric(1.5e300)
        ('0.333333', '0.9999995', '12345678', '1.5e+300')
    """
    if isinstance(value, int):
        return str(value)
    text = f"{value:.{_DIGITS}g}"
    for digits in range(_DIGITS + 1, _ALL_DIGITS + 1):
        if "e" in text or value.is_integer() or not math.isfinite(value) or not float(text).is_integer():
            break
        text = f"{value:.{digits}g}"
    return text


def metrics_text(metrics: Mapping[str, Any], prefix: str = "") -> str:
    """The metrics that were saved with a checkpoint, on one line.

    Example:
        >>> metrics_text({"loss": 0.25, "of": {"classes": 10}})
        'loss=0.25 of/classes=10'
    """
    parts = []
    for name, value in metrics.items():
        text = f"{prefix}{printable(name, one_line=True)}"
        if isinstance(value, dict):
            parts.append(metrics_text(value, f"{text}/"))
        else:
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            parts.append(f"{text}={metric(value) if is_number else printable(str(value), one_line=True)}")
    return " ".join(parts)


def moment(timestamp: float) -> str:
    """A time in seconds since the epoch, as ISO 8601 writes it in UTC.

    Example:
        >>> moment(0.0)
        '1970-01-01T00:00:00Z'
    """
    try:
        time = datetime.datetime.fromtimestamp(timestamp, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return ""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def html_table(heading: str, columns: Sequence[str], rows: Iterable[Sequence[str]], count: int) -> str:
    """A table for a notebook. Names are text in it, never markup or formulas. Columns without text are left out.

    Args:
        heading: The heading of the table.
        columns: The headings of the columns.
        rows: The cells. Those after the first 30 rows are not asked for.
        count: How many rows there are. Without any, only the heading is shown.

    Example:
        >>> print(html_table("<b>", ["key", "note"], [["v<script>", ""]], 1).replace("><", ">\\n<"))
        <div class="tex2jax_ignore mathjax_ignore">
        <p>&lt;b&gt;</p>
        <table>
        <thead>
        <tr>
        <th style="text-align:left">key</th>
        </tr>
        </thead>
        <tbody>
        <tr>
        <td style="text-align:left">v&lt;script&gt;</td>
        </tr>
        </tbody>
        </table>
        </div>
    """
    from html import escape  # only notebooks need it

    body = list(islice(rows, MOST_ROWS))
    filled = [column for column in range(len(columns)) if any(row[column] for row in body)]

    def line(tag: str, cells: Sequence[str]) -> str:
        return f"<tr>{''.join(_html_cell(tag, cells[column]) for column in filled)}</tr>"

    table = ""
    if body:
        lines = "".join(line("td", row) for row in body)
        table = f"<table><thead>{line('th', columns)}</thead><tbody>{lines}</tbody></table>"
    more = f"<p>and {count - MOST_ROWS:,} more</p>" if count > MOST_ROWS else ""
    head = f"<p>{escape(shortened(heading, _LONGEST_VALUE))}</p>"
    return f'<div class="{_NO_FORMULAS}">{head}{table}{more}</div>'


def _html_cell(tag: str, text: str) -> str:
    from html import escape

    # notebooks put text at the right end of a cell otherwise, and what does not fit out of sight
    style = "text-align:left" + (";overflow-wrap:anywhere" if len(text) > _LONGEST_LINE else "")
    return f'<{tag} style="{style}">{escape(shortened(text, _LONGEST_CELL))}</{tag}>'


def of_variable(name: str | None, shape: Any, dtype: Any, array: np.ndarray[Any, Any]) -> str:
    """A description of a variable, with the beginning and the end of its value.

    Example:
        >>> of_variable("v", (), "float32", np.array(1.5, np.float32))
        "<milepost.Variable 'v' shape=() dtype=float32, numpy=1.5>"
    """
    if array.size > _MOST_ELEMENTS:
        with np.printoptions(threshold=_MOST_ELEMENTS, edgeitems=2):
            value = repr(array)
    else:
        value = repr(array) if array.ndim else str(array)
    if len(value) > _LONGEST_VALUE:
        value = shortened(value, _LONGEST_VALUE)
    called = f" '{shortened(str(name))}'" if name else ""
    dimensions = f"({format_shape(shape)}{',' if len(shape) == 1 else ''})"
    return f"<milepost.Variable{called} shape={dimensions} dtype={dtype}, numpy={value}>"
