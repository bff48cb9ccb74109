"""Names with wildcards, as steps of `convert` use them. They mean what the keys of ``rename`` mean.

::

    pattern := ("**" sep)? level (sep level)*
    level   := text with "*" for any text of one level, and "#" for the number of a member
    sep     := "." | "/"

A pattern fits a name, and all names below that name. ``**`` is any number of levels, none too, and only stands at the beginning.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any, Final, NamedTuple

from milepost.engine.arguments import wrong

DOT: Final = re.compile(r"(?<!\.)\.(?![.S])")
"""A dot that separates names. One that belongs to a name is doubled in paths."""
_ANY_LEVELS: Final = "**"
_WILDCARD: Final = re.compile(r"([*#])")
_SEPARATOR: Final = re.compile("[./]")
_EXPRESSIONS: Final = {"*": "([^./]*)", "#": "(?P<number>0|[1-9][0-9]*)"}


class Fit(NamedTuple):
    """How a pattern fits a name.

    Attributes:
        group: The texts for the wildcards, and what is below the pattern. The names of one result have the same.
        number: The number of the member, if the pattern has ``#``.
    """

    group: tuple[str, ...]
    number: int


class Pattern:
    """A name with wildcards.

    Args:
        text: The name.
        argument: The argument that has it, for the error.

    Raises:
        UnsupportedError: It is no name.

    Example:
        >>> fit = Pattern("layers.*.q", "sources").fit("layers/3/q/weight")
        >>> fit.group
        ('3', '/weight')
        >>> Pattern("h/*/attn/qkv", "target").name(fit.group)
        'h/3/attn/qkv/weight'
    """

    def __init__(self, text: Any, argument: str) -> None:
        stripped = text.strip("./") if isinstance(text, str) else ""
        self.is_anywhere = stripped.startswith((f"{_ANY_LEVELS}/", f"{_ANY_LEVELS}."))
        self.text = stripped[len(_ANY_LEVELS) + 1 :] if self.is_anywhere else stripped
        if not self.text or _ANY_LEVELS in self.text or self.text.count("#") > 1:
            raise wrong(
                argument,
                text,
                "a name, in which * stands for one level, ** at the beginning for any number of levels, and # for the number of a member",
            )

    @property
    def wildcards(self) -> tuple[bool, int]:
        """Whether it begins with ``**``, and how many ``*`` it has. Those of all names of a step are the same."""
        return self.is_anywhere, self.text.count("*")

    @property
    def is_numbered(self) -> bool:
        """Whether it has ``#``."""
        return "#" in self.text

    @cached_property
    def _expression(self) -> re.Pattern[str]:
        levels = (
            "".join(_EXPRESSIONS.get(part) or re.escape(part) for part in _WILDCARD.split(level))
            for level in _SEPARATOR.split(self.text)
        )
        start = "((?:.*[./])?)" if self.is_anywhere else ""
        return re.compile(f"{start}{'[./]'.join(levels)}(?P<below>(?:(?:/|\\.(?!\\.)).*)?)", re.DOTALL)

    def fit(self, name: str) -> Fit | None:
        """How it fits a name; None if it does not."""
        match = self._expression.fullmatch(name)
        if match is None:
            return None
        number = self._expression.groupindex.get("number", 0)
        texts = [text for position, text in enumerate(match.groups(), 1) if position != number]
        return Fit(tuple(texts), int(match["number"]) if number else 0)

    def name(self, group: tuple[str, ...], number: int = 0) -> str:
        """The name that it stands for."""
        texts = iter(group)
        start = next(texts) if self.is_anywhere else ""
        parts = (str(number) if part == "#" else next(texts) if part == "*" else part for part in self._parts)
        return f"{start}{''.join(parts)}{next(texts)}"

    @cached_property
    def _parts(self) -> list[str]:
        return _WILDCARD.split(DOT.sub("/", self.text))

    def __str__(self) -> str:
        return f"{_ANY_LEVELS}/{self.text}" if self.is_anywhere else self.text
