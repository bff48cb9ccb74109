"""Modules that need a framework, described from their sources, so that the documentation is built without any framework.

A module such as `milepost.lightning` imports Lightning in its first lines. What is described here has its docstrings, its public
classes and functions with their arguments, and those of its base classes that need no framework; it does nothing.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

NAMES: Final = ("accelerate", "ignite", "jax", "keras", "lightning", "tf_keras", "transformers")
"""The modules, below `milepost`."""
PACKAGE: Final = Path(__file__).parents[1] / "src" / "milepost"


def describe(name: str) -> ModuleType:
    """Puts the description of a module where an import finds it."""
    source = PACKAGE / f"{name}.py"
    module = ModuleType(f"milepost.{name}")
    module.__file__ = str(source)
    tree = ast.parse(source.read_text(encoding="utf-8"))
    module.__doc__ = ast.get_docstring(tree)
    for statement in tree.body:
        _run(statement, module)
    setattr(sys.modules["milepost"], name, module)
    sys.modules[module.__name__] = module
    return module


def _run(statement: ast.stmt, module: ModuleType) -> None:
    """Carries out what needs no framework of one statement."""
    if isinstance(statement, ast.If):
        if isinstance(statement.test, ast.Name) and statement.test.id == "TYPE_CHECKING":
            for each in statement.body:
                _run(each, module)
        return
    if isinstance(statement, ast.ClassDef):
        statement.body = [
            each for each in statement.body if isinstance(each, ast.FunctionDef | ast.Expr | ast.AnnAssign)
        ]
        statement.bases = [each for each in statement.bases if _is_known(each, module)]
    try:
        _execute(ast.Module([_FUTURE, statement], type_ignores=[]), "exec", module)
    except (ImportError, NameError, AttributeError):
        pass


def _is_known(base: ast.expr, module: ModuleType) -> bool:
    try:
        _execute(ast.Expression(base), "eval", module)
    except (NameError, AttributeError):
        return False
    return True


_FUTURE: Final = ast.parse("from __future__ import annotations").body[0]


def _execute(tree: ast.Module | ast.Expression, mode: str, module: ModuleType) -> None:
    exec(compile(ast.fix_missing_locations(tree), str(module.__file__), mode), vars(module))
