"""Indexes that live: what deletions, compactions and merges cost, and what searches read after them.

Every index is measured beside builds of the vectors that remain: by ``--builder vamana`` and by the default builder.
Recall and page reads are those of the second half of the queries; the searches repeat bit for bit.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import indexmill
from indexmill.builders.lists.exact import exact_neighbours
from indexmill.jobs.bench.common.benchmark import Benchmark, Run, Target
from indexmill.jobs.bench.common.curves import COARSE_SIZES, RECALL, ratio, value_at
from indexmill.jobs.bench.common.dataset import Dataset, K, count_hits, read_bin
from indexmill.jobs.bench.common.parameters import ALPHA, BUILD_LIST_SIZE, MAX_DEGREE, SEED, THREADS, pq_bytes
from indexmill.jobs.bench.programs import ours
from indexmill.jobs.kinds.opening import open_index

PARAMETERS: dict[str, Any] = {
    "R": MAX_DEGREE, "L": BUILD_LIST_SIZE, "alpha": ALPHA, "pq_rotation": "none", "node_dtype": "same", "seed": SEED,
    "workers": THREADS, "force": True,
}  # fmt: skip
SETS = ("sift1m", "embed768")
#: Share of the vectors that part ``delete`` deletes, and that a round of part ``rounds`` adds and deletes.
DELETED_SHARE, ROUND_SHARE = 0.1, 0.05
ROUNDS, COMPACTED_EVERY = 20, 5
#: Share of the vectors that part ``grow`` appends.
GROWN_SHARE = 0.01
MERGED = 8
_DELETIONS, _ROUNDS = 0xDE1, 0x20
_WARM_UP_ROWS = 3000


@dataclass(frozen=True, eq=False)
class Living:
    """Vectors and indexes of the parts.

    Attributes
    ----------
    data : dict of str to Dataset
    out : Path
    """

    data: dict[str, Dataset]
    out: Path

    @cache  # noqa: B019  # one object a run
    def vectors(self, name: str) -> NDArray[Any]:
        """Return the vectors of a set; kernels are loaded with the first."""
        rows = np.asarray(read_bin(self.data[name].base))
        warm = self.out / f"warm-up-{name}"
        for builder in ("vamana", "auto"):
            indexmill.build(rows[:_WARM_UP_ROWS], warm, builder=builder, **parameters(rows))
        indexmill.append(warm, rows[:10])
        indexmill.delete(warm, [0, 1], by="vector")
        indexmill.compact(warm)
        shutil.rmtree(warm)
        return rows

    @cache  # noqa: B019
    def queries(self, name: str) -> NDArray[Any]:
        """Return the second half of the queries of a set."""
        return np.asarray(read_bin(self.data[name].query))[self.data[name].halves()[0] :]

    def build(self, vectors: NDArray[Any], name: str, builder: str = "vamana") -> dict[str, Any]:
        """Build an index called `name`; return its seconds."""
        path = self.out / name
        return timed(lambda: indexmill.build(vectors, path, builder=builder, **parameters(vectors)))

    def search(
        self, name: str, index: str, vectors: NDArray[Any], left: NDArray[Any] | None = None
    ) -> dict[str, Any]:
        """Search an index for recall and page reads by list size.

        Parameters
        ----------
        vectors : array, shape (n, dim)
            By vector id.
        left : integer array, optional
            Vector ids of those that are not deleted; default: all.
        """
        queries, opened = self.queries(name), open_index(self.out / index)
        base = vectors if left is None else np.ascontiguousarray(vectors[left])
        truth = exact_neighbours(base, queries, K, THREADS)[1]
        rows = []
        for size in COARSE_SIZES:
            result = opened.search(queries, K, L=size, threads=THREADS, deterministic=True)
            recall = float(count_hits(result.vector_ids, vectors, queries, truth).mean()) / K
            pages = float(result.counters["pages_read"].mean())
            rows.append({"L": size, "recall": round(recall, 5), "pages_read": round(pages, 3)})
        return {"rows": rows, "reads": value_at(rows, "pages_read")}

    def rebuilds(self, name: str, vectors: NDArray[Any]) -> dict[str, Any]:
        """Build the vectors that remain by both builders, and search the index of the first."""
        index = f"{name}-rebuilt"
        default = self.build(vectors, index, "auto")
        vamana = self.build(vectors, index)
        return {"default": default, **vamana, "search": self.search(name, index, vectors)}


def parameters(vectors: NDArray[Any]) -> dict[str, Any]:
    """Return the parameters of every build of `vectors`, except the builder."""
    return {**PARAMETERS, "pq_bytes": pq_bytes(vectors.shape[1])}


def timed(run: Callable[[], Any]) -> dict[str, Any]:
    """Return the seconds of a call, and the processor's."""
    began, began_cpu = time.perf_counter(), time.process_time()
    run()
    return {
        "seconds": round(time.perf_counter() - began, 2),
        "cpu_s": round(time.process_time() - began_cpu, 2),
    }


