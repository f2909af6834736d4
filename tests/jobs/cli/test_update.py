"""Update jobs on the command line: `build` of a job file with `base`, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.cli import DIM, SMALL, Data, N, build, make_data, run, run_json

import indexmill

#: Options of small builds, by kind.
KINDS: dict[str, list[object]] = {
    "graph": ["--builder", "vamana"],
    "ivf": ["--kind", "ivf", "--lists", "8"],
    "lsh": ["--kind", "lsh", "--n-tables", "4", "-m", "4"],
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    return make_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def built(data: Data) -> dict[str, Path]:
    """An index of each kind, which tests copy."""
    found = {"graph": build(data, data.folder / "graph", *KINDS["graph"])}
    for kind in ("ivf", "lsh"):
        out = data.folder / kind
        done = run(
            "build", "--input", data.base, "--id-column", "name", "--out", out, "--workers", 1, *KINDS[kind]
        )
        assert done.exit_code == 0, done.stderr
        found[kind] = out
    return found


def new_rows(path: Path, names: list[str], seed: int = 7) -> Path:
    vectors = np.random.default_rng(seed).normal(size=(len(names), DIM)).astype(np.float32)
    table = {"name": names, "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIM)}
    pq.write_table(pa.table(table), path)
    return path


def job(folder: Path, **keys: Any) -> Path:
    path = folder / "job.toml"
    path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items()))
    return path


def nightly(folder: Path, index: Path, **more: Any) -> Path:
    """A job that adds ten vectors, replaces two and deletes three."""
    new_rows(folder / "new.parquet", [*(f"new-{i}" for i in range(10)), "item-0", "item-1"])
    (folder / "gone.txt").write_text("item-7\nitem-8\nitem-9\n")
    keys = {"add": "new.parquet", "id_column": "name", "replace": True, "delete": "gone.txt", "workers": 1}
    return job(folder, base=index.name, **keys, **more)


def files_of(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_job_deletes_adds_and_compacts_in_one_generation(
    kind: str, built: dict[str, Path], tmp_path: Path
) -> None:
    index = shutil.copytree(built[kind], tmp_path / "ix")
    report = run_json("build", nightly(tmp_path, index, compact=True))
    assert [step["step"] for step in report["steps"]] == ["delete", "append", "compact"]
    assert [report["steps"][0]["deleted"], report["steps"][1]["added"]] == [3, 12]
    assert [report["steps"][1]["replaced"], report["steps"][2]["removed"]] == [2, 5]
    assert report["manifest"]["input"]["n_vectors"] == N + 10 - 3
    assert files_of(tmp_path) == {"ix", "new.parquet", "gone.txt", "job.toml"}
    assert run("verify", index).exit_code == 0


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_job_that_runs_twice_adds_once(kind: str, built: dict[str, Path], tmp_path: Path) -> None:
    index = shutil.copytree(built[kind], tmp_path / "ix")
    # of so small tables, added ones cost a search so much that "auto" compacts them
    path = nightly(tmp_path, index, compact=False if kind == "lsh" else "auto")
    first = run_json("build", path)
    assert [step["step"] for step in first["steps"]] == ["delete", "append"]
    assert first["manifest"]["deleted"]["vectors"] == 5
    before = (index / "manifest.json").read_bytes()
    again = run_json("build", path)
    assert again["done_before"]
    assert (index / "manifest.json").read_bytes() == before
    new_rows(tmp_path / "new.parquet", ["new-10"])
    assert [step["step"] for step in run_json("build", path)["steps"]] == ["delete", "append"]


def test_a_job_equals_its_commands(built: dict[str, Path], tmp_path: Path) -> None:
    index = shutil.copytree(built["graph"], tmp_path / "ix")
    other = shutil.copytree(built["graph"], tmp_path / "other")
    path = nightly(tmp_path, index, compact=True)
    run_json("build", path)
    run_json("delete", other, "--ids", tmp_path / "gone.txt")
    run_json("append", other, tmp_path / "new.parquet", "--id-column", "name", "--replace", "--workers", 1)
    run_json("compact", other)
    names = {"graph.imx", "codes.imx", "ids.imx", "entries.imx"}
    for name in names:
        assert (index / name).read_bytes() == (other / name).read_bytes(), name


def test_a_job_merges_several_indexes_elsewhere(built: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(built["graph"], tmp_path / "a")
    more = new_rows(tmp_path / "b.parquet", [f"b-{i}" for i in range(60)])
    done = run(
        "build", "--input", more, "--id-column", "name", "--out", tmp_path / "b", *SMALL, *KINDS["graph"]
    )
    assert done.exit_code == 0, done.stderr
    (tmp_path / "gone.txt").write_text("b-1\nitem-3\n")
    path = job(tmp_path, base=["a", "b"], out="both", delete="gone.txt")
    report = run_json("build", path)
    assert [step["step"] for step in report["steps"]] == ["merge", "delete"]
    assert report["manifest"]["input"]["n_vectors"] == N + 60
    assert report["manifest"]["deleted"]["vectors"] == 2
    assert run("build", path).exit_code == 5
    assert run("verify", tmp_path / "both").exit_code == 0


def test_indexes_of_different_kinds_are_refused(built: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(built["ivf"], tmp_path / "a")
    shutil.copytree(built["graph"], tmp_path / "b")
    refused = run("build", job(tmp_path, base=["a", "b"], out="both"))
    assert refused.exit_code == 3
    assert "an index of kind graph; expected ivf" in refused.stderr
    assert not (tmp_path / "both").exists()


def test_only_deleting_keeps_the_generation_before(built: dict[str, Path], tmp_path: Path) -> None:
    index = shutil.copytree(built["graph"], tmp_path / "ix")
    (tmp_path / "gone.txt").write_text("item-7\n")
    path = job(tmp_path, base="ix", delete="gone.txt")
    assert run_json("build", path)["steps"][0]["deleted"] == 1
    assert run_json("build", path)["steps"][0]["deleted"] == 0
    assert run("rollback", index).exit_code == 0
    assert indexmill.open(index).n_deleted == 0


def test_auto_compacts_from_a_fifth(built: dict[str, Path], tmp_path: Path) -> None:
    index = shutil.copytree(built["ivf"], tmp_path / "ix")
    path = job(tmp_path, base="ix", compact="auto")
    printed = run("build", path)
    assert "a compaction is not due yet" in printed.stdout
    np.save(tmp_path / "ids.npy", np.arange(N // 5))
    run_json("delete", index, "--ids", tmp_path / "ids.npy", "--vector-ids")
    assert run_json("build", path)["steps"] == [{"step": "compact", "removed": N // 5}]


def test_a_compaction_is_made_again_after_later_deletions(built: dict[str, Path], tmp_path: Path) -> None:
    index = shutil.copytree(built["lsh"], tmp_path / "ix")
    path = job(tmp_path, base="ix", compact=True)
    for first in (0, 10):
        (tmp_path / "gone.txt").write_text("".join(f"item-{i}\n" for i in range(first, first + 10)))
        run_json("delete", index, "--ids", tmp_path / "gone.txt")
        assert run_json("build", path)["steps"] == [{"step": "compact", "removed": 10}]


def test_a_compaction_without_deletions_makes_added_tables_part_of_the_tables(
    built: dict[str, Path], tmp_path: Path
) -> None:
    index = shutil.copytree(built["lsh"], tmp_path / "ix")
    other = shutil.copytree(index, tmp_path / "other")
    new = new_rows(tmp_path / "new.parquet", ["a", "b"])
    compacting = job(tmp_path, base="ix", compact=True)
    assert run_json("plan", compacting)["stages"] == {}
    assert run_json("build", compacting)["steps"] == []
    both = job(tmp_path, base="ix", add="new.parquet", id_column="name", compact=True, workers=1)
    plan = run_json("plan", both)
    stages = [
        "append ingest",
        "append tables",
        "append seal",
        "append measure",
        "compact tables",
        "compact seal",
        "compact certify",
    ]
    assert list(plan["stages"]) == stages
    assert "note" not in plan
    folded = {"step": "compact", "removed": 0, "folded": 2}
    assert run_json("build", both)["steps"][1:] == [folded]
    run_json("append", other, new, "--id-column", "name", "--workers", 1)
    names = ("tables.imx", "buckets.imx", "ids.imx")
    added = shutil.copytree(other, tmp_path / "added")
    compacted = run_json("compact", other, "--out", tmp_path / "compacted")
    assert (compacted["removed"], compacted["folded"]) == (0, 2)
    printed = run("compact", other).stdout
    assert "added tables, of 2 vectors, became part of the tables" in printed
    assert "deleted vectors" not in printed
    assert [(index / name).read_bytes() for name in names] == [(other / name).read_bytes() for name in names]
    later = job(tmp_path, base="added", compact=True, workers=1)
    planned = run_json("plan", later)["stages"]
    assert list(planned) == stages[4:]
    memory = planned["compact tables"]["memory_bytes"]
    assert memory <= plan["stages"]["compact tables"]["memory_bytes"] < 1.01 * memory
    printed = run("build", later).stdout
    assert "compact: added tables, of 2 vectors, became part of the tables" in printed
    assert [(added / name).read_bytes() for name in names] == [(other / name).read_bytes() for name in names]


def test_a_merge_in_place_is_made_once(built: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(built["graph"], tmp_path / "a")
    more = new_rows(tmp_path / "b.parquet", [f"b-{i}" for i in range(60)])
    done = run(
        "build", "--input", more, "--id-column", "name", "--out", tmp_path / "b", *SMALL, *KINDS["graph"]
    )
    assert done.exit_code == 0, done.stderr
    path = job(tmp_path, base=["a", "b"])
    assert run_json("build", path)["manifest"]["input"]["n_vectors"] == N + 60
    again = run_json("build", path)
    assert again["done_before"]
    assert again["manifest"]["input"]["n_vectors"] == N + 60
    assert "has written the index already" in run("build", path).stdout


def test_a_failed_job_leaves_the_index_and_resumes(built: dict[str, Path], tmp_path: Path) -> None:
    index = shutil.copytree(built["graph"], tmp_path / "ix")
    path = nightly(tmp_path, index)
    before = (index / "manifest.json").read_bytes()
    (tmp_path / "gone.txt").write_text("item-7\nnobody\n")
    refused = run("build", path)
    assert refused.exit_code == 3
    assert f"{index}: 1 of 2 ids are not there: 'nobody'" in refused.stderr
    assert (index / "manifest.json").read_bytes() == before
    assert run_json("build", nightly(tmp_path, index))["manifest"]["input"]["n_vectors"] == N + 12


@pytest.mark.parametrize(
    ("keys", "code", "said"),
    [
        ({"base": "ix", "ad": "new.parquet"}, 2, "unknown key 'ad'; did you mean 'add'?"),
        ({"base": "ix"}, 2, "base"),
        ({"add": "new.parquet"}, 2, "base: missing"),
        ({"base": "ix", "replace": True, "compact": True}, 2, "replace: goes with add"),
        ({"base": "ix", "missing": "ignore", "compact": True}, 2, "missing: goes with delete"),
        ({"base": "ix", "add": "new.parquet", "workers": 0}, 2, "workers: "),
        ({"base": "ix", "compact": "often"}, 2, "compact"),
        ({"base": "ix", "delete": "nothing.txt"}, 3, "nothing.txt: no such file"),
        ({"base": "nowhere", "delete": "gone.txt"}, 3, "nowhere: no such index"),
        ({"base": "ix", "add": "nothing.npy"}, 3, "nothing.npy"),
        ({"base": "s3://bucket/ix", "compact": True}, 2, "base: s3://bucket/ix is a URL"),
        ({"base": "ix", "add": "new.parquet", "replace": True}, 3, "id"),
    ],
)
def test_a_bad_job_is_refused_and_changes_nothing(
    keys: dict[str, Any], code: int, said: str, built: dict[str, Path], tmp_path: Path
) -> None:
    index = shutil.copytree(built["ivf"], tmp_path / "ix")
    new_rows(tmp_path / "new.parquet", ["new-1"])
    (tmp_path / "gone.txt").write_text("item-1\n")
    before = (index / "manifest.json").read_bytes()
    refused = run("build", job(tmp_path, **keys))
    assert refused.exit_code == code, refused.stderr
    assert said in refused.stderr
    assert (index / "manifest.json").read_bytes() == before


def test_flags_override_the_file_and_others_are_refused(built: dict[str, Path], tmp_path: Path) -> None:
    index = shutil.copytree(built["ivf"], tmp_path / "ix")
    path = nightly(tmp_path, index)
    refused = run("build", path, "-R", 32)
    assert refused.exit_code == 2
    assert "goes with a build" in refused.stderr
    run_json("build", path, "--out", tmp_path / "there")
    assert indexmill.open(index).n_deleted == 0
    assert indexmill.open(tmp_path / "there").n_deleted == 5
