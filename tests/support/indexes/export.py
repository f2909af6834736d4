"""Small indexes, and our own search over an exported graph, for the tests of exports."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.oracles.files.lists import read_list
from tests.oracles.ivf import squares
from tests.support.processes.forks import run_forked

from indexmill.builders.distances import comparable
from indexmill.builders.vamana.greedy import search_rows
from indexmill.formats.exports import lucene
from indexmill.formats.graph.codes import Codebook
from indexmill.formats.graph.index import IndexFiles
from indexmill.formats.ivf.centroids import Centroids
from indexmill.formats.ivf.index import IvfFiles

K = 10
#: Of the index that a file of SVS was made from.
_UUID = re.compile(rb"uuid = '[0-9a-f-]{36}'")


def id_map(folder: Path) -> Any:
    return pq.read_table(folder / "ids.parquet")


def record(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "export.json").read_text())
    return found


def nameless(path: Path) -> bytes:
    """The bytes of a file of an export without the UUIDs that those of SVS have of their index."""
    data = path.read_bytes()
    return data[:8] + data[24:] if path.suffix == ".svs" else _UUID.sub(b"", data)


@contextmanager
def _streamed(folder: Path, *_: object) -> Iterator[IO[bytes]]:
    folder.mkdir(parents=True)
    with open(folder / "stream", "wb") as file:
        yield file


def keep_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of an export to Lucene, which needs Java, keep the stream that its exporter reads."""
    monkeypatch.setattr(lucene, "exporter", _streamed)
    monkeypatch.setattr(lucene, "check_tools", lambda name: None)


