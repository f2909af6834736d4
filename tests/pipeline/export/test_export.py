"""`export`: behaviour that all targets share, and files that an export leaves behind."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.oracles.files.small_index import SmallIndex, write_small_index
from tests.support.cli import run, run_json
from tests.support.indexes.builds import data_files
from tests.support.indexes.export import id_map, record, stored_graph
from tests.support.processes.forks import run_forked

import indexmill
from indexmill.formats.errors import ConfigError, CorruptFile, InputError, OutputExistsError
from indexmill.formats.exports.target import PARTS
from indexmill.formats.exports.targets import TARGETS
from indexmill.jobs.cli.commands import export
from indexmill.pipeline.export.metadata import MappedMetadata


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> SmallIndex:
    return write_small_index(tmp_path_factory.mktemp("export") / "ix", metadata=True)


def test_the_id_map_has_slot_vector_id_user_id_and_metadata(small: SmallIndex, tmp_path: Path) -> None:
    indexmill.export(small.path, "faiss", tmp_path / "out", ids="slot")
    table = id_map(tmp_path / "out")
    assert table.schema.names == ["slot", "vector_id", "id", "colour"]
    assert table["slot"].to_pylist() == list(range(200))
    assert table["vector_id"].to_pylist() == small.vector_ids.tolist()
    assert table["id"].to_pylist() == small.user_ids.to_pylist()
    assert table["colour"].to_pylist() == [f"c{v % 5}" for v in small.vector_ids]


@pytest.mark.parametrize("target", ["faiss", "bulk"])
def test_a_metadata_column_never_takes_the_place_of_another(target: str, tmp_path: Path) -> None:
    columns = {"metadata_slot": [f"m{i}" for i in range(40)], "slot": [f"s{i}" for i in range(40)]}
    rows = np.random.default_rng(2).normal(size=(40, 6)).astype(np.float32)
    indexmill.build(rows, tmp_path / "ix", metadata=pa.table(columns), pq_bytes=2)
    indexmill.export(tmp_path / "ix", target, tmp_path / "out")
    found = id_map(tmp_path / "out").to_pylist()
    for row in found:
        i = row["vector_id"]
        assert (row["metadata_slot"], row["metadata_metadata_slot"]) == (f"m{i}", f"s{i}")
    if target == "bulk":
        lines = (tmp_path / "out" / "bulk-00000.ndjson").read_bytes().splitlines()[1::2]
        for row, document in zip(found, map(json.loads, lines), strict=True):
            assert {name: document[name] for name in row} == row


def test_metadata_in_many_batches_is_found_row_by_row(tmp_path: Path) -> None:
    n = 150_000
    words = pa.array([f"w{i % 97}" for i in range(n)])
    table = pa.table({"i": np.arange(n), "w": words.dictionary_encode()})
    pq.write_table(table, tmp_path / "m.parquet", row_group_size=40_000)
    rows = MappedMetadata(pq.ParquetFile(tmp_path / "m.parquet"), tmp_path / "m.arrow")
    wanted = np.random.default_rng(0).integers(0, n, 5000)
    found = rows.take(wanted)
    assert found["i"].to_pylist() == wanted.tolist()
    assert found["w"].to_pylist() == [f"w{i % 97}" for i in wanted]
    rows.close()


def test_the_record_names_every_file_and_the_index(small: SmallIndex, tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = run_json("export", small.path, "--to", "faiss", "--ids", "slot", "--out", out)
    assert {key: found.pop(key) for key in ("out", "open")}["out"] == str(out)
    assert found == record(out)
    assert found["index_build_id"] == small.manifest.build_id
    assert (found["n_vectors"], found["dim"], found["metric"]) == (200, 16, "l2")
    assert {file["name"] for file in found["files"]} == {p.name for p in out.iterdir()} - {"export.json"}
    for file in found["files"]:
        data = (out / file["name"]).read_bytes()
        assert (file["bytes"], file["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())


@pytest.mark.parametrize(
    "name",
    [name for name, target in TARGETS.items() if "graph" in target.kinds and not name.startswith("lucene")],
)
def test_equal_exports_have_equal_bytes(name: str, tmp_path: Path) -> None:
    write_small_index(tmp_path / "ix", id_type="none", metadata=True)
    for out in ("a", "b"):
        indexmill.export(tmp_path / "ix", name, tmp_path / out)
    first, second = (
        {
            str(p.relative_to(tmp_path / out)): p.read_bytes()
            for p in (tmp_path / out).rglob("*")
            if p.is_file()
        }
        for out in ("a", "b")
    )
    assert first == second


def test_the_list_says_what_every_target_keeps() -> None:
    targets = run_json("export", "--list")
    assert [target["target"] for target in targets] == list(TARGETS)
    for target in targets:
        assert list(target["keeps"]) == list(PARTS)
        assert all(target["keeps"].values())
        assert target["rebuilds"]
    text = run("export", "--list").stdout
    assert all(name in text for name in (*TARGETS, *PARTS))
    assert max(map(len, text.splitlines())) <= 110
    for target in targets:
        about = text[text.index(f"\n  {target['target']}: ") :].split("\n\n")[0].split()
        for words in (target["engine"], target["rebuilds"], *target["keeps"].values()):
            assert words in ("yes", "no") or words in " ".join(about)


def test_the_help_names_every_target() -> None:
    assert tuple(TARGETS) == export.TARGETS
    said = run("export", "--help").stdout
    assert all(name in said for name in TARGETS)


def test_what_is_missing_or_unknown_is_named(small: SmallIndex, tmp_path: Path) -> None:
    for arguments, message in (
        ((), "DIR: missing"),
        ((small.path,), "--to: missing; name a target; --list"),
        ((small.path, "--to", "faiss"), "--out: missing"),
        ((small.path, "--to", "faiis", "--out", tmp_path / "x"), "did you mean 'faiss'"),
        (
            (small.path, "--to", "faiss", "--ids", "rows", "--out", tmp_path / "x"),
            "ids: expected one of user, slot",
        ),
    ):
        result = run("export", *arguments)
        assert (result.exit_code, message in result.stderr) == (2, True), result.stderr
    with pytest.raises(InputError, match="no such index"):
        indexmill.export(tmp_path / "nothing", "faiss", tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_only_an_export_is_replaced_and_only_by_force(small: SmallIndex, tmp_path: Path) -> None:
    out = tmp_path / "out"
    indexmill.export(small.path, "faiss", out, ids="slot")
    with pytest.raises(OutputExistsError, match="add --force"):
        indexmill.export(small.path, "diskann", out, ids="slot")
    indexmill.export(small.path, "diskann", out, ids="slot", force=True)
    assert not (out / "index.faiss").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious").write_text("x")
    with pytest.raises(OutputExistsError, match="is not an export"):
        indexmill.export(small.path, "diskann", tmp_path / "mine", ids="slot", force=True)
    with pytest.raises(OutputExistsError, match="is not an export"):
        indexmill.export(small.path, "diskann", small.path, ids="slot", force=True)
    with pytest.raises(ConfigError, match="lies inside the index"):
        indexmill.export(small.path, "diskann", small.path / "out", ids="slot")
    with pytest.raises(OutputExistsError, match="is not an index"):
        indexmill.build(np.ones((9, 4), np.float32), out, force=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine", "out"]


@pytest.mark.kill
def test_a_disk_that_fills_up_leaves_what_was_there(small: SmallIndex, tmp_path: Path) -> None:
    indexmill.export(small.path, "diskann", tmp_path / "out", ids="slot")
    before = data_files(tmp_path / "out")
    # No file may pass 8 KiB: the system then refuses as a full disk does.
    code = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192)); "
    code += "from indexmill.jobs.cli.main import main; main()"
    options = ("--to", "faiss", "--ids", "slot", "--out", tmp_path / "out", "--force")
    done = run_forked(code, "export", small.path, *options)
    assert (done.returncode, "File too large" in done.stderr) == (4, True), done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert data_files(tmp_path / "out") == before


@pytest.mark.kill
@pytest.mark.parametrize("place", ["publish-sealed", "publish-done"])
def test_a_killed_export_is_run_again(small: SmallIndex, tmp_path: Path, place: str) -> None:
    out = tmp_path / "out"
    code = f"import indexmill; indexmill.export({str(small.path)!r}, 'faiss', {str(out)!r}, ids='slot')"
    child = run_forked(code, failpoint=place)
    assert child.returncode != 0
    assert out.exists() == (place == "publish-done")
    indexmill.export(small.path, "faiss", out, ids="slot", force=True)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert record(out)["target"] == "faiss"


def test_a_damaged_index_is_not_exported(tmp_path: Path) -> None:
    write_small_index(tmp_path / "ix", id_type="none")
    data = bytearray((tmp_path / "ix" / "graph.imx").read_bytes())
    data[3 * 4096 + 17] ^= 1
    (tmp_path / "ix" / "graph.imx").write_bytes(data)
    with pytest.raises(CorruptFile):
        indexmill.export(tmp_path / "ix", "faiss", tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["ix"]


def test_an_export_by_slot_is_in_the_order_of_the_layout(small: SmallIndex, tmp_path: Path) -> None:
    from indexmill.formats.imports.faiss import open_faiss

    indexmill.export(small.path, "faiss", tmp_path / "out", ids="slot")
    index = open_faiss(tmp_path / "out" / "index.faiss")
    vectors, neighbours, degrees, _ = stored_graph(small.path)
    assert index.vectors.ids is None
    assert (index.vectors.read(0, 200) == vectors).all()
    blocks = list(index.lists.blocks())
    assert [row[:d].tolist() for b in blocks for row, d in zip(b.neighbours, b.degrees, strict=True)] == [
        row[:d].tolist() for row, d in zip(neighbours, degrees, strict=True)
    ]


def test_json_of_the_command_is_that_of_python(small: SmallIndex, tmp_path: Path) -> None:
    found = indexmill.export(small.path, "diskann", tmp_path / "a", ids="slot")
    text = run("export", small.path, "--to", "diskann", "--ids", "slot", "--out", tmp_path / "b").stdout
    assert found["open"].replace(str(tmp_path / "a"), str(tmp_path / "b")) in text
    assert json.loads(json.dumps(found)) == found
