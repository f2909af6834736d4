"""A slow, obvious search of an LSH index through `indexmill.formats`, for comparison with the native reader.

What the format leaves open about a search is decided here:

* radii are searched in order, until the k-th nearest vector met so far is within c R, all vectors were met, or no
  radius is left;
* of a radius the occupied buckets are looked at that the query leads to: every table's own one in the order of
  tables, then every table's nearest other one, and so on (`probes`); behind each one that of added tables;
* of a bucket the entries with the query's fingerprint are candidates, in their order; those met for the first time
  are measured, at most S + k - 1 in a radius, after which it ends.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.lsh.index import LshFiles


@dataclass
class Found:
    """Result and cost of one query; `distances` are squared Euclidean ones in the space of the stored vectors."""

    slots: list[int]
    distances: list[float]
    radii: int
    table_reads: int
    candidates: int
    measured: int


class LshOracle:
    """All of an index in memory."""

    def __init__(self, path: Path) -> None:
        self.files = LshFiles(path)
        vectors = self.files.vectors
        self.vectors = vectors.read(0, vectors.n_vectors).astype(np.float64)
        self.metric, self.max_norm = vectors.metric, vectors.max_norm

    def stored(self, query: NDArray[np.generic]) -> NDArray[np.float64]:
        """Return the query as it is hashed and compared."""
        q = query.astype(np.float64)
        if self.metric == "cosine":
            return (q / np.linalg.norm(q)).astype(np.float32).astype(np.float64)
        if self.metric == "ip":
            return np.append((q * (self.max_norm / np.linalg.norm(q))).astype(np.float32), 0).astype(
                np.float64
            )
        return q

    def search(self, query: NDArray[np.generic], k: int, candidates: int, probes: int = 0) -> Found:
        """Find k near vectors of one query."""
        shape, radii = self.files.shape, self.files.functions.radii
        at = self.stored(query)
        positions = np.stack([self.files.cells(t, at[None])[:, :, 0] for t in range(shape.n_tables)], axis=1)
        met: dict[int, float] = {}
        found = Found([], [], 0, 0, 0, 0)
        for i, radius in enumerate(radii):
            found.radii += 1
            fresh = 0
            looked_at = itertools.product(self._targets(positions[i], probes), self.files.pairs)
            for (bucket, rest, table), pair in looked_at:
                pointer = pair.tables.pointer(i, table, bucket)
                if pointer == 0:
                    continue
                found.table_reads += 1
                slots, fingerprints = pair.buckets.split(pair.buckets.chain(pointer))
                fingerprint = rest % 2**pair.shape.fingerprint_bits
                for slot in slots[fingerprints == fingerprint].tolist():
                    if fresh == candidates + k - 1:
                        break
                    found.candidates += 1
                    if slot not in met:
                        met[slot] = float(((self.vectors[slot] - at) ** 2).sum())
                        fresh += 1
            nearest = sorted(met.items(), key=lambda item: (item[1], item[0]))[:k]
            reach = self.files.defaults.ratio * radius
            if (len(nearest) == k and nearest[-1][1] <= reach**2) or len(met) == len(self.vectors):
                break
        found.slots, found.distances = [s for s, _ in nearest], [d for _, d in nearest]
        found.measured = len(met)
        return found

    def _targets(self, positions: NDArray[np.float64], probes: int) -> list[tuple[int, int, int]]:
        """List (bucket, rest of the hash, table), rank by rank; `positions` of one radius, (L, m)."""
        ranked = [self._probed(t, probes) for t in positions]
        targets = []
        for rank, (table, integers) in itertools.product(range(probes + 1), enumerate(ranked)):
            if rank < len(integers):
                whole = integers[rank].astype(np.int64).view(np.uint64)
                v = int((self.files.functions.multipliers[table] * whole).sum(dtype=np.uint64)) >> 32
                shape = self.files.shape
                targets.append((v % 2**shape.hash_bits, v >> shape.hash_bits, table))
        return targets

    @staticmethod
    def _probed(t: NDArray[np.float64], probes: int) -> list[NDArray[np.float64]]:
        """List the integers next to `t`, by the sum of the squared distances to the borders that are crossed."""
        own = np.floor(t)
        if probes == 0:
            return [own]
        steps = np.array(list(itertools.product((-1, 0, 1), repeat=len(t))))
        crossed = np.select([steps < 0, steps > 0], [t - own, own + 1 - t], 0)
        order = np.argsort((crossed**2).sum(axis=1), kind="stable")
        return list(own + steps[order[: probes + 1]])
