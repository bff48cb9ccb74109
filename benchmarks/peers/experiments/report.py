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
TITLE = "says what was missing, unexpected, of another shape or type"
HOW = "A value of that kind is in the file or in the program, or one of each: are they named in a result, error, warning or message?"

_ODD = ("omega", "psi", "chi", "phi")


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
        odd = [name for name in _ODD if name in {*saved, *live}]
        named = [name for name in odd if name in messages.getvalue()]
        seen[kind] = "named" if named == odd else f"{len(named)} of 4 named" if named else "not named"
    return judged(seen, "named")


def misfits() -> dict[str, tuple[Values, Values]]:
    """Values that are saved, and values that a program holds which restores them, for each way not to fit."""
    omega, psi, chi, phi = _ODD
    two, all_of_them = distinct(1, "alpha", "beta"), distinct(1, "alpha", "beta", *_ODD)
    three = {name: all_of_them[name] for name in ("alpha", "beta", omega)}
    return {
        "missing": (two, three),
        "unexpected": (three, two),
        "another shape": (three, {**three, omega: three[omega][:, :64].copy()}),
        "another type": (three, {**three, omega: three[omega].astype("float16")}),
        "one of each at once": (
            {name: value for name, value in all_of_them.items() if name != omega},
            {
                **{name: value for name, value in all_of_them.items() if name != psi},
                chi: all_of_them[chi][:, :64].copy(),
                phi: all_of_them[phi].astype("float16"),
            },
        ),
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
        with (
            contextlib.redirect_stdout(messages),
            contextlib.redirect_stderr(messages),
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.simplefilter("always")
            yield messages
            messages.writelines(str(warning.message) for warning in caught)
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
