"""Exports of hash tables: the printed code finds vectors in the buckets and faiss measures them, with our answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracles.lsh.search import LshOracle
from tests.support.indexes.export import id_map
from tests.support.indexes.lsh import build_lsh, clusters

import indexmill

N, DIM, K = 900, 12, 10
QUERIES = clusters(40, DIM, seed=5)


def small(out: Path, metric: str = "l2", **how: Any) -> Path:
    build_lsh(out, clusters(N, DIM), metric=metric, n_functions=6, n_tables=8, n_radii=3, **how)
    return out


def pasted(found: dict[str, Any]) -> dict[str, Any]:
    """Run the printed code; returns its names."""
    names: dict[str, Any] = {}
    exec(found["open"], names)
    return names


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
def test_the_printed_search_finds_what_our_search_finds(tmp_path: Path, metric: str) -> None:
    index = small(tmp_path / "ix", metric)
    names = pasted(indexmill.export(index, "faiss-lsh", tmp_path / "out"))
    ours = indexmill.open(index).search(QUERIES, K)
    for i, query in enumerate(QUERIES):
        ids, scores = names["search"](query, K)
        assert len(ids) == np.count_nonzero(np.isfinite(ours.scores[i]))
        mine = ours.ids[i][: len(ids)]
        np.testing.assert_allclose(scores, ours.scores[i][: len(ids)], rtol=1e-4, atol=1e-4)
        assert (ids == np.asarray(mine)).mean() > 0.8  # except among equal scores
        assert sorted(set(ids.tolist()) ^ set(np.asarray(mine).tolist())) == []


@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_buckets_hold_the_same_entries(tmp_path: Path, metric: str) -> None:
    index = small(tmp_path / "ix", metric, block_bytes=128)
    indexmill.export(index, "faiss-lsh", tmp_path / "out")
    starts, slots, prints = (
        np.load(tmp_path / "out" / f"{name}.npy") for name in ("starts", "slots", "fingerprints")
    )
    files = LshOracle(index).files
    pointers = files.pairs[0].tables.all_pointers()
    assert len(starts) == len(pointers) + 1
    for bucket, pointer in enumerate(pointers.tolist()):
        mine = files.pairs[0].buckets.chain(pointer) if pointer else np.empty(0, np.uint64)
        wanted_slots, wanted_prints = files.pairs[0].buckets.split(mine)
        span = slice(int(starts[bucket]), int(starts[bucket + 1]))
        assert np.array_equal(slots[span], wanted_slots)
        assert np.array_equal(prints[span], wanted_prints)


def test_equal_exports_have_equal_bytes(tmp_path: Path) -> None:
    index = small(tmp_path / "ix")
    for out in ("a", "b"):
        indexmill.export(index, "faiss-lsh", tmp_path / out)
    first, second = ({p.name: p.read_bytes() for p in (tmp_path / out).iterdir()} for out in ("a", "b"))
    assert first == second


def test_slots_that_are_exchanged_do_not_pass(tmp_path: Path) -> None:
    index = small(tmp_path / "ix")
    found = indexmill.export(index, "faiss-lsh", tmp_path / "out")
    slots = np.load(tmp_path / "out" / "slots.npy")
    np.save(tmp_path / "out" / "slots.npy", np.random.default_rng(1).permutation(N).astype("<u4")[slots])
    names = pasted(found)
    ours = indexmill.open(index).search(QUERIES, K)
    theirs = [set(names["search"](query, K)[0].tolist()) for query in QUERIES]
    assert theirs != [set(np.asarray(row).tolist()) for row in ours.ids]


def test_faiss_answers_with_user_ids_or_slots(tmp_path: Path) -> None:
    ids = np.random.default_rng(2).permutation(N) + 10**10
    build_lsh(tmp_path / "ix", clusters(N, DIM), ids=ids, n_functions=6, n_tables=8, n_radii=3)
    named, slots = (
        pasted(indexmill.export(tmp_path / "ix", "faiss-lsh", tmp_path / how, ids=how))["search"](
            QUERIES[0], K
        )[0]
        for how in ("user", "slot")
    )
    assert np.array_equal(ids[slots], named)
    assert np.array_equal(id_map(tmp_path / "slot")["id"].to_numpy(), ids)
