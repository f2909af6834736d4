"""`--query-sample`: a sample of queries that are unlike the vectors makes later ones read fewer pages."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.cli import run as command
from tests.support.indexes.builds import assert_sound, data_files

import indexmill
from indexmill.builders.lists.exact import exact_neighbours
from indexmill.formats.errors import BudgetError, InputError
from indexmill.jobs.bench.common.modalities import Modalities
from indexmill.pipeline.kinds.common import memory as common_memory
from indexmill.pipeline.kinds.common.metric import as_asked, as_stored
from indexmill.pipeline.kinds.graph import memory as needs
from indexmill.pipeline.kinds.graph.shaped.asked import LEAST_QUERIES
from indexmill.pipeline.plan import make_plan
from indexmill.pipeline.spec import BuildSpec, Parameters
from indexmill.reader.index import Index

N, K = 4000, 10
HOW = {"metric": "cosine", "R": 24, "pq_bytes": 16, "pq_rotation": "none", "node_dtype": "sq8"}
WORLD = Modalities(5)
VECTORS, QUERIES = WORLD.draw("vectors", N, 0), WORLD.draw("queries", 200, 1)
#: Vectors of unlike lengths, for inner product.
LONG = VECTORS * np.exp(0.3 * np.random.default_rng(8).standard_normal((N, 1))).astype(np.float32)
STAGES = {"asked", "nearest", "bridge"}


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("asked") / "sample.npy"
    np.save(path, WORLD.draw("queries", 3000, 0))
    return path


def built(out: Path, sample: Path | None = None, vectors: Any = VECTORS, **how: Any) -> Path:
    given = {} if sample is None else {"query_sample": str(sample)}
    indexmill.build(vectors, out, **{**HOW, **given, **how})
    return out


@pytest.fixture(scope="module")
def shaped(tmp_path_factory: pytest.TempPathFactory, sample: Path) -> Path:
    return built(tmp_path_factory.mktemp("shaped") / "ix", sample, workers=1)


def graph_of(index: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((index / "manifest.json").read_text())["graph"]
    return found


def reads(index: Path, queries: Any, vectors: Any = VECTORS, metric: str = "cosine") -> float:
    """Page reads of a query at the first list size that reaches a recall of 0.95."""
    truth = exact_neighbours(as_stored(vectors, metric), as_asked(queries, metric), K)[0]
    opened = Index(index)
    for size in range(K, N, 2):
        found = opened.search(queries, K, L=size, deterministic=True)
        hits = [len(set(a) & set(b)) for a, b in zip(found.vector_ids.tolist(), truth.tolist(), strict=True)]
        if np.mean(hits) >= 0.95 * K:
            return float(found.counters["pages_read"].mean())
    raise AssertionError("recall 0.95 not reached")


@pytest.mark.parametrize(
    ("builder", "metric"), [("partition", "cosine"), ("vamana", "cosine"), ("partition", "ip")]
)
def test_queries_apart_read_fewer_pages_and_others_a_few_more(
    tmp_path: Path, sample: Path, builder: str, metric: str
) -> None:
    of = {"vectors": VECTORS if metric == "cosine" else LONG, "metric": metric}
    plain = built(tmp_path / "plain", builder=builder, **of)
    shaped = built(tmp_path / "shaped", sample, builder=builder, **of)
    assert_sound(shaped)
    assert reads(shaped, QUERIES, **of) < 0.7 * reads(plain, QUERIES, **of)
    alike = WORLD.draw("vectors", 200, 1)
    assert reads(shaped, alike, **of) < 1.25 * reads(plain, alike, **of)


def test_workers_do_not_change_the_bytes(tmp_path: Path, sample: Path, shaped: Path) -> None:
    assert data_files(built(tmp_path / "three", sample, workers=3)) == data_files(shaped)


def test_the_manifest_tells_of_the_sample(tmp_path: Path, sample: Path, shaped: Path) -> None:
    queries = np.load(sample)
    np.save(tmp_path / "twice.npy", np.concatenate([queries, queries[::-1]]))
    twice = built(tmp_path / "twice", tmp_path / "twice.npy")
    files = [data_files(index) for index in (shaped, twice)]
    assert {**files[0], "manifest.json": b""} == {**files[1], "manifest.json": b""}
    said = [graph_of(index)["query_sample"] for index in (shaped, twice)]
    assert (said[0]["given"], said[1]["given"]) == (3000, 6000)
    assert said[0]["queries"] == said[1]["queries"] == 3000
    assert said[0]["fingerprint"] == said[1]["fingerprint"]
    assert said[0]["edges"] > said[0]["vectors"] > 0
    done = command("inspect", str(shaped))
    assert "query sample 3,000 different queries" in " ".join(done.stdout.split())


def test_another_sample_makes_another_index_in_the_same_work_directory(tmp_path: Path, sample: Path) -> None:
    np.save(tmp_path / "other.npy", WORLD.draw("queries", 500, 7))
    work = {"work": str(tmp_path / "work")}
    plain = built(tmp_path / "a", **work)
    shaped = built(tmp_path / "b", sample, **work)
    other = built(tmp_path / "c", tmp_path / "other.npy", **work)
    assert len({tuple(sorted(data_files(index).items())) for index in (plain, shaped, other)}) == 3
    assert "query_sample" not in graph_of(plain)


def test_regions_make_the_same_index_as_one_piece(
    tmp_path: Path, sample: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = built(tmp_path / "whole", sample, builder="partition")
    monkeypatch.setattr(common_memory, "MOST_SORT_BUFFERS", 256 << 10)
    monkeypatch.setattr(needs, "fitted_shape", lambda shape, *_: replace(shape, region_bytes=3_000_000))
    assert data_files(built(tmp_path / "regions", sample, builder="partition")) == data_files(whole)


def test_shards_take_a_sample_too(tmp_path: Path, sample: Path) -> None:
    index = built(tmp_path / "shards", sample, builder="vamana", shard_vectors=2200)
    assert_sound(index)
    assert len(graph_of(index)["shards"]) > 1
    assert graph_of(index)["query_sample"]["edges"] > 0


@pytest.mark.parametrize(
    ("metric", "dtype"), [("ip", "float32"), ("l2", "uint8"), ("l2", "int8"), ("l2", "float16")]
)
def test_metrics_and_types(tmp_path: Path, metric: str, dtype: str) -> None:
    vectors, asked = (WORLD.draw(kind, n, 2) for kind, n in (("vectors", 1500), ("queries", 300)))
    if dtype in ("uint8", "int8"):
        middle = 128 if dtype == "uint8" else 0
        vectors, asked = (
            np.clip(rows * 300 + middle, middle - 128, middle + 127) for rows in (vectors, asked)
        )
    np.save(tmp_path / "asked.npy", asked.astype(dtype))
    how = {} if dtype != "uint8" and dtype != "int8" else {"node_dtype": "same"}
    index = built(tmp_path / "ix", tmp_path / "asked.npy", vectors.astype(dtype), metric=metric, **how)
    assert_sound(index)
    assert graph_of(index)["query_sample"]["edges"] > 0


def test_codes_on_the_page(tmp_path: Path, sample: Path) -> None:
    assert_sound(built(tmp_path / "ix", sample, codes_on_page=True))


def test_a_column_of_a_table(tmp_path: Path, sample: Path, shaped: Path) -> None:
    column = pa.FixedSizeListArray.from_arrays(np.load(sample).ravel(), VECTORS.shape[1])
    pq.write_table(pa.table({"asked": column, "other": column}), tmp_path / "asked.parquet")
    of_table = built(tmp_path / "table", tmp_path / "asked.parquet", query_column="asked")
    assert data_files(of_table) == data_files(shaped)


def test_the_command_and_a_job_file(tmp_path: Path, sample: Path) -> None:
    np.save(tmp_path / "vectors.npy", VECTORS[:1500])
    np.save(tmp_path / "few.npy", np.load(sample)[:LEAST_QUERIES])
    common = 'input = "vectors.npy"\nquery_sample = "few.npy"\n'
    (tmp_path / "job.toml").write_text(f'{common}out = "a"\n[parameters]\nmetric = "cosine"\n')
    assert command("build", tmp_path / "job.toml").exit_code == 0
    flags = (
        "build", "--input", str(tmp_path / "vectors.npy"), "--out", str(tmp_path / "b"), "--metric", "cosine",
        "--query-sample", str(tmp_path / "few.npy"),
    )  # fmt: skip
    assert command(*flags).exit_code == 0
    assert data_files(tmp_path / "a") == data_files(tmp_path / "b")


def repeated(rows: Any) -> Any:
    return np.repeat(rows[:1], 500, axis=0)


def not_a_number(rows: Any) -> Any:
    rows = rows.copy()
    rows[7, 3] = np.nan
    return rows


def without_direction(rows: Any) -> Any:
    rows = rows.copy()
    rows[9] = 0
    return rows


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda rows: rows[:, :100], "queries of 100 dimensions, but the vectors have 128"),
        (repeated, "at least 100 different queries, got 1;"),
        (lambda rows: rows[:99], "at least 100 different queries, got 99;"),
        (lambda rows: rows[:0], r"wrong\.npy: no vectors"),
        (not_a_number, r"wrong\.npy: row 7: component 3 is nan; expected a finite number"),
        (without_direction, r"wrong\.npy: row 9: zero vector"),
    ],
)
def test_a_sample_that_tells_nothing_is_refused_before_any_stage(
    tmp_path: Path, sample: Path, wrong: Any, message: str
) -> None:
    np.save(tmp_path / "wrong.npy", wrong(np.load(sample)))
    with pytest.raises(InputError, match=message):
        built(tmp_path / "ix", tmp_path / "wrong.npy")
    assert [path.name for path in tmp_path.iterdir()] == ["wrong.npy"]


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        ("uint8", 0.5, "whole numbers from 0 to 255, which uint8 vectors hold"),
        ("int8", 200, "whole numbers from -128 to 127, which int8 vectors hold"),
        ("float16", 1e5, "numbers of at most 65504, which float16 vectors hold"),
    ],
)
def test_queries_that_the_type_of_the_vectors_does_not_hold_are_refused_before_any_stage(
    tmp_path: Path, dtype: str, value: float, expected: str
) -> None:
    queries = np.arange(200 * 32, dtype=np.float32).reshape(200, 32) % 100
    queries[7, 3] = value
    np.save(tmp_path / "wrong.npy", queries)
    vectors = np.random.default_rng(1).integers(0, 100, (500, 32)).astype(dtype)
    for parts in (None, 2):
        with pytest.raises(
            InputError, match=rf"^query_sample: .*wrong\.npy: row 7: expected {expected}; convert"
        ):
            built(
                tmp_path / "ix", tmp_path / "wrong.npy", vectors, metric="l2", node_dtype="same", parts=parts
            )
        assert not list(tmp_path.glob("*/*-*"))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"query_column": "a"}, "query_column: goes with query_sample"),
        ({"query_sample": "q.npy", "parameters": {"kind": "lsh"}}, "query_sample: goes with kind graph, not with lsh"),
        ({"query_sample": "q.npy", "parameters": {"kind": "ivf"}}, "query_sample: goes with kind graph, not with ivf"),
    ],
)  # fmt: skip
def test_other_jobs_take_no_sample(how: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BuildSpec.model_validate({"input": ["v.npy"], "out": "ix", **how})


def test_a_plan_counts_the_sample(tmp_path: Path, sample: Path) -> None:
    np.save(tmp_path / "vectors.npy", VECTORS)
    given: dict[str, Any] = {"input": [str(tmp_path / "vectors.npy")], "out": str(tmp_path / "ix")}
    given["parameters"] = Parameters.model_validate(HOW)
    plain = make_plan(BuildSpec(**given))
    plan = make_plan(BuildSpec(**given, query_sample=str(sample)))
    assert set(plan.stages) - set(plain.stages) == STAGES
    for name in STAGES:
        assert plan.stages[name].memory_bytes > 0
    assert plan.stages["nearest"].seconds > 0


def test_a_sample_that_does_not_fit_the_memory_is_refused(tmp_path: Path) -> None:
    large = np.lib.format.open_memmap(tmp_path / "large.npy", "w+", np.float32, (1_000_000, 128))  # sparse
    large.flush()
    with pytest.raises(BudgetError, match="fewer queries with --query-sample"):
        built(tmp_path / "ix", tmp_path / "large.npy", memory="600MiB")
