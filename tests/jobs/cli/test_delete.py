"""`delete`, `rollback`, `gc` and `inspect --history` on the command line."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from tests.support.cli import Data, K, N, build, make_data, run, run_json

import indexmill


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    return make_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def built(data: Data) -> Path:
    return build(data, data.folder / "index")


@pytest.fixture
def index(built: Path, tmp_path: Path) -> Path:
    return shutil.copytree(built, tmp_path / "ix")


def test_ids_come_from_files_of_every_type(data: Data, index: Path, tmp_path: Path) -> None:
    two = pa.table({"name": data.names[:2], "other": [1, 2]})
    pq.write_table(two, tmp_path / "two.parquet")
    feather.write_feather(
        pa.table({"name": data.names[2:4]}), tmp_path / "two.arrow", compression="uncompressed"
    )
    np.save(tmp_path / "two.npy", np.array(data.names[4:6]))
    (tmp_path / "two.txt").write_text("\n".join(data.names[6:8]) + "\n\n")
    for i, name in enumerate(("two.parquet", "two.arrow", "two.npy", "two.txt")):
        more = ["--id-column", "name"] if name == "two.parquet" else []
        report = run_json("delete", index, "--ids", tmp_path / name, *more)
        assert (report["deleted"], report["generation"]) == (2, i + 2), name
    np.save(tmp_path / "rows.npy", np.array([8, 9]))
    assert run_json("delete", index, "--ids", tmp_path / "rows.npy", "--vector-ids")["deleted"] == 2
    (tmp_path / "rows.txt").write_text("10\n11\n010\n")
    report = run_json("delete", index, "--ids", tmp_path / "rows.txt", "--vector-ids")
    assert (report["deleted"], report["ids"], report["vectors"]) == (2, 2, N - 12)
    rows = run_json("search", index, "--queries", data.queries, "-k", K, "-L", N)
    assert min(row["vector_id"] for row in rows) >= 12
    assert run("verify", index).exit_code == 0


def test_words_say_what_was_deleted(data: Data, index: Path, tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_text("item-1\nnothing\n")
    result = run("delete", index, "--ids", tmp_path / "ids.txt")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "1 of 2 ids are not there: 'nothing'; nothing was deleted" in result.stderr
    result = run("delete", index, "--ids", tmp_path / "ids.txt", "--missing", "ignore")
    assert result.exit_code == 0
    assert f"1 vectors deleted, {N - 1} left; generation 2" in result.stdout
    assert "1 of 2 ids are not there" in result.stdout
    result = run("delete", index, "--ids", tmp_path / "ids.txt", "--missing", "ignore")
    assert "0 vectors deleted" in result.stdout
    assert "1 of 2 ids were deleted before" in result.stdout
    shown = run("inspect", index).stdout
    assert "of which 1 are deleted" in shown
    assert ", generation 2" in shown


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "--ids: missing"),
        (["--ids", "none.npy"], 3, "no such file; expected ids: .npy, .parquet, .arrow, .feather or .txt"),
        (["--ids", "two.csv"], 3, "a file of unknown type"),
        (["--ids", "two.parquet"], 3, "2 columns; name the one that holds the ids"),
        (["--ids", "two.parquet", "--id-column", "c"], 3, "no column 'c'; columns are a, b"),
        (["--ids", "two.parquet", "--id-column", "a"], 3, "ids are of type string, got ids of type int64"),
        (
            ["--ids", "words.txt", "--vector-ids"],
            3,
            "words.txt: line 1: ids are whole numbers (uint32), got 'one'",
        ),
        (["--ids", "words.txt", "--missing", "warn"], 2, "--missing: expected one of error, ignore"),
    ],
)
def test_what_cannot_be_deleted_is_refused(
    index: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"a": [1, 2], "b": [3, 4]}), "two.parquet")
    Path("two.csv").write_text("1,2\n")
    Path("words.txt").write_text("one\n")
    result = run("delete", index, *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr
    assert indexmill.open(index).n_deleted == 0
    assert run("delete", tmp_path / "none", "--ids", "words.txt").exit_code == 3


def test_the_history_is_shown_gone_back_in_and_cleaned_up(data: Data, index: Path, tmp_path: Path) -> None:
    for i in range(2):
        np.save(tmp_path / "rows.npy", np.array([i]))
        run_json("delete", index, "--ids", tmp_path / "rows.npy", "--vector-ids")
    assert run_json("rollback", index)["restored"] == 2
    told = run_json("inspect", index, "--history")["generations"]
    assert [(one["generation"], one["deleted"], one["present"]) for one in told] == [
        (1, 0, False), (2, 1, False), (3, 2, False), (4, 1, True)
    ]  # fmt: skip
    text = run("inspect", index, "--history").stdout
    assert "4, present" in text
    assert f"{N - 2}" in text
    damaged = index / "manifest-000001.json"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    told = run_json("inspect", index, "--history")
    assert [one["generation"] for one in told["generations"]] == [2, 3, 4]
    assert [str(damaged) in message for message in told["damaged"]] == [True]
    assert str(damaged) in run("inspect", index, "--history").stdout
    report = run_json("gc", index, "--keep-generations", 2)
    assert report["generations"] == [3, 4]
    assert "generations kept: 4" in run("gc", index).stdout
    result = run("rollback", index, "--to", 1)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "is not kept" in result.stderr
