"""Descent in manifests: generation, parents, ancestors and fingerprint of an index made of others."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from indexmill.formats.index.manifest import FileEntry, Manifest
from indexmill.pipeline.mill.store import software_versions


def descent_of(parents: Sequence[Manifest]) -> dict[str, Any]:
    """Return keys ``generation``, ``parents`` and ``ancestors`` of an index that is made of `parents`."""
    direct = {parent.build_id for parent in parents}
    contained = frozenset[str]().union(*(parent.lineage for parent in parents))
    return {
        "generation": 1 + max(parent.generation for parent in parents),
        "parents": tuple(parent.build_id for parent in parents),
        "ancestors": tuple(sorted(contained - direct)),
    }


def made_of(
    parents: Sequence[Manifest], vectors: dict[str, Any], build_id: str, files: tuple[FileEntry, ...]
) -> Manifest:
    """Return the manifest of an index that is made of `parents`, with the other keys of the first.

    Parameters
    ----------
    vectors : dict
        Key ``input``: the vectors that it has.
    """
    return replace(
        parents[0],
        build_id=build_id,
        **descent_of(parents),
        deleted=None,
        input=vectors,
        software=software_versions(),
        files=files,
    )


def changed_input(old: Manifest, n: int, change: str) -> dict[str, Any]:
    """Return key ``input`` of `n` vectors that are those of `old` after a `change`, which is told in one line."""
    fingerprint = fingerprint_of(str(old.input.get("fingerprint")), change)
    return {**apart(old), "n_vectors": n, "fingerprint": fingerprint}


def apart(old: Manifest) -> dict[str, Any]:
    """Return key ``input`` of an index that, if it is made of a part of a set, is no part of the set any more."""
    return {key: value for key, value in old.input.items() if key != "codes"}


def fingerprint_of(*lines: str) -> str:
    """Return 64 hex digits that stand for vectors, ids and metadata of which `lines` tell."""
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
