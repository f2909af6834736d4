"""The benchmark of hash tables: its judgement, tuning and fits, and measurements of a small real index."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexmill.formats.device import read_profile
from indexmill.jobs.bench.common import disk, process, record
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import Dataset, facts, read_bin, read_truth, write_bin, write_truth
from indexmill.jobs.bench.common.process import Usage
from indexmill.jobs.bench.lsh import blocks, devices, footprint, growth, kinds, sets, speed, storage, tables
from indexmill.jobs.bench.lsh import space as lsh_space
from indexmill.jobs.bench.lsh.__main__ import BENCHMARK
from indexmill.jobs.bench.lsh.quality import found_distances, judge, overall_ratios
from indexmill.jobs.bench.lsh.space import SURE, Searcher, Shape, Space, index_facts
from indexmill.jobs.bench.lsh.speed import compare
from indexmill.jobs.bench.lsh.tune import first_of, least
from indexmill.jobs.bench.papers.shelf import Shelf
from indexmill.jobs.devices.machine import REPOSITORY


def test_the_overall_ratio_counts_found_copies_as_one_and_skips_lost_ones() -> None:
    truth = np.array([[0.0, 2.0], [0.0, 2.0], [1.0, 2.0], [1.0, 2.0], [1.0, 2.0]])
    found = np.array([[0.0, 3.0], [2.0, 3.0], [1.0, 2.0], [1.5, np.inf], [np.inf, np.inf]])
    ratios = overall_ratios(found, truth)
    np.testing.assert_allclose(ratios, [(1 + 1.5) / 2, np.nan, 1.0, 1.5, np.nan])


def test_results_are_judged_by_distance_whatever_their_order() -> None:
    base = np.array([[0.0], [1.0], [3.0], [4.0]], np.float32)
    queries = np.array([[0.5], [3.5]], np.float32)
    rows = np.array([[1, 0], [3, -1]])
    np.testing.assert_allclose(found_distances(rows, base, queries), [[0.5, 0.5], [0.5, np.inf]])
    judged = judge(rows, base, queries, np.array([[0.25, 0.25], [0.25, 0.25]], np.float32))
    assert (judged["ratio"], judged["recall"], judged["short"], judged["skipped"]) == (1.0, 0.75, 1, 0)


def test_tuning_finds_the_least_number_to_two_percent_or_says_that_none_will_do() -> None:
    asked: list[int] = []

    def ask(number: int) -> dict[str, Any]:
        asked.append(number)
        return {"ratio": 1 + 50 / number}

    found, rows = least(ask, 1, 100_000)
    assert found is not None
    assert 1000 <= found <= 1020
    assert len(rows) == len(asked) < 20
    assert least(ask, 1, 900)[0] is None
    assert least(ask, 2000, 4000)[0] == 2000
    assert max(asked) < 4100  # large numbers take long
    assert first_of(lambda c: {"ratio": c, "us": 1.0}, [3.0, 1.04, 1.0])[0] == 1.04
    assert first_of(lambda c: {"ratio": c, "us": 9.0}, [3.0, 1.04, 1.0], most_us=8)[0] is None


def test_the_exponent_is_the_slope_and_its_interval_holds_it() -> None:
    sizes = [100, 200, 500, 1000]
    hard = np.random.default_rng(1).lognormal(0, 0.3, 40)
    noise = np.random.default_rng(2).lognormal(0, 0.02, (4, 40))
    times = (np.array(sizes, float) ** 0.6)[:, None] * hard * noise
    found = growth.exponent(sizes, times.tolist())
    assert found["value"] == pytest.approx(0.6, abs=0.02)
    assert found["low"] < found["value"] < found["high"]


def test_a_cold_search_has_so_few_queries_that_neither_pointers_nor_blocks_are_met_twice(
    tmp_path: Path,
) -> None:
    (tmp_path / "tables.imx").write_bytes(bytes(4096 * 5000))
    (tmp_path / "buckets.imx").write_bytes(bytes(4096 * 9000))
    assert storage.cold_queries(tmp_path, {"table_reads": 50.0, "block_reads": 50.0}) == 10
    assert storage.cold_queries(tmp_path, {"table_reads": 10.0, "block_reads": 100.0}) == 9
    assert storage.cold_queries(tmp_path, {"table_reads": 5e3, "block_reads": 5e3}) == 3


def test_methods_are_compared_within_a_round_and_the_first_round_does_not_count() -> None:
    speeds = {"memory": iter([1.0, *[20.0, 30.0, 40.0] * 2]), "srs": iter([9.0, *[2.0, 1.0, 4.0] * 2])}

    def asks(who: str) -> Any:
        return lambda: (lambda qps: {"qps": qps, "us": 1e6 / qps})(next(speeds[who]))

    found = compare({"memory": asks("memory"), "srs": asks("srs"), "qalsh": None})
    assert found["ratios"] == {"memory / srs": {"value": 10.0, "low": 10.0, "high": 30.0}}
    assert set(found["rows"]) == {"memory", "srs"}


def test_drawn_sets_are_the_same_each_time_and_differ_from_their_queries() -> None:
    for draw in (sets.uniform, sets.normal):
        base, queries = draw(200, 6, 0), draw(50, 6, 1)
        assert base.dtype == queries.dtype == np.float32
        np.testing.assert_array_equal(base, draw(200, 6, 0))
        assert not np.isin(queries[:, 0], base[:, 0]).any()


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Space:
    folder = tmp_path_factory.mktemp("lsh")
    random = np.random.default_rng(3)
    centres = random.integers(60, 190, (20, 16))
    drawn = np.clip(centres[random.integers(0, 20, 2100)] + random.normal(0, 12, (2100, 16)), 0, 255)
    data = Dataset(folder / "sift1m")
    data.folder.mkdir()
    write_bin(data.folder / "base.u8bin", drawn[:2000])
    write_bin(data.folder / "query.u8bin", drawn[2000:])
    write_truth(data)
    out = folder / "out"
    out.mkdir()
    run = Run("lsh", {"sift1m": data}, out, 2000)
    return Space(run, sets.Sets(folder, {"sift1m": data}))


def begun(space: Space) -> dict[str, Any]:
    """Return a record without parts."""
    found: dict[str, Any] = {}
    record.begin(found, space.run.results, "lsh", [facts("sift1m", space.data("sift1m"))], {})
    return found


@pytest.fixture(scope="module")
def measured(space: Space) -> dict[str, Any]:
    """Part *tables-sift1m* for real, of one index alone."""
    whole = tables.SHAPES
    tables.SHAPES = {SURE.name: SURE}
    try:
        return tables.measure("sift1m", space)
    finally:
        tables.SHAPES = whole


def test_tables_are_measured_on_an_index_that_is_built_once(space: Space, measured: dict[str, Any]) -> None:
    at = measured["indexes"]["sure"]["k1"]
    tuned = next(
        row for row in reversed(at["tuning_rows"]) if row["search"]["candidates"] == at["candidates"]
    )
    assert tuned["ratio"] <= 1.05
    memory, stored = at["memory"], at["storage"]
    for name in ("ratio", "recall", "distances", "table_reads", "blocks"):
        assert memory[name] == stored[name]
    assert stored["table_reads"] <= measured["indexes"]["sure"]["index"]["n_tables"] * stored["radii"]
    index = space.ensure("sift1m", space.data("sift1m"), SURE)
    written = (index / "manifest.json").stat().st_mtime_ns
    assert space.ensure("sift1m", space.data("sift1m"), SURE) == index
    assert (index / "manifest.json").stat().st_mtime_ns == written
    assert index_facts(index)["index_bytes"] + index_facts(index)["vector_bytes"] == sum(
        path.stat().st_size for path in index.glob("*.imx")
    )


def test_methods_of_a_process_agree_with_the_truth_when_they_measure_everything(space: Space) -> None:
    data = space.data("sift1m")
    with Searcher(data, space.out / "test.log") as searcher:
        srs = searcher.ask("srs", {}, {"most": 2000}, 10, "report", block=20)
        qalsh = searcher.ask("qalsh", {"ratio": 1.5}, {}, 1, "report", n_queries=10)
    assert (srs["ratio"], srs["recall"], srs["distances"]) == (1.0, 1.0, 2000.0)
    assert len(srs["block_us"]) == 3  # 50 queries
    assert qalsh["ratio"] < 1.2
    assert srs["opened"]["bytes"] > 0


def test_lists_are_searched_query_by_query_at_the_fastest_setting_with_the_recall(space: Space) -> None:
    found = kinds.searched_lists("sift1m", space)
    assert list(found) == ["0.90", "0.95"]
    for recall, one in found.items():
        assert one is not None
        assert one["recall"] > float(recall) - 0.05  # on the other half of the queries
        assert one["reads"] > 0
        assert one["read_bytes"] >= 4096 * one["reads"]
        assert "lists" in one["setting"]
    about = begun(space)
    about["parts"]["kinds"] = record.start_part() | {"sets": {"sift1m": {"ivf-search": found}}}
    assert "inverted lists, query by query" in BENCHMARK.render(about, "somewhere.json")


def test_every_table_can_be_written_also_where_the_ratio_was_not_reached(
    space: Space, measured: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rate = {"reads_per_s": 1000, "method": "fio", "depth": 1, "jobs": 1, "seconds": 1}
    monkeypatch.setattr(disk, "read_rate", lambda path, depth, seconds: rate)
    monkeypatch.setattr(storage, "request_time", lambda file: 1.0)
    monkeypatch.setattr(storage, "ROUNDS", 1)
    started = record.start_part()
    found = begun(space)
    found["parts"]["tables-sift1m"] = started | measured
    record.save(found, space.run.results)
    found["parts"]["storage"] = started | storage.measure(space)
    text = BENCHMARK.render(found, "somewhere.json")
    for head in (
        "### Targets",
        "### Indexes of hash tables",
        "### At overall ratio 1.05, k = 1",
        "### From the disk",
    ):
        assert head in text
    missing = copy.deepcopy(found)
    missing["parts"]["tables-sift1m"]["indexes"]["sure"]["k1"] = {
        "candidates": None, "tuning_rows": [{"ratio": 1.2}], "memory": None, "storage": None
    }  # fmt: skip
    del missing["parts"]["storage"]["k1"]
    assert "not reached (1.200)" in BENCHMARK.render(missing, "somewhere.json")


@pytest.mark.parametrize("name", ["sift1m", "text40k", "rand", "gauss"])
def test_the_kept_speeds_are_of_the_indexes_that_are_fastest(name: str) -> None:
    parts = Shelf().records["lsh"].found["parts"]
    tables = parts[f"tables-{name}"]["indexes"]
    for k in ("k1", "k100"):
        for where, shape in parts[f"speed-{name}"][k]["shapes"].items():
            qps = {other: one[k][where]["qps"] for other, one in tables.items() if one[k]["candidates"]}
            assert shape == max(qps, key=lambda other: qps[other]), "measure speed again after tables"


def test_every_further_part_has_a_table_of_what_it_records(space: Space) -> None:
    figure = {"value": 2.0, "low": 1.0, "high": 3.0}
    ours = {"ratio": 1.05, "distances": 9.0, "search": {"candidates": 7}}
    held = {"vectors": 5e6, "functions": 1e6, "bitmap": 5e5}
    rows = {
        "memory": [ours | {"opened": {"memory": held}}],
        "storage": [ours | {"opened": {"memory": held}}],
        "srs": [ours | {"opened": {"bytes": 48e6}}],
    }
    speed = {
        "rows": rows, "us": dict.fromkeys(rows, figure), "ratios": {"memory / srs": figure}, "shapes": {
            "memory": "base", "storage": "lean"}, "tuned": {
            "srs": {"best": {"most": 30, "ratio": None}}, "qalsh": {"best": None}},
    }  # fmt: skip
    counted = ours | {"table_reads": 3.0, "blocks": 4.0, "block_reads": 3.0, "mean_us": 5.0}
    grown = {"n": 100, "index": {"n_functions": 5, "n_tables": 6}, "lsh": counted, "srs": None}
    kind = {
        name: 1.0
        for name in ("recall", "qps", "reads", "read_bytes", "memory_bytes", "index_bytes", "build_s")
    }
    parts = {
        "speed-sift1m": {"k1": speed, "k100": speed},
        "simulated": {
            "profile": "xlfdd.json",
            "k1": {"rounds": [{"memory_us": 10.0, "device_us": 20.0}], "ratio": figure},
        },
        "synchronous": {
            "device": "cssd4",
            "k1": {"index": "lean", "rounds": [{"sync_us": 40.0, "async_us": 2.0}], "ratio": figure},
        },
        "blocks": {
            "n_vectors": 10, "k": 1, "hash_bits": 3, "rows": [counted | {"target": 1.05, "block_bytes": 512, "ios": 7}]
        },
        "growth": {"k": 1, "rows": [grown, grown | {"lsh": None}]},
        "kinds": {"sets": {"sift1m": {"lsh": {"0.90": kind | {"setting": "S 7"}, "0.95": None}}}},
    }  # fmt: skip
    found = begun(space)
    found["parts"] = {name: record.start_part() | part for name, part in parts.items()}
    text = BENCHMARK.render(found, "somewhere.json")
    for line in (
        "| sift1m | 1 | SRS | T' 30 | 2 (1 to 3) | 1.050 | 9 | 48.0 | 2.0x (1.0 to 3.0) |",
        "| sift1m | 1 | E2LSH on storage | lean, S 7 | 2 (1 to 3) | 1.050 | 9 | 1.5 |  |",
        "| sift1m | 1 | QALSH | not reached |  |  |  |  |  |",
        "| 1 | 10 | 20 | 2.000x (1.000 to 3.000) |",
        "| 1 | lean | 40 | 2 | 2.0x (1.0 to 3.0) |",
        "| 1.05 | 512 | 1.050 | 3.0 | 4.0 | 7.0 | 6.0 |",
        "| 100 | 5 | 6 | 7 | 1.050 | 7 | 9 | 5 | not reached |  |  |",
        "hash tables not reached, SRS not reached; of I/Os not reached",
        "| sift1m | 0.95 | hash tables | not reached |  |  |  |  |  |  |  |",
    ):
        assert line in text, line


def test_a_device_that_is_waited_for_takes_a_latency_a_read(
    space: Space, measured: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = begun(space)
    found["parts"]["tables-sift1m"] = record.start_part() | measured
    record.save(found, space.run.results)
    monkeypatch.setattr(storage, "SYNC_ROUNDS", 1)
    monkeypatch.setattr(storage, "SYNC_QUERIES", 10)
    (one,) = storage.synchronous(space)["k1"]["rounds"]
    reads = measured["indexes"]["sure"]["k1"]["storage"]["table_reads"]
    assert one["sync_us"] > 138.9 * reads
    assert one["async_us"] < one["sync_us"]


@pytest.fixture
def tuned(space: Space, measured: dict[str, Any]) -> dict[str, Any]:
    """A stored record of what parts need of earlier ones."""
    found = begun(space)
    found["parts"]["tables-sift1m"] = record.start_part() | measured
    srs = {"best": {"most": 300, "ratio": None}}
    found["parts"]["speed-sift1m"] = record.start_part() | {"k1": {"tuned": {"srs": srs}}}
    record.save(found, space.run.results)
    return found


def shown(space: Space, part: str, found: dict[str, Any]) -> str:
    """Return the tables of a record with one part."""
    told = begun(space)
    told["parts"][part] = record.start_part() | found
    return BENCHMARK.render(told, "somewhere.json")


@pytest.mark.usefixtures("tuned")
def test_drives_are_searched_beside_memory_and_srs(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "ROUNDS", 1)
    found = devices.measure(space)
    assert len(found["devices"]) == sum(len(drives) for _, drives in devices.INTERFACES.values())
    one, four = (found["devices"][f"cssd x {n}, io_uring"] for n in (1, 4))
    assert four["iops"] == 4 * one["iops"]
    for device in found["devices"].values():
        assert 0 < device["usage"]["value"] <= 1.1
        assert device["to_srs"]["value"] == pytest.approx(
            device["to_memory"]["value"] * found["memory_to_srs"]["value"]
        )
        assert 0 < device["io_wait_us"]["value"] <= device["latency_us"]["value"]
        assert device["to_same"]["value"] > 0
        assert device["ratio"] == found["ratios"]["same"] > 1
    assert set(found["gains"]) == {*devices.BY_THREADS, "memory", "srs"}
    assert set(found["threads_to_srs"]) == set(devices.BY_THREADS)
    assert found["memory_index"] == found["index"] == "sure"  # the only one here
    model = read_profile(space.out / "cssd-4-io_uring.json").model
    assert model.mb_per_s == pytest.approx(4 * 3938.46, rel=1e-4)
    assert "| cssd x 4, io_uring | 1,092,000 | 1.0 |" in shown(space, "devices", found)


@pytest.mark.usefixtures("tuned")
def test_reads_of_every_engine_are_timed(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "ROUNDS", 1)
    unregistered = "io_uring without registered buffers"
    tried = {name: devices.ENGINES[name] for name in (unregistered, "io_uring", "pread")}
    monkeypatch.setattr(devices, "ENGINES", tried)
    found = devices.interfaces(space)
    engines = found["engines"]
    assert set(engines) == {*tried, "mmap"}
    assert engines["io_uring"]["note"] is None
    assert "without registered buffers" in engines[unregistered]["note"]
    assert engines[unregistered]["reads"] == engines["pread"]["reads"] > 0
    assert engines["mmap"]["read_ns"]["value"] > 0
    assert engines[unregistered]["ratio"] == engines["pread"]["ratio"] > 1
    text = shown(space, "interfaces", found)
    assert "| pread |" in text
    assert "| mmap |" in text


@pytest.mark.usefixtures("tuned")
def test_the_baseline_of_drives_is_the_index_that_is_fastest_in_memory(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the one that the drives have."""
    asked: list[tuple[str, str]] = []

    def fastest(self: Space, name: str, k: int, where: str) -> tuple[Shape, int]:
        return SURE, {"memory": 500, "storage": 400}[where]

    def ask(
        self: Searcher, method: str, opened: Any, search: Any, *given: Any, **others: Any
    ) -> dict[str, Any]:
        asked.append((str(opened.get("engine", method)), str(search.get("candidates"))))
        costs = dict.fromkeys(("us", "ratio", "table_reads", "block_reads", "latency_us", "io_wait_us"), 2.0)
        return costs | {"us": 1.0 if search.get("candidates") == 500 else 2.0}

    monkeypatch.setattr(Space, "fastest", fastest)
    monkeypatch.setattr(Searcher, "ask", ask)
    monkeypatch.setattr(devices, "ROUNDS", 1)
    found = devices.measure(space)
    assert (found["memory_us"]["value"], found["same_us"]["value"]) == (1.0, 2.0)
    for device in found["devices"].values():
        assert (device["to_memory"]["value"], device["to_same"]["value"]) == (0.5, 1.0)
    assert {candidates for engine, candidates in asked if engine.startswith("simulated:")} == {"400"}
    assert {candidates for engine, candidates in asked if engine == "memory"} == {"400", "500"}


