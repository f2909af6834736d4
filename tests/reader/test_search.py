"""The native reader against the slow oracle, and against damage."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.oracles.files.hostile import patch_page_file, section_offset
from tests.oracles.files.small_index import Aids, write_small_index
from tests.oracles.graph.search import SearchOracle

import indexmill
from indexmill.formats.errors import ConfigError, CorruptFile, ForeignFile, FormatError, InputError
from indexmill.reader import _native
from indexmill.reader.choices import POLICIES
from indexmill.reader.index import Index

ALL = [(dtype, "l2") for dtype in ("float32", "float16", "uint8", "int8", "sq16", "sq8")]
ALL += [("float32", "ip"), ("float32", "cosine"), ("sq16", "cosine"), ("float16", "ip")]


def queries_like(vectors: np.ndarray, n: int) -> np.ndarray:
    return np.roll(vectors[:n], 1, axis=1)


@pytest.mark.parametrize(("dtype", "metric"), ALL)
@pytest.mark.parametrize("policy", POLICIES)
def test_native_search_does_what_the_oracle_does(
    tmp_path: Path, dtype: str, metric: str, policy: str
) -> None:
    written = write_small_index(tmp_path, n=400, dim=20, dtype=dtype, metric=metric, R=8)
    oracle, index = SearchOracle(tmp_path), Index(tmp_path)
    queries = queries_like(written.vectors, 5)
    for entry in ("medoid", "centroids", "navigation"):
        found = index.search(queries, 5, L=25, beam_width=3, policy=policy, entry=entry)
        for i, query in enumerate(queries):
            want = oracle.search(query, 5, 25, 3, policy, entry)
            np.testing.assert_allclose(found.scores[i], want.scores, rtol=1e-4, atol=1e-3)
            if metric == "l2" and not dtype.startswith(
                "sq"
            ):  # distances exact in float32: same to the last bit
                assert found.slots[i].tolist() == want.slots.tolist()
                assert found.vector_ids[i].tolist() == want.vector_ids.tolist()
                counters = {
                    name: int(found.counters[name][i]) for name in ("pages_read", "hops", "expansions")
                }
                assert counters == {
                    "pages_read": want.pages_read,
                    "hops": want.hops,
                    "expansions": len(want.expanded),
                }
                assert found.counters["distances"][i] == want.exact_distances
                assert found.counters["code_distances"][i] == want.pq_distances


@pytest.mark.parametrize("entry", ["medoid", "navigation"])
@pytest.mark.parametrize(("dtype", "metric"), [("float32", "l2"), ("uint8", "l2"), ("sq8", "ip")])
def test_queries_of_rotated_codes_are_rotated(tmp_path: Path, dtype: str, metric: str, entry: str) -> None:
    written = write_small_index(tmp_path, n=400, dim=19, dtype=dtype, metric=metric, aids=Aids(rotated=True))
    oracle, index = SearchOracle(tmp_path), Index(tmp_path)
    queries = queries_like(written.vectors, 12)
    how = {"L": 25, "beam_width": 3, "policy": "page", "entry": entry}
    found = index.search(queries, 5, **how)
    beside = index.remapped(np.arange(400, dtype=np.uint32)).search(queries, 5, **how)
    for i, query in enumerate(queries):
        want = oracle.search(query, 5, 25, 3, "page", entry)
        np.testing.assert_allclose(found.scores[i], want.scores, rtol=1e-4, atol=1e-3)
        if metric == "l2":
            assert found.slots[i].tolist() == want.slots.tolist()
            assert found.counters["pages_read"][i] == want.pages_read
            assert found.counters["code_distances"][i] == want.pq_distances
    np.testing.assert_array_equal(beside.slots, found.slots)


def test_a_matrix_that_is_no_rotation_is_refused(tmp_path: Path) -> None:
    write_small_index(tmp_path, n=50, dim=8, aids=Aids(rotated=True))
    path = tmp_path / "codes.imx"
    for wrong, got in ((b"\0\0\x40\x40", r"\d+"), (b"\0\0\xc0\x7f", "NaN")):
        patch_page_file(path, {section_offset(path, "rotation") + 4 * 8: wrong})
        with pytest.raises(
            CorruptFile, match=rf'row 1 of section "rotation": expected a squared length of 1, got {got}'
        ):
            Index(tmp_path)


@pytest.mark.parametrize("policy", POLICIES)
def test_results_do_not_depend_on_engine_threads_or_queries_in_flight(disk: Path, policy: str) -> None:
    """On a disk, which refuses direct reads that are not aligned."""
    path = disk / f"engines-{policy}"
    written = write_small_index(path, n=500, dim=24)
    queries = queries_like(written.vectors, 60)
    outcomes = []
    for engine, threads, inflight in (("auto", 1, 1), ("auto", 2, 8), ("pread", 1, 1), ("pread", 3, 5)):
        index = Index(path, engine)
        found = index.search(queries, 7, L=30, policy=policy, threads=threads, inflight=inflight)
        counts = [found.counters[name] for name in ("pages_read", "hops", "distances", "expansions")]
        outcomes.append([found.slots, found.scores, *counts])
    for outcome in outcomes[1:]:
        for one, other in zip(outcomes[0], outcome, strict=True):
            np.testing.assert_array_equal(one, other)


def test_bytes_used_and_read_are_counted_from_nodes_and_pages(tmp_path: Path) -> None:
    written = write_small_index(tmp_path, n=300, dim=24)
    found = Index(tmp_path).search(written.vectors[:10], 3, L=20)
    np.testing.assert_array_equal(found.counters["bytes_read"], found.counters["pages_read"] * 4096)
    used = found.counters["expansions"] * written.node_format.node_bytes
    np.testing.assert_array_equal(found.counters["bytes_used"], used)


def test_nodes_larger_than_a_page_are_read_whole(tmp_path: Path) -> None:
    written = write_small_index(tmp_path, n=60, dim=2048)
    found = Index(tmp_path).search(written.vectors[:5], 1, L=60)
    np.testing.assert_array_equal(found.vector_ids[:, 0], np.arange(5))
    pages = written.node_format.pages_per_node
    assert pages == 3
    assert (found.counters["pages_read"] % pages == 0).all()


@pytest.mark.parametrize("id_type", ["none", "int64", "uint64", "string", "binary"])
def test_user_ids_come_back(tmp_path: Path, id_type: str) -> None:
    written = write_small_index(tmp_path, n=90, id_type=id_type)
    found = Index(tmp_path).search(written.vectors[:20], 4, L=90)
    if id_type == "none":
        np.testing.assert_array_equal(found.ids, found.vector_ids)
        return
    ids = written.user_ids.take(pa.array(found.slots.ravel())).to_pylist()
    assert found.ids.ravel().tolist() == ids


@pytest.mark.parametrize("norm", [30, 3000])
def test_inner_products_stay_exact_when_norms_differ_much(tmp_path: Path, norm: float) -> None:
    rng = np.random.default_rng(2)
    vectors = rng.normal(size=(400, 16)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors[7] *= norm
    queries = rng.normal(size=(20, 16)).astype(np.float32)
    index = indexmill.build(vectors, tmp_path / "ix", metric="ip", R=12, L=40, pq_bytes=8, workers=1)
    found = index.search(queries, 10, L=400)
    products = queries @ vectors.T
    want = np.sort(products, axis=1)[:, ::-1][:, :10]
    np.testing.assert_allclose(found.scores, want, rtol=1e-5, atol=1e-5)


# Refusals


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 201}, "200 vectors"),
        ({"k": 0}, "at least 1"),
        ({"k": 10, "L": 9}, "raise L"),
        ({"policy": "guess"}, "policy"),
        ({"entry": "exit"}, "entry"),
        ({"beam_width": 0}, "beam_width"),
        ({"threads": 0}, "threads"),
    ],
)
def test_parameters_out_of_range_are_named(tmp_path: Path, change: dict, message: str) -> None:
    written = write_small_index(tmp_path, n=200)
    with pytest.raises((InputError, ConfigError), match=message):
        Index(tmp_path).search(written.vectors[:2], **{"k": 3, **change})


def test_queries_that_do_not_fit_are_named(tmp_path: Path) -> None:
    write_small_index(tmp_path / "f", n=50, dim=16)
    write_small_index(tmp_path / "u", n=50, dim=16, dtype="uint8")
    floats, bytes_ = Index(tmp_path / "f"), Index(tmp_path / "u")
    with pytest.raises(InputError, match=r"16.*15"):
        floats.search(np.zeros((2, 15), np.float32))
    bad = np.zeros((3, 16), np.float32)
    bad[1, 4] = np.nan
    with pytest.raises(InputError, match="1"):
        floats.search(bad)
    with pytest.raises(InputError, match=r"0\.\.255"):
        bytes_.search(np.full((1, 16), 0.5))
    with pytest.raises(InputError, match="not numeric"):
        floats.search(np.array([["a"] * 16]))
    np.testing.assert_array_equal(
        bytes_.search(np.ones((1, 16))).ids, bytes_.search(np.ones((1, 16), np.uint8)).ids
    )


def test_what_is_no_index_is_foreign(tmp_path: Path) -> None:
    with pytest.raises(ForeignFile, match="manifest"):
        Index(tmp_path)


# Damage


def flip(path: Path, offset: int) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x41]))


def offsets(size: int, step: int) -> list[int]:
    return sorted({*range(0, size, step), 0, size // 2, size - 1})


@pytest.mark.parametrize(
    "name",
    [
        "graph.imx",
        "codes.imx",
        "entries.imx",
        "ids.imx",
        "navigation.imx",
        "manifest.json",
        "metadata.parquet",
    ],
)
def test_every_flipped_byte_is_found_and_no_search_crashes(tmp_path: Path, name: str) -> None:
    written = write_small_index(tmp_path / "ix", n=120, dim=30, metadata=True)
    path = tmp_path / "ix" / name
    want = Index(tmp_path / "ix").search(written.vectors[:8], 5, L=60)
    want_metadata = Index(tmp_path / "ix").metadata(want.vector_ids[0])
    size = path.stat().st_size
    for offset in offsets(size, 7 if name == "manifest.json" else 83):
        flip(path, offset)
        damage = _native.verify(str(tmp_path / "ix"))
        assert damage, offset
        assert any(name in message for message in damage), (offset, damage)
        try:
            index = Index(tmp_path / "ix")
            found = index.search(written.vectors[:8], 5, L=60)
            metadata = index.metadata(found.vector_ids[0])
        except FormatError as error:
            assert name in str(error) or "manifest" in str(error)  # noqa: PT017 - not raising is fine, too
        else:  # the damage lies where this search did not look: the answer must be the right one
            np.testing.assert_array_equal(found.slots, want.slots)
            assert metadata == want_metadata
        flip(path, offset)
    assert _native.verify(str(tmp_path / "ix")) == []


@pytest.mark.parametrize(
    "name", ["graph.imx", "codes.imx", "entries.imx", "ids.imx", "navigation.imx", "manifest.json"]
)
def test_truncated_files_are_refused(tmp_path: Path, name: str) -> None:
    write_small_index(tmp_path / "whole", n=120, dim=30)
    size = (tmp_path / "whole" / name).stat().st_size
    for length in [0, 1, 100, 4095, 4096, size // 2, size - 4096, size - 1]:
        shutil.copytree(tmp_path / "whole", tmp_path / "cut", dirs_exist_ok=True)
        with open(tmp_path / "cut" / name, "r+b") as file:
            file.truncate(max(0, min(length, size - 1)))
        with pytest.raises(FormatError, match=name):
            Index(tmp_path / "cut")
        assert any(name in message for message in _native.verify(str(tmp_path / "cut")))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    write_small_index(tmp_path, n=50)
    (tmp_path / "codes.imx").unlink()
    with pytest.raises((CorruptFile, InputError), match=r"codes\.imx"):
        Index(tmp_path)
    assert any("codes.imx" in message for message in _native.verify(str(tmp_path)))


def test_files_of_two_builds_do_not_mix(tmp_path: Path) -> None:
    write_small_index(tmp_path / "a", n=100, seed=1)
    write_small_index(tmp_path / "b", n=100, seed=2)
    shutil.copy(tmp_path / "b" / "codes.imx", tmp_path / "a" / "codes.imx")
    with pytest.raises(FormatError, match=r"codes\.imx"):
        Index(tmp_path / "a")


def test_an_open_index_outlives_its_replacement(tmp_path: Path) -> None:
    written = write_small_index(tmp_path / "ix", n=100, seed=1, metadata=True)
    index = Index(tmp_path / "ix")
    want = index.search(written.vectors[:5], 3, L=50)
    want_metadata = Index(tmp_path / "ix").metadata([3, 1])
    (tmp_path / "ix").rename(tmp_path / "old")
    shutil.rmtree(tmp_path / "old")
    write_small_index(tmp_path / "ix", n=100, seed=2)
    np.testing.assert_array_equal(index.search(written.vectors[:5], 3, L=50).slots, want.slots)
    assert index.metadata([3, 1]) == want_metadata
