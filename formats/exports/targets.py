"""All targets of an export, by name, in the order in which they are listed."""

from __future__ import annotations

from indexmill.formats.exports import (
    bulk,
    diskann,
    faiss_hnsw,
    faiss_nsg,
    jvector,
    lucene,
    parquet,
    pgvector,
    svs,
    usearch,
)

_ALL = (
    diskann.TARGET,
    faiss_hnsw.TARGET,
    faiss_nsg.TARGET,
    lucene.TARGET,
    lucene.BUILD_TARGET,
    jvector.TARGET,
    usearch.TARGET,
    svs.TARGET,
    parquet.TARGET,
    pgvector.TARGET,
    bulk.TARGET,
)

TARGETS = {target.name: target for target in _ALL}
