"""Part *kinds*: graph, hash tables and inverted lists side by side, at equal recall@10, two threads, from storage.

A kind's settings are chosen on the first half of the queries: the fastest that reaches the recall. Inverted lists
are searched by ``indexmill join``, which reads the whole index once for all queries, so its queries a second depend on
how many there are; and query by query, where shorter lists with copies of vectors are tried, too, as SPANN has them.
The figures of a kind are of a process of its own that makes no other searches, since buffers of wider ones would stay.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow.parquet as pq

from indexmill.jobs.bench.common.curves import LONG_SIZES, at_recalls
from indexmill.jobs.bench.common.dataset import Dataset, K, read_bin, read_truth, write_bin
from indexmill.jobs.bench.common.parameters import BUILD_MEMORY, SEED, THREADS
from indexmill.jobs.bench.common.process import memory_of, run_indexmill
from indexmill.jobs.bench.common.record import read_json
from indexmill.jobs.bench.lsh.quality import judge
from indexmill.jobs.bench.lsh.space import BASE, STORAGE, SURE, Half, Searcher, Space, build_cost, index_facts
from indexmill.jobs.bench.lsh.tables import INFLIGHT
from indexmill.jobs.bench.lsh.tune import Row, least_that
from indexmill.jobs.bench.programs import ours
from indexmill.jobs.bench.programs.ours import Setting

SETS = ("sift1m", "text40k")
RECALLS = (0.90, 0.95)
#: Lists that a join probes.
_NPROBES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
#: Of searches query by query: copies of a vector, lists for each of the join's, vectors they are trained on at most,
#: and how much farther than the nearest list one may be.
_COPIES, _SHORTER, _SAMPLE = 4, 4, 200_000
_PRUNES = (None, 0.2)
#: Buckets looked up beside a query's own.
_PROBES = (0, 8, 32)

Figures = dict[str, Any]
How = TypeVar("How")


def measure(space: Space) -> dict[str, Any]:
    """Measure each kind on each set at each recall; None where it was not reached."""
    return {"sets": {name: {kind: find(name, space) for kind, find in SEARCHES.items()} for name in SETS}}


def graph(name: str, space: Space) -> dict[str, Figures | None]:
    """Search the graph in star order; it is built if ``OUT/graph-SET`` has none."""
    work = space.graph_space(name)
    index = work.index(ours.ensure(work, "star"))
    with ours.Ours(work) as searcher:
        search = searcher.search("star", Setting())
        tuned = [(size, search(size, "tune")) for size in LONG_SIZES]

        def at(recall: float) -> Figures | None:
            size = _fastest(tuned, recall)
            if size is None:
                return None
            with ours.Ours(work) as alone:
                row = _again(lambda: alone.search("star", Setting())(size, "report"))
                memory = memory_of(alone.session.child.pid)["RssAnon"]
            reads, build_s = (row["pages_read"], row["bytes_read"]), sum(ours.stage_seconds(index).values())
            return _figures(f"L {size}", row, reads, memory, index, build_s)

        return at_recalls(at, RECALLS)


def hash_tables(name: str, space: Space) -> dict[str, Figures | None]:
    """Search the tables, as they are by default and with more of them, with several numbers of probes."""
    data = space.data(name)
    indexes = [space.ensure(name, data, shape) for shape in (BASE, SURE)]
    with Searcher(data, space.out / f"kinds-{name}.log") as searcher:

        def ask(index: Path, search: Figures, half: Half, engine: str = STORAGE) -> Row:
            return searcher.ask("lsh", {"index": str(index), "engine": engine}, search, K, half)

        def at(recall: float) -> Figures | None:
            tuned = []
            for index, probes in product(indexes, _PROBES):
                search: Figures = {"probes": probes, "threads": THREADS}
                least, _ = least_that(
                    lambda row: bool(row["recall"] >= recall),
                    lambda s, index=index, search=search: ask(
                        index, search | {"candidates": s}, "tune", "memory"
                    ),  # type: ignore[misc]
                    K,
                    max(K + 1, data.shape()[0] // 4),
                )
                if least is not None:
                    search |= {"candidates": least, "inflight": INFLIGHT}
                    tuned.append(((index, search), ask(index, search, "tune")))
            if not tuned:
                return None
            index, search = max(tuned, key=lambda one: float(one[1]["qps"]))[0]
            opened, shape = {"index": str(index), "engine": STORAGE}, index_facts(index)
            with Searcher(data, space.out / f"kinds-{name}.log") as alone:
                row = _again(lambda: alone.ask("lsh", opened, search, K, "report"))
            told = f"L {shape['n_tables']}, S {search['candidates']}, T {search['probes']}"
            reads = row["table_reads"] + row["block_reads"], row["bytes_read"]
            return _figures(
                told, row, reads, row["resident_bytes"]["own"], index, build_cost(index)["wall_s"]
            )

        return at_recalls(at, RECALLS)


def inverted_lists(name: str, space: Space) -> dict[str, Figures | None]:
    """Join all reported queries with lists of whole vectors; the index is built if it is not there."""
    data, index = space.data(name), space.out / f"{name}.ivf"
    build_s = _build_lists(data, index, _n_lists(data))
    half, n_queries = data.halves()
    recall_of = cache(lambda nprobe: float(_join(data, index, nprobe, 0, half)[0]["recall"]))

    def at(recall: float) -> Figures | None:
        nprobe = next((n for n in _NPROBES if recall_of(n) >= recall), None)
        if nprobe is None:
            return None
        row, reads, memory = _join(data, index, nprobe, half, n_queries)
        return _figures(
            f"nprobe {nprobe}, {n_queries - half} queries a batch", row, reads, memory, index, build_s
        )

    return at_recalls(at, RECALLS)


def searched_lists(name: str, space: Space) -> dict[str, Figures | None]:
    """Search query by query: the lists that are joined, and more of them with copies of vectors."""
    data, lists = space.data(name), _n_lists(space.data(name))
    whole, copied = space.out / f"{name}.ivf", space.out / f"{name}-copies.ivf"
    build_s = {
        whole: _build_lists(data, whole, lists),
        copied: _build_lists(data, copied, _SHORTER * lists, copies=_COPIES, sample_vectors=_SAMPLE),
    }
    told = {whole: f"{lists:,} lists", copied: f"{_SHORTER * lists:,} lists, {_COPIES} copies"}
    with Searcher(data, space.out / f"kinds-{name}.log") as searcher:
        tuned = [one for index in told for prune in _PRUNES for one in _lists_along(searcher, index, prune)]

        def at(recall: float) -> Figures | None:
            best = _fastest(tuned, recall)
            if best is None:
                return None
            index, search = best
            with Searcher(data, space.out / f"kinds-{name}.log") as alone:
                row = _again(lambda: _search_lists(alone, index, search, "report"))
            prune = "" if search["prune"] is None else f", prune {search['prune']}"
            setting, reads = (
                f"{told[index]}, nprobe {search['nprobe']}{prune}",
                (row["reads"], row["bytes_read"]),
            )
            return _figures(setting, row, reads, row["resident_bytes"]["own"], index, build_s[index])

        return at_recalls(at, RECALLS)


def _again(search: Callable[[], Row]) -> Row:
    """Search twice and return the second row: the first search of a process begins its threads."""
    search()
    return search()


def _fastest(tuned: list[tuple[How, Row]], recall: float) -> How | None:
    """Return how the fastest search was made that reached the recall; None if none did."""
    enough = [one for one in tuned if one[1]["recall"] >= recall]
    return max(enough, key=lambda one: float(one[1]["qps"]))[0] if enough else None


def _figures(
    setting: str, row: Row, reads: tuple[float, float], memory: int, index: Path, build_s: float
) -> Figures:
    """Put together what is told of a kind; `reads` are their number and bytes, of a query."""
    index_bytes = sum(path.stat().st_size for path in index.glob("*") if path.is_file())
    return {
        "setting": setting, "reads": reads[0], "read_bytes": reads[1], "memory_bytes": memory, "recall": row["recall"],
        "qps": row["qps"], "index_bytes": index_bytes, "build_s": build_s,
    }  # fmt: skip


def _lists_along(
    searcher: Searcher, index: Path, prune: float | None
) -> Iterator[tuple[tuple[Path, Figures], Row]]:
    """Search with more and more lists, up to the highest recall."""
    lists = ours.manifest(index)["ivf"]["lists"]
    for nprobe in _NPROBES:
        if nprobe > lists:
            return
        search = {"nprobe": nprobe, "prune": prune}
        row = _search_lists(searcher, index, search, "tune")
        yield (index, search), row
        if row["recall"] >= max(RECALLS):
            return


def _search_lists(searcher: Searcher, index: Path, search: Figures, half: Half) -> Row:
    options = {**search, "threads": THREADS, "inflight": INFLIGHT}
    return searcher.ask("ivf", {"index": str(index), "engine": STORAGE}, options, K, half)


def _n_lists(data: Dataset) -> int:
    """Return about four lists for the root of n."""
    return int(2 ** round(np.log2(4 * data.shape()[0] ** 0.5)))


def _build_lists(data: Dataset, index: Path, lists: int, **options: Any) -> float:
    """Build an index unless it is there, and say how long it took."""
    cost = index.with_suffix(".build.json")
    if not cost.exists():
        options |= {"seed": SEED, "memory": BUILD_MEMORY, "workers": THREADS}
        cost.write_text(json.dumps(ours.build_lists(data.base, index, lists, **options).to_dict()))
    return float(read_json(cost)["wall_s"])


def _join(
    data: Dataset, index: Path, nprobe: int, first: int, last: int
) -> tuple[Row, tuple[float, float], int]:
    """Join queries `first` to `last`, in a process of its own for its memory; speed is that of the join alone."""
    queries = index.with_suffix(data.query.suffix)
    asked = np.array(read_bin(data.query)[first:last])
    write_bin(queries, asked)
    out, log = index.with_suffix(".parquet"), index.with_suffix(".join.log")
    usage = run_indexmill(log, "join", queries, index, k=K, nprobe=nprobe, out=out, workers=THREADS)
    told = json.loads(log.read_text()[log.read_text().index("{") :])
    rows = pq.read_table(out, columns=["query", "rank", "vector_id"])
    found = np.full((last - first, K), -1, np.int64)
    found[rows["query"].to_numpy(), rows["rank"].to_numpy()] = rows["vector_id"].to_numpy()
    judged = judge(found, read_bin(data.base), asked, read_truth(data.truth)[1][first:last])
    n_queries = last - first
    reads = told["batches"] / n_queries, told["load_bytes"] / n_queries
    return {"recall": judged["recall"], "qps": n_queries / told["seconds"]}, reads, usage.peak_bytes


#: Function that finds the figures of each kind.
SEARCHES: dict[str, Callable[[str, Space], dict[str, Figures | None]]] = {
    "graph": graph,
    "lsh": hash_tables,
    "ivf": inverted_lists,
    "ivf-search": searched_lists,
}