@pytest.mark.usefixtures("tuned")
def test_the_work_of_a_search_is_imitated_with_a_footprint_and_without(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(footprint, "READS", 1000)
    found = footprint.measure(space)
    assert found["distances_a_block"] >= 1
    assert found["ratio"]["value"] > 0
    assert "### Without the footprint of tables" in shown(space, "footprint", found)


def test_imitated_searches_measure_the_vectors_that_blocks_and_places_name() -> None:
    buckets = np.zeros((2, footprint.BLOCK_BYTES), np.uint8)
    vectors = np.array([[0, 0], [3, 4], [0, 1]], np.uint8)
    rows, places = np.array([[1, 2], [0, 1]], np.uint32), np.array([0, 1], np.uint32)
    assert footprint.imitate(buckets, vectors, places, rows) == 25 + 1 + 0 + 25
    buckets[1, 0] = 1
    assert footprint.imitate(buckets, vectors, places, rows) == 25 + 1 + 25 + 1


def test_srs_is_timed_at_the_accuracies_whose_reads_were_counted(space: Space) -> None:
    found = begun(space)
    counted = [
        {
            "target": ratio, "block_bytes": size, "ios": 50.0, "ratio": ratio, "table_reads": 1.0, "blocks": 1.0,
            "block_reads": 1.0,
        }
        for ratio in blocks.RATIOS for size in (128, 512)
    ]  # fmt: skip
    found["parts"]["blocks"] = record.start_part() | {
        "n_vectors": 2000,
        "k": 1,
        "hash_bits": 3,
        "rows": counted,
    }
    record.save(found, space.run.results)
    told = blocks.srs(space)
    assert [row["target"] for row in told["rows"]] == list(blocks.RATIOS)
    for row in told["rows"]:
        assert row["reads_per_s"]["128"] == row["reads_per_s"]["512"]
        assert row["reads_per_s"]["128"] == pytest.approx(5e7 / row["us"]["value"])
    assert "### Reads a second that the speed of SRS takes" in shown(space, "srs-accuracy", told)


def test_an_index_that_takes_the_place_of_another_is_opened_anew(space: Space) -> None:
    data = space.data("sift1m")
    with Searcher(data, space.out / "test.log") as searcher:
        tables = []
        for n_tables in (2, 5):
            index = space.ensure("replaced", data, Shape("one", {"n_tables": n_tables}))
            opened = {"index": str(index), "engine": "memory"}
            tables.append(
                searcher.ask("lsh", opened, {"candidates": 1}, 1, "report")["opened"]["memory"]["tables"]
            )
            shutil.rmtree(index)
    assert tables[0] < tables[1]


@pytest.fixture
def small_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Growth over two small sizes, whose S is not tuned: so few vectors hardly reach the ratio."""
    monkeypatch.setattr(growth, "SIZES", (500_000, 1_000_000))
    monkeypatch.setattr(growth, "QUERIES", 100)
    monkeypatch.setattr(growth, "ROUNDS", 1)
    monkeypatch.setattr(growth, "HASH_SEEDS", (1, 2))
    monkeypatch.setattr(growth, "tune_candidates", lambda ask, n, k, most: {"candidates": n // 8})


@pytest.mark.usefixtures("small_growth")
def test_growth_on_storage_has_few_tables_beside_it_and_several_draws_of_the_hash_functions(
    space: Space,
) -> None:
    found = growth.on_storage(space)
    assert [row["n"] for row in found["rows"]] == [1000, 2000]
    assert all(row["small_tables"] == 2 for row in found["rows"])
    assert found["hash_seeds"] == [1, 2]
    for row in found["rows"]:
        for name in ("memory", "storage", "disk", "small"):
            seeds = [one["mean_us"] for one in row[name]["seeds"]]
            assert len(seeds) == 2
            assert row[name]["mean_us"] == pytest.approx(sum(seeds) / 2)
        assert len({one["entries"] for one in row["memory"]["seeds"]}) == 2  # other hash functions
    by_seed = found["storage_by_seed"]
    assert min(by_seed) <= found["storage_exponent"]["value"] <= max(by_seed)
    assert not list(space.out.glob("grow-*.lsh"))
    assert "### Growth on storage, and with few tables" in shown(space, "growth-storage", found)


@pytest.mark.usefixtures("small_growth")
def test_a_size_counts_only_where_all_draws_reach_the_ratio(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned = iter(
        [10, 10, None, None, 10, 10, 10, 10]
    )  # base and few tables of a draw, in turns; a draw twice

    def tune(ask: Any, n: int, k: int, most: int | None) -> dict[str, Any]:
        return {"candidates": next(tuned)}

    monkeypatch.setattr(growth, "tune_candidates", tune)
    monkeypatch.setattr(growth, "SMALL_GAMMAS", (0.1,))
    found = growth.on_storage(space)
    first, second = found["rows"]
    names = ("memory", "storage", "disk", "small")
    assert not any(first[name] for name in names)
    assert all(len(second[name]["seeds"]) == 2 for name in names)
    assert not any(name.endswith("_exponent") for name in found)
    text = shown(space, "growth-storage", found)
    assert "| 1,000 | not reached | not reached | not reached | 2 | not reached |" in text
    assert "memory not reached, storage not reached" in text


def test_qalsh_is_left_out_where_it_takes_minutes(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "WITHOUT_QALSH", ("sift1m",))
    monkeypatch.setattr(speed, "KS", (1,))
    monkeypatch.setattr(speed, "ROUNDS", 1)
    monkeypatch.setattr(Space, "fastest", lambda *given: None)
    found = speed.measure("sift1m", space)
    assert set(found["k1"]["tuned"]) == set(found["k1"]["rows"]) == {"srs"}
    text = shown(space, "speed-sift1m", found | {"k100": found["k1"]})
    assert "| sift1m | 1 | SRS |" in text
    assert "QALSH | not reached" not in text


def test_qalsh_is_searched_in_the_first_vectors_of_rand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run("lsh", {}, tmp_path, 2000)
    small = Space(run, sets.make_sets(run))
    rand, first = small.data("rand"), small.data("rand100k")
    assert first.shape() == (200, 100)
    np.testing.assert_array_equal(read_bin(first.base), read_bin(rand.base)[:200])
    np.testing.assert_array_equal(read_bin(first.query), read_bin(rand.query))
    query, nearest = np.array(read_bin(first.query)[0]), np.array(read_bin(first.base))
    assert read_truth(first.truth)[1][0, 0] == pytest.approx(
        ((nearest - query) ** 2).sum(axis=1).min(), rel=1e-5
    )
    monkeypatch.setattr(speed, "KS", (1,))
    monkeypatch.setattr(speed, "ROUNDS", 1)
    monkeypatch.setattr(Space, "fastest", lambda *given: None)
    part = BENCHMARK.parts["speed-rand100k"](small)
    assert set(part["k1"]["tuned"]) == set(part["k1"]["rows"]) == {"srs", "qalsh"}
    assert part["k1"]["rows"]["qalsh"][0]["opened"]["ratio"] == part["k1"]["tuned"]["qalsh"]["best"]
    told: dict[str, Any] = {}
    record.begin(told, run.results, "lsh", [facts(name, small.data(name)) for name in ("rand", "gauss")], {})
    told["parts"]["speed-rand100k"] = record.start_part() | part | {"k100": part["k1"]}
    text = BENCHMARK.render(told, "somewhere.json")
    assert "| rand100k | 1 | QALSH | c " in text
    assert "the first 100,000 vectors of rand" in text


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands of builds, which leave an index that tells its seconds and nothing else."""
    begun: list[list[str]] = []

    def build(command: list[str], log: Any) -> Usage:
        index = Path(value(command, "--out"))
        index.mkdir(exist_ok=True)
        (index / "run.json").write_text('{"seconds": {"hash": 1.0}}')
        begun.append(command)
        return Usage(2.0, 3.0, 4)

    monkeypatch.setattr(process, "run_measured", build)
    return begun


def value(command: list[str], flag: str) -> str:
    return command[command.index(flag) + 1]


def test_an_index_is_built_again_when_it_is_asked_for_otherwise(
    space: Space, commands: list[list[str]]
) -> None:
    data = space.data("sift1m")
    for n_tables in (2, 2, 3):
        index = space.ensure("sift1m", data, Shape("other", {"n_tables": n_tables}))
    assert [value(command, "--n-tables") for command in commands] == ["2", "3"]
    assert lsh_space.build_cost(index)["stage_s"] == {"hash": 1.0}


def test_an_index_is_given_the_candidates_of_the_formula_and_one_without_them_is_built_again(
    space: Space, commands: list[list[str]]
) -> None:
    """Where they are given, the radii are those of the formula too."""
    shape = Shape("given", {"gamma": 0.45})
    data, cost = space.data("sift1m"), space.out / "sift1m-given.build.json"
    space.ensure("sift1m", data, shape)
    told = json.loads(cost.read_text())
    del told["asked"]["options"]["candidates"]
    cost.write_text(json.dumps(told))
    space.ensure("sift1m", data, shape)
    space.ensure("sift1m", data, shape)
    space.ensure("sift1m", data, Shape("given", {"gamma": 0.45, "candidates": 77}))
    of_formula = str(lsh_space.formula_candidates(2000, shape.options))
    assert [value(command, "--candidates") for command in commands] == [of_formula, of_formula, "77"]


def test_candidates_of_the_formula_are_those_of_the_record() -> None:
    # As indexes of a million vectors were built before a build chose others.
    found = {
        shape.name: lsh_space.formula_candidates(1_000_000, shape.options)
        for shape in lsh_space.SHAPES.values()
    }
    assert found == {"base": 5679, "probed": 5054, "lean": 9193, "sure": 21872}


@pytest.mark.usefixtures("tuned")
def test_an_index_with_other_tables_than_were_measured_is_not_searched(
    space: Space, tuned: dict[str, Any]
) -> None:
    assert space.measured("sift1m", SURE) == space.out / "sift1m-sure.lsh"
    other = copy.deepcopy(tuned)
    other["parts"]["tables-sift1m"]["indexes"]["sure"]["index"]["radii"][0] *= 1.01
    record.save(other, space.run.results)
    with pytest.raises(RuntimeError, match="run it again first"):
        space.measured("sift1m", SURE)


def test_parts_of_the_benchmark_are_named_by_the_page() -> None:
    page = (REPOSITORY / "docs" / "benchmarks.md").read_text()
    for part in BENCHMARK.parts:
        assert f"`{part}`" in page or f"`{part.split('-')[0]}-SET`" in page
