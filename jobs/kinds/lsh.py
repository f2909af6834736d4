"""Indexes of hash tables (kind lsh), as commands search, measure and show them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from indexmill.jobs.choices import one_of, split_integers
from indexmill.jobs.console.tables import human_bytes, stdout_console
from indexmill.jobs.kinds.kind import DEFAULT_K, OwnFlags, payload
from indexmill.jobs.options.kept import Option
from indexmill.reader import choices

if TYPE_CHECKING:
    from indexmill.jobs.score.asked import Scoring
    from indexmill.jobs.score.queries import QuerySet
    from indexmill.jobs.score.rows import Setting
    from indexmill.pipeline.cost.query import QueryCost
    from indexmill.pipeline.cost.recommend import Advice, Task
    from indexmill.pipeline.generations.run import RunOptions
    from indexmill.reader.index import SearchResult
    from indexmill.reader.lsh import LshIndex

NAME = "lsh"
TITLE = "of kind lsh"
OWN_PANEL = "Hash tables (kind lsh)"
PANELS = {OWN_PANEL: ()}
PLACES = ("vectors", "tables", "ids")
BY_RANGES = False
_NUMBER = int | float
#: Least probability that a near vector shares a bucket with a query: 1 - 1/e by the paper's Equation 5. With it and
#: S = 2L a search of one radius finds a vector that is near enough with the other.
_SUCCESS, _PROMISED = 0.632, 1 / 2 - 1 / math.e
SHOWN = {
    "parameters": {
        **dict.fromkeys(("gamma", "ratio", "width"), _NUMBER),
        **dict.fromkeys(("n_functions", "n_tables", "candidates", "hash_bits", "block_bytes"), int),
    },
    "lsh": {
        **dict.fromkeys(("p1", "p2", "rho", "success"), _NUMBER),
        **dict.fromkeys(("n_buckets", "n_blocks", "bitmap_bytes"), int),
        "radii": list[_NUMBER],
        "longest_chain": list[int],
        "added": dict | None,
        "drift": dict | None,
    },
    "certificate": {
        "k": int,
        "queries": str,
        **dict.fromkeys(("ratio", "ratio_low", "ratio_high"), _NUMBER | None),
        **dict.fromkeys(("recall", "reads_mean", "reads_p99", "distances_mean"), _NUMBER),
    },
}
PLANNED = {"candidates": "candidates", "probes": "probes"}
#: Shares of the candidates that the index was built for which are measured by default.
DEFAULT_SHARES = (0.25, 0.5, 1, 2)
#: Bytes of the number of occupied buckets that the reader holds for so many bytes of the bitmap of added tables.
_COUNT_BYTES, _COUNTED_BYTES = 8, 64

Probes = Annotated[
    int | None,
    Option(min=0, help="Further buckets of each table that are looked up. (default: the index's)"),
]


def _place(flag: str, what: str, default: str) -> Any:
    words = f"Where {what} are while the index is open, {' or '.join(choices.PLACES)}. (default {default})"
    return Option(flag, metavar="PLACE", help=words)


@dataclass(frozen=True, kw_only=True)
class SearchFlags(OwnFlags):
    """Options of `search` for hash tables."""

    PANEL: ClassVar = OWN_PANEL
    candidates: Annotated[
        int | None,
        Option("-S", "--candidates", min=1, help="Most vectors measured in a radius. (default: the index's)"),
    ] = None
    probes: Probes = None
    vectors_in: Annotated[str | None, _place("--vectors", "vectors", choices.DEFAULT_VECTORS)] = None
    tables_in: Annotated[str | None, _place("--tables", "pointers to buckets", choices.DEFAULT_TABLES)] = None

    def places(self) -> dict[str, Any]:
        """Return where vectors and tables are to be."""
        given = {"vectors": self.vectors_in, "tables": self.tables_in}
        return {
            name: one_of(place, choices.PLACES, f"--{name}")
            for name, place in given.items()
            if place is not None
        }

    def options(self, index: Any) -> dict[str, Any]:
        """Return the reader's keywords that were given."""
        given = super().options(index)
        return {name: value for name, value in given.items() if not name.endswith("_in")}


@dataclass(frozen=True, kw_only=True)
class ScoreFlags:
    """Options of `score` for hash tables."""

    PANEL: ClassVar = OWN_PANEL
    candidates: Annotated[
        str | None,
        Option(
            "-S",
            "--candidates",
            metavar="S,S",
            help="Most vectors measured in a radius, each number measured. (default a quarter to twice the index's "
            "own)",
        ),
    ] = None
    probes: Probes = None


def open_index(path: Path, engine: str, **places: Any) -> LshIndex:
    """Open an index, its vectors, tables and ids in memory or on storage."""
    from indexmill.reader.lsh import LshIndex

    return LshIndex(path, engine, **places)


