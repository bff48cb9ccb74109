"""What programs show on a terminal."""

import os


def everything_from(descriptor):
    """The bytes that are shown on our end of a terminal, until the other end is closed. Closes ours."""
    parts = []
    while True:
        try:
            part = os.read(descriptor, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        parts.append(part)
    os.close(descriptor)
    return b"".join(parts)
