"""A name that is deprecated works and warns; one that is gone says what to write; and each entry keeps to the rule of docs/versions.md."""

import re
import subprocess
import sys
import warnings

import pytest

import milepost
from milepost.deprecations import FORMER_NAMES, FormerName, warn_of

OLD = FormerName("write milepost.load", gone="0.10.0", since="0.9.0", value="milepost.checkpoint.load_tree:load")


@pytest.fixture
def old(monkeypatch):
    monkeypatch.setitem(FORMER_NAMES, "milepost.old_load", OLD)


def numbers(version):
    return tuple(map(int, version.split(".")))


def violations(name, former, current):
    """What an entry does against the rule, with the version that is current."""
    gone, now = numbers(former.gone), numbers(current)
    if former.since is None:
        return ["it goes without a warning, after the first release"] * (gone > (0, 9, 0) or former.value is not None)
    since = numbers(former.since)
    # The part of a version that a removal increases, and with it the parts before it.
    level = 1 if since[0] else 2
    return [
        *["a warning is added by a MINOR version"] * (since[2] != 0),
        *["it is removed before its time"] * (gone[:level] <= since[:level] or any(gone[level:])),
        *["the version that deprecates it is not there yet"] * (since > now),
        *["it works no longer, before its time"] * (former.value is None and now < gone),
        *["its time is over: remove the value"] * (former.value is not None and now >= gone),
    ]


@pytest.mark.parametrize("name", sorted(FORMER_NAMES))
def test_an_entry_keeps_to_the_rule_of_deprecations(name):
    assert violations(name, FORMER_NAMES[name], milepost.__version__) == []


@pytest.mark.parametrize(
    ("former", "current", "violation"),
    [
        (OLD, "0.10.0", "its time is over: remove the value"),
        (OLD, "1.0.0", "its time is over: remove the value"),
        (OLD._replace(value=None), "0.9.3", "it works no longer, before its time"),
        (OLD, "0.8.0", "the version that deprecates it is not there yet"),
        (OLD._replace(gone="0.9.4"), "0.9.3", "it is removed before its time"),
        (OLD._replace(since="1.2.0", gone="1.3.0"), "1.2.0", "it is removed before its time"),
        (OLD._replace(since="0.9.1"), "0.9.1", "a warning is added by a MINOR version"),
        (FormerName("write x", gone="0.10.0"), "0.10.0", "it goes without a warning, after the first release"),
    ],
)
def test_an_entry_against_the_rule_is_noticed(former, current, violation):
    assert violation in violations("milepost.old_load", former, current)


@pytest.mark.parametrize(
    ("former", "current"),
    [
        (OLD, "0.9.0"),
        (OLD, "0.9.7"),
        (OLD._replace(gone="1.0.0"), "0.12.0"),
        (OLD._replace(value=None), "0.10.0"),
        (OLD._replace(since="1.2.0", gone="2.0.0"), "1.9.0"),
    ],
)
def test_an_entry_within_its_time_is_in_order(former, current):
    assert violations("milepost.old_load", former, current) == []


@pytest.mark.parametrize("name", sorted(FORMER_NAMES))
def test_a_former_name_is_not_public(name):
    module, _, attribute = name.rpartition(".")
    assert attribute not in sys.modules[module].__all__


@pytest.mark.parametrize("name", sorted(name for name, former in FORMER_NAMES.items() if former.value is None))
def test_a_name_that_is_gone_says_since_when_and_what_to_do_instead(name):
    former = FORMER_NAMES[name]
    module, _, attribute = name.rpartition(".")
    words = f"module {module!r} has no attribute {attribute!r}, which milepost {former.gone} removed; {former.instead}"
    with pytest.raises(AttributeError, match=re.escape(words)):
        getattr(sys.modules[module], attribute)


@pytest.mark.usefixtures("old")
def test_a_deprecated_name_works():
    with pytest.warns(DeprecationWarning, match="old_load"):
        assert milepost.old_load is milepost.load


@pytest.mark.usefixtures("old")
def test_a_deprecated_name_warns_with_its_replacement_and_both_versions():
    words = "milepost.old_load is deprecated since milepost 0.9.0 and will be removed in 0.10.0; write milepost.load"
    with pytest.warns(DeprecationWarning, match=f"^{re.escape(words)}$"):
        milepost.old_load  # noqa: B018


@pytest.mark.usefixtures("old")
def test_each_line_of_a_program_is_warned_once():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            milepost.old_load  # noqa: B018
        milepost.old_load  # noqa: B018
    here = test_each_line_of_a_program_is_warned_once.__code__.co_firstlineno
    assert [(warning.filename, warning.lineno - here) for warning in caught] == [(__file__, 5), (__file__, 6)]


@pytest.mark.usefixtures("old")
def test_a_function_may_warn_of_itself():
    with pytest.warns(DeprecationWarning, match="write milepost.load"):
        warn_of("milepost.old_load")


def test_the_warning_is_shown_to_a_program_without_filters_of_its_own(tmp_path):
    """Python shows a DeprecationWarning where the code that it points at is the program itself."""
    program = tmp_path / "program.py"
    program.write_text(
        "from milepost.deprecations import FORMER_NAMES, FormerName\n"
        f"FORMER_NAMES['milepost.old_load'] = {OLD!r}\n"
        "from milepost import old_load\n"
    )
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=True)
    assert f"{program}:3: DeprecationWarning: milepost.old_load is deprecated" in done.stderr
