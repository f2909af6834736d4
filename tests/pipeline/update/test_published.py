"""What an update job publishes where its index lies: nothing, deletions, or a new directory, each with a way back."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError
from tests.support.indexes.append import manifest
from tests.support.indexes.builds import assert_sound
from tests.support.indexes.deleted import DIM, KINDS, NAMES, VECTORS, Built, build_all, found_in

import indexmill
from indexmill.jobs.updatefile import given_to
from indexmill.pipeline.update.plan import plan_update
from indexmill.pipeline.update.run import UpdateResult, run_update
from indexmill.pipeline.update.spec import UpdateSpec

#: Steps that a job may have together.
COMBINATIONS = [
    ("delete",),
    ("add",),
    ("compact",),
    ("delete", "add"),
    ("delete", "compact"),
    ("add", "compact"),
    ("delete", "add", "compact"),
    ("merge",),
    ("merge", "delete"),
    ("merge", "delete", "add", "compact"),
]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build_all(tmp_path_factory.mktemp("update"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Rows to add, and ids to delete."""
    rows = np.random.default_rng(3).integers(0, 60, (10, DIM)).astype(np.uint8)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), DIM)
    pq.write_table(
        pa.table({"id": [f"new-{i}" for i in range(10)], "vector": vectors}), tmp_path / "add.parquet"
    )
    (tmp_path / "gone.txt").write_text("\n".join(NAMES[:5]))
    return tmp_path


def spec_of(folder: Path, steps: tuple[str, ...], **more: Any) -> UpdateSpec:
    keys: dict[str, Any] = {"base": str(folder / "ix"), "workers": 1}
    if "merge" in steps:
        keys |= {"base": [str(folder / "ix"), str(folder / "other")], "force": True}
    if "delete" in steps:
        keys["delete"] = str(folder / "gone.txt")
    if "add" in steps:
        keys |= {"add": str(folder / "add.parquet"), "id_column": "id"}
    if "compact" in steps:
        keys["compact"] = True
    return UpdateSpec.model_validate({**keys, **more})


def build_other(folder: Path, kind: str) -> Path:
    """An index of the same vectors under other ids."""
    out = folder / "other"
    indexmill.build(VECTORS, out, ids=[f"other-{name}" for name in NAMES], workers=1, **KINDS[kind])
    return out


def run(spec: UpdateSpec) -> UpdateResult:
    return run_update(spec, given_to(spec))


def names(result: UpdateResult) -> list[str]:
    return [step["step"] for step in result.steps]


def as_it_is(index: Path) -> dict[str, bytes]:
    """All files of an index, those of kept generations among them."""
    return {
        str(path.relative_to(index)): path.read_bytes() for path in sorted(index.rglob("*")) if path.is_file()
    }


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_that_finds_all_ids_deleted_changes_nothing(kind: str, built: Built, folder: Path) -> None:
    index = built.copy(kind, folder / "ix")
    indexmill.delete(index, NAMES[:5])
    before = as_it_is(index)
    for compact in ("auto", False):
        result = run(spec_of(folder, ("delete",), missing="ignore", compact=compact))
        assert (names(result), result.steps[0]["deleted"]) == (["delete"], 0)
        assert result.manifest == manifest(index)
    assert as_it_is(index) == before
    assert sorted(os.listdir(folder)) == ["add.parquet", "gone.txt", "ix"]
    assert_sound(index)


@pytest.mark.parametrize("kind", KINDS)
def test_a_compaction_of_nothing_keeps_the_way_back(kind: str, built: Built, folder: Path) -> None:
    index = built.copy(kind, folder / "ix")
    found = found_in(index)[0]
    indexmill.delete(index, NAMES[:5])
    assert names(run(spec_of(folder, ("compact",)))) == ["compact"]
    before = as_it_is(index)
    assert run(spec_of(folder, ("compact",))).steps == []
    assert as_it_is(index) == before
    indexmill.rollback(index)
    assert found_in(index)[0] == found - set(range(5))
    assert_sound(index)


def test_a_graph_is_laid_out_again_without_deletions(built: Built, folder: Path) -> None:
    index = built.copy("graph", folder / "ix")
    other = built.copy("graph", folder / "alone")
    run(spec_of(folder, ("add",)))
    indexmill.append(other, str(folder / "add.parquet"), id_column="id", workers=1)
    assert names(run(spec_of(folder, ("compact",)))) == ["compact"]
    indexmill.compact(other, workers=1)
    assert (index / "graph.imx").read_bytes() == (other / "graph.imx").read_bytes()
    assert run(spec_of(folder, ("compact",))).steps == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", COMBINATIONS, ids="-".join)
