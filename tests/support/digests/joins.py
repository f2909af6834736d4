"""Joins and true neighbours."""

from __future__ import annotations

import numpy as np
from tests.support.digests.site import Site
from tests.support.digests.vectors import N, names, rows
from tests.support.digests.written import Cases, answers

import indexmill


def joins(site: Site) -> Cases:
    """Joins and true neighbours: codecs, probes, a recall to learn them by, workers of a platform."""
    queries = rows(300, seed=6)
    platform = site.new("platform.toml")
    platform.write_text('[[worker]]\nname = "a"\ncount = 2\nload_mb_s = 500\ncompare_m_s = 20\n')
    for name, parameters, how in (
        ("exact", {}, {"nprobe": 16}),
        ("batches", {"batch_vectors": 400}, {"nprobe": 3}),
        ("recall", {"batch_vectors": 400}, {"recall": 0.9}),
        ("platform", {"batch_vectors": 200}, {"nprobe": 4, "platform": platform}),
        ("copies", {"copies": 3, "closure": 0.5}, {"nprobe": 3, "k": 20}),
        ("sq8", {"codec": "sq8"}, {"nprobe": 4}),
        ("pq", {"codec": "pq", "pq_bytes": 5, "metric": "cosine"}, {"nprobe": 4}),
        ("ip", {"metric": "ip", "ids": names(N)}, {"nprobe": 4}),
    ):
        index = site.build(f"{name}-index", rows(), kind="ivf", lists=16, **parameters)
        out = site.new(f"{name}.parquet")
        indexmill.join(queries, index, out, workers=site.workers, **how)
        yield name, out
        if name == "batches":
            yield "truth-of-an-index", answers(indexmill.truth(index, queries, k=20, workers=site.workers))
    base = site.new("base.npy")
    for dtype, metrics in (("float32", ("l2", "ip", "cosine")), ("uint8", ("l2",))):
        np.save(base, rows(dtype=dtype))
        for metric in metrics:
            found = indexmill.truth(base, rows(50, dtype, seed=6), k=20, metric=metric, workers=site.workers)
            yield f"truth-{dtype}-{metric}", answers(found)
