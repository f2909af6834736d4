"""`Index.remapped` against indexes that were really written in another order."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.oracles.files.relaid import write_relaid
from tests.oracles.files.small_index import write_small_index
from tests.oracles.files.verify import verify_index
from tests.support.indexes.clusters import Clustered, build_clustered

from indexmill.formats.errors import CorruptFile, InputError
from indexmill.reader.choices import POLICIES
from indexmill.reader.index import CacheInfo, Index

#: Counters of a view that are not those of an index: times, and pages of ids, which lie in the index's order.
OWN = {"id_pages_read", "latency_us", "io_wait_us"}
ENTRIES = ("navigation", "centroids", "medoid")


def same(view: Any, real: Any) -> None:
    np.testing.assert_array_equal(view.slots, real.slots)
    np.testing.assert_array_equal(view.vector_ids, real.vector_ids)
    np.testing.assert_array_equal(view.ids, real.ids)
    np.testing.assert_array_equal(view.scores, real.scores)
    for name in real.counters.keys() - OWN:
        np.testing.assert_array_equal(view.counters[name], real.counters[name], err_msg=name)


def shuffled(n: int, seed: int = 3) -> NDArray[np.uint32]:
    return np.random.default_rng(seed).permutation(n).astype(np.uint32)


def inverse(order: NDArray[Any]) -> NDArray[np.uint32]:
    return np.argsort(order).astype(np.uint32)


@pytest.mark.parametrize(
    ("dtype", "metric", "dim", "id_type"),
    [
        ("float32", "ip", 20, "none"),
        ("uint8", "l2", 128, "int64"),
        ("int8", "l2", 30, "uint64"),
        ("float16", "cosine", 21, "string"),
        ("sq8", "l2", 64, "binary"),
        ("sq16", "l2", 64, "string"),
        ("float32", "l2", 1000, "string"),  # one node a page
        ("float32", "l2", 1100, "int64"),  # two pages a node
    ],
)
def test_a_view_answers_as_the_index_that_was_written_in_its_order(
    tmp_path: Path, dtype: str, metric: str, dim: int, id_type: str
) -> None:
    n = 150  # no multiple of any page's nodes
    written = write_small_index(
        tmp_path / "a", n, dim, dtype, metric, id_type=id_type, seed=dim, metadata=dtype == "uint8"
    )
    order = shuffled(n)
    write_relaid(tmp_path / "a", tmp_path / "b", order)
    assert verify_index(tmp_path / "b") == []
    view, real = Index(tmp_path / "a").remapped(order), Index(tmp_path / "b")
    queries = np.roll(written.vectors[:20], 1, axis=1)
    allowed = np.arange(n) % 3 == 0
    for policy in POLICIES:
        for entry in ENTRIES:
            options: dict[str, Any] = {"L": 30, "policy": policy, "entry": entry}
            same(view.search(queries, 7, **options), real.search(queries, 7, **options))
            radius = float(real.search(queries, 7, **options).scores[:, -1].mean())
            ranged, expected = (index.range_search(queries, radius, **options) for index in (view, real))
            np.testing.assert_array_equal(ranged.starts, expected.starts)
            same(ranged, expected)
        same(
            view.search(queries, 7, L=20, policy=policy, allow=allowed),
            real.search(queries, 7, L=20, policy=policy, allow=allowed),
        )
    kept = [index.cache(5 * 9000, queries[:9]) for index in (view, real)]
    assert kept[0] == kept[1]
    assert kept[0].n_pages > 0
    same(view.search(queries[9:], 7), real.search(queries[9:], 7))
    assert view.metadata([5, 3]).equals(real.metadata([5, 3]))


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory: pytest.TempPathFactory, clustered: Clustered) -> dict[str, Path]:
    """The clustered vectors built in star order and in that of the input."""
    path = tmp_path_factory.mktemp("orders") / "identity"
    build_clustered(path, clustered.vectors, "identity")
    return {"star": clustered.path, "identity": path}


@pytest.mark.parametrize("policy", POLICIES)
def test_builds_that_differ_in_their_order_are_views_of_one_another(
    laid_out: dict[str, Path], clustered: Clustered, policy: str
) -> None:
    queries = clustered.queries[:200]
    n = len(clustered.vectors)
    reads = {}
    for name, path in laid_out.items():
        real = Index(path)
        order = np.array(real.native.user_ids(np.arange(n)), np.uint32)  # identity: slot = vector id
        view = Index(laid_out["identity"]).remapped(order)
        for entry in ENTRIES:
            options: dict[str, Any] = {"L": 25, "policy": policy, "entry": entry}
            expected = real.search(queries, **options)
            same(view.search(queries, threads=2, inflight=3, **options), expected)
            back = Index(path).remapped(inverse(order)).search(queries, **options)
            same(back, Index(laid_out["identity"]).search(queries, **options))
        reads[name] = expected.counters["pages_read"].mean()
    if policy in ("page", "pipeline"):
        assert reads["star"] < 0.9 * reads["identity"], reads


def test_a_view_of_a_view_is_laid_out_by_both_orders(clustered: Clustered) -> None:
    index, n = Index(clustered.path), len(clustered.vectors)
    first, second = shuffled(n, 1), shuffled(n, 2)
    twice = index.remapped(first).remapped(second)
    same(twice.search(clustered.queries[:100]), index.remapped(first[second]).search(clustered.queries[:100]))
    back = index.remapped(first).remapped(inverse(first))
    same(back.search(clustered.queries[:100]), index.search(clustered.queries[:100]))


def test_a_view_has_its_own_cache_and_filters(clustered: Clustered) -> None:
    index, n = Index(clustered.path), len(clustered.vectors)
    order, queries = shuffled(n), clustered.queries[:50]
    index.cache(1 << 20)
    view = index.remapped(order)
    assert view.cached == CacheInfo(0, 0)
    assert view.search(queries).counters["cache_hits"].sum() == 0
    assert index.cached.n_pages > 0
    assert index.search(queries).counters["cache_hits"].sum() > 0
    allowed = view.filter(np.arange(0, n, 2))
    found = index.remapped(order).search(queries, allow=allowed)  # an equal view
    assert (found.vector_ids % 2 == 0).all()
    with pytest.raises(InputError, match="another build"):
        index.search(queries, allow=allowed)
    with pytest.raises(InputError, match="another build"):
        view.search(queries, allow=index.filter(np.arange(0, n, 2)))


def test_views_outlive_the_index_and_its_files(tmp_path: Path, clustered: Clustered) -> None:
    shutil.copytree(clustered.path, tmp_path / "index")
    index, order = Index(tmp_path / "index"), shuffled(len(clustered.vectors))
    view = index.remapped(order)
    expected = view.search(clustered.queries[:50])
    assert view.engine == "remapped"
    assert "composed in memory" in str(view.engine_note)
    del index
    shutil.rmtree(tmp_path / "index")
    again = view.remapped(np.arange(len(order)))
    same(again.search(clustered.queries[:50]), expected)


@pytest.mark.parametrize("getter", ["memory_bytes", "engine_note", "build_id"])
def test_getters_answer_while_a_view_is_made(tmp_path: Path, getter: str) -> None:
    """In a process of its own, for a deadlock would be the end of this one."""
    write_small_index(
        tmp_path, 800, 900
    )  # one node a page: several steps between which signals are looked for
    code = f"""
