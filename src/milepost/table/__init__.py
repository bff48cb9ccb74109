"""Sorted string tables: files of sorted keys with values, in blocks with checksums."""

from milepost.table.reader import TableReader
from milepost.table.rows import Rows
from milepost.table.writer import TableWriter

__all__ = ["Rows", "TableReader", "TableWriter"]
