"""Joins and truths stay within the memory that they state, for any budget, and refuse budgets that are too small."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from tests.support.indexes.built import Built
from tests.support.indexes.ivf import build_lists, join, make_vectors
from tests.support.processes.memory import printed_and_growth

from indexmill.formats.errors import BudgetError
from indexmill.formats.ivf.index import IvfFiles
from indexmill.pipeline.join import steps
from indexmill.pipeline.join.memory import join_need
from indexmill.pipeline.join.probes import Learnt
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES

pytestmark = pytest.mark.memory

SETUP = """
import numpy as np
from tests.support.indexes.ivf import make_vectors
from indexmill.pipeline.join.run import run_join
from indexmill.pipeline.join.options import JoinOptions
from indexmill.pipeline.join.truth import truth_of_vectors, vectors_need
from indexmill.pipeline.join.memory import join_need
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES
from indexmill.formats.ivf.index import IvfFiles
from indexmill.formats.sources.source import open_source
index = {index!r}
few, queries = make_vectors("float32", 300, seed=8), make_vectors("float32", 8000, seed=9)
files, source = IvfFiles(index), open_source([index + ".npy"])
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    vectors = make_vectors("float32", 20_000)
    return build_lists(tmp_path_factory.mktemp("ivf") / "large", vectors, lists=128, batch_vectors=10_000)


def test_a_join_takes_no_more_than_is_said(large: Path) -> None:
    setup = SETUP.format(index=str(large)) + (
        "need = join_need(files, queries.dtype, len(queries), 20, 32, 2); memory = need.least + (1 << 20)\n"
        "run_join(few, index, path / 'warm.parquet', JoinOptions(20, 32))\n"
    )
    measured = "run_join(queries, index, path / 'r.parquet', JoinOptions(20, 32, memory=memory))\n"
    measured += "print(need.bytes(memory) - FIXED_BYTES)"
    said, took = printed_and_growth(setup, measured)
    assert 0.1 * said < took <= said


def test_learning_takes_no_more_than_is_said(tmp_path: Path) -> None:
    vectors = make_vectors("float32", 20_000)
    index = build_lists(tmp_path / "copied", vectors, lists=128, batch_vectors=2000, copies=4, closure=2.0)
    setup = SETUP.format(index=str(index)) + (
        "from indexmill.pipeline.join.memory import learn_bytes\n"
        "from indexmill.pipeline.join.probes import learn_nprobe\n"
        "from indexmill.pipeline.join.queries import Queries\n"
        "from indexmill.pipeline.mill.progress import Silent\n"
        "learn = lambda given: learn_nprobe(files, Queries(files.centroids, given), 50, 0.9, 2, Silent())\n"
        "learn(few[:20])\n"
        "need = join_need(files, queries.dtype, 200, 50, files.centroids.n_lists, 2)\n"
    )
    said = "need.least + learn_bytes(files, 200, 50) - FIXED_BYTES"
    said, took = printed_and_growth(setup, f"learn(queries)\nprint({said})")
    assert took <= said


def test_a_truth_takes_no_more_than_is_said(large: Path) -> None:
    setup = SETUP.format(index=str(large)) + (
        "need = vectors_need(source, queries, 20, 'l2', 2); memory = need.least + (8 << 20)\n"
        "truth_of_vectors(source, few, 20)\n"
    )
    measured = "truth_of_vectors(source, queries, 20, memory=memory)\nprint(need.bytes(memory) - FIXED_BYTES)"
    said, took = printed_and_growth(setup, measured)
    assert took <= said


@pytest.fixture(scope="module")
def index(built: Built) -> Path:
    return built(build_lists, make_vectors("float32"))


def test_what_was_learnt_must_fit_too(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queries, files = make_vectors("float32", 60, seed=9), IvfFiles(index)
    memory = join_need(files, queries.dtype, 60, 10, 1, 2).least + 1024
    monkeypatch.setattr(steps, "check_learning", lambda *arguments: None)
    monkeypatch.setattr(steps, "learn_nprobe", lambda *arguments: Learnt(20, 0.9, 0.8, 1.0, 60))
    with pytest.raises(BudgetError, match=r"60 queries at nprobe 20 need .*; give more, ask fewer queries"):
        join(index, queries, tmp_path / "r.parquet", nprobe=None, recall=0.9, memory=memory)


def test_the_budget_said_to_be_needed_is_enough(index: Path, tmp_path: Path) -> None:
    queries = make_vectors("float32", 400, seed=9)
    with pytest.raises(BudgetError) as refused:
        join(index, queries, tmp_path / "r.parquet", nprobe=8, memory=1 << 20)
    found = re.search(r"need ([\d,]+) bytes", str(refused.value))
    assert found is not None
    enough = int(found[1].replace(",", ""))
    assert enough > FIXED_BYTES
    assert join(index, queries, tmp_path / "r.parquet", nprobe=8, memory=enough).rows == 4000


def test_queries_may_be_a_mapped_file(index: Path, tmp_path: Path) -> None:
    queries = make_vectors("float32", 60, seed=9)
    np.save(tmp_path / "q.npy", queries)
    join(index, queries, tmp_path / "a.parquet")
    join(index, np.load(tmp_path / "q.npy", mmap_mode="r"), tmp_path / "b.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
