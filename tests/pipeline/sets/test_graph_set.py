"""Graphs that are searched together: what they have in common, which are refused, and what a search of them finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import indexmill
from indexmill.formats.errors import ConfigError, InputError
from indexmill.reader import _native
from indexmill.reader.index import Index
from indexmill.reader.set import IndexSet
from indexmill.reader.together import Together, joined

RNG = np.random.default_rng(3)
VECTORS = RNG.standard_normal((900, 12)).astype(np.float32)
QUERIES = RNG.standard_normal((25, 12)).astype(np.float32)
N = len(VECTORS)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> IndexSet:
    out = tmp_path_factory.mktemp("set") / "set"
    made = indexmill.build(VECTORS, out, parts=3, R=12, L=24, pq_bytes=6)
    assert isinstance(made, IndexSet)
    return made


def everywhere(parts: int = 3) -> Any:
    return np.ones((len(QUERIES), parts), np.bool_)


def nearest(k: int, among: Any = None) -> Any:
    distances = np.square(QUERIES[:, None].astype(np.float64) - VECTORS[None]).sum(axis=2)
    if among is not None:
        distances[:, ~among] = np.inf
    return np.argsort(distances, axis=1, kind="stable")[:, :k]


def test_a_list_of_all_vectors_finds_the_nearest_of_all_parts(opened: IndexSet) -> None:
    found = Together(opened.parts).search(QUERIES, everywhere(), 10, L=N)
    assert (found.ids == nearest(10)).all()
    assert (found.vector_ids == opened.vector_ids_of(found.ids.ravel()).reshape(found.ids.shape)).all()
    assert (np.diff(found.scores, axis=1) >= 0).all()
    assert found.id_type == "int64"


def test_slots_are_those_of_the_parts_counted_one_after_the_other(opened: IndexSet) -> None:
    found = Together(opened.parts).search(QUERIES, everywhere(), 10)
    owners = np.searchsorted(opened.starts, found.vector_ids.ravel(), side="right") - 1
    assert (np.searchsorted(opened.starts, found.slots.ravel(), side="right") - 1 == owners).all()
    for number, part in enumerate(opened.parts):
        mine = owners == number
        ids = part.native.user_ids(found.slots.ravel()[mine] - opened.starts[number])
        assert ids == found.ids.ravel()[mine].tolist()


def test_one_part_is_searched_as_by_itself(opened: IndexSet) -> None:
    part = opened.parts[1]
    alone, one = part.search(QUERIES, 10), Together([part]).search(QUERIES, everywhere(1), 10)
    for name in ("ids", "scores", "vector_ids", "slots"):
        assert (getattr(alone, name) == getattr(one, name)).all()
    for name, values in alone.counters.items():
        assert name.endswith("_us") or (values == one.counters[name]).all()


def test_counters_repeat_with_any_threads_and_queries_in_flight(opened: IndexSet) -> None:
    parts = Together(opened.parts)
    want = parts.search(QUERIES, everywhere(), 10, inflight=1)
    for threads, inflight in ((1, 8), (3, 2)):
        found = parts.search(QUERIES, everywhere(), 10, threads=threads, inflight=inflight)
        assert (found.ids == want.ids).all()
        for name, values in want.counters.items():
            assert name.endswith("_us") or (values == found.counters[name]).all()
    assert (want.counters["pages_read"] > 0).all()
    assert (want.counters["hops"] > 0).all()
    assert (want.counters["latency_us"] > 0).all()


def test_masks_of_parts_are_filters(opened: IndexSet) -> None:
    mask = RNG.random(N) < 0.4
    masks = np.split(mask[opened.vector_ids_of(np.arange(N)).argsort()], opened.starts[1:-1])
    found = Together(opened.parts).search(QUERIES, everywhere(), 10, masks=masks, L=N)
    assert (found.ids == nearest(10, mask)).all()


def test_parts_of_other_codes_or_formats_are_refused_by_name(tmp_path: Path, opened: IndexSet) -> None:
    other: Any = indexmill.build(
        VECTORS[:400], tmp_path / "other", ids=np.arange(400), R=12, L=24, pq_bytes=6
    )
    with pytest.raises(InputError, match=f"{tmp_path / 'other'}: it has another codebook"):
        Together([opened.parts[0], other])
    wide: Any = indexmill.build(VECTORS[:400], tmp_path / "wide", ids=np.arange(400), R=16, L=24, pq_bytes=6)
    with pytest.raises(InputError, match=f"{tmp_path / 'wide'}: it has another format of nodes"):
        Together([opened.parts[0], wide])
    unnamed: Any = indexmill.build(VECTORS[:400], tmp_path / "unnamed", R=12, L=24, pq_bytes=6)
    with pytest.raises(InputError, match="unnamed: it has no user ids"):
        Together([unnamed])
    assert joined([opened.parts[0], other]) is None


def test_what_is_no_graph_on_this_machine_is_searched_by_itself(tmp_path: Path, opened: IndexSet) -> None:
    lists: Any = indexmill.build(VECTORS, tmp_path / "lists", parts=2, kind="ivf", lists=4)
    assert joined(lists.parts) is None
    assert joined([object(), *opened.parts]) is None
    view = opened.parts[0].remapped(np.arange(len(opened.parts[0])))
    assert joined([view]) is None
    assert joined(opened.parts) is not None


def test_choices_that_do_not_fit_are_refused(opened: IndexSet) -> None:
    parts = Together(opened.parts)
    with pytest.raises(InputError, match="L: expected at least k = 10"):
        parts.search(QUERIES, everywhere(), 10, L=9)
    with pytest.raises(ConfigError, match='entry "previous"'):
        parts.search(QUERIES, everywhere(), 10, entry="previous")
    with pytest.raises(InputError, match="expected 25 x 3 booleans"):
        parts.search(QUERIES, everywhere(2), 10)
    with pytest.raises(ConfigError, match="beam_width"):
        parts.search(QUERIES, everywhere(), 10, beam_width=65)


def test_a_filter_of_one_part_does_not_fit_the_set(opened: IndexSet) -> None:
    native = _native.GraphSet.of([part.native for part in opened.parts])
    filters = [part.filter(np.ones(len(part), np.bool_)) for part in opened.parts]
    with pytest.raises(InputError, match="expected 3 filters"):
        native.filter(filters[:2])
    with pytest.raises(InputError, match="part-000"):
        native.filter(filters[::-1])
    assert native.filter(filters).n_allowed == N


def test_a_set_keeps_its_indexes_open(tmp_path: Path) -> None:
    made: Any = indexmill.build(VECTORS, tmp_path / "set", parts=2, R=12, L=24, pq_bytes=6)
    parts = Together([Index(tmp_path / "set" / f"part-00{number}") for number in range(2)])
    assert (parts.search(QUERIES, everywhere(2), 10).ids == made.search(QUERIES, 10, margin=np.inf).ids).all()
