"""The benchmark of filters: its filters, the searches that it compares, and its tables."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import indexmill
from indexmill.jobs.bench.common import intervals, record
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import Dataset, K, read_bin, write_bin, write_truth
from indexmill.jobs.bench.embed import formats
from indexmill.jobs.bench.embed.sets import SENTENCES
from indexmill.jobs.bench.filters import reads
from indexmill.jobs.bench.filters.__main__ import BENCHMARK
from indexmill.jobs.bench.filters.columns import KINDS, ONE_IN, Filters, make_filters
from indexmill.jobs.bench.filters.searches import Searches
from indexmill.jobs.bench.programs import ours
from indexmill.reader.index import Index

N, N_QUERIES, DIM = 2000, 40, 12


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("set")
    random = np.random.default_rng(6)
    for name, n in (("base", N), ("query", N_QUERIES)):
        rows = random.standard_normal((n, DIM))
        write_bin(
            folder / f"{name}.fbin", (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
        )
    write_truth(Dataset(folder))
    return Dataset(folder)


@pytest.fixture(scope="module")
def index(data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("built") / "index"
    indexmill.build(data.base, path, R=16, L=32, pq_bytes=6)
    return path


def arrays(data: Dataset) -> tuple[Any, Any]:
    return read_bin(data.base), np.asarray(read_bin(data.query))


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_allows_about_the_share_that_it_is_asked_for(data: Dataset, kind: str) -> None:
    base, queries = arrays(data)
    for one_in in ONE_IN:
        filters = make_filters(kind, one_in, base, queries)
        assert 0.5 < filters.allowed * one_in < 2
        i = int(np.flatnonzero(np.isfinite(filters.farthest))[3])
        distances = ((base[filters.labels == filters.asked[i]].astype(np.float64) - queries[i]) ** 2).sum(
            axis=1
        )
        assert filters.farthest[i] == pytest.approx(np.sort(distances)[K - 1], rel=1e-5)
    near, far = (make_filters(kind, 10, base, queries) for kind in ("near", "far"))
    assert (near.asked != far.asked).any()
    assert sorted(near.asked) == sorted(far.asked)


def test_searches_count_allowed_neighbours_alone(data: Dataset, index: Path) -> None:
    base, queries = arrays(data)
    searches = Searches(Index(index), data, make_filters("ids", 10, base, queries))
    whole = searches.filtered(N, "report")
    assert (whole["recall"], whole["scanned"]) == (1.0, 1.0)
    assert searches.longer(N, "report")["recall"] == 1.0
    assert searches.longer(10, "report")["pages_read"] > searches.filtered(10, "report")["pages_read"]
    rows = np.flatnonzero(searches.filters.labels == 0)
    nothing = Filters(searches.filters.labels, np.full(N_QUERIES, 1), np.zeros(N_QUERIES))
    assert Searches(Index(index), data, nothing).filtered(20, "tune")["recall"] == 0
    assert len(rows) == N // 10


def test_all_parts_are_measured_and_shown(
    data: Dataset, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_page = tmp_path / "with-codes"
    indexmill.build(data.base, on_page, R=8, L=32, pq_bytes=6, codes_on_page=True)

    def build(space: Any, base: Path, out: Path, *others: Any) -> None:
        indexmill.build(base, out, R=16, L=32, pq_bytes=6)

    defaults = [f"{name}/indexmill-default" for name in reads.SETS[1:]]
    for made in ("sift1m/indexmill-star", *defaults, f"{SENTENCES}/indexmill-on-page"):
        (tmp_path / made).parent.mkdir(exist_ok=True)
        (tmp_path / made).symlink_to(on_page if made.endswith("on-page") else index)
    monkeypatch.setattr(intervals, "DRAWS", 8)
    made = cache(lambda kind, one_in: make_filters(kind, one_in, *arrays(data)))  # all sets are one
    monkeypatch.setattr(reads, "make_filters", lambda kind, one_in, *_: made(kind, one_in))
    monkeypatch.setattr(reads, "LONG_SIZES", (10, 20, 40, 80, 160, 320, 640))
    monkeypatch.setattr(reads, "DOUBLINGS", 3)
    monkeypatch.setattr(ours, "ensure", lambda space, order: order)
    monkeypatch.setattr(ours, "build", build)
    monkeypatch.setattr(formats, "ensure", lambda case, *name, **flags: None)
    monkeypatch.setattr(
        formats, "build",
        lambda case, name, base, codes_on_page, **labels: indexmill.build(
            base, case.space.index(name), R=16, L=32, pq_bytes=6,
            **({**labels, "metadata_columns": [labels["metadata_columns"]], "codes_on_page": codes_on_page}
               if labels else {}),
        ),
    )  # fmt: skip
    monkeypatch.setattr(reads, "WITHIN", (("drawn", 4), ("near", 4)))
    monkeypatch.setattr(reads, "ALONE", (("ids", 100), ("ids", 10), ("near", 2), ("far", 2)))
    run = Run("filters", dict.fromkeys(reads.SETS, data), tmp_path)
    assert BENCHMARK.run(run) == []
    found = record.load(run.results)
    alone = found["parts"]["alone"]["indexes"]
    assert [(row["kind"], row["one_in"]) for row in alone] == list(reads.ALONE)
    assert alone[-2]["recall"] >= 0.95
    assert [row["kind"] for row in found["parts"]["alone-on-page"]["indexes"]] == [
        "ids",
        "ids",
        "near",
        "far",
    ]
    on_page_rows = found["parts"]["on-page"]["rows"]
    assert [(row["kind"], row["one_in"]) for row in on_page_rows] == [
        (kind, n) for kind in KINDS for n in ONE_IN
    ]
    assert max(row["highest_recall"] for row in on_page_rows) > 0.95
    within = found["parts"]["labels"]
    assert [(row["kind"], row["one_in"]) for row in within["rows"]] == list(reads.WITHIN)
    assert within["indexes"]["on-page-labels-drawn-4"]["labels"]["edges"] > 0
    text = BENCHMARK.render(found, "r.json")
    assert "Searches without a filter:" in text
    assert text.count("| sift1m | ids |") == 3
    guide = BENCHMARK.render(found, "r.json", "guide")
    assert "| text40k | drawn at random |" in guide
    assert "| embed768, codes on pages | the k-means cell of the query | - | - | " in guide


def test_an_index_of_a_few_vectors_is_searched_for_all_of_them(
    data: Dataset, index: Path, tmp_path: Path
) -> None:
    base, _ = arrays(data)
    labels = (np.arange(N) >= 4).astype(np.int64)
    filters = Filters(labels, np.zeros(N_QUERIES, np.int64), np.full(N_QUERIES, np.inf))
    indexmill.build(np.asarray(base[:4]), tmp_path / "few", R=4, pq_bytes=6)
    found = Searches(Index(index), data, filters).alone({0: Index(tmp_path / "few")}, 20, "report")
    assert found["recall"] == 1  # where fewer than K are allowed, missing results are no misses
