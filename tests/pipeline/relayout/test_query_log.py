"""`--query-log`: what repeated queries read shares pages, if later queries then read fewer pages."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.cli import run
from tests.support.indexes.append import assert_sound, build, manifest, recall
from tests.support.indexes.builds import data_files

import indexmill
from indexmill.formats.errors import BudgetError, ConfigError, InputError, NothingToGain
from indexmill.formats.graph.index import IndexFiles
from indexmill.jobs.bench.common.modalities import Modalities
from indexmill.layout.bundles import NOBODY, Bundled
from indexmill.pipeline.generations.run import RunOptions
from indexmill.pipeline.mill.progress import Silent
from indexmill.pipeline.relayout import query_log
from indexmill.pipeline.relayout import run as relayout
from indexmill.pipeline.relayout.auto import CURRENT
from indexmill.pipeline.relayout.query_log import QueryLog, wanted_slots
from indexmill.pipeline.relayout.run import LayoutRequest, run_layout

DIM, N = 48, 4000


def rows(n: int, seed: int) -> np.ndarray:
    """Vectors of 15 clusters, 48 floats each: 15 nodes a page."""
    centres = np.random.default_rng(99).normal(size=(15, DIM))
    rng = np.random.default_rng(seed)
    return (centres[rng.integers(15, size=n)] + 0.8 * rng.normal(size=(n, DIM))).astype(np.float32)


VECTORS = rows(N, 1)
POPULAR = rows(6, 2)


def log_of(n: int, share: float, seed: int) -> np.ndarray:
    """Queries of which a share is one of six, nearly."""
    rng = np.random.default_rng(seed)
    found = rows(n, seed)
    repeats = rng.choice(n, round(share * n), replace=False)
    found[repeats] = POPULAR[rng.integers(6, size=len(repeats))]
    found[repeats] += rng.normal(0, 0.01, (len(repeats), DIM)).astype(np.float32)
    return found


LOG = log_of(300, 0.6, 3)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("log") / "old", VECTORS, order="identity", R=16, pq_bytes=16)


@pytest.fixture(scope="module")
def plain(old: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packed by stars, without a log."""
    out = tmp_path_factory.mktemp("plain") / "ix"
    indexmill.lay_out(old, "star", out=out)
    return out


