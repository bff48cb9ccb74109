"""Numbered notes below a table."""

from __future__ import annotations


class Notes:
    """Numbered notes, each text once."""

    def __init__(self) -> None:
        self._texts: dict[str, int] = {}

    def reference(self, text: str) -> str:
        return f"[{self._texts.setdefault(text, len(self._texts) + 1)}]"

    def lines(self) -> list[str]:
        return [f"{number}. {text}" for text, number in self._texts.items()]
