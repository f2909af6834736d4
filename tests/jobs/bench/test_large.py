"""The benchmark of tens of millions with made-up builds: its ratios, targets and tables."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import indexmill
from indexmill.formats.errors import BudgetError, InputError
from indexmill.formats.ivf.index import IvfFiles
from indexmill.jobs.bench.common import generate, record
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.cgroup import NoLimits, memory_limit
from indexmill.jobs.bench.common.dataset import Dataset, K, read_bin, read_truth, write_bin, write_truth
from indexmill.jobs.bench.common.parameters import SEED
from indexmill.jobs.bench.common.process import Failed
from indexmill.jobs.bench.large import builds, joins, steps
from indexmill.jobs.bench.large.__main__ import BENCHMARK, TARGETS
from indexmill.jobs.bench.large.grown import appended_set
from indexmill.jobs.bench.large.joins_child import joined, search_files
from indexmill.jobs.bench.large.refused import reason_of
from indexmill.jobs.bench.programs import plan
from indexmill.jobs.bench.programs.faiss import load_faiss, write_batches
from indexmill.pipeline.kinds.common.memory import check_need
from indexmill.pipeline.mill.disk_space import check_free


def built(n: int, seconds: float, pages: float, build_id: str = "a", **others: Any) -> dict[str, Any]:
    at = {"value": pages, "low": pages, "high": pages}
    return {
        "commit": "c" * 40, "started": "2026-01-01T00:00:00", "load_before": 0.0,
        "n": n, "memory": "8GiB", "parameters": {"builder": "partition"}, "build_id": build_id,
        "wall_s": seconds + 1, "index_s": seconds, "order_s": 2.0, "cut": builds.WHOLE,
        "stage_s": {"build": seconds, "order": 2.0}, "planned_stage_s": {"build": seconds - 1},
        "peak_bytes": 100, "scratch_bytes": 100, "to_budget": 0.5,
        "planned": dict.fromkeys(plan.FIGURES, 90), "error": dict.fromkeys(plan.FIGURES, -0.1),
        "pages_read": {"0.90": at, "0.95": at, "0.98": None}, **others,
    }  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run of which some parts were measured."""
    run = Run("large", {}, tmp_path)
    parts = {
        "n1-8GiB": built(10**6, 10, 20),
        "n10-8GiB": built(10**7, 100, 30),
        "n10-2GiB": built(10**7, 120, 30, "b"),
        "n10-whole": built(10**7, 80, 30, "b"),
        "n1-diskann": built(10**6, 200, 40, call_s=1.0),
        "n10-diskann": built(10**7, 999, 80, call_s=1.0),
    }
    machine = {"cpu": "a", "cores": 1, "memory_bytes": 2**30, "kernel": "k"}
    found = {
        "benchmark": "large",
        "format": record.FORMAT,
        "data": [],
        "machine": machine,
        "versions": {"python": "3", "peer": []},
    }
    record.save(found | {"parts": parts}, run.results)
    return run


def test_builds_are_compared_with_those_that_were_measured(run: Run) -> None:
    assert builds.ratios(run) == {
        "to_diskann": pytest.approx(0.1),
        "growth": {
            "1 to 10": {
                "from": "n1-8GiB",
                "to": "n10-8GiB",
                "times": pytest.approx(10.0),
                "exponent": pytest.approx(1.0),
            },
            "1 to 10, both in one piece": {
                "from": "n1-8GiB",
                "to": "n10-whole",
                "times": pytest.approx(8.0),
                "exponent": pytest.approx(0.903, abs=1e-3),
            },
            **{
                name: {"from": few, "to": many, "times": None, "exponent": None}
                for name, (few, many) in builds.GROWTHS.items()
                if not name.startswith("1 to 10")
            },
        },
        "within": pytest.approx(1.5),
        "same_bytes": 1.0,
        "reads": {"indexmill": pytest.approx(1.5), "diskann": 2.0, "ratio": pytest.approx(0.75)},
    }


def test_other_bytes_in_less_memory_are_told(run: Run) -> None:
    found = record.load(run.results)
    found["parts"]["n10-2GiB"]["build_id"] = "c"
    record.save(found, run.results)
    assert builds.ratios(run)["same_bytes"] == 0.0


