"""Merges that a plan refuses in the words of the job."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.indexes.deleted import DIM, KINDS, NAMES, VECTORS, Built, build_all

import indexmill
from indexmill.formats.errors import InputError
from indexmill.jobs.updatefile import given_to
from indexmill.pipeline.append import addition
from indexmill.pipeline.merge import record
from indexmill.pipeline.update.plan import plan_update
from indexmill.pipeline.update.run import run_update
from indexmill.pipeline.update.spec import UpdateSpec


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build_all(tmp_path_factory.mktemp("refused"))


def assert_refused_alike(folder: Path, said: str, second: str = "other", **more: Any) -> None:
    bases = [str(folder / "ix"), str(folder / second)]
    spec = UpdateSpec.model_validate({"base": bases, "workers": 1, "out": str(folder / "out"), **more})
    words = []
    for run in (plan_update, run_update):
        with pytest.raises(InputError, match=said) as refused:
            run(spec, given_to(spec))
        words.append(str(refused.value))
    assert words[0] == words[1]


def build(out: Path, kind: str, rows: Any = VECTORS, prefix: str = "other", **how: Any) -> Path:
    ids = [f"{prefix}-{i}" for i in range(len(rows))]
    indexmill.build(rows, out, ids=ids, workers=1, **{**KINDS[kind], **how})
    return out


@pytest.mark.parametrize("kind", KINDS)
def test_indexes_that_do_not_go_together(kind: str, built: Built, tmp_path: Path) -> None:
    index = built.copy(kind, tmp_path / "ix")
    assert_refused_alike(tmp_path, "the same index twice", "ix")
    shutil.copytree(index, tmp_path / "copy")
    assert_refused_alike(tmp_path, "a copy of the same index", "copy")
    assert_refused_alike(tmp_path, "is not unique", "copy", force=True)
    build(tmp_path / "wide", kind, np.concatenate([VECTORS, VECTORS[:, :1]], axis=1))
    assert_refused_alike(tmp_path, f"dimension {DIM + 1}; expected {DIM}", "wide")
    build(tmp_path / "floats", kind, VECTORS.astype(np.float32))
    assert_refused_alike(tmp_path, "dtype float32; expected uint8", "floats")
    indexmill.append(index, VECTORS[:2], ids=["a", "b"], out=tmp_path / "grown", workers=1)
    assert_refused_alike(tmp_path, "in common", "grown")
    build(tmp_path / "other", kind)
    indexmill.delete(tmp_path / "other", np.arange(len(VECTORS)), by="vector")
    assert_refused_alike(tmp_path, f"all {len(NAMES)} vectors were deleted")


@pytest.mark.parametrize("kind", KINDS)
def test_more_vectors_than_an_index_holds(
    kind: str, built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built.copy(kind, tmp_path / "ix")
    build(tmp_path / "other", kind)
    for module in (addition, record):
        monkeypatch.setattr(module, "MAX_VECTORS", 2 * len(VECTORS) - 1)
    assert_refused_alike(tmp_path, "one index holds at most 239")


def test_lists_of_codes_without_vectors(tmp_path: Path) -> None:
    how: dict[str, Any] = {"codec": "pq", "pq_bytes": 3}
    build(tmp_path / "ix", "ivf", prefix="ix", **how)
    build(tmp_path / "other", "ivf", seed=2, **how)
    assert_refused_alike(tmp_path, "and no exact vectors that could be assigned anew")
