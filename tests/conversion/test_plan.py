"""Which tensors a format can hold beside each other, and under which names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from milepost import Checkpoint, UnsupportedError, Variable
from milepost.bundle import BundleReader, open_bundle
from milepost.conversion.names import GivenNames
from milepost.conversion.plan import planned
from milepost.storage.default import DEFAULT_STORAGE
from milepost.tensor import DType


@pytest.fixture
def reader(prefix: str) -> Iterator[BundleReader]:
    values = {"one": np.zeros(2), "two": np.zeros(2, np.int32), "three": np.array([b"text"], object)}
    Checkpoint(**{name: Variable(value) for name, value in values.items()}).write(prefix)
    with open_bundle(DEFAULT_STORAGE, prefix) as reader:
        yield reader


def any_type(dtype: DType) -> bool:
    return True


@pytest.mark.parametrize(
    ("one", "two", "fits"),
    [
        ("a", "a/b", False),
        ("a", "a/b/c", False),
        ("a/b/c/d", "a", False),
        ("a/b", "a/b/c/d", False),
        ("a", "b/a/c", True),
        ("a/b", "a/c/d", True),
        ("a", "ab/c", True),
    ],
)
def test_no_tensor_is_below_another_one_in_a_format_of_folders(
    reader: BundleReader, one: str, two: str, fits: bool
) -> None:
    """However many levels below."""
    names = GivenNames({"one": [one], "two": [two]})
    assert len(planned(reader, names, any_type).tensors) == 2
    if fits:
        assert len(planned(reader, names, any_type, nests=True).tensors) == 2
    else:
        with pytest.raises(UnsupportedError, match="below another one") as caught:
            planned(reader, names, any_type, nests=True)
        assert [caught.value.found, caught.value.key] == sorted([one, two])


def test_two_tensors_of_one_name_are_refused(reader: BundleReader) -> None:
    with pytest.raises(UnsupportedError, match="the same name"):
        planned(reader, GivenNames({"one": ["a"], "two": ["a"]}), any_type)
    with pytest.raises(UnsupportedError, match="the same name"):
        planned(reader, GivenNames({"one": ["a/b"], "two": ["a.b"]}), any_type, dots=True)
    assert len(planned(reader, GivenNames({"one": ["a/b"], "two": ["a.b"]}), any_type).tensors) == 2


def test_what_becomes_of_each(reader: BundleReader) -> None:
    def accepts(dtype: DType) -> bool:
        return dtype.name in ("float32", "int32")

    names = GivenNames({"one": ["1"], "two": ["2"], "three": ["3"]})
    found: Any = planned(reader, names, accepts)
    key = "{}/.ATTRIBUTES/VARIABLE_VALUE".format
    assert [each.name for each in found.tensors] == ["2"]
    assert found.left_out == {
        key("one"): "the format has no float64; pass dtype='float32' to convert it",
        key("three"): "text",
    }
    found = planned(reader, names, accepts, dtype=DType.of("float32"))
    assert [(each.name, each.spec.dtype.name) for each in found.tensors] == [("1", "float32"), ("2", "int32")]
    found = planned(reader, GivenNames({"two": ["2"]}), accepts)
    assert {key("one"), key("three")} <= set(found.unwanted)
    assert key("two") not in found.unwanted
    found = planned(reader, names, accepts, lambda tensor: "too large" if tensor.name == "2" else None)
    assert found.left_out[key("two")] == "too large"
