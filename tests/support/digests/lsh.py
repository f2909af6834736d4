"""Builds of hash tables."""

from __future__ import annotations

from tests.support.digests.site import Site
from tests.support.digests.vectors import N, colours, names, rows
from tests.support.digests.written import Cases


def hashes(site: Site) -> Cases:
    """LSH: types, metrics, and what a job may say instead of what is solved for."""
    for dtype in ("float32", "float16", "uint8", "int8"):
        yield dtype, site.build(dtype, rows(dtype=dtype), kind="lsh")
    for name, parameters in (
        ("cosine", {"metric": "cosine"}),
        ("ip", {"metric": "ip"}),
        ("probes", {"probes": 4, "success": 0.9}),
        ("counted", {"n_tables": 6, "n_functions": 8, "candidates": 50, "hash_bits": 7}),
        ("radii", {"n_radii": 3, "first_radius": 2.0, "ratio": 1.5, "width": 3.0, "gamma": 0.8}),
        ("small-blocks", {"block_bytes": 128, "seed": 9}),
    ):
        yield name, site.build(name, rows(), kind="lsh", **parameters)
    yield "named", site.build("named", rows(), kind="lsh", ids=names(N), metadata=colours(N))