def test_every_job_can_be_undone(steps: tuple[str, ...], kind: str, built: Built, folder: Path) -> None:
    index = built.copy(kind, folder / "ix")
    if "merge" in steps:
        build_other(folder, kind)
    indexmill.delete(index, NAMES[10:13])
    before, base = found_in(index)[0], manifest(index)
    published = run(spec_of(folder, steps)).manifest
    assert published == manifest(index)
    if steps != ("delete",):
        assert published["parents"][0] == base["build_id"]
    assert_sound(index)
    assert indexmill.rollback(index)["restored"] == base["generation"]
    assert found_in(index)[0] == before
    assert_sound(index)


def test_the_descent_of_a_job_names_its_bases_and_then_its_steps(built: Built, folder: Path) -> None:
    first, second = built.copy("ivf", folder / "ix"), build_other(folder, "ivf")
    indexmill.append(second, np.zeros((2, DIM), np.uint8), ids=["a", "b"], workers=1)
    bases = [manifest(first)["build_id"], manifest(second)["build_id"]]
    published = run(spec_of(folder, ("merge", "delete", "add"))).manifest
    assert published["parents"] == bases
    assert len(published["ancestors"]) == 2  # the build of the second one, and the merge
    assert not set(published["ancestors"]) & {*bases, published["build_id"]}
    with pytest.raises(Exception, match="in common"):
        indexmill.merge(first, second, workers=1)


def test_deletions_alone_share_the_directory(built: Built, folder: Path) -> None:
    index = built.copy("ivf", folder / "ix")
    indexmill.append(index, np.zeros((2, DIM), np.uint8), ids=["a", "b"], workers=1)
    before, inodes = as_it_is(index), {path.name: path.stat().st_ino for path in index.glob("*.imx")}
    result = run(spec_of(folder, ("delete",), compact="auto"))
    assert names(result) == ["delete"]
    assert (result.manifest["generation"], result.manifest["deleted"]["previous"]) == (3, 2)
    assert result.manifest == manifest(index)
    after = as_it_is(index)
    assert set(after) - set(before) == {"deleted-000003.imx", "manifest-000002.json"}
    assert {name for name in before if after[name] != before[name]} == {"manifest.json"}
    assert all((index / name).stat().st_ino == inode for name, inode in inodes.items())
    assert indexmill.rollback(index)["restored"] == 2
    assert indexmill.rollback(index, 1)["restored"] == 1


def test_a_result_elsewhere_was_made_from_its_base(built: Built, folder: Path) -> None:
    index = built.copy("ivf", folder / "ix")
    for _ in range(2):
        indexmill.delete(index, NAMES[20:22])
        indexmill.rollback(index, 1)
    base = manifest(index)
    there = run(spec_of(folder, ("delete", "add"), out=str(folder / "there"))).manifest
    assert there["deleted"]["previous"] == base["generation"]
    assert there["parents"] == [base["build_id"]]
    assert_sound(folder / "there")


def test_an_output_among_the_other_bases_is_refused(built: Built, folder: Path) -> None:
    built.copy("ivf", folder / "ix")
    build_other(folder, "ivf")
    with pytest.raises(ValidationError, match=r"out: .*other is merged into .*ix; name it first in base"):
        spec_of(folder, ("merge",), out=str(folder / "x" / ".." / "other"))
    (folder / "x").mkdir()
    (folder / "link").symlink_to(folder / "other")
    with pytest.raises(ValidationError, match="name it first in base"):
        spec_of(folder, ("merge",), out=str(folder / "link"))
    assert run(spec_of(folder, ("merge",), out=str(folder / "ix"))).manifest["generation"] == 2


def test_the_plan_of_a_compaction_of_nothing_is_empty(built: Built, folder: Path) -> None:
    for kind in ("ivf", "lsh"):
        index = built.copy(kind, folder / "ix")
        spec = spec_of(folder, ("compact",))
        assert plan_update(spec, given_to(spec)).stages == {}
        shutil.rmtree(index)
    index = built.copy("graph", folder / "ix")
    assert "where it is laid out" in (
        plan_update(spec := spec_of(folder, ("compact",)), given_to(spec)).note or ""
    )
