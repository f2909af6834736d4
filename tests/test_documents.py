"""Pages name places of the repository that exist, and link to pages and headings that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.digests import layouts
from tests.test_architecture import FLOORS

from indexmill.layout.order import OrderMemory
from indexmill.layout.portfolio import ORDERS

ROOT = Path(__file__).parent.parent
MAP = ROOT / "docs/ARCHITECTURE.md"
README = ROOT / "README.md"
CHANGELOG = ROOT / "CHANGELOG.md"
GUIDE = ROOT / "docs/guides/layout.md"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("reader/*.md")])
#: Questions of a new developer, as the table of docs/ARCHITECTURE.md has them.
QUESTIONS = (
    "how the memory of an IVF build is counted", "add an order", "add an export", "where a stage is retried",
    "what decides the reads of a pipeline search", "add a flag to `build`", "add a kind of index",
)  # fmt: skip
#: Files of an index, which lie in no folder of the repository.
INDEX_FILES = {"manifest.json", "run.json"}
_PLACE = re.compile(r"`((?:[\w.{},-]+/)+[\w.{},-]*)`")
_DRAWN = re.compile(r"\b((?:pipeline|formats|builders|layout|reader|jobs)/[\w.{},/]+)")
_FILE = re.compile(r"`([\w-]+\.(?:py|rs|md|json|toml|txt))`")
_NAME_IN = re.compile(r"`(\w+)` (?:of|in) `([\w./-]+\.\w+)`")
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")


def heading_ids(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def without_braces(place: str) -> Iterator[str]:
    """Write out every place that braces stand for."""
    head, brace, rest = place.partition("{")
    if not brace:
        yield place
        return
    inner, _, tail = rest.partition("}")
    for one in inner.split(","):
        yield from without_braces(head + one + tail)


def test_every_place_on_the_map_exists() -> None:
    text = MAP.read_text()
    drawn = [place for block in re.findall(r"(?m)^    .+$", text) for place in _DRAWN.findall(block)]
    named = [one for place in (*_PLACE.findall(text), *drawn) for one in without_braces(place.rstrip(".,"))]
    assert {"pipeline/kinds/lsh", "formats/sources", "layout/portfolio.py"} <= set(named)
    assert [place for place in named if not (ROOT / place).exists()] == []


def test_every_file_and_name_on_the_map_exists() -> None:
    text = MAP.read_text()
    folders = [path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")]
    files = {path.name for folder in folders for path in folder.rglob("*.*")} | {path.name for path in PAGES}
    assert set(_FILE.findall(text)) - files - INDEX_FILES == set()
    names = _NAME_IN.findall(text)
    assert ("Order", "pipeline/kinds/graph/parameters.py") in names
    for name, file in names:
        assert re.search(rf"\b{name}\b", (ROOT / file).read_text()), f"{name} in {file}"


def block_after(words: str) -> list[list[str]]:
    """The columns of each line in the indented block that follows a text."""
    after = MAP.read_text().partition(words)[2].lstrip("\n")
    return [re.split(r" {2,}", line.strip()) for line in after.partition("\n\n")[0].splitlines()]


def test_the_floors_on_the_map_are_those_that_imports_are_held_against() -> None:
    assert [set(line) for line in block_after("imports only what stands below it:\n")] == list(FLOORS)


def stages_of(kind: str) -> set[str]:
    """Names of the stages that the recipes of a kind make, and of those that all kinds have."""
    own = ROOT / "pipeline/kinds" / kind
    paths = [ROOT / "pipeline/kinds/recipe.py", *own.rglob("recipe.py"), *own.glob("format.py")]
    return {
        str(node.args[0].value)
        for path in paths
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and len(node.args) > 1 and isinstance(node.args[0], ast.Constant)
        if ast.unparse(node.args[1]).lower().endswith("version")
    }


#: Stages of graphs that the text below the map tells of.
_SOMETIMES = (
    "comparable", "format", "asked", "nearest", "bridge", "labels", "borders", "settle", "districts", "rests",
)  # fmt: skip


def test_the_stages_on_the_map_are_those_of_the_recipes() -> None:
    lines = block_after("by kind and by what fits in memory:\n")
    for kind in ("graph", "lsh", "ivf"):
        shown = {stage for what, *stages in lines if what.split(",")[0] == kind for stage in stages}
        shown -= {"...", "ingest"}
        assert shown | (set(_SOMETIMES) if kind == "graph" else set()) == stages_of(kind), kind
    told = MAP.read_text().partition("A graph may have further stages.")[2]
    assert all(f"*{stage}*" in told for stage in _SOMETIMES)


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_map_says_where_to_start(question: str) -> None:
    rows = [line for line in MAP.read_text().splitlines() if line.startswith(f"| {question}")]
    assert len(rows) == 1
    assert _PLACE.search(rows[0]), rows


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for place, heading in _LINK.findall(page.read_text()):
        target = (page.parent / place) if place else page
        assert target.exists(), place
        if heading and target.suffix == ".md":
            assert heading in heading_ids(target), f"{place}#{heading}"


def memory_words(memory: OrderMemory) -> str:
    """The memory of an order, as the guide of layouts has it."""
    words = [f"{memory.a_vertex} bytes a vertex"]
    if memory.an_edge:
        words.append(f"{memory.an_edge} an edge")
    if memory.an_edge_of_a_part:
        words.append(f"{memory.an_edge_of_a_part} an edge of a part and thread")
    if memory.a_vertex_at_once:
        words.append(f"{memory.a_vertex_at_once} a vertex that a thread packs")
    return ", ".join(words)


def test_the_guide_of_layouts_has_every_order_with_its_memory() -> None:
    table = re.findall(
        r"^\| `([\w-]+)`[^|]*\|[^|]*\|[^|]*\| (\d+ bytes a vertex.*) \|$", GUIDE.read_text(), re.MULTILINE
    )
    assert dict(table) == {name: memory_words(order.memory) for name, order in ORDERS.items()}


def test_contributors_are_told_every_folder_with_compiled_functions() -> None:
    line = re.search(
        r"delete the `__pycache__` folders of (.+?):", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL
    )
    assert line is not None
    told = re.findall(r"`([\w/]+)`", line[1])
    paths = [path for layer in ("builders", "layout", "formats") for path in (ROOT / layer).rglob("*.py")]
    compiled = [
        path.relative_to(ROOT) for path in paths if re.search(r"^@kernel", path.read_text(), re.MULTILINE)
    ]
    assert {one for one in told if any(path.is_relative_to(one) for path in compiled)} == set(told)
    assert [path for path in compiled if not any(path.is_relative_to(one) for one in told)] == []


def test_the_changelog_and_the_recorded_bytes_have_every_order() -> None:
    listed = re.search(r"\* Orders: (.+?)\.\n", CHANGELOG.read_text(), re.DOTALL)
    assert listed is not None
    assert re.findall(r"`([\w-]+)`", listed[1]) == list(ORDERS)
    assert set(layouts.ORDERS) == set(ORDERS)


def test_the_readme_counts_the_orders_that_auto_tries() -> None:
    tried = [name for name in ORDERS if name != "random"]
    assert f"`--order auto` tries {len(tried)} orders" in " ".join(README.read_text().split())
