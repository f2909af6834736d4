"""Import of a DiskANN index (C++, Rust, diskannpy), on disk or in memory, by the prefix of its files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.formats.errors import ConfigError, InputError
from indexmill.formats.imports.diskann_bin import open_bin
from indexmill.formats.imports.diskann_disk import DiskNodes
from indexmill.formats.imports.diskann_memory import MemoryLists
from indexmill.formats.imports.diskann_pq import codes_files, open_codes, rotation_file
from indexmill.formats.imports.index import ImportedEntries, ImportedIndex, ImportedVectors, check_shape
from indexmill.formats.imports.mapped import MappedFile, damaged, not_such_a_file

#: Component types by their number in diskannpy's metadata.
_DTYPES = {0: "float32", 1: "int8", 2: "uint8"}
DTYPES = tuple(_DTYPES.values())
_METADATA_BYTES = 32


def open_diskann(prefix: str, dtype: str | None = None, with_codes: bool = True) -> ImportedIndex:
    """Open a DiskANN index.

    Parameters
    ----------
    prefix : str
        Common prefix of the file paths: ``PREFIX_disk.index``, or ``PREFIX`` and ``PREFIX.data``.
    dtype : {"float32", "uint8", "int8"}, optional
        Type of the components; by default that in ``PREFIX_metadata.bin``.
    with_codes : bool
        Whether to read its codes.

    Raises
    ------
    InputError
        If there is no index.
    ConfigError
        If the type of the components is unknown.
    FormatError
        If a file is damaged or of an unsupported kind, or sizes disagree.
    """
    disk, graph, data = Path(f"{prefix}_disk.index"), Path(prefix), Path(f"{prefix}.data")
    if not disk.is_file() and not (graph.is_file() and data.is_file()):
        raise InputError(
            f"{prefix}: no index of DiskANN: neither {disk.name} nor {graph.name} with {data.name}; give the prefix "
            "that all its file names begin with"
        )
    metadata = Path(f"{prefix}_metadata.bin")
    kind = np.dtype(_dtype(prefix, metadata, dtype))
    described = (metadata,) if metadata.is_file() else ()
    if disk.is_file():
        return _open_disk(prefix, disk, kind, described, with_codes)
    return _open_memory(graph, data, kind, described)


def _dtype(prefix: str, metadata: Path, asked: str | None) -> str:
    """Return the name of the component type."""
    if asked is not None and asked not in DTYPES:
        raise ConfigError(f"dtype: expected one of {', '.join(DTYPES)}, got {asked!r}")
    if not metadata.is_file():
        if asked is None:
            raise ConfigError(
                f"dtype: nothing says what type the components in {prefix} have, {metadata.name} is missing; "
                f"give one of {', '.join(DTYPES)}"
            )
        return asked
    file = MappedFile(metadata)
    file.check_size(_METADATA_BYTES, "4 x 8")
    code = file.number(0, "<u8", "type of the components")
    if code not in _DTYPES:
        raise damaged(metadata, "byte 0: type of the components", f"one of {_DTYPES}", code)
    if asked not in (None, _DTYPES[code]):
        raise ConfigError(f"dtype: {asked}, but {metadata} says {_DTYPES[code]}; leave it out")
    return _DTYPES[code]


def _metric_hint(metadata: tuple[Path, ...]) -> str | None:
    """Return the metric number in the metadata unless it is 0, which is l2 in every client; others differ."""
    for path in metadata:
        code = MappedFile(path).number(8, "<u8", "metric")
        if code:
            return f"{path}: byte 8: metric {code}"
    return None


def _check_metadata(metadata: tuple[Path, ...], n: int, dim: int) -> None:
    for path in metadata:
        file = MappedFile(path)
        found = (file.number(16, "<u8", "vectors"), file.number(24, "<u8", "dimension"))
        if found != (n, dim):
            expected = f"{n:,} x {dim:,} as in the index"
            raise damaged(path, "byte 16: vectors and dimension", expected, f"{found[0]:,} x {found[1]:,}")


def _open_disk(
    prefix: str, path: Path, dtype: np.dtype[Any], metadata: tuple[Path, ...], with_codes: bool
) -> ImportedIndex:
    quantizer = Path(f"{path}_pq_pivots.bin")
    if quantizer.exists():
        raise not_such_a_file(
            quantizer,
            "file",
            "none: whole vectors on disk",
            "one",
            "build the index again with pq_disk_bytes=0",
        )
    nodes = DiskNodes(path, dtype)
    norm_path = Path(f"{path}_max_base_norm.bin")
    is_product = norm_path.is_file()
    scale, dim = (_norm(norm_path, dtype), nodes.dim - 1) if is_product else (1.0, nodes.dim)
    check_shape(path, nodes.n, dim)
    _check_metadata(metadata, nodes.n, dim)
    codes, reason = None, "others were asked for"
    if with_codes:
        codes, reason = open_codes(prefix, nodes.n, nodes.dim, scale)
    entries, entry_files = _entries(path, nodes.n, nodes.dim, scale)
    ids, tag_files = _tags(path, nodes.n)

    def products(first: int, last: int) -> NDArray[Any]:
        """Return the original rows: DiskANN divides them by the largest norm and appends a component."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(nodes.vectors(first, last)[:, :-1] * np.float32(scale))

    read = products if is_product else nodes.vectors
    norms = (norm_path,) if is_product else ()
    kept: tuple[Path, ...] = codes_files(prefix) if codes else ()
    if codes and codes.codebook.rotation is not None:
        kept += (rotation_file(prefix),)
    return ImportedIndex(
        kind="diskann",
        files=(path, *metadata, *norms, *entry_files, *tag_files, *kept),
        metric="ip" if is_product else None,
        vectors=_with_ids(ImportedVectors(str(path), nodes.n, dim, dtype, read), ids),
        lists=nodes,
        entry=nodes.medoid,
        entries=entries,
        codes=codes,
        no_codes=reason,
        metric_hint=_metric_hint(metadata),
    )


