"""What a compaction of lists or tables without deletions writes to another place: the index as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from indexmill.formats.index.manifest import Manifest
from indexmill.formats.pagefile.atomic import link_or_copy
from indexmill.pipeline.generations.run import GenerationRun


def published_copy(
    run: GenerationRun, index: Path, manifest: Manifest, scratch: Path
) -> dict[str, Any] | None:
    """Publish the files of `index` at the output of `run`; return the manifest, None if the output is the index.

    Files are hard links where the file system has them: no run writes to a file of an index.
    """
    if run.in_place:
        return None
    directory = scratch / "index"
    directory.mkdir()
    for entry in manifest.files:
        link_or_copy(index / entry.name, directory / entry.name)
    return run.publish(directory, manifest, manifest.build_id, {})
