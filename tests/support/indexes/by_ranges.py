"""Vectors, queries and indexes of each kind that tests search by requests for ranges of files."""

from __future__ import annotations

from typing import Any

import numpy as np

from indexmill.reader.choices import STORED_BEAM_WIDTH, STORED_POLICY

VECTORS = np.random.default_rng(5).normal(size=(1500, 16)).astype(np.float32)
QUERIES = VECTORS[:12] + np.float32(0.05)
IDS = np.arange(len(VECTORS)) * 3 + 7
KINDS: dict[str, dict[str, Any]] = {
    "graph": {"max_degree": 16},
    "codes on pages": {"max_degree": 16, "codes_on_page": True},
    "exact vectors": {"max_degree": 16, "node_dtype": "sq8", "keep_vectors": True},
    "ivf": {"kind": "ivf"},
    "ivf with codes": {"kind": "ivf", "codec": "pq", "keep_vectors": True},
}


def as_at_url(index: Any, queries: Any, k: int = 5, **options: Any) -> Any:
    """Search an index of this machine with the options that one at a URL has by default."""
    defaults = {"policy": STORED_POLICY, "beam_width": STORED_BEAM_WIDTH} if index.kind == "graph" else {}
    return index.search(queries, k, **defaults, **options)
