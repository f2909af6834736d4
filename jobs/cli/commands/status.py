"""`indexmill status`: the progress of a build, or of a run on a finished index."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from indexmill.jobs.options.shared import Json, examples

if TYPE_CHECKING:
    from rich.console import Console

NAME = "status"
EXAMPLES = examples(
    "indexmill status words.index", "indexmill status words.index --work /scratch/words --json"
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `status`."""

    out: Annotated[Path, typer.Argument(metavar="OUT", help="The index that is being written.")]
    work: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Work directory, if the job names one; a URL is looked up where the build runs.",
        ),
    ] = None
    json_: Json = False


def command(options: Options) -> None:
    """Show the stages of a build, its rate and time left, and the memory and scratch space it takes.

    An append, a merge, a compaction, a layout or an update job on the index is shown likewise while it runs, and after
    it was killed.
    """
    from indexmill.formats.errors import InputError

    status = _found(options.out, options.work)
    if status["state"] == "none":
        raise InputError(
            f"{options.out}: neither an index nor a build that began; name the --out of a build, and its --work if it "
            "has one"
        )
    if options.json_:
        print(json.dumps(status, indent=2))
    else:
        from indexmill.jobs.console.tables import stdout_console

        _show(stdout_console(), status)


def _found(out: Path, work: str | None) -> dict[str, Any]:
    """Return the state of the run that is at work on `out`, else of one that was stopped, else of the build."""
    from indexmill.formats.location import is_mirrored
    from indexmill.pipeline.build import default_work
    from indexmill.pipeline.generations.scratch import shown_directories
    from indexmill.pipeline.mill.status import read_status
    from indexmill.pipeline.urls.storage import mirror_of

    given = mirror_of(work) if is_mirrored(work) else work
    found = [read_status(out, Path(given) if given else default_work(out))]
    if not is_mirrored(work):
        places = shown_directories(Path(os.path.realpath(out)), work)
        found += [read_status(out, place, removed=True) for place in places]
    order = ("running", "stopped")
    return next((one for state in order for one in found if one["state"] == state), found[0])


def _show(console: Console, status: dict[str, Any]) -> None:
    from rich.markup import escape

    from indexmill.jobs.console.tables import add_row, human_bytes, plain_table

    console.print(f"[bold]{escape(status['out'])}[/bold]: {status['state']}", soft_wrap=True)
    if "stages" not in status:
        return
    table = plain_table("", ["stage", "state", "done", "rate", "seconds", "time left"])
    for stage in status["stages"]:
        add_row(table, _cells(stage))
    console.print(table)
    limit = status["scratch_limit_bytes"]
    console.print(
        f"memory {human_bytes(status['memory_bytes'])} of {human_bytes(status['memory_budget_bytes'])}, "
        f"scratch {human_bytes(status['scratch_bytes'])} of {'any' if limit is None else human_bytes(limit)}"
    )


def _cells(stage: dict[str, Any]) -> list[str]:
    if "done" not in stage:
        return [stage["name"], stage["state"], "", "", "", ""]
    rate, left = stage.get("rate"), stage.get("eta_seconds")
    return [
        stage["name"],
        stage["state"],
        f"{stage['done']:,} / {stage['total']:,} {stage['unit']}",
        f"{rate:,.1f}/s" if rate else "",
        f"{stage['seconds']:,.1f}",
        "" if left is None else f"{left:,.0f} s",
    ]
