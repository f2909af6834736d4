"""Graphs of several levels in faiss's files: the bytes are those that faiss writes of the same graph."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest

from indexmill.formats.exports.hnsw import HnswShape, Level, write_hnsw
from indexmill.formats.exports.opensearch import KnnFile, write_knn_file

N, DIM, M = 3000, 16, 4
IDS = np.arange(N, dtype=np.int32) * 3 + 7
COMPONENTS = {"float32": None, "float16": faiss.ScalarQuantizer.QT_fp16,
              "int8": faiss.ScalarQuantizer.QT_8bit_direct_signed}  # fmt: skip
METRICS = {"l2": faiss.METRIC_L2, "ip": faiss.METRIC_INNER_PRODUCT}


def rows(component: str) -> np.ndarray:
    values = np.random.default_rng(4).integers(-100, 100, (N, DIM))
    return values.astype(component)


def by_faiss(component: str, metric: str) -> Any:
    """An HNSW that faiss built, in an IndexIDMap."""
    kind = COMPONENTS[component]
    if kind is None:
        graph = faiss.IndexHNSWFlat(DIM, M, METRICS[metric])
    else:
        graph = faiss.IndexHNSWSQ(DIM, kind, M, METRICS[metric])
    whole = faiss.IndexIDMap(graph)
    whole.train(rows(component).astype(np.float32))
    whole.add_with_ids(rows(component).astype(np.float32), IDS.astype(np.int64))
    return whole


def parts_of(hnsw: Any) -> tuple[HnswShape, list[Any], list[Level]]:
    """The graph of faiss's index as blocks of level 0 and as upper levels."""
    tops = faiss.vector_to_array(hnsw.levels)
    starts = faiss.vector_to_array(hnsw.offsets).astype(np.int64)
    places = faiss.vector_to_array(hnsw.neighbors).view(np.uint32)

    def lists(vertices: np.ndarray, level: int) -> tuple[np.ndarray, np.ndarray]:
        begin, width = (0, 2 * M) if level == 0 else (2 * M + (level - 1) * M, M)
        found = places[starts[vertices][:, None] + begin + np.arange(width)]
        return found, (found != 0xFFFFFFFF).sum(axis=1).astype(np.int32)

    levels = []
    for level in range(1, hnsw.max_level + 1):
        vertices = np.flatnonzero(tops > level).astype(np.uint32)
        levels.append(Level(vertices, *lists(vertices, level)))
    blocks = [lists(np.arange(first, min(first + 700, N)), 0) for first in range(0, N, 700)]
    shape = HnswShape(N, 2 * M, M, hnsw.entry_point, hnsw.efConstruction, hnsw.efSearch)
    return shape, blocks, levels


def written(component: str, metric: str, has_vectors: bool, hnsw: Any) -> bytes:
    shape, blocks, levels = parts_of(hnsw)
    file, told = io.BytesIO(), []
    what = KnnFile(DIM, metric, component, has_vectors)
    vectors = rows(component).astype(np.float32)
    write_knn_file(
        what, shape, (blocks, levels), np.array_split(vectors, 3), np.array_split(IDS, 4), file, told.append
    )
    assert sum(told) == (2 if has_vectors else 1) * N
    return file.getvalue()


def same_but_for_shares(ours: bytes, theirs: bytes, shares: int) -> bool:
    """Whether all bytes are equal but those of the shares of levels, which faiss rounds to float32 halfway."""
    begin = 4 + 4 + 2 * (4 + 8 * 3 + 1 + 4) + 8  # names, headers, number of shares
    end = begin + 8 * shares
    near = np.allclose(np.frombuffer(ours[begin:end]), np.frombuffer(theirs[begin:end]), rtol=1e-4)
    return ours[:begin] == theirs[:begin] and ours[end:] == theirs[end:] and near


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("component", COMPONENTS)
@pytest.mark.parametrize("has_vectors", [True, False])
def test_the_file_is_the_one_that_faiss_writes(
    component: str, metric: str, has_vectors: bool, tmp_path: Path
) -> None:
    whole = by_faiss(component, metric)
    hnsw = faiss.downcast_index(whole.index).hnsw
    assert hnsw.max_level >= 3
    if not has_vectors:
        faiss.downcast_index(whole.index).storage = None
        faiss.downcast_index(whole.index).own_fields = False
    path = tmp_path / "theirs.faiss"
    faiss.write_index(whole, str(path))
    ours = written(component, metric, has_vectors, hnsw)
    theirs = path.read_bytes()
    assert len(ours) == len(theirs)
    assert same_but_for_shares(ours, theirs, hnsw.assign_probas.size())
    assert not same_but_for_shares(ours[:-1] + b"x", theirs, hnsw.assign_probas.size())


def test_faiss_adds_vectors_to_a_file_of_several_levels(tmp_path: Path) -> None:
    whole = by_faiss("float32", "l2")
    path = tmp_path / "ours.faiss"
    path.write_bytes(written("float32", "l2", True, faiss.downcast_index(whole.index).hnsw))
    opened = faiss.read_index(str(path))
    more = np.random.default_rng(5).random((500, DIM), np.float32) + 500
    opened.add_with_ids(more, np.arange(500) + 10**6)
    assert (opened.search(more, 1)[1][:, 0] == np.arange(500) + 10**6).mean() > 0.95


def test_lists_shorter_than_their_places_leave_places_free() -> None:
    random = np.random.default_rng(7)
    lists, degrees = random.integers(0, N, (N, 5), np.uint32), random.integers(0, 6, N).astype(np.int32)
    vertices = np.arange(1, N, 40, dtype=np.uint32)
    shape = HnswShape(N, 2 * M, M, 1, 40, 16)
    files = []
    for width, upper in ((5, 2), (2 * M, M)):
        wide = np.pad(lists, ((0, 0), (0, width - 5)), constant_values=3)
        short = np.minimum(degrees[vertices], 2)
        file = io.BytesIO()
        level = Level(vertices, wide[vertices, :upper], short)
        write_hnsw(shape, [(wide[:1], degrees[:1]), (wide[1:], degrees[1:])], [level], file, lambda n: None)
        files.append(file.getvalue())
    assert files[0] == files[1]
