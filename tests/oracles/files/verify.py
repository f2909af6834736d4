"""Verification of a whole index directory, of any kind, to the last byte, except the chains of an LSH index."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.oracles.files.lists import read_list
from tests.oracles.files.on_page import read_on_page

from indexmill.formats.errors import FormatError
from indexmill.formats.graph.file import GraphFile
from indexmill.formats.graph.index import IndexFiles
from indexmill.formats.index.deleted import read_deleted
from indexmill.formats.index.manifest import Manifest, build_id, check_size, file_sha256, parse_manifest
from indexmill.formats.index.names import METADATA_NAME
from indexmill.formats.ivf.batch import BatchFile
from indexmill.formats.ivf.centroids import CENTROIDS_NAME
from indexmill.formats.ivf.index import IvfFiles, vectors_problems
from indexmill.formats.ivf.rabitq import RabitQ, heads_of, levels_of, pack_rows
from indexmill.formats.kinds import page_file_kind
from indexmill.formats.lsh.index import LshFiles
from indexmill.formats.pagefile.frame import corrupt
from indexmill.formats.pagefile.reader import PageFile, content_digest


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
        read_deleted(directory, manifest, n)
        if any(entry.name == METADATA_NAME for entry in manifest.files):
            _check_metadata(directory / METADATA_NAME, n)
    except (FormatError, OSError) as error:
        problems.append(str(error))
    return list(dict.fromkeys(problems))  # several passes may find the same damage


def _check_graph(directory: Path, problems: list[str]) -> int:
    with IndexFiles(directory) as index:
        problems += _repeated_neighbours(index.graph)
        problems += _codes_problems(index)
        return index.graph.n_vertices


def _check_lsh(directory: Path, problems: list[str]) -> int:
    with LshFiles(directory) as index:  # `lsh_verify` follows chains
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
            digests[entry.name] = content_digest(path) if entry.build_id is None else digest
        except (FormatError, OSError) as error:
            yield str(error)
            continue
        if digest != entry.sha256:
            yield str(corrupt(path, "SHA-256", entry.sha256, digest))
    built = {entry.name: digests[entry.name] for entry in manifest.built_files if entry.name in digests}
    if len(built) == len(manifest.built_files) and build_id(built) != manifest.build_id:
        yield str(corrupt(directory, "build id of the files", manifest.build_id, build_id(built)))


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


def ivf_problems(index: IvfFiles) -> Iterator[str]:
    """Read every list of an IVF index, and yield a message for each problem in any batch."""
    expected: int | None = 0
    codebook = index.centroids.codebook
    n_centres = 256 if codebook is None else len(codebook.pivots)
    rabitq = index.centroids.rabitq
    for number in range(len(index.batches)):
        after: int | None = None
        try:
            with index.open_batch(number) as batch:
                after = batch.first_vector + batch.n_vectors
                if expected not in (None, batch.first_vector):
                    raise corrupt(batch.path, "field 'first_vector'", expected, batch.first_vector)
                yield from _batch_problems(batch, n_centres, index.centroids.copies, rabitq)
        except (FormatError, OSError) as error:
            yield str(error)
        expected = after  # None: the start of the next batch is unknown
    if expected not in (None, index.centroids.n_vectors):
        what = corrupt(index.path / CENTROIDS_NAME, "field 'n_vectors'", expected, index.centroids.n_vectors)
        yield str(what)


def _batch_problems(batch: BatchFile, n_centres: int, copies: int, rabitq: RabitQ | None) -> Iterator[str]:
    seen = np.zeros(batch.n_vectors, np.int64)
    for place in np.flatnonzero(batch.directory["size"]).tolist():
        ids, rows = read_list(batch, place)
        seen[ids - batch.first_vector] += 1
        if int(rows.max()) >= n_centres:
            yield str(corrupt(batch.path, f"codes of list {place}", f"below {n_centres}", rows.max()))
        if rabitq is not None:
            heads, levels = heads_of(rows), levels_of(rows, rabitq.dim, rabitq.bits)
            if not (np.isfinite(heads).all() and (heads >= 0).all()):
                yield str(corrupt(batch.path, f"rows of list {place}", "finite floats", heads))
            if not np.array_equal(pack_rows(heads, levels, rabitq.bits), rows):
                yield str(corrupt(batch.path, f"rows of list {place}", "no bits behind the last", "some"))
    wrong = np.flatnonzero((seen < 1) | (seen > copies))
    if len(wrong):
        vector = batch.first_vector + int(wrong[0])
        yield str(corrupt(batch.path, f"vector {vector}", f"in 1..{copies} lists", int(seen[wrong[0]])))


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


def _codes_problems(index: IndexFiles) -> Iterator[str]:
    nodes = read_on_page(index.graph.path)
    if nodes is None:
        return
    yield from nodes.problems
    for slot, (neighbours, codes) in enumerate(zip(nodes.neighbours, nodes.codes, strict=True)):
        for neighbour, code in zip(neighbours, codes, strict=True):
            if code != index.codes[neighbour].tobytes():
                where = f"slot {slot}: code of neighbour {neighbour}"
                yield str(corrupt(index.graph.path, where, index.codes[neighbour].tolist(), list(code)))


def _check_metadata(path: Path, n_vertices: int) -> None:
    try:
        rows = pq.read_metadata(path).num_rows
    except (pa.ArrowException, ValueError) as error:  # a damaged name is a UnicodeDecodeError
        raise corrupt(path, "Parquet footer", "a readable one", error) from error
    if rows != n_vertices:
        raise corrupt(path, "rows", n_vertices, rows)
