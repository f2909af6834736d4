"""`compact`: the next generation of an index, without the vectors that were deleted."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from indexmill.formats.index.manifest import Manifest, read_manifest
from indexmill.formats.kinds import KINDS
from indexmill.pipeline.compact.empty import check_not_empty
from indexmill.pipeline.compact.lists import STAGES as LISTS_STAGES
from indexmill.pipeline.compact.lists import compact_lists
from indexmill.pipeline.compact.memory import check_memory, scratch_bytes
from indexmill.pipeline.compact.recipe import STAGES as GRAPH_STAGES
from indexmill.pipeline.compact.recipe import CompactRecipe, Limits
from indexmill.pipeline.compact.tables import STAGES as TABLES_STAGES
from indexmill.pipeline.compact.tables import compact_tables
from indexmill.pipeline.execution.allocator import hold_little
from indexmill.pipeline.generations.opened import OpenedIndex, check_there
from indexmill.pipeline.generations.run import GenerationRun, RunOptions
from indexmill.pipeline.generations.scratch import COMPACT_KIND
from indexmill.pipeline.mill.disk_space import check_free
from indexmill.pipeline.mill.progress import Progress
from indexmill.pipeline.relayout.run import LayoutRequest, run_layout


@dataclass(frozen=True)
class CompactResult:
    """Outcome of a compaction.

    Attributes
    ----------
    removed : int
        Vectors that went.
    manifest : dict or None
        As published; None if nothing was written: without deletions, an index that stays as it is.
    folded : int
        Vectors of added tables, which became part of the tables.
    """

    removed: int
    manifest: dict[str, Any] | None
    folded: int = 0

    def told(self) -> dict[str, int]:
        """Return what was done, as commands tell it: ``removed``, and ``folded`` where there were added tables."""
        return {"removed": self.removed, **({"folded": self.folded} if self.folded else {})}


def changes_without_deletions(manifest: Manifest) -> bool:
    """Tell whether a compaction may change an index without deletions.

    It may lay a graph out, and it writes one pair of files from tables and added tables.
    """
    return manifest.kind not in _REWRITTEN or "added" in manifest.lsh


def run_compact(
    index: str | os.PathLike[str],
    options: RunOptions,
    progress: Progress | None = None,
    copy_unchanged: bool = True,
    certified: bool = True,
) -> CompactResult:
    """Write an index without its deleted vectors and publish it as the next generation.

    Lists and hash tables lose the entries of deleted vectors, and entries of added tables move into the tables. In
    graphs neighbour lists that name deleted vertices are repaired (`builders.vamana.repair`), and nodes laid out again
    by the order of the index. The certificate is measured, except that of codes without exact vectors. Vectors and
    codes keep their bytes. Without deletions the result is what a layout by that order writes. A killed run leaves the
    index as it was, and the next one resumes.

    Parameters
    ----------
    copy_unchanged : bool
        Whether another output gets a copy of a graph that stays as it is; else nothing is written there.
    certified : bool
        Whether the result is measured. Its files are the same if it is not; its memory and scratch space are less.

    Raises
    ------
    InputError
        If every vector was deleted.
    IndexmillError
        Of the kind that tells what to change; the index is then as it was.
    """
    hold_little()
    run = GenerationRun(index, options, progress)
    check_there(Path(index))
    compacted = _REWRITTEN.get(read_manifest(Path(index), KINDS).kind)
    if compacted is not None:
        with run.locked(), run.mill(COMPACT_KIND) as mill:
            return CompactResult(*compacted(run, mill, index, certified))
    with run.locked(), OpenedIndex(index) as opened:
        run.check_origins()
        if opened.manifest.deleted is not None:
            return _compacted(run, opened, certified)
        run.drop_stages(COMPACT_KIND)
        order = opened.order
    request = LayoutRequest(order, certify=certified)
    return CompactResult(0, run_layout(index, request, options, progress, copy_unchanged).manifest)


#: How an index of a kind whose files are written anew is compacted: returns the values of a `CompactResult`.
_REWRITTEN: dict[str, Callable[..., tuple[int, dict[str, Any] | None, int]]] = {
    "ivf": compact_lists,
    "lsh": compact_tables,
}


#: Stages of a compaction of an index of each kind.
STAGES = {"graph": GRAPH_STAGES, "ivf": LISTS_STAGES, "lsh": TABLES_STAGES}


def _compacted(run: GenerationRun, opened: OpenedIndex, certified: bool) -> CompactResult:
    options, deleted = run.options, opened.deleted
    check_not_empty(opened, len(deleted))
    check_memory(opened, opened.order, options.memory, certified)
    with run.mill(COMPACT_KIND) as mill:
        check_free(mill.store.root, scratch_bytes(opened) - mill.store.used_bytes(), "compaction")
        run.check_room(mill.store.root, opened.manifest, opened.n - len(deleted))
        limits = Limits(options.memory, options.workers)
        recipe = CompactRecipe(mill, opened, deleted, opened.order, limits, certified)
        run.make(mill, recipe.last)
        manifest = recipe.manifest()
        published = run.publish(recipe.directory, manifest, opened.manifest.build_id, recipe.run_facts())
    return CompactResult(len(deleted), published)
