"""What a restore proposes where only names differ: the argument that matches them."""

import pytest

from milepost.engine.report import Outcome, ReportEntry
from milepost.engine.translation import Translation
from milepost.restoring.offers import offered


def entries(saved, live):
    """Entries of a report of which nothing is matched: names, each with a shape."""
    return [
        *(ReportEntry(Outcome.UNEXPECTED, name, saved=f"float32[{shape}]") for name, shape in saved.items()),
        *(
            ReportEntry(Outcome.MISSING, f"{name}/.ATTRIBUTES/VARIABLE_VALUE", live=f"float32[{shape}]")
            for name, shape in live.items()
        ),
    ]


LIVE = {
    f"model/layers/{number}/{name}": shape
    for number in range(8)
    for name, shape in {"weight": "4,3", "bias": "4"}.items()
}
DOTTED = {name.removeprefix("model/").replace("/", "."): shape for name, shape in LIVE.items()}


@pytest.mark.parametrize("prefix", ["module.", "backbone.", "state_dict/", "module.backbone.", "_orig_mod.", ""])
def test_another_beginning_is_offered_as_a_mapping(prefix):
    old = prefix.rstrip("./")
    expected = {f"{old}.layers" if old else "layers": "model/layers"}
    found = offered(entries({prefix + name: shape for name, shape in DOTTED.items()}, LIVE))
    assert found.startswith("rename=")
    rename = eval(found.removeprefix("rename="))  # what a user would write
    assert rename == {old: "model"} or rename == expected
    translation = Translation(rename)
    assert {translation.live_name((prefix + name).replace(".", "/")) for name in DOTTED} == set(LIVE)


@pytest.mark.parametrize("added", ["base_layer", "modules_to_save/default", "_checkpoint_wrapped_module"])
@pytest.mark.parametrize("saved_has_it", [True, False], ids=["in the file", "in the program"])
def test_names_that_wrappers_add_are_offered_as_expressions(added, saved_has_it):
    wrapped = {
        name.replace("/weight", f"/{added}/weight").replace("/bias", f"/{added}/bias"): shape
        for name, shape in LIVE.items()
    }
    saved, live = (wrapped, LIVE) if saved_has_it else (LIVE, wrapped)
    saved = {name.replace("/", "."): shape for name, shape in saved.items()}
    rename = eval(offered(entries(saved, live)).removeprefix("rename="))
    translation = Translation(rename)
    assert {translation.live_name(name).replace(".", "/") for name in saved} == set(live)


def test_an_adapter_of_peft_is_recognised():
    """Its files have neither the name of the adapter nor the names of the objects around it as the program has them."""
    live = {
        f"model/base_model/model/{number}/q/lora_{half}/default/weight": shape
        for number in range(8)
        for half, shape in {"A": "2,4", "B": "4,2"}.items()
    }
    saved = {
        name.removeprefix("model/").replace("/default", "").replace("/", "."): shape for name, shape in live.items()
    }
    translation = Translation(eval(offered(entries(saved, live)).removeprefix("rename=")))
    assert {translation.live_name(name).replace(".", "/") for name in saved} == set(live)


def test_names_of_a_state_dict_that_was_saved_as_a_tree_are_offered_as_levels():
    saved = {name.replace("/", ".."): shape for name, shape in LIVE.items()}
    translation = Translation(eval(offered(entries(saved, LIVE)).removeprefix("rename=")))
    assert [translation.live_name(name) for name in saved] == list(LIVE)


def test_nothing_is_offered_where_shapes_differ():
    saved = {f"other.{name}": f"7,{shape}" for name, shape in DOTTED.items()}
    assert offered(entries(saved, LIVE)) == ""


def test_nothing_is_offered_where_nothing_is_unmatched():
    assert offered([ReportEntry(Outcome.MATCHED, "w", "float32[2]", "float32[2]")]) == ""
    assert offered(entries(DOTTED, {})) == ""
    assert offered(entries({}, LIVE)) == ""


def test_nothing_is_offered_where_most_values_have_other_ends():
    saved = {name.replace("weight", "kernel").replace("bias", "shift"): shape for name, shape in DOTTED.items()}
    assert offered(entries(saved, LIVE)) == ""


def test_what_matches_already_stays_where_it_is():
    left = entries({"a": "3", "b": "4", "c": "5", "d": "6"}, {"m/a": "3", "m/b": "4", "m/c": "5", "m/d": "6"})
    matched = ReportEntry(Outcome.MATCHED, "step/.ATTRIBUTES/VARIABLE_VALUE", saved="int32[]", live="int32[]")
    assert offered([*left, matched]) == "rename={'': 'm', 'step': 'step'}"


def test_points_are_offered_if_they_match_as_much_as_another_argument():
    saved = {"a..b": "2", "net.c": "3"}
    live = {"a/b": "2", "model/c": "3"}
    assert offered(entries(saved, live)) == "rename=[('\\\\.\\\\.', '/')]"


def test_nothing_is_offered_if_no_value_fits_another():
    assert offered(entries({"a": "2"}, {"b": "3"})) == ""


def test_a_beginning_of_several_levels_and_names_that_wrappers_add_are_offered_as_expressions():
    parts = ((name.rpartition("."), shape) for name, shape in DOTTED.items())
    saved = {f"trunk.body.{above}.base_layer.{name}": shape for (above, _, name), shape in parts}
    translation = Translation(eval(offered(entries(saved, LIVE)).removeprefix("rename=")))
    assert {translation.live_name(name).replace(".", "/") for name in saved} == set(LIVE)
