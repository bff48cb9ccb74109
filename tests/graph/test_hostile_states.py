"""Plain state that nobody would write: refused by milepost's errors, within bounds of time and memory."""

import tracemalloc

import pytest

from milepost import CorruptCheckpointError
from milepost.plain_state.decoding import from_text
from milepost.plain_state.keys import KeyCheck

ALIKE = ",".join(str(number * ((1 << 61) - 1)) for number in range(20_000))
PAIRS = ",".join(f"[{number * ((1 << 61) - 1)},1]" for number in range(20_000))

HOSTILE = {
    "very many levels": "[" * 200_000 + "]" * 200_000,
    "a set of one hash": '{"!":"set","items":[' + ALIKE + "]}",
    "a frozen set of one hash": '{"!":"frozenset","items":[' + ALIKE + "]}",
    "keys with one hash": '{"!":"dict","items":[' + PAIRS + "]}",
    "ordered keys with one hash": '{"!":"OrderedDict","items":[' + PAIRS + "]}",
    "counted keys with one hash": '{"!":"Counter","items":[' + PAIRS + "]}",
    "default keys with one hash": '{"!":"defaultdict","factory":"int","items":[' + PAIRS + "]}",
    "a number of thousands of digits": "9" * 100_000,
    "objects of a shape of exabytes": '{"!":"objects","shape":[1000000000,1000000000],"items":[]}',
    "text of gigabytes": '{"!":"array","dtype":"<U1000000000","shape":[1],"base64":""}',
    "an array with a character that is none": '{"!":"array","dtype":"<U1","shape":[1],"base64":"////fw=="}',
    "a scalar with a character that is none": '{"!":"scalar","dtype":"<U1","base64":"////fw=="}',
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_every_hostile_text_is_refused(text):
    tracemalloc.start()
    try:
        with pytest.raises(CorruptCheckpointError) as caught:
            from_text(text, {})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(str(caught.value)) < 1000
    assert peak < 64 << 20


def test_ordinary_keys_of_any_number_are_allowed():
    check = KeyCheck()
    check.add(range(100_000))
    check.add(str(number) for number in range(100_000))
    check.add((1 << 61) + number for number in range(100_000))
    check.add(number / 7 for number in range(100_000))
    check.add((number, number + 1) for number in range(100_000))
    check.add([None, True, 1.5] * 1000)
