r"""Names of tensors as commands print them, and as users type them again.

::

    printed  :=  the name, with escapes for what is invisible: \n \r \t \xHH \uHHHH \UHHHHHHHH
              |  ''                   a name without characters, as a dict may have
              |  (the whole file)     the only value of a file, which has no name
              |  (the root)           a value of the root of a checkpoint

Everything that is printed is accepted where a name is typed, and stands for what it was printed for. An escape stands for itself only if a
name in the file has a backslash there. The names of a checkpoint are accepted as keys (``net/a.Sb/.ATTRIBUTES/VARIABLE_VALUE``), as the
paths in them (``net/a.Sb``), and as the program has them (``net/a/b``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from milepost.bundle import BundleReader
from milepost.checkpoint.short_names import name_of
from milepost.engine.layouts.steps import Step
from milepost.engine.translation import Translation
from milepost.foreign import called
from milepost.graph.keys import ATTRIBUTES, VARIABLE_VALUE, tensor_key, unescape
from milepost.tools.terminal import all_named, named

ROOT: Final = tensor_key("", VARIABLE_VALUE)
"""The key of a value that has no name: that of the root."""
_WHOLE: Final = called(ROOT)
_THE_ROOT: Final = "(the root)"
_ESCAPE: Final = re.compile(r"\\(?:[nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")


def nameless(reader: BundleReader) -> str:
    """What is printed for a value that has no name."""
    return _THE_ROOT if reader.origin.is_checkpoint else _WHOLE


def printed(key: str, reader: BundleReader) -> str:
    """A key, or a short name, as it is printed."""
    if reader.origin.is_checkpoint:
        return named(key) if key else _THE_ROOT
    return named(called(key))


def all_printed(keys: Sequence[str], reader: BundleReader) -> list[str]:
    """Very many keys as `printed` gives them."""
    names = all_named(keys)
    unnamed = "" if reader.origin.is_checkpoint else ROOT
    if unnamed in keys:
        names[keys.index(unnamed)] = printed(unnamed, reader)
    return names


def typed(text: str, names: Iterable[str]) -> str:
    r"""What a user means by a name that may be typed as it was printed.

    Args:
        text: The name, or a pattern of names.
        names: All names of which it can be one.

    Example:
        >>> typed(r"a\nb", ["a\nb"]), typed(r"a\nb", [r"C:\new"]), typed("(the whole file)", [])
        ('a\nb', 'a\\nb', '/.ATTRIBUTES/VARIABLE_VALUE')
    """
    if text in (_WHOLE, _THE_ROOT) and text not in names:
        return ROOT
    if text == "''" and text not in names:
        return ""
    escapes = set(_ESCAPE.findall(text))
    if not escapes:
        return text
    literal_escapes = {escape for escape in escapes if any(escape in name for name in names)}
    return _ESCAPE.sub(lambda match: match[0] if match[0] in literal_escapes else _character(match[0]), text)


def _character(escape: str) -> str:
    """What an escape stands for; the escape itself if such a character is printed as it is."""
    try:
        character = escape.encode().decode("unicode_escape")
    except UnicodeDecodeError:  # beyond the last character
        return escape
    return escape if character.isprintable() else character


def translation_of(
    keys: Sequence[str],
    rename: Sequence[tuple[str, str]],
    ignore: Sequence[str] = (),
    only: Sequence[str] | None = None,
    *,
    tell: Callable[[str], object],
    cast: bool = False,
    convert: Sequence[Step] = (),
    escaped: bool,
) -> Translation:
    """The changes of names that options say, with names as users type them. Errors are those of `Translation`.

    Args:
        keys: The keys of the checkpoint.
        rename: Pairs of ``--rename``.
        ignore: As for `Translation`.
        only: As for `Translation`.
        tell: As for `Translation`.
        cast: As for `Translation`.
        convert: As for `Translation`. It has made the keys.
        escaped: Whether saved names are paths as in keys, as in a restore, or names as the program has them, as in a conversion.
    """
    names = [key.partition(ATTRIBUTES)[0] if escaped else name_of(key) for key in keys]

    def meant(text: str) -> str:
        return _spelled(typed(text, names), names, escaped=escaped)

    return Translation(
        {meant(old): typed(new, names) for old, new in rename},
        [*map(meant, ignore)],
        None if only is None else [*map(meant, only)],
        cast,
        convert=convert,
        tell=tell,
    )


def _spelled(text: str, names: Sequence[str], *, escaped: bool) -> str:
    """A name in the form that the names have. One that is none of them stays as it is."""
    if ATTRIBUTES in text:
        text = text.partition(ATTRIBUTES)[0] if escaped else name_of(text)
    plain = text.replace(".", "/").strip("/")
    if "*" in text or any(f"{name.replace('.', '/')}/".startswith(f"{plain}/") for name in names):
        return text
    if not escaped:
        return "/".join(map(unescape, text.split("/")))
    for name in names:
        parts = name.split("/")
        for count in range(1, len(parts) + 1):
            if "/".join(map(unescape, parts[:count])) == text:
                return "/".join(parts[:count])
    return text
