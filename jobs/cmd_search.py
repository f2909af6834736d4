"""`indexmill search`: the nearest vectors of each query, as a table, JSON, Parquet or Arrow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from indexmill.jobs.options import (
    Allow,
    BeamWidth,
    Column,
    Deterministic,
    Engine,
    Entry,
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
from indexmill.reader.choices import DEFAULT_ENTRY, DEFAULT_POLICY

NAME = "search"
EXAMPLES = examples(
    "indexmill search index --queries query.fvecs -k 10 --out results.parquet",
    "indexmill search index --queries query.npy -k 3 --json",
    "indexmill search index --queries query.npy --radius 0.8 --allow in-stock.npy --out near.parquet",
)
#: Queries and rows shown on a terminal when the results are not written to a file.
SHOWN_QUERIES = 20
SHOWN_ROWS = 400
DEFAULT_K = 10


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
    policy: Policy = DEFAULT_POLICY,
    entry: Entry = DEFAULT_ENTRY,
    beam_width: BeamWidth = None,
    threads: Threads = 1,
    inflight: InFlight = None,
    deterministic: Deterministic = True,
    engine: Engine = "auto",
    force: Force = False,
    json_: Json = False,
) -> None:
    """Search an index; results carry the user ids and the metadata columns of the input."""
    from indexmill.formats.errors import ConfigError
    from indexmill.formats.source import read_queries
    from indexmill.jobs.allowed import read_allowed
    from indexmill.jobs.choices import check_engine
    from indexmill.jobs.opening import open_index
    from indexmill.jobs.results import check_result_path, results_table, write_results
    from indexmill.jobs.score import Setting
    from indexmill.reader.choices import ENTRIES, POLICIES

    if queries is None:
        raise ConfigError("--queries: missing; name a file of query vectors")
    if radius is not None and k is not None:
        raise ConfigError("-k: --radius returns all vectors within, however many; leave one of them out")
    k = DEFAULT_K if k is None else k
    setting = Setting(
        k,
        one_of(policy, POLICIES, "--policy"),
        one_of(entry, ENTRIES, "--entry"),
        threads,
        beam_width,
        inflight,
        deterministic,
    )
    check_engine(engine)
    if out is not None:
        check_result_path(out, force)
    opened = open_index(index, engine)
    allowed = None if allow is None else read_allowed(allow, opened)
    vectors = read_queries(queries, column=column)
    how = {**setting.options(), "L": size, "allow": allowed}
    found = (
        opened.search(vectors, k, **how) if radius is None else opened.range_search(vectors, radius, **how)
    )
    table = results_table(opened, found)
    if out is not None:
        write_results(table, out)
        summary = {"out": str(out), "rows": table.num_rows, "queries": len(vectors)}
        print(json.dumps(summary) if json_ else f"{out}: {table.num_rows:,} rows")
    elif json_:
        print(json.dumps(table.to_pylist(), indent=2, default=_text))
    else:
        _show(table)


def _text(value: object) -> str:
    """Print what JSON has no type for: binary ids as hexadecimal digits, times as ISO 8601."""
    return value.hex() if isinstance(value, bytes) else str(value)


def _show(table: object) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    from indexmill.jobs.tables import add_row, plain_table, short, stdout_console

    assert isinstance(table, pa.Table)
    shown = table.filter(pc.less(table["query"], SHOWN_QUERIES)).slice(0, SHOWN_ROWS)
    text = plain_table("", table.column_names)
    for row in shown.to_pylist():
        add_row(text, [_text(cell) if isinstance(cell, bytes) else short(cell) for cell in row.values()])
    console = stdout_console()
    console.print(text)
    if shown.num_rows < table.num_rows:
        console.print(f"{table.num_rows - shown.num_rows:,} more rows; write them all with --out FILE")
