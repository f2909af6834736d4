"""The benchmark of the partition builder: a part that is measured small, its peers' graphs, and its tables."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from indexmill.jobs.bench.common import calibration, environment, record
from indexmill.jobs.bench.common.dataset import Dataset, write_bin, write_truth
from indexmill.jobs.bench.common.process import Usage
from indexmill.jobs.bench.partition import __main__ as partition
from indexmill.jobs.bench.partition import builds, judge, leaves, pq
from indexmill.jobs.bench.programs import graph_quality, peers
from indexmill.jobs.cli.main import app

PART = {"started": "2026-11-21T00:00:00+00:00", "commit": "0", "load_before": 0.1}
RECORD: dict[str, Any] = {
    "machine": {"cpu": "x", "cores": 2, "memory_bytes": 1, "kernel": "k"},
    "versions": {"peer": []},
    "data": [{"name": "d", "n_vectors": 1, "dim": 1, "dtype": "uint8"}],
}


#: Output of the command `plan`.
PLAN = {"peak_memory_bytes": 9 << 20, "stages": {"build": {"memory_bytes": 4 << 20}}}


def run_here(command: Sequence[object], log: Path) -> Usage:
    """Run an indexmill command in this process, which has its kernels loaded; plans are made up."""
    began = time.perf_counter()
    words = [str(part) for part in command]
    words = words[words.index("indexmill.jobs.cli.main") + 1 :]
    if words[0] == "plan":
        log.write_text(json.dumps(PLAN))
    else:
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
    return Usage(time.perf_counter() - began, 1.0, 1)


def with_parts(**parts: dict[str, Any]) -> dict[str, Any]:
    """The newest record, with further parts."""
    kept = record.load(sorted(record.RECORDS.glob("*-partition.json"))[-1])
    return kept | {"parts": kept["parts"] | {name: PART | part for name, part in parts.items()}}


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> builds.Builds:
    rng = np.random.default_rng(1)
    write_bin(tmp_path / "base.u8bin", rng.integers(0, 256, (1500, 24), dtype=np.uint8))
    write_bin(tmp_path / "query.u8bin", rng.integers(0, 256, (50, 24), dtype=np.uint8))
    write_truth(Dataset(tmp_path))
    monkeypatch.setattr(builds, "WARM_UP_ROWS", 300)
    monkeypatch.setattr(builds, "run_measured", run_here)
    monkeypatch.setattr(calibration, "ROWS", 500)
    return builds.Builds({"sift1m": Dataset(tmp_path)}, tmp_path, 2)


def test_builders_are_measured_in_turns_and_all_graphs_by_one_search(
    space: builds.Builds, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(program: str, data: Dataset, out: Path, *shape: int) -> tuple[dict[str, Any], Any]:
        """Give the graph of ours for one that took a second."""
        graph = graph_quality.read_ours(space.index("vamana"))
        return {"graph_s": 1.0, "build_s": 1.0, "index_s": 2.0, "cpu_s": 1.0, "peak_bytes": 1}, graph

    monkeypatch.setattr(peers, "build", build)
    monkeypatch.setattr(peers, "make_environments", lambda out: None)
    found = partition.case(space, "sift1m", 12, 30)
    assert [len(found[one]["rounds"]["graph_s"]) for one in builds.BUILDERS] == [2, 1]
    for side in (*builds.BUILDERS, *peers.PROGRAMS):
        one = found[side]
        assert 0 < one["graph_s"] < one["index_s"]
        assert one["rows"][-1]["recall"] > 0.99 > one["rows"][0]["recall"]
        assert one["distances"]["0.95"] < one["distances"]["0.99"]
        assert len(one["calibration_s"]) == 2
    ratios = found["ratios"]["partition"]
    assert ratios["hnswlib"]["graph"] == found["partition"]["graph_s"]
    assert 0.7 < ratios["vamana"]["distances"]["0.95"] < 1.3
    assert ratios["svs"]["distances"] == ratios["vamana"]["distances"]
    assert found["partition"]["memory"]["graph_bytes"] == 4 * 12 * 1500
    grown = {
        "rows": [{"n": 10, "graph_s": 1.0, "index_s": 2.0, "peak_bytes": 1}],
        "graph_exponent": 1.0,
        "index_exponent": 1.2,
    }
    parts = {"sift1m-R64": PART | found, "growth": PART | grown}
    text = partition.BENCHMARK.render(RECORD | {"parts": parts}, "r.json")
    assert "### sift1m, R = 12, L = 30" in text
    assert "| partition / SVS, graph in memory |" in text
    assert "| sift1m-R64: seconds of the graph, partition / diskann | " in text
    assert "| growth of the index's seconds, n to the power of | 1.200 | <= 1.1 |  | **no** |" in text


def test_the_exponent_is_the_slope_between_sizes() -> None:
    rows = [{"n": n, "index_s": 3 * n**1.5} for n in (100, 400, 1600)]
    assert builds.exponent(rows, "index_s") == pytest.approx(1.5)


def test_lists_of_hnswlib_are_read_by_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "BLOCK", 2)
    labels, lists = [2, 0, 1], [[1, 2], [0], []]  # of vertices in the order of their insertion
    size, degree, floats = 4 + 4 * 4 + 4 * 3 + 8, 4, [0.5, 1.5, 2.5]
    header = np.zeros(12, "<u8")
    header[[2, 3, 4, 8]] = 3, size, size - 8, degree
    content = header.tobytes()
    for label, neighbours in zip(labels, lists, strict=True):
        padded = neighbours + [0xFFFFFFFF] * (degree - len(neighbours))
        content += np.array([len(neighbours), *padded], "<u4").tobytes()
        content += np.array(floats, "<f4").tobytes() + np.array([label], "<u8").tobytes()
    path = tmp_path / "hnsw.bin"
    path.write_bytes(content + b"upper levels")
    graph = peers.read_hnswlib(path, 1)
    assert graph.degrees.tolist() == [1, 0, 2]
    assert graph.neighbours.tolist() == [[2, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0]]
    assert graph.start == 1


def test_an_environment_whose_packages_fail_is_not_taken_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(command: Sequence[Any], check: bool) -> None:
        if "venv" in command:
            (tmp_path / "env" / "bin").mkdir(parents=True)
            (tmp_path / "env" / "bin" / "python").touch()
        else:
            raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(environment.shutil, "which", lambda name: name)
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(subprocess.CalledProcessError):
        environment.make_environment(tmp_path / "env", ["none"])
    assert not (tmp_path / "env").exists()


def test_leaves_are_measured_beside_a_tile_of_their_dimension(space: builds.Builds) -> None:
    found = leaves.measure(space)["rows"]
    assert [(row["set"], row["n"], row["dim"], row["neighbours_missed"]) for row in found] == [
        ("sift1m", 1500, 24, 0)
    ]
    assert found[0]["leaves_gmac_s"] > 0
    assert found[0]["leaves_gmac_s"] == pytest.approx(found[0]["share"] * found[0]["tile_gmac_s"])
    assert found[0]["a_cycle"] == pytest.approx(
        found[0]["tile_gmac_s"] / partition.THREADS / found[0]["clock_ghz"]
    )
    text = partition.BENCHMARK.render(RECORD | {"parts": {"leaves": PART | {"rows": found}}}, "r.json")
    assert "| sift1m | 24 |" in text
    assert f"{found[0]['a_cycle']:,.0f} multiply-adds a cycle with 24 components" in text


def test_the_clock_is_that_of_a_processor() -> None:
    assert 0.2 < leaves.clock_ghz() < 10


def test_hard_sets_are_built_by_both_builders_and_searched_from_one_vertex(
    space: builds.Builds, monkeypatch: pytest.MonkeyPatch
) -> None:
    hard = {
        "norms": judge.Hard(900, judge.skewed, "ip"),
        "copies": judge.Hard(900, judge.copied(20)),
        "far": judge.Hard(900, judge.clustered(9, 100)),
    }
    monkeypatch.setattr(judge, "SETS", hard)
    found = judge.measure(space)
    assert [(row["set"], row["n"], row["metric"]) for row in found["rows"]] == [
        ("norms", 900, "ip"), ("copies", 900, "l2"), ("far", 900, "l2"),
    ]  # fmt: skip
    for row in found["rows"]:
        for builder in builds.BUILDERS:
            assert row[builder]["recall"] > 0.9
            assert row[builder]["of"] > 10
        assert row["unlinked"] <= row["partition"]["recall"] + 0.01
    assert [(one["set"], one["n"]) for one in found["links"]] == [("sift1m", 1500)]
    links = found["links"][0]
    assert len(set(links["ratios"]["0.99"])) == len(judge.LINK_SEEDS)
    assert links["ratio"]["0.99"] == pytest.approx(np.mean(links["ratios"]["0.99"]))
    assert links["ratio"]["0.99"] == pytest.approx(1, abs=0.2)
    text = partition.BENCHMARK.render(RECORD | {"parts": {"judge": PART | found}}, "r.json")
    assert "| far | 900 | vamana |" in text
    assert "| sift1m: distances at recall@10 0.99, distant clusters linked / not linked |" in text
    guide = partition.BENCHMARK.render(with_parts(judge=found), "r.json", "guide/default")
    assert "| far, 900 drawn vectors |" in guide
    assert "`partition` and `vamana`: norms " in guide
    assert not list(space.out.glob("judge-*"))


@pytest.mark.parametrize(("variant", "longest"), [("ordered", 512), ("small", 8)])
def test_indexes_on_a_disk_are_built_in_the_default_order_too(
    space: builds.Builds, monkeypatch: pytest.MonkeyPatch, variant: str, longest: int
) -> None:
    def build(data: Dataset, out: Path) -> tuple[dict[str, Any], Any]:
        graph = graph_quality.read_ours(space.index("vamana"))
        return {"graph_s": 1.0, "index_s": 2.0, "cpu_s": 1.0, "peak_bytes": 1}, graph

    monkeypatch.setattr(peers, "build_diskann_index", build)
    monkeypatch.setattr(peers, "make_environments", lambda out: None)
    monkeypatch.setattr(partition, "LONG", longest)
    found = partition.case(space, "sift1m", *builds.SHAPES[0])
    assert found.keys() & partition.VARIANTS == {variant}
    one, case = found[variant], "sift1m-R32" if variant == "ordered" else "embed768-R32"
    assert len(one["rounds"]["index_s"]) == 2
    assert set(one["stage_s"]) >= {"ingest", "order", "pack", "emit", "certify"}
    assert found[f"{variant}_ratio"] == one["index_s"] / 2
    assert one["memory"]["planned_peak_bytes"] == PLAN["peak_memory_bytes"]
    text = partition.BENCHMARK.render(RECORD | {"parts": {case: PART | found}}, "r.json")
    assert "| stage | sift1m | sift1m, default order" in text
    share = one["stage_s"]["order"] / one["wall_s"]
    assert f": share of stage order | {share:.3f} | <= 0.1 |" in text
    outside = one["wall_s"] - sum(one["stage_s"].values())
    assert f"{outside:.1f} ({outside / one['wall_s']:.0%})" in text[text.index("| outside of them |") :]
    if variant == "ordered":
        readme = partition.BENCHMARK.render(with_parts(**{case: found}), "r.json", "readme")
        told = "in the default order, whose searches read fewer pages"
        assert f"{told}, {one['index_s']:.1f} s" in readme


def test_seconds_of_stages_are_medians() -> None:
    names = ("wall_s", "cpu_s", "graph_s", "index_s", "peak_bytes", "peak_memory_bytes")
    one = dict.fromkeys((*names, "mean_degree", "edges_added"), 1.0)
    runs = [one | {"stage_s": {"order": seconds}} for seconds in (1.0, 5.0, 2.0)]
    assert builds.medians(runs)["stage_s"] == {"order": 2.0}


def test_codes_are_rotated_back_before_their_error_is_taken() -> None:
    rng = np.random.default_rng(2)
    vectors = (rng.normal(size=(900, 12)) @ rng.normal(size=(12, 12))).astype(np.float32)
    whole = float((vectors**2).sum(axis=1).mean())
    for rotation in ("none", "opq"):
        mine, other = (pq.once(quantize, vectors, 3, rotation)["error"] for quantize in pq.METHODS.values())
        assert 0 < mine < 0.4 * whole
        assert mine < 1.1 * other < 0.4 * whole
