"""Exports of inverted lists to faiss: the same lists, codes and answers, of every type, metric and codec."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from tests.oracles.files.lists import read_list
from tests.support.indexes.built import Built
from tests.support.indexes.export import assert_same_answers, id_map, paste, whole_pivots
from tests.support.indexes.ivf import LISTS, N, build_lists, join, make_vectors, result

import indexmill
from indexmill.formats.errors import ConfigError, CorruptFile
from indexmill.formats.ivf.index import IvfFiles

TARGETS = ("faiss-ivf", "faiss-ivf-disk")
QUERIES = 80
#: Indexes and their parameters: every type, metric and codec; 5 bytes of 12 components make chunks of 2 and 3.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "float32": ("float32", {}),
    "float16": ("float16", {}),
    "uint8": ("uint8", {}),
    "int8": ("int8", {}),
    "sq8": ("float32", {"codec": "sq8"}),
    "pq": ("float32", {"codec": "pq", "pq_bytes": 6}),
    "pq-unlike-chunks": ("uint8", {"codec": "pq", "pq_bytes": 5}),
    "ip": ("float32", {"metric": "ip"}),
    "ip-pq": ("float32", {"metric": "ip", "codec": "pq", "pq_bytes": 4}),
    "ip-sq8": ("float32", {"metric": "ip", "codec": "sq8"}),
    "cosine": ("float32", {"metric": "cosine"}),
    "cosine-pq": ("float32", {"metric": "cosine", "codec": "pq", "pq_bytes": 6}),
    "rabitq-1": ("float32", {"codec": "rabitq", "code_bits": 1}),
    "rabitq-4": ("uint8", {"codec": "rabitq", "code_bits": 4}),
    "cosine-rabitq": ("float32", {"metric": "cosine", "codec": "rabitq", "code_bits": 3}),
    "opq": ("float32", {"codec": "pq", "pq_bytes": 6, "pq_rotation": "opq"}),
    "opq-unlike-chunks": ("uint8", {"codec": "pq", "pq_bytes": 5, "pq_rotation": "opq"}),
    "ip-opq": ("float32", {"metric": "ip", "codec": "pq", "pq_bytes": 4, "pq_rotation": "opq"}),
    "cosine-opq": ("float32", {"metric": "cosine", "codec": "pq", "pq_bytes": 6, "pq_rotation": "opq"}),
}
#: Tolerance of scores, beside rounding to float32: faiss rounds the values of sq8 codes in other places.
TOLERANCE = dict.fromkeys(
    ("sq8", "ip-sq8", *(name for name in CASES if "rabitq" in name or "opq" in name)), 1e-5
)


@pytest.fixture(scope="module")
def indexes(built: Built) -> dict[str, Path]:
    return {name: built(build_lists, make_vectors(dtype), **how) for name, (dtype, how) in CASES.items()}


def opened(folder: Path, nprobe: int = 4) -> Any:
    """Open an export as its snippet does."""
    index = faiss.read_index(str(folder / "index.faiss"), faiss.IO_FLAG_ONDISK_SAME_DIR)
    faiss.extract_index_ivf(index).nprobe = nprobe
    return index


def search(folder: Path, queries: Any, nprobe: int, k: int = 10) -> tuple[Any, Any]:
    """Return ten answers of `k`: unless k is large, faiss leaves out rows that their signs say are far."""
    scores, ids = opened(folder, nprobe).search(queries.astype(np.float32), k)
    return ids[:, :10], scores[:, :10]


def ours(index: Path, queries: Any, nprobe: int, out: Path) -> tuple[Any, Any]:
    """Return ids, and scores as faiss gives them: squared distances to codes of unit vectors, not cosines."""
    join(index, queries, out, nprobe=nprobe)
    ids, scores = result(out, len(queries), 10)
    shared = IvfFiles(index).centroids
    if shared.metric == "cosine" and shared.codec != "flat":
        scores = 2 - 2 * scores
    return ids, np.maximum(scores, 0) if shared.codec == "rabitq" else scores  # as faiss has estimates


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("target", TARGETS)
def test_faiss_answers_as_a_join_does(
    indexes: dict[str, Path], tmp_path: Path, name: str, target: str
) -> None:
    queries = make_vectors(CASES[name][0], QUERIES, seed=9)
    indexmill.export(indexes[name], target, tmp_path / "out")
    for nprobe in (4, 16):
        mine = ours(indexes[name], queries, nprobe, tmp_path / f"{nprobe}.parquet")
        theirs = search(tmp_path / "out", queries, nprobe, N if "rabitq" in name else 10)
        assert_same_answers(theirs, mine, TOLERANCE.get(name, 2e-6))


def test_codes_of_whole_numbers_are_ranked_exactly_alike(indexes: dict[str, Path], tmp_path: Path) -> None:
    """No distance is rounded: what differs differs among equal distances alone."""
    index = whole_pivots(indexes["pq-unlike-chunks"], tmp_path / "ix")
    queries = make_vectors("uint8", QUERIES, seed=9)
    indexmill.export(index, "faiss-ivf", tmp_path / "out")
    mine = ours(index, queries, 16, tmp_path / "r.parquet")
    assert_same_answers(search(tmp_path / "out", queries, 16), mine, 0.0)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["float32", "int8", "sq8", "pq", "opq-unlike-chunks"])
def test_lists_hold_the_same_ids_and_bytes(
    indexes: dict[str, Path], tmp_path: Path, name: str, target: str
) -> None:
    indexmill.export(indexes[name], target, tmp_path / "out")
    index = IvfFiles(indexes[name])
    whole = opened(tmp_path / "out")
    lists = faiss.extract_index_ivf(whole).invlists
    wanted: list[list[Any]] = [[] for _ in range(LISTS)]
    for number in range(len(index.batches)):
        with index.open_batch(number) as batch:
            for place in np.flatnonzero(batch.directory["size"]).tolist():
                wanted[batch.directory["list"][place]].append(read_list(batch, place))
    row_bytes = index.centroids.row_bytes
    for number, parts in enumerate(wanted):
        size = lists.list_size(number)
        assert size == sum(len(ids) for ids, _ in parts)
        ids = faiss.rev_swig_ptr(lists.get_ids(number), size).copy()
        codes = faiss.rev_swig_ptr(lists.get_codes(number), size * row_bytes).reshape(size, row_bytes).copy()
        assert np.array_equal(ids, np.concatenate([ids for ids, _ in parts]))
        flip = 0x80 if name == "int8" else 0  # faiss keeps int8 with its sign bit turned
        assert np.array_equal(codes ^ np.uint8(flip), np.concatenate([rows for _, rows in parts]))
    assert index.centroids.n_vectors == whole.ntotal == N


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_rotated_codes_are_faiss_own_or_better(tmp_path: Path, bits: int) -> None:
    """Of one bit faiss makes the same codes of the same vectors; of more it makes codes that estimate no better."""
    vectors = np.random.default_rng(1).normal(size=(2000, 48)).astype(np.float32)
    path = build_lists(tmp_path / "ix", vectors, lists=8, codec="rabitq", code_bits=bits, batch_vectors=None)
    indexmill.export(path, "faiss-ivf", tmp_path / "out")
    index = opened(tmp_path / "out", 8)
    ivf = faiss.downcast_index(faiss.extract_index_ivf(index))
    assert (ivf.rabitq.nb_bits, ivf.qb) == (bits, 0)
    own = opened(tmp_path / "out", 8)
    own.reset()
    own.add(vectors)
    queries = np.random.default_rng(2).normal(size=(30, 48)).astype(np.float32)
    distances = ((queries[:, None].astype(np.float64) - vectors[None]) ** 2).sum(axis=2)
    errors = []
    for one in (index, own):
        scores, ids = one.search(queries, 2000)
        errors.append(np.sqrt(np.mean((scores - np.take_along_axis(distances, ids, 1)) ** 2)))
    assert errors[0] <= errors[1] * 1.01
    if bits == 1:
        assert errors[0] == pytest.approx(errors[1], rel=1e-3)
        inside = faiss.downcast_index(faiss.extract_index_ivf(own))
        for number in range(8):
            rows = []
            for lists in (ivf.invlists, inside.invlists):
                size, width = lists.list_size(number), lists.code_size
                codes = faiss.rev_swig_ptr(lists.get_codes(number), size * width).reshape(size, width).copy()
                rows.append(codes[np.argsort(faiss.rev_swig_ptr(lists.get_ids(number), size))])
            signs = [np.unpackbits(codes[:, :6], axis=1) for codes in rows]
            assert np.mean(signs[0] != signs[1]) < 1e-4  # components that are nearly zero
            floats = [np.ascontiguousarray(codes[:, 6:]).view(np.float32) for codes in rows]
            np.testing.assert_allclose(floats[0], floats[1], rtol=1e-4)


def test_faiss_loses_little_by_its_estimate_from_signs(indexes: dict[str, Path], tmp_path: Path) -> None:
    queries = make_vectors("uint8", QUERIES, seed=9)
    indexmill.export(indexes["rabitq-4"], "faiss-ivf", tmp_path / "out")
    few, all_ = (search(tmp_path / "out", queries, 16, k)[0] for k in (10, N))
    assert np.mean([np.isin(a, b).mean() for a, b in zip(few, all_, strict=True)]) > 0.95


@pytest.mark.parametrize(
    ("target", "how", "message"),
    [
        *(
            (
                target,
                {"codec": "rabitq", "metric": "ip"},
                f"inner products of lists .*rabitq, but {target} holds .*another.*--codec",
            )
            for target in TARGETS
        ),
        (
            "lance",
            {"codec": "rabitq"},
            "lists with codec.*rabitq, but lance holds those with flat, sq8 or pq.*--codec",
        ),
        (
            "lance",
            {"codec": "pq", "pq_bytes": 4, "pq_rotation": "opq"},
            "PQ codes of rotated vectors, but lance holds those of vectors as they are; build with --pq-rotation none",
        ),
    ],
)
def test_rotated_codes_that_a_target_estimates_otherwise_are_refused(
    tmp_path: Path, target: str, how: dict[str, Any], message: str
) -> None:
    index = build_lists(tmp_path / "ix", make_vectors("float32", 300), lists=4, **how)
    with pytest.raises(ConfigError, match=f"to: {target}: {message}"):
        indexmill.export(index, target, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["float32", "pq"])
def test_lists_under_other_centroids_do_not_pass(indexes: dict[str, Path], tmp_path: Path, name: str) -> None:
    queries = make_vectors("float32", QUERIES, seed=9)
    indexmill.export(indexes[name], "faiss-ivf", tmp_path / "out")
    index = opened(tmp_path / "out")
    ivf = faiss.extract_index_ivf(index)
    coarse = faiss.downcast_index(ivf.quantizer)
    rows = coarse.reconstruct_n(0, LISTS)
    coarse.reset()
    coarse.add(np.ascontiguousarray(np.roll(rows, 1, axis=0)))
    if name == "pq":
        faiss.downcast_index(ivf).precompute_table()
    ivf.nprobe = 4
    scores, ids = index.search(queries, 10)
    with pytest.raises(AssertionError):
        assert_same_answers((ids, scores), ours(indexes[name], queries, 4, tmp_path / "r.parquet"), 2e-6)


@pytest.mark.parametrize("how", [{}, {"codec": "pq", "pq_bytes": 6}])
def test_vectors_in_several_lists_are_found_as_a_join_finds_them(tmp_path: Path, how: dict[str, Any]) -> None:
    index = build_lists(tmp_path / "ix", make_vectors("float32"), copies=3, closure=0.5, **how)
    found = indexmill.export(index, "faiss-ivf", tmp_path / "out")
    assert "pass over what comes again" in found["open"]
    queries = make_vectors("float32", QUERIES, seed=9)
    whole = opened(tmp_path / "out")
    assert whole.ntotal > N
    scores, ids = whole.search(queries, 30)
    once = [np.sort(np.unique(row, return_index=True)[1])[:10] for row in ids]
    theirs = np.stack([ids[i, one] for i, one in enumerate(once)])
    theirs_scores = np.stack([scores[i, one] for i, one in enumerate(once)])
    assert_same_answers((theirs, theirs_scores), ours(index, queries, 4, tmp_path / "r.parquet"), 2e-6)


def test_bytes_are_those_faiss_writes(indexes: dict[str, Path], tmp_path: Path) -> None:
    names = "float32 uint8 sq8 pq ip-pq cosine rabitq-1 cosine-rabitq opq opq-unlike-chunks ip-opq"
    for name in names.split():
        indexmill.export(indexes[name], "faiss-ivf", tmp_path / name)
        index = faiss.read_index(str(tmp_path / name / "index.faiss"))
        faiss.write_index(index, str(tmp_path / "again"))
        assert (tmp_path / "again").read_bytes() == (tmp_path / name / "index.faiss").read_bytes()


@pytest.mark.parametrize("target", TARGETS)
def test_user_ids_are_what_faiss_answers(tmp_path: Path, target: str) -> None:
    vectors, names = (
        make_vectors("float32", 500),
        np.random.default_rng(1).permutation(10**12 + np.arange(500)),
    )
    source = {"id": names, "vector": list(vectors), "colour": [f"c{i % 7}" for i in range(500)]}
    index = tmp_path / "ix"
    indexmill.build(
        source_file(tmp_path, source), index, kind="ivf", lists=8, id_column="id", metadata_columns=["colour"]
    )
    indexmill.export(index, target, tmp_path / "user")
    indexmill.export(index, target, tmp_path / "slot", ids="slot")
    queries = make_vectors("float32", 20, seed=9)
    named, _ = search(tmp_path / "user", queries, 8)
    slots, _ = search(tmp_path / "slot", queries, 8)
    assert np.array_equal(names[slots], named)
    table = id_map(tmp_path / "slot")
    assert table.schema.names == ["slot", "vector_id", "id", "colour"]
    assert np.array_equal(table["id"].to_numpy(), names)
    assert table["colour"].to_pylist() == source["colour"]


def source_file(folder: Path, columns: dict[str, Any]) -> str:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(columns), folder / "rows.parquet")
    return str(folder / "rows.parquet")


def test_lists_on_the_disk_begin_on_pages(indexes: dict[str, Path], tmp_path: Path) -> None:
    indexmill.export(indexes["pq-unlike-chunks"], "faiss-ivf-disk", tmp_path / "out")
    whole = opened(tmp_path / "out")
    lists = faiss.downcast_InvertedLists(faiss.extract_index_ivf(whole).invlists)
    found = [lists.lists.at(number) for number in range(LISTS)]
    assert all(one.offset % 4096 == 0 and one.capacity % 8 == 0 for one in found)
    assert all(one.size <= one.capacity < one.size + 8 for one in found)
    assert lists.totsize == (tmp_path / "out" / "index.ivfdata").stat().st_size


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("ids", ["user", "slot"])
def test_the_snippet_runs(indexes: dict[str, Path], tmp_path: Path, target: str, ids: str) -> None:
    found = indexmill.export(indexes["ip-pq"], target, tmp_path / "it's here", ids=ids)
    assert paste(found["open"]).strip()


@pytest.mark.parametrize("target", TARGETS)
def test_ids_that_are_no_i64_are_refused_unless_slots_will_do(tmp_path: Path, target: str) -> None:
    source = {"id": [f"n{i}" for i in range(300)], "vector": list(make_vectors("float32", 300))}
    indexmill.build(source_file(tmp_path, source), tmp_path / "ix", kind="ivf", lists=4, id_column="id")
    with pytest.raises(ConfigError, match=f"string ids, but {target} holds ids from 0 to .*give --ids slot"):
        indexmill.export(tmp_path / "ix", target, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    indexmill.export(tmp_path / "ix", target, tmp_path / "out", ids="slot")


@pytest.mark.parametrize("target", TARGETS)
def test_equal_exports_have_equal_bytes(indexes: dict[str, Path], tmp_path: Path, target: str) -> None:
    for out in ("a", "b"):
        indexmill.export(indexes["pq"], target, tmp_path / out)
    first, second = ({p.name: p.read_bytes() for p in (tmp_path / out).iterdir()} for out in ("a", "b"))
    assert first == second


def test_a_missing_library_is_named_before_anything_is_written(
    indexes: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lance", None)
    with pytest.raises(ConfigError, match=r"to: lance: .*missing.*pip install 'indexmill\[lance\]'"):
        indexmill.export(indexes["float32"], "lance", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_damaged_lists_are_not_exported(tmp_path: Path) -> None:
    index = build_lists(tmp_path / "ix", make_vectors("float32"))
    data = bytearray((index / "batch-000001.imx").read_bytes())
    data[5 * 4096 + 100] ^= 1
    (index / "batch-000001.imx").write_bytes(data)
    with pytest.raises(CorruptFile, match=r"batch-000001.imx: page 5 .*CRC32C"):
        indexmill.export(index, "faiss-ivf", tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ix", "ix.npy"]
