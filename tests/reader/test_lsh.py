"""Indexes of kind ``lsh`` in the native reader: against the slow oracle, from Python and from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.oracles.lsh.search import LshOracle
from tests.support.cli import run, run_json

import indexmill
from indexmill.formats.errors import ConfigError, CorruptFile, InputError, OtherKind
from indexmill.reader import _native
from indexmill.reader.index import Index
from indexmill.reader.lsh import LshIndex

N, DIM, K = 400, 12, 5
PARAMETERS: dict[str, Any] = {
    "kind": "lsh",
    "n_functions": 4,
    "n_tables": 6,
    "candidates": 20,
    "hash_bits": 6,
    "block_bytes": 128,
}


def vectors_of(dtype: str) -> np.ndarray:
    rng = np.random.default_rng(3)
    centres = rng.normal(size=(8, DIM)) * 12 + 60
    vectors = centres[rng.integers(0, 8, N)] + rng.normal(size=(N, DIM)) * 6
    return vectors.round().clip(0, 127).astype(dtype) if "int" in dtype else vectors.astype(dtype)


def queries_like(vectors: np.ndarray) -> np.ndarray:
    return np.roll(vectors[:6], 1, axis=0) + np.eye(6, DIM, dtype=vectors.dtype) * 3


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("lsh") / "index"
    table = pa.table({"colour": [f"c{i % 7}" for i in range(N)]})
    names = [f"n{i}" for i in range(N)]
    indexmill.build(vectors_of("float32"), out, ids=names, metadata=table, **PARAMETERS)
    return out


def counted(found: Any, i: int) -> tuple[int, ...]:
    return tuple(int(found.counters[name][i]) for name in ("radii", "table_reads", "candidates", "distances"))


@pytest.mark.parametrize(
    ("dtype", "metric"),
    [
        ("float32", "l2"),
        ("float16", "l2"),
        ("uint8", "l2"),
        ("int8", "l2"),
        ("float32", "cosine"),
        ("float32", "ip"),
    ],
)
def test_native_search_does_what_the_oracle_does(tmp_path: Path, dtype: str, metric: str) -> None:
    vectors = vectors_of(dtype)
    opened = indexmill.build(vectors, tmp_path / "index", metric=metric, **PARAMETERS)
    assert isinstance(opened, LshIndex)
    assert _native.verify(opened.path) == []
    oracle = LshOracle(opened.path)
    queries = queries_like(vectors)
    for k, candidates, probes in ((K, None, None), (1, 3, 5)):
        found = opened.search(queries, k, candidates=candidates, probes=probes)
        for i, query in enumerate(queries):
            want = oracle.search(query, k, candidates or PARAMETERS["candidates"], probes or 0)
            assert counted(found, i) == (want.radii, want.table_reads, want.candidates, want.measured)
            assert found.slots[i].tolist() == want.slots + [-1] * (k - len(want.slots))
            scores = np.array(want.distances)
            if metric == "cosine":
                scores = 1 - scores / 2
            elif metric == "ip":
                scores = vectors[want.slots].astype(np.float64) @ query.astype(np.float64)
            np.testing.assert_allclose(found.scores[i, : len(scores)], scores, rtol=1e-4, atol=1e-3)
            assert np.isnan(found.scores[i, len(scores) :]).all()


def test_every_engine_thread_count_and_place_of_vectors_gives_the_same(index: Path) -> None:
    queries = queries_like(vectors_of("float32"))
    first = LshIndex(index, "pread", "storage").search(queries, K, inflight=1, probes=2)
    assert (first.counters["vector_reads"] > 0).all()
    for engine in ("auto", "pread", "mmap", "memory"):
        for place in ("memory", "storage"):
            opened = LshIndex(index, engine, place, place)
            assert opened.engine in (engine, "io_uring", "pread")
            for threads, inflight in ((1, 8), (2, 3)):
                found = opened.search(queries, K, probes=2, threads=threads, inflight=inflight)
                assert found.ids.tolist() == first.ids.tolist()
                np.testing.assert_array_equal(found.scores, first.scores)
                assert opened.engine == "memory" or (found.counters["table_reads"] > 0).all() == (
                    place == "storage"
                )
                by_place = {"table_reads", "vector_reads", "id_pages_read", "bytes_read"}
                for name in set(first.counters) - by_place - {"latency_us", "io_wait_us"}:
                    np.testing.assert_array_equal(found.counters[name], first.counters[name], err_msg=name)


def test_results_carry_user_ids_and_metadata(index: Path) -> None:
    opened = indexmill.open(index)
    assert isinstance(opened, LshIndex)
    assert (len(opened), opened.dim, opened.metric) == (N, DIM, "l2")
    assert f"L=6, m=4, {len(opened.native.radii)} radii" in repr(opened)
    found = opened.search(vectors_of("float32")[:4], 1)
    assert found.ids[:, 0].tolist() == ["n0", "n1", "n2", "n3"]
    assert found.vector_ids[:, 0].tolist() == [0, 1, 2, 3]
    assert opened.metadata(found.vector_ids[:, 0])["colour"].to_pylist() == ["c0", "c1", "c2", "c3"]


def test_an_index_of_one_kind_is_not_opened_as_another(index: Path, tmp_path: Path) -> None:
    with pytest.raises(OtherKind, match='of kind "graph", got one of kind "lsh"'):
        Index(index)
    graph = indexmill.build(vectors_of("float32"), tmp_path / "graph")
    with pytest.raises(OtherKind, match='of kind "lsh", got one of kind "graph"'):
        LshIndex(graph.path)
    with pytest.raises(ConfigError, match=r"vectors: .* is a graph"):
        indexmill.open(graph.path, vectors="storage")
    with pytest.raises(ConfigError, match=r"tables: .* is a graph"):
        indexmill.open(graph.path, tables="memory")
    with pytest.raises(ConfigError, match='engine: expected "auto"'):
        indexmill.open(graph.path, "memory")


def test_parameters_that_cannot_be_met_are_refused(index: Path) -> None:
    opened, queries = LshIndex(index), vectors_of("float32")[:2]
    for error, words, how in (
        (InputError, "ask for at most 400", {"k": 401}),
        (ConfigError, "candidates: expected at least 1", {"candidates": 0}),
        (ConfigError, "probes: expected at most", {"probes": -1}),
        (ConfigError, "threads: expected 1", {"threads": 0}),
    ):
        with pytest.raises(error, match=words):
            opened.search(queries, **how)
    with pytest.raises(InputError, match="expected 12 dimensions"):
        opened.search(queries[:, :5])


def test_damage_is_named_by_file_and_offset(index: Path, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(index, copy)
    path = copy / "buckets.imx"
    content = bytearray(path.read_bytes())
    for block in range(4096, len(content) - 8192, 128):
        content[block + 20] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptFile, match=r"buckets\.imx: block at offset \d+: expected CRC32C"):
        LshIndex(copy).search(queries_like(vectors_of("float32")), K)
    assert all("buckets.imx" in damage for damage in _native.verify(copy))


def test_the_command_line_searches_verifies_and_inspects(index: Path, tmp_path: Path) -> None:
    vectors = vectors_of("float32")
    np.save(tmp_path / "q.npy", vectors[:6])
    out = tmp_path / "found.parquet"
    run("search", index, "--queries", tmp_path / "q.npy", "-k", 2, "--out", out, "-S", 50, "--probes", 1)
    table = pq.read_table(out)
    first = table.filter(pa.compute.equal(table["rank"], 0))
    assert first["id"].to_pylist() == [f"n{i}" for i in range(6)]
    assert first["colour"].to_pylist() == [f"c{i}" for i in range(6)]
    shown = run_json(
        "search", index, "--queries", tmp_path / "q.npy", "-k", 1, "--engine", "memory", "--json"
    )
    assert [row["id"] for row in shown] == [f"n{i}" for i in range(6)]
    assert run_json("verify", index)["sound"]
    memory = run_json("inspect", index)["memory_bytes"]
    held = LshIndex(index).memory
    assert memory == {name: held[name] for name in memory}
    assert held["bitmap"] > 0
    assert held["buckets"] == 0 < LshIndex(index, "memory").memory["buckets"]


@pytest.mark.parametrize("flags", [("-L", 20), ("--policy", "beam"), ("--radius", 3.0), ("--beam-width", 4)])
def test_search_flags_of_a_graph_are_refused(index: Path, tmp_path: Path, flags: tuple[Any, ...]) -> None:
    np.save(tmp_path / "q.npy", vectors_of("float32")[:2])
    said = run("search", index, "--queries", tmp_path / "q.npy", *flags)
    assert said.exit_code == ConfigError.exit_code
    assert f"{flags[0]}: for an index of kind graph" in said.stderr
