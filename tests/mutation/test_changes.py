"""The changes that are tried: what they change, and which tests are chosen for them."""

from __future__ import annotations

import ast
import random
import tomllib
from pathlib import Path

import pytest

from tests.mutation.changes import Change, changes
from tests.mutation.covering import PACKAGES, Covering
from tests.mutation.trying import ROOT, chosen, covering_tests


def found(source: str) -> set[str]:
    return {change.applied_to(source.encode()).decode() for change in changes(source)}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < b", {"x = (a <= b)"}),
        ("x = a is None", {"x = (a is not None)"}),
        ("x = a and b", {"x = (a or b)", "x = (a)", "x = (b)"}),
        ("x = not a", {"x = (a)"}),
        ("x = a + b", {"x = (a - b)"}),
        ("x = True", {"x = False"}),
        ("x = b'ab'", {"x = b'ab?'"}),
        ("x = 'a text for people, which is long'", set()),
        ("f(a, b)", {"f(b, a)", "pass"}),
        ("max(a, b)", {"pass"}),
        ("x = f(a, strict=True)", set()),
        ("def f():\n    return False", {"def f():\n    return True"}),
        ("if a:\n    f()", {"if (not a):\n    f()", "if a:\n    pass"}),
        ("def f(a=1):\n    return a", {"def f(a=2):\n    return a", "def f(a=1):\n    return None"}),
        ("for a in b:\n    break", {"for a in b:\n    continue"}),
        ("a.b = c", {"pass"}),
        ("a += b", {"a -= b", "pass"}),
        ("raise ValueError('a')", {"pass"}),
        ("'''About it.'''", set()),
        ("a: int", set()),
    ],
)
def test_what_is_changed(source: str, expected: set[str]) -> None:
    assert found(source) == expected


def test_places_after_characters_of_several_bytes() -> None:
    assert found("x = ä < 'ö'\n") == {"x = (ä <= 'ö')\n", "x = ä < 'ö?'\n"}


def test_each_change_of_a_source_is_a_source() -> None:
    paths = [path for each in PACKAGES for path in sorted((ROOT / "src" / "milepost" / each).rglob("*.py"))]
    for path in random.Random(0).sample(paths, 10):
        source = path.read_bytes()
        for change in changes(source.decode())[::5]:
            changed = change.applied_to(source)
            assert changed != source
            ast.parse(changed)


SOURCE = """\
LIMIT = 3

def f(a=1):
    return (
        a < LIMIT
    )

def g():
    pass
"""


def change_of(old: str) -> Change:
    (change,) = [each for each in changes(SOURCE) if each.old == old and each.new != "None"]
    return change


def test_which_tests_run_a_change() -> None:
    """Those of its line; of a constant, those of the functions that use it; of a default, those of its function."""
    covering = Covering({"f": 1.0, "g": 1.0, "import": 1.0}, {"m.py": {"f": 1 << 4, "g": 1 << 9, "import": 1 << 1}})
    assert covering_tests(covering, "m.py", SOURCE, change_of("a < LIMIT")) == {"f"}
    assert covering_tests(covering, "m.py", SOURCE, change_of("3")) == {"f"}
    assert covering_tests(covering, "m.py", SOURCE, change_of("1")) == {"f"}


def test_the_order_of_tests() -> None:
    """The module's own file first, and of others the fast ones; as many as there is time for, but at least one."""
    own, fast, slow = "tests/bundle/test_m.py::own", "tests/a/test_a.py::fast", "tests/a/test_a.py::slow"
    covering = Covering({slow: 5.0, fast: 0.1, own: 0.5}, {})
    assert chosen(covering, "bundle/m.py", {slow, fast, own}, 10)[0] == [own, fast, slow]
    assert chosen(covering, "bundle/m.py", {slow, fast, own}, 10)[1] == pytest.approx(5.6)
    assert chosen(covering, "bundle/m.py", {slow, fast, own}, 1)[0] == [own, fast]
    assert chosen(covering, "bundle/m.py", {slow}, 1)[0] == [slow]


def test_the_list_of_changes_without_effect_has_reasons() -> None:
    listed = tomllib.loads((Path(__file__).parent / "same.toml").read_text(encoding="utf-8")).get("change", [])
    assert all(set(each) == {"source", "line", "change", "reason"} and each["reason"] for each in listed)
