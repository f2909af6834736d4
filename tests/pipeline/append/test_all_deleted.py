"""Vectors that are added to an index of which every vector was deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from tests.support.indexes.builds import assert_sound
from tests.support.indexes.deleted import DIM, KINDS, LISTS, NAMES, VECTORS, Built, N, build_all

import indexmill
from indexmill.jobs.updatefile import given_to
from indexmill.pipeline.update.plan import plan_update
from indexmill.pipeline.update.run import run_update
from indexmill.pipeline.update.spec import UpdateSpec

#: Vectors that are added: hash tables of those deleted hash them, too.
ADDED = 30
HOW: dict[str, dict[str, Any]] = {
    "graph": {"L": 2 * N}, "ivf": {"nprobe": LISTS}, "lsh": {"candidates": 10**6}
}  # fmt: skip


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build_all(tmp_path_factory.mktemp("all-deleted"))


def ids_of(first: int) -> list[str]:
    return [f"new-{i}" for i in range(first, first + ADDED)]


def found(index: Path, rows: NDArray[Any]) -> list[int]:
    """Check an index; return the vector id of the nearest vector of each row."""
    assert_sound(index)
    opened: Any = indexmill.open(index)
    ids: list[int] = opened.search(rows, 1, **HOW[opened.kind]).vector_ids[:, 0].tolist()
    return ids


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_added_is_found_and_nothing_else(kind: str, built: Built, tmp_path: Path) -> None:
    index = built.copy(kind, tmp_path / "ix")
    indexmill.delete(index, NAMES)
    for first in (0, ADDED):
        indexmill.append(index, VECTORS[first : first + ADDED], ids=ids_of(first), workers=1)
    rows = VECTORS[: 2 * ADDED]
    assert found(index, rows) == list(range(N, N + 2 * ADDED))
    opened: Any = indexmill.compact(index, workers=1)
    assert (len(opened), opened.n_deleted) == (2 * ADDED, 0)
    assert found(index, rows) == list(range(2 * ADDED))
    indexmill.append(index, VECTORS[2 * ADDED : 3 * ADDED], ids=ids_of(2 * ADDED), workers=1)
    assert found(index, VECTORS[: 3 * ADDED]) == list(range(3 * ADDED))


@pytest.mark.parametrize("compact", [False, "auto"])
@pytest.mark.parametrize("before", [True, False], ids=["before", "by the job"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_update_adds_to_what_is_empty(
    kind: str, before: bool, compact: bool | str, built: Built, tmp_path: Path
) -> None:
    index = built.copy(kind, tmp_path / "ix")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS[:ADDED].ravel()), DIM)
    pq.write_table(pa.table({"id": ids_of(0), "vector": vectors}), tmp_path / "add.parquet")
    keys: dict[str, Any] = {"base": str(index), "add": str(tmp_path / "add.parquet"), "id_column": "id"}
    if before:
        indexmill.delete(index, NAMES)
    else:
        (tmp_path / "gone.txt").write_text("\n".join(NAMES))
        keys["delete"] = str(tmp_path / "gone.txt")
    spec = UpdateSpec.model_validate({**keys, "compact": compact, "workers": 1})
    plan = plan_update(spec, given_to(spec))
    result = run_update(spec, given_to(spec))
    gone = 0 if compact else N
    assert found(index, VECTORS[:ADDED]) == list(range(gone, gone + ADDED))
    assert result.manifest["input"]["n_vectors"] == gone + ADDED
    assert (plan.vectors, plan.deleted) == (gone + ADDED, gone)
