"""Pages name places of the repository that exist, and link to pages and headings that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from indexmill.layout.order import OrderMemory
from indexmill.layout.portfolio import ORDERS

ROOT = Path(__file__).parent.parent
MAP = ROOT / "docs/ARCHITECTURE.md"
README = ROOT / "README.md"
GUIDE = ROOT / "docs/guides/layout.md"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("reader/*.md")])
#: Questions of a new developer, as the table of docs/ARCHITECTURE.md has them.
QUESTIONS = (
    "how the memory of an IVF build is counted", "add an order", "add an export", "where a stage is retried",
    "what decides the reads of a pipeline search", "add a flag to `build`", "add a kind of index",
)  # fmt: skip
_PLACE = re.compile(r"`((?:[\w.-]+/)+[\w.-]*)`")
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")


def heading_ids(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def test_every_place_on_the_map_exists() -> None:
    named = _PLACE.findall(MAP.read_text())
    assert len(named) > 40
    assert [place for place in named if not (ROOT / place).exists()] == []


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
    return ", ".join(words)


def test_the_guide_of_layouts_has_every_order_with_its_memory() -> None:
    table = re.findall(
        r"^\| `([\w-]+)`[^|]*\|[^|]*\|[^|]*\| (\d+ bytes a vertex.*) \|$", GUIDE.read_text(), re.MULTILINE
    )
    assert dict(table) == {name: memory_words(order.memory) for name, order in ORDERS.items()}


def test_the_readme_counts_the_orders_that_auto_tries() -> None:
    tried = [name for name in ORDERS if name != "random"]
    assert f"`--order auto` tries {len(tried)} orders" in " ".join(README.read_text().split())
