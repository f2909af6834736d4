"""Options of a run that makes the next generation of an index, from flags or arguments."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from indexmill.formats.location import local_path
from indexmill.jobs.choices import size_of

if TYPE_CHECKING:
    from indexmill.pipeline.generations.run import RunOptions


def run_options(
    out: str | os.PathLike[str] | None,
    memory: int | str,
    workers: int = 2,
    force: bool = False,
    work: str | os.PathLike[str] | None = None,
    keep_generations: int | None = None,
) -> RunOptions:
    """Check the options of a run; `memory` in bytes or as ``"4GiB"``.

    Raises
    ------
    ConfigError
        Naming the option.
    """
    from indexmill.pipeline.execution.allocator import hold_little

    hold_little()  # before anything imports numpy or Arrow
    from indexmill.pipeline.generations.run import RunOptions

    to = None if out is None else local_path(out, "out")
    scratch = None if work is None else local_path(work, "work")
    return RunOptions(to, size_of(memory, "memory"), workers, force, scratch, keep_generations)
