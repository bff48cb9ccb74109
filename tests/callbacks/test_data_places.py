"""Every kind of data, interrupted after every batch and every epoch, three times in a row: the batches of a whole run."""

import random

import numpy as np
import pytest

import milepost
from milepost.callbacks.plain_data import from_json
from tests.callbacks.readings import Run, differences

X = np.arange(8, dtype="float32").reshape(8, 1)


class Passes:
    """Batches in an order that a pass gives; counts passes before the first batch."""

    def __init__(self):
        self.passes = 0

    def __len__(self):
        return 4

    def __iter__(self):
        order = self.order()
        for start in range(0, 8, 2):
            yield X[order[start : start + 2]], X[order[start : start + 2]]

    def order(self):
        self.passes += 1
        return np.random.default_rng(self.passes).permutation(8)


class WithoutLength(Passes):
    __len__ = None  # type: ignore[assignment]


class CountsAtTheEnd(Passes):
    def __iter__(self):
        yield from super().__iter__()
        self.passes += 1

    def order(self):
        return np.random.default_rng(self.passes).permutation(8)


class OwnGenerator(Passes):
    def __init__(self, generator):
        self.generator = generator

    def order(self):
        return self.generator.permutation(8)


class LaterGenerator(Passes):
    """Makes a generator with the first pass."""

    def __init__(self):
        pass

    def order(self):
        if not hasattr(self, "generator"):
            self.generator = np.random.default_rng(5)
        return self.generator.permutation(8)


class ShuffledList(Passes):
    def __init__(self):
        self.rows = list(range(8))
        self.random = random.Random(2)

    def order(self):
        self.random.shuffle(self.rows)
        return self.rows


class Row:
    def __init__(self, number):
        self.number = number


class ShuffledObjects(ShuffledList):
    def __init__(self):
        super().__init__()
        self.rows = [Row(number) for number in range(8)]

    def order(self):
        return [row.number for row in super().order()]


class ShuffledArray(Passes):
    def __init__(self):
        self.array = X.copy()
        self.generator = np.random.default_rng(5)

    def __iter__(self):
        self.generator.shuffle(self.array)
        for start in range(0, 8, 2):
            yield self.array[start : start + 2].copy(), X[:2]


class Nested(Passes):
    def __init__(self):
        self.parts = {"first": Passes(), "second": [OwnGenerator(np.random.RandomState(5))]}

    def __iter__(self):
        for first, second in zip(self.parts["first"], self.parts["second"][0], strict=True):
            yield first[0] + second[0], first[1]


class OfTheClass(Passes):
    count = 0

    def __init__(self):
        OfTheClass.count = 0

    def order(self):
        OfTheClass.count += 1
        return np.random.default_rng(OfTheClass.count).permutation(8)


GENERATOR = np.random.default_rng(5)
COUNT = 0


class OfTheModule(Passes):
    def __init__(self):
        global GENERATOR
        GENERATOR = np.random.default_rng(5)

    def order(self):
        return [row for row in GENERATOR.permutation(8)]  # noqa: C416 - a function in a function, in older Pythons


class CountsInTheModule(Passes):
    def order(self):
        global COUNT
        COUNT += 1
        return np.random.default_rng(COUNT).permutation(8)


def of_a_closure():
    generator = np.random.default_rng(5)

    class Data(Passes):
        def order(self):
            return generator.permutation(8)

    return Data()


class Iterating:
    """An iterator that tells where it is in an order that it was made with."""

    def __init__(self, order):
        self.order, self.place = order, 0

    def __iter__(self):
        return self

    def __next__(self):
        self.place += 2
        if self.place > 8:
            raise StopIteration
        rows = self.order[self.place - 2 : self.place]
        return X[rows], X[rows]

    def state_dict(self):
        return {"place": self.place}

    def load_state_dict(self, state):
        self.place = state["place"]


class IteratorsWithState(Passes):
    def __iter__(self):
        return Iterating(self.order())