@pytest.fixture(scope="module")
def weighted(old: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("weighted") / "ix"
    indexmill.lay_out(old, "star", query_log=LOG, out=out)
    return out


def pages_read(index: Path, queries: np.ndarray) -> float:
    found = indexmill.open(index).search(queries, 10, L=30, deterministic=True)
    return float(found.counters["pages_read"].mean())


def test_repeated_queries_read_fewer_pages_and_others_hardly_more(plain: Path, weighted: Path) -> None:
    assert_sound(weighted)
    assert pages_read(weighted, POPULAR) < 0.6 * pages_read(plain, POPULAR)
    others = rows(300, 8)
    assert pages_read(weighted, others) < 1.1 * pages_read(plain, others)
    judging = log_of(300, 0.6, 9)
    assert pages_read(weighted, judging) < 0.85 * pages_read(plain, judging)
    assert recall(weighted, VECTORS, others) > recall(plain, VECTORS, others) - 0.01


def test_the_manifest_says_what_was_chosen_from_what(weighted: Path) -> None:
    layout = manifest(weighted)["layout"]
    said = layout["query_log"]
    assert (layout["order"], said["chosen"]) == ("star", "weighted")
    assert (said["tuning_queries"], said["judged_queries"], said["k"]) == (240, 60, 10)
    assert said["judged_distinct"] == 60
    assert 0.7 < said["query_distance"] / said["vector_distance"] < 1.3
    assert 0.8 < said["query_length"] / said["nearest_length"] < 1.25
    assert "warning" not in said
    assert said["tuning_repeats"] == pytest.approx(0.6 - 6 / 240, abs=0.08)
    assert said["judged_repeats"] == pytest.approx(0.6, abs=0.15)
    assert said["bundles"] == 6
    assert said["bundled_vectors"] <= 6 * 60
    assert said["pages_read_weighted"] < 0.9 * said["pages_read_unweighted"]
    low, high = said["more_than_unweighted"]
    assert low < said["pages_read_weighted"] - said["pages_read_unweighted"] < high < 0


def test_bundles_lead_the_file(weighted: Path) -> None:
    found = indexmill.open(weighted).search(POPULAR, 10, L=30, deterministic=True)
    said = manifest(weighted)["layout"]["query_log"]
    assert (found.slots < said["bundled_vectors"]).mean() > 0.9


def edges_in_units(index: Path) -> float:
    """Share of the edges that stay within 64 KiB of the file, pages of bundles aside."""
    with IndexFiles(index) as files:
        nodes = 16 * files.graph.node_format.nodes_per_page
        block = files.graph.read_nodes(0, N)
    first = manifest(index)["layout"].get("query_log", {}).get("bundled_vectors", 0)
    there = np.arange(block.neighbours.shape[1]) < block.degrees[:, None]
    same = block.neighbours // nodes == (np.arange(N) // nodes)[:, None]
    return float(same[first:][there[first:]].mean())


def test_units_stay_units_behind_bundles(plain: Path, weighted: Path) -> None:
    assert edges_in_units(weighted) > 0.75 * edges_in_units(plain)


def test_an_order_without_units_gets_none(old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def seen(order: np.ndarray, *others: Any) -> Bundled:
        given.append(others[-1])
        return Bundled(order, np.empty(0, np.int64))

    monkeypatch.setattr(query_log, "bundled", seen)
    for order in ("identity", "kmeans-pages", "agglomerative"):
        indexmill.lay_out(old, order, query_log=LOG, out=tmp_path / order)
    assert [units is not None for units in given] == [False, False, True]


def test_the_same_log_gives_the_same_bytes_for_any_workers_and_any_layout_before(
    old: Path, weighted: Path, tmp_path: Path
) -> None:
    indexmill.lay_out(old, "star", query_log=LOG, out=tmp_path / "one", workers=1)
    assert data_files(tmp_path / "one") == data_files(weighted)
    indexmill.lay_out(old, "random", out=tmp_path / "random")
    indexmill.lay_out(tmp_path / "random", "star", query_log=LOG)
    again, files = data_files(tmp_path / "random"), data_files(weighted)
    del again["manifest.json"], files["manifest.json"]
    assert again == files


def test_an_index_that_a_log_laid_out_is_left_alone_by_the_same_log(weighted: Path, tmp_path: Path) -> None:
    index = shutil.copytree(weighted, tmp_path / "ix")
    indexmill.lay_out(index, "star", query_log=LOG)
    assert data_files(index) == data_files(weighted)


def test_queries_that_do_not_repeat_change_nothing_and_it_says_so(
    old: Path, plain: Path, tmp_path: Path
) -> None:
    np.save(tmp_path / "log.npy", rows(300, 4))
    out = tmp_path / "ix"
    done = run(
        "layout", str(old), "--order", "star", "--query-log", str(tmp_path / "log.npy"), "--out", str(out)
    )
    assert done.exit_code == 0, done.stderr
    assert "query log: it changes nothing, because too few queries repeat" in done.stdout
    said = manifest(out)["layout"]["query_log"]
    assert (said["chosen"], said["bundles"]) == ("unweighted", 0)
    assert said["judged_repeats"] < 0.1
    with IndexFiles(out) as found, IndexFiles(plain) as expected:
        assert (found.vector_ids == expected.vector_ids).all()


def test_bundles_that_do_not_pay_are_not_kept_and_it_says_so(
    old: Path, plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scattered(order: np.ndarray, *_: Any) -> Bundled:
        return Bundled(np.random.default_rng(1).permutation(order), np.array([60]))

    monkeypatch.setattr(query_log, "bundled", scattered)
    np.save(tmp_path / "log.npy", LOG)
    asked = ("--order", "star", "--query-log", str(tmp_path / "log.npy"), "--out", str(tmp_path / "ix"))
    done = run("layout", str(old), *asked)
    assert done.exit_code == 0, done.stderr
    assert "query log: it does not pay, so the order stays unweighted: with the log" in done.stdout
    said = manifest(tmp_path / "ix")["layout"]["query_log"]
    assert said["chosen"] == "unweighted"
    assert said["pages_read_weighted"] > said["pages_read_unweighted"]
    with IndexFiles(tmp_path / "ix") as found, IndexFiles(plain) as expected:
        assert (found.vector_ids == expected.vector_ids).all()


def test_the_command_prints_what_the_log_saved(old: Path, weighted: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "log.npy", LOG)
    asked = ("--order", "star", "--query-log", str(tmp_path / "log.npy"), "--out")
    shown = run("layout", str(old), *asked, str(tmp_path / "shown"))
    assert "page reads a query instead of" in shown.stdout
    assert "by 60 queries, 60 of them distinct" in shown.stdout
    assert "vectors in 6 bundles" in shown.stdout
    told = json.loads(run("layout", str(old), *asked, str(tmp_path / "told"), "--json").stdout)
    assert told["query_log"] == manifest(weighted)["layout"]["query_log"]
    assert told["manifest"]["layout"]["query_log"] == told["query_log"]


def test_auto_tunes_with_the_earlier_queries_and_keeps_an_order_that_stays(
    weighted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relayout, "candidates", lambda *_: [CURRENT, "star"])
    indexmill.lay_out(weighted, effort="low", query_log=LOG, out=tmp_path / "ix")
    choice = manifest(tmp_path / "ix")["layout"]["choice"]
    assert (choice["queries"], choice["queries_from"]) == (200, "the caller")
    popular = np.repeat(POPULAR, 10, axis=0)
    indexmill.lay_out(weighted, effort="low", queries=popular, certify=True, out=tmp_path / "kept")
    said = manifest(tmp_path / "kept")["layout"]["query_log"]
    assert said == {**manifest(weighted)["layout"]["query_log"], "inherited": True}
    indexmill.lay_out(
        weighted, effort="low", queries=popular, query_log=rows(250, 77), out=tmp_path / "later"
    )
    later = manifest(tmp_path / "later")["layout"]["query_log"]
    assert later["chosen"] == "unweighted"
    assert later["earlier"] == said  # whose bundles the order still has


def test_equal_queries_that_judge_count_once(old: Path, tmp_path: Path) -> None:
    log = LOG.copy()
    log[-60:] = np.tile(LOG[:12], (5, 1))
    indexmill.lay_out(old, "star", query_log=log, out=tmp_path / "ix")
    said = manifest(tmp_path / "ix")["layout"]["query_log"]
    assert (said["judged_queries"], said["judged_distinct"]) == (60, 12)


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (rows(60, 5) + np.float32(1e4), r"or farther from their tenth nearest .*; their length is 6\.9\S+,"),
        (
            LOG / np.linalg.norm(LOG, axis=1, keepdims=True),
            r"index: their length is 1, and that of the vectors",
        ),
        (
            1000 * LOG,
            r"or farther from their tenth nearest vector, where at most \d+\.\d+ was expected: 4 times",
        ),
    ],
    ids=["far from all", "normalised", "not normalised"],
)
def test_a_log_of_another_index_is_told(old: Path, tmp_path: Path, log: np.ndarray, told: str) -> None:
    with pytest.warns(UserWarning, match=rf"^query_log: the queries do not look like .*{told}") as warned:
        indexmill.lay_out(old, "star", query_log=log, out=tmp_path / "ix")
    assert_sound(tmp_path / "ix")
    assert "Check that they were meant for its metric (l2)" in str(warned[0].message)
    said = manifest(tmp_path / "ix")["layout"]["query_log"]["warning"]
    assert str(warned[0].message) == f"query_log: {said}"
    np.save(tmp_path / "log.npy", log)
    shown = run(
        "layout", str(old), "--order", "star", "--query-log", str(tmp_path / "log.npy"),
        "--out", str(tmp_path / "shown"),
    )  # fmt: skip
    assert f"query log: warning: {said}" in shown.stdout


@pytest.mark.parametrize("metric", ["cosine", "ip", "l2"])
def test_queries_of_another_modality_are_no_other_index(
    tmp_path: Path, metric: str, recwarn: pytest.WarningsRecorder
) -> None:
    world = Modalities(5)
    vectors, log = world.draw("vectors", 2000, 0), world.draw("queries", 100, 1)
    if metric == "ip":
        vectors *= np.exp(0.3 * np.random.default_rng(8).standard_normal((2000, 1))).astype(np.float32)
        log *= 1000  # lengths of queries do not matter
    index = build(tmp_path / "ix", vectors, metric=metric, R=16, pq_bytes=16)
    indexmill.lay_out(index, "star", query_log=log)
    assert [str(w.message) for w in recwarn if "query_log" in str(w.message)] == []
    said = manifest(index)["layout"]["query_log"]
    assert said["query_distance"] < 2.5 * said["vector_distance"]
    assert ("query_length" in said) == (metric == "l2")


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_lengths_of_bytes_are_those_of_the_user(tmp_path: Path, dtype: str) -> None:
    shift, info = 128 * (dtype == "uint8"), np.iinfo(dtype)
    vectors, log = (
        np.clip(20 * some + shift, info.min, info.max).astype(dtype) for some in (VECTORS[:1000], LOG)
    )
    index = build(tmp_path / "ix", vectors, R=12)
    indexmill.lay_out(index, "star", query_log=log)
    said = manifest(index)["layout"]["query_log"]
    expected = np.median(np.linalg.norm(log.astype(float), axis=1))
    assert said["query_length"] == pytest.approx(expected, rel=1e-3)
    assert 0.8 < said["query_length"] / said["nearest_length"] < 1.25
    assert 0.5 < said["query_distance"] / said["vector_distance"] < 1.5
    assert "warning" not in said


def test_wider_numbers_give_a_sound_index(old: Path, tmp_path: Path) -> None:
    indexmill.lay_out(old, "star", query_log=VECTORS[:60].astype(np.float64), out=tmp_path / "ix")
    assert_sound(tmp_path / "ix")
    assert manifest(tmp_path / "ix")["layout"]["query_log"]["tuning_queries"] == 48


def test_a_log_that_cannot_be_used_is_refused(
    old: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    log = tmp_path_factory.mktemp("files") / "log.npy"

    def lay_out(log: np.ndarray, **others: Any) -> None:
        indexmill.lay_out(old, query_log=log, out=tmp_path / "ix", **others)

    with pytest.raises(InputError, match=r"^query_log: expected shape \(q, 48\) for .*, got \(300, 12\)"):
        lay_out(LOG[:, :12])
    with pytest.raises(InputError, match=r"^query_log: expected at least 50 queries, .*, got 49"):
        lay_out(LOG[:49])
    few = r"^query_log: expected at least 10 distinct queries among the {} of the last fifth that judge, got {};"
    with pytest.raises(InputError, match=few.format(12, 1)):
        lay_out(np.repeat(POPULAR[:1], 60, axis=0))
    with pytest.raises(InputError, match=few.format(200, 6)):
        lay_out(POPULAR[np.random.default_rng(6).integers(6, size=3000)], effort="low")
    with pytest.raises(InputError, match=r"^query_log: row 7: expected finite numbers, got nan"):
        lay_out(np.where(np.arange(300)[:, None] == 7, np.float32("nan"), LOG))
    with pytest.raises(InputError, match=r"^query_log: expected numbers"):
        lay_out(LOG[:0])
    with pytest.raises(ConfigError, match=r"^query_log: not together with --prune-edges"):
        lay_out(LOG, prune_edges=True)
    for wrong, said in (
        (LOG[:, :12], "expected shape (q, 48)"),
        (LOG[:49], "expected at least 50 queries"),
    ):
        np.save(log, wrong)
        refused = run("layout", old, "--query-log", log, "--out", tmp_path / "ix")
        assert refused.exit_code == 3
        assert f"error: --query-log: {log}: {said}" in refused.stderr
    with pytest.raises(BudgetError, match="or leave --query-log out"):
        lay_out(np.tile(LOG, (400, 1)), order="star", memory="320MiB")
    assert list(tmp_path.iterdir()) == []
    done = run("layout", str(old), "--query-log", str(old / "graph.imx"))
    assert done.exit_code != 0
    assert "graph.imx" in done.stderr


def test_a_row_that_no_search_takes_is_named_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relayout, "unpack", lambda *_: pytest.fail("read the index"))
    log = np.concatenate([LOG, LOG])
    for metric, value, expected in (
        ("cosine", 0.0, "a direction under cosine"),
        ("cosine", 1e300, "a direction under cosine, in float32"),
        ("l2", 1e19, r"a squared length of at most 8\.51e\+37"),
        ("ip", 1e19, "a squared length of at most"),
    ):
        index = build(tmp_path / f"{metric}{value}", VECTORS[:500], metric=metric, R=12)
        wrong = np.where(np.arange(600)[:, None] == 300, value, log.astype(np.float64))
        for order in ("star", "auto"):
            with pytest.raises(InputError, match=rf"^query_log: row 300: expected {expected}"):
                indexmill.lay_out(index, order, query_log=wrong)
        with pytest.raises(InputError, match=rf"^queries: row 300: expected {expected}"):
            indexmill.lay_out(index, queries=wrong)


def test_a_log_of_fractions_for_bytes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relayout, "unpack", lambda *_: pytest.fail("read the index"))
    bytes_index = build(tmp_path / "bytes", (VECTORS[:500] * 20 + 128).astype(np.uint8), R=12)
    with pytest.raises(
        InputError, match=r"^query_log: row 0: expected whole numbers that fit the index's uint8"
    ):
        indexmill.lay_out(bytes_index, "star", query_log=LOG)


