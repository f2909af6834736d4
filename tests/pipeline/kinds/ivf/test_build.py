"""Builds of IVF indexes: every vector once, in the list of its nearest centroid, the same bytes however built."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.oracles import ivf as oracle
from tests.oracles.files.lists import read_list
from tests.oracles.files.verify import verify_index
from tests.support.indexes.builds import data_files
from tests.support.indexes.ivf import BATCH, DIM, LISTS, N, build_lists, make_vectors

from indexmill.builders.cluster import cells as cells_module
from indexmill.builders.cluster.cells import Cells, nearest_cells
from indexmill.formats.errors import BudgetError, ConfigError, InputError, OtherKind
from indexmill.formats.ivf.index import IvfFiles
from indexmill.jobs.jobfile import make_spec, resolve
from indexmill.jobs.kinds.opening import open_index
from indexmill.pipeline.build import run_build
from indexmill.pipeline.plan import make_plan
from indexmill.pipeline.spec import BuildSpec, IvfParameters


def lists_of(path: Path) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the list of each vector, and the rows of each vector as their bytes, by vector id."""
    index = IvfFiles(path)
    lists = np.full(index.centroids.n_vectors, -1)
    rows: list[Any] = [None] * index.centroids.n_vectors
    for number in range(len(index.batches)):
        with index.open_batch(number) as batch:
            for place, entry in enumerate(batch.directory):
                ids, data = read_list(batch, place) if entry["size"] else ([], [])
                for i, row in zip(ids, data, strict=True):
                    assert lists[i] == -1
                    lists[i], rows[i] = entry["list"], row
    return lists, rows


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_every_vector_is_in_the_list_of_its_nearest_centroid(tmp_path: Path, dtype: str) -> None:
    vectors = make_vectors(dtype)
    path = build_lists(tmp_path / "ix", vectors)
    lists, rows = lists_of(path)
    index = IvfFiles(path)
    assert np.array_equal(lists, oracle.nearest_cells(vectors, index.centroids.centroids, 1)[:, 0])
    assert np.array_equal(np.stack(rows).view(dtype), vectors)
    assert index.manifest.ivf["batches"] == [BATCH, BATCH, N - 2 * BATCH]
    assert verify_index(path) == []


