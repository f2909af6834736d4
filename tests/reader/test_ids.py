"""Ids of results: found with them by every kind of index, in memory or on storage, and counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.oracles.files.hostile import section_offset
from tests.oracles.files.small_index import SmallIndex, write_small_index
from tests.support.cli import run, run_json

import indexmill
from indexmill.formats.errors import ConfigError, CorruptFile, InputError
from indexmill.reader.index import Index
from indexmill.reader.ivf import IvfIndex
from indexmill.reader.lsh import LshIndex

N, DIM = 3000, 8
TYPES = ("none", "int64", "uint64", "string", "binary")
DEVICE = Path(__file__).parents[2] / "reader/core/tests/data/quick-device.json"


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SmallIndex]:
    folder = tmp_path_factory.mktemp("graphs")
    return {kind: write_small_index(folder / kind, n=N, dim=DIM, id_type=kind) for kind in TYPES}


def wanted(written: SmallIndex, slots: Any) -> list[Any]:
    """Return the user ids of slots, with those of missing ones."""
    if written.user_ids is None:
        return [-1 if slot < 0 else int(written.vector_ids[slot]) for slot in slots]
    ids, blank = written.user_ids.to_pylist(), {pa.int64(): -1, pa.uint64(): 2**64 - 1}
    return [blank.get(written.user_ids.type) if slot < 0 else ids[slot] for slot in slots]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("engine", ["auto", "pread", "mmap", f"simulated:{DEVICE}"])
def test_results_have_their_ids_wherever_these_are(
    graphs: dict[str, SmallIndex], kind: str, engine: str
) -> None:
    written = graphs[kind]
    queries = written.vectors[:20]
    stored, held = Index(written.path, engine), Index(written.path, engine, ids="memory")
    for index in (stored, held):
        found = index.search(queries, 10, L=40, threads=2)
        assert found.ids.shape == (20, 10)
        assert found.ids.ravel().tolist() == wanted(written, found.slots.ravel())
        assert found.ids.dtype == (object if kind in ("string", "binary") else kind.replace("none", "int64"))
        assert ((found.counters["id_pages_read"] == 0) == (index is held)).all()
        few = index.search(queries, 10, L=40, allow=[5, 17, 1999])
        assert few.ids.ravel().tolist() == wanted(written, few.slots.ravel())
        assert (few.slots[:, 3:] == -1).all()
        within = index.range_search(queries, 60.0)
        assert within.starts[-1] >= 20
        assert within.ids.tolist() == wanted(written, within.slots)
        assert index.search(queries[:0], 3).ids.shape == (0, 3)


@pytest.mark.parametrize("kind", TYPES)
def test_ids_in_memory_are_counted_as_memory(graphs: dict[str, SmallIndex], kind: str) -> None:
    path = graphs[kind].path
    more = Index(path, ids="memory").native.memory_bytes - Index(path).native.memory_bytes
    least = N * {"none": 4, "int64": 12, "uint64": 12}.get(kind, 12)
    assert least <= more <= (path / "ids.imx").stat().st_size
    view = Index(path, ids="memory").remapped(np.arange(N)[::-1].copy())
    assert (view.search(graphs[kind].vectors[:4], 3).counters["id_pages_read"] == 0).all()


def test_a_damaged_page_of_ids_ends_the_search_that_needs_it(tmp_path: Path) -> None:
    path = write_small_index(tmp_path / "ix", n=N, id_type="string").path
    with (path / "ids.imx").open("r+b") as file:
        file.seek(section_offset(path / "ids.imx", "offsets") + 5)
        file.write(b"\xff")
    queries = np.zeros((1, 16), np.float32)
    with pytest.raises(CorruptFile, match=r"ids\.imx: page 4: expected CRC32C"):
        Index(path).search(queries, N, L=N)
    with pytest.raises(CorruptFile, match=r"ids\.imx: page 4: expected CRC32C"):
        Index(path, ids="memory")


def test_another_place_is_refused(graphs: dict[str, SmallIndex], tmp_path: Path) -> None:
    place: Any = "disk"
    with pytest.raises(ConfigError, match="ids: expected memory or storage, got 'disk'"):
        Index(graphs["none"].path, ids=place)
    np.save(tmp_path / "q.npy", graphs["string"].vectors[:3])
    command = ("search", graphs["string"].path, "--queries", tmp_path / "q.npy", "-k", 2, "--json")
    said = run(*command, "--ids", "disk")
    assert said.exit_code == ConfigError.exit_code
    assert "--ids: expected one of memory, storage, got 'disk'" in said.stderr
    assert run_json(*command, "--ids", "memory") == run_json(*command)


def test_hash_tables_and_lists_have_the_ids_of_their_results(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    vectors = rng.normal(size=(500, DIM)).astype(np.float32)
    names = [f"name {i}" * (i % 3 + 1) for i in range(500)]
    tables: dict[str, Any] = {"n_functions": 3, "n_tables": 4, "candidates": 500, "hash_bits": 6}
    lists: dict[str, Any] = {"lists": 8}
    places: list[tuple[str, Any]] = [("auto", "storage"), ("mmap", "memory"), ("memory", "storage")]
    for kind, opened, options in (("lsh", LshIndex, tables), ("ivf", IvfIndex, lists)):
        path = tmp_path / kind
        indexmill.build(vectors, path, ids=names, kind=kind, **options)
        for engine, place in places:
            index: Any = indexmill.open(path, engine, ids=place)
            assert isinstance(index, opened)
            found = index.search(vectors[:30], 5)
            assert found.ids[:, 0].tolist() == names[:30]
            flat = [None if slot < 0 else names[slot] for slot in found.slots.ravel()]
            assert found.ids.ravel().tolist() == flat
            held = place == "memory" or engine == "memory"
            assert ((found.counters["id_pages_read"] == 0) == held).all()
            assert (index.memory["ids"] > 0) == held


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("place", ["storage", "memory"])
def test_user_ids_lead_to_vector_ids_and_unknown_ones_to_none(
    graphs: dict[str, SmallIndex], kind: str, place: Any
) -> None:
    written = graphs[kind]
    index = Index(written.path, ids=place)
    slots = np.random.default_rng(5).integers(0, N, 200)
    ids = np.array(wanted(written, slots), dtype=object if written.user_ids is not None else np.int64)
    vector_ids = written.vector_ids[slots].tolist()
    for view in (index, index.remapped(np.arange(N)[::-1].copy())):
        assert view.vector_ids_of(ids.tolist()).tolist() == vector_ids
    if written.user_ids is not None:
        column = written.user_ids.take(pa.array(slots))
        assert index.vector_ids_of(column).tolist() == vector_ids
    unknown: dict[str, list[Any]] = {
        "none": [-1, N, 2**63], "int64": [0, 2**63], "uint64": [-1, 1], "string": ["x"], "binary": [b"", b"x"],
    }  # fmt: skip
    for one in unknown[kind]:
        assert index.vector_ids_of([one, ids[0]] if kind in ("string", "binary") else [one]).tolist()[0] == -1
    assert index.vector_ids_of([]).tolist() == []
    allowed = index.vector_ids_of(ids.tolist()[:5])
    found = index.search(written.vectors[:3], 5, L=50, allow=allowed)
    assert set(found.vector_ids.ravel().tolist()) - {-1} == set(allowed.tolist())


def test_ids_of_another_type_are_refused(graphs: dict[str, SmallIndex]) -> None:
    wrong: list[tuple[str, Any, str]] = [
        ("string", [b"x"], "position 0: expected str, got bytes"),
        ("binary", [b"x", "y"], "position 1: expected bytes, got str"),
        ("string", "x", "expected several, got 'x'; pass a list"),
        ("int64", ["x"], "expected an array of whole numbers, got <U1"),
        ("uint64", [[1]], "expected an array of whole numbers, got int64 of shape"),
        ("none", [0.5], "expected an array of whole numbers, got float64"),
    ]
    for kind, ids, words in wrong:
        with pytest.raises(InputError, match=words):
            Index(graphs[kind].path).vector_ids_of(ids)
