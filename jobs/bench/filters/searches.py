"""Searches that are compared, each a function of a list size and a half of the queries.

* `filtered`: with a filter, as the reader plans it;
* `longer`: along edges as if there were no filter, with a list of ``L * n / n_allowed`` candidates, the first K allowed
  of which are the results. Readers did so before they kept a list of allowed candidates;
* `alone`: without a filter, in an index of the allowed vectors alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from typing import Any

import numpy as np

from indexmill.jobs.bench.common.curves import Half, Row
from indexmill.jobs.bench.common.dataset import DISTANCE_TOLERANCE, Dataset, K, read_bin
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.common.serving import Cost, make_row, measured
from indexmill.jobs.bench.filters.columns import Filters
from indexmill.reader.index import Index

#: Most queries of a half: lists of thousands of candidates read as many pages.
QUERIES = 300


@dataclass(frozen=True)
class Searches:
    """One index, and the filters of its queries.

    Attributes
    ----------
    index : Index
    data : Dataset
    filters : Filters
    """

    index: Index
    data: Dataset
    filters: Filters
    _made: dict[int, Any] = field(default_factory=dict)

    def filtered(self, size: int, half: Half) -> Row:
        """Search with the filters; ``scanned`` is the share of queries of which all allowed vectors were scored."""
        asked = queries_of(self.data, half)
        queries = np.asarray(read_bin(self.data.query))
        ids = np.full((len(asked), K), -1, np.int64)
        each = {name: np.zeros(len(asked)) for name in ("pages_read", "code_distances", "hops")}
        scanned, cost = np.zeros(len(asked)), Cost()
        for label in np.unique(self.filters.asked[asked]):
            mine = np.flatnonzero(self.filters.asked[asked] == label)
            allow = self._filter(int(label))
            with measured() as part:
                found = self.index.search(queries[asked[mine]], K, L=size, threads=THREADS, allow=allow)
            cost.wall_s += part.wall_s
            cost.cpu_s += part.cpu_s
            cost.user_s += part.user_s
            ids[mine] = found.vector_ids
            for name, values in each.items():
                values[mine] = found.counters[name]
            scanned[mine] = found.counters["code_distances"] == allow.n_allowed
        return self._row(size, cost, ids, half, each, scanned=float(scanned.mean()))

    def longer(self, size: int, half: Half) -> Row:
        """Search without the filters for more, and take the allowed ones."""
        asked = queries_of(self.data, half)
        n_candidates = min(ceil(size / self.filters.allowed), len(self.index))
        with measured() as cost:
            found = self.index.search(
                np.asarray(read_bin(self.data.query))[asked], n_candidates, L=n_candidates, threads=THREADS
            )
        ids = found.vector_ids
        wanted = (self.filters.labels[ids] == self.filters.asked[asked, None]) & (ids >= 0)
        first = np.argsort(~wanted, axis=1, kind="stable")[:, :K]
        ids = np.where(np.take_along_axis(wanted, first, axis=1), np.take_along_axis(ids, first, axis=1), -1)
        each = {name: found.counters[name] for name in ("pages_read", "code_distances", "hops")}
        return self._row(size, cost, ids, half, each, scanned=0.0)

    def alone(self, index: Index, rows: Any, size: int, half: Half) -> Row:
        """Search an index of the rows `rows` of the base alone."""
        asked = queries_of(self.data, half)
        with measured() as cost:
            found = index.search(np.asarray(read_bin(self.data.query))[asked], K, L=size, threads=THREADS)
        each = {name: found.counters[name] for name in ("pages_read", "code_distances", "hops")}
        return self._row(size, cost, rows[found.vector_ids], half, each)

    def _filter(self, label: int) -> Any:
        if label not in self._made:
            self._made[label] = self.index.filter(self.filters.labels == label)
        return self._made[label]

    def _row(self, size: int, cost: Cost, ids: Any, half: Half, each: Any, **means: float) -> Row:
        asked = queries_of(self.data, half)
        queries = np.asarray(read_bin(self.data.query))[asked].astype(np.float64)
        distances = ((read_bin(self.data.base)[ids] - queries[:, None]) ** 2).sum(axis=2)
        distances[ids < 0] = np.inf
        is_hit = distances <= self.filters.farthest[asked, None] * (1 + DISTANCE_TOLERANCE)
        hits = {"hits": is_hit.sum(axis=1), "hits1": is_hit[:, 0]}
        return make_row(size, cost, 1, {**hits, **each}, **means)


def queries_of(data: Dataset, half: Half) -> Any:
    """Return the first `QUERIES` queries of a half, int array."""
    first, last = data.both_halves()[half]
    return np.arange(first, min(last, first + QUERIES))