class EndMeansFinished(Passes):
    """State after the last batch leads to an empty iterator, and the one after that begins the next pass."""

    def __init__(self):
        self.passes = self.place = 0

    def __iter__(self):
        order = np.random.default_rng(self.passes).permutation(8)
        while self.place < 8:
            self.place += 2
            rows = order[self.place - 2 : self.place]
            yield X[rows], X[rows]
        self.place = 0
        self.passes += 1

    def state_dict(self):
        return {"passes": self.passes, "place": self.place}

    def load_state_dict(self, state):
        self.passes, self.place = state["passes"], state["place"]


class EndMeansNext(EndMeansFinished):
    """State after the last batch is that of the beginning of the next pass."""

    def __iter__(self):
        order = np.random.default_rng(self.passes).permutation(8)
        for start in range(self.place, 8, 2):
            self.place = start + 2
            if self.place == 8:
                self.place, self.passes = 0, self.passes + 1
            yield X[order[start : start + 2]], X[order[start : start + 2]]


def without_length(kind):
    return type(kind.__name__, (kind,), {"__len__": None})


class Endless:
    def __init__(self):
        self.generator = np.random.default_rng(5)

    def __iter__(self):
        while True:
            yield self.generator.normal(size=(2, 1)), X[:2]


class Stream(Endless):
    def __iter__(self):
        return self

    def __next__(self):
        return self.generator.normal(size=(2, 1)), X[:2]

    def get_state(self):
        return self.generator.bit_generator.state

    def set_state(self, state):
        self.generator.bit_generator.state = state


ITERABLES = {
    "a count of passes": Passes,
    "a count of passes, without length": WithoutLength,
    "a count after the last batch": CountsAtTheEnd,
    "a count after the last batch, without length": without_length(CountsAtTheEnd),
    "a generator": lambda: OwnGenerator(np.random.default_rng(5)),
    "a legacy generator": lambda: OwnGenerator(np.random.RandomState(5)),
    "a generator that is made later": LaterGenerator,
    "a list that is shuffled": ShuffledList,
    "a list of objects that is shuffled": ShuffledObjects,
    "an array that is shuffled": ShuffledArray,
    "objects in containers": Nested,
    "an attribute of the class": OfTheClass,
    "a generator of the module": OfTheModule,
    "a variable of a function": of_a_closure,
    "iterators with state": IteratorsWithState,
    "iterators with state, without length": without_length(IteratorsWithState),
    "state whose end means finished": EndMeansFinished,
    "state whose end means finished, without length": without_length(EndMeansFinished),
    "state whose end means the next pass": EndMeansNext,
    "state whose end means the next pass, without length": without_length(EndMeansNext),
}


@pytest.mark.parametrize("kind", list(ITERABLES))
def test_iterables_go_on_with_the_next_batch(kind):
    assert differences(ITERABLES[kind]) == []


def test_a_variable_of_the_module_that_reading_assigns_is_named(monkeypatch):
    monkeypatch.setattr(f"{__name__}.COUNT", 0)
    run = Run(CountsInTheModule)
    with pytest.warns(milepost.MilepostWarning, match=r"order\.COUNT, .* has changed, and is not saved.* attribute"):
        run.read(None, ("batch", 5))


@pytest.mark.parametrize("kind", ["a count of passes", "a generator", "state whose end means finished"])
def test_trainers_may_read_ahead(kind):
    assert differences(ITERABLES[kind], ahead=2) == []


@pytest.mark.parametrize("make", [Endless, Stream, WithoutLength, without_length(EndMeansFinished)])
@pytest.mark.parametrize("ahead", [0, 2])
def test_passes_go_on_across_epochs_of_so_many_steps(make, ahead):
    assert differences(make, steps=3, ahead=ahead) == []


@pytest.mark.parametrize("steps", [2, 3, 7])
def test_arrays_go_on_across_epochs_of_so_many_steps(steps):
    assert differences(lambda: (X, X, None), steps=steps) == []


def test_arrays_with_a_shorter_last_batch_go_on_with_the_next_batch():
    assert differences(lambda: (X, X, None), batch_size=3) == []


