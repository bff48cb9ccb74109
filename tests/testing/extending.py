"""What the code blocks of docs/extending.md define: a framework, its adapters, its specimen, a storage."""

import re
from pathlib import Path
from types import SimpleNamespace

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"


def page():
    """The names that the blocks define, without the blocks that show a session. No adapter is registered."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    names = {"__name__": __name__}
    for block in blocks:
        if not block.startswith(">>>") and "register_framework(" not in block:
            exec(re.sub(r"^ *register\(.*\)$", "    pass", block, flags=re.MULTILINE), names)
    return SimpleNamespace(**names)
