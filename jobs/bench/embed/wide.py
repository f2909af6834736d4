"""Part *wide*: more neighbours than a build takes, on pages with a node fewer, beside as many as a build takes.

Both indexes are built from an empty work folder, searched in turns, and removed.
"""

from __future__ import annotations

import shutil
from typing import Any

from indexmill.jobs.bench.common.curves import RECALLS, in_turns, ratio, sizes_at
from indexmill.jobs.bench.common.dataset import touch
from indexmill.jobs.bench.common.intervals import curve_ratios, medians_at, ratios_at, short
from indexmill.jobs.bench.embed import formats, hand
from indexmill.jobs.bench.embed.sets import SENTENCES, Embeddings
from indexmill.jobs.bench.programs import ours

#: Names of the indexes, in the order in which they are built and searched.
USUAL, WIDE = "usual", "wide"
ROUNDS = 3
_COSTS = ("wall_s", "cpu_s", "peak_bytes", "index_bytes")


def measure(space: Embeddings) -> dict[str, Any]:
    """Compare builds, page reads, and time of searches."""
    case = space.case(SENTENCES)
    place = case.space
    formats.warm_up(case)
    touch(place.data.base)
    made = {USUAL: formats.build(case, USUAL)}
    degree = wide_degree(place.data.shape()[1], made[USUAL]["format"])
    made[WIDE] = formats.build(case, WIDE, R=degree)
    reads = {name: formats.page_reads(place, name) for name in made}
    with ours.Ours(place) as searcher:
        searches = {name: searcher.search(name, formats.SETTING) for name in made}
        sizes = {name: sizes_at(found.tuned) for name, found in reads.items()}
        done = in_turns(searches, sizes, space.rounds or ROUNDS)
    for name in made:
        shutil.rmtree(place.index(name))
    return {
        "recalls": RECALLS,
        "queries": place.halves,
        "setting": formats.SETTING.to_dict(),
        **{name: {**made[name], **reads[name].facts()} for name in made},
        "ratio": {name: ratio(made[WIDE][name], made[USUAL][name]) for name in _COSTS},
        "pages_ratio": curve_ratios(reads[WIDE].curve, reads[USUAL].curve),
        "qps": {name: medians_at(done, name, "qps") for name in made},
        "qps_ratio": ratios_at(done, WIDE, USUAL, "qps"),
        "cpu_ratio": ratios_at(done, WIDE, USUAL, "cpu_us"),
        "rounds": short(done),
    }


def wide_degree(dim: int, usual: dict[str, Any]) -> int:
    """Return an R beyond that of a build: more on pages of as many nodes, or else of one fewer."""
    node, degree = usual["node_dtype"], usual["max_degree"]
    same = hand.wider(dim, node, degree, fewer=0)
    return same if same > degree else hand.wider(dim, node, degree)