def test_the_page_shows_what_was_measured_and_judges_it(run: Run) -> None:
    found = record.load(run.results)
    found["parts"]["ratios"] = builds.ratios(run) | record.start_part()
    figures = dict.fromkeys(("wall_s", "cpu_s", "peak_bytes", "scratch_bytes", "written_bytes"), 1)
    reads = {name: found["parts"]["n10-8GiB"]["pages_read"]["0.95"] for name in ("0.90", "0.95", "0.98")}
    rows = [
        {"step": "verify", **figures, "stage_s": {}},
        {"step": "layout star", **figures, "stage_s": {"order": 3.0}, "pages_read": reads},
        {
            "step": "append",
            **figures,
            "stage_s": {"insert": 4.0, "emit": 1.0},
            "planned": dict.fromkeys(plan.FIGURES, 2**30),
            "planned_stage_s": {"insert": 5.0},
            "error": dict.fromkeys(plan.FIGURES, 0.1),
            "pages_read": reads,
        },
        {"step": "layout agglomerative", "refused": "the order takes 3,000 MiB"},
    ]
    steps_of = {"of": "n10-8GiB", "n": 10**7, "memory": "8GiB", "rows": rows}
    found["parts"]["n10-8GiB-steps"] = steps_of | record.start_part()
    found["parts"]["n30-4GiB"] = record.start_part() | {
        "n": 30 * 10**6, "memory": "4GiB", "parameters": {"builder": "partition"},
        "refused": "needs 79.5 GB of disk, 36.0 free",
    }  # fmt: skip
    found["parts"]["n30-ivf"] = built(30 * 10**6, 300, 0) | {
        "cut": None, "nprobe": {"0.90": 20.0, "0.95": 31.5, "0.98": None},
        "bytes_read": {"0.90": {"value": 2e6, "low": None, "high": None}, "0.95": None, "0.98": None},
    }  # fmt: skip
    del found["parts"]["n30-ivf"]["pages_read"]
    text = BENCHMARK.render(found, "record.json")
    assert "| 10M, seconds of the index in 8 GiB, partition / DiskANN | 0.100 | <= 0.12 | x | yes |" in text
    assert "| 10M to 30M: the same | not reached |" in text
    assert "| plan of memory, n10-2GiB, off by at most | 0.100 | <= 0.15 |  | yes |" in text
    assert "| 30M within 4 GiB: peak / budget | not reached |" in text
    assert "| plan of memory, n30-4GiB, off by at most | not reached |" in text
    assert "n16-4GiB" not in text, "what was not measured is not judged"
    assert (
        "| `n30-4GiB` | 30,000,000 | 4GiB | builder partition | refused: needs 79.5 GB of disk, 36.0 free |"
        in text
    )
    assert "| `n10-8GiB` | build 100.0 (99.0), order 2.0 |" in text
    assert "| `n30-ivf` | 2.00 | 20.0 | not reached | 31.5 | not reached | not reached |" in text
    assert (
        "| 1 to 10, both in one piece | `n1-8GiB`, 8GiB, one piece | `n10-whole`, 8GiB, one piece | 8.00x | 0.903 |"
        in text
    )
    assert "| verify | 1.0 | 1.0 |" in text
    assert "| append | 1.0 (1,073,741,824.0) | 1.0 | 0.00 (1.00) |" in text
    assert "| 30.0 | 30.0 | 30.0 | insert 4.0 (5.0), emit 1.0 |" in text
    assert "| layout agglomerative: refused, the order takes 3,000 MiB |" in text
    assert {target.part for target in TARGETS} <= {name.replace("-", "_") for name in BENCHMARK.parts}


def test_a_build_that_was_refused_is_not_compared(run: Run) -> None:
    found = record.load(run.results)
    found["parts"]["n10-8GiB"] = {"n": 10**7, "refused": "needs 30.0 GB of disk, 2.0 free"}
    record.save(found, run.results)
    assert builds.ratios(run)["growth"]["1 to 10"]["exponent"] is None


def test_a_graph_that_is_cut_in_another_way_is_told() -> None:
    in_regions = {"stage_s": {"leaves": 1.0}, "shards": 1}
    assert builds.cut_of(in_regions) == builds.REGIONS
    assert builds.cut_of({"stage_s": {"build": 1.0}, "shards": 1}) == builds.WHOLE
    assert builds.cut_of({"stage_s": {"build": 1.0}, "shards": 3}) == "3 shards"
    whole = builds.BUILDS["n10-whole"]
    builds.check_cut("n10-whole", whole, builds.WHOLE)
    with pytest.raises(RuntimeError, match="n10-whole: in 14GiB the graph is built in regions, expected one"):
        builds.check_cut("n10-whole", whole, builds.cut_of(in_regions))
    builds.check_cut("n1-8GiB", builds.BUILDS["n1-8GiB"], builds.REGIONS)


