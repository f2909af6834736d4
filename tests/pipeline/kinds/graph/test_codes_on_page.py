"""`codes_on_page`: chosen, built, laid out again, extended, exported, compared, or refused."""

from __future__ import annotations

import re
import tracemalloc
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.oracles.brute_force import exact_neighbours
from tests.oracles.files.on_page import read_on_page
from tests.support.cli import run_json
from tests.support.indexes.builds import assert_sound, build, clustered, data_files, l2, recall
from tests.support.indexes.export import keep_streams, nameless

import indexmill
from indexmill.formats.errors import BudgetError, ConfigError, NothingToGain
from indexmill.formats.exports.targets import TARGETS
from indexmill.formats.graph.index import IndexFiles
from indexmill.formats.graph.nodes import NodeFormat
from indexmill.formats.index.manifest import read_manifest
from indexmill.formats.pagefile.frame import PAGE_BYTES
from indexmill.pipeline.kinds.graph.candidates import LEAST_VECTORS, Format, open_formats
from indexmill.pipeline.kinds.graph.emit import EmitInputs, pack_task
from indexmill.pipeline.kinds.graph.memory import narrow_stages, stage_bytes
from indexmill.pipeline.kinds.graph.shape import GraphShape
from indexmill.pipeline.spec import Parameters
from indexmill.reader.index import Index

