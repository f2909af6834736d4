"""Seconds and memory of the steps of an update of a graph, by the rates of its kernels on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from indexmill.builders.vamana.build import list_capacity
from indexmill.builders.vamana.navigation import navigation_size
from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.append.memory import Growth, building_bytes
from indexmill.pipeline.append.memory import needed_bytes as extending_bytes
from indexmill.pipeline.compact.memory import needed_bytes as compacting_bytes
from indexmill.pipeline.compact.memory import scratch_bytes
from indexmill.pipeline.generations.opened import OpenedIndex
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES
from indexmill.pipeline.kinds.graph.seconds import (
    Rates,
    certificate_seconds,
    insertion_seconds,
    order_seconds,
    vertex_seconds,
)
from indexmill.pipeline.merge.anew import LAID_OUT_ANEW_SHARE, is_built_anew
from indexmill.pipeline.update.predicted import Predicted, State, scaled, sealed_seconds
from indexmill.pipeline.update.rebuild import Rebuild
from indexmill.pipeline.update.source import outlined
from indexmill.pipeline.update.spec import UpdateSpec

#: Distances of a repaired list for each of its candidates: to the vertex, and of the prune.
_REPAIR_DISTANCES = 6


class GraphPredictor:
    """See `Predictor`; the index that grows is the largest of `indexes`."""

    def __init__(
        self,
        indexes: Sequence[OpenedIndex],
        spec: UpdateSpec,
        added: VectorSource | None,
        n: int,
        place: Path,
    ) -> None:
        self._indexes, self._memory = indexes, spec.memory
        self._largest = max(indexes, key=lambda index: index.n - index.manifest.n_deleted)
        largest = self._largest
        nodes = next(iter(largest.graph.blocks()))
        rows = largest.space.as_given(largest.compared(0, nodes))[:, : largest.dim]
        source = outlined(n, largest.dim, largest.input_dtype, added, rows)
        parameters = largest.parameters.model_copy(update={"builder": "auto", "shard_vectors": None})
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
        largest = max(state.left for state in states)
        added = after.n - largest
        anew = added > LAID_OUT_ANEW_SHARE * after.n
        ids = sum(index.ids_bytes for index in self._indexes)
        growth = Growth(largest, added, 0 if anew else largest, ids)
        step = self._extended(growth, after.bytes, is_built_anew(self._largest, growth, self._memory))
        compacted = [
            self.compact(state)
            for state, index in zip(states, self._indexes, strict=True)
            if len(index.deleted)
        ]
        seconds = dict(step.seconds)
        for one in compacted:
            for name in ("unpack", "repair", "order", "starts", "emit"):
                seconds[name] = seconds.get(name, 0.0) + one.seconds[name]
        results = sum(state.bytes for state in states if state.deleted)
        scratch = step.scratch + results + max((one.scratch for one in compacted), default=0)
        return Predicted(seconds, max([step.memory, *(one.memory for one in compacted)]), scratch)

    def append(self, before: State, added: int) -> Predicted:
        """See `Predictor.append`."""
        largest = self._largest
        laid_out = largest.laid_out if before.n == largest.n else before.n
        ids = largest.ids_bytes * (before.n + added) // largest.n
        return self._extended(Growth(before.n, added, laid_out, ids), before.with_added(added).bytes)

    def changes_without_deletions(self, before: State) -> bool:
        """See `Predictor.changes_without_deletions`."""
        return True

    def may_advise_compaction(self, before: State) -> bool:
        """See `Predictor.may_advise_compaction`."""
        return False

    def compact(self, before: State) -> Predicted:
        """See `Predictor.compact`."""
        index, rates, left = self._largest, self._rates, before.left
        p, writing = index.parameters, rates.writing
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
            "order": order_seconds(rates, p, left),
            "starts": navigation_size(p.navigation, left) * rates.insertion / rates.threads,
            "emit": sealed_seconds(2 * before.without_deleted().bytes, writing),
            "certify": certificate_seconds(rates, left),
        }
        memory = scaled(compacting_bytes(index, index.order), FIXED_BYTES, before.n, index.n)
        scratch = scaled(scratch_bytes(index), 0, before.n, index.n)
        left_as_it_is = "a graph without deletions is left as it is where it is laid out already"
        return Predicted(seconds, memory, scratch, None if before.deleted else left_as_it_is)

    def _extended(self, growth: Growth, size: int, anew: bool = False) -> Predicted:
        """Return what an extension to files of `size` bytes takes, of which `anew` builds all lists anew."""
        index, rates, added = self._largest, self._rates, growth.added
        p, writing, node = index.parameters, rates.writing, index.space.node
        row = node.dim * index.space.dtype.itemsize
        lists = 4 * list_capacity(node.max_degree) + 4
        unpacked, tail = growth.n * (row + lists), growth.n - growth.laid_out
        memory = extending_bytes(index, growth)
        if anew:
            memory = max(memory, building_bytes(index, growth))
            linked = {"build": growth.n * vertex_seconds(rates, growth.n, 1)}
        else:
            inserted = np.linspace(growth.present, growth.n, 3)
            linked = {"insert": added * float(np.mean([insertion_seconds(rates, at) for at in inserted]))}
        seconds = {
            "ingest": added * (rates.reading + row * writing),
            "unpack": unpacked * writing + sealed_seconds(size, 0.0),
            "encode": added * rates.encoding / rates.threads,
            **linked,
            "entries": order_seconds(rates, p, tail) if tail else 0.0,
            "emit": sealed_seconds(size, writing),
            "certify": certificate_seconds(rates, growth.n),
        }
        return Predicted(seconds, memory, unpacked + added * row)
