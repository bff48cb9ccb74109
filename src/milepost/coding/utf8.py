"""Text as bytes of UTF-8, which has no form for lone surrogates."""

from __future__ import annotations


def utf8(text: str) -> bytes | None:
    """The bytes of a text in UTF-8. None if the text has lone surrogates.

    Example:
        >>> utf8("net/kernel"), utf8("\\ud800")
        (b'net/kernel', None)
    """
    try:
        return text.encode()
    except UnicodeEncodeError:
        return None
