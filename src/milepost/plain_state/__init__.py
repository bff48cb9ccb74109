"""Encodes the plain state of objects, such as iterators, as JSON."""

from milepost.plain_state import enums as enums  # registers members of enumerations
