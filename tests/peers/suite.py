"""What is said of the tests of one library."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Suite:
    """The tests of one library, and what of them milepost does not pass.

    Keys of `excluded` and `failing` are patterns of the identifiers that pytest gives to tests, such as `*::test_npu`; `*` stands for any text.
    """

    title: str
    packages: tuple[str, ...]
    """The distributions whose versions are told."""
    copied: Mapping[str, str]
    """Files and folders of the checkout, and the paths at which the tests expect them, below the directory in which they run."""
    files: tuple[str, ...]
    """The files of tests, or patterns of them, below that directory."""
    replaced: str
    """What milepost does in the place of the library: a sentence or more for the page, in Markdown."""
    plugins: tuple[str, ...] = ()
    """Modules that are plugins of pytest in both runs, such as for what the tests need around them."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """What the environment says in both runs."""
    excluded: Mapping[str, str] = field(default_factory=dict)
    """Tests that are not run, with reasons: they test what milepost does not offer."""
    failing: Mapping[str, str] = field(default_factory=dict)
    """Tests that fail, with what milepost does otherwise or lacks."""


def matching(patterns: Mapping[str, str], test: str) -> str | None:
    """The first pattern that the identifier of a test fits."""
    for pattern in patterns:
        if re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), test, re.DOTALL):
            return pattern
    return None
