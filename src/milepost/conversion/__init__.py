"""Conversion: which values of a checkpoint go into a file of another format, under which names, and one writer for each format."""

from milepost.conversion.conversion import Conversion, convert

__all__ = ["Conversion", "convert"]