import sys, threading
import numpy as np
from indexmill.reader.index import Index
sys.setswitchinterval(1e-5)
for turn in range(10):
    index = Index(sys.argv[1])
    maker = threading.Thread(target=index.remapped, args=(np.arange(len(index)),))
    maker.start()
    while maker.is_alive():
        index.native.{getter}
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=120)


def test_an_order_is_read_once(tmp_path: Path) -> None:
    """Another thread writes into the array while the view is made: the view is that of one order, or there is none."""
    write_small_index(tmp_path, 800, 900)
    orders = np.arange(800, dtype=np.uint32), shuffled(800)
    index, order, stop = Index(tmp_path), orders[0].copy(), threading.Event()

    def write() -> None:
        for turn in itertools.cycle((1, 0)):
            if stop.is_set():
                return
            order[:] = orders[turn]

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(5):
            try:
                view = index.native.remapped(order)
            except InputError as error:
                assert "a slot of no other position" in str(error)  # noqa: PT017
                continue
            assert sorted(view.user_ids(np.arange(800))) == sorted(index.native.user_ids(np.arange(800)))
    finally:
        stop.set()
        writer.join()


def test_the_nodes_are_held_once_however_many_views_there_are(clustered: Clustered) -> None:
    index, n = Index(clustered.path), len(clustered.vectors)
    nodes = 4096 * -(-n // index.native.nodes_per_page)
    before = index.native.memory_bytes
    views = [index.remapped(shuffled(n, seed)) for seed in range(3)]
    assert index.native.memory_bytes == before + nodes
    checksums = 4 * (clustered.path / "graph.imx").stat().st_size // 4096
    for view in views:
        own = view.native.memory_bytes - before - nodes
        assert 8 * n - checksums - 16 <= own <= 8 * n


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (np.arange(199), "order: expected 200 slots, got 199"),
        (np.append(np.arange(200), 0), "order: expected 200 slots, got 201"),
        (np.where(np.arange(200) == 7, 3, np.arange(200)), "position 7: .*got 3, which position 3 has"),
        (np.arange(1, 201), "position 199: expected a slot below 200, got 200"),
        (np.arange(200) - 1, "position 0: expected a slot below 200, got -1"),
        (np.where(np.arange(200) == 9, 2**32 + 9, np.arange(200)), "position 9: expected a slot below 200"),
        (np.arange(200.0), "got float64"),
        (np.arange(200)[None], "of shape"),
    ],
)
def test_an_order_that_is_no_permutation_is_refused(
    tmp_path: Path, order: NDArray[Any], message: str
) -> None:
    write_small_index(tmp_path, 200)
    with pytest.raises(InputError, match=message):
        Index(tmp_path).remapped(order)


