"""Dumps for PostgreSQL, loaded by PostgreSQL with pgvector."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.engines.environments import python_of
from tests.support.indexes.append import build
from tests.support.indexes.export import assert_same_answers, id_map, rows_in_files, whole_points
from tests.support.indexes.ivf import LISTS, build_lists, join, make_vectors, result

import indexmill
from indexmill.formats.ivf.index import IvfFiles

N = 300


def answer(folder: Path, *arguments: str) -> str:
    script = Path(__file__).parent / "clients" / "postgres.py"
    command = [str(python_of("postgres")), str(script), str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def ask(folder: Path, *queries: str) -> list[list[list[str]]]:
    """Load the dump in `folder` and return the rows of each query, fields as text."""
    parts = answer(folder, *queries).split("\n--\n")[:-1]
    return [[row.split("|") for row in part.splitlines()] for part in parts]


@pytest.mark.parametrize("kind", ["numbers", "strings", "halves"])
def test_postgres_loads_and_finds_every_row(tmp_path: Path, kind: str) -> None:
    rows = whole_points(N, 8)
    ids: Any = [f'"quoted" \\ {i}' for i in range(N)] if kind == "strings" else np.arange(N) * 7 - 500
    metadata = pa.table(
        {"colour": [None if i % 7 == 0 else f'a"{i}\n' for i in range(N)], "price": np.arange(N) / 4}
    )
    how = {"metadata": metadata} if kind == "strings" else {}
    index = build(tmp_path / "ix", rows.astype(np.float16) if kind == "halves" else rows, ids=ids, **how)
    indexmill.export(index, "pgvector", tmp_path / "out")
    table = id_map(tmp_path / "out")
    order = table["vector_id"].to_numpy()
    nearest = np.argsort(((rows[order] - rows[order][0]) ** 2).sum(axis=1), kind="stable")[:5]
    queries = [
        "SELECT slot, partition, id, embedding FROM indexmill_vectors ORDER BY slot",
        "SELECT id FROM indexmill_vectors ORDER BY embedding <-> (SELECT embedding FROM indexmill_vectors "
        "WHERE slot = 0), slot LIMIT 5",
    ]
    if kind == "strings":
        queries.append("SELECT metadata FROM indexmill_vectors ORDER BY slot")
    found = ask(tmp_path / "out", *queries)
    assert len(found[0]) == N
    for slot, (number, _, name, vector) in enumerate(found[0]):
        assert int(number) == slot
        assert name == str(table["id"][slot].as_py())
        assert np.array(json.loads(vector), np.float32).tolist() == rows[order[slot]].tolist()
    names = [str(name) for name in table["id"].to_pylist()]
    assert [row[0] for row in found[1]] == [names[slot] for slot in nearest]
    if kind == "strings":
        objects = [json.loads(row[0]) for row in found[2]]
        assert objects == [
            {"colour": None if i % 7 == 0 else f'a"{i}\n', "price": i / 4} for i in order.tolist()
        ]


def test_partitions_hold_our_lists_and_answer_as_a_join_does(tmp_path: Path) -> None:
    """The table holds every row in its list, and a query of the nearest lists finds what a join finds there."""
    vectors, queries = make_vectors("uint8"), make_vectors("uint8", 5, seed=9)
    index = build_lists(tmp_path / "ix", vectors)
    indexmill.export(index, "pgvector", tmp_path / "out")
    centroids = IvfFiles(index).centroids.centroids.astype(np.float64)
    order = np.argsort(((queries[:, None] - centroids) ** 2).sum(axis=2), axis=1, kind="stable")
    asked = ["SELECT partition, id, embedding FROM indexmill_vectors ORDER BY slot"]
    for nprobe in (4, 16):
        for query, nearest in zip(queries, order, strict=True):
            away = f"(embedding <-> '{query.tolist()}')"
            lists = ",".join(map(str, nearest[:nprobe].tolist()))
            asked.append(
                f"SELECT id, {away} FROM indexmill_vectors WHERE partition IN ({lists}) ORDER BY 2, 1 LIMIT 10"
            )
    rows, *answers = ask(tmp_path / "out", *asked)
    numbers, ids = rows_in_files(index, vectors)
    assert set(numbers) == set(range(LISTS))
    assert [(int(partition), int(name)) for partition, name, _ in rows] == list(
        zip(numbers, ids, strict=True)
    )
    assert np.array_equal([json.loads(vector) for _, _, vector in rows], vectors[ids])
    found = np.array(answers, float).reshape(2, len(queries), 10, 2)
    for (names, distances), nprobe in zip(np.moveaxis(found, 3, 1), (4, 16), strict=True):
        join(index, queries, tmp_path / f"{nprobe}.parquet", nprobe=nprobe)
        mine = result(tmp_path / f"{nprobe}.parquet", len(queries), 10)
        assert_same_answers((names.astype(np.int64), distances**2), mine, 1e-9)


def test_the_snippet_runs(tmp_path: Path) -> None:
    index = build(tmp_path / "ix", whole_points(N, 8))
    found = indexmill.export(index, "pgvector", tmp_path / "it's here")
    assert "(10 rows)" in answer(tmp_path, "--paste", found["open"])
