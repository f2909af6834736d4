"""Parts *portfolio*, *others* and *former*: the default format beside those that flags can state.

Flags have as many bytes a code as the default, and are tried as a careful user would: rotations and degrees with small
nodes first, then with the best of these a degree that leaves a page one node fewer, and other nodes.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from indexmill.formats.graph.nodes import NodeFormat
from indexmill.jobs.bench.common.intervals import curve_ratios, figure_at, ratio_at
from indexmill.jobs.bench.embed.formats import Tried, best, common_recall, tried
from indexmill.jobs.bench.embed.sets import SENTENCES, Case, Embeddings

ROTATIONS = ("none", "opq")
#: Neighbours of a vertex, beside the number that the default chose.
DEGREES = (32, 48)
#: Most neighbours that are tried.
MOST_DEGREE = 160
#: Flags of nodes of floats, the smallest first, and last those with exact vectors apart; and of bytes.
NODES: tuple[dict[str, Any], ...] = (
    {"node_dtype": "sq8"},
    {"node_dtype": "sq16"},
    {"node_dtype": "same"},
    {"node_dtype": "sq8", "keep_vectors": True},
)
NODES_OF_BYTES: tuple[dict[str, Any], ...] = ({"node_dtype": "same"},)
#: Bytes of a code of the sentences.
PORTFOLIO = (64, 128)
#: Half the memory of the default, and the format that every index had before formats were chosen.
HALF = {"search_memory": "32/vector"}
FORMER = {"pq_bytes": 32, "pq_rotation": "none", "node_dtype": "same", "R": 32}
OTHERS = ("text40k", "sift1m", "words20k")


def portfolio(space: Embeddings) -> dict[str, Any]:
    """Compare the formats of the sentences at each number of bytes."""
    case = space.case(SENTENCES)
    work = case.space.out / "work-hand"
    found = {str(n): beside_hand(case, {"search_memory": f"{n}/vector"}, work) for n in PORTFOLIO}
    shutil.rmtree(work)
    return {"queries": case.space.halves, "bytes": found}


def former(space: Embeddings) -> dict[str, Any]:
    """Compare the default format of half the memory with what flags were left at before formats were chosen."""
    case = space.case(SENTENCES)
    work = case.space.out / "work-hand"
    mine, before = (tried(case, flags, work) for flags in (HALF, FORMER))
    shutil.rmtree(work)
    return {
        "queries": case.space.halves,
        "default": mine.record(),
        "former": before.record(),
        "ratio": curve_ratios(mine.reads.curve, before.reads.curve),
    }


def others(space: Embeddings) -> dict[str, Any]:
    """Compare the formats of other sets, each with the memory that the default takes without a flag."""
    found = {}
    for name in OTHERS:
        case = space.case(name)
        work = case.space.out / "work-hand"
        found[name] = {"queries": case.space.halves, **beside_hand(case, {}, work)}
        shutil.rmtree(work)
    return {"sets": found}


def beside_hand(case: Case, limit: dict[str, Any], work: Path) -> dict[str, Any]:
    """Return the default format within a `limit`, all that was tried by hand, and the ratio of their page reads."""
    mine = tried(case, limit, work)
    chosen = mine.facts["format"]
    degrees = sorted({*DEGREES, chosen["max_degree"]})
    formats = by_hand(case, chosen["pq_bytes"], degrees, work)
    found = best(formats)
    at = common_recall([one.reads.rows for one in (mine, found)])
    return {
        "recall": at,
        "default": mine.record(),
        "best": found.record(),
        "tried": [one.record() for one in formats],
        "reads": {name: figure_at(one.reads.curve, at) for name, one in (("default", mine), ("best", found))},
        "ratio": ratio_at(mine.reads.curve, found.reads.curve, at),
    }


def by_hand(case: Case, pq_bytes: int, degrees: Sequence[int], work: Path) -> list[Tried]:
    """Try formats whose codes have `pq_bytes` bytes."""
    nodes = NODES if case.is_float else NODES_OF_BYTES

    def one(flags: dict[str, Any]) -> Tried:
        stated = {"pq_bytes": pq_bytes, **flags}
        print(f"  {case.name}: {stated}", file=sys.stderr, flush=True)
        return tried(case, stated, work)

    formats = [
        one({"pq_rotation": rotation, "R": degree, **nodes[0]})
        for rotation, degree in product(ROTATIONS, degrees)
    ]
    first = best(formats).flags
    dtype = "sq8" if case.is_float else "uint8"
    others = [{"R": wider(case.space.data.shape()[1], dtype, first["R"])}, *nodes[1:]]
    return formats + [one({**first, **other}) for other in others]


def wider(dim: int, dtype: str, degree: int, fewer: int = 1) -> int:
    """Return the greatest R up to `MOST_DEGREE` with as many nodes a page as `degree` has, or so many `fewer`."""

    def nodes_per_page(max_degree: int) -> int:
        return NodeFormat(dim, dtype, max_degree).nodes_per_page

    fewest = max(1, nodes_per_page(degree) - fewer)
    return max(one for one in range(degree, MOST_DEGREE + 1) if nodes_per_page(one) >= fewest)
