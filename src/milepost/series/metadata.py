"""Metrics and metadata that are saved with a checkpoint, in the same commit.

They are one tensor of the checkpoint, a string without dimensions under the key `METADATA`, so it has a checksum, and every
reader of TensorFlow's format can read it. No object of the program has this key. The text is JSON::

    text      := JSON: {"metrics": metrics | null, "metadata": any JSON, ("left_out": left_out)?, ("nonfinite": nonfinite)?}
    metrics   := {name: number | metrics, ...}
    nonfinite := {"count": number, "names": [name, ...], "infinite": [name, ...]}     if the manager has looked for NaN and infinity

`milepost.engine.left_out` describes ``left_out``, which is there if the save has left out values on purpose. ``count`` is how many values make the
checkpoint one that is not finite, and ``names`` has the first of them. ``infinite`` has the values in which infinity does not count, because the
first checkpoint of the run had it. Numbers that are not finite are written as ``NaN``, ``Infinity`` and ``-Infinity``, as Python does.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from milepost.bundle import BundleReader
from milepost.coding.json_data import parse_object
from milepost.errors import CorruptCheckpointError, MilepostError, UnsupportedError
from milepost.graph.keys import METADATA

_MOST_NAMED: Final = 20
"""The most names of values that are saved with a checkpoint that is not finite."""


class Metadata(NamedTuple):
    """The metrics and metadata that were saved with a checkpoint.

    Attributes:
        metrics: The metrics, or None if none were given.
        metadata: The metadata, or None if none was given.
        left_out: The record of what the save has left out, or None if that is nothing.
        nonfinite: The first names of the values that make the checkpoint one that is not finite; empty if it is finite, or if nobody has looked.
        infinite: The names of the values in which infinity does not count; None if nobody has looked.
    """

    metrics: dict[str, Any] | None = None
    metadata: Any = None
    left_out: Any = None
    nonfinite: tuple[str, ...] = ()
    infinite: tuple[str, ...] | None = None


def plain_metrics(metrics: Any) -> dict[str, Any] | None:
    """Metrics as Python numbers.

    Args:
        metrics: A mapping of names to numbers, arrays of one element, or such mappings; or None.

    Raises:
        UnsupportedError: A metric is not a number. The error names it.

    Example:
        >>> plain_metrics({"loss": np.float32(0.5), "eval": {"steps": np.array([7])}})
        {'loss': 0.5, 'eval': {'steps': 7}}
    """
    if metrics is None:
        return None
    if not isinstance(metrics, Mapping):
        raise _wrong_metric(
            "metrics", metrics, "a dict of names and numbers", "pass a dict, such as metrics={'loss': 0.5}"
        )
    numbers: dict[str, Any] = {}
    for name, value in metrics.items():
        if not isinstance(name, str):
            raise _wrong_metric("metrics", name, "names that are text", "use str() of the name")
        numbers[name] = plain_metrics(value) if isinstance(value, Mapping) else _number(name, value)
    return numbers


def encode(metrics: Any, metadata: Any) -> bytes | None:
    """The text that a checkpoint holds, or None if there is nothing to hold.

    Args:
        metrics: As for `plain_metrics`.
        metadata: Anything that `json.dumps` takes, and NumPy's numbers and arrays, which become numbers and lists; or None.

    Raises:
        UnsupportedError: An argument is not accepted.

    Example:
        >>> encode({"loss": 0.5}, {"git": "1a2b3c"})
        b'{"metrics": {"loss": 0.5}, "metadata": {"git": "1a2b3c"}}'
    """
    numbers = plain_metrics(metrics)
    if numbers is None and metadata is None:
        return None
    try:
        return json.dumps({"metrics": numbers, "metadata": metadata}, default=_plain).encode()
    except (TypeError, ValueError, RecursionError) as error:
        why = "it has too many levels" if isinstance(error, RecursionError) else error
        raise UnsupportedError(
            f"metadata must be data that JSON can hold: {why}",
            key="metadata",
            expected="numbers, text, True, False, None, and lists and dicts of them, with text as the keys of dicts",
            found=reprlib.repr(metadata),
            remedy="convert the value to text or numbers; objects and arrays that a restore should bring back belong in the checkpoint",
        ) from None


def with_left_out(text: bytes | None, left_out: Mapping[str, Any]) -> bytes:
    """The text that `encode` has returned, with the record of what a save has left out.

    Example:
        >>> with_left_out(None, {"base": "a"})
        b'{"metrics": null, "metadata": null, "left_out": {"base": "a"}}'
    """
    return _with(text, left_out=left_out)


def marked(text: bytes | None, nonfinite: Sequence[str], infinite: Collection[str]) -> bytes:
    """The text of a checkpoint whose values were looked at.

    Args:
        text: What `encode` returned.
        nonfinite: The names of the values that make it one that is not finite.
        infinite: The names of the values in which infinity does not count.

    Example:
        >>> decode(marked(None, ["net/kernel"], []))
        Metadata(metrics=None, metadata=None, left_out=None, nonfinite=('net/kernel',), infinite=())
    """
    names = list(nonfinite[:_MOST_NAMED])
    return _with(text, nonfinite={"count": len(nonfinite), "names": names, "infinite": sorted(infinite)})


def _with(text: bytes | None, **members: Any) -> bytes:
    before = {"metrics": None, "metadata": None} if text is None else json.loads(text)
    return json.dumps({**before, **members}).encode()


def decode(text: bytes) -> Metadata:
    """The inverse of `encode` and `marked`.

    Raises:
        CorruptCheckpointError: The text is not in the form that milepost writes.
        UnsupportedError: It is too large.
    """
    parsed = parse_object(text, "the metadata of the checkpoint")
    metrics = parsed.get("metrics")
    if metrics is not None and not isinstance(metrics, dict):
        raise CorruptCheckpointError("metrics are a JSON object", found=f"{metrics!r:.80}")
    looked = parsed.get("nonfinite")
    if looked is None:
        return Metadata(metrics, parsed.get("metadata"), parsed.get("left_out"))
    if not isinstance(looked, dict) or not all(map(_are_names, (looked.get("names"), looked.get("infinite")))):
        raise CorruptCheckpointError("what is not finite is a JSON object with names", found=f"{looked!r:.80}")
    names, infinite = tuple(looked["names"]), tuple(looked["infinite"])
    return Metadata(metrics, parsed.get("metadata"), parsed.get("left_out"), names, infinite)


def read_metadata(reader: BundleReader) -> Metadata:
    """The metrics and metadata that were saved with an open checkpoint, or the metadata of a file of another library.

    Raises:
        CorruptCheckpointError: The metadata is damaged, or not in the form that milepost writes.
        UnsupportedError: It is too large.
    """
    if not reader.origin.is_checkpoint:
        return Metadata(None, reader.origin.metadata)
    if METADATA not in reader:
        return Metadata()
    try:
        if reader.spec(METADATA).shape != () or not reader.spec(METADATA).dtype.is_bytes:
            raise CorruptCheckpointError(
                "metadata is a string without dimensions", expected="string[]", found=str(reader.spec(METADATA))
            )
        return decode(reader.read(METADATA).item())
    except MilepostError as error:
        raise error.with_context(key=METADATA, file=reader.prefix) from None


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _number(name: str, value: Any) -> float | int:
    if isinstance(value, (bool, int, float)):
        return value
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        if isinstance(value, (np.ndarray, np.generic)) and value.size == 1 and value.dtype.kind in "biu":
            return int(value.item())
        return float(value.item() if isinstance(value, np.ndarray) else value)
    except Exception:  # a tensor of a framework may raise anything
        raise _wrong_metric(name, value, "a number, or an array or tensor of one element") from None


def _plain(value: Any) -> Any:
    """The value that `json.dumps` writes for an object that it does not know."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"an object of type {type(value).__module__}.{type(value).__qualname__} is not JSON")


def _wrong_metric(
    name: Any, value: Any, expected: str, remedy: str = "pass a number as the metric, and anything else as metadata="
) -> UnsupportedError:
    return UnsupportedError(
        "metrics are numbers",
        key=str(name),
        expected=expected,
        found=f"{value!r:.80} of type {type(value).__name__}",
        remedy=remedy,
    )