class TestLoaders:
    """Of PyTorch."""

    @pytest.fixture
    def data(self):
        return pytest.importorskip("torch.utils.data", reason="these are loaders of PyTorch")

    @pytest.fixture
    def make(self, data):
        import torch

        class Noisy(data.Dataset):
            def __init__(self):
                self.generator, self.count = np.random.default_rng(5), 0

            def __len__(self):
                return 8

            def __getitem__(self, index):
                self.count += 1
                value = torch.tensor([index + 0.1 * self.count + self.generator.normal()])
                return value, value

        class Iterated(data.IterableDataset):
            def __init__(self):
                self.passes = 0

            def __iter__(self):
                self.passes += 1
                for index in np.random.default_rng(self.passes).permutation(8):
                    yield torch.tensor([float(index)]), torch.tensor([0.0])

        class Shuffled(data.Sampler):
            def __init__(self):
                self.epoch = 0

            def set_epoch(self, epoch):
                self.epoch = epoch

            def __iter__(self):
                return iter(np.random.default_rng(self.epoch).permutation(8).tolist())

            def __len__(self):
                return 8

        class Counting(Shuffled):
            def __iter__(self):
                yield from super().__iter__()
                self.epoch += 1

        def generator():
            return torch.Generator().manual_seed(3)

        plain = data.TensorDataset(torch.from_numpy(X), torch.from_numpy(X))
        loaders = {
            "a generator": lambda kind: kind(plain, 2, shuffle=True, generator=generator()),
            "a generator of the sampler": lambda kind: kind(
                plain, 2, sampler=data.RandomSampler(plain, generator=generator())
            ),
            "a data set that changes": lambda kind: kind(Noisy(), 2, shuffle=True),
            "an iterated data set that counts": lambda kind: kind(Iterated(), 2),
            "a sampler that counts": lambda kind: kind(plain, 2, sampler=Counting()),
            "a sampler that is told": lambda kind: kind(plain, 2, sampler=Shuffled()),
        }
        return lambda name, kind: lambda: loaders[name](kind)

    NAMES = (
        "a generator",
        "a generator of the sampler",
        "a data set that changes",
        "an iterated data set that counts",
        "a sampler that counts",
    )

    @pytest.mark.parametrize("name", NAMES)
    def test_without_state_go_on_with_the_next_batch(self, data, make, name):
        assert differences(make(name, data.DataLoader)) == []

    @pytest.mark.parametrize("name", NAMES)
    def test_with_state_go_on_with_the_next_batch(self, make, name):
        loaders = pytest.importorskip("torchdata.stateful_dataloader", reason="these are torchdata's")
        assert differences(make(name, loaders.StatefulDataLoader), epochs=2) == []

    def test_whose_sampler_is_told_the_epoch_go_on_with_the_next_batch(self, data, make):
        assert (
            differences(
                make("a sampler that is told", data.DataLoader),
                on_epoch=lambda loader, epoch: loader.sampler.set_epoch(epoch),
            )
            == []
        )

    @pytest.mark.timeout(300)
    def test_with_persistent_workers_start_them_with_each_pass(self, data, make):
        def loader():
            return data.DataLoader(
                make("a data set that changes", data.DataLoader)().dataset, 4, num_workers=1, persistent_workers=True
            )

        assert differences(loader, epochs=2) == []


class TestHuggingFace:
    @pytest.fixture
    def make(self):
        datasets = pytest.importorskip("datasets", reason="these are data sets of Hugging Face")

        def make(buffer_size=None):
            rows = datasets.Dataset.from_dict({"x": X[:, 0].tolist()}).to_iterable_dataset(num_shards=2)
            rows = rows if buffer_size is None else rows.shuffle(seed=3, buffer_size=buffer_size)
            return rows.batch(2)

        return make

    def test_goes_on_with_the_next_batch(self, make):
        assert differences(make, epochs=2) == []

    def test_that_shuffles_in_a_buffer_is_read_again(self, make):
        assert differences(lambda: make(4), epochs=2) == []

    def test_that_is_told_the_epoch_goes_on_with_the_next_batch(self, make):
        assert differences(lambda: make(1), epochs=2, on_epoch=lambda data, epoch: data.set_epoch(epoch)) == []


