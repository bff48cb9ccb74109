"""How lines and tables fit a terminal: no number is broken, and no part of a cell is left out in silence.

A cell that is too long for its column is divided at spaces, after the separators of names (``/``, ``.``, ``_``) and between the lengths of a
shape. A part that is still too long is cut in its middle, where an ellipsis says so.

A table that is too wide gives up columns that it can spare. If it is still too wide, each row becomes several lines: the name, and below it the
other cells.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

LONGEST_PART: Final = 16
"""A column need not be wider than this for a part of a cell that cannot be divided."""
_SHORTEST_PART: Final = 8
"""Places that a name in a tree has beside its indentation, however deep it is."""
GAP: Final = 2
"""The spaces between two columns."""
NAMES: Final = "cyan"
"""The style of the column that has the name of each row."""
_ENDS: Final = re.compile(r"\s+(?=\S)|[/_]|(?<=[^\d./])\.(?=[^\s.])|(?<=[^./])\.(?=[^\d\s.])")
"""The ends of parts of a cell, after which it may be divided. A dot inside a number is no such place."""
_LONG_WORD: Final = re.compile(rf"\S{{{LONGEST_PART + 1},}}")
"""What may be divided after an equals sign and before the lengths of a shape, too."""
_SHAPE: Final = re.compile(r"\[[\d,?]*\]")
"""A shape. Its commas end parts, and those in a number do not."""


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        title: Its heading.
        right: Whether its cells are aligned to the right.
        style: The style of rich for its cells.
        folds: Whether long cells are divided into several lines where the terminal is too narrow.
        spare: Whether the column may be left out, with a message, where the terminal is still too narrow. Those with the smallest numbers
            are kept first; one with 0 is never left out.
    """

    title: str
    right: bool = False
    style: str = ""
    folds: bool = False
    spare: int = 0


class Fitted(NamedTuple):
    """A table as it is printed.

    Attributes:
        lines: Each line as pieces of text, with the style of each.
        left_out: The titles of the columns that had no room.
    """

    lines: Iterator[list[tuple[str, str]]]
    left_out: list[str]


def width_of(text: str) -> int:
    """How many places of a terminal a text takes.

    Example:
        >>> width_of("ab"), width_of("漢字"), width_of("e\\u0301")
        (2, 4, 1)
    """
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(each) else 1 + (unicodedata.east_asian_width(each) in "WF") for each in text)


def divided(text: str, width: int) -> list[str]:
    """A cell as lines of at most so many places.

    Example:
        >>> divided("net/block_1/kernel", 12), divided("max 0.25, 5 of 1,024", 9), divided("abcdefghijkl", 5)
        (['net/block_1/', 'kernel'], ['max 0.25,', '5 of', '1,024'], ['ab…kl'])
    """
    if width_of(text) <= width:
        return [text]
    lines = [""]
    for part in _parts(text):
        if width_of((lines[-1] + part).rstrip()) <= width:
            lines[-1] += part
        else:
            lines.append(shortened(part, width))
    return [each.rstrip() for each in lines if each.strip()]


def _parts(text: str) -> list[str]:
    ends = {match.end() for match in _ENDS.finditer(text)} | {len(text)}
    for word in _LONG_WORD.finditer(text):
        ends.update(position + 1 for position in range(*word.span()) if text[position] in "=[")
    for shape in _SHAPE.finditer(text):
        ends.update(position + 1 for position in range(*shape.span()) if text[position] == ",")
    ordered = [0, *sorted(ends)]
    return [text[start:end] for start, end in itertools.pairwise(ordered)]


