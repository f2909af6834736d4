"""The adapter of ann-benchmarks does what that program asks of an algorithm."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

EXAMPLE = Path(__file__).parents[2] / "docs/examples/ann_benchmarks"
VECTORS = np.random.default_rng(1).normal(size=(600, 16)).astype(np.float32)
QUERIES = VECTORS[:20] + np.float32(0.05)


@pytest.fixture
def adapter(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the class; that of ann-benchmarks which it inherits from has no effect here."""
    base = "ann_benchmarks.algorithms.base.module"
    for name in ("ann_benchmarks", "ann_benchmarks.algorithms", "ann_benchmarks.algorithms.base", base):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(sys.modules[base], "BaseANN", object, raising=False)
    spec = importlib.util.spec_from_file_location("indexmill_adapter", EXAMPLE / "module.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("dtype", [np.float32, np.float64])  # sets that ann-benchmarks makes have doubles
@pytest.mark.parametrize("metric", ["euclidean", "angular"])
def test_the_nearest_are_found_one_by_one_and_together(adapter: Any, metric: str, dtype: type) -> None:
    (how,) = yaml.safe_load((EXAMPLE / "config.yml").read_text())["float"]["any"]
    group = how["run_groups"]["graph"]
    (parameters,) = group["arg_groups"]
    first = {name: values[0] for name, values in parameters.items()}
    algorithm = getattr(adapter, how["constructor"])(metric, first)
    assert algorithm.get_memory_usage() == 0
    algorithm.fit(VECTORS.astype(dtype))
    assert algorithm.get_memory_usage() > VECTORS.nbytes / 1024
    rows, queries = VECTORS.astype(np.float64), QUERIES.astype(np.float64)
    if metric == "angular":
        rows, queries = (one / np.linalg.norm(one, axis=1, keepdims=True) for one in (rows, queries))
    nearest = np.argsort(((queries[:, None] - rows[None]) ** 2).sum(axis=2), axis=1)[:, :10]
    for candidates in group["query_args"][0]:
        algorithm.set_query_arguments(candidates)
        assert str(candidates) in algorithm.name
        one_by_one = [algorithm.query(query, 10) for query in QUERIES.astype(dtype)]
        algorithm.batch_query(QUERIES.astype(dtype), 10)
        assert np.array_equal(one_by_one, algorithm.get_batch_results())
    assert (np.array(one_by_one) == nearest).mean() > 0.98
    algorithm.done()


def test_neighbours_that_were_not_reached_are_left_out(adapter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = SimpleNamespace(vector_ids=np.array([[3, 1, -1, -1], [2, 0, 1, -1]]))
    index = SimpleNamespace(search=lambda *_, **__: found)
    package = SimpleNamespace(build=lambda *_, **__: None, Index=lambda *_, **__: index)
    monkeypatch.setattr(adapter, "indexmill", package)
    algorithm = adapter.Indexmill("euclidean", {})
    algorithm.fit(VECTORS)
    algorithm.batch_query(QUERIES[:2], 4)
    assert [ids.tolist() for ids in algorithm.get_batch_results()] == [[3, 1], [2, 0, 1]]
    assert algorithm.query(QUERIES[0], 4).tolist() == [3, 1]


def test_a_metric_that_is_not_served_is_named(adapter: Any) -> None:
    with pytest.raises(ValueError, match="metric jaccard: expected one of euclidean, angular"):
        adapter.Indexmill("jaccard", {})
