"""The vectors of a merge: those of the smaller index, with their neighbour lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import InputError
from indexmill.pipeline.append.addition import Addition, check_alike, check_new_ids, column_types
from indexmill.pipeline.append.input import with_added_component
from indexmill.pipeline.append.scratch import GrowingGraph, unpack
from indexmill.pipeline.generations.node_space import SCALE_SLACK
from indexmill.pipeline.generations.opened import OpenedIndex


def check_mergeable(larger: OpenedIndex, smaller: OpenedIndex, force: bool) -> None:
    """Refuse two indexes of different metric, shape, types, ids or metadata, or the same index twice.

    Unless `force`, also two with an ancestor in common, one of them included: its vectors would be there twice.

    Raises
    ------
    InputError
        Naming the index.
    """
    if larger.manifest.build_id == smaller.manifest.build_id:
        raise InputError(
            f"{smaller.path}: the same index as {larger.path} (build {larger.manifest.build_id[:16]}); "
            "expected two different ones"
        )
    common = sorted(larger.manifest.lineage & smaller.manifest.lineage)
    if common and not force:
        raise InputError(
            f"{smaller.path}: has vectors in common with {larger.path}: both contain index {common[0][:16]}, whose "
            "vectors the result would hold twice; merge indexes without common vectors, or add --force"
        )
    schemas = [None if i.metadata is None else i.metadata.schema_arrow for i in (larger, smaller)]
    again = "build one of them again"
    check_alike(
        larger,
        str(smaller.path),
        [
            ("metric", larger.graph.metric, smaller.graph.metric, again),
            ("dimension", larger.dim, smaller.dim, again),
            ("dtype", larger.input_dtype, smaller.input_dtype, again),
            ("node dtype", larger.graph.node_format.dtype, smaller.graph.node_format.dtype, again),
            ("exact vectors", _kept(larger), _kept(smaller), again),
            ("id type", larger.id_type, smaller.id_type, again),
            ("metadata columns", column_types(schemas[0]), column_types(schemas[1]), again),
        ],
    )
    if smaller.graph.max_norm > larger.graph.max_norm:
        raise InputError(
            f"{smaller.path}: largest norm {smaller.graph.max_norm:g}; under inner product {larger.path}, the larger "
            f"index, takes norms up to {larger.graph.max_norm:g}, on which every distance in it depends; build one "
            "index of both inputs"
        )


def _kept(index: OpenedIndex) -> str:
    return "none" if index.vectors is None else index.vectors.row_format.dtype


def index_addition(larger: OpenedIndex, smaller: OpenedIndex, force: bool) -> Addition:
    """Return the vectors of `smaller` as an addition to `larger`; a row is a slot of `smaller`.

    Raises
    ------
    InputError
        If they do not go together, or share a user id.
    """
    check_mergeable(larger, smaller, force)
    origin = [(0, str(smaller.path), 0)]
    check_new_ids(larger, smaller.user_ids, origin, smaller.vector_ids)

    def convert(rows: NDArray[Any]) -> NDArray[Any]:
        if larger.graph.metric == "ip":  # the added component depends on the index's largest norm
            rows = with_added_component(rows[:, :-1], larger.graph.max_norm)
        _check_range(larger, smaller, rows)
        return rows

    def fill(graph: GrowingGraph, advance: Callable[[int], None]) -> None:
        unpack(smaller, graph, graph.present, convert, advance)

    return Addition(
        n=smaller.n,
        vector_ids=smaller.vector_ids,
        user_ids=smaller.user_ids,
        metadata=smaller.metadata,
        fingerprint=str(smaller.manifest.input.get("fingerprint")),
        fill=fill,
    )


def _check_range(larger: OpenedIndex, smaller: OpenedIndex, rows: NDArray[Any]) -> None:
    bad = np.argwhere(larger.space.outside(rows, SCALE_SLACK))
    if len(bad):
        row, j = bad[0]
        raise InputError(
            f"{smaller.path}: component {j} of a vector is {rows[row, j]:g}; nodes of {larger.path} hold "
            f"{larger.space.range_of(int(j))}; build one index of both inputs"
        )