def test_lists_begin_on_pages_longest_first(tmp_path: Path) -> None:
    index = IvfFiles(build_lists(tmp_path / "ix", make_vectors("float32")))
    for number in range(3):
        with index.open_batch(number) as batch:
            sizes = batch.directory["size"].astype(int)
            assert (np.diff(sizes) <= 0).all()
            pages = -(-(sizes * (4 * DIM + 4)) // 4096)
            assert np.array_equal(batch.directory["first_page"], np.concatenate([[0], np.cumsum(pages)[:-1]]))


def test_workers_and_memory_do_not_change_the_bytes(tmp_path: Path) -> None:
    vectors = make_vectors("float32")
    first = data_files(build_lists(tmp_path / "a", vectors, codec="pq", pq_bytes=4))
    assert data_files(build_lists(tmp_path / "b", vectors, codec="pq", pq_bytes=4, workers=3)) == first


def test_rounded_centroids_hide_no_nearer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(8)
    centroids = (rng.random((300, 5)) * 12 + 100).astype(
        np.float32
    )  # so near that rounding makes many of them equal
    for dtype, shift in (("uint8", 0), ("int8", 110)):
        vectors = (rng.integers(100, 113, (800, 5)) - shift).astype(dtype)
        points = (centroids - shift).astype(np.float32)
        asked = []
        real = nearest_cells

        def counted(rows: Any, *rest: Any, asked: list[int] = asked, real: Any = real) -> Any:
            asked.append(len(rows))
            return real(rows, *rest)

        monkeypatch.setattr(cells_module, "nearest_cells", counted)
        found = Cells(points, vectors.dtype).nearest_few(vectors, 3)
        monkeypatch.undo()
        assert np.array_equal(found, oracle.nearest_cells(vectors, points, 3))
        assert sum(asked) > 0  # some were in doubt


def test_probes_are_the_nearest_centroids_few_or_all() -> None:
    rng = np.random.default_rng(4)
    centroids, queries = (
        rng.normal(size=(300, 6)).astype(np.float32),
        rng.normal(size=(40, 6)).astype(np.float32),
    )
    for nprobe in (1, 7, 300):
        wanted = oracle.nearest_cells(queries, centroids, nprobe)
        assert np.array_equal(nearest_cells(queries, centroids, nprobe, threads=2), wanted)
        assert np.array_equal(Cells(centroids, queries.dtype).nearest_few(queries, nprobe, threads=2), wanted)


def test_given_centroids_are_used_and_empty_lists_stay(tmp_path: Path) -> None:
    vectors = make_vectors("float32", 500)
    centroids = np.vstack([vectors[:5], np.full((2, DIM), 1e4, np.float32)])
    np.save(tmp_path / "c.npy", centroids)
    path = build_lists(tmp_path / "ix", vectors, centroids=str(tmp_path / "c.npy"))
    index = IvfFiles(path)
    assert np.array_equal(index.centroids.centroids, centroids)
    assert index.manifest.parameters["lists"] == 7
    assert verify_index(path) == []
    with index.open_batch(0) as batch:
        assert {int(e["list"]) for e in batch.directory if not e["size"]} == {5, 6}


def test_one_list_may_hold_everything(tmp_path: Path) -> None:
    path = build_lists(tmp_path / "ix", make_vectors("uint8", 700), lists=1)
    assert verify_index(path) == []
    assert (lists_of(path)[0] == 0).all()


def test_equal_vectors_make_fewer_lists_than_wanted(tmp_path: Path) -> None:
    path = build_lists(tmp_path / "ix", np.repeat(make_vectors("float32", 6), 100, axis=0))
    assert IvfFiles(path).centroids.n_lists == 6
    assert verify_index(path) == []


def test_ids_and_metadata_are_kept(tmp_path: Path) -> None:
    vectors = make_vectors("float32", 400)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIM)
    names = [f"v{i}" for i in range(400)]
    pq.write_table(pa.table({"v": column, "name": names, "n": range(400)}), tmp_path / "v.parquet")
    run_build(
        BuildSpec(
            input=[str(tmp_path / "v.parquet")], out=str(tmp_path / "ix"), id_column="name", metadata_columns=["n"],
            parameters=IvfParameters(lists=4),
        )
    )  # fmt: skip
    ids = IvfFiles(tmp_path / "ix").user_ids()
    assert ids is not None
    assert ids.to_pylist() == names
    assert pq.read_table(tmp_path / "ix" / "metadata.parquet")["n"].to_pylist() == list(range(400))
    assert verify_index(tmp_path / "ix") == []


def test_a_damaged_page_of_a_batch_is_found(tmp_path: Path) -> None:
    path = build_lists(tmp_path / "ix", make_vectors("uint8", 800))
    file = path / "batch-000000.imx"
    data = bytearray(file.read_bytes())
    data[2 * 4096 + 5] ^= 1
    file.write_bytes(data)
    assert any("batch-000000.imx" in problem and "CRC32C" in problem for problem in verify_index(path))


def test_the_certificate_tells_the_recall_of_lists(tmp_path: Path) -> None:
    path = build_lists(tmp_path / "ix", make_vectors("float32"))
    certificate = json.loads((path / "manifest.json").read_text())["certificate"]
    assert certificate["nprobe"] == [1, 2, 4, 8, 16]
    assert sorted(certificate["recall"]) == certificate["recall"]
    assert 0.5 < certificate["recall"][0] < certificate["recall"][-1] > 0.99


