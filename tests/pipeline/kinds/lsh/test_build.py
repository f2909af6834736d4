"""Whole builds of LSH indexes: their contents, the same bit for bit in every build."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.oracles.lsh import tables as oracle
from tests.oracles.lsh.verify import lsh_problems
from tests.support.indexes.builds import data_files
from tests.support.indexes.built import Built
from tests.support.indexes.lsh import build_lsh, clusters
from tests.support.progress import Stages

from indexmill.formats.chunks.reader import Records
from indexmill.formats.chunks.writer import write_chunk, write_runs
from indexmill.formats.errors import CorruptFile
from indexmill.formats.lsh.index import LshFiles
from indexmill.pipeline.kinds.common.ratio import overall_ratio
from indexmill.pipeline.kinds.lsh import shape as lsh_shape
from indexmill.reader import _native
from indexmill.reader.lsh import LshIndex

N, DIM = 3000, 12
SMALL: dict[str, Any] = {"n_tables": 5, "n_functions": 6, "workers": 1}


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    return clusters(N, DIM)


@pytest.fixture(scope="module")
def index(built: Built, vectors: np.ndarray) -> Path:
    return built(build_lsh, vectors, **SMALL)


def test_every_vector_is_once_in_every_table_where_its_hash_says(index: Path, vectors: np.ndarray) -> None:
    with LshFiles(index) as files:
        decoded, shape = oracle.Decoded.of(files), files.shape
        assert shape.n_radii >= 3
        checked = 0
        for radius in range(shape.n_radii):
            for table in range(shape.n_tables):
                places = {}
                for bucket in range(shape.buckets_per_table):
                    entry = (radius * shape.n_tables + table) * shape.buckets_per_table + bucket
                    for slot, fingerprint in decoded.chain(entry):
                        assert slot not in places
                        places[slot] = bucket, fingerprint
                assert sorted(places) == list(range(N))
                for slot in range(0, N, 97):
                    expected = oracle.place(files, radius, table, vectors[slot])
                    assert expected in (None, places[slot])
                    checked += expected is not None
        assert checked > 300
    assert lsh_problems(index) == []


def test_the_manifest_counts_buckets_blocks_and_chains(index: Path) -> None:
    manifest = json.loads((index / "manifest.json").read_text())
    found, p = manifest["lsh"], manifest["parameters"]
    assert manifest["kind"] == "lsh"
    assert not {"graph", "layout", "drift"} & set(manifest)
    assert p["n_radii"] == len(found["radii"])
    with LshFiles(index) as files:
        pointers = files.pairs[0].tables.all_pointers().reshape(p["n_radii"], -1)
        assert found["buckets"] == (pointers != 0).sum(axis=1).tolist()
        assert found["longest_chain"] == (pointers >> np.uint64(48)).max(axis=1).tolist()
        assert sum(found["blocks"]) == found["n_blocks"] == files.pairs[0].buckets.n_blocks
        assert found["n_buckets"] == files.pairs[0].tables.n_buckets
        chains = [files.pairs[0].buckets.chain(int(q)) for q in pointers[0] if q]
        assert sum(map(len, chains)) == N * p["n_tables"]


def test_neither_workers_nor_how_the_work_is_cut_reach_the_bytes(
    index: Path, vectors: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_lsh(tmp_path / "two", vectors, **{**SMALL, "workers": 2})
    assert data_files(tmp_path / "two") == data_files(index)
    # Rows of a task, of a part, tables of a group: everything that cuts the work, cut finely.
    monkeypatch.setattr(lsh_shape, "PRODUCT_ROWS", 512)
    monkeypatch.setattr("indexmill.builders.lsh.hash.PRODUCT_ROWS", 512)
    build_lsh(tmp_path / "blocks", vectors, **SMALL)
    monkeypatch.setattr(lsh_shape.SolvedShape, "spans", lambda shape, memory: [0, 512, 1536, 2560, N])
    monkeypatch.setattr(lsh_shape, "PART_ENTRIES", 2 * N)
    tables = lsh_build_tables(index)
    monkeypatch.setattr(lsh_shape, "MOST_KEYS", 2 * tables.n_radii * tables.buckets_per_table)
    assert len(lsh_shape.groups(tables)) == 3
    build_lsh(tmp_path / "cut", vectors, **{**SMALL, "workers": 2, "memory": 400 << 20})
    assert data_files(tmp_path / "cut") == data_files(tmp_path / "blocks")
    assert lsh_problems(tmp_path / "cut") == []


def lsh_build_tables(index: Path) -> Any:
    with LshFiles(index) as files:
        return files.shape


def test_a_killed_build_goes_on_and_a_kept_one_is_reused(
    index: Path, vectors: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("indexmill.pipeline.kinds.lsh.emit.write_tables", _die)
        with pytest.raises(RuntimeError, match="killed"):
            build_lsh(tmp_path / "index", vectors, **SMALL)
    assert not (tmp_path / "index").exists()
    names = {path.name.rpartition("-")[0] for path in (tmp_path / "index.work").iterdir() if path.is_dir()}
    assert {"ingest", "solve", "chain"} <= names
    assert "hash" not in names
    with monkeypatch.context() as patched:
        patched.setattr(
            "indexmill.pipeline.kinds.lsh.tasks.project", _die
        )  # what is finished is not done again
        build_lsh(tmp_path / "index", vectors, **SMALL)
    assert data_files(tmp_path / "index") == data_files(index)
    assert not (tmp_path / "index.work").exists()


def _die(*_: object, **__: object) -> None:
    raise RuntimeError("killed")


def test_a_damaged_part_is_made_again(index: Path, vectors: np.ndarray, tmp_path: Path) -> None:
    damaged: list[Path] = []

    def then(made: str) -> None:
        if made == "chain" and not damaged:
            damaged.append(min((tmp_path / "work").glob("chain-*/000000.*")))
            raw = bytearray(damaged[0].read_bytes())
            raw[5000] ^= 1
            damaged[0].write_bytes(raw)

    work = str(tmp_path / "work")
    build_lsh(tmp_path / "index", vectors, progress=Stages(then), **{**SMALL, "work": work})
    assert damaged
    assert data_files(tmp_path / "index") == data_files(index)


@pytest.mark.parametrize("dtype", ["float16", "uint8", "int8"])
def test_other_types_are_kept_as_they_are(tmp_path: Path, vectors: np.ndarray, dtype: str) -> None:
    shift = 128 if dtype == "uint8" else 0
    given = np.clip(vectors[:400] * 8 + shift, -120 + shift, 120 + shift).astype(dtype)
    build_lsh(tmp_path / "index", given, **SMALL)
    with LshFiles(tmp_path / "index") as files:
        assert np.array_equal(files.vectors.read(0, 400), given)
    assert lsh_problems(tmp_path / "index") == []


@pytest.mark.parametrize("metric", ["cosine", "ip"])
def test_other_metrics_are_hashed_as_they_are_stored(
    tmp_path: Path, vectors: np.ndarray, metric: str
) -> None:
    manifest = build_lsh(tmp_path / "index", vectors[:800], metric=metric, **SMALL)
    assert lsh_problems(tmp_path / "index") == []
    with LshFiles(tmp_path / "index") as files:
        norms = np.linalg.norm(files.vectors.read(0, 800), axis=1)
        assert np.allclose(norms, 1 if metric == "cosine" else files.vectors.max_norm, rtol=1e-5)
        if metric == "cosine":
            assert manifest["lsh"]["radii"][-1] < 2  # normalised vectors are less than 2 apart
        products = vectors[:800].astype(np.float64) @ vectors[5].astype(np.float64)
        key = products if metric == "ip" else products / np.linalg.norm(vectors[:800], axis=1)
        found = [slot for _, slot in oracle.search(files, vectors[5], 10, candidates=5000)]
        assert len(set(found) & set(np.argsort(-key)[:10].tolist())) >= 8


def test_ids_and_metadata_come_along(tmp_path: Path, vectors: np.ndarray) -> None:
    names = [f"v{i}" for i in range(200)]
    table = pa.table({"score": np.arange(200)})
    build_lsh(tmp_path / "index", vectors[:200], ids=names, metadata=table, **SMALL)
    with LshFiles(tmp_path / "index") as files:
        assert files.user_ids.to_pylist() == names
    assert pq.read_table(tmp_path / "index" / "metadata.parquet").equals(table)


def test_a_search_of_the_index_is_about_as_accurate_as_it_promises(tmp_path: Path) -> None:
    base, queries = clusters(2000, 10, seed=3), clusters(2040, 10, seed=3)[2000:]
    build_lsh(tmp_path / "index", base, success=0.9, gamma=0.6, workers=1)
    truth = [np.sort(np.linalg.norm(base - q, axis=1))[:5].tolist() for q in queries.astype(np.float64)]
    with LshFiles(tmp_path / "index") as files:
        found = [[d for d, _ in oracle.search(files, q, 5)] for q in queries]
        ratio, skipped = oracle.overall_ratio(found, truth)
        assert skipped == 0
        assert 1 <= ratio < 1.1
        # A vector within the first radius of its query shares a bucket there as often as promised, or more.
        radius, shape = float(files.functions.radii[1]), files.shape
        near = [(q, int(np.argmin(np.linalg.norm(base - q, axis=1)))) for q in queries]
        near = [(q, i) for q, i in near if np.linalg.norm(base[i] - q) <= radius]
        met = sum(
            any(
                oracle.place(files, 1, t, q) == oracle.place(files, 1, t, base[i])
                for t in range(shape.n_tables)
            )
            for q, i in near
        )
        assert len(near) >= 20
        assert met / len(near) >= 0.8


def test_a_query_at_distance_0_counts_as_1_if_found_and_is_skipped_else() -> None:
    assert oracle.overall_ratio([[0.0, 3.0], [1.0, 2.0]], [[0.0, 2.0], [0.0, 2.0]]) == (1.25, 1)


def test_vectors_of_zero_are_one_bucket(tmp_path: Path) -> None:
    manifest = build_lsh(tmp_path / "index", np.zeros((250, 4), np.float32), **SMALL)
    assert manifest["lsh"]["radii"] == [1.0]
    assert manifest["lsh"]["max_abs"] == 0
    assert manifest["lsh"]["longest_chain"] == [3]
    assert lsh_problems(tmp_path / "index") == []
    with LshFiles(tmp_path / "index") as files:
        found = oracle.search(files, np.zeros(4, np.float32), 1, candidates=7)
        assert found == [(0.0, 0)]


def test_equal_vectors_and_a_single_one_are_indexes(tmp_path: Path) -> None:
    for name, n in (("one", 1), ("equal", 120)):
        build_lsh(tmp_path / name, np.full((n, 3), 2.5, np.float32), **SMALL)
        assert lsh_problems(tmp_path / name) == []
        with LshFiles(tmp_path / name) as files:
            assert oracle.search(files, np.full(3, 2.5), 1)[0] == (0.0, 0)


def test_runs_are_written_as_sorting_all_of_them_would(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    keys = np.sort(rng.integers(0, 40, 900).astype(np.uint32))
    values, payload = np.arange(900, dtype=np.uint32), rng.integers(0, 9, (900, 1), np.uint32)
    write_chunk(tmp_path / "a", Records(keys, values, payload), [0, 40], batch_bytes=1 << 20)
    write_runs(tmp_path / "b", [Records(keys, values, payload)], run_end_encoded=True)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    with pytest.raises(ValueError, match="not in order"):
        write_runs(tmp_path / "c", [Records(keys[::-1].copy(), values, payload)], run_end_encoded=False)


def test_chains_of_the_widest_radius_hold_most_vectors(index: Path) -> None:
    with LshFiles(index) as files:
        widest = files.pairs[0].tables.all_pointers().reshape(files.shape.n_radii, -1)[-1]
        sizes = Counter(len(files.pairs[0].buckets.chain(int(q))) for q in widest if q)
        assert max(sizes) > files.shape.capacity
        with pytest.raises(CorruptFile, match="the offset of a block"):
            files.pairs[0].buckets.chain(1 << 48 | 4095)


def test_the_certificate_is_what_the_oracle_measures(index: Path, vectors: np.ndarray) -> None:
    certificate = json.loads((index / "manifest.json").read_text())["certificate"]
    assert certificate["k"] == 10
    assert 1 <= certificate["ratio_low"] <= certificate["ratio"] <= certificate["ratio_high"] < 1.5
    rows = np.sort(np.random.default_rng([1, 0xCE57]).choice(N, 200, replace=False))
    found, truth = [], []
    with LshFiles(index) as files:
        for row in rows[:12].tolist():
            exact = np.linalg.norm(vectors.astype(np.float64) - vectors[row], axis=1)
            found.append([d for d, slot in oracle.search(files, vectors[row], 11) if slot != row][:10])
            truth.append(np.sort(np.delete(exact, row))[:10].tolist())
    opened = LshIndex(index)
    native = opened.search(vectors[rows[:12]], 11)
    for i, row in enumerate(rows[:12].tolist()):
        mine = np.sqrt(native.scores[i][native.slots[i] != row][:10])
        assert np.allclose(mine, found[i], rtol=1e-5)
    some = overall_ratio(np.array(found), np.array(truth))
    assert some.mean == pytest.approx(oracle.overall_ratio(found, truth)[0])
    everyone = opened.search(vectors[rows], 11)
    distances = np.sqrt(everyone.scores.astype(np.float64))
    distances = np.array(
        [d[s != row][:10] for d, s, row in zip(distances, everyone.slots, rows, strict=True)]
    )
    exact = np.linalg.norm(vectors[rows, None].astype(np.float64) - vectors[None], axis=2)
    exact[np.arange(200), rows] = np.inf
    assert certificate["ratio"] == pytest.approx(
        overall_ratio(distances, np.sort(exact)[:, :10]).mean, abs=1e-5
    )


def test_the_overall_ratio_says_what_it_left_out() -> None:
    nan = np.nan
    found = np.array([[0.0, 3.0], [1.0, 2.0], [2.0, nan], [nan, nan]])
    truth = np.array([[0.0, 2.0], [0.0, 2.0], [1.0, 5.0], [1.0, 1.0]])
    ratio = overall_ratio(found, truth)
    assert (ratio.mean, ratio.skipped, ratio.short) == ((1.25 + 2.0) / 2, 1, 2)
    assert ratio.low >= 1
    assert np.isnan(overall_ratio(found[3:], truth[3:]).mean)


def rounding_copies(n: int, dim: int, metric: str) -> np.ndarray:
    """Vectors of which one half equals the other up to rounding."""
    vectors = clusters(n // 2, dim) + 10
    copies = (vectors.astype(np.float64) * (1 + 1e-7)).astype(np.float32)
    copies = copies / np.float32(3) * np.float32(3) if metric == "l2" else copies / np.float32(3)
    return np.concatenate([vectors, copies.astype(np.float32)])


@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_copies_up_to_rounding_do_not_set_the_first_radius(tmp_path: Path, metric: str) -> None:
    vectors = rounding_copies(400, 24, metric)
    manifest = build_lsh(tmp_path / "x", vectors, n_tables=2, n_functions=3, metric=metric)
    assert manifest["lsh"]["radii"][0] > (1e-3 if metric == "cosine" else 0.1)
    assert _native.verify(str(tmp_path / "x")) == []


def test_a_hash_that_rounding_decides_is_no_damage(tmp_path: Path) -> None:
    vectors = rounding_copies(400, 24, "l2")
    manifest = build_lsh(tmp_path / "x", vectors, n_tables=2, n_functions=3, n_radii=2, first_radius=1e-4)
    assert manifest["lsh"]["radii"] == [1e-4, 2e-4]
    assert _native.verify(str(tmp_path / "x")) == []
