"""Indexes that live: what deletions, compactions and merges cost, and what searches read after them.

Every index is measured beside builds of the vectors that remain: by ``--builder vamana`` and by the default builder.
Recall and page reads are those of the second half of the queries; the searches repeat bit for bit.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import indexmill
from indexmill.jobs.bench.common.benchmark import Benchmark, Run, Target
from indexmill.jobs.bench.common.curves import ratio
from indexmill.jobs.bench.common.parameters import SEED, THREADS
from indexmill.jobs.bench.live.grow import grow
from indexmill.jobs.bench.live.living import PARAMETERS, Living, against, deleted_rows, repeated, timed
from indexmill.jobs.bench.live.pages import MOST_ROWS, pages
from indexmill.jobs.bench.programs import ours

SETS = ("sift1m", "embed768")
#: Rounds, share of the vectors that each adds and deletes, and vectors of all rounds at most.
ROUNDS, COMPACTED_EVERY, ROUND_SHARE, ROUNDS_ROWS = 20, 5, 0.05, 500_000
MERGED = 8
_ROUNDS = 0x20


def delete(space: Living, name: str) -> dict[str, Any]:
    """Delete a tenth and search, then compact and search, beside rebuilds of the rest."""
    vectors, index = space.vectors(name), f"{name}-deleted"
    built = space.build(vectors, index)
    gone = deleted_rows(len(vectors))
    left = np.setdiff1d(np.arange(len(vectors)), gone)
    deletion = timed(lambda: indexmill.delete(space.out / index, gone, by="vector"))
    tombstones = {"search": space.search(name, index, vectors, left)}
    out = space.out / f"{name}-compacted"
    how: dict[str, Any] = {"out": out, "workers": THREADS, "memory": "8GiB", "force": True}
    compaction = repeated(lambda: indexmill.compact(space.out / index, **how))
    remaining = np.ascontiguousarray(vectors[left])
    compacted = {
        "seconds": round(deletion["seconds"] + compaction["seconds"], 2),
        "cpu_s": round(deletion["cpu_s"] + compaction["cpu_s"], 2),
        "times": compaction["times"],
        "search": space.search(name, out.name, remaining),
        "stages": ours.run_facts(out)["seconds"],
    }
    rebuilt = space.rebuilds(name, remaining)
    return {
        "n": len(vectors),
        "built": built,
        "deletion": deletion,
        "tombstones": tombstones | {"ratio": against(tombstones, rebuilt)},
        "compacted": compacted | {"ratio": against(compacted, rebuilt)},
        "rebuilt": rebuilt,
    }


def rounds(space: Living, name: str) -> dict[str, Any]:
    """Append and delete a twentieth in each round, compact every fifth, beside a rebuild of what remains."""
    vectors, index = space.vectors(name)[:ROUNDS_ROWS], f"{name}-rounds"
    n = first_of_rounds(len(vectors))
    step, random = round(ROUND_SHARE * n), np.random.default_rng([SEED, _ROUNDS])
    built = space.build(vectors[:n], index)
    rows, gone = np.arange(n), np.empty(0, np.int64)  # of each vector id; vector ids
    seconds, compactions = 0.0, 0

    def compact() -> None:
        nonlocal rows, gone, compactions
        indexmill.compact(space.out / index, workers=THREADS, memory="8GiB")
        rows, gone, compactions = np.delete(rows, gone), np.empty(0, np.int64), compactions + 1

    def one(number: int) -> None:
        nonlocal rows, gone
        more = np.arange(n + number * step, n + (number + 1) * step)
        indexmill.append(space.out / index, vectors[more], workers=THREADS)
        rows = np.concatenate([rows, more])
        chosen = random.choice(np.setdiff1d(np.arange(len(rows)), gone), step, replace=False)
        indexmill.delete(space.out / index, chosen, by="vector")
        gone = np.concatenate([gone, chosen])
        if (number + 1) % COMPACTED_EVERY == 0:
            compact()

    for number in range(ROUNDS):
        seconds += timed(partial(one, number))["seconds"]
    remaining = np.ascontiguousarray(vectors[rows])
    rebuilt = space.rebuilds(name, remaining)
    found = {
        "seconds": round(seconds / ROUNDS, 2),  # of a round
        "search": space.search(name, index, remaining),
        "drift": ours.manifest(space.out / index)["drift"],
    }
    return {
        "n": n,
        "built": built,
        "rounds": ROUNDS,
        "compactions": compactions,
        **found,
        "ratio": against(found, rebuilt),
        "rebuilt": rebuilt,
    }


def first_of_rounds(n: int) -> int:
    """Return with how many of `n` vectors part ``rounds`` begins, and ends."""
    return int(n / (1 + ROUNDS * ROUND_SHARE))


def merge(space: Living, name: str) -> dict[str, Any]:
    """Merge eight indexes of the default builder at once, and three in one run and in two, beside rebuilds."""
    vectors = space.vectors(name)
    cuts = np.linspace(0, len(vectors), MERGED + 1).astype(int)
    parts = [f"{name}-part-{i}" for i in range(MERGED)]
    for part, first, last in zip(parts, cuts, cuts[1:], strict=False):
        space.build(vectors[first:last], part, "auto")
    paths = [space.out / part for part in parts]

    def merged(index: str, *of: Path) -> dict[str, Any]:
        return timed(lambda: indexmill.merge(*of, out=space.out / index, workers=THREADS, force=True))

    whole = merged(f"{name}-merged", *paths)
    found = whole | {
        "search": space.search(name, f"{name}-merged", vectors),
        "stages": ours.run_facts(space.out / f"{name}-merged")["seconds"],
        "drift": ours.manifest(space.out / f"{name}-merged")["drift"],
    }
    rebuilt = space.rebuilds(name, vectors)
    three = np.ascontiguousarray(vectors[: cuts[3]])
    merged(f"{name}-once", *paths[:3])
    merged(f"{name}-both", *paths[:2])
    merged(f"{name}-twice", space.out / f"{name}-both", paths[2])
    once, twice = (space.search(name, f"{name}-{index}", three) for index in ("once", "twice"))
    return {
        "n": len(vectors),
        "indexes": MERGED,
        "merged": found | {"ratio": against(found, rebuilt)},
        "rebuilt": rebuilt,
        "once": once,
        "twice": twice,
        "twice_to_once": ratio(twice["reads"], once["reads"]),
    }


_PARTS = {"delete": delete, "rounds": rounds, "merge": merge, "grow": grow, "pages": pages}


#: What is held to a target, in the record of a set: part, place, relation and limit.
_TARGETS = (
    ("delete 10% and compact: time / vamana rebuild", "delete", "compacted.ratio.time", "<=", 0.35),
    ("the same / default rebuild", "delete", "compacted.ratio.time_default", "<=", 0.8),
    (
        "the same: recall at equal reads, more than a rebuild's",
        "delete",
        "compacted.ratio.recall",
        ">=",
        -0.002,
    ),
    ("10% deleted, not compacted: reads at 0.95 / rebuild", "delete", "tombstones.ratio.reads", "<=", 1.08),
    (
        f"after {ROUNDS} rounds, at most {first_of_rounds(ROUNDS_ROWS):,} vectors: reads at 0.95 / rebuild",
        "rounds",
        "ratio.reads",
        "<=",
        1.05,
    ),
    ("merge of 8: time / vamana rebuild", "merge", "merged.ratio.time", "<=", 0.6),
    (
        "merge of 8: recall at equal reads, more than a rebuild's",
        "merge",
        "merged.ratio.recall",
        ">=",
        -0.003,
    ),
    ("merge(merge(A, B), C) / merge(A, B, C), reads at 0.95", "merge", "twice_to_once", "<=", 1.02),
    ("append 1% to lists: time / rebuild", "grow", "ivf.ratio.time", "<=", 0.1),
    ("append 1% to tables: time / rebuild", "grow", "lsh.ratio.time", "<=", 0.1),
    *(
        (
            f"10% deleted, at most {MOST_ROWS:,} vectors: processor time a page / without deletions (median of rounds, "
            f"least to greatest), {kinds}",
            "pages",
            f"{kind}.ratio",
            "<=",
            1.02,
        )
        for kind, kinds in (("graph", "graph"), ("ivf", "lists"), ("lsh", "tables"))
    ),
)


def _targets() -> list[Target]:
    return [
        Target(f"{what}, {of}", f"{part}_{of}.{place}", relation, limit)
        for of in SETS
        for what, part, place, relation, limit in _TARGETS
    ]


def _space(run: Run) -> Living:
    return Living(run.sets, run.out)


BENCHMARK = Benchmark[Living](
    "live",
    {f"{part}-{of}": partial(measure, name=of) for of in SETS for part, measure in _PARTS.items()},
    targets=_targets(),
    sets=SETS,
    space=_space,
    parameters=PARAMETERS,
)

if __name__ == "__main__":
    BENCHMARK.main()
