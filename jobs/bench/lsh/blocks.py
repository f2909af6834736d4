"""Part *blocks*: reads a query by the size of a bucket's blocks (Figure 3 of E2LSH on storage)."""

from __future__ import annotations

import shutil
from typing import Any

from indexmill.jobs.bench.common.dataset import first_rows
from indexmill.jobs.bench.lsh.space import BASE, Searcher, Shape, Space, index_facts
from indexmill.jobs.bench.lsh.tune import Row, least

NAME = "sift1m"
#: Vectors at most: reads are counted, and an index is built for every size of block.
VECTORS = 100_000
BLOCK_BYTES = (128, 256, 512, 1024, 2048, 4096)
RATIOS = (1.10, 1.05, 1.03)
K = 1


def measure(space: Space) -> dict[str, Any]:
    """Count with the same tables, u bits a bucket, and the same S for every size of block."""
    data = first_rows(space.data(NAME), VECTORS, space.sets.folder / f"{NAME}-{VECTORS}")
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
