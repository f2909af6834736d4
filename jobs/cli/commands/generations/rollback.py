"""`indexmill rollback`: an earlier generation of an index, present again."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Annotated

import typer

from indexmill.jobs.options.shared import IndexDir, Json, examples

NAME = "rollback"
EXAMPLES = examples("indexmill rollback products.index", "indexmill rollback products.index --to 3 --json")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `rollback`."""

    index: IndexDir
    to: Annotated[
        int | None,
        typer.Option(
            min=1, help="Generation to go back to; default: the one that the present one was made from."
        ),
    ] = None
    json_: Json = False


def command(options: Options) -> None:
    """Undo a change: make an earlier generation of an index the present one again.

    It becomes a new generation, so this can be undone, too. `inspect --history` lists what there is to go back to.
    """
    from indexmill.jobs.kinds.opening import check_is_index
    from indexmill.pipeline.generations.rollback import run_rollback

    check_is_index(options.index)
    report = {"index": str(options.index), **run_rollback(options.index, options.to)}
    if options.json_:
        print(json.dumps(report, indent=2))
        return
    if report["damaged"] is not None:
        print(f"damaged: {report['damaged']}", file=sys.stderr)
    print(
        f"{options.index}: generation {report['generation']} is as generation {report['restored']} was: "
        f"{report['vectors']:,} vectors, {report['deleted']:,} deleted"
    )
