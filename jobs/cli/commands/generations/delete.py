"""`indexmill delete`: vectors that no search returns any more, as the index's next generation."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from indexmill.jobs.options.shared import IndexDir, Json, examples

NAME = "delete"
EXAMPLES = examples(
    "indexmill delete products.index --ids sold-out.parquet --id-column sku",
    "indexmill delete products.index --ids rows.npy --vector-ids",
    "indexmill delete products.index --ids gone.txt --missing ignore --json",
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `delete`."""

    index: IndexDir
    ids: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Ids of the vectors to delete: .parquet, .arrow, .npy, or .txt with one a line.",
        ),
    ] = None
    id_column: Annotated[
        str | None, typer.Option(help="Column of a Parquet or Arrow file of ids; default: the only one.")
    ] = None
    vector_ids: Annotated[
        bool,
        typer.Option(
            "--vector-ids",
            help="The ids are positions in the input. (default: user ids, if the index has some)",
        ),
    ] = False
    missing: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What to do about ids that are not there: error (nothing is deleted), or ignore (they are counted).",
        ),
    ] = "error"
    json_: Json = False


def command(options: Options) -> None:
    """Delete vectors of an index of any kind by their ids.

    The result is the index's next generation, which shares all files with the one before and adds a small one that
    names the deleted vectors. Searches that have the index open are not disturbed; `rollback` brings the vectors back.
    """
    from indexmill.formats.errors import ConfigError
    from indexmill.jobs.api.deleting import ids_to_delete
    from indexmill.jobs.choices import one_of
    from indexmill.jobs.kinds.opening import check_is_index
    from indexmill.pipeline.generations.delete import MISSING, DeleteOptions, run_delete

    if options.ids is None:
        raise ConfigError("--ids: missing; name a file of ids")
    missing = one_of(options.missing, MISSING, "--missing")
    check_is_index(options.index)
    ids = ids_to_delete(options.ids, options.id_column)
    how = DeleteOptions("vector" if options.vector_ids else "user", missing)
    report = {"index": str(options.index), **run_delete(options.index, ids, how)}
    if options.json_:
        print(json.dumps(report, indent=2))
        return
    print(
        f"{options.index}: {report['deleted']:,} vectors deleted, {report['vectors']:,} left; "
        f"generation {report['generation']}"
    )
    for key, words in (
        ("missing", "ids are not there"),
        ("gone", "ids were deleted before"),
        ("shared", "ids belong to several vectors each, which were all deleted"),
    ):
        if report[key]:
            print(f"  {report[key]:,} of {report['ids']:,} {words}")
