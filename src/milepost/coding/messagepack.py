"""How a map in MessagePack begins, which tells files of Flax and Orbax from text."""

from __future__ import annotations

from typing import Final

MAP_BEGINNINGS: Final = frozenset(bytes([first]) for first in (*range(0x80, 0x90), 0xDE, 0xDF))
"""The first bytes of a map. No text in UTF-8 begins with them. Source: the MessagePack specification, ``spec.md``."""