def shortened(text: str, width: int) -> str:
    """A text of at most so many places, with an ellipsis for what is left out of its middle.

    Example:
        >>> shortened("abcdefghijkl", 5), shortened("abc ", 3)
        ('ab…kl', 'abc')
    """
    if width_of(text) <= width:
        return text
    text = text.rstrip()
    left, right = text[: len(text) // 2], text[len(text) // 2 :]
    if width_of(text) <= width:
        return text
    while (left or right) and width_of(left) + width_of(right) + 1 > width:
        left, right = (left[:-1], right) if width_of(left) > width_of(right) else (left, right[1:])
    return f"{left}…{right}"


def filled(text: str, width: int) -> str:
    """A text whose lines are divided at spaces, so that none is longer than the terminal is wide. What has no spaces stays as it is, so that
    a path can be copied.

    Example:
        >>> print(filled("error: no checkpoint\\n  remedy: pass one of those that are there", 24))
        error: no checkpoint
          remedy: pass one of
            those that are there
    """
    return "\n".join(_filled(line, width) for line in text.split("\n"))


def _filled(line: str, width: int) -> str:
    if width_of(line) <= width:
        return line
    indent = line[: len(line) - len(line.lstrip(" "))]
    lines, now = [], indent
    for word in re.findall(r"\S+\s*", line):
        if now.strip() and width_of((now + word).rstrip()) > width:
            lines.append(now.rstrip())
            now = indent + "  "
        now += word
    return "\n".join([*lines, now.rstrip()])


def fitted(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> Fitted:
    """Lays out a table for a terminal.

    Args:
        columns: The columns. The last one has the name of each row.
        rows: The cells of each row.
        width: How many places a line of the terminal has.
    """
    natural = [
        max(width_of(column.title), max((width_of(row[position]) for row in rows), default=0))
        for position, column in enumerate(columns)
    ]
    kept = list(range(len(columns)))
    if _total(natural, kept) <= width:
        return Fitted(_lines(columns, rows, natural), [])
    least = [
        min(natural[position], _least(column, [row[position] for row in rows])) if column.folds else natural[position]
        for position, column in enumerate(columns)
    ]
    spare = sorted(
        (position for position in kept if columns[position].spare), key=lambda position: columns[position].spare
    )
    kept = [position for position in kept if not columns[position].spare]
    if _total(least, kept) > width:
        return Fitted(_stacked(columns, rows, width), [])
    # a column that can be spared is not worth a name of usual length in two lines
    usual = [max(each, min(natural[position], LONGEST_PART)) for position, each in enumerate(least)]
    for position in spare:
        if _total(usual, [*kept, position]) <= width:
            kept.append(position)
    kept.sort()
    widths = _shared(
        [least[position] for position in kept], [natural[position] for position in kept], width - GAP * (len(kept) - 1)
    )
    left_out = [column.title for position, column in enumerate(columns) if position not in kept]
    cells = rows if len(kept) == len(columns) else [[row[position] for position in kept] for row in rows]
    return Fitted(_lines([columns[position] for position in kept], cells, widths), left_out)


def _total(widths: Sequence[int], kept: Sequence[int]) -> int:
    return sum(widths[position] for position in kept) + GAP * (len(kept) - 1)


def _least(column: Column, cells: Sequence[str]) -> int:
    """The width with which every part of a cell has room, up to a limit. Cells of a tree are also indented."""
    longest = 0
    for cell in cells:
        if width_of(cell) > longest:
            inside = cell.lstrip()
            parts = max((width_of(part.rstrip()) for part in _parts(inside)), default=0)
            indent = len(cell) - len(inside)
            longest = max(longest, min(indent + parts, max(indent + _SHORTEST_PART, LONGEST_PART)))
    return max(width_of(column.title), longest)


def _shared(least: list[int], natural: list[int], room: int) -> list[int]:
    """The widths of columns. What is left of the room goes to the narrowest of those that need more."""
    widths, room = list(least), room - sum(least)
    while room > 0 and (waiting := [position for position, each in enumerate(widths) if each < natural[position]]):
        widths[min(waiting, key=widths.__getitem__)] += 1
        room -= 1
    return widths


def _lines(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], widths: Sequence[int]
) -> Iterator[list[tuple[str, str]]]:
    yield _line([(column.title, "bold", column.right) for column in columns], widths)
    for row in rows:
        cells = [_cell(text, column, width) for text, column, width in zip(row, columns, widths, strict=True)]
        for height in range(max(map(len, cells))):
            texts = [cell[height] if height < len(cell) else "" for cell in cells]
            yield _line(
                [(text, column.style, column.right) for text, column in zip(texts, columns, strict=True)], widths
            )


def _cell(text: str, column: Column, width: int) -> list[str]:
    """The lines of a cell. All of them are indented as its first one."""
    if width_of(text) <= width:
        return [text]
    if not column.folds:
        return [shortened(text, width)]
    inside = text.lstrip(" ")
    indent = text[: len(text) - len(inside)]
    return [indent + each for each in divided(inside, max(1, width - len(indent)))]


def _line(cells: Sequence[tuple[str, str, bool]], widths: Sequence[int]) -> list[tuple[str, str]]:
    line: list[tuple[str, str]] = []
    for position, ((text, style, right), width) in enumerate(zip(cells, widths, strict=True)):
        padding = " " * (width - width_of(text))
        gap = " " * GAP if position else ""
        line += [(gap + padding, ""), (text, style)] if right else [(gap, ""), (text, style), (padding, "")]
    while line and not line[-1][0].strip():
        line.pop()
    return line


def _stacked(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> Iterator[list[tuple[str, str]]]:
    """Each row as several lines: the name, and below it the other cells."""
    head = next((position for position, column in enumerate(columns) if column.style == NAMES), len(columns) - 1)
    for number, row in enumerate([[column.title for column in columns], *rows]):
        styles = ["bold"] * len(columns) if not number else [column.style for column in columns]
        name = row[head].lstrip(" ")
        indent = " " * min(len(row[head]) - len(name), width // 2)
        for position, text in enumerate(divided(name, width - len(indent) - GAP)):
            yield [(indent + ("  " if position else ""), ""), (text, styles[head])]
        others = [
            (text, style) for position, (text, style) in enumerate(zip(row, styles, strict=True)) if position != head
        ]
        start = indent + "    "
        below, used = [(start, "")], len(start)
        for text, style in others:
            for part in divided(text, width - len(start)) if text else ():
                if used + width_of(part) > width:
                    yield below
                    below, used = [(start, "")], len(start)
                below += [(" " * GAP if used > len(start) else "", ""), (part, style)]
                used += width_of(part) + GAP
        if used > len(start):
            yield below
