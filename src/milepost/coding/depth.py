"""How deep data may be nested, whoever wrote it."""

from typing import Final

DEEPEST: Final = 100
"""The most levels of containers in containers, of groups in a file, and of parts of a name. Plain state has a lower limit, since it is encoded
and decoded by functions that call themselves several times for each level."""
