"""All targets of an export, by name, in the order in which they are listed."""

from __future__ import annotations

from indexmill.formats.exports import (
    bulk,
    diskann,
    faiss_hnsw,
    faiss_nsg,
    jvector,
    parquet,
    pgvector,
    svs,
    usearch,
)

_ALL = (diskann, faiss_hnsw, faiss_nsg, jvector, usearch, svs, parquet, pgvector, bulk)

TARGETS = {module.TARGET.name: module.TARGET for module in _ALL}
