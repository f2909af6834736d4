"""Exports to every target that needs nothing else installed."""

from __future__ import annotations

import numpy as np
from tests.support.digests.site import Site
from tests.support.digests.vectors import colours, names, rows
from tests.support.digests.written import Cases

import indexmill

GRAPH_TARGETS = (
    "diskann", "faiss", "faiss-nsg", "jvector", "usearch", "svs", "parquet", "pgvector", "bulk",
)  # fmt: skip
LIST_TARGETS = ("faiss-ivf", "faiss-ivf-disk", "parquet", "pgvector", "bulk")


def exports(site: Site) -> Cases:
    """Every target that needs nothing else installed, of each index that it can hold."""
    numbers = np.random.default_rng(3).permutation(600) * 11 + 5
    columns = {"ids": numbers, "metadata": colours(600)}
    named = {"ids": names(600), "metadata": colours(600)}
    of_lists = {"kind": "ivf", "lists": 12}
    for name, dtype, parameters, targets in (
        ("graph", "float32", columns, GRAPH_TARGETS),
        ("graph-cosine", "float32", {"metric": "cosine", **columns}, GRAPH_TARGETS),
        ("graph-ip", "float32", {"metric": "ip"}, GRAPH_TARGETS),
        ("graph-uint8", "uint8", {}, GRAPH_TARGETS),
        ("graph-named", "int8", named, ("jvector", "svs", "parquet", "pgvector", "bulk")),
        ("graph-float16", "float16", {}, GRAPH_TARGETS[1:]),
        ("graph-sq8", "float32", {"node_dtype": "sq8"}, GRAPH_TARGETS[1:]),
        ("graph-kept", "float32", {"node_dtype": "sq8", "keep_vectors": True}, GRAPH_TARGETS[1:]),
        ("graph-opq", "float32", {"pq_rotation": "opq", "R": 40}, ("diskann", "faiss", "svs")),
        ("ivf-flat", "float32", {**of_lists, **columns}, LIST_TARGETS),
        ("ivf-uint8", "uint8", of_lists, LIST_TARGETS),
        ("ivf-named", "float16", {**of_lists, **named}, ("parquet", "pgvector", "bulk")),
        ("ivf-sq8", "float32", {**of_lists, "codec": "sq8", "metric": "cosine"}, LIST_TARGETS),
        ("ivf-pq", "float32", {**of_lists, "codec": "pq", "pq_bytes": 5, "metric": "ip"}, LIST_TARGETS[:2]),
        (
            "ivf-kept",
            "float32",
            {**of_lists, "codec": "pq", "pq_bytes": 5, "keep_vectors": True},
            LIST_TARGETS,
        ),
        ("ivf-copies", "float32", {**of_lists, "copies": 3, "batch_vectors": 250}, LIST_TARGETS),
        ("lsh", "float32", {"kind": "lsh", **columns}, ("faiss-lsh",)),
        ("lsh-uint8", "uint8", {"kind": "lsh"}, ("faiss-lsh",)),
        ("lsh-ip", "float32", {"kind": "lsh", "metric": "ip"}, ("faiss-lsh",)),
    ):
        index = site.build(name, rows(600, dtype), **parameters)
        for target in targets:
            indexmill.export(index, target, site.new(f"{target}-of-{name}"))
            yield f"{target}-of-{name}", site.new(f"{target}-of-{name}")
            if "ids" in parameters:
                slots = site.new(f"{target}-of-{name}-by-slot")
                indexmill.export(index, target, slots, ids="slot")
                yield slots.name, slots