def search(index: LshIndex, vectors: Any, k: int | None, options: dict[str, Any]) -> SearchResult:
    """Search `k` neighbours."""
    return index.search(vectors, DEFAULT_K if k is None else k, **options)


def score(path: Path, common: Scoring, flags: ScoreFlags) -> None:
    """Measure overall ratio, recall and cost at each number of candidates, and print them.

    Raises
    ------
    ConfigError
        If a number of candidates is out of range.
    """
    from indexmill.jobs.score.rows import Setting, rows_table
    from indexmill.jobs.score.table import DISTANCES, KIB_READ, Column, answer_columns
    from indexmill.jobs.search.engines import check_engine

    run = common.runs
    index = open_index(path, check_engine(run.engine, with_memory=True), **run.places())
    if flags.candidates is None:
        built_for = index.native.candidates
        sizes = sorted({max(1, round(share * built_for)) for share in DEFAULT_SHARES})
    else:
        sizes = split_integers(flags.candidates, "-S")
    queries = common.asked.load(index, run.threads)
    setting = Setting(common.asked.k, run.threads, run.inflight, run.repeat, {"probes": flags.probes})
    rows = score_rows(index, queries, sizes, setting)
    if common.json_:
        print(json.dumps(rows, indent=2))
        return
    columns: list[Column] = [
        ("\nS", lambda row: str(row["S"])),
        ("overall\nratio", lambda row: "-" if row["ratio"] is None else f"{row['ratio']:.4f}"),
        *answer_columns(setting.k),
        ("\nradii", lambda row: f"{row['radii']:.2f}"),
        ("\nreads", lambda row: f"{row['table_reads'] + row['block_reads'] + row['vector_reads']:.1f}"),
        KIB_READ,
        DISTANCES,
    ]
    console = stdout_console()
    console.print(rows_table(rows, ["probes"], columns))
    for line in left_out(rows):
        console.print(line, markup=False, soft_wrap=True)


def score_rows(
    index: LshIndex, queries: QuerySet, sizes: Sequence[int], setting: Setting
) -> list[dict[str, Any]]:
    """Return a row for each number of candidates, with the overall ratio of found to true distances.

    Returns
    -------
    list of dict
        As `Series.rows`, with ``S``, ``ratio`` (None under inner product, with a truth whose distances are not squared
        Euclidean ones, and where no query has one), and ``skipped`` and ``short`` queries as in `OverallRatio`.
    """
    import numpy as np

    from indexmill.jobs.score.hits import agree, squared_distances
    from indexmill.jobs.score.rows import Series
    from indexmill.pipeline.kinds.common.ratio import overall_ratio

    k = setting.k

    def ratio(found: SearchResult) -> dict[str, float]:
        distances = squared_distances(found.scores[:, :k], index.metric)
        truth = queries.truth_distances[:, :k]
        same = found.vector_ids[:, :k, None] == queries.truth_ids[:, None, :k]
        if distances is None or not agree(distances, truth, same):
            return {}
        judged = overall_ratio(np.sqrt(np.maximum(distances, 0)), np.sqrt(truth.astype(np.float64)))
        return {"ratio": judged.mean, "skipped": judged.skipped, "short": judged.short}

    series = Series("candidates", "S", exact=True, more=ratio, blank={"ratio": None})
    return series.rows(index, queries, sizes, setting)


