"""Verification of a whole index directory, of any kind, to the last byte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from indexmill.formats.errors import FormatError
from indexmill.formats.graph import codes, entries, file, navigation
from indexmill.formats.graph.file import GraphFile
from indexmill.formats.graph.index import IndexFiles
from indexmill.formats.graph.navigation import NAVIGATION_NAME
from indexmill.formats.index import ids, vectors
from indexmill.formats.index.manifest import (
    Manifest,
    build_id,
    check_size,
    file_sha256,
    parse_manifest,
)
from indexmill.formats.index.names import METADATA_NAME
from indexmill.formats.index.vectors import VECTORS_NAME
from indexmill.formats.ivf import batch, centroids
from indexmill.formats.ivf.centroids import CENTROIDS_NAME
from indexmill.formats.ivf.index import IvfFiles, ivf_problems, vectors_problems
from indexmill.formats.lsh import buckets, functions, tables
from indexmill.formats.lsh.index import LshFiles
from indexmill.formats.pagefile.frame import corrupt
from indexmill.formats.pagefile.reader import PageFile, content_digest

#: Kind of each page file of an index, by name.
KINDS = {
    "codes.imx": codes.KIND,
    "entries.imx": entries.KIND,
    "graph.imx": file.KIND,
    "ids.imx": ids.KIND,
    NAVIGATION_NAME: navigation.KIND,
    VECTORS_NAME: vectors.KIND,
    "functions.imx": functions.KIND,
    "tables.imx": tables.KIND,
    "buckets.imx": buckets.KIND,
    CENTROIDS_NAME: centroids.KIND,
}


def page_file_kind(name: str) -> str | None:
    """Return the kind of an index's page file by its name; None for files that are not page files."""
    return batch.KIND if batch.batch_number(name) is not None else KINDS.get(name)


def verify_index(directory: str | Path) -> list[str]:
    """Read every byte of an index, and return one message for each problem.

    Three passes: the SHA-256 of each file and the build id against the manifest, the CRC of each page, and the meaning
    of all parts. run.json is ignored. Memory: that of the opened index, such as `IndexFiles`.
    """
    directory = Path(directory)
    try:
        manifest = parse_manifest(directory)
    except FormatError as error:
        return [str(error)]
    problems = [*_digest_problems(directory, manifest), *_page_problems(directory, manifest)]
    check = {"graph": _check_graph, "lsh": _check_lsh, "ivf": _check_ivf}[manifest.kind]
    try:
        n = check(directory, problems)
        if any(entry.name == METADATA_NAME for entry in manifest.files):
            _check_metadata(directory / METADATA_NAME, n)
    except (FormatError, OSError) as error:
        problems.append(str(error))
    return list(dict.fromkeys(problems))  # several passes may find the same damage


def _check_graph(directory: Path, problems: list[str]) -> int:
    with IndexFiles(directory) as index:
        problems += _repeated_neighbours(index.graph)
        return index.graph.n_vertices


def _check_lsh(directory: Path, problems: list[str]) -> int:
    with LshFiles(directory) as index:  # chains are left to the reader's check
        return index.shape.n_vectors


def _check_ivf(directory: Path, problems: list[str]) -> int:
    index = IvfFiles(directory)
    problems += ivf_problems(index)
    problems += vectors_problems(index)
    index.user_ids()
    return index.centroids.n_vectors


def _digest_problems(directory: Path, manifest: Manifest) -> Iterator[str]:
    digests = {}
    for entry in manifest.files:
        path = directory / entry.name
        try:
            check_size(directory, entry)
            digest = file_sha256(path)
            digests[entry.name] = content_digest(path)
        except (FormatError, OSError) as error:
            yield str(error)
            continue
        if digest != entry.sha256:
            yield str(corrupt(path, "SHA-256", entry.sha256, digest))
    if len(digests) == len(manifest.files) and build_id(digests) != manifest.build_id:
        yield str(corrupt(directory, "build id of the files", manifest.build_id, build_id(digests)))


def _page_problems(directory: Path, manifest: Manifest) -> Iterator[str]:
    for name in (entry.name for entry in manifest.files):
        kind = page_file_kind(name)
        if kind is None:
            continue
        try:
            with PageFile(directory / name, kind) as page_file:
                page_file.verify()
        except (FormatError, OSError) as error:
            yield str(error)


def _repeated_neighbours(graph: GraphFile) -> Iterator[str]:
    first = 0
    for block in graph.blocks():
        places = np.arange(block.neighbours.shape[1])
        inside = places < block.degrees[:, None]
        ordered = np.sort(np.where(inside, block.neighbours, -1 - places), axis=1)  # all junk differs
        for row in np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1)):
            slot = first + int(row)
            yield str(corrupt(graph.path, f"slot {slot}", "different neighbours", "a neighbour twice"))
        first += len(block)


def _check_metadata(path: Path, n_vertices: int) -> None:
    try:
        rows = pq.read_metadata(path).num_rows
    except (pa.ArrowException, ValueError) as error:  # a damaged name is a UnicodeDecodeError
        raise corrupt(path, "Parquet footer", "a readable one", error) from error
    if rows != n_vertices:
        raise corrupt(path, "rows", n_vertices, rows)