def refused(check: Callable[[], object]) -> Failed:
    """A plan that a check of its budget refuses, with what the command says then."""
    with pytest.raises(BudgetError) as raised:
        check()
    return Failed(raised.value.exit_code, ["plan"], f"loading\nerror: {raised.value}")


@pytest.fixture
def without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Failed:
    """A plan that is refused because it needs 79.5 GB of disk where 36 are free."""
    usage = shutil.disk_usage(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=36_000_000_000))
        return refused(lambda: check_free(tmp_path / "x.work", 79_512_000_000))


def test_what_does_not_fit_is_told_without_a_path_and_other_failures_are_raised(
    tmp_path: Path, without_room: Failed
) -> None:
    assert reason_of(without_room, tmp_path) == "needs 79.5 GB of disk, 36.0 free"
    without_memory = refused(lambda: check_need(f"{tmp_path}/x takes", 9000, 8000))
    assert reason_of(without_memory, tmp_path) == (
        "memory: x takes 9,000 bytes beside the page cache, and the budget is 8,000"
    )
    with pytest.raises(Failed, match="exit code 3 of: plan"):
        reason_of(Failed(InputError.exit_code, ["plan"], without_room.said), tmp_path)


def test_a_plan_without_room_is_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_room: Failed
) -> None:
    def refuse(job: Path) -> None:
        raise without_room

    monkeypatch.setattr(plan, "load_kernels", lambda job, folder: None)
    monkeypatch.setattr(plan, "of_job", refuse)
    part = builds.measure(Run("large", {}, tmp_path, rows=50), "n1-8GiB")
    assert (part["n"], part["refused"]) == (50, "needs 79.5 GB of disk, 36.0 free")


def test_the_truth_of_a_grown_set_is_that_of_both(tmp_path: Path) -> None:
    data = builds.given(Run("large", {}, tmp_path, 300), 1)
    generate.write(tmp_path / "added.u8bin", generate.Manifold(SEED), generate.ADDED, 40)
    both = appended_set(data, tmp_path / "added.u8bin", tmp_path / "both")
    base, more = read_bin(data.base), read_bin(tmp_path / "added.u8bin")
    assert not (base[:40] == more).all(axis=1).any()
    assert np.array_equal(read_bin(both.base), np.concatenate([base, more]))
    expected = Dataset(tmp_path / "expected")
    expected.folder.mkdir()
    write_bin(expected.folder / "base.u8bin", read_bin(both.base))
    write_bin(expected.folder / "query.u8bin", read_bin(data.query))
    write_truth(expected)
    for one, other in zip(read_truth(both.truth), read_truth(expected.truth), strict=True):
        assert np.array_equal(one, other)


def test_a_trial_of_lists_with_their_steps_runs_to_its_end(tmp_path: Path) -> None:
    run = Run("large", {}, tmp_path, rows=500)
    assert BENCHMARK.run(run, ["n10-ivf", "n10-ivf-steps"]) == []
    found = record.load(run.results)["parts"]
    lists, rows = found["n10-ivf"], found["n10-ivf-steps"]["rows"]
    assert lists["tuning_rows"][-1]["recall"] > 0.9
    assert {"bytes_read", "nprobe"} <= set(lists)
    assert set(lists["stage_s"]) <= set(lists["planned_stage_s"]) | {"publish"}
    assert [row["step"] for row in rows] == ["verify", "append", "export faiss-ivf"]
    assert not any("refused" in row for row in rows)
    appended = rows[1]
    assert appended["tuning_rows"][-1]["recall"] > 0.9
    assert {"planned", "planned_stage_s", "error"} <= set(appended)
    assert appended["stage_s"]
    assert not (tmp_path / "indexmill-n10-ivf").exists()
    with pytest.raises(FileNotFoundError, match="--parts n10-ivf,n10-ivf-steps"):
        steps.measure(run, "n10-ivf")
    assert "| append |" in BENCHMARK.render(record.load(run.results), "record.json")


def test_a_trial_takes_so_many_vectors_for_each_million(tmp_path: Path) -> None:
    data = builds.given(Run("large", {}, tmp_path, rows=50), 3)
    assert data.shape() == (150, 128)
    assert (read_bin(data.base)[:50] == read_bin(builds.given(Run("large", {}, tmp_path, 50), 1).base)).all()


def test_lists_grow_with_the_vectors() -> None:
    assert [joins.lists_of(n) for n in (100, 3_000_000, 30_000_000)] == [16, 1024, 8192]


