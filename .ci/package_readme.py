"""Gives a package the README, with links that lead somewhere outside of the repository too.

An index of packages shows the README by itself, so relative links and pictures are broken there. They become absolute, to the files of
this version at the address that ``[project.urls]`` of pyproject.toml has as ``Repository``. As long as it names none, the README stays as
it is. Hatch calls this for each build (`tool.hatch.metadata.hooks` in pyproject.toml).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class PackageReadme(MetadataHookInterface):
    """Fills in ``readme``."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        repository = metadata.get("urls", {}).get("Repository", "").rstrip("/")
        if repository:
            text = absolute(text, repository, f"v{metadata['version']}")
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def absolute(text: str, repository: str, tag: str) -> str:
    """The text with absolute links to the pages, and to the bytes of pictures, of a tag of a repository."""
    relative = r"(?!\w+:|#)"
    text = re.sub(rf"(!\[[^]]*\]\(){relative}", rf"\1{repository}/raw/{tag}/", text)
    return re.sub(rf"(\]\(){relative}", rf"\1{repository}/blob/{tag}/", text)