def stored_graph(index: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Return vectors, lists, degrees and medoid of an index, by slot."""
    with IndexFiles(index) as files:
        nodes = files.graph.read_all()
        return nodes.vectors, nodes.neighbours, nodes.degrees.astype(np.int32), files.entries.medoid


def our_search(index: Path, queries: np.ndarray, list_size: int, k: int = K) -> np.ndarray:
    """Slots that a greedy search from the medoid returns, (q, k)."""
    return our_search_counted(index, queries, list_size, k)[0]


def our_search_counted(
    index: Path, queries: np.ndarray, list_size: int, k: int = K
) -> tuple[np.ndarray, int]:
    """Slots that a greedy search from the medoid returns, (q, k), and distances that it computes."""
    vectors, neighbours, degrees, medoid = stored_graph(index)
    found = np.full((len(queries), k), 2**32 - 1, np.uint32)
    rows, asked = comparable(vectors), comparable(queries.astype(vectors.dtype))
    computed = search_rows(asked, rows, neighbours, degrees, medoid, list_size, found)
    return found.astype(np.int64), int(computed)


def distances(index: Path, queries: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """Squared distances of `slots`, (q, k), to their queries."""
    vectors = stored_graph(index)[0].astype(np.float64)
    return ((vectors[slots] - queries[:, None].astype(np.float64)) ** 2).sum(axis=2)


def assert_same_except_ties(index: Path, queries: np.ndarray, theirs: np.ndarray, ours: np.ndarray) -> None:
    """Every list holds the same ids in the same order, or others at exactly the same distances."""
    assert (distances(index, queries, theirs) == distances(index, queries, ours)).all()
    tied = theirs != ours
    assert tied.mean() < 0.02
    for mine, other in zip(ours, theirs, strict=True):
        assert len(set(other.tolist())) == len(other)
        assert len(set(mine.tolist()) ^ set(other.tolist())) <= 2


def whole_points(n: int, dim: int = 16, seed: int = 0) -> np.ndarray:
    """Clustered vectors of whole numbers: every distance is exact in float32, and ties are rare."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).integers(200, 800, (12, dim))
    rows = centres[rng.integers(12, size=n)] + rng.normal(size=(n, dim)) * 90
    return np.clip(np.rint(rows), 0, 1000).astype(np.float32)


def permuted_lists(index: Path, out: Path) -> Path:
    """Write a copy of `index` whose neighbour lists belong to other vertices: what a wrong export would be."""
    from tests.oracles.files.rewritten import rewrite_graph

    rng = np.random.default_rng(5)

    def shuffle(neighbours: np.ndarray, degrees: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        order = rng.permutation(len(degrees))
        return neighbours[order], degrees[order]

    return rewrite_graph(index, out, shuffle)


def paste(code: str, python: str | None = None) -> str:
    """Run a snippet as a user would who pastes it, in `python` or this one; return what it printed."""
    if python is None:
        done = run_forked(code)
    else:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_same_answers(
    theirs: tuple[np.ndarray, np.ndarray], ours: tuple[np.ndarray, np.ndarray], tolerance: float
) -> None:
    """Ids and scores, (q, k), are the same, or scores that `tolerance` of the largest does not tell apart.

    Ours have -1 and NaN where there is no result.
    """
    their_ids, their_scores = theirs
    our_ids, our_scores = ours
    assert np.array_equal(their_ids == -1, our_ids == -1)
    there = our_ids != -1
    near = tolerance * max(1.0, float(np.abs(our_scores[there]).max()))
    assert (np.abs(their_scores - our_scores)[there] <= near).all()
    differ = their_ids != our_ids
    assert differ.mean() < 0.02
    for query, place in np.argwhere(differ):
        others = np.flatnonzero(
            their_ids[query] == our_ids[query, place]
        )  # only where it is as near, or cut off
        scores = our_scores[query, others] if len(others) else our_scores[query, -1:]
        assert (np.abs(scores - our_scores[query, place]) <= near).all()


def whole_pivots(index: Path, out: Path) -> Path:
    """Write a copy of an IVF index whose centroids and pivots are rounded to whole numbers."""
    from tests.oracles.files.rewritten import rewrite_centroids

    def rounded(shared: Centroids) -> Centroids:
        assert shared.codebook is not None
        book = Codebook(np.rint(shared.codebook.pivots), shared.codebook.offsets)
        return replace(shared, centroids=np.rint(shared.centroids), codebook=book)

    return rewrite_centroids(index, out, rounded)


def rows_in_files(index: Path, vectors: Any) -> tuple[list[int], list[int]]:
    """Return list and vector id of every vector, read list by list, of copies that in the nearest list."""
    files = IvfFiles(index)
    found = []
    for number in range(len(files.batches)):
        with files.open_batch(number) as batch:
            for place in np.flatnonzero(batch.directory["size"]).tolist():
                ids, _ = read_list(batch, place)
                found += [(int(batch.directory["list"][place]), vector) for vector in ids.tolist()]
    of_vector: dict[int, list[int]] = {}
    for number, vector in found:
        of_vector.setdefault(vector, []).append(number)
    centroids = files.centroids.centroids
    if max(map(len, of_vector.values())) > 1:
        away = squares(vectors.astype(np.float64), centroids.astype(np.float64))
        of_vector = {v: [min(some, key=lambda g: away[v, g])] for v, some in of_vector.items()}
    kept = [(number, vector) for number, vector in found if of_vector[vector] == [number]]
    return [number for number, _ in kept], [vector for _, vector in kept]


#: Code that writes an IVF index of `N` vectors.
LISTS_WRITTEN = """
import numpy as np
import pyarrow as pa
import indexmill
from indexmill.formats.index.ids import write_ids
from indexmill.formats.ivf.batch import batch_name, longest_first, write_batch
from indexmill.formats.ivf.centroids import CENTROIDS_NAME, Centroids, write_centroids
from indexmill.formats.index.manifest import Manifest, seal_files, write_manifest

dim, lists = 200, 300
rng = np.random.default_rng(1)

def pieces(first, sizes):
    for number in longest_first(sizes).tolist():
        ids = first + number + lists * np.arange(sizes[number])
        for at in range(0, len(ids), 5000):
            some = ids[at : at + 5000].astype(np.uint32)
            yield some, rng.integers(256, size=(len(some), dim), dtype=np.uint8)

def write(index, n):
    index.mkdir()
    half = n // 2
    for number in range(2):
        sizes = np.bincount(np.arange(half) % lists, minlength=lists)
        write_batch(index / batch_name(number), number, number * half, sizes, dim, pieces(number * half, sizes))
    centroids = rng.normal(size=(lists, dim)).astype(np.float32)
    write_centroids(index / CENTROIDS_NAME, Centroids(centroids, "uint8", "l2", 0.0, n, 2, "flat"))
    write_ids(index / "ids.imx", np.arange(n, dtype=np.uint32), pa.array(rng.permutation(n)))
    build_id, files = seal_files(index, [p.name for p in index.iterdir()])
    facts = {"n_vectors": n, "dim": dim, "dtype": "uint8", "fingerprint": "0" * 64}
    write_manifest(index, Manifest("ivf", build_id, {}, facts, {}, None, files, ivf={}))

def export(name):
    indexmill.export(path / name, "faiss-ivf", path / f"{name}-faiss")

write(path / "warm", 6_000)
export("warm")
write(path / "ix", N)
"""