def against(found: dict[str, Any], rebuilt: dict[str, Any]) -> dict[str, Any]:
    """Return ratios of times and reads to those of the rebuilds, and the recall that is gained at equal reads."""
    search, other = found["search"], rebuilt["search"]
    reads = other["reads"]
    recall = None if reads is None else value_at(search["rows"], "recall", reads, of="pages_read")
    figures = {"reads": ratio(search["reads"], reads), "recall": None if recall is None else recall - RECALL}
    if "seconds" in found:
        figures["time"] = ratio(found["seconds"], rebuilt["seconds"])
        figures["time_default"] = ratio(found["seconds"], rebuilt["default"]["seconds"])
    return figures


def delete(space: Living, name: str) -> dict[str, Any]:
    """Delete a tenth and search, then compact and search, beside rebuilds of the rest."""
    vectors, index = space.vectors(name), f"{name}-deleted"
    built = space.build(vectors, index)
    random = np.random.default_rng([SEED, _DELETIONS])
    gone = random.choice(len(vectors), round(DELETED_SHARE * len(vectors)), replace=False)
    left = np.setdiff1d(np.arange(len(vectors)), gone)
    deletion = timed(lambda: indexmill.delete(space.out / index, gone, by="vector"))
    tombstones = {"search": space.search(name, index, vectors, left)}
    compaction = timed(lambda: indexmill.compact(space.out / index, workers=THREADS, memory="8GiB"))
    remaining = np.ascontiguousarray(vectors[left])
    compacted = {
        "seconds": round(deletion["seconds"] + compaction["seconds"], 2),
        "cpu_s": round(deletion["cpu_s"] + compaction["cpu_s"], 2),
        "search": space.search(name, index, remaining),
        "stages": ours.run_facts(space.out / index)["seconds"],
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
    vectors, index = space.vectors(name), f"{name}-rounds"
    n = int(len(vectors) / (1 + ROUNDS * ROUND_SHARE))
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
        "search": space.search(name, index, remaining),
        "drift": ours.manifest(space.out / index)["drift"],
    }
    return {
        "n": n,
        "built": built,
        "rounds": ROUNDS,
        "rounds_s": round(seconds, 2),
        "compactions": compactions,
        **found,
        "ratio": against(found, rebuilt),
        "rebuilt": rebuilt,
    }


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


def grow(space: Living, name: str) -> dict[str, Any]:
    """Append a hundredth to inverted lists and to hash tables, beside builds of all vectors."""
    vectors, kinds = space.vectors(name), {kind: _grown(space, name, kind) for kind in ("ivf", "lsh")}
    return {"n": len(vectors), **kinds}


def _grown(space: Living, name: str, kind: str) -> dict[str, Any]:
    vectors, index = space.vectors(name), space.out / f"{name}-{kind}"
    added = max(1, round(GROWN_SHARE * len(vectors)))

    def build(of: NDArray[Any]) -> None:
        indexmill.build(of, index, kind=kind, seed=SEED, workers=THREADS, force=True)

    build(vectors[:_WARM_UP_ROWS])
    indexmill.append(index, vectors[:10], workers=THREADS)
    build(vectors[:-added])
    append = timed(lambda: indexmill.append(index, vectors[-added:], workers=THREADS))
    stages = ours.run_facts(index)["seconds"]
    rebuilt = timed(lambda: build(vectors))
    times = {"time": ratio(append["seconds"], rebuilt["seconds"])}
    return {"added": added, **append, "stages": stages, "rebuilt": rebuilt, "ratio": times}


_PARTS = {"delete": delete, "rounds": rounds, "merge": merge, "grow": grow}


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
    ("after 20 rounds: reads at 0.95 / rebuild", "rounds", "ratio.reads", "<=", 1.05),
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
