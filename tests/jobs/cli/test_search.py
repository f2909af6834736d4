"""`indexmill search`, `verify` and `inspect` on a small index."""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.cli import DIM, QUERIES, Data, N, build, make_data, run, run_json

from indexmill.formats.index.manifest import read_manifest, write_manifest
from indexmill.reader.index import Index


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    return make_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def index(data: Data) -> Path:
    return build(data, data.folder / "index", "--metadata-columns", "score,colour")


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_search_writes_ids_scores_and_metadata(data: Data, index: Path, tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"results{suffix}"
    said = run_json("search", index, "--queries", data.queries, "-k", 5, "-L", 100, "--out", out)
    assert said == {"out": str(out), "rows": 5 * QUERIES, "queries": QUERIES}
    table = pq.read_table(out) if suffix == ".parquet" else pa.ipc.open_file(out).read_all()
    assert table.schema.names == ["query", "rank", "id", "vector_id", "score", "metadata_score", "colour"]
    assert [str(t) for t in table.schema.types[:5]] == ["int64", "int32", "string", "int64", "float"]
    rows = table["vector_id"].to_numpy()
    assert table["id"].to_pylist() == [data.names[row] for row in rows]
    assert table["metadata_score"].to_pylist() == [row / 2 for row in rows]
    queries = data.query_vectors[table["query"].to_numpy()]
    distances = ((data.vectors[rows] - queries) ** 2).sum(axis=1)
    np.testing.assert_allclose(table["score"].to_numpy(), distances, rtol=1e-5)
    first = table.filter(pa.compute.equal(table["rank"], 0))["vector_id"].to_numpy()
    assert (first == data.truth_ids[:, 0]).mean() > 0.9
    assert not list(tmp_path.glob(".*"))


def test_search_prints_json_or_a_table_without_a_file(data: Data, index: Path) -> None:
    rows = run_json(
        "search", index, "--queries", data.queries, "-k", 2, "--policy", "beam", "--entry", "medoid"
    )
    assert len(rows) == 2 * QUERIES
    assert rows[0].keys() == {"query", "rank", "id", "vector_id", "score", "metadata_score", "colour"}
    shown = run("search", index, "--queries", data.queries, "-k", 2)
    assert rows[0]["id"] in shown.stdout
    assert "more rows" in shown.stdout


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["-k", str(N + 1)], 3, str(N)),
        (["--policy", "pages"], 2, "got 'pages'; did you mean 'page'?"),
        (["--entry", "middle"], 2, "--entry: expected one of auto, navigation"),
        (
            ["--engine", "uring"],
            2,
            "--engine: expected one of auto, io_uring, sqpoll, pread, mmap, memory, ranges or simulated:",
        ),
        (["--out", "results.csv"], 2, ".parquet or .arrow"),
        (["--out", "nowhere/results.parquet"], 2, "the folder nowhere does not exist"),
    ],
)
def test_a_search_that_cannot_be_is_refused(
    data: Data, index: Path, options: list[str], code: int, said: str
) -> None:
    result = run("search", index, "--queries", data.queries, *options)
    assert result.exit_code == code
    assert said in result.stderr


def test_queries_of_another_dimension_are_refused(index: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "wide.npy", np.zeros((2, DIM + 1), np.float32))
    result = run("search", index, "--queries", tmp_path / "wide.npy")
    assert result.exit_code == 3
    assert str(DIM) in result.stderr
    assert str(DIM + 1) in result.stderr


def test_results_are_not_replaced_without_force(data: Data, index: Path, tmp_path: Path) -> None:
    out = tmp_path / "results.parquet"
    out.write_text("precious")
    assert run("search", index, "--queries", data.queries, "--out", out).exit_code == 5
    assert out.read_text() == "precious"
    assert run("search", index, "--queries", data.queries, "--out", out, "--force").exit_code == 0


def test_verify_says_how_much_it_checked(index: Path) -> None:
    said = run_json("verify", index)
    assert said["sound"]
    assert said["damages"] == []
    assert said["files"] == 6
    assert said["bytes"] == sum(path.stat().st_size for path in index.iterdir() if "json" not in path.suffix)
    assert "sound; 6 files" in run("verify", index).stdout


