"""Parts *blocks*, reads a query by the size of a bucket's blocks, and *srs-accuracy*, the time of SRS beside them.

Figures 3 and 4 of E2LSH on storage: reads over the time of SRS are the reads a second that its speed takes.
"""

from __future__ import annotations

import shutil
from statistics import median
from typing import Any

from indexmill.jobs.bench.common.dataset import Dataset, first_rows
from indexmill.jobs.bench.common.intervals import over_rounds
from indexmill.jobs.bench.lsh.space import BASE, Searcher, Shape, Space, index_facts
from indexmill.jobs.bench.lsh.tune import Row, least

NAME = "sift1m"
#: Vectors at most: reads are counted, and an index is built for every size of block.
VECTORS = 100_000
BLOCK_BYTES = (128, 256, 512, 1024, 2048, 4096)
RATIOS = (1.10, 1.05, 1.03)
K = 1
ROUNDS = 5


def measure(space: Space) -> dict[str, Any]:
    """Count with the same tables, u bits a bucket, and the same S for every size of block."""
    data = _data(space)
    n = data.shape()[0]
    name = f"{NAME}-{n}"
    base = space.ensure(name, data, BASE)
    bits = index_facts(base)["hash_bits"]
    with Searcher(data, space.out / "blocks.log") as searcher:

        def ask(index: Any, candidates: int, half: Any = "report") -> Row:
            opened = {"index": str(index), "engine": "memory"}
            return searcher.ask("lsh", opened, {"candidates": candidates}, K, half)

        tuned = {ratio: least(lambda s: ask(base, s, "tune"), K, n // 8, ratio)[0] for ratio in RATIOS}
        rows = []
        for block_bytes in BLOCK_BYTES:
            index = space.ensure(
                name, data, Shape(f"b{block_bytes}", {"block_bytes": block_bytes, "hash_bits": bits})
            )
            for ratio, candidates in tuned.items():
                if candidates is not None:
                    row = ask(index, candidates)
                    rows.append(
                        {
                            "block_bytes": block_bytes, "target": ratio, "candidates": candidates,
                            **{key: row[key] for key in ("ratio", "table_reads", "blocks", "block_reads")},
                            "ios": row["table_reads"] + row["blocks"],
                        }
                    )  # fmt: skip
            shutil.rmtree(index)
    return {"n_vectors": n, "hash_bits": bits, "k": K, "rows": rows}


def srs(space: Space) -> dict[str, Any]:
    """Time SRS at each ratio, by the least T' that reaches it, over the same vectors."""
    data = _data(space)
    counted = space.run.earlier("blocks")["rows"]
    rows = []
    with Searcher(data, space.out / "srs-accuracy.log") as searcher:

        def ask(most: int, half: Any = "tune") -> Row:
            return searcher.ask("srs", {}, {"most": most}, K, half)

        for ratio in RATIOS:
            most, _ = least(ask, K, data.shape()[0] // 4, ratio)
            if most is None:
                continue
            times = [ask(most, "report")["us"] for _ in range(ROUNDS + 1)][1:]
            ios = {str(row["block_bytes"]): row["ios"] for row in counted if row["target"] == ratio}
            rows.append(
                {
                    "target": ratio, "most": most, "us": over_rounds(times),
                    "reads_per_s": {size: 1e6 * n / median(times) for size, n in ios.items()},
                }
            )  # fmt: skip
    return {"k": K, "rows": rows}


def _data(space: Space) -> Dataset:
    return first_rows(space.data(NAME), VECTORS, space.sets.folder / f"{NAME}-{VECTORS}")
