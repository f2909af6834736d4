"""Copies of lists or tables: a compaction of an index without deletions writes it elsewhere as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from indexmill.formats.index.manifest import Manifest
from indexmill.pipeline.append.taken_over import copied_bytes
from indexmill.pipeline.generations.run import GenerationRun
from indexmill.pipeline.mill.disk_space import check_room


def published_copy(run: GenerationRun, index: Path, manifest: Manifest) -> dict[str, Any] | None:
    """Publish the files of `index` at the output of `run`; return the manifest, None if the output is the index.

    Files are hard links where the file system has them: no run writes to a file of an index.

    Raises
    ------
    BudgetError
        If they must be copied and there is no room for them.
    """
    if run.in_place:
        run.leave()
        return None
    names = [entry.name for entry in manifest.files]
    check_room(run.out, copied_bytes(index, manifest, names, run.out.parent), "copy")
    return run.publish(index, manifest, manifest.build_id, {})
