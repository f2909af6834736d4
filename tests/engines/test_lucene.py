"""Exports to Lucene, opened and searched by lucene-core as it is."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.engines.environments import lucene_classpath, lucene_exporter
from tests.oracles.files.small_index import random_vectors, write_small_index
from tests.support.indexes.append import build
from tests.support.indexes.builds import data_files
from tests.support.indexes.export import (
    K,
    assert_same_except_ties,
    id_map,
    our_search,
    our_search_counted,
    permuted_lists,
    record,
    whole_points,
)

import indexmill
from indexmill.formats.errors import ConfigError, ToolError

N = 3000
QUERIES = whole_points(60, seed=8)


@pytest.fixture(scope="module", autouse=True)
def exporter() -> Path:
    return lucene_exporter()


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("lucene") / "ix", whole_points(N), R=16, pq_bytes=8)


def java(*arguments: object) -> str:
    command = ["java", "-cp", lucene_classpath(), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def search(folder: Path, queries: np.ndarray, k: int) -> tuple[np.ndarray, int]:
    """Return the k documents of each query, (q, k), and how many vectors were visited."""
    asked = folder.parent / "queries.bin"
    (queries if queries.dtype == np.int8 else queries.astype(">f4")).tofile(asked)
    lines = java("Search", "vectors", folder / "index", asked, k).splitlines()
    return np.array([[int(word) for word in line.split()] for line in lines[:-1]]), int(lines[-1])


def check_index(folder: Path) -> None:
    found = java("org.apache.lucene.index.CheckIndex", "-slow", folder / "index")
    assert "No problems were detected with this index." in found


def right(index: Path, found: np.ndarray) -> float:
    """Return the share of true neighbours that are found."""
    nearest = indexmill.open(index).search(QUERIES, K, L=N).slots
    hits = [len(set(row[:K].tolist()) & set(true.tolist())) for row, true in zip(found, nearest, strict=True)]
    return float(np.mean(hits)) / K


def terms(folder: Path, field: str, kind: str, value: str) -> set[int]:
    """Return the documents that an exact query finds."""
    return {int(word) for word in java("Search", "terms", folder / "index", field, kind, value).split()}


@pytest.mark.parametrize("list_size", [10, 16, 64])
def test_lucene_answers_as_our_own_search_does(index: Path, tmp_path: Path, list_size: int) -> None:
    indexmill.export(index, "lucene", tmp_path / "out")
    theirs, visited = search(tmp_path / "out", QUERIES, list_size)
    ours, computed = our_search_counted(index, QUERIES, list_size, list_size)
    assert_same_except_ties(index, QUERIES, theirs, ours)
    assert visited == pytest.approx(computed, rel=0.03)


def test_a_graph_with_permuted_lists_does_not_pass(index: Path, tmp_path: Path) -> None:
    indexmill.export(permuted_lists(index, tmp_path / "wrong"), "lucene", tmp_path / "out")
    theirs, _ = search(tmp_path / "out", QUERIES, 16)
    with pytest.raises(AssertionError):
        assert_same_except_ties(index, QUERIES, theirs, our_search(index, QUERIES, 16, 16))


def test_a_graph_of_lucene_s_own_does_not_pass_but_finds_neighbours(index: Path, tmp_path: Path) -> None:
    indexmill.export(index, "lucene-build", tmp_path / "out")
    check_index(tmp_path / "out")
    theirs, _ = search(tmp_path / "out", QUERIES, 64)
    with pytest.raises(AssertionError):
        assert_same_except_ties(index, QUERIES, theirs, our_search(index, QUERIES, 64, 64))
    assert right(index, theirs) > 0.95


@pytest.mark.parametrize(
    ("dtype", "metric", "dim"),
    [
        ("float32", "l2", 16),
        ("float32", "ip", 16),
        ("float32", "cosine", 16),
        ("uint8", "l2", 16),
        ("int8", "l2", 16),
        ("float16", "l2", 16),
        ("sq8", "l2", 16),
        ("float32", "l2", 1536),
    ],
)
def test_every_type_and_metric_finds_what_we_find(tmp_path: Path, dtype: str, metric: str, dim: int) -> None:
    n = 300
    small = write_small_index(tmp_path / "ix", n=n, dim=dim, dtype=dtype, metric=metric, id_type="none", R=12)
    indexmill.export(small.path, "lucene", tmp_path / "out")
    check_index(tmp_path / "out")
    queries = random_vectors(np.random.default_rng(3), 20, dim, dtype)
    mine = indexmill.open(small.path).search(queries, K, L=n).slots
    asked = (queries ^ np.uint8(128)).view(np.int8) if dtype == "uint8" else queries
    theirs, _ = search(tmp_path / "out", asked, n)
    assert (theirs[:, :K] == mine).mean() > 0.98


def stored(folder: Path) -> list[dict[str, str]]:
    """Return the stored fields of each document, as text."""
    documents: list[dict[str, str]] = []
    for line in java("Search", "fields", folder / "index").splitlines():
        number, name, value = line.split("\t")
        if int(number) == len(documents):
            documents.append({})
        documents[int(number)][name] = value
    return documents


@pytest.mark.parametrize("target", ["lucene", "lucene-build"])
def test_documents_have_ids_and_metadata_that_queries_find(tmp_path: Path, target: str) -> None:
    n = 3000
    metadata = pa.table(
        {
            "colour": pa.array([None if i % 7 == 0 else f"c{i % 5}" for i in range(n)]).dictionary_encode(),
            "price": [None if i % 3 == 0 else i / 4 for i in range(n)],
            "year": pa.array([None if i % 4 == 0 else i - 100 for i in range(n)], pa.int16()),
            "slot": [i % 2 == 0 for i in range(n)],
            # 25 MB of terms: the exporter flushes a segment before the end
            "long": [str(i) + "w" * 40_000 if i % 4 == 0 else "" for i in range(n)],
        }
    )  # fmt: skip
    index = build(
        tmp_path / "ix", whole_points(n, 4), ids=[f"name {i}" for i in range(n)], metadata=metadata, R=4
    )
    indexmill.export(index, target, tmp_path / "out")
    check_index(tmp_path / "out")
    rows = id_map(tmp_path / "out").to_pylist()
    documents = stored(tmp_path / "out")
    assert len(documents) == n
    for row, document in zip(rows, documents, strict=True):
        i = row["vector_id"]
        expected: dict[str, Any] = {
            "slot": str(row["slot"]),
            "id": f"name {i}",
            "metadata_slot": str(i % 2 == 0).lower(),
        }
        expected |= {} if i % 7 == 0 else {"colour": f"c{i % 5}"}
        expected |= {} if i % 3 == 0 else {"price": str(i / 4)}
        expected |= {} if i % 4 == 0 else {"year": str(i - 100)}
        expected["long"] = metadata["long"][i].as_py()
        assert document == expected
    slot_of = {row["vector_id"]: row["slot"] for row in rows}

    assert terms(tmp_path / "out", "id", "text", "name 2321") == {slot_of[2321]}
    assert terms(tmp_path / "out", "price", "double", "250.25") == {slot_of[1001]}
    assert terms(tmp_path / "out", "year", "long", "2898") == {slot_of[2998]}
    assert terms(tmp_path / "out", "colour", "text", "c3") == {
        slot_of[i] for i in range(n) if i % 5 == 3 and i % 7
    }
    assert terms(tmp_path / "out", "long", "text", ("8" + "w" * 40_000)[:32_766]) == {slot_of[8]}


@pytest.mark.parametrize(
    ("id_type", "ids"), [("int64", "user"), ("uint64", "slot"), ("binary", "user"), ("binary", "slot")]
)
def test_ids_of_every_type_are_stored(tmp_path: Path, id_type: str, ids: str) -> None:
    small = write_small_index(tmp_path / "ix", id_type=id_type)
    indexmill.export(small.path, "lucene", tmp_path / "out", ids=ids)
    names = [document["id"] for document in stored(tmp_path / "out")]
    if ids == "slot":
        assert names == [str(slot) for slot in range(200)]
    elif id_type == "binary":
        assert small.user_ids is not None
        found = [bytes(int(part, 16) for part in name.strip("[]").split()) for name in names]
        assert found == small.user_ids.to_pylist()
    else:
        assert small.user_ids is not None
        assert names == [str(name) for name in small.user_ids.to_pylist()]


def test_a_stock_writer_appends_and_merges(index: Path, tmp_path: Path) -> None:
    indexmill.export(index, "lucene", tmp_path / "out", ids="slot")
    java("Search", "append", tmp_path / "out" / "index", N)
    check_index(tmp_path / "out")
    for i in (0, N // 2, N):  # our documents keep their order, the new one is behind them
        assert terms(tmp_path / "out", "id", "long", str(i)) == {i}
    assert right(index, search(tmp_path / "out", QUERIES, 64)[0]) > 0.95


@pytest.mark.parametrize("target", ["lucene", "lucene-build"])
def test_equal_exports_have_equal_bytes(tmp_path: Path, target: str) -> None:
    small = write_small_index(tmp_path / "ix", metadata=True)
    for out in ("a", "b"):
        indexmill.export(small.path, target, tmp_path / out)
    assert data_files(tmp_path / "a" / "index") == data_files(tmp_path / "b" / "index")
    assert record(tmp_path / "a") == record(tmp_path / "b")
    assert [p.name for p in (tmp_path / "a").iterdir() if p.is_dir()] == ["index"]


def test_a_failing_exporter_is_reported_and_nothing_is_left(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exporter: Path
) -> None:
    broken = tmp_path / "broken.jar"
    broken.write_bytes(exporter.read_bytes()[:1000])
    monkeypatch.setenv("INDEXMILL_LUCENE_JAR", str(broken))
    with pytest.raises(ToolError, match=r"broken.jar: exit status 1: .*broken.jar"):
        indexmill.export(index, "lucene", tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["broken.jar"]


def test_what_is_missing_is_named(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INDEXMILL_LUCENE_JAR", str(tmp_path / "nothing.jar"))
    with pytest.raises(
        ConfigError, match=r"nothing.jar: missing; build it \(JDK and Maven\): mvn -q -f .*pom.xml package"
    ):
        indexmill.export(index, "lucene", tmp_path / "out")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"no java on PATH; install Java 11"):
        indexmill.export(index, "lucene-build", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_the_snippet_runs(tmp_path: Path, dtype: str) -> None:
    small = write_small_index(tmp_path / "ix", dtype=dtype)
    found = indexmill.export(small.path, "lucene", tmp_path / 'it"s here')
    script = tmp_path / "snippet.jsh"
    script.write_text(found["open"] + "/exit\n")
    classes = re.search(r"--class-path (\S+)", found["open"])
    assert classes
    for path in (classes[1], lucene_classpath()):
        command = ["jshell", "--class-path", path, str(script)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        lines = [line for line in done.stdout.splitlines() if re.fullmatch(r"-?\d+ [\d.E-]+", line)]
        assert len(lines) == 10, done.stdout + done.stderr


def test_a_full_disk_is_reported(index: Path, tmp_path: Path) -> None:
    def limit() -> None:  # no file may pass 64 KiB: the system then refuses as a full disk does
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))

    command = [sys.executable, "-m", "indexmill.jobs.cli.main", "export", str(index), "--to", "lucene"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "out")],
        preexec_fn=limit,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "File too large" in done.stderr) == (1, True), done.stderr
    assert list(tmp_path.iterdir()) == []
