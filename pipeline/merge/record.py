"""What merges of lists and of tables have in common: the number of vectors, and the manifest of the result."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import InputError
from indexmill.formats.index.manifest import FileEntry, Manifest
from indexmill.pipeline.kinds.common.ingest import MAX_VECTORS
from indexmill.pipeline.merge.addition import Described
from indexmill.pipeline.mill.store import software_versions


def check_number(given: Sequence[Described], left: Sequence[NDArray[np.int64]]) -> None:
    """Refuse more vectors than one index holds.

    Raises
    ------
    InputError
    """
    n = sum(map(len, left))
    if n > MAX_VECTORS:
        raise InputError(
            f"{given[0].name} and {len(given) - 1} more: {n:,} vectors; one index holds at most {MAX_VECTORS:,}; "
            "keep them apart, and search all"
        )


def manifest_of(
    given: Sequence[Described], left: Sequence[NDArray[np.int64]], build_id: str, files: tuple[FileEntry, ...]
) -> Manifest:
    """Return the manifest of the vectors `left` of each index, with the other keys of the first."""
    manifests = [index.manifest for index in given]
    first, direct = manifests[0], {manifest.build_id for manifest in manifests}
    digest = hashlib.sha256()
    for manifest, slots in zip(manifests, left, strict=True):
        stay = hashlib.sha256(slots.astype("<u4").tobytes()).hexdigest()
        digest.update(f"{manifest.input.get('fingerprint')} {stay}\n".encode())
    return replace(
        first,
        build_id=build_id,
        generation=1 + max(manifest.generation for manifest in manifests),
        parents=tuple(manifest.build_id for manifest in manifests),
        ancestors=tuple(sorted(frozenset().union(*(manifest.lineage for manifest in manifests)) - direct)),
        deleted=None,
        input={**first.input, "n_vectors": sum(map(len, left)), "fingerprint": digest.hexdigest()},
        software=software_versions(),
        files=files,
    )
