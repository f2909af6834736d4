"""Vectors, queries and indexes of each kind that tests search by requests for ranges of files."""

from __future__ import annotations

from typing import Any

import numpy as np

VECTORS = np.random.default_rng(5).normal(size=(1500, 16)).astype(np.float32)
QUERIES = VECTORS[:12] + np.float32(0.05)
IDS = np.arange(len(VECTORS)) * 3 + 7
KINDS: dict[str, dict[str, Any]] = {
    "graph": {"max_degree": 16},
    "codes on pages": {"max_degree": 16, "codes_on_page": True},
    "ivf": {"kind": "ivf"},
    "ivf with codes": {"kind": "ivf", "codec": "pq", "keep_vectors": True},
}
