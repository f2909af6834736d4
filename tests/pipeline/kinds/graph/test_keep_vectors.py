"""`keep_vectors` of graphs: built, planned, laid out again, extended, exported, or refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.support.cli import run_json
from tests.support.damage import reseal
from tests.support.indexes.builds import assert_sound, build, clustered, data_files
from tests.support.indexes.export import keep_streams, nameless

import indexmill
from indexmill.formats.errors import IndexmillError, InputError
from indexmill.formats.exports.targets import TARGETS
from indexmill.formats.graph.index import IndexFiles
from indexmill.formats.index.manifest import read_manifest
from indexmill.formats.index.vectors import RowFormat, write_vectors
from indexmill.pipeline.kinds.graph.memory import stage_bytes
from indexmill.pipeline.kinds.graph.shape import GraphShape
from indexmill.pipeline.kinds.graph.size import output_bytes
from indexmill.pipeline.spec import Parameters
from indexmill.reader import _native
from indexmill.reader.index import Index

KEPT: dict[str, Any] = {"node_dtype": "sq8", "keep_vectors": True, "navigation": 0.0}
DIM = 24


def stored(index: Path) -> tuple[np.ndarray, np.ndarray]:
    """Vector ids and exact vectors, by slot."""
    with IndexFiles(index) as files:
        assert files.vectors is not None
        return files.vector_ids, files.vectors.read(0, files.vectors.n_vectors)


@pytest.mark.parametrize(("metric", "dtype"), [("l2", "float32"), ("l2", "float16"), ("ip", "float32")])
@pytest.mark.parametrize("node_dtype", ["sq8", "sq16"])
def test_every_float_type_is_kept_as_it_is_stored(
    tmp_path: Path, metric: str, dtype: str, node_dtype: str
) -> None:
    vectors = clustered(900, DIM, dtype)
    index = build(tmp_path / "ix", vectors, metric=metric, keep_vectors=True, node_dtype=node_dtype)
    assert_sound(index)
    ids, kept = stored(index)
    assert kept.dtype == np.dtype(dtype)
    assert np.array_equal(kept[:, :DIM], vectors[ids])
    assert read_manifest(index).parameters["keep_vectors"] is True


def test_workers_make_the_same_file_and_shards_a_sound_one(tmp_path: Path) -> None:
    vectors = clustered(2500, DIM)
    one = build(tmp_path / "one", vectors, **KEPT)
    two = build(tmp_path / "two", vectors, workers=2, **KEPT)
    assert data_files(one) == data_files(two)
    cut = build(tmp_path / "cut", vectors, builder="vamana", shard_vectors=800, **KEPT)
    assert_sound(cut)
    ids, kept = stored(cut)
    assert np.array_equal(kept, vectors[ids])


def test_nodes_are_bytes_where_a_job_leaves_them_open(tmp_path: Path) -> None:
    index = indexmill.build(clustered(600, DIM), tmp_path / "ix", keep_vectors=True, R=8, L=12)
    assert index is not None
    manifest = read_manifest(tmp_path / "ix")
    assert manifest.parameters["node_dtype"] == "sq8"
    assert "vectors.imx" in {entry.name for entry in manifest.files}


def test_a_layout_moves_exact_vectors_with_their_nodes(tmp_path: Path) -> None:
    vectors = clustered(1500, DIM)
    index = build(tmp_path / "ix", vectors, order="identity", **KEPT)
    indexmill.lay_out(index, order="star", out=tmp_path / "star")
    assert_sound(tmp_path / "star")
    built = build(tmp_path / "built", vectors, order="star", **KEPT)
    assert (tmp_path / "star" / "vectors.imx").read_bytes()[4096:] == (built / "vectors.imx").read_bytes()[
        4096:
    ]
    ids, kept = stored(tmp_path / "star")
    assert np.array_equal(kept, vectors[ids])


def test_the_choice_of_a_layout_works(tmp_path: Path) -> None:
    vectors = clustered(1500, DIM)
    index = build(tmp_path / "ix", vectors, order="identity", **KEPT)
    indexmill.lay_out(index, order="auto", out=tmp_path / "auto", effort="low")
    assert_sound(tmp_path / "auto")
    ids, kept = stored(tmp_path / "auto")
    assert np.array_equal(kept, vectors[ids])


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_an_append_adds_exact_vectors_and_keeps_those_there(tmp_path: Path, dtype: str) -> None:
    vectors = clustered(1800, DIM, dtype)
    vectors[1200:] = np.clip(vectors[1200:], vectors[:1200].min(axis=0), vectors[:1200].max(axis=0))
    index = build(tmp_path / "ix", vectors[:1200], **KEPT)
    indexmill.append(index, vectors[1200:])
    assert_sound(index)
    ids, kept = stored(index)
    assert np.array_equal(kept, vectors[ids])
    found = Index(index).search(vectors[1200::7].astype(np.float32), 1, L=100)
    assert np.mean(found.vector_ids[:, 0] == np.arange(1200, 1800, 7)) > 0.99


def test_an_append_beyond_the_range_keeps_vectors_exactly_but_its_codes_are_at_the_ends(
    tmp_path: Path,
) -> None:
    """So a search may miss them by their codes, though `score` and the exact vectors tell them."""
    vectors = clustered(1800, DIM)
    low, high = vectors[:1200].min(axis=0), vectors[:1200].max(axis=0)
    vectors[1200:] = np.clip(vectors[1200:], low, high)
    vectors[1200:, :3] = (high + 0.09 * (high - low))[:3]
    index = build(tmp_path / "ix", vectors[:1200], **KEPT)
    indexmill.append(index, vectors[1200:])
    assert (read_manifest(index).drift or {})["clipped_share"] == 1
    assert_sound(index)
    ids, kept = stored(index)
    assert np.array_equal(kept, vectors[ids])
    with IndexFiles(index) as files:
        codes = files.graph.read_all().vectors
    assert (codes[ids >= 1200, :3] == 255).all()
    found = Index(index).search(vectors[1200::7].astype(np.float32), 10, L=100)
    assert np.mean((found.vector_ids >= 1200).all(axis=1)) > 0.99


@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_a_merge_joins_exact_vectors(tmp_path: Path, metric: str) -> None:
    vectors = clustered(1600, DIM)
    one = build(tmp_path / "one", vectors[:1000], metric=metric, **KEPT)
    low, high = vectors[:1000].min(axis=0), vectors[:1000].max(axis=0)
    rest = np.clip(vectors[1000:], low, high) * np.float32(0.9)
    two = build(tmp_path / "two", rest, metric=metric, **KEPT)
    indexmill.merge(one, two, out=tmp_path / "both")
    assert_sound(tmp_path / "both")
    ids, kept = stored(tmp_path / "both")
    assert np.array_equal(kept[:, :DIM], np.concatenate([vectors[:1000], rest])[ids])


def test_indexes_with_and_without_are_not_merged(tmp_path: Path) -> None:
    one = build(tmp_path / "one", clustered(600, DIM), **KEPT)
    two = build(tmp_path / "two", clustered(500, DIM, seed=1), node_dtype="sq8")
    with pytest.raises(InputError, match=r"exact vectors none; expected float32 as in .*one"):
        indexmill.merge(one, two, out=tmp_path / "both")


def test_a_file_in_another_order_is_damage(tmp_path: Path) -> None:
    index = build(tmp_path / "ix", clustered(600, DIM), **KEPT)
    _, kept = stored(index)
    kept[[17, 400]] = kept[[400, 17]]
    write_vectors(index / "vectors.imx", RowFormat(DIM, "float32"), 600, "l2", kept)
    reseal(index)
    (damage,) = _native.verify(str(index))
    assert re.search(
        r"vectors\.imx: page \d+: slot 17, component \d+: expected the value that graph.imx codes", damage
    )


def test_an_export_has_the_exact_vectors(tmp_path: Path) -> None:
    vectors = clustered(700, DIM)
    index = build(tmp_path / "ix", vectors, **KEPT)
    indexmill.export(index, "parquet", tmp_path / "out")
    tables = [pq.read_table(path) for path in sorted((tmp_path / "out").rglob("*.parquet"))]
    (table,) = [one for one in tables if "vector" in one.column_names]
    rows = np.array(table["vector"].to_pylist(), np.float32)
    with IndexFiles(index) as files:
        assert np.array_equal(rows, vectors[files.vector_ids])


@pytest.fixture(scope="module", params=[("l2", "sq8"), ("ip", "sq16")], ids="-".join)
def full_pages(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same graph with exact vectors apart and with exact vectors in its nodes, of which no two share a page."""
    metric, node_dtype = request.param
    folder, vectors = tmp_path_factory.mktemp("full"), clustered(300, 1800)
    how: dict[str, Any] = {"metric": metric, "order": "identity", "R": 64, "L": 64, "navigation": 0.0}
    kept = build(folder / "kept", vectors, node_dtype=node_dtype, keep_vectors=True, **how)
    return kept, build(folder / "same", vectors, node_dtype="same", **how)


