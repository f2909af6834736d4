"""Filters, radii, caches and determinism on the command line."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.support.cli import QUERIES, Data, K, N, build, make_data, run, run_json

import indexmill
from indexmill.formats.index import metadata
from indexmill.formats.sources.truth import Truth, write_truth


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    return make_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def index(data: Data) -> Path:
    return build(data, data.folder / "index", "--metadata-columns", "colour")


@pytest.fixture(scope="module")
def odd(data: Data) -> Path:
    """Vector ids of every second vector."""
    np.save(data.folder / "odd.npy", np.arange(1, N, 2))
    return data.folder / "odd.npy"


def test_search_returns_allowed_vectors_only(data: Data, index: Path, odd: Path, tmp_path: Path) -> None:
    rows = run_json("search", index, "--queries", data.queries, "-k", 5, "-L", N, "--allow", odd)
    assert len(rows) == 5 * QUERIES
    assert all(row["vector_id"] % 2 == 1 for row in rows)
    np.save(tmp_path / "mask.npy", np.arange(N) % 2 == 1)
    assert rows == run_json(
        "search", index, "--queries", data.queries, "-k", 5, "-L", N, "--allow", tmp_path / "mask.npy"
    )
    np.save(tmp_path / "none.npy", np.zeros(N, bool))
    assert run_json("search", index, "--queries", data.queries, "--allow", tmp_path / "none.npy") == []


def test_search_returns_vectors_whose_metadata_satisfy_a_condition(
    data: Data, index: Path, odd: Path, tmp_path: Path
) -> None:
    opened = indexmill.open(index)
    colours = np.array(opened.metadata(np.arange(N))["colour"].to_pylist(), object)
    np.testing.assert_array_equal(opened.where("colour = 'red'"), colours == "red")
    options = ["search", index, "--queries", data.queries, "-k", 5, "-L", N, "--where", "colour in ('red')"]
    rows = run_json(*options)
    assert len(rows) == 5 * QUERIES
    assert {row["colour"] for row in rows} == {"red"}
    both = run_json(*options, "--allow", odd)
    assert all(row["colour"] == "red" and row["vector_id"] % 2 for row in both)
    assert run_json(*options[:-1], "colour = 'none'") == []
    (row,) = run_json("score", *options[1:4], "-L", N, "--base", data.base, "--where", "colour = 'red'")
    assert row["n_allowed"] == (colours == "red").sum()
    refused = run(*options[:-1], "color = 'red'")
    assert refused.exit_code == 3
    assert "--where: color = 'red': no metadata column 'color'; there are colour" in refused.stderr
    refused = run("search", index, "--queries", tmp_path / "none.npy", "--where", "color = 'red'")
    assert "--where: color = 'red'" in refused.stderr  # before queries are read
    plain = build(data, tmp_path / "plain")
    refused = run("search", plain, "--queries", data.queries, "--where", "colour = 'red'")
    assert refused.exit_code == 3
    assert "--where: " in refused.stderr
    assert "no metadata columns; build it with --metadata-columns" in refused.stderr


def test_threads_read_conditions_and_metadata_of_one_index(index: Path) -> None:
    opened = indexmill.open(index)
    expected = opened.where("colour = 'red'")
    with ThreadPoolExecutor(4) as pool:
        masks = list(pool.map(lambda _: opened.where("colour = 'red'"), range(24)))
        tables = list(pool.map(lambda _: indexmill.open(index).metadata([0, 3]), range(4)))
    assert all(np.array_equal(mask, expected) for mask in masks)
    assert all(table["colour"].to_pylist() == ["red", "red"] for table in tables)


def test_search_by_radius_returns_all_within(data: Data, index: Path, odd: Path, tmp_path: Path) -> None:
    distances = ((data.vectors[None] - data.query_vectors[:, None]) ** 2).sum(axis=2)
    radius = float(np.median(distances[:, :50]))
    out = tmp_path / "near.parquet"
    options = ["search", index, "--queries", data.queries, "-L", N, "--radius", radius]
    said = run_json(*options, "--out", out)
    table = pq.read_table(out)
    near = [set(np.flatnonzero(row <= radius).tolist()) for row in distances]
    assert said == {"out": str(out), "rows": sum(map(len, near)), "queries": QUERIES}
    found = [set[int]() for _ in range(QUERIES)]
    for row in table.to_pylist():
        assert row["rank"] == len(found[row["query"]])
        assert row["id"] == data.names[row["vector_id"]]
        assert row["score"] == pytest.approx(distances[row["query"], row["vector_id"]], rel=1e-4)
        found[row["query"]].add(row["vector_id"])
    assert found == near
    assert table.schema.names == ["query", "rank", "id", "vector_id", "score", "colour"]
    filtered = run_json(*options, "--allow", odd)
    assert len(filtered) == sum(sum(i % 2 for i in row) for row in near)
    assert "more rows" in run("search", index, "--queries", data.queries, "--radius", 1e9).stdout
    assert run_json("search", index, "--queries", data.queries, "--radius", 0) == []


def test_a_score_evaluates_a_condition_once(
    data: Data, index: Path, odd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluated = []

    def count(*given: Any) -> metadata.ChosenRows:
        evaluated.append(given)
        return chosen_rows(*given)

    chosen_rows = metadata.chosen_rows
    monkeypatch.setattr(metadata, "chosen_rows", count)
    options = [
        "score",
        index,
        "--queries",
        data.queries,
        "--base",
        data.base,
        "-L",
        N,
        "--where",
        "colour = 'red'",
    ]
    for given in ([], ["--allow", odd]):
        (row,) = run_json(*options, *given)
        assert 0 < row["n_allowed"] < N
        assert len(evaluated) == 1
        evaluated.clear()


def test_a_filtered_score_is_about_the_allowed_vectors(
    data: Data, index: Path, odd: Path, tmp_path: Path
) -> None:
    options = ["score", index, "--queries", data.queries, "--allow", odd, "-L", N]
    np.save(tmp_path / "base.npy", data.vectors)
    row = run_json(*options, "--base", tmp_path / "base.npy")[0]
    assert row["recall"] == 1
    assert row["n_allowed"] == N // 2
    rows = np.arange(1, N, 2)
    distances = ((data.vectors[rows][None] - data.query_vectors[:, None]) ** 2).sum(axis=2)
    best = np.argsort(distances, axis=1, kind="stable")[:, :K]
    truth = Truth(rows[best].astype(np.uint32), np.take_along_axis(distances, best, 1).astype(np.float32))
    write_truth(tmp_path / "odd.gt", truth)
    assert run_json(*options, "--truth", tmp_path / "odd.gt")[0]["recall"] == 1
    assert "250 vectors allowed" in " ".join(run(*options, "--truth", tmp_path / "odd.gt").stdout.split())
    refused = run(*options, "--truth", data.truth)
    assert refused.exit_code == 3
    assert "which the filter leaves out" in refused.stderr
    np.save(tmp_path / "few.npy", np.arange(K - 1))
    refused = run(*options[:-4], "--allow", tmp_path / "few.npy", "--base", tmp_path / "base.npy")
    assert refused.exit_code == 3
    assert f"{K} neighbours wanted of {K - 1}" in refused.stderr


def test_a_score_with_a_cache_reads_less_and_finds_the_same(data: Data, index: Path) -> None:
    options = ["score", index, "--queries", data.queries, "--truth", data.truth, "-L", 20]
    plain = run_json(*options)[0]
    assert (plain["cache_bytes"], plain["cache_hits"], plain["n_allowed"]) == (0, 0, None)
    around = run_json(*options, "--cache", "32KiB")[0]
    trained = run_json(*options, "--cache", "32KiB", "--cache-from", data.queries)[0]
    for cached in (around, trained):
        assert cached["recall"] == plain["recall"]
        assert cached["hops"] == plain["hops"]
        assert 7 * 4096 < cached["cache_bytes"] <= 32 * 1024
        assert cached["cache_hits"] > 0
    assert trained["pages_read"] <= around["pages_read"] < plain["pages_read"]
    assert "cache 28.1 KiB" in " ".join(run(*options, "--cache", "32KiB").stdout.split())


def test_half_of_the_queries_train_the_cache_and_the_others_are_measured(data: Data, index: Path) -> None:
    options = ["score", index, "--queries", data.queries, "--truth", data.truth, "-L", 20, "--policy", "page"]
    row = run_json(*options, "--cache", "32KiB", "--cache-from", "half")[0]
    opened, half = indexmill.open(index), QUERIES // 2
    opened.cache(32 * 1024, data.query_vectors[:half], policy="page")
    found = opened.search(data.query_vectors[half:], K, L=20, policy="page")
    assert row["n_queries"] == half
    assert row["pages_read"] == found.counters["pages_read"].mean()


def test_a_score_says_whether_it_repeats(data: Data, index: Path) -> None:
    options = ["score", index, "--queries", data.queries, "--truth", data.truth, "-L", 20]
    assert run_json(*options)[0]["deterministic"] is True
    assert run_json(*options, "--no-deterministic")[0]["deterministic"] is False
    assert "not deterministic" in " ".join(run(*options, "--no-deterministic").stdout.split())
    with_previous = [*options, "--entry", "previous"]
    refused = run(*with_previous)
    assert refused.exit_code == 2
    assert "inflight = 1" in refused.stderr
    assert run(*with_previous, "--no-deterministic").exit_code == 0
    rows = run_json("search", index, "--queries", data.queries, "--no-deterministic", "-L", N)
    assert rows == run_json("search", index, "--queries", data.queries, "--deterministic", "-L", N)


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--radius", "1", "-k", "3"], 2, "-k: --radius returns all vectors within"),
        (["--radius", "nan"], 3, "radius: expected a number, got NaN"),
        (["--allow", "none.npy"], 3, "none.npy: no such file; write one with numpy.save"),
        (["--allow", "TEXT"], 3, "expected a .npy file of booleans or vector ids"),
        (["--allow", "NPZ"], 3, "expected one array, got an .npz archive"),
        (["--allow", "SHORT"], 3, f"short.npy: expected {N} booleans"),
        (["--allow", "BEYOND"], 3, f"beyond.npy: expected vector ids 0..{N - 1}, got {N}"),
        (["--allow", "OBJECTS"], 3, "objects.npy: expected a .npy file"),
        (["--allow", "."], 3, "--allow: .: expected a .npy file"),
    ],
)
def test_a_search_that_cannot_be_is_refused(
    data: Data, index: Path, tmp_path: Path, options: list[str], code: int, said: str
) -> None:
    files = {name: tmp_path / f"{name.lower()}.npy" for name in ("TEXT", "NPZ", "SHORT", "BEYOND", "OBJECTS")}
    files["TEXT"].write_text("1\n2\n")
    with open(files["NPZ"], "wb") as file:
        np.savez(file, a=np.ones(3), b=np.ones(4))
    np.save(files["SHORT"], np.ones(N - 1, bool))
    np.save(files["BEYOND"], np.array([3, N]))
    np.save(files["OBJECTS"], np.array([{}], object), allow_pickle=True)
    result = run(
        "search", index, "--queries", data.queries, *(files.get(option, option) for option in options)
    )
    assert result.exit_code == code
    assert said in result.stderr


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--cache", "lots"], 2, "--cache: 'lots' is not a size"),
        (["--cache", "4000"], 2, "--cache: 4000 bytes hold no page"),
        (["--cache-from", "half"], 2, "pass --cache SIZE too"),
        (["--cache", "1MiB", "--cache-from", "none.npy"], 3, "none.npy"),
        (["--cache", "1MiB", "--cache-from", "half", "--first", "1"], 3, "one query has no half"),
    ],
)
def test_a_cache_that_cannot_be_is_refused(
    data: Data, index: Path, options: list[str], code: int, said: str
) -> None:
    result = run("score", index, "--queries", data.queries, "--truth", data.truth, *options)
    assert result.exit_code == code
    assert said in result.stderr
