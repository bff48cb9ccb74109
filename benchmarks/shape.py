"""The shape of the source: ``python -m benchmarks.shape [--list]``. It reads the files of ``src/milepost``.

Printed are, for all modules together:

- *lines*: all lines of the files;
- *code*: the lines that have any of their instructions, so no comments, docstrings or empty lines;
- *stores*: names at the level of a module for something that is changed while a program runs: an empty list, dict or set, a weak table,
  a context variable, a value of each thread, or a counter;
- *questions which reader*: places that ask whether an open file is of a certain class of reader;
- *public names*: what ``__all__`` of the modules that the reference describes has, each name once;
- *widest folder*: the most modules that one folder has itself, without ``__init__.py``.

``--list`` prints where the stores and the questions are, too.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final

import milepost

SOURCES: Final = Path(__file__).parents[1] / "src" / "milepost"
_READERS: Final = frozenset({"ForeignReader", "IndexedReader", "LegacyReader", "CastingReader"})
_TABLES: Final = frozenset(
    {
        *("dict", "list", "set", "deque", "defaultdict", "OrderedDict", "Counter", "count"),
        *("WeakSet", "WeakKeyDictionary", "WeakValueDictionary", "ListedFact", "ContextVar", "local"),
    }
)
"""What makes a store if it is called with nothing, or with no more than a name and a first value."""
_PUBLIC: Final = (
    *("accelerate", "adapters/__init__", "coordination/__init__", "ignite", "jax", "keras", "lightning"),
    *("retention/__init__", "storage/__init__", "tensorflow1", "testing/__init__", "tf_keras", "transformers"),
)
"""The modules beside the package itself that the reference describes."""
_WITHOUT_CODE: Final = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}


def code_lines(text: str) -> int:
    """The lines of a module that have instructions.

    Example:
        >>> code_lines('"Says what it is."' + chr(10) + "a = 1  # one" + chr(10) + "# nothing" + chr(10))
        1
    """
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _WITHOUT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        for each in getattr(node, "body", ()) if not isinstance(node, (ast.Lambda, ast.IfExp)) else ():
            if (
                isinstance(each, ast.Expr)
                and isinstance(each.value, ast.Constant)
                and isinstance(each.value.value, str)
            ):
                lines.difference_update(range(each.lineno, (each.end_lineno or each.lineno) + 1))
    return len(lines)


def stores(tree: ast.Module) -> Iterator[str]:
    """The names of a module that are stores.

    Example:
        >>> [*stores(ast.parse("a = {}; b = {1: 2}; c: dict[int, int] = dict(); d = ContextVar('d', default=None)"))]
        ['a', 'c', 'd']
    """
    for node in tree.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None and _is_store(node.value):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name):
                yield target.id


def _is_store(value: ast.expr) -> bool:
    if isinstance(value, ast.Dict):
        return not value.keys
    if isinstance(value, ast.List):
        return not value.elts
    if not isinstance(value, ast.Call):
        return False
    called = value.func.value if isinstance(value.func, ast.Subscript) else value.func
    name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    return name in _TABLES and all(isinstance(each, ast.Constant) for each in value.args)


def questions(tree: ast.Module) -> Iterator[int]:
    """The lines of a module that ask which class a reader has.

    Example:
        >>> [*questions(ast.parse("isinstance(a, ForeignReader)" + chr(10) + "isinstance(a, int)"))]
        [1]
    """
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        named = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        if node.func.id == "isinstance" and named & _READERS:
            yield node.lineno


def _named(module: str) -> list[str]:
    tree = ast.parse((SOURCES / f"{module}.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    raise ValueError(f"{module} has no __all__")


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(prog="benchmarks.shape", description="The shape of the source.")
    parser.add_argument("--list", action="store_true", help="print where the stores and the questions are")
    listed = parser.parse_args().list
    found = Counter[str]()
    folders = Counter[str]()
    places: dict[str, list[str]] = {"stores": [], "questions which reader": []}
    for path in sorted(SOURCES.rglob("*.py")):
        text, name = path.read_text(encoding="utf-8"), path.relative_to(SOURCES).as_posix()
        tree = ast.parse(text)
        found["lines"] += text.count("\n")
        found["code"] += code_lines(text)
        places["stores"] += [f"{name}: {each}" for each in stores(tree)]
        places["questions which reader"] += [f"{name}:{each}" for each in questions(tree)]
        folders[path.parent.relative_to(SOURCES).as_posix()] += path.name != "__init__.py"
    for what, where in places.items():
        found[what] = len(where)
    found["public names"] = len({*milepost.__all__, *chain.from_iterable(map(_named, _PUBLIC))})
    (widest, count), *_ = folders.most_common(1)
    for what, number in found.items():
        print(f"{what:<24} {number:>7,}")
        for each in places.get(what, ()) if listed else ():
            print(f"    {each}")
    print(f"{'widest folder':<24} {count:>7,}  {widest}/")


if __name__ == "__main__":
    main()
