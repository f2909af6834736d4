"""Part *kinds*: graph, hash tables and inverted lists side by side, at equal recall@10, two threads, from storage.

A kind's settings are chosen on the first half of the queries: the fastest that reaches the recall. Inverted lists
are searched by ``indexmill join``, which reads the whole index once for all queries, so its queries a second depend on
how many there are; and query by query, where shorter lists with copies of vectors are tried, too, as SPANN has them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from indexmill.jobs.bench.common.curves import COARSE_SIZES, key
from indexmill.jobs.bench.common.dataset import Dataset, K, read_bin, read_truth, write_bin
from indexmill.jobs.bench.common.parameters import BUILD_MEMORY, SEED, THREADS
from indexmill.jobs.bench.common.process import indexmill, run_measured
from indexmill.jobs.bench.lsh.quality import judge
from indexmill.jobs.bench.lsh.space import BASE, STORAGE, SURE, Half, Searcher, Space, build_cost, index_facts
from indexmill.jobs.bench.lsh.tables import INFLIGHT
from indexmill.jobs.bench.lsh.tune import Row, least_that
from indexmill.jobs.bench.programs import ours
from indexmill.jobs.bench.programs.ours import Setting

SETS = ("sift1m", "text40k")
RECALLS = (0.90, 0.95)
#: Search lists of the graph, and lists that a join probes.
_SIZES = (*COARSE_SIZES, 320, 448, 640, 896)
_NPROBES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
#: Of searches query by query: copies of a vector, lists for each of the join's, vectors they are trained on at most,
#: and how much farther than the nearest list one may be.
_COPIES, _SHORTER, _SAMPLE = 4, 4, 200_000
_PRUNES = (None, 0.2)
#: Buckets looked up beside a query's own.
_PROBES = (0, 8, 32)

Figures = dict[str, Any]


def measure(space: Space) -> dict[str, Any]:
    """Measure each kind on each set at each recall; None where it was not reached."""
    return {"sets": {name: {kind: find(name, space) for kind, find in KINDS.items()} for name in SETS}}


def graph(name: str, space: Space) -> dict[str, Figures | None]:
    """Search the graph in star order; it is built if ``OUT/graph-SET`` has none."""
    work = space.graph_space(name)
    index = work.index(ours.ensure(work, "star"))
    facts = {"index_bytes": _bytes(index), "build_s": sum(ours.stage_seconds(index).values())}
    with ours.Ours(work) as searcher:
        search = searcher.search("star", Setting())
        tuned = [search(size, "tune") for size in _SIZES]
        found: dict[str, Figures | None] = {}
        for recall in RECALLS:
            enough = [row for row in tuned if row["recall"] >= recall]
            found[key(recall)] = None
            if enough:
                size = max(enough, key=lambda row: float(row["qps"]))["L"]
                row = search(size, "report")
                found[key(recall)] = {
                    "setting": f"L {size}", "reads": row["pages_read"], "read_bytes": row["bytes_read"],
                    "memory_bytes": own_memory(searcher.session.child.pid), **_common(row), **facts,
                }  # fmt: skip
    return found


def hash_tables(name: str, space: Space) -> dict[str, Figures | None]:
    """Search the tables, as they are by default and with more of them, with several numbers of probes."""
    data = space.data(name)
    options: dict[str, list[Figures]] = {key(recall): [] for recall in RECALLS}
    with Searcher(data, space.out / f"kinds-{name}.log") as searcher:
        for shape in (BASE, SURE):
            index = space.ensure(name, data, shape)
            for probes in _PROBES:
                for recall in RECALLS:
                    found = _tables_at(searcher, index, data.shape()[0], probes, recall)
                    if found is not None:
                        options[key(recall)].append(found | {"shape": shape.name, "index": str(index)})
        return {at: _best_tables(searcher, some) for at, some in options.items()}


def _tables_at(searcher: Searcher, index: Path, n: int, probes: int, recall: float) -> Figures | None:
    """Return the least S with that recall, tried in memory, and the speed there from storage."""

    def ask(candidates: int) -> Row:
        opened = {"index": str(index), "engine": "memory"}
        search = {"candidates": candidates, "probes": probes, "threads": THREADS}
        return searcher.ask("lsh", opened, search, K, "tune")

    candidates, _ = least_that(lambda row: bool(row["recall"] >= recall), ask, K, max(K + 1, n // 4))
    if candidates is None:
        return None
    search = {"candidates": candidates, "probes": probes, "threads": THREADS, "inflight": INFLIGHT}
    row = searcher.ask("lsh", {"index": str(index), "engine": STORAGE}, search, K, "tune")
    return {"search": search, "tuning_qps": row["qps"]}


def _best_tables(searcher: Searcher, options: list[Figures]) -> Figures | None:
    if not options:
        return None
    best = max(options, key=lambda one: float(one["tuning_qps"]))
    index = Path(best["index"])
    row = searcher.ask("lsh", {"index": str(index), "engine": STORAGE}, best["search"], K, "report")
    shape, search = index_facts(index), best["search"]
    return {
        "setting": f"L {shape['n_tables']}, S {search['candidates']}, T {search['probes']}",
        "reads": row["table_reads"] + row["block_reads"], "read_bytes": row["bytes_read"],
        "memory_bytes": row["resident_bytes"]["own"], **_common(row),
        "index_bytes": _bytes(index), "build_s": build_cost(index)["wall_s"],
    }  # fmt: skip


def inverted_lists(name: str, space: Space) -> dict[str, Figures | None]:
    """Join all reported queries with lists of whole vectors; the index is built if it is not there."""
    data, index = space.data(name), space.out / f"{name}.ivf"
    build_s = _build_lists(data, index, _n_lists(data))
    half, n_queries = data.halves()
    recall_of = cache(lambda nprobe: float(_join(data, index, nprobe, 0, half)["recall"]))
    found: dict[str, Figures | None] = {}
    for recall in RECALLS:
        nprobe = next((n for n in _NPROBES if recall_of(n) >= recall), None)
        found[key(recall)] = None
        if nprobe is not None:
            row = _join(data, index, nprobe, half, n_queries)
            found[key(recall)] = row | {
                "setting": f"nprobe {nprobe}, {n_queries - half} queries a batch",
                "index_bytes": _bytes(index), "build_s": build_s,
            }  # fmt: skip
    return found


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
        found: dict[str, Figures | None] = {}
        for recall in RECALLS:
            enough = [one for one in tuned if one[2]["recall"] >= recall]
            found[key(recall)] = None
            if enough:
                index, search, _ = max(enough, key=lambda one: float(one[2]["qps"]))
                row = _search_lists(searcher, index, search, "report")
                prune = "" if search["prune"] is None else f", prune {search['prune']}"
                found[key(recall)] = {
                    "setting": f"{told[index]}, nprobe {search['nprobe']}{prune}", "reads": row["reads"],
                    "read_bytes": row["bytes_read"], "memory_bytes": row["resident_bytes"]["own"], **_common(row),
                    "index_bytes": _bytes(index), "build_s": build_s[index],
                }  # fmt: skip
    return found


def _lists_along(searcher: Searcher, index: Path, prune: float | None) -> Iterator[tuple[Path, Figures, Row]]:
    """Search with more and more lists, up to the highest recall."""
    lists = json.loads((index / "manifest.json").read_text())["ivf"]["lists"]
    for nprobe in _NPROBES:
        if nprobe > lists:
            return
        search = {"nprobe": nprobe, "prune": prune}
        row = _search_lists(searcher, index, search, "tune")
        yield index, search, row
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
        command = indexmill(
            "build", kind="ivf", input=data.base, out=index, lists=lists, seed=SEED, memory=BUILD_MEMORY,
            workers=THREADS, force=True, json=True, **options,
        )  # fmt: skip
        cost.write_text(json.dumps(run_measured(command, index.with_suffix(".log")).to_dict()))
    return float(json.loads(cost.read_text())["wall_s"])


def _join(data: Dataset, index: Path, nprobe: int, first: int, last: int) -> Figures:
    """Join queries `first` to `last`, in a process of its own for its memory; speed is that of the join alone."""
    queries = index.with_suffix(data.query.suffix)
    asked = np.array(read_bin(data.query)[first:last])
    write_bin(queries, asked)
    out, log = index.with_suffix(".parquet"), index.with_suffix(".join.log")
    command = indexmill(
        "join", queries, index, k=K, nprobe=nprobe, out=out, workers=THREADS, force=True, json=True
    )
    usage = run_measured(command, log)
    told = json.loads(log.read_text()[log.read_text().index("{") :])
    rows = pq.read_table(out, columns=["query", "rank", "vector_id"])
    found = np.full((last - first, K), -1, np.int64)
    found[rows["query"].to_numpy(), rows["rank"].to_numpy()] = rows["vector_id"].to_numpy()
    judged = judge(found, read_bin(data.base), asked, read_truth(data.truth)[1][first:last])
    n_queries = last - first
    return {
        "recall": judged["recall"], "qps": n_queries / told["seconds"],
        "reads": told["batches"] / n_queries, "read_bytes": told["load_bytes"] / n_queries,
        "memory_bytes": usage.peak_bytes,
    }  # fmt: skip


def _common(row: Row) -> Figures:
    return {"recall": row["recall"], "qps": row["qps"]}


def own_memory(pid: int) -> int:
    """Resident memory of a process without pages of files."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) * 1024


def _bytes(index: Path) -> int:
    return sum(path.stat().st_size for path in index.glob("*") if path.is_file())


#: Who finds the figures of each kind.
KINDS: dict[str, Callable[[str, Space], dict[str, Figures | None]]] = {
    "graph": graph,
    "lsh": hash_tables,
    "ivf": inverted_lists,
    "ivf-search": searched_lists,
}
