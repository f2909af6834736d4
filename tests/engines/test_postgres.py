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
from tests.export_support import id_map, whole_points
from tests.extend_support import build

import indexmill

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


def test_the_snippet_runs(tmp_path: Path) -> None:
    index = build(tmp_path / "ix", whole_points(N, 8))
    found = indexmill.export(index, "pgvector", tmp_path / "it's here")
    assert "(10 rows)" in answer(tmp_path, "--paste", found["open"])
