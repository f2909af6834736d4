"""Searches of every kind of index."""

from __future__ import annotations

import numpy as np
from tests.support.digests.site import Site
from tests.support.digests.vectors import rows
from tests.support.digests.written import Cases, answers

import indexmill


def searches(site: Site) -> Cases:
    """Answers and counters of searches, which repeat bit for bit."""
    queries = rows(60, seed=6)
    for name, parameters in (("l2", {}), ("ip", {"metric": "ip"}), ("sq8", {"node_dtype": "sq8"})):
        index = indexmill.open(site.build(name, rows(2000), navigation=0.05, **parameters))
        for policy in ("pipeline", "page", "completion", "beam"):
            for entry in ("navigation", "centroids", "medoid"):
                found = index.search(queries, 10, L=30, policy=policy, entry=entry, threads=site.workers)
                yield f"graph-{name}-{policy}-{entry}", answers(found)
        found = index.search(queries, 10, L=30, allow=np.arange(2000) % 3 == 0)
        yield f"graph-{name}-filtered", answers(found)
        radius = float(np.sort(index.search(queries, 5).scores, axis=None)[150])
        yield f"graph-{name}-range", answers(index.range_search(queries, radius))
    for name, dtype, parameters in (
        ("uint8", "uint8", {}),
        ("probes", "float32", {"probes": 3, "metric": "ip"}),
    ):
        tables = indexmill.open(site.build(f"lsh-{name}", rows(dtype=dtype), kind="lsh", **parameters))
        asked = rows(60, dtype, seed=6)
        yield f"lsh-{name}", answers(tables.search(asked, 5, threads=site.workers))
    for name, parameters in (
        ("flat", {}),
        ("sq8", {"codec": "sq8", "metric": "cosine"}),
        ("pq", {"codec": "pq", "pq_bytes": 5, "keep_vectors": True, "batch_vectors": 500}),
    ):
        inverted = indexmill.open(site.build(f"ivf-{name}", rows(), kind="ivf", lists=16, **parameters))
        yield f"ivf-{name}", answers(inverted.search(queries, 10, nprobe=4, threads=site.workers))
        yield f"ivf-{name}-pruned", answers(inverted.search(queries, 10, nprobe=8, prune=0.3))
