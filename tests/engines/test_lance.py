"""Exports to Lance, written by pylance, and searched by Lance and LanceDB."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.engines.environments import python_of
from tests.engines.in_lance import python_path, with_lance
from tests.oracles.files.lists import read_list
from tests.support.indexes.export import LISTS_WRITTEN, assert_same_answers, id_map
from tests.support.indexes.ivf import LISTS, N, build_lists, join, make_vectors, result
from tests.support.processes.memory import peak_growth

import indexmill
from indexmill.formats.errors import ConfigError
from indexmill.formats.ivf.index import IvfFiles
from indexmill.pipeline.mill.peak import has_proportional_sizes

QUERIES = 40
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "float32": ("float32", {}),
    "uint8": ("uint8", {}),
    "sq8": ("float32", {"codec": "sq8"}),
    "pq": ("float32", {"codec": "pq", "pq_bytes": 6}),
    "ip": ("float32", {"metric": "ip"}),
    "cosine": ("float32", {"metric": "cosine"}),
    "cosine-pq": ("float32", {"metric": "cosine", "codec": "pq", "pq_bytes": 4}),
}

#: Makes an IVF_RQ after the rotation of argument 2, ``fast`` or ``matrix``.
ROTATED = """
import json, lance, sys
import numpy as np, pyarrow as pa
from lance.lance import indices
rows = np.random.default_rng(1).normal(size=(500, 16)).astype(np.float32)
vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 16)
dataset = lance.write_dataset(pa.table({"vector": vectors}), sys.argv[1])
model = json.loads(indices.build_rq_model(dimension=16, num_bits=1))
if sys.argv[2] == "matrix":
    model |= {"rotation_type": "matrix", "rotate_mat": np.eye(16).tolist(), "fast_rotation_signs": None}
