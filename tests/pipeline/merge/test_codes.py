"""Codes of a merged graph: by the codebook of the largest, or by one of all vectors where those would err too much."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.cli import run_json
from tests.support.indexes.append import assert_sound, build, manifest, points, recall, run_record
from tests.support.indexes.builds import data_files
from tests.support.indexes.built import Built
from tests.support.processes.memory import least_budget, needs_sizes, peak_of_command

import indexmill
from indexmill.formats.graph.index import IndexFiles

#: Vectors of the largest, and others unlike them, which are more.
NEAR, FAR = points(900, 1), [points(700, seed) * 4 + 60 for seed in (2, 3)]
ALL = np.concatenate([NEAR, *FAR])


def builds(folder: Path, **how: Any) -> list[Path]:
    return [build(folder / str(i), rows, **how) for i, rows in enumerate([NEAR, *FAR])]


@pytest.fixture(scope="module")
def parts(built: Built) -> list[Path]:
    return [built(build, rows) for rows in (NEAR, *FAR)]


def codes_of(index: Path) -> tuple[Any, np.ndarray]:
    """Codebook, and codes by vector id."""
    with IndexFiles(index) as files:
        return files.codebook, files.codes[np.argsort(files.vector_ids)]


def error(index: Path, vectors: np.ndarray) -> float:
    """Mean squared error of the codes of an index."""
    codebook, codes = codes_of(index)
    return float(((codebook.rotated(vectors) - codebook.decoded(codes)) ** 2).sum(axis=1).mean())


@pytest.mark.parametrize(
    "how", [{}, {"pq_rotation": "opq"}, {"codes_on_page": True}, {"builder": "vamana"}], ids=str
)
def test_a_codebook_of_all_vectors_is_trained_where_those_of_others_err(
    tmp_path: Path, how: dict[str, Any]
) -> None:
    parts = builds(tmp_path, **how)
    index = tmp_path / "all"
    indexmill.merge(*parts, out=index)
    assert_sound(index)
    assert "train" in run_record(index)["seconds"]
    drift = manifest(index)["drift"]
    assert (drift["coded_vectors"], drift["code_error_added"], drift["code_error_ratio"]) == (
        len(ALL), None, None
    )  # fmt: skip
    assert "codes of added vectors" not in drift["advice"]
    rebuilt = build(tmp_path / "rebuilt", ALL, **how)
    assert error(index, ALL) < 1.1 * error(rebuilt, ALL)
    assert recall(index, ALL, points(100, 7)) > recall(rebuilt, ALL, points(100, 7)) - 0.01
    (before, _), (after, _) = codes_of(parts[0]), codes_of(index)
    assert len(after.offsets) == len(before.offsets)
    assert (after.rotation is None) == (before.rotation is None)


def test_drift_begins_anew_with_the_codebook(parts: list[Path], tmp_path: Path) -> None:
    index = tmp_path / "ix"
    indexmill.merge(*parts, out=index)
    codebook = codes_of(index)[0]

    def told(key: str) -> Any:
        return manifest(index)["drift"].get(key)

    indexmill.append(index, np.concatenate([points(50, 4), points(50, 5) * 4 + 60]))
    assert told("coded_vectors") == 2300
    assert told("code_error_ratio") == pytest.approx(1, abs=0.2)
    np.testing.assert_array_equal(codes_of(index)[0].pivots, codebook.pivots)
    run_json("layout", str(index), "--order", "star")
    indexmill.append(index, points(100, 6) - 200)
    assert told("code_error_ratio") > 1.75
    assert told("rebuild")
    indexmill.delete(index, np.arange(300), by="vector")
    indexmill.compact(index)
    assert told("coded_vectors") == 2000
    assert_sound(index)


def test_alike_vectors_keep_the_codebook(parts: list[Path], tmp_path: Path) -> None:
    others = [build(tmp_path / str(seed), points(700, seed)) for seed in (8, 9)]
    indexmill.merge(parts[0], *others, out=tmp_path / "all")
    assert "train" not in run_record(tmp_path / "all")["seconds"]
    (before, codes), (after, all_codes) = codes_of(parts[0]), codes_of(tmp_path / "all")
    np.testing.assert_array_equal(before.pivots, after.pivots)
    np.testing.assert_array_equal(codes, all_codes[:900])
    assert "coded_vectors" not in manifest(tmp_path / "all")["drift"]


def test_few_vectors_that_are_laid_out_apart_keep_the_codebook(parts: list[Path], tmp_path: Path) -> None:
    """A merge that leaves pages where they are leaves codes as they are; the drift advises to rebuild."""
    few = build(tmp_path / "few", FAR[0][:100])
    indexmill.merge(parts[0], few, out=tmp_path / "all")
    assert "train" not in run_record(tmp_path / "all")["seconds"]
    drift = manifest(tmp_path / "all")["drift"]
    assert drift["code_error_ratio"] > 1.75
    assert drift["rebuild"]


def test_a_graph_that_queries_shaped_keeps_its_codes(tmp_path: Path) -> None:
    np.save(tmp_path / "queries.npy", points(200, 8))
    parts = builds(tmp_path, query_sample=str(tmp_path / "queries.npy"))
    indexmill.merge(*parts, out=tmp_path / "all")
    assert "train" not in run_record(tmp_path / "all")["seconds"]


def test_workers_do_not_change_the_bytes(parts: list[Path], tmp_path: Path) -> None:
    for workers in (1, 3):
        indexmill.merge(*parts, out=tmp_path / str(workers), workers=workers)
    assert data_files(tmp_path / "1") == data_files(tmp_path / "3")


@pytest.mark.memory
@needs_sizes
def test_training_stays_within_the_smallest_budget_it_accepts(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    frugal = {"R": 8, "L": 8, "order": "identity", "navigation": 0, "pq_bytes": 16, "pq_rotation": "none"}
    parts = [
        build(tmp_path / str(i), (rng.normal(size=(8_000, 256)) * scale).astype(np.float32), **frugal)
        for i, scale in enumerate((1, 9, 9))
    ]

    def merge(**options: Any) -> None:
        indexmill.merge(*parts, out=tmp_path / "none", **options)

    budget = least_budget(merge)
    assert 0 < peak_of_command(budget, "merge", *parts, "--out", tmp_path / "all") <= budget
    assert "train" in run_record(tmp_path / "all")["seconds"]
