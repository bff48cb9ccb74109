"""Tensors of PyTorch whose instructions are carried out together: the same values, limits and errors as one instruction at a time."""

import io
import zipfile
from collections import OrderedDict
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost import MilepostError
from milepost.foreign import pickled
from milepost.foreign.opaque import Opaque
from milepost.foreign.pickled import BYTES_EACH, PickledData, _Machine
from milepost.foreign.stored import Stored
from milepost.foreign.torch_archive import TorchArchive
from milepost.foreign.zip_directory import Archive
from milepost.storage.local import LOCAL_STORAGE

torch = pytest.importorskip("torch")

SHAPES = [(), (3,), (2, 3), (2, 1, 300), (1, 2, 3, 4), (0,), (70_000,)]
FEW = 1 << 30
"""Bytes of a stream for which one more object is allowed, if the length is not to matter."""
DTYPES = [torch.float32, torch.float16, torch.int64, torch.bool]


def pickled_of(state):
    """The pickled data of a file of torch.save."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    with zipfile.ZipFile(buffer) as archive:
        return archive.read(next(name for name in archive.namelist() if name.endswith("data.pkl")))


def call(name, arguments):
    """Stands for the result of a call."""
    return ("called", name, arguments) if arguments else OrderedDict()


def call_of_few(name, arguments):
    """The same, as if calls for one shape were not known."""
    return Opaque(name, arguments) if arguments and arguments[2] == (2, 3) else call(name, arguments)


def resolve(identity):
    """Stands for a storage."""
    return identity


def resolve_few(identity):
    """The same, but one storage is missing."""
    if identity[2] == "66":
        raise ValueError("no such storage")
    return identity


def after(data, call=call, resolve=resolve, bytes_each=BYTES_EACH):
    """What a stream leaves: its value or error, what is remembered, and what may still be made and copied."""
    stream = PickledData(data, lambda name: name, call, lambda value, _: value, resolve, bytes_each)
    machine = _Machine(stream)
    try:
        result = shown(machine.run())
    except (MilepostError, *pickled._OF_DAMAGE) as error:
        result = type(error), str(error), stream.position
    return result, shown(machine._memo), shown(machine._others), machine._may_make, machine._may_copy


def shown(value):
    """A value as text, in which an object that is there twice is told from two equal ones."""
    places = {}

    def text(each):
        if not isinstance(each, (Opaque, dict, list)):
            return f"tuple {[*map(text, each)]}" if type(each) is tuple else f"{type(each).__name__} {each!r}"
        is_new = id(each) not in places
        name = f"{type(each).__name__} {places.setdefault(id(each), len(places))}"
        if not is_new:  # it may hold itself
            return name
        if isinstance(each, Opaque):
            return f"{name}: {each.name} {text(each.arguments)}"
        if isinstance(each, dict):
            return f"{name}: {[(text(k), text(v)) for k, v in each.items()]}"
        return f"{name}: {[*map(text, each)]}"

    return text(value)


def one_by_one(data, **options):
    with patch.object(pickled, "run_at", lambda *_: None):
        return after(data, **options)


FIRST = {f"first.{place}": torch.zeros(1, dtype=DTYPES[place % len(DTYPES)]) for place in range(60)}
"""Tensors whose instructions are carried out one by one. What later ones need is remembered then, under numbers of more than one byte."""
carry_out_run = _Machine._carry_out_run
BEFORE = len(pickled_of({"first": FIRST})) - 3
"""Bytes before the tensors that are drawn."""


def state_of(tensors):
    """Tensors of which those in the second dict are carried out together."""
    drawn = {
        f"layer.{place}": torch.zeros(3, dtype=dtype).expand(2, 3) if is_repeated else torch.zeros(shape, dtype=dtype)
        for place, (shape, dtype, is_repeated) in enumerate(tensors)
    }
    return {"first": FIRST, "second": drawn}


STATES = st.lists(
    st.tuples(st.sampled_from(SHAPES), st.sampled_from(DTYPES), st.booleans()), min_size=2, max_size=12
).map(state_of)


def together(data):
    """How many tensors are carried out together."""
    counts = []

    def noted(machine, position):
        before = len(machine._stack)
        end = carry_out_run(machine, position)
        counts.append((len(machine._stack) - before) // 2)
        return end

    with patch.object(_Machine, "_carry_out_run", noted):
        after(data)
    return sum(counts)


def test_the_second_and_third_thousand_of_a_dict_are_carried_out_together():
    assert together(pickled_of({f"w{place:04}": torch.zeros(2, 2) for place in range(3000)})) == 2000


@given(STATES)
def test_the_second_dict_is_carried_out_together(state):
    assert together(pickled_of(state)) == len(state["second"])


@given(STATES)
def test_a_file_has_the_same_values_and_costs(state):
    data = pickled_of(state)
    assert after(data) == one_by_one(data)


@given(STATES)
def test_a_call_that_is_not_known_has_the_same_result_and_cost(state):
    data = pickled_of(state)
    assert after(data, call=call_of_few) == one_by_one(data, call=call_of_few)


@given(STATES)
def test_a_missing_storage_gives_the_same_error_at_the_same_byte(state):
    data = pickled_of(state)
    assert after(data, resolve=resolve_few) == one_by_one(data, resolve=resolve_few)


def test_a_long_file_has_the_same_values_and_costs():
    data = pickled_of({f"w{place:04}": torch.zeros(SHAPES[place % 7]) for place in range(3000)})
    assert after(data) == one_by_one(data)


@given(STATES, st.data())
def test_a_damaged_file_has_the_same_values_costs_and_errors(state, draw):
    data = bytearray(pickled_of(state))
    for _ in range(draw.draw(st.integers(1, 3))):
        place = draw.draw(st.integers(BEFORE, len(data) - 1))
        data[place] = draw.draw(st.one_of(st.integers(0, 255), st.sampled_from(b"(KMJXhjqrtQR)\x85\x86\x87\x88\x89u.")))
    data = bytes(data)
    assert after(data) == one_by_one(data)


SIX = pickled_of({"first": FIRST, "second": {f"w{place}": torch.zeros(2, 2) for place in range(6)}})


SHARED = torch.ones(4)
MEMBERS = {
    "plain": lambda: torch.ones(2, 3),
    "of another type": lambda: torch.ones(3, dtype=torch.bfloat16),
    "part of a storage": lambda: torch.arange(24.0)[4:8],
    "another part": lambda: torch.arange(24.0)[8:12],
    "shared": lambda: SHARED,
    "transposed": lambda: torch.arange(24.0).view(4, 6).t(),
    "repeated": lambda: torch.ones(1).expand(5),
    "scalar": lambda: torch.tensor(3),
    "parameter": lambda: torch.nn.Parameter(torch.ones(2)),
    "quantised": lambda: torch.quantize_per_tensor(torch.ones(2), 0.5, 0, torch.qint8),
}


def opened(path):
    """What a file of PyTorch holds: each value with its place; or the error that it is refused with."""
    file = LOCAL_STORAGE.open(str(path))
    try:
        archive = TorchArchive(Archive(file))
    except MilepostError as error:
        return type(error), error.problem, error.expected, error.found
    try:
        values = {
            group: {name: (each.spec, each.place) if isinstance(each, Stored) else shown(each)
                    for name, each in members.items()}
            for group, members in archive.tree.items()
        }  # fmt: skip
        return values, archive._storages.records
    finally:
        archive.close()


def saved(state, path, change=lambda name, data: (name, data)):
    """A file of PyTorch whose records are changed on the way."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    with zipfile.ZipFile(buffer) as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            changed = change(name, source.read(name))
            if changed is not None:
                target.writestr(*changed)
    return path


