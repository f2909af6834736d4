"""`indexmill export`: an index as a table for other tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from indexmill.jobs.options import Force, IndexDir, Json, examples, one_of

NAME = "export"
EXAMPLES = examples(
    "indexmill export index --to parquet --out index.parquet",
    "indexmill export index --to parquet --out index.parquet --force --json",
)
FORMATS = ("parquet",)


def command(
    index: IndexDir,
    to: Annotated[str, typer.Option(metavar="parquet", help="Format to write.")] = "parquet",
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="File to write.")] = None,
    force: Force = False,
    json_: Json = False,
) -> None:
    """Write ids, vectors, metadata and neighbour lists in slot order; vectors as they are stored."""
    from indexmill.formats.errors import ConfigError
    from indexmill.jobs.export import export_parquet
    from indexmill.jobs.opening import check_is_index
    from indexmill.jobs.results import check_writable

    one_of(to, FORMATS, "--to")
    if out is None:
        raise ConfigError("--out: missing; name the file to write")
    check_is_index(index)
    check_writable(out, force)
    rows = export_parquet(index, out)
    print(json.dumps({"out": str(out), "rows": rows}) if json_ else f"{out}: {rows:,} rows")