class TestRefused:
    def place(self, make, **options):
        text = Run(make, **options).read(None, ("batch", 2))[1]
        return from_json(text)["place"]

    def test_is_other_data_of_the_same_length(self):
        place = self.place(lambda: (X, X, None))
        with pytest.raises(milepost.MismatchError, match="different values"):
            Run(lambda: (X + 1, X, None)).feed.check(place)

    def test_is_another_batch_size_of_as_many_batches(self):
        place = self.place(lambda: (X[:7], X[:7], None), batch_size=4)
        with pytest.raises(milepost.MismatchError, match="a different batch_size"):
            Run(lambda: (X[:7], X[:7], None), batch_size=5).feed.check(place)

    def test_is_another_kind_of_data(self):
        place = self.place(lambda: (X, X, None))
        with pytest.raises(milepost.MismatchError, match="a different kind"):
            Run(Passes).feed.check(place)

    def test_is_data_that_holds_an_iterator(self):
        class Data(Passes):
            def __init__(self):
                self.rows = iter(range(8))

        with pytest.raises(milepost.UnsupportedError, match="holds an iterator"):
            Run(Data)

    def test_is_data_that_makes_an_iterator_while_it_is_read(self):
        class Data(Passes):
            rows = None

            def order(self):
                self.rows = self.rows or iter(range(100))
                return [next(self.rows) % 8 for _ in range(8)]

        with pytest.raises(milepost.UnsupportedError, match="cannot be read twice"):
            Run(Data).read(None, ("epoch", 0))

    @pytest.mark.parametrize("data", [[[1, 2], [3, 4]], map(abs, [1]), zip([1], [2], strict=True)])
    def test_is_what_gives_no_batches_twice(self, data):
        with pytest.raises(milepost.UnsupportedError):
            Run(lambda: data)


def test_passes_of_different_lengths_are_warned_of():
    class Growing(WithoutLength):
        def __iter__(self):
            yield from list(super().__iter__())[: 1 + self.passes]

    with pytest.warns(milepost.MilepostWarning, match="steps_per_epoch"):
        Run(Growing).read()


def test_what_changes_and_cannot_be_saved_is_warned_of():
    class Opens(Passes):
        handle = None

        def order(self):
            self.handle = self.handle or object()
            return super().order()

    with pytest.warns(milepost.MilepostWarning, match="reading the data sets handle"):
        Run(Opens).read()


class StaysAtItsEnd(Passes):
    """State that a restored object is given begins every pass, so one of a finished pass leaves none."""

    def __init__(self):
        self.start = self.place = 0

    def __iter__(self):
        for place in range(self.start, 8, 2):
            self.place = place + 2
            yield X[place : place + 2], X[place : place + 2]

    def get_state(self):
        return self.place

    def set_state(self, state):
        self.start = self.place = state


def test_data_that_stays_at_its_end_is_warned_of_when_it_is_resumed():
    whole = Run(StaysAtItsEnd).read()[0]
    place = Run(StaysAtItsEnd).read(None, ("epoch", 0))[1]
    with pytest.warns(milepost.MilepostWarning, match="StaysAtItsEnd returned no batch after the end of a pass"):
        rest = Run(StaysAtItsEnd).read(place)[0]
    assert rest == whole[4:]


def test_a_loader_of_nodes_is_warned_of():
    nodes = pytest.importorskip("torchdata.nodes")
    torch = pytest.importorskip("torch")

    def make():
        sampler = torch.utils.data.RandomSampler(range(8))
        return nodes.Loader(nodes.Batcher(nodes.SamplerWrapper(sampler), 2))

    with pytest.warns(milepost.MilepostWarning, match=r"torchdata\.nodes"):
        Run(make)
