"""Indexes of inverted lists (kind ivf), as commands search, measure and show them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from indexmill.jobs.choices import split_integers
from indexmill.jobs.console.tables import human_bytes, stdout_console
from indexmill.jobs.kinds.kind import DEFAULT_K, OwnFlags, payload
from indexmill.jobs.options.kept import Option
from indexmill.reader.choices import DEFAULT_NPROBE, DEFAULT_RERANK

if TYPE_CHECKING:
    from indexmill.jobs.score.asked import Scoring
    from indexmill.jobs.score.rows import Series
    from indexmill.pipeline.cost.query import QueryCost
    from indexmill.pipeline.cost.recommend import Advice, Task
    from indexmill.pipeline.generations.run import RunOptions
    from indexmill.reader.index import SearchResult
    from indexmill.reader.ivf import IvfIndex

NAME = "ivf"
TITLE = "of kind ivf, whose lists are read as probed"
OWN_PANEL = "Inverted lists (kind ivf)"
PANELS = {OWN_PANEL: ("centroids",)}
PLACES = ("ids",)
BY_RANGES = True
SHOWN: dict[str, dict[str, Any]] = {
    "parameters": {"copies": int | None},
    "ivf": {"lists": int, "codec": str, "row_bytes": int, "batches": list[int], "drift": dict | None},
    "certificate": {"k": int, "nprobe": list[int], "recall": list[int | float]},
}
PLANNED = {"nprobe": "nprobe"}
#: Numbers of lists that are measured by default, as far as there are so many.
DEFAULT_PROBES = (1, 4, 16, 64)
#: Reads of ids that a query of an index at a URL has in flight: 1 to 1,024 in the native reader, the more the smaller
#: its reads of lists are; this many with reads of 256 KiB and 8 queries interleaved.
_IDS_AT_ONCE = 256

Prune = Annotated[
    float | None,
    Option(min=0, help="Leave out lists whose centroid is farther than 1 + PRUNE times the nearest one."),
]
Rerank = Annotated[
    int | None,
    Option(
        min=0,
        help=f"Candidates measured by exact vectors, if the index keeps them. (default {DEFAULT_RERANK}k)",
    ),
]


@dataclass(frozen=True, kw_only=True)
class SearchFlags(OwnFlags):
    """Options of `search` for lists."""

    PANEL: ClassVar = OWN_PANEL
    nprobe: Annotated[
        int | None,
        Option(min=1, help=f"Lists of nearest centroids to scan. (default {DEFAULT_NPROBE})"),
    ] = None
    prune: Prune = None
    rerank: Rerank = None


@dataclass(frozen=True, kw_only=True)
class ScoreFlags:
    """Options of `score` for lists."""

    PANEL: ClassVar = OWN_PANEL
    nprobe: Annotated[
        str | None,
        Option(
            metavar="P,P",
            help=f"Numbers of lists to probe, each measured. (default {','.join(map(str, DEFAULT_PROBES))})",
        ),
    ] = None
    prune: Prune = None
    rerank: Rerank = None


def open_index(path: Path, engine: str, **places: Any) -> IvfIndex:
    """Open an index, its ids in memory or on storage."""
    from indexmill.reader.ivf import IvfIndex

    return IvfIndex(path, engine, **places)


def search(index: IvfIndex, vectors: Any, k: int | None, options: dict[str, Any]) -> SearchResult:
    """Search `k` neighbours."""
    return index.search(vectors, DEFAULT_K if k is None else k, **options)


def score(path: Path, common: Scoring, flags: ScoreFlags) -> None:
    """Measure recall and cost at each number of lists, and print them.

    Raises
    ------
    ConfigError
        If a number of lists is out of range.
    """
    from indexmill.jobs.score.rows import Setting, rows_table
    from indexmill.jobs.score.table import DISTANCES, KIB_READ, Column, answer_columns
    from indexmill.jobs.search.engines import check_engine

    run = common.runs
    index = open_index(path, check_engine(run.engine, with_memory=True), **run.places())
    probes = [one for one in DEFAULT_PROBES if one <= index.native.n_lists]
    if flags.nprobe is not None:
        probes = split_integers(flags.nprobe, "--nprobe")
    queries = common.asked.load(index, run.threads)
    own = {"prune": flags.prune, "rerank": flags.rerank}
    setting = Setting(common.asked.k, run.threads, run.inflight, run.repeat, own)
    rows = series(index).rows(index, queries, probes, setting)
    if common.json_:
        print(json.dumps(rows, indent=2))
        return
    columns: list[Column] = [
        ("nprobe", lambda row: str(row["nprobe"])),
        *answer_columns(setting.k),
        ("\nlists", lambda row: f"{row['lists']:.1f}"),
        ("\nreads", lambda row: f"{row['reads'] + row['vector_reads']:.1f}"),
        KIB_READ,
        DISTANCES,
    ]
    stdout_console().print(rows_table(rows, list(own), columns))


def series(index: IvfIndex) -> Series:
    """Return how rows of this index differ: in the number of probed lists."""
    from indexmill.jobs.score.rows import Series

    return Series("nprobe", "nprobe", exact=index.native.codec == "flat")


def query_cost(path: Path, queries: Any, k: int, options: dict[str, Any], at_url: bool = False) -> QueryCost:
    """Measure the cost of queries.

    All lists are one round of sequential reads; where candidates are measured by their exact vectors, that is another.
    At a URL, ids on storage are one more, which an index in memory would not read.
    """
    from indexmill.pipeline.cost.query import measured

    index = open_index(path, "mmap" if at_url else "memory")
    return measured(
        index,
        queries,
        k,
        options,
        ("reads", "vector_reads"),
        lambda mean: 2.0 if mean("vector_reads") else 1.0,
        _IDS_AT_ONCE if at_url else None,
    )


def advice(task: Task) -> Advice:
    """Say what inverted lists would cost for a task, and why they suit."""
    from indexmill.pipeline.kinds.ivf import advice as of_kind

    return of_kind.advice(task)


def explain(path: Path, options: RunOptions) -> tuple[dict[str, Any], list[str]]:
    """Say nothing: lists lie one after the other."""
    return {}, []


#: A build chooses no format.
rebuild = None


def summary(manifest: dict[str, Any]) -> dict[str, str]:
    """Say what an index is, in a few lines by name."""
    ivf, c, copies = manifest["ivf"], manifest["certificate"], manifest["parameters"].get("copies", 1)
    batches = ivf["batches"]
    recalls = "none: too few vectors"
    if c is not None:
        pairs = zip(c["nprobe"], c["recall"], strict=True)
        recalls = f"list recall@{c['k']} " + ", ".join(f"{r:.4f} at nprobe {p}" for p, r in pairs)
    drift = ivf.get("drift")
    added = {}
    if drift is not None:
        more = f"{drift.get('added_vectors')} vectors added since a build"
        added["generation"] = f"{manifest.get('generation')}, {more}; {drift.get('advice')}"
    return {
        "lists": f"{ivf['lists']:,}, {ivf['codec']}, {ivf['row_bytes']} bytes a vector"
        + (f", each in up to {copies}" if copies > 1 else ""),
        "batches": f"{len(batches)} of at most {max(batches):,} vectors",
        "certificate": recalls,
        **added,
    }


def held(headers: dict[str, Any]) -> dict[str, int]:
    """Bytes held while an index is open: centroids, their graph, 16 bytes a list of each batch, and checksums."""
    shared = headers["centroids.imx"]["fields"]
    batches = [name for name in headers if name.startswith("batch-")]
    # Centres fill up to 256.
    book = 4 * 256 * shared["dim"] + 8 * (shared["n_chunks"] + 1) if "n_chunks" in shared else 0
    return {
        "centroids": payload(headers, "centroids.imx", "centroids", "scale", "rotation") + book,
        "graph": payload(headers, "centroids.imx", "neighbours"),
        "directories": sum(payload(headers, name, "crc") + 16 * shared["n_lists"] for name in batches),
        "vectors": payload(headers, "vectors.imx", "crc"),
    }


def header_lines(headers: dict[str, Any]) -> dict[str, str]:
    """Return no further line."""
    return {}


def plan_lines(plan: dict[str, Any]) -> dict[str, str]:
    """Say what the index of a planned build will be."""
    lists = plan["ivf"]
    batches = "one batch" if lists["batches"] == 1 else f"{lists['batches']:,} batches"
    rows = f"{lists['codec']}, {lists['row_bytes']} bytes a vector"
    return {
        "lists": f"{lists['lists']:,} ({rows}) in {batches} of {lists['batch_vectors']:,} vectors",
        "index": human_bytes(lists["index_bytes"]),
    }
