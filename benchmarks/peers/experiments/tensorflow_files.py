"""TensorFlow's files."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from benchmarks.peers.finding import Finding, judged
from benchmarks.peers.peer import Peer, distinct, equal

KEY = "tensorflow_files"
TITLE = "reads and writes TensorFlow's files"
HOW = "tf.train.Checkpoint writes a file that the library restores; tf.train.load_checkpoint reads every value of the library's file."


def run(peer: Peer, scratch: Path) -> Finding:
    """Tries both directions."""
    if importlib.util.find_spec("tensorflow") is None:
        return Finding("not tried", {"why": "TensorFlow is not installed"})
    import tensorflow as tf

    saved = distinct(1)
    prefix = scratch / peer.name
    tf.train.Checkpoint(**{name: tf.Variable(value) for name, value in saved.items()}).write(str(prefix))
    seen: dict[str, str] = {}
    for path in (prefix, Path(f"{prefix}.index")):
        live = peer.hold(distinct(0))
        try:
            peer.read(live, path)
        except Exception as error:
            seen.setdefault("reads", f"no: {type(error).__name__}")
        else:
            seen["reads"] = "yes" if equal(peer.values(live), saved) else "no: wrong values"
            break
    own = scratch / "own"
    own.mkdir()
    peer.write(peer.hold(saved), own / peer.name)
    try:
        reader = tf.train.load_checkpoint(str(own / peer.name))
        found = {name: reader.get_tensor(f"{name}/.ATTRIBUTES/VARIABLE_VALUE") for name in saved}
        seen["writes"] = "yes" if equal(found, saved) else "no: wrong values"
    except Exception as error:
        seen["writes"] = f"no: {type(error).__name__}"
    return judged(seen, "yes")
