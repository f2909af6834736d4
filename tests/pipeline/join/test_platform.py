"""Workers of different speeds: planned to finish together, corrected when one lags, with the same result."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.cli import run
from tests.support.indexes.ivf import LISTS, build_lists, join, make_vectors

import indexmill
from indexmill.formats.errors import ConfigError, CorruptFile
from indexmill.formats.ivf.index import IvfFiles
from indexmill.formats.pagefile.frame import PAGE_BYTES
from indexmill.pipeline.join.platform import Costs, Piece, Worker, costs_of, read_platform, worker_seconds
from indexmill.pipeline.join.simulate import energy_joules, simulate, spread
from indexmill.pipeline.join.spans import Span, uncovered
from indexmill.pipeline.join.split import plan_split
from indexmill.pipeline.join.tasks import Searched
from indexmill.pipeline.join.workers import measure_rates

BATCHES = 60


def even(n: int = BATCHES, lists: int = 1) -> Costs:
    """Batches of a million bytes and a million compares each."""
    return Costs.even(n, lists, 1e6 * n, 1e6 * n, 100 * n)


def uneven(rng: np.random.Generator, batches: int, lists: int) -> Costs:
    """Batches whose lists differ by far more than they do in an index."""
    spans = [(b, i, i + 1) for b in range(batches) for i in range(lists)]
    n_bytes, compares, rows = rng.lognormal(0, 1, (3, len(spans))) * 1e5
    return Costs(np.array(spans, np.int64).reshape(-1, 3), n_bytes, compares, rows)


def host_and_drives(drives: int, overlap: bool = False) -> list[Worker]:
    """A host that is 11 times as fast as each of its drives."""
    host = Worker("host", 220.0, 220.0, overlap)
    return [host, *(Worker(f"drive-{i}", 20.0, 20.0, overlap) for i in range(drives))]


@pytest.mark.parametrize("overlap", [False, True])
def test_planned_workers_finish_within_a_batch_of_each_other(overlap: bool) -> None:
    workers, costs = host_and_drives(8, overlap), even(400)
    planned = plan_split(workers, costs)
    assert [piece.span.batch for share in planned for piece in share.pieces] == list(range(400))
    slowest = max(worker_seconds(worker, [costs.pieces(0, 1)[0].cost]) for worker in workers)
    seconds = [share.seconds for share in planned]
    assert max(seconds) - min(seconds) <= slowest * (1 + 1e-9)
    assert spread([one.seconds for one in simulate(planned)]) < 0.1


@pytest.mark.parametrize("overlap", [False, True])
def test_sixteen_batches_are_cut_so_that_nine_workers_end_together(overlap: bool) -> None:
    workers = host_and_drives(8, overlap)
    whole = simulate(plan_split(workers, even(16)))
    assert spread([one.seconds for one in whole]) == 1.0  # a drive without a batch is done at once
    planned = plan_split(workers, even(16, lists=2048))
    cut = simulate(planned)
    assert spread([one.seconds for one in cut]) < 0.01
    assert max(one.seconds for one in cut) < 0.9 * max(one.seconds for one in whole)
    assert sum(len(share.pieces) for share in planned) <= 16 + 8
    assert sum(share.rows for share in planned) == pytest.approx(1600)


@given(
    seed=st.integers(0, 2**32 - 1), batches=st.integers(0, 12), lists=st.integers(1, 40), drives=st.integers(0, 12),
    overlap=st.booleans(),
)  # fmt: skip
@settings(deadline=None)
def test_shares_are_all_lists_once_in_as_few_pieces_as_there_are_cuts(
    seed: int, batches: int, lists: int, drives: int, overlap: bool
) -> None:
    costs = uneven(np.random.default_rng(seed), batches, lists)
    workers = host_and_drives(drives, overlap)
    planned = plan_split(workers, costs)
    spans = [piece.span for share in planned for piece in share.pieces]
    assert spans == sorted(spans)
    assert all(first < last for _, first, last in spans)
    assert [(b, i) for b, first, last in spans for i in range(first, last)] == [
        (b, i) for b in range(batches) for i in range(lists)
    ]
    assert len(spans) <= batches + drives
    for column in ("n_bytes", "compares", "rows"):
        in_pieces = sum(getattr(piece, column) for share in planned for piece in share.pieces)
        assert in_pieces == pytest.approx(getattr(costs, column).sum())
    done = simulate(planned)
    assert sum(len(one.batches) for one in done) == len(spans)


def test_no_piece_is_cut_off_a_batch_where_the_edge_is_near() -> None:
    costs = even(10, lists=100)
    workers = [Worker("a", 1.0, 1.0, False), Worker("b", 1.0, 1.0000001, False)]
    planned = plan_split(workers, costs)
    assert [piece.span for share in planned for piece in share.pieces] == [Span(n, 0, 100) for n in range(10)]


def test_lists_that_an_earlier_run_left_are_divided_without_those_between_them() -> None:
    costs = even(2, lists=10)
    gap = np.r_[0:3, 7:20]
    left = Costs(costs.spans[gap], costs.n_bytes[gap], costs.compares[gap], costs.rows[gap])
    assert [piece.span for piece in left.pieces(0, 16)] == [Span(0, 0, 3), Span(0, 7, 10), Span(1, 0, 10)]
    assert [piece.span for piece in left.pieces(2, 5)] == [Span(0, 2, 3), Span(0, 7, 9)]


def test_uncovered_lists_are_those_that_no_span_has() -> None:
    whole = Span(3, 0, 10)
    assert uncovered(whole, []) == [whole]
    assert uncovered(whole, [Span(3, 4, 6), Span(3, 0, 2)]) == [Span(3, 2, 4), Span(3, 6, 10)]
    assert uncovered(whole, [Span(3, 5, 10), Span(3, 0, 6)]) == []


def test_the_papers_split_comes_out_of_its_rates() -> None:
    """Section 5.5: nprobe 1, eight drives, 50 million vectors: 29 for the host and 2.6 for each drive."""
    workers = [Worker("host", 29.0 * 2, 29.0 * 2, False), *[Worker("drive", 2.6 * 2, 2.6 * 2, False)] * 8]
    planned = plan_split(workers, even(5000))
    millions = [len(share.pieces) / 100 for share in planned]
    assert millions[0] == pytest.approx(29, rel=0.02)
    assert millions[1:] == pytest.approx([2.6] * 8, rel=0.02)


def test_an_overlapped_worker_takes_as_long_as_a_slow_replay_of_it() -> None:
    rng = np.random.default_rng(5)
    costs = replace(even(12), n_bytes=rng.uniform(1e6, 9e6, 12), compares=rng.uniform(1e6, 9e6, 12))
    worker = Worker("w", 7.0, 5.0)
    loads, searches = costs.n_bytes / 7e6, costs.compares / 5e6
    loaded = searched = began = 0.0
    for load, search in zip(loads, searches, strict=True):
        loaded = began + load  # it begins to load when the search of the batch before begins
        began = max(loaded, searched)
        searched = began + search
    (share,) = plan_split([worker], costs)
    (done,) = simulate([share])
    assert done.seconds == pytest.approx(searched)
    assert share.seconds == pytest.approx(searched)


def test_batches_of_a_worker_that_lags_are_taken_by_others() -> None:
    workers, costs = host_and_drives(8), even(400)
    planned = plan_split(workers, costs)
    lagging = simulate(planned, lag={0: 3.0})
    assert sorted(n for one in lagging for n in one.batches) == list(range(400))
    assert sum(one.stolen for one in lagging[1:]) > 50
    assert spread([one.seconds for one in lagging]) < 0.15
    alone = planned[0].seconds * 3.0
    assert max(one.seconds for one in lagging) < 0.7 * alone


def test_energy_counts_work_and_waiting() -> None:
    workers = [Worker("a", 1.0, 1.0, False, watts=10, idle_watts=1), Worker("b", 1.0, 1.0, False, watts=5)]
    runs = simulate(plan_split(workers, even(3)))
    assert [one.seconds for one in runs] == [4.0, 2.0]
    assert energy_joules(workers, runs, base_watts=100) == pytest.approx(100 * 4 + 10 * 4 + 5 * 2)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    vectors = make_vectors("uint8", 100 * BATCHES)
    return build_lists(tmp_path_factory.mktemp("ivf") / "ix", vectors, lists=4, batch_vectors=100)


def slowed(index: Path, queries: int, seconds: float) -> list[Worker]:
    """A host and four drives that are slowed so that all together take so many seconds."""
    files = IvfFiles(index)
    spans = [Span(number, 0, 4) for number in range(BATCHES)]
    costs = costs_of(files, np.full(4, queries), spans)
    speed = {
        "load_mb_s": costs.n_bytes.sum() / 1e6 / seconds,
        "compare_m_s": costs.compares.sum() / 1e6 / seconds,
    }

    def part(name: str, share: float) -> Worker:
        load, compare = (2 * share * rate for rate in speed.values())
        return Worker(name, load, compare, overlap=False, throttle=True)

    return [part("host", 0.6), *(part(f"drive-{i}", 0.1) for i in range(4))]


def test_slowed_workers_finish_together_with_the_result_of_one(index: Path, tmp_path: Path) -> None:
    queries = make_vectors("uint8", 50, seed=9)
    join(index, queries, tmp_path / "a.parquet", nprobe=4)
    report = join(index, queries, tmp_path / "b.parquet", nprobe=4, platform=slowed(index, 50, 3.0))
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    assert report.workers is not None
    assert [one.planned for one in report.workers] == [36, 6, 6, 6, 6]
    assert sorted(n for one in report.workers for n in one.batches) == list(range(BATCHES))
    # not sooner than their rates allow, and not one after the other, also where the machine is busy
    assert 2.6 < max(one.seconds for one in report.workers) < 6.0


def crew(*speeds: float) -> list[Worker]:
    """Workers of these speeds, which no clock slows."""
    return [Worker(f"w{i}", speed, speed, overlap=i % 2 == 0) for i, speed in enumerate(speeds)]


CUT = (5.0, 3.0, 2.0, 1.0)


def lists_bytes(index: Path, number: int) -> int:
    with IvfFiles(index).open_batch(number) as batch:
        return batch.lists_bytes


@pytest.mark.parametrize("nprobe", [3, LISTS])
@pytest.mark.parametrize(
    "parameters",
    [{}, {"codec": "sq8"}, {"copies": 2, "closure": 0.5}, {"codec": "pq", "pq_bytes": 6}],
    ids=str,
)
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_cut_batches_give_the_result_of_whole_ones(
    tmp_path: Path, dtype: str, parameters: dict[str, object], nprobe: int
) -> None:
    queries = make_vectors(dtype, 70, seed=9)
    path = build_lists(tmp_path / "ix", make_vectors(dtype), **parameters)
    join(path, queries, tmp_path / "a.parquet", nprobe=nprobe)
    report = join(path, queries, tmp_path / "b.parquet", nprobe=nprobe, platform=crew(*CUT))
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    assert report.workers is not None
    searched = [number for one in report.workers for number in one.batches]
    assert set(searched) == {0, 1, 2}
    assert len(searched) > 3
    assert report.load_bytes == sum(lists_bytes(path, number) for number in range(3))


def test_deleted_vectors_are_left_out_of_cut_batches(tmp_path: Path) -> None:
    vectors, queries = make_vectors("uint8"), make_vectors("uint8", 40, seed=9)
    path = build_lists(tmp_path / "ix", vectors)
    indexmill.delete(path, range(0, len(vectors), 3), by="vector")
    join(path, queries, tmp_path / "a.parquet")
    join(path, queries, tmp_path / "b.parquet", platform=crew(*CUT))
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_a_join_resumes_with_the_lists_that_are_left_of_a_batch(tmp_path: Path) -> None:
    queries = make_vectors("uint8", 40, seed=9)
    path = build_lists(tmp_path / "ix", make_vectors("uint8"))
    join(path, queries, tmp_path / "a.parquet")
    file = path / "batch-000001.imx"
    intact = file.read_bytes()
    with IvfFiles(path).open_batch(1) as batch:
        section = batch.file.section_entry("lists")
    at = (section.first_page + section.pages - 1) * PAGE_BYTES
    file.write_bytes(intact[:at] + bytes([intact[at] ^ 1]) + intact[at + 1 :])  # the last of its lists
    with pytest.raises(CorruptFile, match=r"1 of 3 batches cannot be read:\n.*batch-000001\.imx"):
        join(path, queries, tmp_path / "b.parquet", platform=crew(*CUT))
    (work,) = (folder for folder in tmp_path.iterdir() if list(folder.glob("*.part")))
    assert {part.name for part in work.glob("0*.part")} == {"000000.part", "000002.part"}
    pieces = [tuple(map(int, piece.stem.split("-"))) for piece in work.glob("*.piece")]
    assert {batch for batch, _, _ in pieces} == {1}
    file.write_bytes(intact)
    report = join(path, queries, tmp_path / "b.parquet", platform=crew(1.0, 1.0))
    assert report.reused == 2
    assert 0 < report.load_bytes < lists_bytes(path, 1)
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_pieces_of_another_division_do_not_keep_a_join_from_searching_whole_batches(tmp_path: Path) -> None:
    queries = make_vectors("uint8", 40, seed=9)
    path = build_lists(tmp_path / "ix", make_vectors("uint8"))
    join(path, queries, tmp_path / "a.parquet")
    aside = path / "batch-000002.aside"
    (path / "batch-000002.imx").rename(aside)
    with pytest.raises(CorruptFile, match="1 of 3 batches"):
        join(path, queries, tmp_path / "b.parquet", platform=crew(*CUT))
    aside.rename(path / "batch-000002.imx")
    assert join(path, queries, tmp_path / "b.parquet").reused == 2
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_rates_that_are_not_declared_are_measured(index: Path, tmp_path: Path) -> None:
    queries = make_vectors("uint8", 50, seed=9)
    report = join(index, queries, tmp_path / "r.parquet", nprobe=2, platform=[Worker("a"), Worker("b")])
    assert report.workers is not None
    searched = {number for one in report.workers for number in one.batches}
    assert len(searched) == BATCHES - 2  # each was measured with one
    join(index, queries, tmp_path / "a.parquet", nprobe=2)
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "r.parquet").read_bytes()


def test_first_lists_have_a_share_of_all_compares_or_what_there_is() -> None:
    sliver = Costs(np.array([[0, 90, 91]]), *np.array([[1e5], [0.0], [10.0]]))
    large = even(1, lists=100)
    costs = Costs(
        np.concatenate([sliver.spans, large.spans + np.array([1, 0, 0])]),
        *(np.append(getattr(sliver, name), getattr(large, name)) for name in ("n_bytes", "compares", "rows")),
    )

    def first(costs: Costs, at: int) -> tuple[Span, list[Span]]:
        piece, rest = costs.first_of(at, 1 / 16)
        return piece.span, rest

    assert first(costs, 1) == (Span(1, 0, 7), [Span(1, 7, 100)])
    assert first(sliver, 0) == (Span(0, 90, 91), [])
    assert first(even(20, lists=4), 2) == (Span(2, 0, 4), [])


def test_each_worker_has_the_rates_of_its_own_piece(index: Path) -> None:
    files: Any = SimpleNamespace(files=IvfFiles(index))
    probes = np.ones(files.files.centroids.n_lists, np.int64)
    whole = [Span(number, 0, len(probes)) for number in range(BATCHES)]
    crew = [Worker("slow"), Worker("fast"), Worker("stated", 5.0, 7.0), Worker("unread"), Worker("half", 3.0)]
    seconds, asked = {0: 4.0, 1: 1.0, 4: 2.0}, list[Span]()

    def tried(pieces: Mapping[int, Piece]) -> list[Searched]:
        asked.extend(piece.span for piece in pieces.values())
        return [
            Searched([piece.span.batch], {}, 0, seconds[i], 9.0, 2 * seconds[i])
            if i in seconds
            else Searched()
            for i, piece in pieces.items()
        ]

    known, _, left = measure_rates(files, probes, crew, whole, tried, [[range(BATCHES)]] * len(crew))
    slow, fast, stated, unread, half = ((one.load_mb_s, one.compare_m_s) for one in known)
    assert fast[0] > 2 * slow[0] > 0  # type: ignore[operator]
    assert fast[1] > 2 * slow[1] > 0  # type: ignore[operator]
    assert stated == (5.0, 7.0)
    assert half[0] == 3.0
    assert unread[0] == pytest.approx(np.mean([slow[0], fast[0], stated[0], half[0]]))  # type: ignore[arg-type]
    assert len(set(asked)) == len(asked)
    assert not left  # the one that can read none tried all there was


def test_a_worker_is_measured_with_batches_that_it_can_read(index: Path) -> None:
    files: Any = SimpleNamespace(files=IvfFiles(index))
    probes = np.ones(files.files.centroids.n_lists, np.int64)
    whole = [Span(number, 0, len(probes)) for number in range(BATCHES)]
    asked: dict[int, int] = {}

    def tried(pieces: Mapping[int, Piece]) -> list[Searched]:
        asked.update({i: piece.span.batch for i, piece in pieces.items()})
        return [Searched([piece.span.batch], {}, 0, 1.0, 1.0, 1.0) for piece in pieces.values()]

    windows = [[{7}], [range(5, 8)], [range(0), range(BATCHES)], [range(0)]]
    crew = [Worker(name) for name in "abcd"]
    known, _, left = measure_rates(files, probes, crew, whole, tried, windows)
    assert asked[0] == 7
    assert asked[1] in (5, 6)
    assert len({*asked.values()}) == len(asked) == 3
    assert not any(worker.measured for worker in known)  # the last has the mean of the others
    assert sum(span.last - span.first for span in left) < BATCHES * len(probes)


@pytest.mark.parametrize(("seconds", "probed"), [(1.0, False), (0.01, True)])
def test_a_piece_without_compares_or_of_an_instant_tells_no_rate_of_compares(
    index: Path, seconds: float, probed: bool
) -> None:
    files: Any = SimpleNamespace(files=IvfFiles(index))
    n_lists = files.files.centroids.n_lists
    whole = [Span(number, 0, n_lists) for number in range(BATCHES)]

    def tried(pieces: Mapping[int, Piece]) -> list[Searched]:
        return [Searched([piece.span.batch], {}, 0, seconds, 1.0, seconds) for piece in pieces.values()]

    crew = [Worker("new"), Worker("stated", 5.0, 7.0)]
    probes = np.full(n_lists, int(probed))
    (new, _), searched, _ = measure_rates(files, probes, crew, whole, tried, [[range(BATCHES)]] * 2)
    assert new.compare_m_s == 7.0
    assert (new.load_mb_s == 5.0) == probed  # a piece that took an instant tells nothing at all
    assert len(searched.batches) == 1


def test_an_index_of_one_batch_is_shared_by_workers_whose_rates_are_measured(tmp_path: Path) -> None:
    queries = make_vectors("uint8", 40, seed=9)
    path = build_lists(tmp_path / "ix", make_vectors("uint8"), batch_vectors=1 << 20)
    join(path, queries, tmp_path / "a.parquet")
    report = join(path, queries, tmp_path / "b.parquet", platform=[Worker("a"), Worker("b")])
    assert report.workers is not None
    assert sum(one.planned for one in report.workers) >= 1
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_cuts_at_edges_do_not_add_up_on_the_last_worker() -> None:
    entries, ones = np.arange(10_000), np.ones(10_000)
    costs = Costs(np.stack([entries // 999, entries % 999, entries % 999 + 1], axis=1), ones, ones, ones)
    planned = plan_split([Worker(f"w{i}", 1.0, 1.0, overlap=False) for i in range(10)], costs)
    assert planned[0].rows == 999  # the edge of the batch
    assert max(share.rows for share in planned) <= 1003


def test_batches_that_cannot_be_read_are_named_and_left_for_later(index: Path, tmp_path: Path) -> None:
    queries, path = make_vectors("uint8", 50, seed=9), tmp_path / "ix"
    shutil.copytree(index, path)
    aside = [path / f"batch-{number:06d}.imx" for number in (0, 1, 30)]  # rates are measured with the third
    for file in aside:
        file.rename(file.with_suffix(".aside"))
    crew = [Worker("a"), Worker("b", overlap=False)]
    with pytest.raises(CorruptFile, match=r"3 of 60 batches cannot be read:\n.*batch-000000\.imx"):
        join(path, queries, tmp_path / "r.parquet", platform=crew)
    for file in aside:
        file.with_suffix(".aside").rename(file)
    assert join(path, queries, tmp_path / "r.parquet", platform=crew).reused == BATCHES - 3
    join(index, queries, tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "r.parquet").read_bytes()


def test_a_plan_tells_what_each_worker_will_do(index: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "q.npy", make_vectors("uint8", 50, seed=9))
    (tmp_path / "p.toml").write_text(
        '[[worker]]\nname = "host"\nload_mb_s = 60\ncompare_m_s = 60\n'
        '[[worker]]\nname = "drive"\ncount = 4\nload_mb_s = 10\ncompare_m_s = 10\n'
    )
    arguments = (
        "join",
        tmp_path / "q.npy",
        index,
        "--nprobe",
        4,
        "--platform",
        tmp_path / "p.toml",
        "--plan",
    )
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)
    assert [row["worker"] for row in rows] == ["host", *(f"drive-{i}" for i in range(4))]
    assert sum(row["vectors"] for row in rows) == 6000
    assert [row["vectors"] for row in rows] == pytest.approx([3600, 600, 600, 600, 600], rel=0.1)
    assert max(row["seconds"] for row in rows) < 1.05 * min(row["seconds"] for row in rows)
    host = rows[0]
    assert f"host: {host['batches']} batches of {host['vectors']:,} vectors" in run(*arguments).output
    assert not list(tmp_path.glob("*.parquet"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"expected \[\[worker\]\] tables"),
        ("[[worker]]\nload_mb_s = 1", "worker 1: expected a table with a name"),
        ('[[worker]]\nname = "a"\nload = 1', "unknown key 'load'; choose from count, name, load_mb_s"),
        ('[[worker]]\nname = "a"\nload_mb_s = 0', r"\(a\): load_mb_s: expected a number above 0, got 0"),
        ('[[worker]]\nname = "a"\ncount = 1.5', "count: expected a whole number from 1 to 256"),
        ('[[worker]]\nname = "a"\nthrottle = true', "throttle needs the rates to slow it to"),
        ('[[worker]]\nname = "a"\ncount = 200\n[[worker]]\nname = "b"\ncount = 200', "400 workers"),
        ("[[worker", "expected a TOML file"),
    ],
)
def test_a_platform_that_cannot_be_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "p.toml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_platform(tmp_path / "p.toml")


def test_a_plan_without_rates_or_a_file_is_refused(index: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "q.npy", make_vectors("uint8", 5, seed=9))
    (tmp_path / "p.toml").write_text('[[worker]]\nname = "a"\n')
    base = ("join", tmp_path / "q.npy", index, "--nprobe", 4, "--plan")
    assert "name its file" in run(*base).output
    assert "worker a has no rates" in run(*base, "--platform", tmp_path / "p.toml").output


def test_a_platform_is_of_one_machine(index: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="its workers are of one machine"):
        join(
            index, make_vectors("uint8", 5), tmp_path / "r.parquet", executor="ray",
            platform=[replace(Worker("a"), threads=2)],
        )  # fmt: skip
