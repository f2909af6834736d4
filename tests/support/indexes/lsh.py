"""Small LSH indexes for tests."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

import indexmill
from indexmill.formats.index.manifest import Manifest, parse_manifest, seal_files, write_manifest
from indexmill.formats.index.names import MANIFEST_NAME
from indexmill.formats.kinds import KINDS
from indexmill.formats.pagefile.frame import checksum, page_checksums, pages_for
from indexmill.formats.pagefile.reader import content_digest
from indexmill.formats.sources.source import array_source
from indexmill.pipeline.build import run_build
from indexmill.pipeline.spec import BuildSpec, LshParameters

PAGE = 4096
FIXED: dict[str, Any] = {
    "kind": "lsh", "n_functions": 5, "n_tables": 6, "n_radii": 3, "first_radius": 1.5, "candidates": 50,
    "hash_bits": 3, "block_bytes": 128, "workers": 1,
}  # fmt: skip
#: Keys of a job that are no parameters.
_RUN = ("workers", "executor", "memory", "scratch", "work", "force")


def build_lsh(
    out: Path,
    vectors: np.ndarray,
    ids: Any = None,
    metadata: Any = None,
    progress: Any = None,
    **settings: Any,
) -> dict[str, Any]:
    """Build an LSH index and return its manifest."""
    run = {key: settings.pop(key) for key in _RUN if key in settings}
    spec = BuildSpec(input=["<array>"], out=str(out), parameters=LshParameters(**settings), **run)
    return run_build(spec, array_source(vectors, ids=ids, metadata=metadata), progress)


def fixed(out: Path, vectors: np.ndarray, ids: Any = None, metadata: Any = None, **how: Any) -> Path:
    """Build an index with everything given that is solved for, so that other vectors get the same functions."""
    indexmill.build(vectors, out, ids=ids, metadata=metadata, **{**FIXED, **how})
    return out


def of_metric(metric: str) -> dict[str, Any]:
    """Parameters of `fixed` by which vectors of a metric lie within three radii."""
    return {"metric": metric, **({"first_radius": 0.25} if metric == "cosine" else {})}


def contents(index: Path) -> dict[str, str]:
    """Digests of the page files of an index, whatever their build id."""
    return {name: content_digest(index / name) for name in os.listdir(index) if name.endswith(".imx")}


def clusters(n: int, dim: int, seed: int = 0) -> np.ndarray:
    """float32 vectors in 20 clusters."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(20, dim)) * 4
    return (centres[rng.integers(0, 20, n)] + rng.normal(size=(n, dim))).astype(np.float32)


def damaged(
    index: Path, out: Path, name: str, patches: dict[int, bytes], seal_block: int | None = None
) -> Path:
    """Copy `index` with bytes of a file replaced and every checksum over them made right again.

    `patches` are by offset in the file; of ``seal_block`` bytes, the block of each patch gets its own checksum, too.
    """
    shutil.copytree(index, out)
    data = bytearray((out / name).read_bytes())
    for offset, new in patches.items():
        data[offset : offset + len(new)] = new
        if seal_block is not None:
            at = offset - offset % seal_block
            data[at : at + 4] = checksum(bytes(data[at + 4 : at + seal_block])).to_bytes(4, "little")
    n_pages = len(data) // PAGE
    data_pages = next(p for p in range(2, n_pages) if pages_for(4 * (p - 1)) == n_pages - 1 - p)
    crc = page_checksums(memoryview(data)[PAGE : data_pages * PAGE]).tobytes()
    crc = crc.ljust(pages_for(len(crc)) * PAGE, b"\0")
    data[data_pages * PAGE : (n_pages - 1) * PAGE] = crc
    footer = (n_pages - 1) * PAGE
    data[footer + 16 : footer + 20] = checksum(crc).to_bytes(4, "little")
    data[-4:] = checksum(bytes(data[footer:-4])).to_bytes(4, "little")
    (out / name).write_bytes(data)
    old = parse_manifest(out)
    (out / MANIFEST_NAME).unlink()
    names = [
        *KINDS["lsh"].required,
        *(entry.name for entry in old.files if entry.name not in KINDS["lsh"].required),
    ]
    build_id, files = seal_files(out, names)
    values = {**vars(old), "build_id": build_id, "files": files}
    write_manifest(out, Manifest(**values))
    return out
