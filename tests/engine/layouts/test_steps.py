"""Arguments of steps, what they make, and that their inverses undo them."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from milepost.errors import MilepostError, MismatchError, UnsupportedError
from milepost.layouts import Concatenate, Reshape, Split, Stack, Transpose, Unstack, inverse
from tests.engine.layouts.files import flat, reader_of, saved

TYPES = ("float32", "float16", "int8", "int64", "bool", "complex64")


@st.composite
def weights(draw):
    """Blocks of equal arrays by name, and experts by number."""
    rank, dtype = draw(st.integers(1, 3)), draw(st.sampled_from(TYPES))
    shape = draw(st.lists(st.integers(0, 4), min_size=rank, max_size=rank))
    random = np.random.default_rng(draw(st.integers(0, 9)))
    names = [f"{block}/{name}/w" for block in range(draw(st.integers(1, 2))) for name in ("q", "k", "v")]
    names += [f"{block}/experts/{number}" for block in range(2) for number in range(draw(st.integers(1, 3)))]
    return {f"m/{name}": random.integers(0, 9, shape).astype(dtype) for name in names}


@st.composite
def steps(draw, rank):
    """Some steps that fit such weights, one after the other."""
    axis = st.integers(-rank, rank - 1)
    chosen = []
    if draw(st.booleans()):
        chosen.append(Transpose("m/*/q", axes=draw(st.none() | st.permutations(range(rank)).map(tuple))))
        chosen.append(Transpose("m/*/q", "m/*/queries", axes=chosen[0].inverse().axes))
        chosen.append(Concatenate(["m/*/queries", "m/*/k", "m/*/v"], "m/*/qkv", axis=draw(axis)))
    else:
        chosen.append(Concatenate(["**/q", "**/k", "**/v"], "**/qkv", axis=draw(axis)))
    if draw(st.booleans()):
        chosen.append(Reshape("m/*/qkv", old=(-1,), new=(1, -1), axis=draw(st.integers(0, rank - 1))))
    if draw(st.booleans()):
        chosen.append(Split("m/*/qkv", ["m/*/x", "m/*/y", "m/*/z"], axis=chosen[-1].axis if len(chosen) == 1 else 0))
    if draw(st.booleans()):
        chosen.append(Stack("m/*/experts/#", "m/*/mlp", axis=draw(st.integers(-rank - 1, rank))))
    return chosen


@given(weights(), st.data())
def test_the_inverse_gives_every_value_back(values, data):
    """Bit for bit, with its type, shape and name, after any steps that fit."""
    chosen = data.draw(steps(next(iter(values.values())).ndim))
    path, options = saved(values)
    try:
        there = flat(path, options, convert=chosen)
    except MismatchError:
        assume(False)  # a length that cannot be divided
    assert there.keys() != values.keys()
    back = flat(there, convert=inverse(chosen))
    assert back.keys() == values.keys()
    for name, value in values.items():
        assert (back[name].dtype, back[name].shape) == (value.dtype, value.shape)
        assert back[name].tobytes() == value.tobytes()


@given(weights(), st.data())
def test_steps_and_their_inverse_in_one_list_change_nothing(values, data):
    chosen = data.draw(steps(next(iter(values.values())).ndim))
    path, options = saved(values)
    try:
        back = flat(path, options, convert=[*chosen, *inverse(chosen)])
    except MismatchError:
        assume(False)
    assert {name: value.tobytes() for name, value in back.items()} == {
        name: value.tobytes() for name, value in values.items()
    }


@pytest.mark.parametrize(
    ("step", "array", "made"),
    [
        (Split("a", ["a", "b"]), np.arange(4), {"a": [0, 1], "b": [2, 3]}),
        (Split("a", ["a", "b"], sizes=(3, 1)), np.arange(4), {"a": [0, 1, 2], "b": [3]}),
        (Split("a", ["a", "b"], axis=-1), np.arange(4).reshape(2, 2), {"a": [[0], [2]], "b": [[1], [3]]}),
        (Unstack("a", "a/#"), np.arange(4).reshape(2, 2), {"a/0": [0, 1], "a/1": [2, 3]}),
        (Unstack("a", ["x", "y"], axis=1), np.arange(4).reshape(2, 2), {"x": [0, 2], "y": [1, 3]}),
        (Transpose("a"), np.arange(4).reshape(2, 2), {"a": [[0, 2], [1, 3]]}),
        (Transpose("a"), np.arange(2), {"a": [0, 1]}),
        (Transpose("a", "b", axes=(0, 2, 1)), np.arange(4).reshape(1, 2, 2), {"b": [[[0, 2], [1, 3]]]}),
        (Reshape("a", old=(4,), new=(2, 2)), np.arange(4), {"a": [[0, 1], [2, 3]]}),
        (Reshape("a", old=(2, -1), new=(-1,), target="b"), np.arange(4).reshape(2, 2), {"b": [0, 1, 2, 3]}),
    ],
)
def test_a_step_makes(step, array, made):
    assert {name: value.tolist() for name, value in flat({"a": array}, convert=[step]).items()} == made


def test_heads_in_turn_come_apart():
    """As in GPT-NeoX: q, k and v of the first head, then those of the second."""
    heads, width = 2, 3
    parts = {name: np.random.default_rng(0).random((heads * width, 4)) + number for number, name in enumerate("qkv")}
    qkv = np.concatenate([part[head * width :][:width] for head in range(heads) for part in parts.values()])
    steps = [
        Reshape("*/qkv", old=(-1,), new=(heads, 3, width)),
        Unstack("*/qkv", ["*/q", "*/k", "*/v"], axis=1),
        *(Reshape(f"*/{name}", old=(heads, width), new=(-1,)) for name in parts),
    ]
    made = flat({"a/qkv/weight": qkv, "a/qkv/bias": qkv[:, 0]}, convert=steps)
    assert all((made[f"a/{name}/weight"] == part).all() for name, part in parts.items())
    assert all((made[f"a/{name}/bias"] == part[:, 0]).all() for name, part in parts.items())
    back = flat(made, convert=inverse(steps))
    assert (back["a/qkv/weight"] == qkv).all()


def test_values_of_different_lengths_are_joined_with_their_sizes():
    tree = {"q": np.arange(4), "k": np.arange(2)}
    assert flat(tree, convert=[Concatenate(["q", "k"], "qk", sizes=(4, 2))])["qk"].tolist() == [0, 1, 2, 3, 0, 1]


@pytest.mark.parametrize(
    ("step", "shapes", "expected"),
    [
        (Concatenate(["a", "b"], "c"), [(4,), (2,)], "equal lengths along axis 0"),
        (Concatenate(["a", "b"], "c", sizes=(2, 2)), [(4,), (2,)], r"lengths \(2, 2\) along axis 0"),
        (Concatenate(["a", "b"], "c"), [(4, 2), (4, 3)], "equal lengths along all axes but axis 0"),
        (Concatenate(["a", "b"], "c"), [(4, 2), (4,)], "equal lengths along all axes"),
        (Concatenate(["a", "b"], "c", axis=1), [(4,), (4,)], "an axis 1"),
        (Split("a", ["x", "y"]), [(3,)], "a length along axis 0 that is a multiple of 2"),
        (Split("a", ["x", "y"], sizes=(1, 1)), [(3,)], "length 2 along axis 0, the sum of sizes"),
        (Stack(["a", "b"], "c"), [(4,), (2,)], "values of one shape"),
        (Unstack("a", ["x", "y"]), [(3,)], "length 2 along axis 0"),
        (Transpose("a", axes=(1, 0)), [(3,)], "2 axes, as axes has"),
        (Reshape("a", old=(2,), new=(1, 2)), [(3,)], "axes of lengths 2 from axis 0 on"),
        (Reshape("a", old=(-1,), new=(2, -1)), [(3,)], "axes of lengths -1 from axis 0 on"),
        (Reshape("a", old=(-1, -1)[:1], new=(1, -1), axis=1), [(3,)], "from axis 1 on"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(step, shapes, expected):
    tree = {name: np.zeros(shape) for name, shape in zip("ab", shapes, strict=False)}
    with pytest.raises(MismatchError, match="does not fit the saved values") as caught:
        reader_of(tree, [step])
    assert np.char.find(caught.value.expected, expected.replace("\\", "")) >= 0
    assert caught.value.file == "state"


def test_element_types_that_differ_are_refused():
    with pytest.raises(MismatchError) as caught:
        reader_of({"a": np.zeros(2), "b": np.zeros(2, np.float32)}, [Stack(["a", "b"], "c")])
    assert (caught.value.expected, caught.value.found) == ("values of one element type", "float64[2], float32[2]")


def test_the_remedy_for_different_lengths_is_the_argument_to_pass():
    with pytest.raises(MismatchError) as caught:
        reader_of({"q": np.zeros(4), "k": np.zeros(2)}, [Concatenate(["q", "k"], "qk")])
    assert "sizes=(4, 2)" in caught.value.remedy


@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        (Concatenate, {"sources": "q", "target": "qk"}),
        (Concatenate, {"sources": [], "target": "qk"}),
        (Concatenate, {"sources": ["q", "q"], "target": "qk"}),
        (Concatenate, {"sources": ["q", 3], "target": "qk"}),
        (Concatenate, {"sources": ["*/q", "k"], "target": "qk"}),
        (Concatenate, {"sources": ["q/#"], "target": "q"}),
        (Concatenate, {"sources": ["q", "k"], "target": "qk", "axis": "0"}),
        (Concatenate, {"sources": ["q", "k"], "target": "qk", "sizes": (4,)}),
        (Concatenate, {"sources": ["q", "k"], "target": "qk", "sizes": (4, 0)}),
        (Split, {"source": "qk", "targets": ["q", ""]}),
        (Split, {"source": "*/qk", "targets": ["*/q", "k"]}),
        (Stack, {"sources": "experts/w", "target": "w"}),
        (Stack, {"sources": "experts/#/#", "target": "w"}),
        (Stack, {"sources": "experts/#", "target": "w/#"}),
        (Unstack, {"source": "w", "targets": ["a/#", "b"]}),
        (Transpose, {"source": "a/**/b"}),
        (Transpose, {"source": "a", "axes": (0, 0)}),
        (Transpose, {"source": "a", "axes": (1, 2)}),
        (Transpose, {"source": None}),
        (Reshape, {"source": "a", "old": (4,), "new": (3,)}),
        (Reshape, {"source": "a", "old": (-1, -1), "new": (4,)}),
        (Reshape, {"source": "a", "old": (), "new": (4,)}),
        (Reshape, {"source": "a", "old": (4,), "new": (2, 2), "axis": -1}),
        (inverse, {"steps": [None]}),
        (inverse, {"steps": "steps"}),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(make, arguments):
    with pytest.raises(UnsupportedError, match="this argument cannot be used"):
        make(**arguments)


def test_what_is_no_step_is_refused_by_a_load():
    with pytest.raises(UnsupportedError) as caught:
        flat({"a": np.zeros(2)}, convert=["a"])
    assert caught.value.key == "convert"


def test_a_step_cannot_be_changed_by_the_caller_of_its_list():
    names = ["q", "k"]
    step = Concatenate(names, "qk")
    names.append("v")
    assert step.sources == ("q", "k")


def test_errors_of_steps_are_errors_of_milepost():
    with pytest.raises(MilepostError):
        reader_of({"a": np.zeros(2)}, [Transpose("b")])
