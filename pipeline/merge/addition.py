"""The vectors of a merge: those of all indexes but the largest, with their neighbour lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.formats.errors import InputError
from indexmill.formats.index.manifest import Manifest
from indexmill.pipeline.append.addition import Addition, Extendable, Part, check_alike, column_types
from indexmill.pipeline.append.scratch import GrowingGraph, unpack
from indexmill.pipeline.generations.node_space import SCALE_SLACK
from indexmill.pipeline.generations.opened import OpenedIndex
from indexmill.pipeline.kinds.common.metric import with_added_component

#: What to do about an index that differs from the others.
AGAIN = "build one of them again"


class Described(Protocol):
    """An opened index of any kind, as far as its descent is told."""

    @property
    def name(self) -> Path:
        """Path, as errors name it."""

    @property
    def manifest(self) -> Manifest:
        """Of its present generation."""


def check_apart(larger: Described, smaller: Described, force: bool) -> None:
    """Refuse, unless `force`, two copies of one index and two with an ancestor in common, one of them included.

    The vectors of that ancestor would be there twice.

    Raises
    ------
    InputError
        Naming the index.
    """
    if larger.manifest.build_id == smaller.manifest.build_id and not force:
        raise InputError(
            f"{smaller.name}: a copy of the same index as {larger.name} (build {larger.manifest.build_id[:16]}), "
            "whose vectors the result would hold twice where no copy deleted them; merge different ones, or add --force"
        )
    common = sorted(larger.manifest.lineage & smaller.manifest.lineage)
    if common and not force:
        raise InputError(
            f"{smaller.name}: has vectors in common with {larger.name}: both contain index {common[0][:16]}, whose "
            "vectors the result would hold twice; merge indexes without common vectors, or add --force"
        )


def check_mergeable(larger: OpenedIndex, smaller: OpenedIndex, force: bool) -> None:
    """Refuse two indexes of different metric, shape, types, ids or metadata, or not apart as `check_apart` says.

    Raises
    ------
    InputError
        Naming the index.
    """
    check_apart(larger, smaller, force)
    check_alike(
        larger,
        str(smaller.name),
        [
            ("metric", larger.graph.metric, smaller.graph.metric, AGAIN),
            *input_facts(larger, smaller),
            ("node dtype", larger.graph.node_format.dtype, smaller.graph.node_format.dtype, AGAIN),
            ("exact vectors", _kept(larger), _kept(smaller), AGAIN),
        ],
    )
    if smaller.graph.max_norm > larger.graph.max_norm:
        raise InputError(
            f"{smaller.name}: largest norm {smaller.graph.max_norm:g}; under inner product {larger.name}, the larger "
            f"index, takes norms up to {larger.graph.max_norm:g}, on which every distance in it depends; build one "
            "index of both inputs"
        )


def input_facts(first: Extendable, index: Extendable) -> list[tuple[str, object, object, str]]:
    """Return what indexes of all kinds that are merged have in common, for `check_alike`."""
    schemas = [None if one.metadata is None else one.metadata.schema_arrow for one in (first, index)]
    return [
        ("dimension", first.dim, index.dim, AGAIN),
        ("dtype", first.input_dtype, index.input_dtype, AGAIN),
        ("id type", first.id_type, index.id_type, AGAIN),
        ("metadata columns", column_types(schemas[0]), column_types(schemas[1]), AGAIN),
    ]


def _kept(index: OpenedIndex) -> str:
    return "none" if index.vectors is None else index.vectors.row_format.dtype


def check_all_mergeable(largest: OpenedIndex, others: Sequence[OpenedIndex], force: bool) -> None:
    """Refuse indexes that do not go together: each pair as in `check_mergeable`.

    Raises
    ------
    InputError
        Naming two of them.
    """
    for index in others:
        check_mergeable(largest, index, force)
    for a, b in combinations(others, 2):
        check_apart(a, b, force)


def merged_addition(largest: OpenedIndex, others: Sequence[OpenedIndex]) -> Addition:
    """Return the vectors of `others` as an addition to `largest`; a row is a slot of one of them, one after the other.

    Their ids are in the addition then, and the others let go of them.
    """
    starts = np.cumsum([0, *(index.n for index in others)])
    vector_ids = [index.vector_ids + np.uint32(first) for index, first in zip(others, starts, strict=False)]
    users = None
    if largest.id_type != "none":
        users = pa.concat_arrays([index.user_ids for index in others if index.user_ids is not None])
    for index in others:
        index.release_ids()

    def fill(graph: GrowingGraph, advance: Callable[[int], None]) -> None:
        first = graph.present
        for index in others:
            unpack(index, graph, first, partial(_converted, largest, index), advance)
            first += index.n

    parts = [Part(index.n, index.metadata, str(index.manifest.input.get("fingerprint"))) for index in others]
    return Addition(int(starts[-1]), np.concatenate(vector_ids), users, tuple(parts), fill)


def _converted(largest: OpenedIndex, index: OpenedIndex, rows: NDArray[Any]) -> NDArray[Any]:
    """Return compared rows of `index` as `largest` compares them."""
    if largest.graph.metric == "ip":  # the added component depends on the index's largest norm
        rows = with_added_component(rows[:, :-1], largest.graph.max_norm)
    _check_range(largest, index, rows)
    return rows


def _check_range(larger: OpenedIndex, smaller: OpenedIndex, rows: NDArray[Any]) -> None:
    bad = np.argwhere(larger.space.outside(rows, SCALE_SLACK))
    if len(bad):
        row, j = bad[0]
        raise InputError(
            f"{smaller.name}: component {j} of a vector is {rows[row, j]:g}; nodes of {larger.name} hold "
            f"{larger.space.range_of(int(j))}; build one index of both inputs"
        )
