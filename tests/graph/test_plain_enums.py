"""Members of enumerations in plain state."""

import enum
import json
import sys

import numpy as np
import pytest

from milepost.errors import MilepostError, UnsupportedError
from milepost.plain_state.decoding import unpack
from milepost.plain_state.encoding import TEXT, pack


class Colour(enum.Enum):
    RED = 1
    BLUE = "b"


class Number(enum.IntEnum):
    ONE = 1


class Way(enum.Flag):
    IN = 1
    OUT = 2


class Outer:
    class Inner(enum.Enum):
        ONLY = 1


@pytest.mark.parametrize("member", [Colour.RED, Colour.BLUE, Number.ONE, Way.OUT, Outer.Inner.ONLY])
def test_a_member_comes_back_as_itself(member):
    assert unpack(pack({"kind": [member]}))["kind"][0] is member


@pytest.mark.parametrize(
    "member",
    [enum.Enum("Made", "ONE")["ONE"], Way.IN | Way.OUT],  # type: ignore[index]
    ids=["of no module", "of no name"],
)
def test_a_member_that_cannot_be_found_again_is_refused(member):
    with pytest.raises(UnsupportedError, match="cannot be saved"):
        pack({"kind": member})


@pytest.mark.parametrize(
    "changes",
    [
        {"module": "colorsys_that_is_nowhere"},
        {"module": "os", "class": "system"},
        {"class": "Outer"},
        {"class": "Colour.RED"},
        {"name": "GREEN"},
        {"name": "__class__"},
        {"name": []},
        {"module": []},
        {"class": 3},
    ],
)
def test_a_text_that_names_something_else_is_an_error_and_imports_nothing(changes):
    packed = pack(Colour.RED)
    text = json.loads(packed[TEXT].item())
    text["value"].update(changes)
    before = set(sys.modules)
    with pytest.raises(MilepostError):
        unpack({TEXT: np.array(json.dumps(text).encode(), object)})
    assert set(sys.modules) == before
