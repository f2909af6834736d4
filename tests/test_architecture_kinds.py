"""Only a kind of index knows the kind: other files ask its object, and compare neither names nor classes of kinds."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from indexmill.pipeline.spec import KINDS

ROOT = Path(__file__).parent.parent
#: Folders of the kinds: in them a kind may be named. Benchmarks measure kinds by name.
OF_KINDS = ("pipeline/kinds", "jobs/kinds", *(f"formats/{kind}" for kind in KINDS))
EXEMPT = (*OF_KINDS, "jobs/bench")
#: Comparisons with a word that is also a kind's: a graph among indexes over leaders is no graph index.
OTHER_WORDS = {("jobs/grouping/setting.py", "setting.index == 'graph'")}
#: Classes that stand for a kind elsewhere: opened, exported and imported indexes.
_CLASS_FILES = ("src/indexmill/reader", "formats/exports", "formats/imports")
_CLASS_ENDS = ("Index", "Lists")


def lies_in(path: Path, folders: tuple[str, ...]) -> bool:
    return any(path.is_relative_to(ROOT / folder) for folder in folders)


def classes_of_kinds() -> set[str]:
    """Names of the classes that tell kinds apart: those of single kinds' folders, and indexes of one kind."""
    found = set()
    for kind in KINDS:
        for folder in (f"pipeline/kinds/{kind}", f"formats/{kind}"):
            for path in (ROOT / folder).rglob("*.py"):
                found |= {n.name for n in ast.parse(path.read_text()).body if isinstance(n, ast.ClassDef)}
    for folder in _CLASS_FILES:
        for path in (ROOT / folder).rglob("*.py"):
            names = {n.name for n in ast.parse(path.read_text()).body if isinstance(n, ast.ClassDef)}
            found |= {name for name in names if name.endswith(_CLASS_ENDS)}
    return found


def parts(node: ast.expr) -> Iterator[ast.expr]:
    """The operand of a comparison, and what a display of several holds."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        for one in node.elts:
            yield from parts(one)
    elif isinstance(node, ast.BinOp):
        yield from (*parts(node.left), *parts(node.right))
    else:
        yield node


def of_type(node: ast.expr) -> bool:
    """Whether an expression begins with a call of `type`."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "type"


def told_apart(tree: ast.AST, classes: set[str]) -> Iterator[ast.AST]:
    """Places that tell one kind from another: by its name, by a constant that holds the name, or by its class."""
    constants = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target, value in _assigned(node)
        if isinstance(value, ast.Constant) and value.value in KINDS
    }

    def is_kind(node: ast.expr) -> bool:
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        of_kind = name == "NAME" and ast.unparse(node) in {f"{kind}.NAME" for kind in KINDS}
        is_word = isinstance(node, ast.Constant) and node.value in KINDS
        return is_word or of_kind or name in constants or name in classes

    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 2:
            sides = [node.args[1]] if node.func.id in ("isinstance", "issubclass") else []
        elif isinstance(node, ast.Subscript) and of_type(node.slice):
            yield node
            continue
        elif isinstance(node, ast.MatchValue):
            sides = [node.value]
        elif isinstance(node, ast.MatchClass):
            sides = [node.cls]
        else:
            continue
        if any(is_kind(one) for side in sides for one in parts(side)):
            yield node


def _assigned(node: ast.Assign) -> Iterator[tuple[ast.Name, ast.expr]]:
    for target in node.targets:
        several = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
        pairs = zip(target.elts, node.value.elts, strict=False) if several else [(target, node.value)]
        yield from ((one, value) for one, value in pairs if isinstance(one, ast.Name))


@pytest.mark.parametrize(
    ("code", "is_told"),
    [
        ("kind == 'graph'", True),
        ("manifest['kind'] not in ('lsh', 'ivf')", True),
        ("A, B = 'graph', 'lsh'\nkind is B", True),
        ("kind.NAME != graph.NAME", True),
        ("isinstance(p, (int, Parameters))", True),
        ("isinstance(p, int | Parameters)", True),
        ("kind_of(p).parameters is not Parameters", True),
        ("{ImportedIndex: 1}[type(index)]", True),
        ("TABLE[type(index).__name__]", True),
        ("match kind:\n  case 'ivf': pass", True),
        ("match p:\n  case Parameters(): pass", True),
        ("kind == other.NAME", False),
        ("KINDS['graph']", False),
        ("isinstance(p, str)", False),
    ],
)
def test_every_way_to_tell_kinds_apart_is_found(code: str, is_told: bool) -> None:
    assert bool(list(told_apart(ast.parse(code), {"Parameters", "ImportedIndex"}))) is is_told


def test_only_the_kinds_tell_kinds_apart() -> None:
    classes = classes_of_kinds()
    assert {"Parameters", "LshSize", "IvfShape", "Index", "LshIndex", "IvfFiles", "ImportedLists"} <= classes
    found = {
        (str(path.relative_to(ROOT)), ast.unparse(node))
        for layer in ("pipeline", "jobs", "formats")
        for path in sorted((ROOT / layer).rglob("*.py"))
        if not lies_in(path, EXEMPT)
        for node in told_apart(ast.parse(path.read_text()), classes)
    }
    assert found == OTHER_WORDS