dataset.create_index_uncommitted(
    "vector", "IVF_RQ", num_partitions=4, ivf_centroids=rows[:4], num_bits=1, rabitq_model=json.dumps(model),
    fragment_ids=[0],
)
"""


def exported(index: Path, folder: Path, queries: Any, nprobe: int, **how: Any) -> Any:
    """Export an index, and return what Lance answers and what its index holds."""
    asked, answer = folder / "queries.npy", folder / f"answer-{nprobe}.npz"
    np.save(asked, queries)
    options = json.dumps({"k": 10, "nprobe": nprobe, "ids": "user", "engine": "lance", **how})
    client = Path(__file__).parent / "clients" / "lance_client.py"
    with_lance(client, index, folder / f"out-{nprobe}", asked, answer, options)
    return np.load(answer)


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("lance")
    return {
        name: build_lists(folder / name, make_vectors(dtype), **how) for name, (dtype, how) in CASES.items()
    }


def asked_of(name: str) -> tuple[Any, Any]:
    """Return queries for us, and those as Lance is asked, which the snippet says."""
    metric, codec = CASES[name][1].get("metric"), CASES[name][1].get("codec")
    queries = make_vectors(CASES[name][0], QUERIES, seed=9)
    theirs = queries.astype(np.float32)
    if metric == "ip":
        theirs = np.column_stack([theirs, np.zeros(QUERIES, np.float32)])
    if metric == "cosine" and codec:
        theirs = theirs / np.linalg.norm(theirs, axis=1, keepdims=True)
    return queries, theirs


def ours(index: Path, queries: Any, nprobe: int, out: Path) -> tuple[Any, Any]:
    """Return ids, and distances as Lance gives them."""
    join(index, queries, out, nprobe=nprobe)
    ids, scores = result(out, len(queries), 10)
    shared = IvfFiles(index).centroids
    if shared.metric == "ip":
        lengths = np.einsum("ij,ij->i", queries, queries, dtype=np.float64)[:, None]
        return ids, lengths + shared.max_norm**2 - 2 * scores
    if shared.metric == "cosine":
        return ids, (1 - scores) * (1 if shared.codec == "flat" else 2)
    return ids, scores


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("nprobe", [4, 16])
def test_lance_answers_as_a_join_does(
    indexes: dict[str, Path], tmp_path: Path, name: str, nprobe: int
) -> None:
    queries, theirs = asked_of(name)
    found = exported(indexes[name], tmp_path, theirs, nprobe)
    mine = ours(indexes[name], queries, nprobe, tmp_path / "r.parquet")
    assert_same_answers((found["found"], found["distances"]), mine, 1e-5)
    shared = IvfFiles(indexes[name]).centroids
    assert np.array_equal(found["centroids"], shared.centroids)


@pytest.mark.parametrize("file_rows", [None, 1000])
@pytest.mark.parametrize("name", ["float32", "pq"])
def test_partitions_hold_our_lists_and_codes(
    indexes: dict[str, Path], tmp_path: Path, name: str, file_rows: int | None
) -> None:
    cut = {} if file_rows is None else {"file_rows": file_rows}
    found = exported(indexes[name], tmp_path, asked_of(name)[1][:1], 1, **cut)
    index = IvfFiles(indexes[name])
    lists = np.full(N, -1)
    codes = np.zeros((N, index.centroids.row_bytes), np.uint8)
    for number in range(len(index.batches)):
        with index.open_batch(number) as batch:
            for place in np.flatnonzero(batch.directory["size"]).tolist():
                ids, rows = read_list(batch, place)
                lists[ids], codes[ids] = batch.directory["list"][place], rows
    order = np.argsort(lists, kind="stable")
    assert np.array_equal(found["vector_id"], order)
    assert np.array_equal(found["partition"], lists[order])
    assert np.array_equal(found["id"], order)
    assert np.array_equal(found["sizes"], np.bincount(lists, minlength=LISTS))
    number, place = np.divmod(np.arange(N, dtype=np.uint64), np.uint64(file_rows or N))
    assert np.array_equal(found["rows"], (number << np.uint64(32)) + place)
    if name == "pq":
        assert np.array_equal(found["codes"], codes[order])
    else:
        assert np.array_equal(found["vector"], make_vectors("float32")[order])


@pytest.mark.parametrize("name", CASES)
def test_a_dataset_of_several_files_answers_as_a_join_does(
    indexes: dict[str, Path], tmp_path: Path, name: str
) -> None:
    queries, theirs = asked_of(name)
    found = exported(indexes[name], tmp_path, theirs, 4, file_rows=1000)
    assert np.array_equal(found["sizes"], np.bincount(found["partition"], minlength=LISTS))
    assert len(list((tmp_path / "out-4" / "vectors.lance" / "_indices").iterdir())) == 1
    assert not list((tmp_path / "out-4").glob(".*"))
    mine = ours(indexes[name], queries, 4, tmp_path / "r.parquet")
    assert_same_answers((found["found"], found["distances"]), mine, 1e-5)


def test_lists_of_other_centroids_do_not_pass(indexes: dict[str, Path], tmp_path: Path) -> None:
    from dataclasses import replace

    from tests.oracles.files.rewritten import rewrite_centroids

    def rolled(shared: Any) -> Any:
        return replace(shared, centroids=np.roll(shared.centroids, 1, axis=0))

    wrong = rewrite_centroids(indexes["float32"], tmp_path / "wrong", rolled)
    queries, theirs = asked_of("float32")
    found = exported(wrong, tmp_path, theirs, 4)
    mine = ours(indexes["float32"], queries, 4, tmp_path / "r.parquet")
    with pytest.raises(AssertionError):
        assert_same_answers((found["found"], found["distances"]), mine, 1e-5)


def test_lancedb_answers_from_the_same_table(indexes: dict[str, Path], tmp_path: Path) -> None:
    queries, theirs = asked_of("pq")
    found = exported(indexes["pq"], tmp_path, theirs[:10], 4, engine="lancedb")
    mine = ours(indexes["pq"], queries[:10], 4, tmp_path / "r.parquet")
    assert_same_answers((found["found"], found["distances"]), mine, 1e-5)


@pytest.mark.parametrize("how", [{}, {"codec": "pq", "pq_bytes": 6}])
def test_vectors_in_several_lists_are_several_rows_found_as_a_join_finds_them(
    tmp_path: Path, how: dict[str, Any]
) -> None:
    index = build_lists(tmp_path / "ix", make_vectors("float32"), copies=3, closure=0.5, **how)
    queries = make_vectors("float32", QUERIES, seed=9)
    found = exported(index, tmp_path, queries, 4, k=30)
    assert len(found["vector_id"]) == found["sizes"].sum() > N
    assert np.array_equal(found["sizes"], np.bincount(found["partition"], minlength=LISTS))
    assert np.array_equal(found["rows"], np.arange(len(found["vector_id"])))  # partitions are ranges of rows
    wanted: list[set[int]] = [set() for _ in range(LISTS)]
    files = IvfFiles(index)
    for number in range(len(files.batches)):
        with files.open_batch(number) as batch:
            for place in np.flatnonzero(batch.directory["size"]).tolist():
                wanted[batch.directory["list"][place]] |= set(read_list(batch, place)[0].tolist())
    lists = [set(found["vector_id"][found["partition"] == number].tolist()) for number in range(LISTS)]
    assert lists == wanted
    once = [np.sort(np.unique(row, return_index=True)[1])[:10] for row in found["found"]]
    theirs = tuple(
        np.stack([found[name][i, one] for i, one in enumerate(once)]) for name in ("found", "distances")
    )
    assert_same_answers(theirs, ours(index, queries, 4, tmp_path / "r.parquet"), 1e-5)


def test_names_and_metadata_stand_beside_their_vectors(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows, names = make_vectors("float32", 300), [f"name {i}" for i in range(300)]
    source = {"id": names, "vector": list(rows), "partition": [i % 7 for i in range(300)]}
    pq.write_table(pa.table(source), tmp_path / "rows.parquet")
    indexmill.build(
        tmp_path / "rows.parquet",
        tmp_path / "ix",
        kind="ivf",
        lists=5,
        id_column="id",
        metadata_columns=["partition"],
    )
    found = exported(tmp_path / "ix", tmp_path, rows[:3], 5)
    assert found["id"].tolist() == [names[i] for i in found["vector_id"]]
    code = (
        "import lance; t = lance.dataset(r'%s').to_table(columns=['vector_id', 'metadata_partition']).to_pydict(); "
        "assert [i %% 7 for i in t['vector_id']] == t['metadata_partition']"
    )
    with_lance("-c", code % (tmp_path / "out-5" / "vectors.lance"))
    assert id_map(tmp_path / "out-5")["id"].to_pylist() == names


@pytest.mark.parametrize("name", ["ip", "cosine-pq"])
def test_the_snippet_runs(indexes: dict[str, Path], tmp_path: Path, name: str) -> None:
    places = f"{str(indexes[name])!r}, 'lance', {str(tmp_path / 'out')!r}"
    code = f"import indexmill; print(indexmill.export({places})['open'])"
    assert "_distance" in with_lance("-c", with_lance("-c", code))


def test_what_lance_cannot_rank_is_refused(tmp_path: Path) -> None:
    rows = make_vectors("float32", 400)
    codes = build_lists(tmp_path / "codes", rows, lists=4, codec="pq", pq_bytes=5)
    products = build_lists(tmp_path / "products", rows, lists=4, codec="sq8", metric="ip")
    for index, message in ((codes, "chunks of 2 and 3 components"), (products, "inner products of lists")):
        with pytest.raises(ConfigError, match=message):
            indexmill.export(index, "lance", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(not has_proportional_sizes(), reason="needs Linux's smaps_rollup")
def test_what_lance_sorts_in_memory_is_a_part_of_the_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    n = 200_000
    monkeypatch.setenv("PYTHONPATH", python_path())
    setup = LISTS_WRITTEN.replace("N)", f"{n})").replace("faiss-ivf", "lance")
    grown = peak_growth(setup, "export('ix')", str(python_of("lance")))
    assert n * 200 * 4 == 160_000_000  # bytes of the vectors that are written
    assert grown < 60_000_000  # indexed at once they would take more than twice as much


def test_a_full_disk_is_reported_and_nothing_is_left(indexes: dict[str, Path], tmp_path: Path) -> None:
    def limit() -> None:  # no file may pass 64 KiB: the system then refuses as a full disk does
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))

    command = ["-m", "indexmill.jobs.cli.main", "export", indexes["float32"], "--to", "lance"]
    said = with_lance(*command, "--out", tmp_path / "out", code=1, limit=limit)
    assert "error: LanceError(IO): File too large" in said, said
    assert list(tmp_path.iterdir()) == []


def test_the_json_of_pylance_drops_a_rotation_matrix(tmp_path: Path) -> None:
    """Why lists of RaBitQ codes are not exported: their rotation is a matrix, and pylance takes one as JSON alone."""
    with_lance("-c", ROTATED, tmp_path / "fast.lance", "fast")
    assert "matrix rotation is missing" in with_lance("-c", ROTATED, tmp_path / "own.lance", "matrix", code=1)
