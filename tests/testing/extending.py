"""What the code blocks of docs/extending.md define: a framework, its adapters, its specimen, a storage.

Blocks that show a session are left out, and no adapter is registered.
"""

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"

for _block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL):
    if not _block.startswith(">>>") and "register_framework(" not in _block:
        exec(re.sub(r"^ *register\(.*\)$", "    pass", _block, flags=re.MULTILINE))


def __getattr__(name: str) -> Any:
    """Tells type checkers that the page has names that are not in this file."""
    raise AttributeError(f"{PAGE.name} does not define {name}")
