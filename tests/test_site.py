"""The site of the documentation: every public name is in the reference, every page in a list, and the tutorial runs.

`make docs` builds the site itself, and fails on a link that leads nowhere.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import indexmill
from indexmill.jobs.api import functions

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
TUTORIAL = DOCS / "tutorial.ipynb"
#: Pages that list all others of a folder: the site's tables of contents are made of their links.
LISTS = {
    "README.md": "guides",
    "formats/README.md": "formats",
    "papers/README.md": "papers",
    "reference/README.md": "reference",
}


def declared(tree: ast.Module) -> dict[str, str]:
    """What a module imports for type checkers, and the full name of each."""
    blocks = [one for one in tree.body if isinstance(one, ast.If)]
    assert all(ast.unparse(one.test) == "TYPE_CHECKING" for one in blocks)
    modules = [one for block in blocks for one in block.body if isinstance(one, ast.ImportFrom)]
    return {
        alias.asname or alias.name: f"{one.module}.{alias.name}" for one in modules for alias in one.names
    }


def public_names() -> set[str]:
    """What `indexmill` gives to those who import it: the names that its module declares for type checkers."""
    return set(declared(ast.parse(Path(str(indexmill.__file__)).read_text())))


def returned_classes() -> set[str]:
    """The classes of what public functions return, by their full names, or as `indexmill` gives them."""
    trees = [ast.parse(path.read_text()) for path in Path(str(functions.__file__)).parent.glob("*.py")]
    known = {name: full for tree in trees for name, full in declared(tree).items()}
    known |= {name: f"indexmill.{name}" for name in public_names()}
    nodes = [one for tree in trees for one in tree.body]
    public = [one for one in nodes if isinstance(one, ast.FunctionDef) and one.name in indexmill.__all__]
    named = [ast.walk(one.returns) for one in public if one.returns is not None]
    return {
        known[node.id] for one in named for node in one if isinstance(node, ast.Name) and node.id in known
    }


def referenced(pattern: str) -> list[str]:
    """Names in the reference whose directives match `pattern`."""
    pages = "\n".join(page.read_text() for page in DOCS.glob("reference/*.md"))
    return re.findall(rf"^\.\. {pattern}$", pages, re.MULTILINE)


def test_every_public_name_is_in_the_reference() -> None:
    assert set(indexmill.__all__) < public_names()
    assert sorted(referenced(r"auto(?:function|class):: indexmill\.(\w+)")) == sorted(public_names())


def test_the_class_of_every_result_is_in_the_reference() -> None:
    assert "indexmill.reader.set.IndexSet" in returned_classes()
    assert returned_classes() - set(referenced(r"autoclass:: ([\w.]+)")) == set()


@pytest.mark.parametrize("page", LISTS)
def test_every_page_is_in_a_list(page: str) -> None:
    folder, text = DOCS / LISTS[page], (DOCS / page).read_text()
    linked = {((DOCS / page).parent / link).resolve() for link in re.findall(r"\]\(([\w/-]+\.md)\)", text)}
    assert {one.name for one in folder.glob("*.md") if one.resolve() not in linked} <= {"README.md"}


def cells(kind: str) -> list[dict[str, Any]]:
    """The cells of the tutorial of one kind."""
    found = json.loads(TUTORIAL.read_text())["cells"]
    return [cell for cell in found if cell["cell_type"] == kind]


def test_the_tutorial_is_kept_without_its_results() -> None:
    assert len(cells("code")) > 5
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells("code"))


def test_the_tutorial_runs_and_shows_what_its_text_says(tmp_path: Path) -> None:
    code = "\n\n".join("".join(cell["source"]) for cell in cells("code"))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.search(r"^piano -> .*violin", done.stdout, re.MULTILINE)
    measured = re.findall(r"recall (\d\.\d+), (\d+\.\d) page reads", done.stdout)
    before, after = measured[: len(measured) // 2], measured[len(measured) // 2 :]
    assert float(before[-1][0]) > 0.95
    for (recall, reads), (recall_after, reads_after) in zip(before, after, strict=True):
        assert float(recall_after) > float(recall) - 0.02
        assert float(reads_after) < float(reads)
    extended, deleted = done.stdout.splitlines()[-2:]
    assert "oceanpiano" in extended
    assert "oceanpiano" not in deleted