def _with_ids(vectors: ImportedVectors, ids: pa.Array | None) -> ImportedVectors:
    return vectors if ids is None else replace(vectors, ids=ids, id_type="uint64")


def _tags(path: Path, n: int) -> tuple[pa.Array | None, tuple[Path, ...]]:
    """Return the user ids of an index from its file of tags, if there is one: PipeANN, and indexes in memory."""
    tags_path = Path(f"{path}.tags")
    if not tags_path.is_file():
        return None, ()
    tags = open_bin(tags_path, "<u4", "tags").ravel()
    if len(tags) != n:
        raise damaged(tags_path, "byte 0: number of tags", f"{n:,}, one a vector", f"{len(tags):,}")
    return pa.array(tags.astype(np.uint64)), (tags_path,)


def _norm(path: Path, dtype: np.dtype[Any]) -> float:
    """Return the largest norm in an inner-product index, by which stored vectors are divided."""
    found = open_bin(path, "<f4", "largest norm")
    norm = float(found.ravel()[0])
    if found.shape != (1, 1) or not 0 < norm < np.inf or dtype != np.float32:
        expected = "one positive number, of float32 vectors"
        raise damaged(path, "largest norm", expected, f"{norm} of {found.size}, {dtype}")
    return norm


def _entries(path: Path, n: int, dim: int, scale: float) -> tuple[ImportedEntries | None, tuple[Path, ...]]:
    """Return the centroids and their medoids, if the index has both."""
    medoids_path, centroids_path = Path(f"{path}_medoids.bin"), Path(f"{path}_centroids.bin")
    if not medoids_path.is_file() or not centroids_path.is_file():
        return None, ()
    medoids = open_bin(medoids_path, "<u4", "medoids").ravel()
    centroids = open_bin(centroids_path, "<f4", "centroids")
    if centroids.shape != (len(medoids), dim):
        got = f"{centroids.shape[0]:,} x {centroids.shape[1]:,}"
        raise damaged(centroids_path, "centroids", f"{len(medoids):,} x {dim:,}, one a medoid", got)
    wrong = np.flatnonzero(medoids >= n)
    if len(wrong):
        at = int(wrong[0])
        raise damaged(
            medoids_path, f"byte {8 + 4 * at}: medoid {at}", f"a vertex below {n:,}", f"{medoids[at]:,}"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        moved = (centroids * np.float32(scale)).astype(np.float32)
    if not np.isfinite(moved).all():
        raise damaged(centroids_path, "centroids", "finite numbers", "NaN, infinity or an overflow")
    return ImportedEntries(moved, medoids.astype(np.uint32)), (medoids_path, centroids_path)


def _open_memory(graph: Path, data: Path, dtype: np.dtype[Any], metadata: tuple[Path, ...]) -> ImportedIndex:
    rows = open_bin(data, dtype, "vectors")
    n, dim = rows.shape
    check_shape(data, n, dim)
    _check_metadata(metadata, n, dim)
    lists = MemoryLists(graph, n)
    ids, tag_files = _tags(graph, n)
    return ImportedIndex(
        kind="diskann-memory",
        files=(graph, data, *metadata, *tag_files),
        metric=None,
        vectors=_with_ids(
            ImportedVectors(str(data), n, dim, dtype, lambda first, last: np.array(rows[first:last])), ids
        ),
        lists=lists,
        entry=lists.entry,
        no_codes="an index in memory has none",
        metric_hint=_metric_hint(metadata),
    )
