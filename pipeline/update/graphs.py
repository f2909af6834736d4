"""Seconds and bytes of the steps of an update of a graph, by the rates of its kernels on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.vamana.build import list_capacity
from indexmill.builders.vamana.navigation import navigation_size
from indexmill.formats.sources.source import VectorSource
from indexmill.layout.order import InputShape
from indexmill.layout.portfolio import ORDERS
from indexmill.pipeline.append.codes import training_bytes
from indexmill.pipeline.append.memory import Growth, building_bytes
from indexmill.pipeline.append.memory import expected_bytes as extension_bytes
from indexmill.pipeline.append.memory import needed_bytes as extending_bytes
from indexmill.pipeline.append.scratch import grown_bytes
from indexmill.pipeline.compact.memory import needed_bytes as compacting_bytes
from indexmill.pipeline.compact.recipe import STAGES as COMPACTING
from indexmill.pipeline.generations.opened import OpenedIndex
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES
from indexmill.pipeline.kinds.graph.emit import NodeRecords
from indexmill.pipeline.kinds.graph.memory import certify_bytes
from indexmill.pipeline.kinds.graph.order import metrics_bytes, order_bytes
from indexmill.pipeline.kinds.graph.seconds import (
    Rates,
    certificate_seconds,
    insertion_seconds,
    order_seconds,
    vertex_seconds,
)
from indexmill.pipeline.merge.anew import (
    ANY_ORDER,
    compacting_orders,
    growth_of,
    is_built_anew,
    largest_of,
)
from indexmill.pipeline.update.predicted import Predicted, State, scaled, sealed_seconds
from indexmill.pipeline.update.rebuild import Rebuild
from indexmill.pipeline.update.source import outlined, rows_wanted
from indexmill.pipeline.update.spec import UpdateSpec

#: Distances of a repaired list for each of its candidates: to the vertex, and of the prune. 16 and 18 were measured
#: with 128 and 768 components, the walk over all edges included.
_REPAIR_DISTANCES = 16
#: Places of an index whose rows stand for all.
_PLACES = 64
#: Bytes of a vertex beside its record while nodes are written: numbers and slots, mapped, and its key in a chunk file.
_PLACES_BYTES = 24


class GraphPredictor:
    """See `Predictor`; the index that grows is the largest of `indexes`."""

    start_seconds: ClassVar[float] = 1.8

    def __init__(
        self,
        indexes: Sequence[OpenedIndex],
        spec: UpdateSpec,
        added: VectorSource | None,
        n: int,
        place: Path,
    ) -> None:
        self._indexes, self._memory, self._workers = indexes, spec.memory, spec.workers
        self._largest = index = indexes[largest_of(indexes)]
        source = outlined(n, index.dim, index.input_dtype, added, _some_rows(index))
        parameters = index.parameters.model_copy(update={"builder": "auto", "shard_vectors": None})
        self._rebuild = Rebuild(parameters, source, spec, place)

    @cached_property
    def _rates(self) -> Rates:
        rates: Rates = self._rebuild.rates
        return rates

    def rebuild(self) -> tuple[float | None, str]:
        """See `Predictor.rebuild`."""
        return self._rebuild.foretold()

    def merge(self, states: list[State], after: State) -> Predicted:
        """See `Predictor.merge`."""
        indexes = self._indexes
        growth = growth_of(indexes)
        step = self._extended(growth, after.bytes, 0, is_built_anew(self._largest, growth, self._memory))
        step = replace(step, note=self._training(growth))
        orders = compacting_orders(indexes, growth)
        compacted = [
            self._compacted(index, state, order, growth.ids_bytes - index.ids_bytes)
            for index, state, order in zip(indexes, states, orders, strict=True)
            if order is not None
        ]
        if not compacted:
            return step
        seconds = {f"compact {name}": sum(one.seconds[name] for one in compacted) for name in COMPACTING[:-1]}
        results = sum(one.result for one in compacted)
        return Predicted(
            {**seconds, **step.seconds},
            max(step.need, *(one.need for one in compacted)),
            max(step.held, *(one.held for one in compacted)),
            results + max(step.scratch, *(one.scratch - one.result for one in compacted)),
            step.result,
            step.note,
        )

    def append(self, before: State, added: int) -> Predicted:
        """See `Predictor.append`."""
        index, laid_out = self._largest, self._largest.laid_out
        if len(self._indexes) > 1:  # those of the merge
            laid_out = growth_of(self._indexes).laid_out or before.n
        ids = index.ids_bytes * (before.n + added) // index.n
        copied = added * index.dim * np.dtype(index.input_dtype).itemsize
        return self._extended(Growth(before.n, added, laid_out, ids), before.with_added(added).bytes, copied)

    def changes_without_deletions(self, before: State) -> bool:
        """See `Predictor.changes_without_deletions`."""
        return True

    def may_advise_compaction(self, before: State) -> bool:
        """See `Predictor.may_advise_compaction`."""
        return False

    def compact(self, before: State) -> Predicted:
        """See `Predictor.compact`."""
        index, left = self._largest, before.left
        step = self._compacted(index, before, index.order)
        node = index.graph.node_format
        codes = 0 if node.code_bytes else len(index.codes.codebook.offsets) - 1
        certified = index.ids_bytes * left // index.n + certify_bytes(left, node.dim, codes, self._workers)
        note = (
            None
            if before.deleted
            else "a graph without deletions is left as it is where it is laid out already"
        )
        return replace(
            step,
            seconds={**step.seconds, "certify": certificate_seconds(self._rates, left)},
            need=scaled(compacting_bytes(index, index.order), FIXED_BYTES, before.n, index.n),
            held=max(step.held, certified),
            note=note,
        )

    def _compacted(self, index: OpenedIndex, before: State, order: str, others: int = 0) -> Predicted:
        """Return what removing the deleted vectors of `index` takes, where nothing is measured afterwards.

        Parameters
        ----------
        order : str
            By which vectors are laid out.
        others : int
            Bytes of the ids of other indexes, which are held meanwhile.
        """
        rates, left = self._rates, before.left
        p, writing = index.parameters.model_copy(update={"order": order}), rates.writing
        degree = index.graph.node_format.max_degree
        share = before.deleted / before.n
        repaired = left * (1 - (1 - share) ** degree)
        candidates = degree * (1 - share) * (1 + share * degree)
        row = index.space.node.dim * index.space.dtype.itemsize
        unpacked = before.n * (8 + 4 * degree + row)
        distances = repaired * candidates * (rates.scattered + (_REPAIR_DISTANCES - 1) * rates.gathered)
        seconds = {
            "unpack": unpacked * writing + sealed_seconds(before.bytes, 0.0),
            "repair": distances / rates.threads + left * 4 * degree * writing,
            "order": 0.0 if order == ANY_ORDER else order_seconds(rates, p, left),
            "starts": navigation_size(p.navigation, left) * rates.insertions.seconds / rates.threads,
            "emit": sealed_seconds(2 * before.without_deleted().bytes, writing),
        }
        need = scaled(compacting_bytes(index, order, certified=False), FIXED_BYTES, before.n, index.n)
        page = max(index.graph.node_format.nodes_per_page, 1)
        ordering = order_bytes(order, left, page, degree, self._workers, divided=True)
        held = index.ids_bytes * left // index.n + ordering + metrics_bytes(page)
        result = before.without_deleted().bytes
        room = self._compacting_room(index, before, order, result)
        return Predicted(seconds, others + need, others + held, room, result)

    def _training(self, growth: Growth) -> str | None:
        """Return what a merge takes for another codebook, if it may train one."""
        index = self._largest
        if growth.laid_out or index.inherited:
            return None
        held = growth.ids_bytes + training_bytes(index, growth.n, self._workers)
        memory = Predicted({}, held, held, 0, 0).memory
        return (
            f"a codebook is not counted, which the merge trains with {memory:,} bytes of memory if codes err too much "
            "on the vectors of the other indexes"
        )

    def _compacting_room(self, index: OpenedIndex, before: State, order: str, result: int) -> int:
        """Return the most bytes of the files of a compaction: while its order is made, or its nodes are written."""
        node, left = index.graph.node_format, before.left
        lists, row = 4 * node.max_degree + 4, node.dim * index.space.dtype.itemsize
        unpacked = before.n * (4 + lists) + left * row
        repaired = left * (lists + node.code_bytes)
        kept = None if index.vectors is None else index.vectors.row_format
        records = NodeRecords(node, left, len(index.codes.codebook.offsets) - 1, kept)
        written = left * (records.dtype.itemsize + _PLACES_BYTES) + result
        return unpacked + repaired + max(_order_room(index, order, left), written)

    def _extended(self, growth: Growth, result: int, copied: int, anew: bool = False) -> Predicted:
        """Return what an extension to files of `result` bytes takes, of which `anew` builds all lists anew.

        Parameters
        ----------
        copied : int
            Bytes of a copy of the new vectors.
        """
        index, rates, added = self._largest, self._rates, growth.added
        p, writing, node = index.parameters, rates.writing, index.space.node
        row = node.dim * index.space.dtype.itemsize
        lists = 4 * list_capacity(node.max_degree) + 4
        unpacked, tail = growth.n * (row + lists), growth.n - growth.laid_out
        need, held = extending_bytes(index, growth), extension_bytes(index, growth, self._workers)
        if anew:
            building = building_bytes(index, growth)
            need, held = max(need, building), max(held, building - FIXED_BYTES)
            linked = {"build": growth.n * vertex_seconds(rates, growth.n, 1)}
        else:
            inserted = np.linspace(growth.present, growth.n, 3)
            linked = {"insert": added * float(np.mean([insertion_seconds(rates, at) for at in inserted]))}
        seconds = {
            **({"ingest": added * rates.reading + copied * writing} if copied else {}),
            "unpack": unpacked * writing + sealed_seconds(result, 0.0),
            "encode": added * rates.encoding / rates.threads,
            **linked,
            "entries": order_seconds(rates, p, tail) if tail else 0.0,
            "emit": sealed_seconds(result, writing),
            "certify": certificate_seconds(rates, growth.n),
        }
        room = copied + grown_bytes(index, growth.n, tail)
        ordering = 0
        if growth.laid_out == 0:  # the order is given a copy of all lists, and maps files of its own
            room, ordering = room + growth.n * 4 * node.max_degree, _order_room(index, index.order, growth.n)
        return Predicted(seconds, need, held, room + max(ordering, result), result)


def _some_rows(index: OpenedIndex) -> NDArray[Any]:
    """Return rows from many places of an index, for those that lie side by side are near each other."""
    wanted = min(index.n, rows_wanted(index.dim, index.input_dtype))
    each = max(1, wanted // _PLACES)
    firsts = np.linspace(0, index.n - each, wanted // each, dtype=np.int64)
    rows = [index.compared(first, index.graph.read_nodes(first, each)) for first in firsts.tolist()]
    return index.space.as_given(np.concatenate(rows))[:, : index.dim]


def _order_room(index: OpenedIndex, order: str, n: int) -> int:
    """Return about how many bytes `order` maps for `n` vertices like those of `index`."""
    node = index.graph.node_format
    return ORDERS[order].expected_scratch_bytes(InputShape(n, node.max_degree, node.dim, index.space.dtype))