N, DIM, K = 3000, 24, 10
ON_PAGE: dict[str, Any] = {"codes_on_page": True, "node_dtype": "sq8", "R": 16}
#: Stages that *pack* reads, by what `EmitInputs` calls them.
PACKED = {name: name for name in ("ingest", "cluster", "entries", "encode", "order")} | {"graph": "build"}
IN_MEMORY: dict[str, Any] = {**ON_PAGE, "codes_on_page": False, "navigation": 0.0}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same graph with codes in memory and with codes in its nodes."""
    folder, vectors = tmp_path_factory.mktemp("pair"), clustered(N, DIM)
    return build(folder / "plain", vectors, **IN_MEMORY), build(folder / "page", vectors, **ON_PAGE)


@cache
def asked() -> tuple[np.ndarray, np.ndarray]:
    """Queries of the pair, and their neighbours."""
    queries = clustered(100, DIM, seed=5)
    return queries, exact_neighbours(clustered(N, DIM), queries, K)[0]


def found_of(index: Index, **how: Any) -> float:
    queries, near = asked()
    found = index.search(queries, K, **how).vector_ids
    return float(np.mean([len(set(row) & set(true)) / K for row, true in zip(found, near, strict=True)]))


# Formats that are chosen


def formats(n: int = 1_000_000, dim: int = 768, dtype: str = "float32", **settings: Any) -> list[Format]:
    p = Parameters(codes_on_page=True, **settings)
    return open_formats(GraphShape(n, dim, np.dtype(dtype), 0.0, p))


@pytest.mark.parametrize(("dim", "degree"), [(256, 116), (384, 114), (768, 109), (1536, 97), (3072, 75)])
def test_nodes_of_embeddings_are_two_pages_filled_with_neighbours(dim: int, degree: int) -> None:
    chosen = formats(dim=dim)
    assert chosen[:2] == [Format(64, rotation, "sq8", degree) for rotation in ("none", "opq")]
    for one in chosen:
        stored = "float32" if one.node_dtype == "same" else one.node_dtype
        node, larger = (NodeFormat(dim, stored, r, 64) for r in (one.max_degree, one.max_degree + 1))
        least = NodeFormat(dim, stored, 64, 64)
        assert node.group_bytes == least.group_bytes
        assert larger.group_bytes > node.group_bytes or one.max_degree == 128
    assert NodeFormat(dim, "sq8", degree, 64).pages_per_node == 2


def test_other_vectors_and_small_inputs_keep_the_usual_neighbours() -> None:
    assert formats(dim=128, dtype="uint8")[0] == Format(32, "none", "same", 34)
    assert formats(n=LEAST_VECTORS - 1) == [Format(64, "none", "same", 32)]


def test_what_is_stated_stands_and_memory_limits_only_what_is_held() -> None:
    assert {(one.pq_bytes, one.max_degree) for one in formats(pq_bytes=96, R=40)} == {(96, 40)}
    assert {one.pq_bytes for one in formats(search_memory="100/vector")} == {100}
    assert {one.pq_bytes for one in formats(search_memory="20MB")} == {64}
    assert {one.pq_bytes for one in formats(search_memory="20MB", pq_bytes=200)} == {200}
    assert {one.pq_rotation for one in formats(search_memory="5MB")} == {"none"}


@pytest.mark.parametrize(
    ("rotation", "held", "less"),
    [
        ("none", "the centres of codes and the entry vertices", "or fewer --entries"),
        (
            "opq",
            "the centres of codes, their rotation and the entry vertices",
            "fewer --entries, or --pq-rotation none",
        ),
    ],
)
def test_the_least_memory_of_searches_that_a_refusal_names_is_enough(
    tmp_path: Path, rotation: str, held: str, less: str
) -> None:
    vectors, how = clustered(500, DIM), {**ON_PAGE, "pq_rotation": rotation}
    with pytest.raises(BudgetError) as refused:
        build(tmp_path / "ix", vectors, search_memory="1KiB", **how)
    told = rf"search_memory: 1KiB does not hold {held}; give at least ([\d,]+) bytes, {less}"
    found = re.fullmatch(told, str(refused.value))
    assert found is not None
    least = int(found[1].replace(",", ""))
    with pytest.raises(BudgetError, match="does not hold"):
        build(tmp_path / "ix", vectors, search_memory=str(least - 1), **how)
    index = Index(build(tmp_path / "ix", vectors, search_memory=str(least), **how))
    assert 0.9 * least <= index.native.memory_bytes <= 1.1 * least


def test_a_plan_counts_what_searches_hold_and_nodes_take() -> None:
    def shape(n: int, on_page: bool) -> GraphShape:
        p = Parameters(node_dtype="sq8", codes_on_page=on_page, navigation=0.0, pq_bytes=64, R=100)
        return GraphShape(n, 768, np.dtype(np.float32), 0, p)

    assert shape(10**6, True).held_bytes == shape(10**9, True).held_bytes < 8_000_000
    plain, on_page = shape(10**6, False), shape(10**6, True)
    assert plain.held_bytes - on_page.held_bytes == 64 * 10**6 + 4 * plain.node.n_pages(10**6)
    assert on_page.node.n_pages(10**6) == 2 * 10**6
    before, after = (stage_bytes(one, 8 << 30, 2) for one in (plain, on_page))
    assert after["certify"] < before["certify"]


# Indexes


def test_nodes_hold_the_codes_of_their_neighbours(pair: tuple[Path, Path]) -> None:
    plain, page = pair
    assert_sound(page)
    with IndexFiles(plain) as without, IndexFiles(page) as files:
        nodes, node = files.graph.read_all(), files.graph.node_format
        assert node.code_bytes == files.codes.shape[1] == 8
        assert node.node_bytes == DIM + 4 + 16 * (4 + 8)
        assert node.nodes_per_page == (PAGE_BYTES - 4) // node.node_bytes
        assert nodes.codes is not None
        listed = np.arange(16) < nodes.degrees[:, None]
        assert np.array_equal(nodes.codes[listed], files.codes[nodes.neighbours[listed]])
        assert not nodes.codes[~listed].any()
        assert files.navigation is None
        old = without.graph.read_all()
        by_id = np.argsort(files.vector_ids), np.argsort(without.vector_ids)
        assert np.array_equal(nodes.vectors[by_id[0]], old.vectors[by_id[1]])
        assert np.array_equal(nodes.degrees[by_id[0]], old.degrees[by_id[1]])


@pytest.mark.parametrize("policy", ["pipeline", "page", "completion", "beam"])
def test_searches_find_as_much_as_with_codes_in_memory(pair: tuple[Path, Path], policy: str) -> None:
    plain, page = (Index(path) for path in pair)
    for size in (20, 60):
        least = found_of(plain, L=size, policy=policy, entry="centroids") - 0.03
        assert found_of(page, L=size, policy=policy) >= least
    assert found_of(page, L=300, policy=policy) >= found_of(plain, L=300, policy=policy) - 0.005


@pytest.mark.parametrize("metric", ["ip", "cosine"])
@pytest.mark.parametrize("rotation", ["none", "opq"])
def test_other_metrics_and_rotated_codes(tmp_path: Path, metric: str, rotation: str) -> None:
    vectors, queries = clustered(1500, DIM), clustered(60, DIM, seed=5)
    index = build(tmp_path / "ix", vectors, metric=metric, pq_rotation=rotation, **ON_PAGE)
    assert_sound(index)

    def key(rows: np.ndarray, query: np.ndarray) -> np.ndarray:
        lengths = np.linalg.norm(rows, axis=1) if metric == "cosine" else 1
        return -(rows @ query) / lengths

    assert recall(index, vectors, queries, key) > 0.9
    certificate = read_manifest(index).certificate
    assert certificate is not None
    assert certificate["entry"] == "centroids"
    assert certificate["recall"] > 0.95


def test_a_node_of_two_pages_is_built_and_searched(tmp_path: Path) -> None:
    vectors, queries = clustered(900, 300), clustered(40, 300, seed=5)
    index = build(tmp_path / "ix", vectors, codes_on_page=True, node_dtype="sq8", R=70, pq_bytes=60)
    assert_sound(index)
    nodes = read_on_page(index / "graph.imx")
    assert nodes is not None
    assert (nodes.pages_per_block, nodes.nodes_per_block) == (2, 1)
    assert recall(index, vectors, queries, l2) > 0.95
    found = Index(index).search(queries, K, L=40)
    assert (found.counters["pages_read"] % 2 == 0).all()


def test_workers_that_pack_side_by_side_make_the_same_bytes(tmp_path: Path) -> None:
    vectors, how, memory = clustered(2500, DIM), {**ON_PAGE, "R": 64, "pq_bytes": DIM}, 340 << 20
    shape = GraphShape(len(vectors), DIM, vectors.dtype, 0.0, Parameters(**how))
    assert narrow_stages(shape, memory)["pack"].tasks > 1
    one = build(tmp_path / "one", vectors, memory=memory, **how)
    two = build(tmp_path / "two", vectors, memory=memory, workers=2, **how)
    assert_sound(one)
    assert data_files(one) == data_files(two)


@pytest.mark.parametrize(
    ("dim", "how"),
    [
        (96, {"codes_on_page": True, "node_dtype": "sq8", "R": 64, "pq_bytes": 48}),
        (256, {"node_dtype": "sq8", "R": 16}),
        (256, {"node_dtype": "sq16", "R": 16}),
        (64, {"node_dtype": "same", "R": 32}),
    ],
    ids=str,
)
def test_nodes_are_packed_within_the_memory_that_is_planned(
    tmp_path: Path, dim: int, how: dict[str, Any]
) -> None:
    vectors, memory = clustered(N, dim), 1 << 30
    build(tmp_path / "ix", vectors, work=str(tmp_path / "work"), memory=memory, navigation=0.0, **how)
    made = {name: str(next((tmp_path / "work").glob(f"{stage}-*"))) for name, stage in PACKED.items()}
    shape = GraphShape(N, dim, vectors.dtype, 0.0, Parameters(**how))
    inputs = EmitInputs(**made, navigation=None)

    def pack() -> None:
        pack_task(inputs, shape.node, None, 0, N, 1 << 16, str(tmp_path / "chunk"))

    pack()  # which loads modules
    tracemalloc.start()
    try:
        pack()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    planned = narrow_stages(shape, memory)["pack"]
    assert planned.tasks == 1
    assert peak > 0.9 * planned.bytes
    assert peak < planned.bytes + (3 << 19)  # batches, and the buffers of a file


def test_shards_make_a_sound_index(tmp_path: Path) -> None:
    vectors = clustered(2500, DIM)
    cut = build(tmp_path / "cut", vectors, builder="vamana", shard_vectors=800, **ON_PAGE)
    assert_sound(cut)
    assert read_manifest(cut).parameters["codes_on_page"] is True


def test_memory_does_not_grow_with_the_vectors(tmp_path: Path) -> None:
    sizes = []
    for n, how in ((500, ON_PAGE), (4000, ON_PAGE), (4000, IN_MEMORY)):
        index = Index(build(tmp_path / str(len(sizes)), clustered(n, DIM), entries=16, **how))
        sizes.append(index.native.memory_bytes)
    assert sizes[0] == sizes[1]
    assert sizes[2] - sizes[1] > 4000 * 8


def test_filters_ranges_and_views_work(pair: tuple[Path, Path]) -> None:
    index, vectors, queries = Index(pair[1]), clustered(N, DIM), clustered(20, DIM, seed=8)
    for share in (0.01, 0.5):
        allowed = np.random.default_rng(2).random(N) < share
        found = index.search(queries, 5, L=200, allow=allowed)
        assert allowed[found.vector_ids].all()
        ids = np.flatnonzero(allowed)
        hits = [
            len(set(row) & set(ids[np.argsort(((vectors[ids] - q) ** 2).sum(axis=1))[:5]]))
            for row, q in zip(found.vector_ids, queries, strict=True)
        ]
        assert np.mean(hits) > 4.5
    radius = float(np.sort(((vectors - queries[0]) ** 2).sum(axis=1))[40])
    assert 30 <= len(index.range_search(queries[0], radius, L=300).ids) <= 50
    order = np.random.default_rng(3).permutation(N)
    view = index.remapped(order).search(queries, K, L=300)
    assert np.mean(view.vector_ids == index.search(queries, K, L=300).vector_ids) > 0.9


# What is made of them


def test_layouts_move_codes_with_their_nodes(tmp_path: Path) -> None:
    vectors = clustered(1500, DIM)
    index = build(tmp_path / "ix", vectors, order="identity", **ON_PAGE)
    indexmill.lay_out(index, order="star", out=tmp_path / "star", certify=True)
    assert_sound(tmp_path / "star")
    built = build(tmp_path / "built", vectors, order="star", **ON_PAGE)
    for name in ("graph.imx", "codes.imx"):
        assert (tmp_path / "star" / name).read_bytes()[PAGE_BYTES:] == (built / name).read_bytes()[
            PAGE_BYTES:
        ]
    assert read_manifest(tmp_path / "star").certificate is not None


def test_the_choice_of_a_layout_works(tmp_path: Path) -> None:
    index = build(tmp_path / "ix", clustered(1500, DIM), order="random", **ON_PAGE)
    indexmill.lay_out(index, order="auto", out=tmp_path / "auto", effort="low")
    assert_sound(tmp_path / "auto")
    choice = read_manifest(tmp_path / "auto").layout["choice"]
    reads = {one["order"]: one["pages_read"] for one in choice["candidates"]}
    assert min(reads.values()) < reads["current"]


def test_a_layout_of_one_node_a_page_has_nothing_to_gain_and_is_explained(tmp_path: Path) -> None:
    index = build(
        tmp_path / "ix", clustered(700, 200), codes_on_page=True, node_dtype="sq8", R=70, pq_bytes=50
    )
    with pytest.raises(NothingToGain):
        indexmill.lay_out(index, order="auto", out=tmp_path / "auto", effort="low")
    told = run_json("explain", index)
    assert told["list_bytes"] == 4 + 70 * (4 + 50)
    assert told["nodes_per_page"] == 1


@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_appends_and_merges_hold_codes_of_old_and_new_neighbours(tmp_path: Path, metric: str) -> None:
    vectors = clustered(1800, DIM)
    vectors[1000:] = np.clip(vectors[1000:], vectors[:1000].min(axis=0), vectors[:1000].max(axis=0))
    vectors[1000:] *= np.float32(0.95)
    how = {"metric": metric, **ON_PAGE}
    one = build(tmp_path / "one", vectors[:1000], order="identity", **how)
    indexmill.append(one, vectors[1000:1400])
    assert_sound(one)
    two = build(tmp_path / "two", vectors[1400:], **how)
    indexmill.merge(one, two, out=tmp_path / "both")
    assert_sound(tmp_path / "both")
    if metric == "l2":
        found = Index(tmp_path / "both").search(vectors[::50], 1, L=100)
        assert np.mean(found.vector_ids[:, 0] == np.arange(0, 1800, 50)) > 0.9


def test_a_merge_keeps_the_format_of_the_larger(tmp_path: Path) -> None:
    vectors = clustered(1500, DIM)
    low, high = vectors[:1000].min(axis=0), vectors[:1000].max(axis=0)
    parts = {"large": vectors[:1000], "small": np.clip(vectors[1000:], low, high)}
    for name, format_of_large, format_of_small in (("a", ON_PAGE, IN_MEMORY), ("b", IN_MEMORY, ON_PAGE)):
        large = build(tmp_path / f"large-{name}", parts["large"], **format_of_large)
        small = build(tmp_path / f"small-{name}", parts["small"], **format_of_small)
        indexmill.merge(large, small, out=tmp_path / name)
        assert_sound(tmp_path / name)
        with IndexFiles(tmp_path / name) as files:
            assert files.graph.node_format.code_bytes == (8 if name == "a" else 0)


@pytest.fixture(scope="module")
def full_pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same graph with codes in memory and with codes in its nodes, where one node fills a page."""
    folder, vectors = tmp_path_factory.mktemp("full"), clustered(400, 600)
    how = {"order": "identity", "node_dtype": "same", "R": 16, "navigation": 0.0}
    return {
        name: build(folder / name, vectors, codes_on_page=name == "page", **how) for name in ("plain", "page")
    }


