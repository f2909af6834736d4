"""Recall and cost of an index of inverted lists, one row for each number of probed lists."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexmill.jobs.cli.options import split_sizes
from indexmill.jobs.console.tables import add_row, plain_table, stdout_console
from indexmill.jobs.score.rows import check_truth, median_figures, refuse_others
from indexmill.jobs.score.truth import load_queries
from indexmill.jobs.search.engines import check_engine
from indexmill.reader.ivf import IvfIndex

if TYPE_CHECKING:
    from rich.table import Table

    from indexmill.jobs.score.graph import QuerySet
    from indexmill.reader.index import SearchResult

#: Numbers of lists that are measured by default, as far as there are so many.
DEFAULT_PROBES = (1, 4, 16, 64)


@dataclass(frozen=True)
class Setting:
    """How to search: what the rows of a score have in common; `None` leaves a value to the reader's default."""

    k: int = 10
    threads: int = 1
    inflight: int | None = None
    prune: float | None = None
    rerank: int | None = None

    def options(self) -> dict[str, Any]:
        """Keyword arguments of `IvfIndex.search`, without k and nprobe."""
        given = {name: getattr(self, name) for name in ("threads", "inflight", "prune", "rerank")}
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
        If a flag of another kind is given, or a number of lists is out of range.
    """
    refuse_others(foreign, "ivf")
    index = IvfIndex(path, check_engine(engine, with_memory=True))
    asked = chosen["--nprobe"]
    probes = [one for one in DEFAULT_PROBES if one <= index.native.n_lists]
    if asked is not None:
        probes = split_sizes(asked, "--nprobe")
    queries, truth, base, column, skip, first = source
    query_set = load_queries(index, queries, truth, base, k, column, threads).part(skip, first)
    setting = Setting(k, threads, inflight, chosen["--prune"], chosen["--rerank"])
    rows = score_lists(index, query_set, probes, setting, repeat)
    if json_:
        print(json.dumps(rows, indent=2))
    else:
        stdout_console().print(lists_table(rows))


def score_lists(
    index: IvfIndex, queries: QuerySet, probes: Sequence[int], setting: Setting, repeat: int = 1
) -> list[dict[str, Any]]:
    """Search all `queries` with each number of lists and return a row of numbers for each: of several runs, medians.

    Returns
    -------
    list of dict
        ``nprobe``, ``recall`` with its 95% interval over queries, ``qps`` (wall clock, all threads), latency as in
        `score.summarise`, and the mean of every other counter.

    Raises
    ------
    InputError
        If the truth holds fewer than k neighbours a query, or the queries do not fit the index.
    """
    k = setting.k
    check_truth(queries, k)

    def row(nprobe: int) -> dict[str, Any]:
        def search() -> SearchResult:
            return index.search(queries.vectors, k, nprobe=nprobe, **setting.options())

        return {
            "nprobe": nprobe,
            "k": k,
            "n_queries": len(queries),
            "threads": setting.threads,
            "inflight": setting.inflight,
            "prune": setting.prune,
            "rerank": setting.rerank,
            "repeat": repeat,
            "engine": index.engine,
            **median_figures(index, queries, k, repeat, search),
        }

    return [row(nprobe) for nprobe in probes]


def lists_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Make a table of rows of `score_lists`."""
    first = rows[0]
    title = [f"{first['n_queries']:,} queries", f"engine {first['engine']}", f"threads {first['threads']}"]
    title += [f"{name} {first[name]}" for name in ("inflight", "prune", "rerank") if first[name] is not None]
    if first["repeat"] > 1:
        title.append(f"medians of {first['repeat']} runs")
    headings = (
        "nprobe",
        f"recall\n@{first['k']}",
        "95%\ninterval",
        "\nqps",
        "mean\nus",
        "P99\nus",
        "\nlists",
        "\nreads",
    )
    table = plain_table(", ".join(title), [*headings, "KiB\nread", "\ndistances"])
    for row in rows:
        cells = [
            str(row["nprobe"]),
            f"{row['recall']:.4f}",
            f"{row['recall_low']:.3f}-{row['recall_high']:.3f}",
            f"{row['qps']:,.0f}",
            f"{row['latency_us_mean']:,.0f}",
            f"{row['latency_us_p99']:,.0f}",
            f"{row['lists']:.1f}",
            f"{row['reads'] + row['vector_reads']:.1f}",
            f"{row['bytes_read'] / 1024:,.0f}",
            f"{row['distances']:,.0f}",
        ]
        add_row(table, cells)
    return table
