"""The benchmark of queries that are unlike the vectors: its sets, and its tables."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from indexmill.jobs.bench.common import record
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.modalities import DIM, Modalities
from indexmill.jobs.bench.queries_apart import sets
from indexmill.jobs.bench.queries_apart.__main__ import BENCHMARK, modalities, modalities_ip, texts
from indexmill.jobs.bench.queries_apart.reads import ASKED, ONE_IN

WORDS = [f"word{i}" for i in range(60)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Texts whose vector is the mean of their words' vectors, as text40k has them."""
    random = np.random.default_rng(2)
    words = random.standard_normal((len(WORDS), 16)).astype(np.float32)
    for name, n in (("base", 1700), ("query", 60)):
        drawn = [random.choice(len(WORDS), 5, replace=False) for _ in range(n)]
        vectors = np.array([words[some].mean(axis=0) for some in drawn])
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        column = pa.FixedSizeListArray.from_arrays(vectors.ravel(), 16)
        table = {"text": [" ".join(WORDS[i] for i in some) for some in drawn], "embedding": column}
        pq.write_table(pa.table(table), tmp_path / f"{name}.parquet")
    return tmp_path


def nearest(base: Any, queries: Any) -> float:
    return float(np.median((queries @ base.T).max(axis=1)))


def test_modalities_lie_apart_and_share_their_factors() -> None:
    world = Modalities(3)
    vectors, more = (world.draw("vectors", 3000, stream) for stream in (0, 1))
    queries = world.draw("queries", 300, 0)
    assert vectors.shape == (3000, DIM)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    assert nearest(vectors, queries) < 0.6 * nearest(vectors, more[:300])
    cosines = queries @ vectors.T
    assert (cosines.max(axis=1) > cosines.mean(axis=1) + 0.1).all()


def test_equal_seeds_draw_equal_points_and_streams_others() -> None:
    first, same, other = (Modalities(seed).draw("queries", 50, 0) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, same)
    assert not (other == first).all(axis=1).any()
    assert not (Modalities(1).draw("queries", 50, 1) == first).all(axis=1).any()


def test_texts_are_pooled_otherwise(folder: Path) -> None:
    made = sets.pooled_texts(folder, 500)
    assert made.base.shape == (500, 16)
    assert made.sample.shape == (1200, 16)
    assert made.apart.shape == made.alike.shape == (60, 16)
    assert nearest(made.base, made.apart) < nearest(made.base, made.alike)


def test_vectors_for_inner_product_differ_in_length_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sets, "QUERIES", 40)
    run = Run("queries_apart-2200", {}, tmp_path, 2200)
    plain, long = modalities(run), modalities_ip(run)
    lengths = np.linalg.norm(long.base, axis=1, keepdims=True)
    np.testing.assert_allclose(long.base / lengths, plain.base, rtol=1e-5, atol=1e-7)
    assert 0.25 < np.log(lengths).std() < 0.35
    for queries in ("sample", "apart", "alike"):
        np.testing.assert_array_equal(getattr(long, queries), getattr(plain, queries))
    assert BENCHMARK.run(run, ["modalities-ip"]) == []
    part = run.earlier("modalities-ip")
    assert (part["metric"], part["dim"]) == ("ip", DIM)
    products = long.apart @ long.base.T
    best = products.argmax(axis=1)
    assert part["nearest"]["apart"] == pytest.approx(
        np.median(products.max(axis=1) / lengths[best, 0]), rel=1e-4
    )
    assert all(row["searches"]["apart"][-1]["recall"] > 0.9 for row in (part["plain"], *part["rows"]))
    assert "### Page reads with a sample: modalities-ip" in BENCHMARK.render(
        record.load(run.results), "record.json"
    )


def test_tables_show_what_was_measured(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sets, "QUERIES", 40)
    run = Run("queries_apart-500", {}, tmp_path / "out", 500, Namespace(texts=folder))
    run.out.mkdir()
    assert texts(run).base.shape == (500, 16)
    assert BENCHMARK.run(run, ["texts"]) == []
    part = run.earlier("texts")
    assert [row["one_in"] for row in part["rows"]] == list(ONE_IN)
    assert part["rows"][0]["sample"]["queries"] > part["rows"][1]["sample"]["queries"] >= 100
    assert set(part["ratio"]) == set(ASKED)
    shown = BENCHMARK.render(record.load(run.results), "record.json")
    assert "### Page reads with a sample: texts" in shown
