"""Metadata is read as milepost writes it."""

import numpy as np
import pytest

from milepost.errors import CorruptCheckpointError
from milepost.graph.keys import METADATA
from milepost.series.metadata import Metadata, read_metadata
from tests.bundle.bundles import bundle


def test_a_checkpoint_without_metadata_has_none():
    with bundle({"a": np.zeros(2)}) as reader:
        assert read_metadata(reader) == Metadata()


@pytest.mark.parametrize("value", [np.array([b"{}"], object), np.float32(1)], ids=["a list", "a number"])
def test_metadata_of_another_form_is_refused(value):
    with (
        bundle({METADATA: value}) as reader,
        pytest.raises(CorruptCheckpointError, match="without dimensions") as caught,
    ):
        read_metadata(reader)
    assert (caught.value.key, caught.value.file) == (METADATA, "x")
