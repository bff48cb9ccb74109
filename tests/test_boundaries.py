"""What begins with an underscore stays in its file: no module of milepost uses such a name of another one's class or module.

Adapters are left out, since they use names of frameworks' objects too; `tests/adapters/test_private_names.py` is about those.
"""

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "milepost"
TREES = {
    path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text())
    for path in sorted(PACKAGE.rglob("*.py"))
    if "adapters" not in path.parts
}


def is_hidden(name):
    return name.startswith("_") and not name.startswith("__")


def is_own(node):
    """Whether an attribute is one of ``self``, ``cls`` or ``super()``."""
    owner = node.value
    if isinstance(owner, ast.Call):
        owner = owner.func
    return isinstance(owner, ast.Name) and owner.id in ("self", "cls", "super")


def defined(tree):
    """The hidden attributes that classes of a module define: methods, class attributes, and what is assigned to ``self``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for member in node.body:
                if isinstance(member, ast.FunctionDef):
                    yield member.name
                targets = member.targets if isinstance(member, ast.Assign) else [getattr(member, "target", None)]
                yield from (each.id for each in targets if isinstance(each, ast.Name))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own(node):
            yield node.attr


def used(tree):
    """The hidden attributes that a module uses of something else than ``self``, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_hidden(node.attr) and not is_own(node):
            yield node.attr, node.lineno


def crossings(trees):
    owners = defaultdict(set)
    for name, tree in trees.items():
        for attribute in filter(is_hidden, defined(tree)):
            owners[attribute].add(name)
    return [
        f"{name}:{line} uses {attribute} of {', '.join(sorted(owners[attribute]))}"
        for name, tree in trees.items()
        for attribute, line in used(tree)
        if attribute in owners and name not in owners[attribute]
    ]


def test_no_module_uses_hidden_attributes_of_another_ones_classes():
    assert crossings(TREES) == []


def test_no_module_imports_hidden_names_of_another():
    found = [
        f"{name} imports {alias.name} from {node.module}"
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("milepost")
        for alias in node.names
        if is_hidden(alias.name)
    ]
    assert found == []


def test_a_crossing_is_found():
    trees = {
        "one.py": ast.parse("class One:\n    def __init__(self):\n        self._held = 1\n    def _do(self): ...\n"),
        "two.py": ast.parse("def two(one):\n    return one._held, one._do(), one._of_a_framework\n"),
    }
    assert crossings(trees) == ["two.py:2 uses _held of one.py", "two.py:2 uses _do of one.py"]


def test_no_two_classes_have_one_name():
    """Except those that users import by the name of a framework."""
    files = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                files[node.name].append(path.relative_to(PACKAGE).as_posix())
    twice = {name: found for name, found in files.items() if len(found) > 1}
    assert twice == {"CheckpointCallback": ["keras.py", "lightning.py", "tf_keras.py"]}
