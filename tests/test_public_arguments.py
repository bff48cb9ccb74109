"""What is public takes arguments of public types only, so that nobody imports from inside to call it."""

import importlib
import inspect
import typing

import pytest

import milepost
import milepost.adapters
import milepost.coordination
import milepost.graph.saved.object_graph
import milepost.layouts
import milepost.retention
import milepost.storage
import milepost.testing
import milepost.testing.specimen
import milepost.testing.storage_suite

MODULES = [
    "milepost",
    "milepost.adapters",
    "milepost.coordination",
    "milepost.layouts",
    "milepost.retention",
    "milepost.storage",
    "milepost.testing",
]
WITH_FRAMEWORKS = ["milepost.jax", "milepost.keras", "milepost.tf_keras"]
SUITES = [milepost.testing.specimen.Specimen, milepost.testing.storage_suite.Bench]
MADE_BY_FUNCTIONS = {"LoadStatus"}
"""What `restore` returns, and nobody else makes."""


def public(module):
    return {name: getattr(module, name) for name in module.__all__}


def everything_public():
    found = [value for name in MODULES for value in public(importlib.import_module(name)).values()]
    return {id(value) for value in [*found, *SUITES]}


def classes_in(annotation, known):
    """The classes that an annotation is made of; a public alias stands for itself."""
    if id(annotation) in known:
        return
    parts = typing.get_args(annotation)
    if parts:
        for part in parts:
            for each in part if isinstance(part, list) else [part]:
                yield from classes_in(each, known)
    elif isinstance(annotation, type):
        yield annotation


def callables_of(value):
    if inspect.isfunction(value):
        yield value
    elif inspect.isclass(value):
        for kind in value.__mro__:
            if not kind.__module__.startswith("milepost"):
                continue
            for name, member in vars(kind).items():
                function = getattr(member, "__func__", member)
                of_users = name != "__init__" or value.__name__ not in MADE_BY_FUNCTIONS
                if inspect.isfunction(function) and of_users and (name[0] != "_" or name == "__init__"):
                    yield function


def arguments_that_are_not_public(value, known):
    for function in callables_of(value):
        for name, annotation in typing.get_type_hints(function).items():
            for kind in classes_in(annotation, known) if name != "return" else ():
                if kind.__module__.startswith("milepost") and id(kind) not in known:
                    yield f"{function.__qualname__}({name}: {kind.__module__}.{kind.__qualname__})"


@pytest.mark.parametrize("name", [*MODULES, *WITH_FRAMEWORKS])
def test_arguments_are_of_public_types(name):
    if name in WITH_FRAMEWORKS:
        pytest.importorskip({"milepost.jax": "jax", "milepost.keras": "keras", "milepost.tf_keras": "tf_keras"}[name])
    module, known = importlib.import_module(name), everything_public()
    found = [each for value in public(module).values() for each in arguments_that_are_not_public(value, known)]
    assert sorted(set(found)) == []


def test_arguments_of_other_types_are_found():
    def takes(each: "list[milepost.graph.saved.object_graph.ObjectGraph] | None") -> None: ...

    assert list(arguments_that_are_not_public(takes, everything_public())) == [
        "test_arguments_of_other_types_are_found.<locals>.takes(each: milepost.graph.saved.object_graph.ObjectGraph)"
    ]


@pytest.mark.parametrize("module", ["milepost.adapters", "milepost.storage", "milepost.testing"])
def test_public_names_are_documented(module):
    for name, value in public(importlib.import_module(module)).items():
        if not inspect.isclass(value) and not inspect.isfunction(value):
            continue
        assert (value.__doc__ or "").strip(), name
        methods = [
            each
            for each in dir(value)
            if inspect.isclass(value) and each[0] != "_" and inspect.isroutine(getattr(value, each))
        ]
        assert [f"{name}.{each}" for each in methods if not documented(value, each)] == []


def documented(value, name):
    """Whether a method has a docstring, or is one of a storage, whose docstring is that of the protocol."""
    names = ("Storage", "LinkingStorage", "ConditionalStorage", "ReadableFile", "WritableFile")
    protocols = [getattr(milepost.storage, each) for each in names]
    return inspect.getdoc(getattr(value, name)) or any(inspect.getdoc(getattr(each, name, None)) for each in protocols)
