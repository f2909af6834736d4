"""The first stages take the memory of a few batches, however many vectors there are."""

from __future__ import annotations

import pytest
from tests.support.processes.memory import peak_growth

N, DIM = 64_000, 512


@pytest.mark.memory
@pytest.mark.parametrize("stored", ["float16", "bfloat16"])
def test_float16_and_bfloat16_are_never_widened_as_a_whole(stored: str) -> None:
    halves = "rng.random((8000, dim), np.float32)"
    rows = {
        "float16": f"{halves}.astype(np.float16)",
        "bfloat16": f'({halves}.view(np.uint32) >> 16).astype(np.uint16).view("V2")',
    }[stored]
    grown = peak_growth(
        f"""
        import numpy as np
        from indexmill.formats.sources.source import open_source
        from indexmill.pipeline.kinds.common.cluster import cluster_task, sample_task
        from indexmill.pipeline.kinds.common.ingest import ingest
        from indexmill.pipeline.mill.progress import Silent
        n, dim, rng = {N}, {DIM}, np.random.default_rng(1)
        block = {rows}
        for i in range(n // len(block)):
            np.save(path / f"{{i}}.npy", block)
        rows = str(path / "vectors.npy")
        """,
        """
        ingest(open_source(str(path / "[0-9].npy")), "l2", path, Silent())
        sample_task(rows, 1000, 0, path, 1)
        cluster_task(str(path), str(path), None, 0.0, 0, path, 1)
        assert np.load(rows, mmap_mode="r").dtype == np.float16
        """,
    )
    # a batch of 8 MiB, a few times; not the vectors, nor twice as much
    assert 4 << 20 < grown < 0.6 * N * DIM * 2