@pytest.mark.parametrize("target", [name for name, one in TARGETS.items() if "graph" in one.kinds])
def test_exports_are_those_of_the_same_graph_with_exact_vectors_in_its_nodes(
    full_pages: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    keep_streams(monkeypatch)
    exports = []
    for index in full_pages:
        with IndexFiles(index) as opened:
            assert opened.graph.node_format.nodes_per_group == 1
            assert len(list(opened.graph.blocks())) > 1
        out = tmp_path / index.name
        indexmill.export(index, target, out)
        paths = [path for path in out.rglob("*") if path.is_file() and path.name != "export.json"]
        exports.append(  # a row group of Parquet is a block of nodes, and blocks differ
            {
                str(path.relative_to(out)): pq.read_table(path)
                if path.suffix == ".parquet"
                else nameless(path)
                for path in paths
            }
        )
    assert exports[0] == exports[1]


def test_an_export_comes_back_by_an_import_with_exact_vectors_in_its_nodes(tmp_path: Path) -> None:
    index = build(tmp_path / "ix", clustered(500, DIM), **KEPT)
    indexmill.export(index, "diskann", tmp_path / "out")
    indexmill.import_index(tmp_path / "out" / "ann", tmp_path / "back", dtype="float32")
    assert_sound(tmp_path / "back")
    with IndexFiles(index) as ours, IndexFiles(tmp_path / "back") as back:
        assert (back.graph.node_format.dtype, back.vectors) == ("float32", None)
        before, after = ours.graph.read_all(), back.graph.read_all()
        assert np.array_equal(after.vectors, stored(index)[1])
        assert np.array_equal(after.degrees, before.degrees)
        assert np.array_equal(after.neighbours, before.neighbours)
        assert np.array_equal(back.codes, ours.codes)


def test_an_index_with_them_is_compared_with_one_without(tmp_path: Path) -> None:
    vectors, queries = clustered(1200, DIM), clustered(40, DIM, seed=5)
    for name, rows in (("v", vectors), ("q", queries)):
        np.save(tmp_path / f"{name}.npy", rows)
    run_json("truth", tmp_path / "v.npy", tmp_path / "q.npy", "--out", tmp_path / "t.gt")
    plain = build(tmp_path / "plain", vectors, **KEPT | {"keep_vectors": False})
    kept = build(tmp_path / "kept", vectors, **KEPT)
    measured = [
        "--queries",
        tmp_path / "q.npy",
        "--truth",
        tmp_path / "t.gt",
        "-L",
        "100,1000",
        "--repeat",
        1,
    ]
    rows = run_json("compare", plain, kept, *measured)["sweep"]
    found = {row["index"]: row for row in rows if row["L"] == 1000}
    assert found["kept"]["recall"] > 0.995
    assert found["kept"]["recall"] >= found["plain"]["recall"]
    assert found["kept"]["pages_read"] >= found["plain"]["pages_read"]


def test_a_plan_counts_them() -> None:
    def shape(keep: bool) -> GraphShape:
        p = Parameters(node_dtype="sq8", keep_vectors=keep)
        return GraphShape(1_000_000, 768, np.dtype(np.float32), 0, p)

    plain, kept = shape(False), shape(True)
    pages = kept.n * 4096 * 1.001
    assert output_bytes(kept) - output_bytes(plain) == pytest.approx(pages, rel=1e-3)
    assert kept.held_bytes - plain.held_bytes == 4 * kept.n
    before, after = (stage_bytes(one, 8 << 30, 2) for one in (plain, kept))
    assert after["emit"] >= before["emit"] + (8 << 20)
    assert all(after[name] == before[name] for name in before if name not in ("pack", "emit"))


@pytest.mark.parametrize(
    ("dtype", "node_dtype", "message"),
    [
        ("float32", "same", "keep_vectors: goes with node_dtype sq8 or sq16, nodes of type same"),
        ("float32", "float16", "keep_vectors: goes with node_dtype sq8 or sq16, nodes of type float16"),
        ("uint8", "sq8", "keep_vectors: goes with float vectors, .* holds uint8"),
    ],
)
def test_what_leaves_nothing_to_keep_is_refused(
    tmp_path: Path, dtype: str, node_dtype: str, message: str
) -> None:
    with pytest.raises(IndexmillError, match=message):
        indexmill.build(clustered(300, DIM, dtype), tmp_path / "ix", node_dtype=node_dtype, keep_vectors=True)
    assert not (tmp_path / "ix").exists()
