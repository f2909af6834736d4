"""Export an index to Lance, search what was written with Lance itself or LanceDB, and tell what its index holds.

Arguments: index, output, .npy file of queries, .npz file to write, JSON: k, nprobe, ids, engine ("lance", "lancedb"),
file_rows (optional: rows of a file of the dataset).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import lance
import lance.file
import numpy as np

import indexmill
from indexmill.formats.exports import lance as target


def contents(folder: Path, table: Any) -> dict[str, Any]:
    """Return centroids, rows of each partition, and codes in the order of the partitions."""
    stats = table.stats.index_stats("vector_idx")["indices"][0]
    sizes = [one["size"] for one in stats["partitions"]]
    stored = (
        lance.file.LanceFileReader(str(next(folder.glob("_indices/*/auxiliary.idx")))).read_all().to_table()
    )
    rows = stored["_rowid"].to_numpy()
    found = {"centroids": np.array(stats["centroids"], np.float32), "sizes": np.array(sizes), "rows": rows}
    if "__pq_code" in stored.column_names:
        flat = stored["__pq_code"].combine_chunks().flatten().to_numpy()
        m, parts, first = len(flat) // len(rows), [], 0
        for size in sizes:  # a partition holds its codes chunk by chunk
            parts.append(flat[first * m : (first + size) * m].reshape(m, size).T)
            first += size
        found["codes"] = np.concatenate(parts)
    return found


def main() -> None:
    index, out, asked, answer, options = sys.argv[1:]
    how = json.loads(options)
    if "file_rows" in how:
        target.file_rows = lambda index: how["file_rows"]
    indexmill.export(index, "lance", out, ids=how["ids"])
    folder = Path(out) / "vectors.lance"
    table = lance.dataset(str(folder))
    ids, distances = [], []
    for query in np.load(asked):
        if how["engine"] == "lancedb":
            import lancedb

            opened = lancedb.connect(out).open_table("vectors")
            search = opened.search(query, vector_column_name="vector").nprobes(how["nprobe"]).limit(how["k"])
            found = search.select(["vector_id", "_distance"]).to_arrow()
        else:
            probes = {"nprobes": how["nprobe"], "maximum_nprobes": how["nprobe"]}
            nearest = {"column": "vector", "q": query, "k": how["k"], **probes}
            found = table.to_table(nearest=nearest, columns=["vector_id", "_distance"])
        ids.append(found["vector_id"].to_numpy())
        distances.append(found["_distance"].to_numpy())
    columns = table.to_table(columns=["partition", "vector_id", "id"]).to_pydict()
    columns["vector"] = np.stack(table.to_table(columns=["vector"])["vector"].to_numpy(zero_copy_only=False))
    np.savez(answer, found=np.array(ids), distances=np.array(distances), **columns, **contents(folder, table))


main()
