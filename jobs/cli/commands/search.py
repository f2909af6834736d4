"""`indexmill search`: the nearest vectors of each query, as a table, JSON, Parquet or Arrow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from indexmill.jobs.cli.options import (
    Allow,
    BeamWidth,
    Column,
    Deterministic,
    Engine,
    Force,
    IndexDir,
    InFlight,
    Json,
    Policy,
    Queries,
    Threads,
    examples,
    one_of,
)
from indexmill.reader.choices import (
    DEFAULT_ENTRY,
    DEFAULT_NPROBE,
    DEFAULT_RERANK,
    DEFAULT_TABLES,
    DEFAULT_VECTORS,
    ENTRIES,
    PLACES,
    POLICIES,
)

if TYPE_CHECKING:
    from indexmill.reader.index import Index, RangeResult, SearchResult
    from indexmill.reader.ivf import IvfIndex
    from indexmill.reader.lsh import LshIndex

NAME = "search"
EXAMPLES = examples(
    "indexmill search index --queries query.fvecs -k 10 --out results.parquet",
    "indexmill search index --queries query.npy -k 3 --json",
    "indexmill search index --queries query.npy --radius 0.8 --allow in-stock.npy --out near.parquet",
    "indexmill search tables --queries query.npy -S 800 --probes 2 --engine memory",
    "indexmill search lists --queries query.npy --nprobe 32 --prune 0.3",
)
#: Queries and rows shown on a terminal when the results are not written to a file.
SHOWN_QUERIES = 20
SHOWN_ROWS = 400
DEFAULT_K = 10
#: Options that indexes of one kind know.
_OPTIONS = {
    "graph": {"L", "policy", "entry", "beam_width", "deterministic", "allow", "radius"},
    "lsh": {"candidates", "probes"},
    "ivf": {"nprobe", "prune", "rerank"},
}


def _place(flag: str, what: str, default: str) -> Any:
    """Option that says where a part of an index of kind lsh is."""
    words = f"lsh: where {what} are while the index is open, {' or '.join(PLACES)}. (default {default})"
    return typer.Option(flag, metavar="PLACE", help=words)


def command(
    index: IndexDir,
    queries: Queries = None,
    k: Annotated[
        int | None, typer.Option("-k", "--k", min=1, help=f"Neighbours wanted. (default {DEFAULT_K})")
    ] = None,
    radius: Annotated[
        float | None,
        typer.Option(
            help="Instead of -k: all vectors with a score at least as good, that is at most this squared distance"
            " (l2), or at least this cosine or inner product."
        ),
    ] = None,
    allow: Allow = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write results here: .parquet or .arrow. Default: the terminal."),
    ] = None,
    column: Column = None,
    size: Annotated[
        int | None,
        typer.Option(
            "-L", "--search-list-size", min=1, help="Candidates kept. (default the larger of 64 and 2k)"
        ),
    ] = None,
    policy: Policy = None,
    entry: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help=f"Where a search starts: {', '.join(ENTRIES)}. (default {DEFAULT_ENTRY})"
        ),
    ] = None,
    beam_width: BeamWidth = None,
    candidates: Annotated[
        int | None,
        typer.Option(
            "-S",
            "--candidates",
            min=1,
            help="lsh: vectors measured in a radius at most. (default: the index's)",
        ),
    ] = None,
    probes: Annotated[
        int | None,
        typer.Option(
            min=0, help="lsh: further buckets of each table that are looked up. (default: the index's)"
        ),
    ] = None,
    nprobe: Annotated[
        int | None,
        typer.Option(min=1, help=f"ivf: lists of nearest centroids to scan. (default {DEFAULT_NPROBE})"),
    ] = None,
    prune: Annotated[
        float | None,
        typer.Option(
            min=0, help="ivf: leave out lists whose centroid is farther than 1 + PRUNE times the nearest one."
        ),
    ] = None,
    rerank: Annotated[
        int | None,
        typer.Option(
            min=0, help=f"ivf: candidates measured by exact vectors, if kept. (default {DEFAULT_RERANK}k)"
        ),
    ] = None,
    vectors_in: Annotated[str | None, _place("--vectors", "vectors", DEFAULT_VECTORS)] = None,
    tables_in: Annotated[str | None, _place("--tables", "pointers to buckets", DEFAULT_TABLES)] = None,
    threads: Threads = 1,
    inflight: InFlight = None,
    deterministic: Deterministic = True,
    engine: Engine = "auto",
    force: Force = False,
    json_: Json = False,
) -> None:
    """Search an index; results carry the user ids and the metadata columns of the input."""
    from indexmill.formats.errors import ConfigError
    from indexmill.formats.sources.source import read_queries
    from indexmill.jobs.search.engines import check_engine
    from indexmill.jobs.search.opening import open_any
    from indexmill.jobs.search.results import check_result_path, results_table, write_results

    if queries is None:
        raise ConfigError("--queries: missing; name a file of query vectors")
    if radius is not None and k is not None:
        raise ConfigError("-k: --radius returns all vectors within, however many; leave one of them out")
    engine = check_engine(engine, with_memory=True)
    if out is not None:
        check_result_path(out, force)
    opened = open_any(
        index,
        engine,
        None if vectors_in is None else one_of(vectors_in, PLACES, "--vectors"),
        None if tables_in is None else one_of(tables_in, PLACES, "--tables"),
    )
    how = {
        "L": size,
        "policy": policy and one_of(policy, POLICIES, "--policy"),
        "entry": entry and one_of(entry, ENTRIES, "--entry"),
        "beam_width": beam_width,
        "deterministic": None if deterministic else False,
        "allow": allow,
        "radius": radius,
        "candidates": candidates,
        "probes": probes,
        "nprobe": nprobe,
        "prune": prune,
        "rerank": rerank,
        "threads": threads,
        "inflight": inflight,
    }
    vectors = read_queries(queries, column=column)
    found = _search(opened, vectors, DEFAULT_K if k is None else k, how)
    table = results_table(opened, found)
    if out is not None:
        write_results(table, out)
        summary = {"out": str(out), "rows": table.num_rows, "queries": len(vectors)}
        print(json.dumps(summary) if json_ else f"{out}: {table.num_rows:,} rows")
    elif json_:
        print(json.dumps(table.to_pylist(), indent=2, default=_text))
    else:
        _show(table)


def _search(
    index: Index | LshIndex | IvfIndex, vectors: Any, k: int, how: Mapping[str, Any]
) -> SearchResult | RangeResult:
    """Search with the options of `how` that were given.

    Raises
    ------
    ConfigError
        If one of them is for indexes of another kind.
    """
    from indexmill.formats.errors import ConfigError
    from indexmill.jobs.search.allowed import read_allowed
    from indexmill.reader.index import Index

    given = {name: value for name, value in how.items() if value is not None}
    kind = index.kind
    wrong = sorted(
        (name, owner) for owner, names in _OPTIONS.items() if owner != kind for name in names & given.keys()
    )
    if wrong:
        name, owner = wrong[0]
        flag = "-L" if name == "L" else f"--{name.replace('_', '-')}"
        raise ConfigError(
            f"{flag}: for an index of kind {owner}, and this one is of kind {kind}; leave it out"
        )
    if not isinstance(index, Index):
        return index.search(vectors, k, **given)
    if "allow" in given:
        given["allow"] = read_allowed(given["allow"], index)
    if (radius := given.pop("radius", None)) is not None:
        return index.range_search(vectors, radius, **given)
    return index.search(vectors, k, **given)


def _text(value: object) -> str:
    """Print what JSON has no type for: binary ids as hexadecimal digits, times as ISO 8601."""
    return value.hex() if isinstance(value, bytes) else str(value)


def _show(table: object) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    from indexmill.jobs.console.tables import add_row, plain_table, short, stdout_console

    assert isinstance(table, pa.Table)
    shown = table.filter(pc.less(table["query"], SHOWN_QUERIES)).slice(0, SHOWN_ROWS)
    text = plain_table("", table.column_names)
    for row in shown.to_pylist():
        add_row(text, [_text(cell) if isinstance(cell, bytes) else short(cell) for cell in row.values()])
    console = stdout_console()
    console.print(text)
    if shown.num_rows < table.num_rows:
        console.print(f"{table.num_rows - shown.num_rows:,} more rows; write them all with --out FILE")