@given(st.lists(st.sampled_from([*MEMBERS]), min_size=2, max_size=12))
def test_many_tensors_are_what_each_is_alone(tmp_path_factory, kinds):
    state = {"first": FIRST, "second": {f"w{place}": MEMBERS[kind]() for place, kind in enumerate(kinds)}}
    path = saved(state, tmp_path_factory.mktemp("torch") / "state.pt")
    found = opened(path)
    with patch.object(pickled, "run_at", lambda *_: None):
        assert opened(path) == found
    assert len(found[0]["second"]) == len(kinds)


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda name, data: None if name.endswith("/data/65") else (name, data), "missing or cut off"),
        (lambda name, data: (name, data[:4]) if name.endswith("/data/65") else (name, data), "missing or cut off"),
        (lambda name, data: (name, data.replace(b"FloatStorage", b"FleetStorage")), ""),
    ],
    ids=["no record", "short record", "unknown class"],
)
def test_a_file_with_a_bad_storage_is_refused_alike(tmp_path, harm, said):
    path = saved(
        {"first": FIRST, "second": {f"w{place}": torch.ones(2, 2) for place in range(9)}}, tmp_path / "a.pt", harm
    )
    found = opened(path)
    with patch.object(pickled, "run_at", lambda *_: None):
        assert opened(path) == found
    if said:
        assert said in found[1]


@pytest.mark.parametrize("limit", ["_MOST_MADE", "_MOST_MEMO"])
def test_a_limit_is_met_at_the_same_tensor(limit):
    needed = fewest(limit)
    for most in range(needed - 60, needed + 1):
        with patch.object(pickled, limit, most):
            assert after(SIX, bytes_each=FEW) == one_by_one(SIX, bytes_each=FEW)


def fewest(limit):
    """The lowest limit under which the file of six tensors is read."""

    def is_refused(most):
        with patch.object(pickled, limit, most):
            return isinstance(one_by_one(SIX, bytes_each=FEW)[0], tuple)

    return next(most for most in range(2000) if not is_refused(most))