def test_the_first_queries_of_a_join_are_those_whose_truth_is_known(tmp_path: Path) -> None:
    known = read_bin(builds.given(Run("large", {}, tmp_path, 50), 1).query)
    queries = read_bin(joins.asked(tmp_path, 5000))
    assert queries.shape == (5000, 128)
    assert np.array_equal(queries[: len(known)], known)


@pytest.mark.parametrize("side", joins.PEERS)
def test_faiss_finds_in_its_files_what_a_join_finds(tmp_path: Path, side: str) -> None:
    data = builds.given(Run("large", {}, tmp_path, 300), 3)
    index = tmp_path / "lists"
    indexmill.build(str(data.base), index, kind="ivf", lists=16, batch_vectors=200, workers=1)
    write_batches(
        load_faiss(), IvfFiles(index), tmp_path / side, joins.PEERS[side], as_floats=side == "faiss-floats"
    )
    files = sorted((tmp_path / side).iterdir())
    assert len(files) == 5 * joins.PEERS[side]
    queries = np.array(read_bin(data.query)[:50])
    found, wanted = search_files(files, queries, 4), joined(queries, index, tmp_path, 4)
    base = read_bin(data.base).astype(np.float64)

    def distances(ids: Any) -> Any:
        return ((base[ids] - queries[:, None]) ** 2).sum(axis=2)

    assert (found >= 0).all()
    same = distances(found) == distances(wanted)
    assert same.all(axis=1).mean() > 0.95, (
        "lists differ where float32 rounding makes faiss take a farther one"
    )


def test_the_least_lists_with_the_recall_are_probed(tmp_path: Path) -> None:
    data = builds.given(Run("large", {}, tmp_path, 300), 1)
    truth = np.argsort(
        ((read_bin(data.query)[:1000, None].astype(np.int64) - read_bin(data.base)[:300]) ** 2).sum(axis=2),
        axis=1,
    )[:, :K]
    asked = []

    def join(probes: int, queries: Any) -> Any:
        asked.append(probes)
        found = truth.copy()
        found[:, max(1, K - 11 + probes) :] = -1
        return found

    assert joins.least_nprobe(join, data, 64) == 12, "of a grid that has no 11"
    assert asked == [probes for probes in joins.PROBES if probes <= 12]
    assert joins.least_nprobe(join, data, 8) == 8


def test_a_trial_of_a_join_runs_to_its_end(tmp_path: Path) -> None:
    try:
        with memory_limit(1 << 30):
            pass
    except NoLimits as error:
        pytest.skip(str(error))
    part = joins.measure(Run("large", {}, tmp_path, rows=300), "n3-join")
    assert set(part["qps"]) == set(part["recall"]) == set(joins.SIDES)
    assert (part["joined"], part["queries"]) == (900, 2000)
    assert part["recall"]["join"] > 0.9
    assert all(abs(one - part["recall"]["join"]) < 0.02 for one in part["recall"].values())
    assert part["to_faiss"] == part["qps"]["join"] / max(
        part["qps"]["faiss-bytes"], part["qps"]["faiss-floats"]
    )
    assert all(0 < peak <= part["limit_bytes"] for peak in part["peak_bytes"].values())


def test_the_page_shows_a_join_beside_the_faster_of_faiss(run: Run) -> None:
    found = record.load(run.results)
    seconds = {"join": 50.0, "faiss-bytes": 125.0, "faiss-floats": 200.0}
    found["parts"]["n30-join"] = record.start_part() | {
        "joined": 30 * 10**6, "queries": 10**5, "k": 10, "memory": "2GiB", "limit_bytes": 2**31, "lists": 8192,
        "batches": 16, "sample_vectors": 327680, "nprobe": 40, "threads": 2, "recall": dict.fromkeys(seconds, 0.951),
        "peak_bytes": dict.fromkeys(seconds, 2**30),
        "qps": {side: 10**5 / one for side, one in seconds.items()}, "to_faiss": 2.5,
    }  # fmt: skip
    text = BENCHMARK.render(found, "record.json")
    assert "queries a second / faiss batch by batch | 2.500 | >= 2 | x | yes |" in text
    assert (
        "100,000 queries joined with 30,000,000 vectors in 2GiB: 8,192 lists in 16 batches, trained on 327,680 "
        "vectors, nprobe 40" in text
    )
    assert "| join | 50.0 | 2,000 | 1.00x | 0.951 | 1.00 |" in text
    assert "| faiss batch by batch, bytes | 125.0 | 800 | 2.50x | 0.951 | 1.00 |" in text
