"""Checks and manifests of merges of lists and of tables."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import InputError
from indexmill.formats.index.manifest import FileEntry, Manifest
from indexmill.pipeline.append.addition import Extendable
from indexmill.pipeline.compact.empty import check_not_empty
from indexmill.pipeline.generations.built import BuiltVectors
from indexmill.pipeline.generations.descent import apart, fingerprint_of, made_of
from indexmill.pipeline.kinds.common.ingest import MAX_VECTORS
from indexmill.pipeline.merge.addition import check_apart
from indexmill.pipeline.merge.ids import check_ids_apart


class Merged(Extendable, Protocol):
    """An opened index of lists or tables, as far as a merge of either treats it alike."""

    @property
    def manifest(self) -> Manifest:
        """Of its present generation."""

    @property
    def left(self) -> NDArray[np.int64]:
        """Slots of vectors that are not deleted, ascending: int64 (n - m,)."""

    @property
    def of_build(self) -> BuiltVectors:
        """Vectors of the last build."""


M = TypeVar("M", bound=Merged)


def checked_left(
    given: Sequence[M], force: bool, check_mergeable: Callable[[M, M], None]
) -> list[NDArray[np.int64]]:
    """Return the slots of each index that are left; refuse indexes that do not go together.

    Parameters
    ----------
    check_mergeable : callable
        Refuses an index that does not go with the first.

    Raises
    ------
    InputError
    """
    for index in given:
        check_not_empty(index, len(index.deleted))
    for one, other in combinations(given, 2):
        check_apart(one, other, force)
    for index in given[1:]:
        check_mergeable(given[0], index)
    left = [index.left for index in given]
    _check_number(given, left)
    check_ids_apart(given)
    return left


def largest_build(given: Sequence[Merged], left: Sequence[NDArray[np.int64]]) -> tuple[int, BuiltVectors]:
    """Return the place of the index whose build was the largest, the first of those, and what the result has of it."""
    base = largest(given)
    index = given[base]
    return base, index.of_build.without(index.deleted).behind(sum(map(len, left[:base])))


def largest(given: Sequence[Merged]) -> int:
    """Return the place of the index whose build was the largest, the first of those."""
    return max(range(len(given)), key=lambda i: (given[i].of_build.n, -i))


def _check_number(given: Sequence[Merged], left: Sequence[NDArray[np.int64]]) -> None:
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
    given: Sequence[Merged], left: Sequence[NDArray[np.int64]], base: int, build_id: str,
    files: tuple[FileEntry, ...],
) -> Manifest:  # fmt: skip
    """Return the manifest of the vectors `left` of each index.

    Parameters and certificate are those of the index in place `base`, all other keys those of the first.
    """
    manifests = [index.manifest for index in given]
    lines = []
    for manifest, slots in zip(manifests, left, strict=True):
        stay = hashlib.sha256(slots.astype("<u4").tobytes()).hexdigest()
        lines.append(f"{manifest.input.get('fingerprint')} {stay}")
    merged = {"n_vectors": sum(map(len, left)), "fingerprint": fingerprint_of(*lines)}
    made = made_of(manifests, {**apart(manifests[0]), **merged}, build_id, files)
    of_base = manifests[base]
    return replace(made, parameters=of_base.parameters, certificate=of_base.certificate)
