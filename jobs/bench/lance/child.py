"""Lance in a process of its own: it writes a dataset, has it indexed by one of both, and searches it.

    python -m indexmill.jobs.bench.lance.child write|ours|theirs SETTING

SETTING is JSON; so is what is printed. Answers, vectors as positions in the base, go to a file of shape (len(probes),
len(queries), 10).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa

import indexmill
from indexmill.jobs.bench.common.dataset import K, read_bin

_ROWS = 8192


def write(s: dict[str, Any]) -> dict[str, Any]:
    """Write the base as a dataset of so many fragments."""
    base = read_bin(Path(s["base"]))
    rows, dim = base.shape
    schema = pa.schema({"number": pa.int64(), "vector": pa.list_(pa.float32(), dim)})

    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(0, rows, _ROWS):
            part = np.ascontiguousarray(base[first : first + _ROWS], np.float32)
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(part.ravel()), dim)
            yield pa.record_batch([pa.array(np.arange(first, first + len(part))), vectors], schema)

    made = lance.write_dataset(
        pa.RecordBatchReader.from_batches(schema, batches()), s["dataset"],
        max_rows_per_file=-(-rows // s["fragments"]), max_rows_per_group=1024,
    )  # fmt: skip
    return {"vectors": rows, "dim": dim, "fragments": len(made.get_fragments())}


def ours(s: dict[str, Any]) -> dict[str, Any]:
    """Have the dataset indexed by `indexmill.export`, in place of an index that is there."""
    began = time.perf_counter()
    indexmill.export(
        s["model"], "lance", dataset=s["dataset"], column="vector", workers=s["workers"], force=True
    )
    seconds = time.perf_counter() - began
    search(s)
    return {"seconds": seconds}


def theirs(s: dict[str, Any]) -> dict[str, Any]:
    """Have the dataset indexed by Lance itself, in place of an index that is there.

    Raises
    ------
    ValueError
        If there are fewer lists than were asked for: with PQ codes Lance makes one for 256 vectors at most.
    """
    table = lance.dataset(s["dataset"])
    began = time.perf_counter()
    table.create_index("vector", name="vector_idx", replace=True, **s["own"])
    seconds = time.perf_counter() - began
    made = lance.dataset(s["dataset"]).stats.index_stats("vector_idx")["indices"][0]["num_partitions"]
    if made != s["own"]["num_partitions"]:
        raise ValueError(f"Lance made {made} lists; expected {s['own']['num_partitions']}; give more vectors")
    search(s)
    return {"seconds": seconds}


def search(s: dict[str, Any]) -> None:
    """Search with each number of probed lists."""
    table, queries = lance.dataset(s["dataset"]), np.load(s["queries"])
    answers = np.full((len(s["probes"]), len(queries), K), -1, np.int64)
    for at, probes in enumerate(s["probes"]):
        for number, query in enumerate(queries):
            nearest = {"column": "vector", "q": query, "k": K, "nprobes": probes, "maximum_nprobes": probes}
            found = table.to_table(nearest=nearest, columns=["number"])["number"].to_numpy()
            answers[at, number, : len(found)] = found
    np.save(s["answers"], answers)


if __name__ == "__main__":
    print(json.dumps({"write": write, "ours": ours, "theirs": theirs}[sys.argv[1]](json.loads(sys.argv[2]))))
