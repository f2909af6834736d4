"""Overall ratio, recall and cost of an index of hash tables, one row for each number of candidates."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from indexmill.jobs.cli.options import split_sizes
from indexmill.jobs.console.tables import add_row, plain_table, stdout_console
from indexmill.jobs.score.hits import agree, squared_distances
from indexmill.jobs.score.rows import check_truth, median_figures, refuse_others
from indexmill.jobs.score.truth import load_queries
from indexmill.jobs.search.engines import check_engine
from indexmill.pipeline.kinds.common.ratio import overall_ratio
from indexmill.reader.lsh import LshIndex

if TYPE_CHECKING:
    from rich.table import Table

    from indexmill.jobs.score.graph import QuerySet
    from indexmill.reader.index import SearchResult

#: Shares of the candidates that the index was built for which are measured by default.
DEFAULT_SHARES = (0.25, 0.5, 1, 2)


@dataclass(frozen=True)
class Setting:
    """How to search: what the rows of a score have in common; `None` leaves a value to the reader's default."""

    k: int = 10
    probes: int | None = None
    threads: int = 1
    inflight: int | None = None

    def options(self) -> dict[str, Any]:
        """Keyword arguments of `LshIndex.search`, without k and candidates."""
        given = {name: getattr(self, name) for name in ("probes", "threads", "inflight")}
        return {name: value for name, value in given.items() if value is not None}


def run_score(
    path: Path,
    engine: str,
    source: tuple[str | None, Path | None, list[str], str | None, int, int | None],
    k: int,
    chosen: Mapping[str, Any],
    foreign: Mapping[str, Any],
    threads: int,
    inflight: int | None,
    repeat: int,
    json_: bool,
) -> None:
    """Score and print: what `indexmill score` does for this kind of index.

    Parameters
    ----------
    source : tuple
        Queries, truth, base, column, skip and first, as on the command line.
    chosen, foreign : mapping
        By flag: what belongs to this kind, and what belongs to others and must not be given.

    Raises
    ------
    ConfigError
        If a flag of another kind is given, or a number of candidates is out of range.
    """
    refuse_others(foreign, "lsh")
    index = LshIndex(path, check_engine(engine, with_memory=True))
    if chosen["-S"] is None:
        built_for = index.native.candidates
        sizes = sorted({max(1, round(share * built_for)) for share in DEFAULT_SHARES})
    else:
        sizes = split_sizes(chosen["-S"], "-S")
    queries, truth, base, column, skip, first = source
    query_set = load_queries(index, queries, truth, base, k, column, threads).part(skip, first)
    rows = score_tables(index, query_set, sizes, Setting(k, chosen["--probes"], threads, inflight), repeat)
    if json_:
        print(json.dumps(rows, indent=2))
        return
    console = stdout_console()
    console.print(tables_table(rows))
    for line in left_out(rows):
        console.print(line, markup=False, soft_wrap=True)


def score_tables(
    index: LshIndex, queries: QuerySet, sizes: Sequence[int], setting: Setting, repeat: int = 1
) -> list[dict[str, Any]]:
    """Search all `queries` with each number of candidates and return a row of numbers for each: of runs, medians.

    Returns
    -------
    list of dict
        ``S``, ``recall`` with its 95% interval over queries, ``ratio`` (overall ratio of found to true distances; None
        under inner product, by a truth whose distances are not squared Euclidean ones, and where no query has one),
        ``skipped`` and ``short`` queries as in `OverallRatio`, ``qps`` (wall clock, all threads), latency as in
        `score.summarise`, and the mean of every other counter.

    Raises
    ------
    InputError
        If the truth holds fewer than k neighbours a query, or the queries do not fit the index.
    """
    k = setting.k
    check_truth(queries, k)

    def ratio(found: SearchResult) -> dict[str, float]:
        distances = squared_distances(found.scores[:, :k], index.metric)
        truth = queries.truth_distances[:, :k]
        same = found.vector_ids[:, :k, None] == queries.truth_ids[:, None, :k]
        if distances is None or not agree(distances, truth, same):
            return {}
        judged = overall_ratio(np.sqrt(np.maximum(distances, 0)), np.sqrt(truth.astype(np.float64)))
        return {"ratio": judged.mean, "skipped": judged.skipped, "short": judged.short}

    def row(candidates: int) -> dict[str, Any]:
        def search() -> SearchResult:
            return index.search(queries.vectors, k, candidates=candidates, **setting.options())

        figures: dict[str, float | None] = {**median_figures(index, queries, k, repeat, search, ratio)}
        if np.isnan(figures.get("ratio") or 0.0):  # JSON has no NaN
            figures["ratio"] = None
        return {
            "S": candidates,
            "k": k,
            "n_queries": len(queries),
            "threads": setting.threads,
            "inflight": setting.inflight,
            "probes": setting.probes,
            "repeat": repeat,
            "engine": index.engine,
            "ratio": None,
            **figures,
        }

    return [row(size) for size in sizes]


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


def tables_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Make a table of rows of `score_tables`."""
    first = rows[0]
    title = [f"{first['n_queries']:,} queries", f"engine {first['engine']}", f"threads {first['threads']}"]
    title += [f"{name} {first[name]}" for name in ("inflight", "probes") if first[name] is not None]
    if first["repeat"] > 1:
        title.append(f"medians of {first['repeat']} runs")
    headings = (
        "\nS",
        "overall\nratio",
        f"recall\n@{first['k']}",
        "95%\ninterval",
        "\nqps",
        "mean\nus",
        "P99\nus",
        "\nradii",
        "\nreads",
        "KiB\nread",
        "\ndistances",
    )
    table = plain_table(", ".join(title), headings)
    for row in rows:
        cells = [
            str(row["S"]),
            "-" if row["ratio"] is None else f"{row['ratio']:.4f}",
            f"{row['recall']:.4f}",
            f"{row['recall_low']:.3f}-{row['recall_high']:.3f}",
            f"{row['qps']:,.0f}",
            f"{row['latency_us_mean']:,.0f}",
            f"{row['latency_us_p99']:,.0f}",
            f"{row['radii']:.2f}",
            f"{row['table_reads'] + row['block_reads'] + row['vector_reads']:.1f}",
            f"{row['bytes_read'] / 1024:,.0f}",
            f"{row['distances']:,.0f}",
        ]
        add_row(table, cells)
    return table
