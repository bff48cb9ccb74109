"""`milepost convert --layout`: steps are typed as in Python, and nothing of them is run."""

import argparse

import numpy as np
import pytest

import milepost
from milepost.layouts import Concatenate, Reshape, Split, Stack, Transpose, Unstack
from milepost.tools.cli import main
from milepost.tools.layouts import step_of
from tests.tools.commands import output_of

STEPS = [
    Concatenate(["a", "b"], "c", axis=-1, sizes=(1, 2)),
    Split("a", ["b", "c"]),
    Stack("experts/#/w", "experts/w"),
    Unstack("experts/w", ["a", "b"], 1),
    Transpose("**/kernel", "**/weight", (1, 0)),
    Reshape("a", (2, 4), (-1,), axis=1),
]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: type(step).__name__)
def test_a_step_is_typed_as_it_is_printed(step):
    assert step_of(f" {step!r}\n") == step


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Rotate('a')", "the steps are Concatenate, Split"),
        ("milepost.layouts.Transpose('a')", "the steps are"),
        ("3", "the steps are"),
        ("", "expected a step as in Python"),
        ("Transpose(", "was never closed"),
        ("Transpose(open('x'))", "arguments are text, numbers, lists and None"),
        ("Transpose(source=open('x'))", "arguments are text, numbers, lists and None"),
        ("Transpose('a', bogus=1)", "bogus"),
        ("Transpose(**{'source': 'a'})", "** is not understood"),
        ("Transpose('a', axes=(0, 2))", "axes is to be None, or each axis"),
        ("(" * 100_000, "expected a step"),
        ("Transpose('a\0')", "expected a step"),
    ],
    ids=lambda text: text[:30],
)
def test_anything_else_is_refused_in_words(text, words):
    with pytest.raises(argparse.ArgumentTypeError) as caught:
        step_of(text)
    assert words in str(caught.value)


@pytest.fixture
def path(tmp_path):
    weights = {name: {"weight": np.full((2, 3), number, np.float32)} for number, name in enumerate("qkv")}
    return milepost.save(tmp_path / "saved", {"attention": weights})


def test_steps_are_carried_out_in_their_order_and_before_names_are_changed(path, tmp_path, capsys):
    steps = ["--layout", "Concatenate(['**/q', '**/k', '**/v'], '**/qkv')", "--layout", "Transpose('**/qkv/weight')"]
    output_of(capsys, "convert", path, tmp_path / "new", *steps, "--rename", "attention=block")
    saved = milepost.load(tmp_path / "new")["block"]["qkv"]["weight"]
    assert saved.tolist() == [[0, 0, 1, 1, 2, 2]] * 3


def test_a_step_that_fits_nothing_writes_nothing(path, tmp_path, capsys):
    error = output_of(capsys, "convert", path, tmp_path / "new.npz", "--layout", "Transpose('**/w')", status=3).err
    assert "fits no saved name" in error
    assert not (tmp_path / "new.npz").exists()


def test_a_wrong_step_is_a_wrong_argument(path, tmp_path):
    with pytest.raises(SystemExit) as ended:
        main(["convert", path, str(tmp_path / "new"), "--layout", "Rotate('a')"])
    assert ended.value.code == 2
