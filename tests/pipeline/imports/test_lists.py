"""Imports of inverted lists of faiss: an export comes back as it was, and faiss's own indexes answer as they did."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from tests.oracles.files.lists import read_list
from tests.oracles.files.verify import verify_index
from tests.support.cli import run, run_json
from tests.support.indexes.export import assert_same_answers
from tests.support.indexes.ivf import BATCH, DIM, LISTS, N, build_lists, join, make_vectors, result

import indexmill
from indexmill.formats.errors import BudgetError, ConfigError, CorruptFile, ForeignFile, InputError
from indexmill.formats.index.manifest import parse_manifest
from indexmill.formats.ivf.index import IvfFiles
from indexmill.reader.ivf import IvfIndex

QUERIES = 60


def back(index: Path, folder: Path, target: str = "faiss-ivf", **how: Any) -> Path:
    """Export an index and import what was written."""
    indexmill.export(index, target, folder / "out", ids=how.pop("ids_of_export", "user"))
    opened = indexmill.import_index(folder / "out" / "index.faiss", folder / "back", program="faiss", **how)
    assert isinstance(opened, IvfIndex)
    assert opened.path == folder / "back"
    return folder / "back"


@pytest.mark.parametrize("target", ["faiss-ivf", "faiss-ivf-disk"])
@pytest.mark.parametrize(
    ("dtype", "how"),
    [
        ("float32", {}),
        ("float16", {}),
        ("uint8", {}),
        ("int8", {}),
        ("float32", {"codec": "pq", "pq_bytes": 5}),
        ("float32", {"metric": "ip"}),
        ("float32", {"metric": "cosine"}),
        ("float32", {"metric": "cosine", "codec": "pq", "pq_bytes": 6}),
        ("float32", {"codec": "rabitq", "code_bits": 4}),
        ("float32", {"metric": "cosine", "codec": "rabitq", "code_bits": 7}),
        ("float32", {"codec": "pq", "pq_bytes": 5, "pq_rotation": "opq"}),
        ("float32", {"metric": "cosine", "codec": "pq", "pq_bytes": 6, "pq_rotation": "opq"}),
    ],
)
def test_import_of_export_is_the_index(tmp_path: Path, dtype: str, how: dict[str, Any], target: str) -> None:
    index = build_lists(tmp_path / "ix", make_vectors(dtype), batch_vectors=None, **how)
    again = back(index, tmp_path, target)
    before, after = parse_manifest(index), parse_manifest(again)
    assert (before.build_id, before.ivf) == (after.build_id, after.ivf)
    assert after.certificate == (None if how.get("codec") else before.certificate)
    assert verify_index(again) == []


def test_rows_of_one_bit_come_back_except_the_last_bit_of_their_factor(tmp_path: Path) -> None:
    index = build_lists(
        tmp_path / "ix", make_vectors("float32"), codec="rabitq", code_bits=1, batch_vectors=None
    )
    again = back(index, tmp_path)
    assert verify_index(again) == []
    before, after = (rows_of(path) for path in (index, again))
    assert np.array_equal(before[:, :4], after[:, :4])
    assert np.array_equal(before[:, 8:], after[:, 8:])
    factors = [np.ascontiguousarray(rows[:, 4:8]).view(np.int32) for rows in (before, after)]
    assert np.abs(factors[0] - factors[1]).max() <= 1


def rows_of(index: Path) -> np.ndarray:
    """The rows of all lists of the first batch."""
    with IvfFiles(index).open_batch(0) as batch:
        places = np.flatnonzero(batch.directory["size"]).tolist()
        return np.concatenate([read_list(batch, place)[1] for place in places])


@pytest.mark.parametrize("how", [{}, {"codec": "pq", "pq_bytes": 5}])
def test_vectors_in_several_lists_come_back_in_all_of_them(tmp_path: Path, how: dict[str, Any]) -> None:
    vectors = make_vectors("float32")
    index = build_lists(tmp_path / "ix", vectors, batch_vectors=None, copies=3, closure=0.5, **how)
    again = back(index, tmp_path)
    before, after = IvfFiles(index), IvfFiles(again)
    assert (again / "batch-000000.imx").read_bytes()[4096:-4096] == (index / "batch-000000.imx").read_bytes()[
        4096:-4096
    ]
    assert 1 < after.centroids.copies <= before.centroids.copies
    assert verify_index(again) == []


def test_a_vector_may_stand_in_many_lists(tmp_path: Path) -> None:
    vectors = make_vectors("float32", 400)
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(DIM), DIM, 40)
    index.train(vectors)
    index.add(vectors)
    code, home = vectors[:1].view(np.uint8), int(index.quantizer.search(vectors[:1], 1)[1][0, 0])
    for number in range(40):
        if number != home:
            index.invlists.add_entry(number, 0, faiss.swig_ptr(code))
    index.ntotal += 39
    faiss.write_index(index, str(tmp_path / "own.faiss"))
    indexmill.import_index(tmp_path / "own.faiss", tmp_path / "ix", program="faiss")
    assert IvfFiles(tmp_path / "ix").centroids.copies == 40
    assert verify_index(tmp_path / "ix") == []
    join(tmp_path / "ix", vectors[:1], tmp_path / "r.parquet", nprobe=40)
    ids, _ = result(tmp_path / "r.parquet", 1, 10)
    assert ids[0, 0] == 0
    assert len(set(ids[0])) == 10
    index.reset()
    faiss.write_index(index, str(tmp_path / "empty.faiss"))
    with pytest.raises(CorruptFile, match="number of vectors: expected at least 1, got 0"):
        indexmill.import_index(tmp_path / "empty.faiss", tmp_path / "none", program="faiss")


@pytest.mark.parametrize("rotation", ["none", "opq"])
@pytest.mark.parametrize("pq_bytes", [4, 5, 13])
def test_codes_of_inner_products_come_back(tmp_path: Path, pq_bytes: int, rotation: str) -> None:
    """All except the largest norm, which belongs to vectors that the file does not hold."""
    how = {"codec": "pq", "pq_bytes": pq_bytes, "pq_rotation": rotation}
    index = build_lists(tmp_path / "ix", make_vectors("float32"), metric="ip", **how)
    before, after = IvfFiles(index).centroids, IvfFiles(back(index, tmp_path)).centroids
    assert np.array_equal(before.centroids, after.centroids)
    assert before.codebook is not None
    assert after.codebook is not None
    assert np.array_equal(before.codebook.offsets, after.codebook.offsets)
    assert np.array_equal(before.codebook.pivots, after.codebook.pivots)
    assert (before.codec, before.row_bytes) == (after.codec, after.row_bytes)
    assert (before.rotation is None) == (after.rotation is None) == (rotation == "none")
    if before.rotation is not None:
        assert np.array_equal(before.rotation, after.rotation)


def test_ranges_of_sq8_come_back_except_their_last_bits(tmp_path: Path) -> None:
    index = build_lists(tmp_path / "ix", make_vectors("float32"), codec="sq8", batch_vectors=None)
    again = back(index, tmp_path)
    before, after = IvfFiles(index).centroids.scale, IvfFiles(again).centroids.scale
    assert before is not None
    assert after is not None
    np.testing.assert_allclose(before, after, rtol=3e-7, atol=1e-5)
    assert (index / "batch-000000.imx").read_bytes()[4096:-4096] == (again / "batch-000000.imx").read_bytes()[
        4096:-4096
    ]


def test_batches_are_cut_to_the_memory(tmp_path: Path) -> None:
    index = build_lists(tmp_path / "ix", make_vectors("float32"), batch_vectors=BATCH)
    indexmill.export(index, "faiss-ivf", tmp_path / "out")
    from indexmill.formats.imports.faiss import open_faiss
    from indexmill.formats.imports.lists import ImportedLists
    from indexmill.pipeline.imports import lists as foreign_lists
    from indexmill.pipeline.imports.graph import ImportOptions

    lists = open_faiss(tmp_path / "out" / "index.faiss")
    assert isinstance(lists, ImportedLists)
    shape = foreign_lists.shape_of(lists.shared, 1 << 30)
    parameters = shape.parameters.model_copy(update={"batch_vectors": BATCH})
    names = foreign_lists.names_of(lists, ImportOptions(tmp_path / "back"))
    (tmp_path / "files").mkdir()
    small = foreign_lists.IvfShape(shape.n, shape.dim, shape.dtype, 8.0, parameters)
    foreign_lists.ListsWriter(lists, lists.shared, names, small).emit(tmp_path / "files", lambda n: None)
    for name in ("centroids.imx", "batch-000000.imx", "batch-000001.imx", "batch-000002.imx", "ids.imx"):
        assert (tmp_path / "files" / name).read_bytes() == (index / name).read_bytes()


def test_names_with_gaps_become_user_ids(tmp_path: Path) -> None:
    vectors, names = make_vectors("float32", 400), np.random.default_rng(1).permutation(900)[:400]
    quantizer = faiss.IndexFlatL2(DIM)
    index = faiss.IndexIVFFlat(quantizer, DIM, 6)
    index.train(vectors)
    index.add_with_ids(vectors, names)
    faiss.write_index(index, str(tmp_path / "own.faiss"))
    manifest = run_json("import", "faiss", tmp_path / "own.faiss", "--out", tmp_path / "ix")
    assert manifest["input"]["imported"]["from"] == "faiss-ivf-flat"
    order = np.argsort(names)
    assert IvfFiles(tmp_path / "ix").user_ids().to_pylist() == names[order].tolist()
    queries = make_vectors("float32", QUERIES, seed=9)
    index.nprobe = 3
    scores, found = index.search(queries, 10)
    join(tmp_path / "ix", queries, tmp_path / "r.parquet", nprobe=3)
    ids, ours = result(tmp_path / "r.parquet", QUERIES, 10)
    assert_same_answers((found, scores), (names[order][ids], ours), 2e-6)
    text = run("import", "faiss", tmp_path / "own.faiss", "--out", tmp_path / "ix", "--force").stdout
    assert "imported from faiss-ivf-flat (own.faiss)" in text


def test_names_of_an_id_map_are_those_of_the_lists_within(tmp_path: Path) -> None:
    vectors, names = make_vectors("float32", 400), np.random.default_rng(1).permutation(900)[:400]
    index = faiss.IndexIDMap(faiss.IndexIVFFlat(faiss.IndexFlatL2(DIM), DIM, 6))
    index.train(vectors)
    index.add_with_ids(vectors, names)
    faiss.write_index(index, str(tmp_path / "own.faiss"))
    indexmill.import_index(tmp_path / "own.faiss", tmp_path / "ix", program="faiss")
    assert IvfFiles(tmp_path / "ix").user_ids().to_pylist() == sorted(names.tolist())
    join(tmp_path / "ix", vectors[:20], tmp_path / "r.parquet", k=1, nprobe=1)
    assert np.array_equal(np.sort(names)[result(tmp_path / "r.parquet", 20, 1)[0][:, 0]], names[:20])


@pytest.mark.parametrize("kind", ["flat", "pq", "sq8", "fp16"])
def test_indexes_that_faiss_wrote_answer_as_they_did(tmp_path: Path, kind: str) -> None:
    vectors, queries = make_vectors("float32"), make_vectors("float32", QUERIES, seed=9)
    quantizer = faiss.IndexFlatL2(DIM)
    index = {
        "flat": lambda: faiss.IndexIVFFlat(quantizer, DIM, LISTS),
        "pq": lambda: faiss.IndexIVFPQ(quantizer, DIM, LISTS, 4, 8),
        "sq8": lambda: scalar(quantizer, faiss.ScalarQuantizer.QT_8bit),
        "fp16": lambda: scalar(quantizer, faiss.ScalarQuantizer.QT_fp16),
    }[kind]()
    faiss.omp_set_num_threads(1)
    index.train(vectors)
    index.add(vectors)
    index.nprobe = 4
    faiss.write_index(index, str(tmp_path / "own.faiss"))
    indexmill.import_index(tmp_path / "own.faiss", tmp_path / "ix", program="faiss")
    asked = queries.astype(np.float16).astype(np.float32) if kind == "fp16" else queries
    scores, found = index.search(asked, 10)
    join(tmp_path / "ix", asked, tmp_path / "r.parquet", nprobe=4)
    assert_same_answers((found, scores), result(tmp_path / "r.parquet", QUERIES, 10), 1e-5)
    assert verify_index(tmp_path / "ix") == []


@pytest.mark.parametrize(
    ("rotation", "front"),
    [
        (lambda: faiss.OPQMatrix(DIM, 4), ()),
        (lambda: faiss.RandomRotationMatrix(DIM, DIM), ()),
        (lambda: faiss.OPQMatrix(DIM, 4), (lambda: faiss.NormalizationTransform(DIM),)),
    ],
)
def test_product_codes_of_rotated_vectors_that_faiss_made_answer_as_they_did(
    tmp_path: Path, rotation: Any, front: Any
) -> None:
    vectors, queries = make_vectors("float32"), make_vectors("float32", QUERIES, seed=9)
    inner = faiss.IndexIVFPQ(faiss.IndexFlatL2(DIM), DIM, LISTS, 4, 8)
    inner.nprobe = 4
    transforms = [make() for make in (*front, rotation)]
    faiss.omp_set_num_threads(1)
    index = in_front_of(inner, *transforms)
    index.train(vectors)
    index.add(vectors)
    faiss.write_index(index, str(tmp_path / "own.faiss"))
    opened: Any = indexmill.import_index(tmp_path / "own.faiss", tmp_path / "ix", program="faiss")
    assert opened.native.codec == "opq"
    scores, found = index.search(queries, 10)
    join(tmp_path / "ix", queries, tmp_path / "r.parquet", nprobe=4)
    ids, ours = result(tmp_path / "r.parquet", QUERIES, 10)
    assert_same_answers((found, scores), (ids, 2 - 2 * ours if front else ours), 1e-5)
    searched = opened.search(queries, 10, nprobe=4)
    assert_same_answers((searched.vector_ids, searched.scores), (ids, ours), 1e-5)
    assert verify_index(tmp_path / "ix") == []
    parameters = parse_manifest(tmp_path / "ix").parameters
    assert [parameters[name] for name in ("codec", "pq_bytes", "pq_rotation")] == ["pq", 4, "opq"]


@pytest.mark.parametrize("bits", [1, 2, 5, 8])
@pytest.mark.parametrize("is_rotated", [True, False])
def test_rotated_codes_that_faiss_made_answer_as_they_did(
    tmp_path: Path, bits: int, is_rotated: bool
) -> None:
    vectors, queries = make_vectors("float32"), make_vectors("float32", QUERIES, seed=9)
    inner = faiss.IndexIVFRaBitQ(faiss.IndexFlatL2(DIM), DIM, LISTS, faiss.METRIC_L2, True, bits)
    inner.qb = 0
    inner.nprobe = 4
    index = faiss.IndexPreTransform(faiss.RandomRotationMatrix(DIM, DIM), inner) if is_rotated else inner
    faiss.omp_set_num_threads(1)
    index.train(vectors)
    index.add(vectors)
    faiss.write_index(index, str(tmp_path / "own.faiss"))
    indexmill.import_index(tmp_path / "own.faiss", tmp_path / "ix", program="faiss")
    scores, found = index.search(queries, N)  # for fewer, faiss leaves rows out by their signs
    join(tmp_path / "ix", queries, tmp_path / "r.parquet", nprobe=4)
    ids, ours = result(tmp_path / "r.parquet", QUERIES, 10)
    assert_same_answers((found[:, :10], scores[:, :10]), (ids, np.maximum(ours, 0)), 1e-5)
    assert verify_index(tmp_path / "ix") == []
    assert parse_manifest(tmp_path / "ix").parameters["code_bits"] == bits


def trained(index: Any, path: Path) -> bytearray:
    """Fill an index of faiss, write it to a file, and return the bytes of the file."""
    vectors = make_vectors("float32", 500)
    index.train(vectors)
    index.add(vectors)
    faiss.write_index(index, str(path))
    return bytearray(path.read_bytes())


@pytest.mark.parametrize(
    ("metric", "bits", "message"),
    [
        (faiss.METRIC_INNER_PRODUCT, 1, "expected codes of RaBitQ that are compared by l2, got ip"),
        (faiss.METRIC_INNER_PRODUCT, 3, "expected codes of RaBitQ that are compared by l2, got ip"),
        (faiss.METRIC_L2, 9, "1 to 8 bits a component"),
    ],
)
def test_rotated_codes_that_have_no_place_are_refused(
    tmp_path: Path, metric: int, bits: int, message: str
) -> None:
    trained(faiss.IndexIVFRaBitQ(faiss.IndexFlatL2(DIM), DIM, 4, metric, True, bits), tmp_path / "own.faiss")
    with pytest.raises(ForeignFile, match=message):
        indexmill.import_index(tmp_path / "own.faiss", tmp_path / "ix", program="faiss")


def test_rotations_and_rows_that_cannot_be_are_refused(tmp_path: Path) -> None:
    inner = faiss.IndexIVFRaBitQ(faiss.IndexFlatL2(DIM), DIM, 4)
    path = tmp_path / "own.faiss"
    whole = trained(faiss.IndexPreTransform(faiss.RandomRotationMatrix(DIM, DIM), inner), path)
    first = whole.index(b"rrot") + 4 + 1 + 8
    head = whole.index(b"full") + 4 + 8 + 4 * 8 + 2  # behind the sizes of four lists, and the signs of a row
    row = 2 + 8
    for at, value, error, message in (
        (first, 3.0, ForeignFile, "an orthogonal matrix of 12 x 12"),
        (
            head,
            np.nan,
            CorruptFile,
            r"list \d, row 0: expected a length and a factor that are finite.*got nan and \d",
        ),
        (head + row, -2.0, CorruptFile, r"list \d, row 1: expected .* not negative, got -2\.0 and \d"),
    ):
        path.write_bytes(whole[:at] + struct.pack("<f", value) + whole[at + 4 :])
        with pytest.raises(error, match=message):
            indexmill.import_index(path, tmp_path / "ix", program="faiss")


@pytest.mark.parametrize("bits", [1, 4])
def test_sizes_of_rotated_codes_that_differ_are_named(tmp_path: Path, bits: int) -> None:
    inner = faiss.IndexIVFRaBitQ(faiss.IndexFlatL2(DIM), DIM, 4, faiss.METRIC_L2, True, bits)
    path = tmp_path / "own.faiss"
    whole = trained(faiss.IndexPreTransform(faiss.RandomRotationMatrix(DIM, DIM), inner), path)
    size = 2 + 8 if bits == 1 else 2 + 12 + 5 + 8
    at = whole.index(struct.pack("<QQi", DIM, size, 1))  # dimension, bytes of a row, metric
    again = at + 20 + 8 * (bits > 1)
    for place, message in (
        (at, f"components of a row: expected {DIM}, got 13"),
        (at + 8, f"bytes of a row: expected {size}, got 13"),
        (again, f"bytes of a row, again: expected {size}, got 13"),
    ):
        path.write_bytes(whole[:place] + struct.pack("<Q", 13) + whole[place + 8 :])
        with pytest.raises(CorruptFile, match=f"RaBitQ: {message}"):
            indexmill.import_index(path, tmp_path / "ix", program="faiss")


def test_a_rotation_of_other_components_than_the_lists_is_named(tmp_path: Path) -> None:
    """faiss refuses such a chain, so the header of the lists is changed, and that of their centroids."""
    inner = faiss.IndexIVFRaBitQ(faiss.IndexFlatL2(8), 8, 4)
    path = tmp_path / "own.faiss"
    inner.train(make_vectors("float32", 500)[:, :8].copy())
    inner.add(make_vectors("float32", 500)[:, :8].copy())
    faiss.write_index(inner, str(path))
    lists = path.read_bytes()
    whole = trained(
        faiss.IndexPreTransform(
            faiss.RandomRotationMatrix(DIM, DIM), faiss.IndexIVFRaBitQ(faiss.IndexFlatL2(DIM), DIM, 4)
        ),
        path,
    )
    path.write_bytes(bytes(whole[: whole.index(b"Iwrq")]) + lists)
    with pytest.raises(CorruptFile, match=f"RaBitQ: components of the rotation: expected 8, got {DIM}"):
        indexmill.import_index(path, tmp_path / "ix", program="faiss")


def in_front_of(index: Any, *transforms: Any) -> Any:
    """An index of faiss behind transforms, the first of which a query meets first."""
    whole = faiss.IndexPreTransform(index)
    for transform in reversed(transforms):
        whole.prepend_transform(transform)
    return whole


def test_transforms_that_have_no_place_with_rotated_codes_are_refused(tmp_path: Path) -> None:
    def coded(metric: int) -> Any:
        return faiss.IndexIVFRaBitQ(faiss.IndexFlatL2(DIM), DIM, 4, metric)

    def products() -> Any:
        return faiss.IndexIVFPQ(faiss.IndexFlatL2(DIM), DIM, 4, 4, 8)

    flat = faiss.IndexIVFFlat(faiss.IndexFlatL2(DIM), DIM, 4)
    unit, moved = faiss.NormalizationTransform(DIM), faiss.RemapDimensionsTransform(DIM, DIM, False)
    rotation, other = faiss.RandomRotationMatrix(DIM, DIM), faiss.RandomRotationMatrix(DIM, DIM)
    path = tmp_path / "own.faiss"
    for index, message in (
        (in_front_of(coded(faiss.METRIC_INNER_PRODUCT), unit), "RaBitQ that are compared by l2, got ip"),
        (in_front_of(coded(faiss.METRIC_L2), moved), "codes of RaBitQ without 'RmDT', got one"),
        (in_front_of(flat, rotation), "codes of PQ or RaBitQ behind a rotation, got 'IwFl'"),
        (in_front_of(coded(faiss.METRIC_L2), rotation, other), "one 'RmDT', behind a rotation, got 'rrot'"),
        (in_front_of(coded(faiss.METRIC_L2), rotation, unit), "one 'RmDT', behind a rotation, got 'VNrm'"),
        (in_front_of(coded(faiss.METRIC_L2), moved, rotation), "codes of RaBitQ without 'RmDT', got one"),
        (in_front_of(coded(faiss.METRIC_L2), rotation, moved), "codes of RaBitQ without 'RmDT', got one"),
        (
            in_front_of(products(), moved, rotation),
            "no 'RmDT' in front of a rotation, or for ip one that adds",
        ),
        (in_front_of(products(), moved, unit), "'VNrm', then 'RmDT', then a rotation .*, got 'VNrm'"),
        (in_front_of(products(), faiss.PCAMatrix(DIM, DIM)), "then a rotation .*, got 'Pcam'"),
    ):
        trained(index, path)
        with pytest.raises(ForeignFile, match=message):
            indexmill.import_index(path, tmp_path / "ix", program="faiss")
    assert [p.name for p in tmp_path.iterdir()] == ["own.faiss"]


def test_a_budget_counts_the_rotation(tmp_path: Path) -> None:
    needs = []
    for codec, rotation in (("flat", "none"), ("rabitq", "none"), ("pq", "opq")):
        how = {"codec": codec, "pq_rotation": rotation}
        index = build_lists(tmp_path / codec, make_vectors("float32", 400), lists=4, **how)
        with pytest.raises(BudgetError) as refusal:
            back(index, tmp_path / f"{codec}-back", memory=1000)
        needs.append(int(str(refusal.value).split("takes ")[1].split()[0].replace(",", "")))
    assert [need - needs[0] for need in needs] == [0, 16 * DIM**2, 16 * DIM**2]


def scalar(quantizer: Any, kind: int) -> Any:
    return faiss.IndexIVFScalarQuantizer(quantizer, DIM, LISTS, kind, faiss.METRIC_L2, False)


def test_what_has_no_place_is_refused(tmp_path: Path) -> None:
    vectors = make_vectors("float32", 500)
    products = faiss.IndexIVFFlat(faiss.IndexFlatIP(DIM), DIM, 4, faiss.METRIC_INNER_PRODUCT)
    residuals = faiss.IndexIVFScalarQuantizer(
        faiss.IndexFlatL2(DIM), DIM, 4, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_L2, True
    )
    nibbles = faiss.IndexIVFPQ(faiss.IndexFlatL2(DIM), DIM, 4, 4, 4)
    rotated = faiss.IndexPreTransform(
        faiss.RandomRotationMatrix(DIM, DIM), faiss.IndexIVFFlat(faiss.IndexFlatL2(DIM), DIM, 4)
    )
    shortened = faiss.IndexPreTransform(
        faiss.OPQMatrix(DIM, 4, 8), faiss.IndexIVFPQ(faiss.IndexFlatL2(8), 8, 4, 4, 8)
    )
    for index, message in (
        (products, "compares them by ip"),
        (residuals, "by_residual 1"),
        (nibbles, "4 bits"),
        (rotated, "codes of PQ or RaBitQ behind a rotation, got 'IwFl'"),
        (shortened, f"an orthogonal matrix of {DIM} x {DIM}, got another transform"),
    ):
        index.train(vectors)
        index.add(vectors)
        faiss.write_index(index, str(tmp_path / "own.faiss"))
        with pytest.raises(ForeignFile, match=message):
            indexmill.import_index(tmp_path / "own.faiss", tmp_path / "ix", program="faiss")
    assert [p.name for p in tmp_path.iterdir()] == ["own.faiss"]


def test_what_only_graphs_have_is_refused(tmp_path: Path) -> None:
    index = build_lists(tmp_path / "ix", make_vectors("float32", 400), lists=4)
    indexmill.export(index, "faiss-ivf", tmp_path / "out")
    for how, message in (
        ({"order": "star"}, "order: .*leave it out"),
        ({"pq_bytes": 4}, "pq_bytes: .*leave it out"),
        ({"metric": "ip"}, "metric: ip, but .* was built for l2"),
    ):
        with pytest.raises(ConfigError, match=message):
            indexmill.import_index(tmp_path / "out" / "index.faiss", tmp_path / "b", program="faiss", **how)
    with pytest.raises(InputError, match="3 ids for 400 vectors"):
        indexmill.import_index(
            tmp_path / "out" / "index.faiss", tmp_path / "b", program="faiss", ids=[1, 2, 3]
        )
    assert not (tmp_path / "b").exists()


def test_damage_is_named(tmp_path: Path) -> None:
    index = build_lists(tmp_path / "ix", make_vectors("float32", 400), lists=4)
    indexmill.export(index, "faiss-ivf", tmp_path / "one")
    indexmill.export(index, "faiss-ivf-disk", tmp_path / "two")
    whole = (tmp_path / "one" / "index.faiss").read_bytes()
    sizes = whole.index(b"full") + 12
    bad = tmp_path / "bad.faiss"
    twice = whole[:-8] + whole[-16:-8]
    for data, message in (
        (whole[:-1], "lists|to the end of the file"),
        (whole + b"x", "1 more bytes"),
        (whole[:sizes] + struct.pack("<Q", 2**60) + whole[sizes + 8 :], "size of list 0"),
        (whole[:sizes] + struct.pack("<Q", 1) + whole[sizes + 8 :], "sizes of the lists"),
        (twice, "one twice"),
    ):
        bad.write_bytes(data)
        with pytest.raises(CorruptFile, match=message):
            indexmill.import_index(bad, tmp_path / "b", program="faiss")
    head = bytearray((tmp_path / "two" / "index.faiss").read_bytes())
    at = head.index(b"ilod") + 28
    head[at + 16 : at + 24] = struct.pack("<Q", 2**63)
    (tmp_path / "two" / "index.faiss").write_bytes(head)
    with pytest.raises(CorruptFile, match="list 0"):
        indexmill.import_index(tmp_path / "two" / "index.faiss", tmp_path / "b", program="faiss")
    (tmp_path / "two" / "index.ivfdata").unlink()
    with pytest.raises(InputError, match=r"index\.ivfdata: no such file"):
        indexmill.import_index(tmp_path / "two" / "index.faiss", tmp_path / "b", program="faiss")
    assert not (tmp_path / "b").exists()


def test_a_file_of_ids_names_the_vectors_of_an_export_by_slot(tmp_path: Path) -> None:
    names = [f"n{i}" for i in range(N)]
    index = build_lists(tmp_path / "ix", make_vectors("float32"), batch_vectors=None)
    again = back(index, tmp_path, ids_of_export="slot", ids=names)
    assert IvfFiles(again).user_ids().to_pylist() == names