class FullDisk(Silent):
    """Fails as a full disk does, while pages of an index are written.

    Parameters
    ----------
    turn : int
        Which of the indexes that a run writes.
    """

    def __init__(self, turn: int) -> None:
        self._turn, self._left = turn, 0

    def start(self, stage: str, total: int, unit: str) -> None:
        self._turn -= stage == "emit"
        self._left = total * 3 // 4 if stage == "emit" and self._turn == 0 else 0

    def advance(self, steps: int) -> None:
        if 0 < self._left <= steps:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._left -= steps


@pytest.mark.parametrize("turn", [1, 2, 3], ids=["unweighted", "weighted", "the result"])
def test_a_disk_that_fills_while_an_index_is_written_changes_nothing(
    old: Path, weighted: Path, tmp_path: Path, turn: int
) -> None:
    index, before = shutil.copytree(old, tmp_path / "ix"), data_files(old)
    request, options = LayoutRequest("star", query_log=QueryLog(LOG)), RunOptions(workers=1)
    with pytest.raises(BudgetError, match=r"No space left on device; the index is as it was; free some"):
        run_layout(index, request, options, FullDisk(turn))
    assert data_files(index) == before
    assert [path.name for path in tmp_path.iterdir()] == ["ix"]
    run_layout(index, request, options)
    assert data_files(index) == data_files(weighted)


def test_a_log_for_an_index_that_no_layout_helps_is_refused(tmp_path: Path) -> None:
    one_page = build(tmp_path / "one", VECTORS[:10], R=4)
    with pytest.raises(NothingToGain, match="One page holds all of them"):
        indexmill.lay_out(one_page, "star", query_log=LOG)


def test_a_query_wants_what_is_nearest_and_then_what_led_there(plain: Path) -> None:
    index = indexmill.open(plain)
    found = index.search(LOG[:20], 10, L=60, policy="beam", deterministic=True, trace=True)
    assert found.trace is not None
    events = found.trace.to_pylist()
    for width in (10, 45, 90):
        wanted = wanted_slots(found, width)
        for query, row in enumerate(wanted.tolist()):
            mine = [event for event in events if event["query"] == query]
            measured = [(e["distance"], e["vertex"]) for e in mine if e["kind"] == "measure"]
            near = [vertex for _, vertex in sorted(measured)[:30]]
            rest = [e["vertex"] for e in mine if e["kind"] == "expand" and e["vertex"] not in near]
            expected = (near + list(dict.fromkeys(rest)))[:width]
            assert row == expected + [NOBODY] * (width - len(expected))
