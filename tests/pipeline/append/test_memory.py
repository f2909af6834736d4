"""`append` keeps to the smallest budget that it accepts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.indexes.append import DIM, build, run_record

import indexmill
from indexmill.formats.errors import BudgetError
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES
from indexmill.pipeline.mill.peak import PeakMemory, has_proportional_sizes

pytestmark = pytest.mark.memory


@pytest.mark.skipif(not has_proportional_sizes(), reason="needs Linux's smaps_rollup")
def test_an_append_stays_within_the_smallest_budget_it_accepts(tmp_path: Path) -> None:
    vectors = np.random.default_rng(1).integers(0, 256, (30_000, DIM), dtype=np.uint8)
    ids = [f"user-{i:040}" for i in range(30_000)]
    index = build(tmp_path / "ix", vectors[:18_000], R=8, L=8, order="identity", ids=ids[:18_000])
    path = tmp_path / "more.parquet"
    rows = pa.FixedSizeListArray.from_arrays(pa.array(vectors[18_000:].ravel()), DIM)
    pq.write_table(pa.table({"v": rows, "id": ids[18_000:]}), path)
    with pytest.raises(BudgetError) as refusal:
        indexmill.append(index, path, id_column="id", memory="1MiB")
    budget = int(re.search(r"give at least ([\d,]+)", str(refusal.value))[1].replace(",", ""))
    assert budget > FIXED_BYTES + 5_000_000
    command = [sys.executable, "-m", "indexmill.jobs.cli.main", "append", index, path, "--id-column", "id"]
    child = subprocess.Popen(list(map(str, [*command, "--memory", budget])), stdout=subprocess.DEVNULL)
    with PeakMemory(child.pid, interval_s=0.002) as sampled:
        assert child.wait() == 0
    record = run_record(index)
    assert 0 < sampled.bytes <= budget
    assert record["memory_budget_bytes"] == budget
    # the command's own samples are 20 ms apart and may miss the short peak, of up to half of the whole
    assert 0.5 * sampled.bytes <= record["peak_memory_bytes"] <= 1.25 * sampled.bytes
