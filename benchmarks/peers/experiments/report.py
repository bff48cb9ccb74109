"""What a restore says about what did not fit."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

from benchmarks.peers.finding import Finding, judged
from benchmarks.peers.peer import Peer, Values, distinct

KEY = "report"
TITLE = "says which values were missing, unexpected, of another shape, of another type"
HOW = "A value of that kind is in the file or in the program: is it named in a result, error, warning or message?"

_ODD = "omega"


def run(peer: Peer, scratch: Path) -> Finding:
    """Tries each kind of value that does not fit."""
    seen = {}
    for number, (kind, (saved, live)) in enumerate(misfits().items()):
        path = scratch / str(number) / peer.name
        path.parent.mkdir()
        peer.write(peer.hold(saved), path)
        holder = peer.hold(live)
        with _overheard() as messages:
            try:
                messages.write(peer.tell(holder, path))
            except Exception as error:
                messages.write(str(error))
        seen[kind] = "named" if _ODD in messages.getvalue() else "not named"
    return judged(seen, "named")


def misfits() -> dict[str, tuple[Values, Values]]:
    """Values that are saved, and values that a program holds which restores them, for each way not to fit."""
    two, three = distinct(1, "alpha", "beta"), distinct(1, "alpha", "beta", _ODD)
    return {
        "missing": (two, three),
        "unexpected": (three, two),
        "another shape": (three, {**three, _ODD: three[_ODD][:, :64].copy()}),
        "another type": (three, {**three, _ODD: three[_ODD].astype("float16")}),
    }


@contextlib.contextmanager
def _overheard() -> Iterator[io.StringIO]:
    """Collects warnings, log records, and what is printed."""
    messages = io.StringIO()
    handler = logging.StreamHandler(messages)
    handler.setLevel(logging.WARNING)
    loggers = [logging.getLogger(name) for name in ("", "absl", "tensorflow", "orbax")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        with contextlib.redirect_stdout(messages), contextlib.redirect_stderr(messages), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield messages
            messages.writelines(str(warning.message) for warning in caught)
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
