"""run.json says which share of the nearest neighbours and leaders byte codes missed, however a graph is cut."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.gpu import strict_gpu
from tests.support.indexes.builds import build, clustered
from tests.support.progress import Stages

from indexmill.builders import gpu as gpu_module
from indexmill.formats.chunks.reader import Records
from indexmill.formats.chunks.writer import write_chunk
from indexmill.pipeline.kinds.common import memory as common_memory
from indexmill.pipeline.kinds.graph import memory as needs
from indexmill.pipeline.kinds.graph.tasks import misses_of

#: Memory of a task of a region.
ROOM = 900_000
SHARDS = {"shard_vectors": 1500}


def in_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let builds by the partition builder go through files, with very little memory."""
    monkeypatch.setattr(common_memory, "MOST_SORT_BUFFERS", 256 << 10)
    monkeypatch.setattr(needs, "fitted_shape", lambda shape, *_: replace(shape, region_bytes=ROOM))


def missed(index: Path) -> tuple[float, float] | None:
    """Return the shares of neighbours and of leaders."""
    run = json.loads((index / "run.json").read_text())
    return (run["neighbours_missed"], run["leaders_missed"]) if "neighbours_missed" in run else None


def hard(n: int) -> np.ndarray:
    """Clusters of eight as wide as a step of the codes of a leaf, which therefore mistake some of their members."""
    rng = np.random.default_rng(1)
    centres = rng.normal(size=(n // 8, 24))
    return (centres[np.arange(n) % len(centres)] + 0.02 * rng.normal(size=(n, 24))).astype(np.float32)


def built(out: Path, vectors: np.ndarray, **how: Any) -> Path:
    return build(out, vectors, **{"builder": "partition", "order": "identity", **how})


def test_a_graph_in_regions_misses_what_one_in_one_piece_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = hard(2500)
    whole = missed(built(tmp_path / "whole", vectors))
    assert whole is not None
    assert 0 < whole[0] < 0.5
    assert 0 < whole[1] < 0.1
    in_regions(monkeypatch)
    stages = Stages()
    assert missed(built(tmp_path / "regions", vectors, workers=2, progress=stages)) == whole
    assert "leaves" in stages.made


def test_misses_of_shards_are_added_up(tmp_path: Path) -> None:
    shares = missed(built(tmp_path / "shards", hard(2500), **SHARDS))
    assert shares is not None
    assert 0 < shares[0] < 0.5
    assert 0 <= shares[1] < 0.1


@pytest.mark.parametrize("how", [{}, SHARDS], ids=["one piece", "shards"])
def test_bytes_miss_nothing_and_searches_have_no_codes(tmp_path: Path, how: dict[str, Any]) -> None:
    vectors = clustered(2500, 8, "uint8")
    assert missed(built(tmp_path / "bytes", vectors, **how)) == (0, 0)
    assert missed(built(tmp_path / "searched", vectors, **{**how, "builder": "vamana"})) is None


def test_a_gpu_compares_by_floats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = strict_gpu()[0]
    monkeypatch.setattr(gpu_module, "cuda_gpu", lambda: gpu)
    assert missed(built(tmp_path / "ix", hard(2500), compute="cuda")) is None


def test_files_without_notes_have_no_misses(tmp_path: Path) -> None:
    one, none = np.zeros(1, np.uint32), str(tmp_path / "none.chunk")
    write_chunk(none, Records(one, one, one[:, None]), (0, 1))
    assert misses_of([none]) is None
    noted = str(tmp_path / "noted.chunk")
    write_chunk(noted, Records(one, one, one[:, None]), (0, 1), notes={"looked_for": 30, "missed": 4})
    assert misses_of([noted, none, noted]) == (60, 8, 0, 0)