@pytest.mark.parametrize(
    "name",
    [
        "graph.imx",
        "codes.imx",
        "ids.imx",
        "entries.imx",
        "navigation.imx",
        "metadata.parquet",
        "manifest.json",
    ],
)
def test_verify_finds_one_changed_byte_and_exits_with_6(index: Path, tmp_path: Path, name: str) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(index, broken)
    raw = bytearray((broken / name).read_bytes())
    raw[len(raw) // 3] ^= 1
    (broken / name).write_bytes(raw)
    result = run("verify", broken)
    assert result.exit_code == 6
    assert name in result.stderr
    said = run("verify", broken, "--json")
    assert said.exit_code == 6
    assert any(name in damage for damage in json.loads(said.stdout)["damages"])


def test_what_is_no_index_is_told_from_a_damaged_one(data: Data, tmp_path: Path) -> None:
    for command in ("verify", "inspect"):
        for path, said in (
            (tmp_path / "none", "no such index"),
            (tmp_path, "no manifest.json"),
            (data.base, "not an index"),
        ):
            result = run(command, path)
            assert result.exit_code == 3
            assert said in result.stderr


def test_inspect_shows_manifest_headers_and_run(index: Path) -> None:
    said = run_json("inspect", index)
    assert said["manifest"] == json.loads((index / "manifest.json").read_text())
    assert said["run"] == json.loads((index / "run.json").read_text())
    assert said["headers"]["graph.imx"]["kind"] == "GRPH"
    assert said["headers"]["graph.imx"]["fields"]["n_vertices"] == N
    assert said["headers"]["ids.imx"]["sections"].keys() == {"vector_ids", "offsets", "bytes", "crc"}
    shown = run("inspect", index).stdout
    for text in (
        "parameters: kind graph",
        "recall@10",
        "nodes per page",
        "seconds",
        "navigation: 500 vertices",
        "memory when open: ",
    ):
        assert text in shown


@pytest.mark.parametrize("flags", [[], ["--navigation", "0"], ["--node-dtype", "sq8"]])
def test_inspect_knows_without_opening_what_an_open_index_holds(
    data: Data, tmp_path: Path, flags: list[str]
) -> None:
    out = build(data, tmp_path / "ix", *flags)
    said, native = run_json("inspect", out), Index(out).native
    assert sum(said["memory_bytes"].values()) == native.memory_bytes
    assert native.n_navigation == (0 if "0" in flags else N)
    assert ("navigation.imx" in said["headers"]) == (native.n_navigation > 0)
    assert ("navigation: none" in run("inspect", out).stdout) == (native.n_navigation == 0)


def test_a_sealed_manifest_without_what_is_shown_is_damage_not_a_crash(index: Path, tmp_path: Path) -> None:
    strange = tmp_path / "strange"
    shutil.copytree(index, strange)
    write_manifest(strange, replace(read_manifest(strange), certificate={"recall": "[bold]high[/bold]"}))
    result = run("inspect", strange)
    assert result.exit_code == 6
    assert "certificate.k" in result.stderr


def test_inspect_works_without_run_json(index: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(index, moved)
    (moved / "run.json").unlink()
    assert run_json("inspect", moved)["run"] == {}
    assert run("inspect", moved).exit_code == 0


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (errno.ENOSPC, "No space left on device"),
        (errno.EDQUOT, "Disk quota exceeded"),
        (errno.EFBIG, "File too large; the file system or `ulimit -f` allows no larger file"),
    ],
)
def test_a_disk_that_takes_no_more_is_one_error_with_the_file_and_what_to_do(
    data: Data, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, reason: str
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(pq, "write_table", full)
    out = tmp_path / "found.parquet"
    result = run("search", index, "--queries", data.queries, "--out", out)
    assert result.exit_code == 4
    said = f"error: {out}: {reason}; free some space or write elsewhere, and run again"
    assert result.stderr.splitlines()[-1] == said
    assert list(tmp_path.iterdir()) == []
