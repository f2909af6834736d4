"""A small data set and runs of commands, for the tests of the command line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from typer.testing import CliRunner, Result

from indexmill.formats.sources.truth import Truth, write_truth
from indexmill.jobs.cli.main import app

N, DIM, QUERIES, K = 500, 12, 40, 10
#: Small enough to build in a second or two.
SMALL = [
    "-R",
    "12",
    "-L",
    "30",
    "--pq-bytes",
    "6",
    "--entries",
    "16",
    "--sample-vectors",
    "500",
    "--workers",
    "1",
]


@dataclass(frozen=True)
class Data:
    """Files of one data set, and what is in them."""

    folder: Path
    base: Path
    queries: Path
    truth: Path
    vectors: NDArray[np.float32]
    query_vectors: NDArray[np.float32]
    truth_ids: NDArray[np.int64]
    names: list[str]


def make_data(folder: Path) -> Data:
    """Write clustered vectors with string ids and two metadata columns, queries and their truth."""
    rng = np.random.default_rng(5)
    centres = rng.normal(size=(20, DIM)) * 3
    vectors = (centres[rng.integers(20, size=N)] + rng.normal(size=(N, DIM))).astype(np.float32)
    queries = (centres[rng.integers(20, size=QUERIES)] + rng.normal(size=(QUERIES, DIM))).astype(np.float32)
    ids, distances = brute_force(vectors, queries, 2 * K)
    names = [f"item-{i}" for i in range(N)]
    table = {
        "name": names,
        "score": pa.array(np.arange(N) / 2),
        "colour": [("red", "green", None)[i % 3] for i in range(N)],
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIM),
    }
    data = Data(
        folder,
        folder / "base.parquet",
        folder / "queries.npy",
        folder / "truth.gt",
        vectors,
        queries,
        ids,
        names,
    )
    pq.write_table(pa.table(table), data.base)
    np.save(data.queries, queries)
    write_truth(data.truth, Truth(ids.astype(np.uint32), distances.astype(np.float32)))
    return data


def brute_force(
    vectors: NDArray[Any], queries: NDArray[Any], k: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Nearest rows by squared distance, and the distances; ties by the smaller row."""
    differences = vectors[None].astype(np.float64) - queries[:, None].astype(np.float64)
    distances = (differences**2).sum(axis=2)
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(distances, order, 1)


def run(*arguments: object) -> Result:
    """Run `indexmill` in this process."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def run_json(*arguments: object) -> Any:
    """Run `indexmill ... --json`, expect success, and return what it printed."""
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def build(data: Data, out: Path, *options: object) -> Path:
    """Build an index of `data` at `out`."""
    result = run("build", "--input", data.base, "--id-column", "name", "--out", out, *SMALL, *options)
    assert result.exit_code == 0, result.stderr
    return out