def left_out(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Say which queries the overall ratio of each row leaves out, or takes in with fewer than k neighbours."""
    lines = []
    for row in rows:
        if row.get("skipped"):
            lines.append(
                f"S {row['S']}: queries without overall ratio (a true neighbour at distance 0 was not found): "
                f"{row['skipped']:,.0f}"
            )
        if row.get("short"):
            lines.append(f"S {row['S']}: queries that met fewer than {row['k']} vectors: {row['short']:,.0f}")
    return lines


def query_cost(path: Path, queries: Any, k: int, options: dict[str, Any], at_url: bool = False) -> QueryCost:
    """Measure the cost of queries with vectors in memory.

    A radius has two rounds: the pointers to buckets, then their blocks.
    """
    from indexmill.pipeline.cost.query import measured

    index = open_index(path, "memory")
    return measured(
        index, queries, k, options, ("table_reads", "block_reads"), lambda mean: 2 * mean("radii")
    )


def advice(task: Task) -> Advice:
    """Say what hash tables would cost for a task, and why they suit."""
    from indexmill.pipeline.kinds.lsh import advice as of_kind

    return of_kind.advice(task)


def explain(path: Path, options: RunOptions) -> tuple[dict[str, Any], list[str]]:
    """Say whether an index keeps the promise of E2LSH; its layout is no question, buckets lie where their hash is."""
    from indexmill.formats.index.manifest import read_manifest

    manifest = read_manifest(path, (NAME,))
    p, found = manifest.parameters, manifest.lsh
    keeps = p["gamma"] >= 1 and found["success"] >= _SUCCESS and p["candidates"] >= 2 * p["n_tables"]
    factor, first = p["ratio"] ** 2, found["radii"][0]
    if keeps:
        line = (
            f"promise: for k = 1 and a query that is no nearer to any vector than the first radius, {first:.6g}, a "
            f"vector within {factor:g} times the nearest distance, with probability {_PROMISED:.2f} at least"
        )
    else:
        line = (
            f"promise: none for a single query. That takes gamma 1, success {_SUCCESS} and S = 2L; here gamma is "
            f"{p['gamma']:g}, success {found['success']:.3f}, S {p['candidates']} and L {p['n_tables']}. The "
            "certificate tells the ratio that was measured"
        )
    return {
        "promise": {"probability": _PROMISED, "within": factor, "first_radius": first} if keeps else None
    }, [line]


#: A build chooses no format.
rebuild = None


def summary(manifest: dict[str, Any]) -> dict[str, str]:
    """Say what an index is, by the parameters as they were solved for, radii, chains and added tables."""
    p, found = manifest["parameters"], manifest["lsh"]
    radii = found["radii"]
    longest = max(found["longest_chain"])
    drift, beside, added = found.get("drift"), found.get("added"), {}
    if beside is not None:
        added["added tables"] = (
            f"{beside.get('vectors')} vectors in {beside.get('n_blocks')} blocks beside these; a compaction or a later "
            "append moves them into the tables"
        )
    if drift is not None:
        more = f"{drift.get('added_vectors')} vectors added since a build"
        added["generation"] = f"{manifest.get('generation')}, {more}; {drift.get('advice')}"
    return {
        "hash": f"c={p['ratio']:g} w={p['width']:g} m={p['n_functions']} L={p['n_tables']} S={p['candidates']} "
        f"u={p['hash_bits']}, p1={found['p1']:.4f} p2={found['p2']:.4f} rho={found['rho']:.3f}",
        "success": f"{found['success']:.3f} of the vectors within a radius share a bucket with the query",
        "certificate": _certificate(manifest["certificate"]),
        "radii": f"{len(radii)}, from {radii[0]:.6g} to {radii[-1]:.6g}",
        "buckets": f"{found['n_buckets']:,} in {found['n_blocks']:,} blocks of {p['block_bytes']} bytes, at most "
        f"{longest:,} in one; bitmap of {found['bitmap_bytes']:,} bytes in memory",
        **added,
    }


def _certificate(certificate: dict[str, Any] | None) -> str:
    if certificate is None:
        return "none: too few vectors"
    c = certificate
    if None in (c["ratio"], c["ratio_low"], c["ratio_high"]):
        return f"nothing found within the radii of {c['queries']}"
    return (
        f"overall ratio {c['ratio']:.4f} [{c['ratio_low']:.4f}, {c['ratio_high']:.4f}], recall {c['recall']:.4f} "
        f"at k={c['k']}, {c['reads_mean']:.1f} reads a query (P99 {c['reads_p99']:.0f}), "
        f"{c['distances_mean']:.0f} distances"
    )


def plan_lines(plan: dict[str, Any]) -> dict[str, str]:
    """Say what the index of a planned build will be."""
    lsh = plan["lsh"]
    return {
        "hash": f"c={lsh['ratio']:g} w={lsh['width']:g} m={lsh['n_functions']} L={lsh['n_tables']} "
        f"S={lsh['candidates']} u={lsh['hash_bits']}, {lsh['n_radii']} radii from {lsh['first_radius']:.6g} on",
        "success": f"{lsh['success']:.3f}",
        "index": human_bytes(lsh["index_bytes"]),
    }


def held(headers: dict[str, Any]) -> dict[str, int]:
    """Bytes held while an index is open: functions, bitmaps, vectors unless they are on storage, and checksums."""
    vectors = headers["vectors.imx"]["fields"]
    added = payload(headers, "added-tables.imx", "occupied")
    counts = _COUNT_BYTES * -(-added // _COUNTED_BYTES)
    return {
        "functions": payload(headers, "functions.imx", "projections", "offsets", "multipliers", "radii"),
        "bitmap": payload(headers, "tables.imx", "occupied") + added + counts,
        "vectors": vectors["n_vectors"] * vectors["vector_bytes"],
    }


def header_lines(headers: dict[str, Any]) -> dict[str, str]:
    """Return no further line."""
    return {}
