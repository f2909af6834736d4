"""Parts of the benchmark with searches that need no disk: their choices and their tables."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.bench import N_QUERIES, FakeOurs, faked

from indexmill.jobs.bench.common import disk, tables
from indexmill.jobs.bench.common.dataset import Dataset, write_bin
from indexmill.jobs.bench.papers.shelf import Shelf
from indexmill.jobs.bench.programs import ours_serve
from indexmill.jobs.bench.programs.ours import Setting, Shape
from indexmill.jobs.bench.programs.workspace import Workspace
from indexmill.jobs.bench.sift1m import (
    ablation,
    bandwidth,
    completion,
    cpu,
    device_limit,
    latency,
    page_reads,
    paper,
    plots,
    qps,
)
from indexmill.jobs.bench.sift1m.__main__ import BENCHMARK, TARGETS

__all__ = ["faked"]
PARTS = {
    "reads": page_reads, "qps": qps, "latency": latency, "cpu": cpu, "ablation": ablation, "bandwidth": bandwidth,
    "completion": completion, "device": device_limit, "paper": paper,
}  # fmt: skip


@pytest.fixture
def space(disk: Path) -> Workspace:
    folder = Path(tempfile.mkdtemp(dir=disk))  # a part looks at the drive that it lies on
    write_bin(folder / "query.u8bin", np.zeros((2 * N_QUERIES, 4), np.uint8))
    (folder / "indexmill-identity").mkdir()
    (folder / "indexmill-identity" / "graph.imx").touch()
    return Workspace(Dataset(folder), folder, folder / "sift1m.json")


def record_of(space: Workspace) -> dict[str, Any]:
    """Measure all parts and return them as a record that was written and read."""
    about = {"started": "2026-01-02T03:04:05", "commit": "abc", "load_before": 0.1}
    record = {
        "data": {"name": "fake", "n_vectors": 10, "dim": 4, "dtype": "uint8"},
        "machine": {"cpu": "a", "cores": 2, "memory_bytes": 1 << 30, "kernel": "b"},
        "versions": {"python": "3", "peer": ["diskannpy==0.7.0"]},
        "parts": {name: about | part.measure(space) for name, part in PARTS.items()},
    }
    found: dict[str, Any] = json.loads(json.dumps(record))
    return found


@pytest.mark.usefixtures("faked")
def test_every_part_is_measured_recorded_and_rendered(space: Workspace, tmp_path: Path) -> None:
    record = record_of(space)
    text = BENCHMARK.render(record, "record.json")
    assert "not reached" not in text.split("### Completion")[0]
    for target in TARGETS:
        if tables.part_of(target.figure) in PARTS:
            assert target.what in text
            assert target.measured(record["parts"]) is not None
    plots.write_all(record, tmp_path / "images")
    pictures = {path.name for path in (tmp_path / "images").iterdir()}
    assert pictures == {
        f"{name}.{kind}" for name in ("sift1m", "completion", "read-times") for kind in ("png", "svg")
    }
    assert '"queries": {"hits"' not in json.dumps(record), "what each query cost stays out of the record"


@pytest.mark.usefixtures("faked")
def test_recalls_that_were_not_reached_are_told_and_stop_nothing(
    space: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeOurs, "hardness", 0.1)  # the shortest list finds everything
    record = record_of(space)
    text = BENCHMARK.render(record, "record.json")
    assert "| queries a second at 0.95, indexmill / DiskANN | not reached | >= 2.5 | x | **no** |" in text
    plots.write_all(record, tmp_path / "images")


@pytest.mark.usefixtures("faked")
def test_the_setting_is_the_fastest_on_the_tuning_queries(space: Workspace) -> None:
    found = qps.measure(space)
    assert (found["setting"]["policy"], found["setting"]["entry"]) == ("pipeline", "navigation")
    assert found["ratio"]["0.95"]["value"] >= 2
    space.results.write_text(json.dumps({"parts": {"qps": found}}))
    assert qps.chosen_setting(space) == Setting(**found["setting"])


@pytest.mark.usefixtures("faked")
def test_components_are_compared_with_the_plain_search_at_the_same_recall(space: Workspace) -> None:
    found = ablation.measure(space)
    rows, simulated = found["rows"], found["simulated"]["rows"]
    assert simulated["ABC"]["0.98"]["ratio"]["value"] == pytest.approx(1.3 * 1.25 * 2 / 1.2)
    assert rows["-"]["0.98"]["ratio"]["value"] == 1
    # The fake's pages: 1.3 times from the medoid, 1.5 times in identity order, 2 to 1.2 from beam to page search.
    assert rows["ABC"]["0.98"]["ratio"]["value"] == pytest.approx(1.3 * 1.5 * 2 / 1.2)
    assert rows["A"]["0.90"]["ratio"]["value"] == pytest.approx(1.3)


@pytest.mark.usefixtures("faked")
def test_searches_of_the_paper_have_one_query_a_thread_and_are_compared_at_the_same_recall(
    space: Workspace,
) -> None:
    found = paper.measure(space)
    assert found["entries"][-1] == 62500
    for cell in found["cells"].values():  # of simulated devices
        assert set(cell["speedup"]) == {str(n) for n in found["entries"]}
        for gain in cell["speedup"].values():
            assert gain["value"] == pytest.approx(1.3)  # the fake's pages, as in the part ablation
        assert cell["whole"]["value"] == pytest.approx(1.3 * 1.25 * 2 / 1.2)
    for one in (*found["widths"].values(), *found["by_threads"].values()):
        assert one["whole"]["value"] == pytest.approx(1.3 * 1.5 * 2 / 1.2)
        assert one["program"]["value"] == pytest.approx(3 / 1.2)
    assert set(found["by_threads"]) == {"1", "2"}
    made = [paper.one_a_thread("page", "medoid", width) for width in paper.WIDTHS]
    settings = {(setting.inflight, setting.beam_width) for setting in made}
    assert settings == {(1, 2), (1, 4), (1, 8)}


def test_an_index_of_another_simulated_device_is_closed_before_one_is_opened() -> None:
    opened = {("a", "io_uring"): 1, ("a", "simulated:x"): 2, ("b", "simulated:x"): 3}
    for engine in ("simulated:x", "io_uring"):
        ours_serve.let_go(opened, engine)
        assert len(opened) == 3
    ours_serve.let_go(opened, "simulated:y")
    assert opened == {("a", "io_uring"): 1}


def test_an_index_is_named_by_the_vectors_that_its_centroids_are_trained_on() -> None:
    assert Shape("star").name == "star"
    assert Shape("star", 62500, sample_vectors=1_000_000).name == "star-62500-of-1000000"


@pytest.mark.usefixtures("faked")
def test_every_query_is_searched_once_a_round_with_each_list_size(space: Workspace) -> None:
    found = latency.measure(space)
    assert found["ratio"]["0.95"]["mean"]["value"] == pytest.approx(0.5, abs=0.05)
    assert found["ratio_by_counter"]["0.95"]["p99"]["value"] < found["ratio"]["0.95"]["p99"]["value"]
    assert found["ratio_cold"] == found["ratio_arriving"] == found["ratio"], "the fake knows no difference"
    for done in found["rounds"]:
        assert all(row["n_queries"] == N_QUERIES for rows in done.values() for row in rows)
        assert [row["recall"] for row in done["cold"]] == [row["recall"] for row in done["indexmill"]]
    assert len(json.dumps([found["rounds"], found["slow"], found["reads"]])) < 150_000


def calls(call_us: list[float], io_wait_us: list[float]) -> latency.Calls:
    ones = np.ones(len(call_us))
    return {
        "hits": 10 * ones,
        "pages_read": ones,
        "call_us": np.array(call_us),
        "io_wait_us": np.array(io_wait_us),
    }


def test_slow_calls_are_told_with_what_they_waited_for() -> None:
    one, other = calls([400, 500, 3000], [300, 400, 2900]), calls([450, 500, 1500], [350, 400, 450])
    found = latency.slow_calls([{20: one}, {20: other}])
    assert (found["calls"], found["slow"]) == (6, 1)
    assert found["share_of_reads"] == pytest.approx(1 / 6)
    assert found["means"]["slow"] == {
        "call_us": 3000, "latency_us": None, "io_wait_us": 2900, "ready_us": None
    }  # fmt: skip
    assert found["means"]["usual"]["io_wait_us"] == pytest.approx(np.mean([300, 400, 350, 400, 450]))
    none = latency.slow_calls([{20: calls([400, 500], [300, 400])}])
    assert none["means"]["slow"]["call_us"] is None


@pytest.mark.usefixtures("faked")
def test_programs_in_c_search_the_second_half_as_the_part_qps_chose(space: Workspace) -> None:
    assert qps.c_options(space)[1] == "L=64"
    found = qps.measure(space)
    space.results.write_text(json.dumps({"parts": {"qps": found}}))
    setting = found["setting"]
    [size] = [int(one[2:]) for one in qps.c_options(space) if one.startswith("L=")]
    nearest = min(found["tuning_rows"]["indexmill"], key=lambda row: abs(float(row["recall"]) - 0.95))
    assert size == pytest.approx(nearest["L"], rel=0.4)
    assert set(qps.c_options(space)) == {
        "k=10", f"L={size}", f"W={setting['beam_width']}", "policy=pipeline", "threads=2",
        f"inflight={setting['inflight']}", f"skip={8 + 4 * N_QUERIES}",
    }  # fmt: skip


@pytest.mark.parametrize("has_fio", [True, False])
def test_times_of_reads_are_told_with_and_without_fio(
    has_fio: bool, space: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_fio:
        monkeypatch.setattr(shutil, "which", lambda name: None)
    elif shutil.which("fio") is None:
        pytest.skip("fio is not installed")
    path = space.out / "file"
    path.write_bytes(bytes(1 << 20))
    found = disk.read_times(path, 3, 0.2)
    assert (found["depth"], found["jobs"], found["method"] == "fio") == (4, 2, has_fio)
    times = list(found["percentiles_us"].values())
    assert times == sorted(times)
    assert times[0] > 0
    assert 0 <= found["slow"] <= 1


def test_pages_that_were_read_are_in_the_page_cache_and_holes_are_not(tmp_path: Path) -> None:
    read, sparse = tmp_path / "read", tmp_path / "sparse"
    read.write_bytes(bytes(10_000))
    with open(sparse, "wb") as file:
        file.truncate(1 << 20)
    assert len(read.read_bytes()) == 10_000
    assert disk.resident_share(read) == 1.0
    assert disk.resident_share(sparse) == 0.0


def test_the_kept_processor_time_is_of_the_search_whose_queries_a_second_are_kept() -> None:
    parts = Shelf().records["sift1m"].found["parts"]
    assert parts["cpu"]["setting"] == parts["qps"]["setting"], "measure cpu after qps"
