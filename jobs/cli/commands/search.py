"""`indexmill search`: the nearest vectors of each query, as a table, JSON, Parquet or Arrow."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from indexmill.jobs.kinds.kind import DEFAULT_K
from indexmill.jobs.kinds.registry import SearchFlagsOfKinds
from indexmill.jobs.options.declare import OUTPUT_PANEL
from indexmill.jobs.options.shared import (
    Column,
    Engine,
    Force,
    IdsPlace,
    IndexPlace,
    InFlight,
    Json,
    Queries,
    Threads,
    examples,
)
from indexmill.reader.choices import DEFAULT_IDS, PLACES

NAME = "search"
EXAMPLES = examples(
    "indexmill search index --queries query.fvecs -k 10 --out results.parquet",
    "indexmill search index --queries query.npy -k 3 --json",
    "indexmill search s3://bucket/index --queries query.npy",
    "indexmill search index --queries query.npy --where \"price < 20 and lang = 'de'\"",
    "indexmill search index --queries query.npy --radius 0.8 --allow in-stock.npy --out near.parquet",
    "indexmill search tables --queries query.npy -S 800 --probes 2 --engine memory",
    "indexmill search lists --queries query.npy --nprobe 32 --prune 0.3",
)
#: Queries and rows shown on a terminal when the results are not written to a file.
SHOWN_QUERIES = 20
SHOWN_ROWS = 400


@dataclass(frozen=True, kw_only=True)
class Common:
    """The options of `search` that mean the same for every kind of index."""

    PANEL: ClassVar = "Search"
    queries: Queries = None
    column: Column = None
    k: Annotated[
        int | None, typer.Option("-k", "--k", min=1, help=f"Neighbours wanted. (default {DEFAULT_K})")
    ] = None
    threads: Threads = 1
    inflight: InFlight = None
    engine: Engine = "auto"
    ids: IdsPlace = DEFAULT_IDS


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `search`."""

    PANEL: ClassVar = OUTPUT_PANEL
    index: IndexPlace
    common: Common
    flags: SearchFlagsOfKinds
    margin: Annotated[
        float | None,
        typer.Option(
            min=0, help="Of a set: how far beyond its border a part is asked. (default: chosen by the build)"
        ),
    ] = None
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write results here: .parquet or .arrow. Default: the terminal."),
    ] = None
    force: Force = False
    json_: Json = False


def command(options: Options) -> None:
    """Search an index; results carry the user ids and the metadata columns of the input."""
    from indexmill.formats.errors import ConfigError
    from indexmill.formats.sources.source import read_queries
    from indexmill.jobs.choices import one_of
    from indexmill.jobs.kinds.opening import kind_searched, open_any, placed
    from indexmill.jobs.search.engines import check_engine
    from indexmill.jobs.search.results import check_result_path, results_table, write_results
    from indexmill.reader.set import IndexSet

    common, out = options.common, options.out
    if common.queries is None:
        raise ConfigError("--queries: missing; name a file of query vectors")
    engine = check_engine(common.engine, with_memory=True, with_ranges=True)
    if out is not None:
        check_result_path(out, options.force)
    place = one_of(common.ids, PLACES, "--ids")
    path, remote = placed(options.index, engine, place)
    kind = kind_searched(path)
    own = options.flags.of(kind.NAME)
    index = open_any(path, engine, remote, ids=place, **own.places())
    given = {"threads": common.threads, "inflight": common.inflight}
    how = {name: value for name, value in given.items() if value is not None} | own.options(index)
    vectors = read_queries(common.queries, column=common.column)
    if isinstance(index, IndexSet) and "radius" in how:
        raise ConfigError("--radius: for one index; of a set ask for the -k nearest")
    if options.margin is not None:
        if not isinstance(index, IndexSet):
            raise ConfigError("--margin: for a set of indexes, and this is one index; leave it out")
        how["margin"] = options.margin
    table = results_table(index, kind.search(index, vectors, common.k, how))
    if out is not None:
        write_results(table, out)
        summary = {"out": str(out), "rows": table.num_rows, "queries": len(vectors)}
        print(json.dumps(summary) if options.json_ else f"{out}: {table.num_rows:,} rows")
    elif options.json_:
        print(json.dumps(table.to_pylist(), indent=2, default=_text))
    else:
        _show(table)


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
