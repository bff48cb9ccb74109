"""How deep data may be nested, whoever wrote it."""

from typing import Final

DEEPEST: Final = 100
"""The most levels of containers in containers, of groups in a file, of parts of a name, and of plain state. Functions that call themselves for
each level take up to seven calls, of which Python allows a thousand in all."""
