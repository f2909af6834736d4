"""Builds of inverted lists."""

from __future__ import annotations

import numpy as np
from tests.support.digests.site import Site
from tests.support.digests.vectors import N, colours, names, rows
from tests.support.digests.written import Cases


def lists(site: Site) -> Cases:
    """IVF: codecs, types, metrics, batches, copies, given centroids, and a graph over many."""
    for dtype in ("float32", "float16", "uint8", "int8"):
        for codec in ("flat", "sq8", "pq"):
            if codec == "sq8" and dtype in ("uint8", "int8"):
                continue  # bytes as they are: flat
            name = f"{codec}-{dtype}"
            yield name, site.build(name, rows(dtype=dtype), kind="ivf", lists=16, codec=codec, **codes(codec))
    for metric in ("cosine", "ip"):
        for codec in ("flat", "sq8", "pq", "rabitq"):
            name = f"{codec}-{metric}"
            yield (
                name,
                site.build(name, rows(), kind="ivf", lists=16, codec=codec, metric=metric, **codes(codec)),
            )
    centroids = site.new("centroids.npy")
    np.save(centroids, rows(30, seed=8))
    many = site.new("many.npy")
    np.save(many, rows(16_500, dim=4, seed=8))
    for name, vectors, parameters in (
        ("batches", rows(), {"lists": 16, "batch_vectors": 500}),
        ("batches-pq", rows(), {"lists": 16, "batch_vectors": 500, "codec": "pq", "pq_bytes": 7}),
        ("copies", rows(), {"lists": 16, "copies": 3, "closure": 0.5}),
        ("copies-kept", rows(), {"lists": 16, "copies": 2, "codec": "sq8", "keep_vectors": True}),
        ("kept", rows(), {"lists": 16, "codec": "pq", "pq_bytes": 5, "keep_vectors": True}),
        ("bits", rows(), {"lists": 16, "codec": "rabitq", "code_bits": 2, "copies": 2, "keep_vectors": True}),
        (
            "rotated",
            rows(),
            {"lists": 16, "codec": "pq", "pq_bytes": 5, "pq_rotation": "opq", "metric": "ip"},
        ),
        ("given-centroids", rows(), {"lists": 30, "centroids": str(centroids)}),
        ("many-lists", rows(20_000, dim=4), {"lists": 16_500, "centroids": str(many), "copies": 2}),
        ("named", rows(), {"lists": 16, "ids": names(N), "metadata": colours(N)}),
    ):
        yield name, site.build(name, vectors, kind="ivf", **parameters)


def codes(codec: str) -> dict[str, int]:
    """Return the size of codes, where there are any."""
    return {"pq_bytes": 5} if codec == "pq" else {}
