"""`indexmill merge`: one index out of several."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from indexmill.jobs.options.shared import (
    Force,
    Json,
    KeepGenerations,
    Memory,
    NewOut,
    Work,
    Workers,
    examples,
)

NAME = "merge"
EXAMPLES = examples(
    "indexmill merge products.index new-products.index",
    "indexmill merge a.index b.index --out both.index --workers 8",
    "indexmill merge part-*.index --out whole.index",
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `merge`."""

    first: Annotated[Path, typer.Argument(metavar="A", help="An index; its vector ids stay.")]
    others: Annotated[
        list[Path],
        typer.Argument(metavar="B...", help="More indexes; their vector ids follow, in this order."),
    ]
    out: NewOut = None
    work: Work = None
    memory: Memory = "8GiB"
    workers: Workers = 2
    force: Force = False
    keep_generations: KeepGenerations = None
    json_: Json = False


def command(options: Options) -> None:
    """Join indexes of one kind without their deleted vectors.

    The result has the parameters of the largest index. Of graphs, vertices of all others are inserted into the largest,
    or one graph is built of all where that takes less time. Inverted lists and hash tables are merged as they are if
    they have equal centroids or functions; else their vectors are assigned or hashed anew, if they hold them. Pq
    codes are written by a new codebook where that of the largest errs too much: those of lists if the indexes hold
    their vectors and more than a quarter are of others, those of graphs that are laid out anew. A merge of lists or
    tables that was killed resumes. The result takes A's place as its next generation; the others stay.
    """
    from indexmill.jobs.api.run_options import run_options
    from indexmill.jobs.cli.summary import show_result
    from indexmill.jobs.console.progress import stderr_progress
    from indexmill.pipeline.merge.run import run_merge

    how = run_options(
        options.out, options.memory, options.workers, options.force, options.work, options.keep_generations
    )
    with stderr_progress() as progress:
        manifest = run_merge([options.first, *options.others], how, progress)
    show_result(options.out or options.first, manifest, options.json_)
