"""All targets of an export by name, in the order of listings."""

from __future__ import annotations

from typing import Any

from indexmill.formats.exports import (
    bulk,
    diskann,
    faiss_hnsw,
    faiss_ivf,
    faiss_lsh,
    faiss_nsg,
    jvector,
    lucene,
    parquet,
    pgvector,
    svs,
    usearch,
)
from indexmill.formats.exports.lance import target as lance
from indexmill.formats.exports.target import Target

_ALL: tuple[Target[Any], ...] = (
    diskann.TARGET,
    faiss_hnsw.TARGET,
    faiss_nsg.TARGET,
    faiss_ivf.TARGET,
    faiss_ivf.DISK_TARGET,
    faiss_lsh.TARGET,
    lance.TARGET,
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
