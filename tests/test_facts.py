"""Facts of objects: one sidecar for each object, by identity, for as long as the object lives."""

import copy
import threading
import weakref

import numpy as np
import pytest

from milepost import facts
from milepost.facts import Fact, ListedFact, reference_to


class Thing:
    """Equal to all others of its class, and without a hash."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other):
        return isinstance(other, Thing)


@pytest.fixture(params=[Fact, ListedFact])
def kind(request):
    return request.param


def test_facts_of_an_object_do_not_disturb_each_other(kind):
    thing, other, color, size = Thing(), Thing(), kind(), kind()
    assert color.put(thing, "red") is None
    assert size.put(thing, 3) is None
    assert color.put(thing, "blue") == "red"
    assert (color.get(thing), size.get(thing), color.get(other), size.get(other)) == ("blue", 3, None, None)
    assert color.pop(thing) == "blue"
    assert color.pop(thing) is None
    assert thing not in color
    assert size.pop(thing) == 3
    assert thing not in size


def test_facts_end_with_their_object(kind):
    color, size = kind(), kind()
    before = len(facts._sidecars), len(facts._others)
    thing = Thing()
    color[thing], size[thing] = "red", 3
    assert (len(facts._sidecars), len(facts._others)) == (before[0] + 1, before[1] + 1)
    del thing
    assert (len(facts._sidecars), len(facts._others)) == before


def test_a_copy_has_no_facts(kind):
    thing, color = Thing(), kind()
    color[thing] = "red"
    assert copy.deepcopy(thing) not in color
    assert vars(thing) == {}


def test_an_object_that_allows_no_weak_reference_has_facts_only_if_it_is_kept(kind):
    color, size = kind(), kind()
    scalar = np.float32(0.5)
    with pytest.raises(TypeError):
        color.put(scalar, "red")
    color.keep(scalar, "red")
    size[scalar] = 3
    assert (color.get(scalar), size.get(scalar)) == ("red", 3)
    assert color.get(np.float32(0.5)) is None


def test_objects_are_listed_while_they_live_and_have_the_fact():
    color, size = ListedFact(), ListedFact()
    first, second, third = Thing(), Thing(), Thing()
    size[second] = 3
    for each in (first, second, third):
        color[each] = "red"
    assert [id(each) for each, _ in color.items()] == [id(first), id(second), id(third)]
    color.pop(first)
    del second
    assert [(each is third, value) for each, value in color.items()] == [(True, "red")]
    assert (len(color), len(size)) == (1, 0)
    assert [*size.items()] == []


def test_an_object_with_the_identity_of_one_whose_end_was_interrupted_has_no_facts():
    thing, color, size = Thing(), ListedFact(), ListedFact()
    color[thing], size[thing] = "red", 3
    sidecar = facts._sidecars[id(thing)]
    gone = facts._Sidecar(Thing(), None)
    gone.identity, gone.fact, gone.value = id(thing), color, "red"
    facts._sidecars[id(thing)] = gone
    assert thing not in color
    assert thing not in size
    color[thing] = "blue"
    assert (color.get(thing), size.get(thing), len(size)) == ("blue", None, 0)
    assert sidecar() is thing


def test_threads_that_set_different_facts_of_one_object_lose_none():
    kinds = [Fact() for _ in range(4)]
    barrier = threading.Barrier(len(kinds))

    def put(fact, things):
        for number, thing in enumerate(things):
            if number % 50 == 0:
                barrier.wait()
            fact[thing] = number

    things = [Thing() for _ in range(500)]
    threads = [threading.Thread(target=put, args=(each, things)) for each in kinds]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert all(fact.get(thing) == number for fact in kinds for number, thing in enumerate(things))


def test_a_reference_keeps_only_what_allows_no_weak_reference():
    thing, scalar = Thing(), np.float32(0.5)
    assert isinstance(reference_to(thing), weakref.ref)
    assert reference_to(scalar)() is scalar
