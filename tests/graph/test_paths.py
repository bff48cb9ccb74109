"""Paths that are made when they are asked for."""

import tracemalloc

import pytest

from milepost import UntrackableError
from milepost.graph.keys import LONGEST_PATH, child_path
from milepost.graph.paths import Paths
from tests.counting import lines_run


def both(edges):
    """The paths of objects given by the number of the object above and the name of the edge, lazy and joined at once."""
    lazy, joined = Paths(), [""]
    for above, name in edges:
        lazy.add(above, [name])
        joined.append(child_path(joined[above], name, is_root=above == 0))
    return lazy, joined


EDGES = [(0, "a"), (0, ""), (1, "b.c"), (2, ""), (1, "d/e"), (3, "f"), (4, "g"), (6, "h"), (2, "i"), (0, "j")]


def test_paths_are_those_of_child_path():
    lazy, joined = both(EDGES)
    assert list(lazy) == joined
    assert len(lazy) == len(joined)


@pytest.mark.parametrize("order", [range(11), range(10, -1, -1), [6, 0, 8, 7, 2, 10, 7, 3, 9, 1, 5, 4]])
def test_a_path_does_not_depend_on_which_one_was_asked_for_before(order):
    lazy, joined = both(EDGES)
    assert [lazy[number] for number in order] == [joined[number] for number in order]


def test_a_whole_path_is_returned_as_it_is():
    lazy, _ = both(EDGES)
    lazy.add_whole("a/.OPTIMIZER_SLOT/o/m")
    assert (lazy[-1], lazy[10:]) == ("a/.OPTIMIZER_SLOT/o/m", ["j", "a/.OPTIMIZER_SLOT/o/m"])


def test_a_path_that_is_too_long_is_refused_with_its_two_ends():
    lazy, _ = both([(0, "a" * (LONGEST_PATH - 2))])
    lazy.add(1, ["b"])
    with pytest.raises(UntrackableError, match=r"(?s)too long.*aaa\.\.\.aaa.*/bb"):
        lazy.add(1, ["", "bb"])


def test_paths_of_a_chain_take_memory_in_proportion_to_its_length():
    def held(count):
        tracemalloc.start()
        try:
            lazy = Paths()
            for number in range(count):
                lazy.add(number, ["n"])
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    assert held(8000) < 5 * held(2000)


def test_paths_of_a_chain_are_made_in_few_steps():
    lazy, joined = both([(number, "n") for number in range(4000)])
    made = []
    assert lines_run(lambda: made.extend(lazy)) < 40 * len(joined)
    assert made == joined
