"""Part *footprint*: time of a search's work with all tables in memory, and without their footprint (section 4.5).

The paper imitates bucket reads and distances: blocks are read at random places of a buffer as large as the index, or
so small that it stays in a core's cache; both measure as many vectors, at random places of the same array.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from indexmill.formats.kernel import kernel
from indexmill.jobs.bench.common.dataset import read_bin
from indexmill.jobs.bench.common.intervals import over_rounds
from indexmill.jobs.bench.lsh.nearest import squared_distance
from indexmill.jobs.bench.lsh.space import Space

NAME, K = "sift1m", 1
ROUNDS, SEED = 7, 1
#: Blocks that are read in a round, bytes of one, and of a line of cache.
READS, BLOCK_BYTES, LINE_BYTES = 1_000_000, 512, 64
#: Blocks of the small buffer.
FEW_BLOCKS = 32


def measure(space: Space) -> dict[str, Any]:
    """Time both in turns, with as many distances a block as searches of the index that is fastest in memory."""
    best = space.fastest(NAME, K, "memory")
    if best is None:
        return {"ratio": None}
    found = space.run.earlier(f"tables-{NAME}")["indexes"][best[0].name]
    row = found[f"k{K}"]["memory"]
    a_block = max(1, round(row["distances"] / row["blocks"]))
    n_blocks = found["index"]["index_bytes"] // BLOCK_BYTES
    vectors = np.array(read_bin(space.data(NAME).base))
    buffers = {"index": _blocks(n_blocks), "cache": _blocks(min(FEW_BLOCKS, n_blocks))}
    random = np.random.default_rng(SEED)
    rows = random.integers(len(vectors), size=(READS, a_block), dtype=np.uint32)
    places = {
        name: random.integers(len(blocks), size=READS, dtype=np.uint32) for name, blocks in buffers.items()
    }
    for name, blocks in buffers.items():  # compiles
        imitate(blocks, vectors, places[name][:2], rows[:2])
    rounds = []
    for _ in range(ROUNDS):
        seconds = {}
        for name, blocks in buffers.items():
            began = time.perf_counter()
            imitate(blocks, vectors, places[name], rows)
            seconds[name] = time.perf_counter() - began
        rounds.append(seconds)
    return {
        "index": best[0].name,
        "index_bytes": found["index"]["index_bytes"],
        "distances_a_block": a_block,
        "seconds": {name: over_rounds([one[name] for one in rounds]) for name in buffers},
        "ratio": over_rounds([one["cache"] / one["index"] for one in rounds]),
    }


def _blocks(n: int) -> Any:
    """Return blocks of zeros that have memory of their own; uint8 (n, BLOCK_BYTES)."""
    blocks = np.empty((n, BLOCK_BYTES), np.uint8)
    blocks.fill(0)  # np.zeros would map one page of zeros for all
    return blocks


@kernel
def imitate(blocks: Any, vectors: Any, places: Any, rows: Any) -> float:
    """Read the lines of a block at each place, then measure vectors; returns the sum of their distances.

    Parameters
    ----------
    blocks : uint8 array, shape (n_blocks, BLOCK_BYTES)
    vectors : array, shape (n_vectors, dim)
    places : uint32 array, shape (n,)
    rows : uint32 array, shape (n, distances)
    """
    total = np.float64(0)
    for i in range(len(places)):
        block, seen = blocks[places[i]], np.int64(0)
        for j in range(0, BLOCK_BYTES, LINE_BYTES):
            seen += block[j]
        for j in range(rows.shape[1]):  # which vectors depends on what was read, as in a search
            total += squared_distance(vectors[(rows[i, j] + seen) % len(vectors)], vectors[0])
    return total
