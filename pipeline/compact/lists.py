"""Compaction of inverted lists: batches without their deleted vectors, in one pass; a killed run starts over."""

from __future__ import annotations

import os
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any

from indexmill.formats.index.manifest import seal_files
from indexmill.pipeline.append.lists.drift import drift_without
from indexmill.pipeline.append.lists.opened import OpenedLists
from indexmill.pipeline.append.lists.rewritten import RewrittenLists, check_memory
from indexmill.pipeline.compact.copied import published_copy
from indexmill.pipeline.compact.empty import check_not_empty
from indexmill.pipeline.compact.record import manifest_in_one_pass
from indexmill.pipeline.generations.run import GenerationRun
from indexmill.pipeline.mill.disk_space import check_free

#: Stages of a compaction.
STAGES = ("lists", "seal")


def compact_lists(
    run: GenerationRun, index: str | os.PathLike[str], scratch: Path
) -> tuple[int, dict[str, Any] | None, int]:
    """Publish inverted lists without their deleted vectors; return the values of a `CompactResult`.

    If no vector was deleted, another output gets a copy, and nothing is written in place: the manifest is None then.
    """
    with OpenedLists(index) as lists:
        removed = len(lists.deleted)
        if not removed:
            return 0, published_copy(run, lists.path, lists.manifest), 0
        check_not_empty(lists, removed)
        check_memory([lists], run.options.memory)
        old, left = lists.manifest, lists.left
        check_free(scratch, sum(entry.bytes for entry in old.files), "compaction")
        directory = scratch / "index"
        directory.mkdir()
        following = RewrittenLists([lists], [left], lists.most_vectors)
        run.expect(STAGES)
        with run.stage("lists", len(left), "rows") as advance:
            written = following.write(directory, advance)
        with run.task("seal"):
            build_id, files = seal_files(directory, [path.name for path in directory.iterdir()])
            built = lists.of_build.without(lists.deleted)
            drift = drift_without(lists, built, (len(left), removed), [], written)
        made = manifest_in_one_pass(old, len(left), lists.deleted, build_id, files)
        manifest = replaced(made, ivf={**old.ivf, "batches": following.sizes, "drift": drift})
        return removed, run.publish(directory, manifest, old.build_id, {}), 0