def test_graph_commands_name_those_for_lists(tmp_path: Path) -> None:
    path = build_lists(tmp_path / "ix", make_vectors("float32", 300))
    with pytest.raises(
        OtherKind, match="of kind graph, got one of kind ivf; search it with `indexmill search`"
    ):
        open_index(path)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"codec": "sq8", "metric": "cosine"},
        {"codec": "pq", "pq_bytes": 4},
        {"codec": "rabitq"},
        {"codec": "pq", "pq_bytes": 4, "pq_rotation": "opq"},
        {"copies": 3},
    ],
)
def test_a_plan_foretells_scratch_space_and_every_stage(tmp_path: Path, parameters: dict[str, Any]) -> None:
    np.save(tmp_path / "v.npy", make_vectors("float32"))
    settings = {"lists": LISTS, "batch_vectors": BATCH, "sample_vectors": 1000, **parameters}
    spec = BuildSpec(
        input=[str(tmp_path / "v.npy")], out=str(tmp_path / "ix"), parameters=IvfParameters(**settings)
    )
    plan = make_plan(spec)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["v.npy"]
    manifest = run_build(spec)
    run = json.loads((tmp_path / "ix" / "run.json").read_text())
    assert plan.facts["ivf"]["batches"] == len(manifest["ivf"]["batches"]) == 3
    assert plan.peak_memory_bytes > 0
    assert set(run["seconds"]) - {"publish"} <= set(plan.stages)
    assert all(stage.seconds >= 0 for stage in plan.stages.values())
    if "copies" not in parameters:  # the number of lists that hold a vector is bounded, not predicted
        assert plan.peak_scratch_bytes == pytest.approx(run["peak_scratch_bytes"], rel=0.12)
    assert plan.peak_scratch_bytes > 0.9 * run["peak_scratch_bytes"]


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (
            {"parameters": {"kind": "ivf", "R": 8}},
            "R: belongs to kind graph, and the kind is ivf; leave it out",
        ),
        ({"parameters": {"lists": 8}}, "lists: belongs to kind ivf, and the kind is graph; leave it out"),
        ({"parameters": {"kind": "tree"}}, "kind: expected graph or lsh or ivf, got 'tree'"),
        (
            {"parameters": {"kind": "ivf", "lists": 0}},
            "parameters.lists: input should be greater than or equal to 1",
        ),
        ({"centroids": "c.npy"}, "centroids: go with kind ivf, not with graph"),
        (
            {"parameters": {"kind": "ivf", "keep_vectors": True}},
            "keep_vectors: flat lists hold the vectors as they are; leave it out",
        ),
        (
            {"parameters": {"kind": "ivf", "codec": "sq8", "pq_rotation": "opq"}},
            "pq_rotation: sq8 lists have no PQ codes to rotate; leave it out, or choose codec pq",
        ),
        ({"parameters": {"kind": "ivf", "copies": 0}}, "parameters.copies: input should be greater than"),
    ],
)
def test_parameters_of_the_wrong_kind_are_named(job: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_spec({"input": ["a.npy"], "out": "b", **job})


def test_centroids_of_another_dimension_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "c.npy", np.ones((3, DIM + 1), np.float32))
    with pytest.raises(InputError, match=f"centroids of {DIM + 1} dimensions, but the vectors have {DIM}"):
        build_lists(tmp_path / "ix", make_vectors("float32", 300), centroids=str(tmp_path / "c.npy"))


def test_more_centroids_than_lists_may_be_are_refused_before_the_build(tmp_path: Path) -> None:
    np.save(tmp_path / "c.npy", np.zeros(((1 << 20) + 1, DIM), np.uint8))
    with pytest.raises(
        InputError, match=r"c\.npy: 1,048,577 centroids, at most 1,048,576 make lists; give fewer"
    ):
        build_lists(tmp_path / "ix", make_vectors("float32", 300), centroids=str(tmp_path / "c.npy"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.npy", "ix.npy"]


def test_a_budget_that_is_too_small_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", make_vectors("float32", 300))
    spec = BuildSpec(
        input=[str(tmp_path / "v.npy")],
        out=str(tmp_path / "ix"),
        memory=100 << 20,
        parameters=IvfParameters(),
    )
    with pytest.raises(BudgetError, match=r"stage .* needs"):
        run_build(spec)
    assert not (tmp_path / "ix.work").exists()


def test_the_memory_decides_the_batches_of_a_job_that_does_not() -> None:
    from indexmill.pipeline.kinds.ivf.shape import IvfShape, with_batches

    shape = IvfShape(10_000_000, 128, np.dtype(np.float32), 0.0, IvfParameters())
    cut = with_batches(shape, 1 << 30).parameters.batch_vectors
    assert cut is not None
    assert 2 * cut * (512 + 4) <= 1 << 29
    assert with_batches(shape, 64 << 30).parameters.batch_vectors == 10_000_000
    assert cut > LISTS


def test_a_job_file_names_kind_and_centroids(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(
        'input = "v.npy"\nout = "ix"\ncentroids = "c.npy"\n\n[parameters]\nkind = "ivf"\ncodec = "sq8"\n'
    )
    spec = resolve(tmp_path / "job.toml", {}, {"batch_vectors": 64})
    assert spec.centroids == str(tmp_path / "c.npy")
    assert spec.parameters == IvfParameters(codec="sq8", batch_vectors=64)
