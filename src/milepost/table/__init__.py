"""Sorted string tables: keys in order, with values, in checksummed blocks."""

from milepost.table.reader import TableReader
from milepost.table.writer import TableWriter

__all__ = ["TableReader", "TableWriter"]
