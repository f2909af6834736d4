"""Graphs that are built in one piece, in shards and in regions."""

from __future__ import annotations

import numpy as np
from tests.support.digests.site import Site
from tests.support.digests.vectors import N, colours, names, rows
from tests.support.digests.written import Cases, check, manifest, stages


def graphs(site: Site) -> Cases:
    """Both builders in one piece: metrics, types, node types, codes, passes and other keys of a job."""
    for builder in ("vamana", "partition"):
        for metric in ("l2", "cosine", "ip"):
            yield (
                f"{builder}-{metric}",
                site.build(f"{builder}-{metric}", rows(), builder=builder, metric=metric),
            )
        for dtype in ("float16", "uint8", "int8"):
            yield f"{builder}-{dtype}", site.build(f"{builder}-{dtype}", rows(dtype=dtype), builder=builder)
        name = f"{builder}-float16-ip"
        yield name, site.build(name, rows(dtype="float16"), builder=builder, metric="ip")
        for node_dtype, metric in (("float16", "l2"), ("sq16", "ip"), ("sq8", "cosine")):
            name = f"{builder}-{node_dtype}-nodes"
            yield name, site.build(name, rows(), builder=builder, node_dtype=node_dtype, metric=metric)
        name = f"{builder}-not-saturated"
        yield name, site.build(name, rows(), builder=builder, saturate=False)
        same = np.repeat(rows(N // 40, "uint8"), 40, axis=0)
        yield f"{builder}-equal-vectors", site.build(f"{builder}-equal-vectors", same, builder=builder)
    float32, uint8 = rows(), rows(dtype="uint8")
    for name, vectors, parameters in (
        ("opq", float32, {"pq_rotation": "opq"}),
        ("opq-ip-uneven", float32, {"pq_rotation": "opq", "metric": "ip", "pq_bytes": 6}),
        ("pq-of-bytes", uint8, {"pq_bytes": 3}),
        ("build-codes", float32, {"build_codes": "sq8"}),
        ("build-codes-ip", float32, {"build_codes": "sq8", "metric": "ip"}),
        ("two-passes", float32, {"passes": 2}),
        ("two-passes-of-codes", float32, {"passes": 2, "build_codes": "sq8", "saturate": False}),
        ("no-slack", float32, {"alpha": 1.0, "seed": 7}),
        ("no-navigation", float32, {"navigation": 0.0, "entries": 1}),
        ("much-navigation", float32, {"navigation": 0.1}),
        ("small-sample", float32, {"sample_vectors": 256}),
        ("kept-vectors", float32, {"node_dtype": "sq8", "keep_vectors": True}),
        (
            "kept-vectors-ip-float16",
            rows(dtype="float16"),
            {"node_dtype": "sq16", "keep_vectors": True, "metric": "ip"},
        ),
        ("nodes-of-pages", rows(400, dim=1100), {"R": 8, "L": 12}),
        ("few-vectors", rows(20), {}),
    ):
        yield name, site.build(name, vectors, **parameters)
    numbers = np.random.default_rng(3).permutation(N) * 11 + 5
    yield "numbered", site.build("numbered", float32, ids=numbers, metadata=colours(N))
    yield "named", site.build("named", uint8, ids=names(N), metadata=colours(N))
    yield "bytes", site.build("bytes", float32, ids=[name.encode() for name in names(N)])


def shards(site: Site) -> Cases:
    """Graphs that a job cuts into shards."""
    for name, dtype, parameters in (
        ("vamana", "float32", {}),
        ("vamana-ip", "float32", {"metric": "ip"}),
        ("vamana-uint8", "uint8", {"order": "gorder"}),
        ("vamana-codes", "float32", {"build_codes": "sq8", "passes": 2}),
        ("vamana-no-overlap", "float32", {"overlap": 0.0, "saturate": False}),
        ("vamana-all-overlap", "int8", {"overlap": 1.0}),
        ("partition", "float32", {"builder": "partition"}),
        ("partition-cosine", "float16", {"builder": "partition", "metric": "cosine"}),
    ):
        index = site.build(name, rows(1800, dtype), shard_vectors=500, **parameters)
        check(b'"shards": [\n      1800\n' not in manifest(index), f"{name} was not cut")
        yield name, index


def memory(site: Site) -> Cases:
    """Graphs that memory does not hold in one piece: Vamana's in shards, the partition builder's in regions."""
    wide = np.round(rows(12_000, dim=1024), 1)
    index = site.build("shards", wide, memory="294MiB", R=8, L=10, order="identity", navigation=0.0)
    check(b'"shard_vectors": null' not in manifest(index), "memory cut no shards")
    yield "shards", index
    small = {"builder": "partition", "R": 48, "order": "identity", "navigation": 0.0}
    of_bytes = rows(20_000, "uint8", dim=64)
    whole = site.build("in-one-piece", of_bytes, saturate=False, **small)
    yield "in-one-piece", whole
    two = Site(site.folder, 2)  # one thread leaves memory for a graph in one piece
    for name, vectors, limit, saturate in (
        ("regions-uint8", of_bytes, "287MiB", False),  # the index of one piece
        ("regions-float32", rows(12_000, dim=96), "291MiB", True),
    ):
        index = two.build(name, vectors, memory=limit, saturate=saturate, **small)
        check(stages(index) != stages(whole), f"{name} was built in one piece")
        yield name, index
