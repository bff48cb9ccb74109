"""The changes of a source that are tried: each is small, and would be a fault if the rule that it breaks matters.

Changed are comparisons, ``and`` and ``or``, conditions, numbers, truth values, short texts, arithmetic, the order of arguments, values that
are returned, and statements, which are left out. What has no behaviour is left alone: annotations, docstrings, and the texts of errors.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

_COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_LONGEST_TEXT: Final = 24
"""The longest text that is changed. Longer ones are sentences."""
_TEXTS_FOR_PEOPLE: Final = ("Error", "Warning", "warn", "TypeVar", "NewType", "Omission", "Omitted")
"""How the names of calls end whose texts are for people, or for type checkers."""

_WITHOUT_BEHAVIOUR: Final = ("strict", "what")
"""Keywords whose values are checks of `zip` that never fail, and texts for people."""
_SYMMETRIC: Final = ("max", "min", "array_equal")
"""Functions whose arguments have no order."""


class Change(NamedTuple):
    """A change of a source.

    Attributes:
        line: The first line that is changed.
        begin: The first byte that is replaced.
        end: The byte after the last one that is replaced.
        old: What is there, as one line.
        new: What replaces it.
        function: The function or class around it, or nothing.
        is_import_time: Whether the line runs when the module is imported, and not when a function is called.
        name: What it is the value of, if it is that of a module's constant.
    """

    line: int
    begin: int
    end: int
    old: str
    new: str
    function: str
    is_import_time: bool
    name: str

    def applied_to(self, source: bytes) -> bytes:
        """The changed source."""
        return source[: self.begin] + self.new.encode() + source[self.end :]

    def __str__(self) -> str:
        return f"{self.old}  becomes  {self.new}"


def changes(source: str) -> list[Change]:
    """All changes of a source, in the order of the places.

    Example:
        >>> [str(change) for change in changes("def f(a: int) -> bool:\\n    return a < 1\\n")]
        ['a < 1  becomes  a <= 1', 'a < 1  becomes  None', '1  becomes  2']
    """
    finder = _Finder(source)
    finder.visit(ast.parse(source))
    return sorted(finder.found, key=lambda each: (each.begin, each.end, each.new))


class _Finder(ast.NodeVisitor):
    def __init__(self, source: str) -> None:
        self.found: list[Change] = []
        self._lines = [0]
        for line in source.encode().split(b"\n"):
            self._lines.append(self._lines[-1] + len(line) + 1)
        self._around: list[str] = []
        self._functions = 0
        self._name = ""

    def _add(self, node: Any, new: Any, *, unchanged: Any = None) -> None:
        """Records that an expression or a statement is replaced by another one."""
        begin = self._lines[node.lineno - 1] + node.col_offset
        end = self._lines[node.end_lineno - 1] + node.end_col_offset
        text = new if isinstance(new, str) else ast.unparse(new)
        if isinstance(node, ast.expr) and not isinstance(new, (str, ast.Constant, ast.Call)):
            text = f"({text})"
        old = ast.unparse(node if unchanged is None else unchanged).partition("\n")[0]
        around, is_import_time = ".".join(self._around), not self._functions
        self.found.append(Change(node.lineno, begin, end, old, text, around, is_import_time, self._name))

    def _changed(self, node: Any, **fields: Any) -> None:
        other = copy.copy(node)
        for name, value in fields.items():
            setattr(other, name, value)
        self._add(node, other)

    def _negated(self, test: ast.expr) -> None:
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return  # visit_UnaryOp removes it
        if (
            not isinstance(test, ast.Compare)
            or len(test.ops) > 1
            or isinstance(test.ops[0], (ast.Lt, ast.LtE, ast.Gt, ast.GtE))
        ):
            self._add(test, ast.UnaryOp(ast.Not(), test))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for each in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self._around.append(node.name)
            self.visit(each)
            self._around.pop()
        self._around.append(node.name)
        self._functions += 1
        name, self._name = self._name, ""
        self._body(node.body)
        self._name = name
        self._functions -= 1
        self._around.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases):
            return
        self._around.append(node.name)
        self._body(node.body)
        self._around.pop()

    def _body(self, body: list[ast.stmt]) -> None:
        for each in body:
            if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)):
                self.visit(each)

    def visit_Module(self, node: ast.Module) -> None:
        self._body(node.body)

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        self._negated(node.test)
        self._statements(node)

    def visit_While(self, node: ast.While) -> None:
        self._negated(node.test)
        self._statements(node)

    def _statements(self, node: Any) -> None:
        for value in ast.iter_child_nodes(node):
            if not (isinstance(value, ast.Expr) and isinstance(value.value, ast.Constant)):
                self.visit(value)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negated(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._negated(test)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for number, operator in enumerate(node.ops):
            other = _COMPARISONS[type(operator)]()
            self._changed(node, ops=[*node.ops[:number], other, *node.ops[number + 1 :]])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._changed(node, op=ast.And() if isinstance(node.op, ast.Or) else ast.Or())
        for number in range(len(node.values)):
            values = node.values[:number] + node.values[number + 1 :]
            self._add(node, values[0] if len(values) == 1 else ast.BoolOp(node.op, values))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, (ast.Not, ast.USub, ast.Invert)):
            self._add(node, node.operand)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        other = _ARITHMETIC.get(type(node.op))
        is_text = isinstance(node.left, (ast.Constant, ast.JoinedStr)) and not isinstance(
            getattr(node.left, "value", ""), (int, float)
        )
        if other is not None and not is_text:
            self._changed(node, op=other())
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        other = _ARITHMETIC.get(type(node.op))
        if other is not None:
            self._changed(node, op=other())
        self._add(node, "pass")
        self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        if all(isinstance(target, (ast.Attribute, ast.Subscript)) for target in node.targets):
            self._add(node, "pass")
        self._value_of(node.targets[0], node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._value_of(node.target, node.value)

    def _value_of(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name) and target.id in ("__all__", "__slots__"):
            return
        before = self._name
        if isinstance(target, ast.Name) and not self._functions:
            self._name = target.id
        self.visit(value)
        self._name = before

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, (ast.Call, ast.Await)):
            self._add(node, "pass")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._add(node, "pass")
        self.generic_visit(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        self._add(node, "pass")

    def visit_Assert(self, node: ast.Assert) -> None:
        """Says something to type checkers."""

    def visit_Break(self, node: ast.Break) -> None:
        self._add(node, "continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._add(node, "break")
        self._add(node, "pass")

    def visit_Return(self, node: ast.Return) -> None:
        value = node.value
        if value is not None and not (isinstance(value, ast.Constant) and value.value in (None, False)):
            self._add(value, ast.Constant(None))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = ast.unparse(node.func).rpartition(".")[2]
        if name.endswith(_TEXTS_FOR_PEOPLE):
            return
        if (
            name not in _SYMMETRIC
            and len(node.args) > 1
            and not any(isinstance(each, ast.Starred) for each in node.args[:2])
        ):
            self._changed(node, args=[node.args[1], node.args[0], *node.args[2:]])
        for each in (node.func, *node.args, *(each for each in node.keywords if each.arg not in _WITHOUT_BEHAVIOUR)):
            self.visit(each)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Has no places of its parts in Python 3.11."""

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._add(node, ast.Constant(not value))
        elif isinstance(value, (int, float)):
            self._add(node, ast.Constant(value + 1))
        elif isinstance(value, (str, bytes)) and len(value) <= _LONGEST_TEXT:
            more = "?" if isinstance(value, str) else b"?"
            self._add(node, ast.Constant(value + more))  # type: ignore[operator]

    def visit_arg(self, node: ast.arg) -> None:
        """Has an annotation, and nothing else."""


def survey(source: str) -> Iterator[tuple[str, Change]]:
    """Each change with the line that it changes, without the spaces around it."""
    lines = source.split("\n")
    for change in changes(source):
        yield lines[change.line - 1].strip(), change
