"""`indexmill upgrade`: an index of an older format, in files of the present one."""

from __future__ import annotations

import json
from dataclasses import dataclass

from indexmill.jobs.options.shared import IndexDir, Json, KeepGenerations, examples

NAME = "upgrade"
EXAMPLES = examples("indexmill upgrade products.index", "indexmill upgrade products.index --json")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `upgrade`."""

    index: IndexDir
    keep_generations: KeepGenerations = None
    json_: Json = False


def command(options: Options) -> None:
    """Rewrite an index of an older format in the present one; nothing is computed anew.

    The result is the index's next generation, in a new directory; the one before is kept for `rollback`.
    """
    from indexmill.jobs.kinds.opening import check_is_index
    from indexmill.pipeline.generations.upgrade import run_upgrade

    check_is_index(options.index)
    report = {"index": str(options.index), **run_upgrade(options.index, options.keep_generations)}
    if options.json_:
        print(json.dumps(report, indent=2))
    elif report["from"] == report["to"]:
        print(f"{options.index}: its files are of format {report['to']}, the newest; nothing to do")
    else:
        print(
            f"{options.index}: files of format {report['from']} are now of format {report['to']}; "
            f"generation {report['generation']}"
        )
