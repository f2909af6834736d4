"""Contents of an index of a Lance dataset, read from Lance's own files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance.file
import numpy as np


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
