"""Lines and tables fit a narrow terminal, and no number is broken."""

import re

import pytest

from milepost.tools.fitting import NAMES, Column, divided, filled, fitted, width_of

COLUMNS = [
    Column("STEP", right=True),
    Column("SIZE", right=True, spare=1),
    Column("METRICS", folds=True),
    Column("NAME", style=NAMES, folds=True),
]
ROWS = [
    ["100", "1.1 KiB", "validation_loss=0.123456 accuracy=0.987654", "run/ckpt-100"],
    ["1000000", "12.5 GiB", "validation_loss=1.23457e-05", "run/a_long_name/of_a_series/ckpt-1000000"],
]


def lines_of(columns, rows, width):
    found = fitted(columns, rows, width)
    return ["".join(text for text, _ in pieces) for pieces in found.lines], found.left_out


def numbers_in(text):
    return re.findall(r"\d[\d.,]*(?:e[-+]\d+)?", text)


@pytest.mark.parametrize("width", [200, 80, 60, 50, 40, 30, 24])
def test_every_line_fits_and_every_number_is_whole(width):
    lines, left_out = lines_of(COLUMNS, ROWS, width)
    assert max(map(width_of, lines)) <= width
    kept = [place for place, column in enumerate(COLUMNS) if column.title not in left_out]
    for row in ROWS:
        expected = [number for place in kept for number in numbers_in(row[place])]
        shown = numbers_in("\n".join(lines))
        assert all(number in shown for number in expected), lines


def test_a_wide_terminal_has_a_line_for_each_row():
    lines, left_out = lines_of(COLUMNS, ROWS, 200)
    assert len(lines) == 1 + len(ROWS)
    assert not left_out


def test_columns_are_spared_before_rows_are_stacked():
    assert lines_of(COLUMNS, ROWS, 42)[1] == ["SIZE"]
    stacked, left_out = lines_of(COLUMNS, ROWS, 24)
    assert not left_out
    assert stacked[0] == "NAME"
    assert "run/ckpt-100" in stacked


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("net/l1/kernel", 8, ["net/l1/", "kernel"]),
        ("float32[1024,2048]", 14, ["float32[1024,", "2048]"]),
        ("12 of 1,234,567", 9, ["12 of", "1,234,567"]),
        ("max 0.0001234567", 12, ["max", "0.0001234567"]),
        ("layers.0.weight", 9, ["layers.0.", "weight"]),
        ("abcdefghijklmnop", 7, ["abc…nop"]),
        ("漢字漢字", 5, ["漢…字"]),
    ],
)
def test_where_a_cell_is_divided(text, width, lines):
    assert divided(text, width) == lines


def test_a_line_is_divided_at_spaces_and_a_path_is_not():
    text = "  remedy: pass /a/very/long/path/that/can/be/copied, or 123456789"
    assert filled(text, 30).split("\n") == [
        "  remedy: pass",
        "    /a/very/long/path/that/can/be/copied,",
        "    or 123456789",
    ]


def test_a_tree_keeps_its_levels():
    rows = [["net", ""], ["  block_with_a_long_name", "float32[2,3]"], ["    kernel", "float32[2,3]"]]
    lines, _ = lines_of([Column("NAME", style=NAMES, folds=True), Column("TYPE", folds=True)], rows, 30)
    assert [line.index(line.lstrip()[0]) for line in lines if "block_" in line or "kernel" in line] == [2, 4]
