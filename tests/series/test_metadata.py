"""Metadata is read as milepost writes it."""

import numpy as np
import pytest

from milepost.errors import CorruptCheckpointError
from milepost.graph.keys import METADATA
from milepost.series.metadata import Metadata, decode, encode, marked, read_metadata
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


class TestMarks:
    """What a manager has found that is not finite."""

    def test_they_are_added_to_metrics_and_metadata(self):
        text = marked(encode({"loss": 0.5}, {"run": "a"}), ["net/kernel"], {"mask"})
        assert decode(text) == Metadata({"loss": 0.5}, {"run": "a"}, None, ("net/kernel",), ("mask",))

    def test_a_checkpoint_that_nobody_has_looked_at_has_none(self):
        found = decode(encode({"loss": 0.5}, None))
        assert (found.nonfinite, found.infinite) == ((), None)

    @pytest.mark.parametrize(
        "text", [b'{"nonfinite": 3}', b'{"nonfinite": {"names": [1], "infinite": []}}', b'{"nonfinite": {"names": []}}']
    )
    def test_what_is_malformed_is_refused(self, text):
        with pytest.raises(CorruptCheckpointError, match="not finite"):
            decode(text)
