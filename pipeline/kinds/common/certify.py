"""The frame of certificates of all kinds.

A certificate measures the index leave-one-out: sampled rows of the input are searched for, with themselves left out of
the results and of the truth. They stand for queries that come from the same source as the vectors; queries from
elsewhere are harder, which is why ``indexmill score`` exists. Only counts are certified, no times: the certificate is
part of the bytes that two equal builds share.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from indexmill.formats.index.manifest import Manifest, write_manifest
from indexmill.formats.pagefile.atomic import link_or_copy

QUERIES = 200
K = 10


@contextmanager
def opened_as(manifest: Manifest, emitted: str, beside: str) -> Iterator[str]:
    """Yield a directory in `beside` where the files in `emitted` are the index that they will be, under `manifest`."""
    with tempfile.TemporaryDirectory(dir=beside) as index:
        for file in manifest.files:
            link_or_copy(Path(emitted) / file.name, Path(index) / file.name)
        write_manifest(Path(index), manifest)
        yield index


def certify_opened(
    emitted: str, manifest: Manifest, ingest: str, out: str, measure: Callable[[str, Any], dict[str, Any] | None]
) -> None:  # fmt: skip
    """Write what `measure` returns of the index in `emitted` and the vectors of stage *ingest*: see `opened_as`."""
    vectors = np.load(Path(ingest) / "vectors.npy", mmap_mode="r")
    with opened_as(manifest, emitted, out) as index:
        write_certificate(out, measure(index, vectors))


def write_certificate(directory: str, certificate: dict[str, Any] | None) -> None:
    """Write ``certificate.json``: null where there is one vector, which has no neighbours."""
    (Path(directory) / "certificate.json").write_text(json.dumps(certificate))


def read_certificate(directory: Path) -> dict[str, Any] | None:
    """Read what `write_certificate` wrote."""
    certificate: dict[str, Any] | None = json.loads((directory / "certificate.json").read_text())
    return certificate


def distances_without_self(vectors: Any, queries: Any, rows: Any, found: Any, k: int) -> Any:
    """Exact squared distances (n_queries, k) of the results, the query's own row dropped; NaN if missing."""
    differences = vectors[np.maximum(found, 0)].astype(np.float64) - queries[:, None, :].astype(np.float64)
    distances = np.einsum("qkd,qkd->qk", differences, differences)
    distances[(found < 0) | (found == rows[:, None])] = np.nan
    return np.sort(distances, axis=1)[:, :k]  # NaN sorts last