def test_an_order_may_be_any_row_of_integers(tmp_path: Path) -> None:
    written = write_small_index(tmp_path, 200)
    index, order = Index(tmp_path), shuffled(200)
    expected = index.remapped(order).search(written.vectors[:5])
    for same_order in (order.astype(np.int64), order.tolist(), np.repeat(order, 2)[::2], order.astype(">u4")):
        same(index.remapped(same_order).search(written.vectors[:5]), expected)


def test_a_single_vector_can_be_remapped(tmp_path: Path) -> None:
    written = write_small_index(tmp_path, 1)
    found = Index(tmp_path).remapped([0]).search(written.vectors, 1)
    assert found.vector_ids.tolist() == [[0]]
    assert found.counters["pages_read"].tolist() == [1]


def test_a_damaged_page_ends_it_with_its_name(tmp_path: Path) -> None:
    write_small_index(tmp_path, 200)
    index, path = Index(tmp_path), tmp_path / "graph.imx"
    damaged = bytearray(path.read_bytes())
    damaged[2 * 4096 + 5] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(CorruptFile, match=r"graph\.imx: page 2"):
        index.remapped(np.arange(200))
    damaged[2 * 4096 + 5] ^= 1
    path.write_bytes(damaged)
    assert index.remapped(np.arange(200)).search(np.ones((1, 16), np.float32)).slots.shape == (1, 10)


def test_an_index_that_was_replaced_is_not_taken_for_the_one_that_was_opened(tmp_path: Path) -> None:
    write_small_index(tmp_path / "a", 200)
    write_small_index(tmp_path / "b", 200, seed=1)
    index = Index(tmp_path / "a")
    (tmp_path / "b" / "graph.imx").replace(tmp_path / "a" / "graph.imx")
    with pytest.raises(InputError, match="replaced since it was opened"):
        index.remapped(np.arange(200))
