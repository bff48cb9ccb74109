"""Refuses to publish what a tag does not describe.

usage: tag.py TAG ADDRESS        for example: tag.py v0.9.0 https://example.org/milepost

The tag is that of the version, the changelog has a section of the version with a date and nothing is left of what is unreleased, and the address
of the repository in which this runs is the one that pyproject.toml names, to which the links of the published README lead.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def problems(tag: str, address: str) -> list[str]:
    """What is wrong, each with what to do."""
    source = (ROOT / "src" / "milepost" / "__init__.py").read_text(encoding="utf-8")
    (version,) = re.findall(r'^__version__ = "(.*)"$', source, re.MULTILINE)
    changes = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"].get("urls", {})
    found = []
    if tag != f"v{version}":
        found.append(
            f"The tag is {tag}, and the version is {version}: tag the commit that sets the version of the tag."
        )
    if not any(re.match(rf"\[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d\n", section) for section in changes):
        found.append(f"CHANGELOG.md has no heading of {version} with the day: write '## [{version}] - YYYY-MM-DD'.")
    if changes and changes[0].startswith("[Unreleased]") and changes[0].partition("\n")[2].strip():
        found.append(f"CHANGELOG.md has entries under 'Unreleased': move them to {version}.")
    if urls.get("Repository", "").rstrip("/") != address.rstrip("/"):
        named = urls.get("Repository", "no address")
        found.append(
            f'pyproject.toml names {named}, and this is {address}: write Repository = "{address}" below [project.urls].'
        )
    return found


if __name__ == "__main__":
    if wrong := problems(*sys.argv[1:]):
        sys.exit("\n".join(wrong))
