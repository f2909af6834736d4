"""The manifest of a compacted index."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.index.manifest import FileEntry, Manifest
from indexmill.pipeline.append.drift import drift_after_compaction
from indexmill.pipeline.generations.built import BuiltVectors
from indexmill.pipeline.generations.descent import changed_input, descent_of, made_of
from indexmill.pipeline.generations.opened import OpenedIndex
from indexmill.pipeline.mill.store import software_versions


@dataclass(frozen=True)
class Removal:
    """The vectors that go.

    Attributes
    ----------
    vectors : int
    built : BuiltVectors
        Those of the last full build that stay.
    digest : str
        64 hex digits that stand for their vector ids.
    """

    vectors: int
    built: BuiltVectors
    digest: str

    @staticmethod
    def of(index: OpenedIndex, deleted: NDArray[np.uint32]) -> Removal:
        """Return what the deleted slots of `index` take away."""
        ids = np.sort(index.vector_ids[deleted]).astype("<u4")
        digest = hashlib.sha256(ids.tobytes()).hexdigest()
        return Removal(len(deleted), index.of_build.without(ids), digest)


def manifest_of(
    index: OpenedIndex,
    removal: Removal,
    layout: Mapping[str, Any],
    build_id: str,
    files: tuple[FileEntry, ...],
    graph: Mapping[str, Any],
) -> Manifest:
    """Return the manifest of the written files, without a certificate."""
    old = index.manifest
    left = changed_input(old, index.n - removal.vectors, f"without {removal.digest}")
    if left.get("imported", {}).get("unreachable"):  # the compaction links every vertex
        left["imported"] = {**left["imported"], "repaired": True}
    return Manifest(
        kind="graph",
        build_id=build_id,
        **descent_of([old]),
        parameters=dict(old.parameters),
        input=left,
        software=software_versions(),
        layout=layout,
        graph={**graph, **index.handed_down},
        drift=drift_after_compaction(index, removal.vectors, removal.built, float(layout["overlap_ratio"])),
        certificate=None,
        files=files,
    )


def rewritten_manifest(
    old: Manifest, n: int, deleted: NDArray[np.uint32], build_id: str, files: tuple[FileEntry, ...]
) -> Manifest:
    """Return the manifest of lists or tables without their `deleted` vectors, with the other keys of `old`.

    Parameters
    ----------
    n : int
        Vectors that are left.
    deleted : uint32 array, shape (d,)
        Vector ids, ascending; none where added tables alone go.
    """
    digest = hashlib.sha256(deleted.astype("<u4").tobytes()).hexdigest()
    left = changed_input(old, n, f"without {digest}") if len(deleted) else dict(old.input)
    return made_of([old], left, build_id, files)