@pytest.mark.parametrize("target", [name for name, one in TARGETS.items() if "graph" in one.kinds])
def test_exports_are_those_of_the_same_graph_with_codes_in_memory(
    full_pages: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    keep_streams(monkeypatch)
    files = []
    for name, index in full_pages.items():
        with IndexFiles(index) as opened:
            assert opened.graph.node_format.nodes_per_page == 1
        out = tmp_path / name
        indexmill.export(index, target, out)
        paths = [path for path in out.rglob("*") if path.is_file() and path.name != "export.json"]
        files.append({str(path.relative_to(out)): nameless(path) for path in sorted(paths)})
    assert files[0] == files[1]


def test_an_export_comes_back_by_an_import(tmp_path: Path) -> None:
    index = build(tmp_path / "ix", clustered(500, DIM), **{**ON_PAGE, "node_dtype": "same"})
    indexmill.export(index, "diskann", tmp_path / "out")
    indexmill.import_index(tmp_path / "out" / "ann", tmp_path / "back", dtype="float32")
    assert_sound(tmp_path / "back")
    with IndexFiles(index) as ours, IndexFiles(tmp_path / "back") as back:
        assert back.graph.node_format.code_bytes == 0
        before, after = ours.graph.read_all(), back.graph.read_all()
        assert np.array_equal(before.vectors, after.vectors)
        assert np.array_equal(before.degrees, after.degrees)
        assert np.array_equal(ours.codes, back.codes)


def test_parquet_holds_the_vectors_by_page(pair: tuple[Path, Path], tmp_path: Path) -> None:
    indexmill.export(pair[1], "parquet", tmp_path / "out")
    tables = [pq.read_table(path) for path in sorted((tmp_path / "out").rglob("*.parquet"))]
    (table,) = [one for one in tables if "vector" in one.column_names]
    assert table.num_rows == N


def test_indexes_are_compared_and_inspected(pair: tuple[Path, Path], tmp_path: Path) -> None:
    plain, page = pair
    vectors, queries = clustered(N, DIM), clustered(50, DIM, seed=5)
    np.save(tmp_path / "q.npy", queries)
    np.save(tmp_path / "v.npy", vectors)
    run_json("truth", tmp_path / "v.npy", tmp_path / "q.npy", "--out", tmp_path / "t.gt")
    measured = ["--queries", tmp_path / "q.npy", "--truth", tmp_path / "t.gt", "-L", "20,40", "--repeat", 1]
    rows = run_json("compare", plain, page, *measured)["sweep"]
    assert {row["index"] for row in rows} >= {"plain", "page"}
    held = run_json("inspect", page)["memory_bytes"]
    assert sum(held.values()) == Index(page).native.memory_bytes


# Refusals


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"navigation": 0.02}, "navigation: a navigation graph is searched by codes in memory"),
        ({"keep_vectors": True}, "keep_vectors: its checksums take 4 bytes a page in memory"),
    ],
)
def test_what_needs_memory_a_vector_is_refused(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=f"{message}.*leave one of the two out"):
        indexmill.build(clustered(300, DIM), tmp_path / "ix", **ON_PAGE, **settings)
    assert not (tmp_path / "ix").exists()


def test_what_does_not_know_codes_in_nodes_says_so(pair: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"prune_edges: not for .*, whose nodes hold the codes of their neighbours"
    ):
        indexmill.lay_out(pair[1], out=tmp_path / "out", prune_edges=True)
    with pytest.raises(ConfigError, match=r"codes_on_page: tune measures graphs with codes in memory"):
        indexmill.tune(clustered(3000, DIM), codes_on_page=True)
    with pytest.raises(ConfigError, match="codes_on_page"):
        indexmill.build(clustered(300, DIM), tmp_path / "ivf", kind="ivf", codes_on_page=True)
