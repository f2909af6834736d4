"""`import`: the command, ids, repair, budgets, and files that it leaves behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.oracles.files.diskann import read_disk_index, write_disk_index
from tests.oracles.graph.vamana import reachable
from tests.support.cli import run, run_json
from tests.support.indexes.append import assert_sound, manifest, run_record
from tests.support.indexes.builds import data_files
from tests.support.indexes.imports import clustered_rows, lists_of, unpack_diskann

import indexmill
from indexmill.builders.vamana.adopt import adopt_lists
from indexmill.builders.vamana.connect import count_unreachable
from indexmill.formats.errors import BudgetError, ConfigError, InputError, OutputExistsError
from indexmill.formats.graph.index import IndexFiles
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES
from indexmill.pipeline.mill.peak import PeakMemory, has_proportional_sizes


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_diskann(tmp_path_factory.mktemp("import")) / "uint8" / "ann"


@pytest.fixture(scope="module")
def imported(prefix: Path) -> Path:
    indexmill.import_index(prefix, prefix.with_name("ix"))
    return prefix.with_name("ix")


def write_ring(folder: Path, n: int, islands: int) -> Path:
    """A disk index of uint8 vectors: a ring of all vertices except the last few, which link only to one another."""
    rows = np.random.default_rng(1).integers(0, 256, (n, 12)).astype(np.uint8)
    ring = n - islands
    lists = [[(v + 1) % ring, (v + 2) % ring] for v in range(ring)]
    lists += [[ring + (v + 1) % islands] for v in range(islands)]
    write_disk_index(folder / "ring_disk.index", rows, lists, 0, 3)
    return folder / "ring"


def test_the_command_imports_and_prints_the_manifest(prefix: Path, imported: Path, tmp_path: Path) -> None:
    out = tmp_path / "ix"
    assert run_json("import", "diskann", prefix, "--out", out) == manifest(out)
    assert data_files(out) == data_files(imported)
    assert [p.name for p in tmp_path.iterdir()] == ["ix"]
    assert run("import", "diskann", prefix, "--out", out).exit_code == 5
    again = run("import", "diskann", prefix, "--out", out, "--force")
    assert (
        "imported from diskann (ann_disk.index, ann_metadata.bin, ann_pq_pivots.bin, ann_pq_compressed.bin): "
        "codes kept, entry vertices computed, 0 vertices could not be reached" in again.stdout
    )
    assert run("import", "diskann", prefix).exit_code == 2
    assert "indexmill import diskann /data/ann --out ann.index" in run("import", "diskann", "--help").stdout
    assert "indexmill import faiss hnsw.faiss" in run("import", "faiss", "--help").stdout


def test_workers_do_not_change_the_bytes(prefix: Path, imported: Path, tmp_path: Path) -> None:
    indexmill.import_index(prefix, tmp_path / "ix", workers=1, memory="1GiB")
    assert data_files(tmp_path / "ix") == data_files(imported)
    assert run_record(tmp_path / "ix")["workers"] == 1


@pytest.mark.parametrize("kind", ["array", "npy", "parquet", "column"])
def test_ids_come_from_arrays_and_files(prefix: Path, tmp_path: Path, kind: str) -> None:
    names = [f"user-{i}" for i in range(500)]
    np.save(tmp_path / "ids.npy", np.array(names))
    pq.write_table(pa.table({"id": names}), tmp_path / "one.parquet")
    pq.write_table(pa.table({"other": range(500), "id": names}), tmp_path / "two.parquet")
    files = {"npy": "ids.npy", "parquet": "one.parquet", "column": "two.parquet"}
    ids = names if kind == "array" else tmp_path / files[kind]
    column = "id" if kind == "column" else None
    index = indexmill.import_index(prefix, tmp_path / "ix", ids=ids, id_column=column)
    found = index.search(np.full((3, 16), 100, np.uint8), 5)
    assert [[names[i] for i in row] for row in found.vector_ids] == [list(row) for row in found.ids]


def test_ids_that_do_not_fit_are_refused(prefix: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": range(500), "b": range(500)}), tmp_path / "two.parquet")
    np.save(tmp_path / "floats.npy", np.zeros(500))
    np.save(tmp_path / "objects.npy", np.array([None] * 500, object))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "floats.npy").read_bytes()[:200])
    (tmp_path / "x.csv").write_text("1")
    for ids, message in (
        (range(499), "499 ids for 500 vectors"),
        ([1] * 500, "id 1 is not unique: .*ann_disk.index row 0"),
        ([1.5] * 500, "ids of type double|integers, strings"),
        (tmp_path / "two.parquet", "2 columns; name the one"),
        (tmp_path / "floats.npy", "integers, strings"),
        (tmp_path / "objects.npy", "one id a vector"),
        (tmp_path / "cut.npy", "one id a vector"),
        (tmp_path / "x.csv", "unknown type; expected ids: .npy"),
        (tmp_path / "none.npy", "no such file"),
    ):
        with pytest.raises(InputError, match=message):
            indexmill.import_index(prefix, tmp_path / "ix", ids=ids)
    assert not (tmp_path / "ix").exists()


def test_vertices_that_no_path_leads_to_are_linked_and_counted(tmp_path: Path) -> None:
    ring = write_ring(tmp_path, 300, 7)
    indexmill.import_index(ring, tmp_path / "ix", dtype="uint8", pq_bytes=4)
    assert_sound(tmp_path / "ix")
    found = manifest(tmp_path / "ix")
    assert found["input"]["imported"]["unreachable"] == 7
    assert found["input"]["imported"]["repaired"]
    assert 1 <= found["graph"]["edges_added"] <= 7
    result = run("import", "diskann", ring, "--dtype", "uint8", "--out", tmp_path / "ix", "--force")
    assert "7 vertices could not be reached and were linked" in result.stdout


def test_without_repair_the_graph_stays_and_is_counted(tmp_path: Path) -> None:
    ring = write_ring(tmp_path, 300, 7)
    indexmill.import_index(ring, tmp_path / "ix", dtype="uint8", pq_bytes=4, repair=False)
    found = manifest(tmp_path / "ix")
    assert (found["graph"]["edges_added"], found["input"]["imported"]["unreachable"]) == (0, 7)
    _, theirs, _ = read_disk_index(tmp_path / "ring_disk.index", "uint8")
    assert [sorted(list_) for list_ in lists_of(tmp_path / "ix")] == [sorted(list_) for list_ in theirs]


def test_a_vertex_without_neighbours_is_kept(tmp_path: Path) -> None:
    rows = clustered_rows(40)
    lists = [[] if v == 17 else [(v + 1) % 40, (v + 2) % 40, 17] for v in range(40)]
    write_disk_index(tmp_path / "x_disk.index", rows, lists, 0, 3)
    indexmill.import_index(tmp_path / "x", tmp_path / "ix", dtype="float32", pq_bytes=4)
    assert manifest(tmp_path / "ix")["graph"]["least_degree"] == 0
    assert_sound(tmp_path / "ix")


def test_repeated_neighbours_and_loops_are_left_out(tmp_path: Path) -> None:
    rows = clustered_rows(40)
    lists = [[(v + 1) % 40, v, (v + 2) % 40, (v + 1) % 40] for v in range(40)]
    write_disk_index(tmp_path / "x_disk.index", rows, lists, 0, 4)
    indexmill.import_index(tmp_path / "x", tmp_path / "ix", dtype="float32", pq_bytes=4)
    assert manifest(tmp_path / "ix")["input"]["imported"]["dropped_neighbours"] == 80
    assert [set(list_) for list_ in lists_of(tmp_path / "ix")] == [set(list_[::2]) - {v} | {(v + 1) % 40}
                                                                  for v, list_ in enumerate(lists)]  # fmt: skip
    assert_sound(tmp_path / "ix")


def test_adopted_lists_are_those_of_a_slow_twin() -> None:
    rng = np.random.default_rng(3)
    vectors = rng.integers(0, 4, (60, 3)).astype(np.float32)  # many equal distances
    neighbours = rng.integers(0, 60, (60, 9)).astype(np.uint32)
    degrees = rng.integers(0, 10, 60).astype(np.int32)
    expected = [
        sorted({int(u) for u in row[:d]} - {v}, key=lambda u: (((vectors[v] - vectors[u]) ** 2).sum(), u))
        for v, (row, d) in enumerate(zip(neighbours, degrees, strict=True))
    ]
    taken = adopt_lists(vectors, neighbours, degrees, threads=2)
    assert [row[:d].tolist() for row, d in zip(neighbours, degrees, strict=True)] == expected
    assert taken > 0
    reached = reachable(neighbours, degrees, 5)
    assert count_unreachable(neighbours, degrees, 5) == 60 - len(reached)


def test_an_import_may_lay_the_graph_out_at_once(prefix: Path, imported: Path, tmp_path: Path) -> None:
    assert run("import", "diskann", prefix, "--order", "star", "--out", tmp_path / "ix").exit_code == 0
    assert_sound(tmp_path / "ix")
    with IndexFiles(tmp_path / "ix") as files:
        order = files.vector_ids.astype(np.int64)
    assert (order != np.arange(500)).any()
    before, after = lists_of(imported), lists_of(tmp_path / "ix")
    assert [sorted(order[after[slot]]) for slot in range(500)] == [sorted(before[v]) for v in order]
    assert (
        manifest(tmp_path / "ix")["layout"]["overlap_ratio"] > manifest(imported)["layout"]["overlap_ratio"]
    )
    with pytest.raises(ConfigError, match=r"order: expected one of .*star"):
        indexmill.import_index(prefix, tmp_path / "ix", order="stars", force=True)


def test_an_imported_index_takes_more_vectors(imported: Path, tmp_path: Path) -> None:
    more = np.random.default_rng(2).integers(0, 256, (50, 16)).astype(np.uint8)
    index = indexmill.append(imported, more, out=tmp_path / "more")
    assert len(index) == 550
    assert_sound(tmp_path / "more")
    assert manifest(tmp_path / "more")["input"]["imported"] == manifest(imported)["input"]["imported"]
    assert "imported: from diskann, codes kept" in run("inspect", tmp_path / "more").stdout


def test_a_failed_import_leaves_nothing_and_no_index_is_touched(prefix: Path, tmp_path: Path) -> None:
    out = tmp_path / "ix"
    indexmill.import_index(prefix, out)
    before = data_files(out)
    for how, error in (
        ({}, OutputExistsError),
        ({"force": True, "memory": 1000}, BudgetError),
        ({"force": True, "memory": "lots"}, ConfigError),
        ({"force": True, "metric": "ip"}, ConfigError),
        ({"force": True, "metric": "hamming"}, ConfigError),
        ({"force": True, "pq_bytes": 0}, ConfigError),
        ({"force": True, "workers": 0}, ConfigError),
        ({"force": True, "program": "annoy"}, ConfigError),
        ({"force": True, "program": "faiss", "dtype": "uint8"}, ConfigError),
        ({"force": True, "ids": [7] * 500}, InputError),
    ):
        with pytest.raises(error):
            indexmill.import_index(prefix, out, **how)
    assert data_files(out) == before
    assert [p.name for p in tmp_path.iterdir()] == ["ix"]


@pytest.mark.kill
def test_a_killed_import_is_run_again_from_the_start(prefix: Path, imported: Path, tmp_path: Path) -> None:
    code = f"import indexmill; indexmill.import_index({str(prefix)!r}, {str(tmp_path / 'ix')!r})"
    child = subprocess.run(
        [sys.executable, "-c", code], env={"INDEXMILL_FAILPOINT": "build-done", **os.environ}, check=False
    )
    assert child.returncode != 0
    assert not (tmp_path / "ix").exists()
    indexmill.import_index(prefix, tmp_path / "ix")
    assert data_files(tmp_path / "ix") == data_files(imported)
    assert [p.name for p in tmp_path.iterdir()] == ["ix"]


@pytest.mark.memory
@pytest.mark.skipif(not has_proportional_sizes(), reason="needs Linux's smaps_rollup")
def test_an_import_stays_within_the_smallest_budget_it_accepts(tmp_path: Path) -> None:
    n, prefix = 8_000, tmp_path / "any"
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 256, (n, 24)).astype(np.uint8)
    write_disk_index(tmp_path / "any_disk.index", rows, rng.integers(0, n, (n, 12)).tolist(), 0, 12)
    command = [
        sys.executable,
        "-m",
        "indexmill.jobs.cli.main",
        "import",
        "diskann",
        prefix,
        "--dtype",
        "uint8",
    ]
    with pytest.raises(BudgetError) as refusal:
        indexmill.import_index(prefix, tmp_path / "ix", dtype="uint8", memory="1MiB")
    budget = int(re.search(r"give at least ([\d,]+)", str(refusal.value))[1].replace(",", ""))
    assert budget > FIXED_BYTES
    child = subprocess.Popen([*map(str, command), "--out", str(tmp_path / "ix"), "--memory", str(budget)],
                             stdout=subprocess.DEVNULL)  # fmt: skip
    with PeakMemory(child.pid, interval_s=0.002) as sampled:
        assert child.wait() == 0
    assert 0 < sampled.bytes <= budget
