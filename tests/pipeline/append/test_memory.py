"""`append` keeps to the smallest budget that it accepts."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.indexes.append import DIM, build, run_record
from tests.support.processes.memory import least_budget, needs_sizes, peak_of_command

import indexmill
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES

pytestmark = pytest.mark.memory


@needs_sizes
def test_an_append_stays_within_the_smallest_budget_it_accepts(tmp_path: Path) -> None:
    vectors = np.random.default_rng(1).integers(0, 256, (30_000, DIM), dtype=np.uint8)
    ids = [f"user-{i:040}" for i in range(30_000)]
    index = build(tmp_path / "ix", vectors[:18_000], R=8, L=8, order="identity", ids=ids[:18_000])
    path = tmp_path / "more.parquet"
    rows = pa.FixedSizeListArray.from_arrays(pa.array(vectors[18_000:].ravel()), DIM)
    pq.write_table(pa.table({"v": rows, "id": ids[18_000:]}), path)
    budget = least_budget(partial(indexmill.append, index, path, id_column="id"))
    assert budget > FIXED_BYTES + 5_000_000
    peak = peak_of_command(budget, "append", index, path, "--id-column", "id")
    record = run_record(index)
    assert 0 < peak <= budget
    assert record["memory_budget_bytes"] == budget
    # the command's own samples are 20 ms apart and may miss the short peak, of up to half of the whole
    assert 0.5 * peak <= record["peak_memory_bytes"] <= 1.25 * peak


@needs_sizes
def test_an_append_to_a_long_tail_of_large_nodes_stays_within_its_budget(tmp_path: Path) -> None:
    """The tail, 100 MB of nodes with codes, is never in memory as a whole."""
    rng, n_codes = np.random.default_rng(1), 512
    vectors = rng.integers(0, 256, (6_000, n_codes), dtype=np.uint8)
    how = {"R": 30, "L": 30, "order": "identity", "codes_on_page": True, "pq_bytes": n_codes}
    index = build(tmp_path / "ix", vectors[:500], **how)
    indexmill.append(index, vectors[500:5_900])
    np.save(tmp_path / "more.npy", vectors[5_900:])
    budget = least_budget(partial(indexmill.append, index, tmp_path / "more.npy"))
    assert 0 < peak_of_command(budget, "append", index, tmp_path / "more.npy") <= budget


@needs_sizes
def test_an_append_to_tables_stays_within_the_smallest_budget_it_accepts(tmp_path: Path) -> None:
    """One table is larger than what is held of it. First a tenth of the vectors is added, then nearly half are."""
    vectors = np.random.default_rng(1).integers(0, 256, (400_000, 16), dtype=np.uint8)
    index = tmp_path / "ix"
    indexmill.build(vectors[:200_000], index, kind="lsh", n_tables=5, n_radii=3, workers=1)
    np.save(tmp_path / "few.npy", vectors[200_000:220_000])
    np.save(tmp_path / "more.npy", vectors[220_000:])
    few = least_budget(partial(indexmill.append, index, tmp_path / "few.npy"))
    assert 0 < peak_of_command(few, "append", index, tmp_path / "few.npy") <= few
    assert (index / "added-tables.imx").exists()
    budget = least_budget(partial(indexmill.append, index, tmp_path / "more.npy"))
    assert few < budget < 3 * FIXED_BYTES
    assert 0 < peak_of_command(budget, "append", index, tmp_path / "more.npy") <= budget
