"""`indexmill score` and `indexmill compare` on small indexes."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.support.cli import DIM, QUERIES, Data, K, N, brute_force, build, make_data, run, run_json

import indexmill
from indexmill.formats.device import DeviceProfile, Latency, Measured, Model, Reads
from indexmill.formats.graph.file import GraphFile
from indexmill.formats.sources.truth import Truth, write_truth
from indexmill.jobs.compare.contenders import open_contenders
from indexmill.jobs.compare.costs import layout_cells
from indexmill.jobs.compare.provenance import in_page_edges
from indexmill.jobs.devices.profiles import kept_profile_path
from indexmill.jobs.score.graph import Setting, score, with_device
from indexmill.jobs.score.queries import load_queries, sample_queries

KEYS = {
    "L",
    "policy",
    "recall",
    "recall_low",
    "recall_high",
    "qps",
    "latency_us_mean",
    "latency_us_p50",
    "latency_us_p99",
    "reads_per_second",
    "device_iops",
    "device_fraction",
    "inflight",
    "repeat",
    "pages_read",
    "bytes_read",
    "bytes_used",
    "hops",
    "distances",
    "expansions",
    "io_wait_us",
    "entry",
    "beam_width",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    return make_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def index(data: Data) -> Path:
    return build(data, data.folder / "star", "--work", data.folder / "work")


@pytest.fixture(scope="module")
def other(data: Data) -> Path:
    return build(data, data.folder / "<i>identity", "--work", data.folder / "work", "--order", "identity")


def test_score_prints_one_row_for_each_policy_and_size_in_the_order_given(data: Data, index: Path) -> None:
    rows = run_json(
        "score",
        index,
        "--queries",
        data.queries,
        "--truth",
        data.truth,
        "-L",
        "20,20,80",
        "--policy",
        "beam,page",
    )
    assert [(row["policy"], row["L"]) for row in rows] == [
        (p, size) for p in ("beam", "page") for size in (20, 20, 80)
    ]
    for row in rows:
        assert row.keys() >= KEYS
        assert row["recall_low"] <= row["recall"] <= row["recall_high"]
        assert row["n_queries"] == QUERIES
        assert row["bytes_read"] == pytest.approx(4096 * row["pages_read"])
        assert 0 < row["bytes_used"] <= row["bytes_read"]


def test_recall_agrees_with_brute_force(data: Data, index: Path) -> None:
    row = run_json(
        "score", index, "--queries", data.queries, "--truth", data.truth, "-L", 15, "--threads", 1
    )[0]
    found = indexmill.open(index).search(data.query_vectors, K, L=15)
    right = [len(set(a) & set(b)) for a, b in zip(found.vector_ids, data.truth_ids[:, :K], strict=True)]
    assert row["recall"] == pytest.approx(np.mean(right) / K)


def test_a_tie_at_the_kth_place_counts(data: Data, index: Path, tmp_path: Path) -> None:
    ids, distances = brute_force(data.vectors, data.query_vectors, K)
    ids[:, -1] = (ids[:, -1] + 1) % N  # another vector that is said to lie at the same distance
    write_truth(tmp_path / "tied.gt", Truth(ids.astype(np.uint32), distances.astype(np.float32)))
    options = ["-L", 200, "--queries", data.queries]
    tied = run_json("score", index, *options, "--truth", tmp_path / "tied.gt")[0]
    plain = run_json("score", index, *options, "--truth", data.truth)[0]
    assert tied["recall"] == plain["recall"]


def test_distances_of_another_kind_never_raise_recall(data: Data, index: Path, tmp_path: Path) -> None:
    ids, distances = brute_force(data.vectors, data.query_vectors, K)
    write_truth(tmp_path / "odd.gt", Truth(ids.astype(np.uint32), (4 * distances).astype(np.float32)))
    options = ["-L", K, "--queries", data.queries]
    odd = run_json("score", index, *options, "--truth", tmp_path / "odd.gt")[0]
    plain = run_json("score", index, *options, "--truth", data.truth)[0]
    assert odd["recall"] == plain["recall"] < 1


def test_truth_computed_from_the_base_agrees_with_the_truth_file(data: Data, index: Path) -> None:
    options = ["score", index, "--queries", data.queries, "-L", 20, "--column", "vector"]
    np.save(data.folder / "base.npy", data.vectors)
    from_base = run_json(*options[:-2], "--base", data.folder / "base.npy")[0]
    from_file = run_json(*options[:-2], "--truth", data.truth)[0]
    assert from_base["recall"] == from_file["recall"]


@pytest.mark.parametrize("metric", ["cosine", "ip"])
def test_truth_from_the_base_follows_the_metric(data: Data, tmp_path: Path, metric: str) -> None:
    index = build(data, tmp_path / "index", "--metric", metric)
    row = run_json("score", index, "--queries", data.queries, "--base", data.base, "-L", N)[0]
    assert row["recall"] > 0.99
    base = data.vectors.astype(np.float64)
    if metric == "cosine":
        base /= np.linalg.norm(base, axis=1, keepdims=True)
    best = (data.query_vectors @ base.T).argmax(axis=1)
    found = indexmill.open(index).search(data.query_vectors, 1, L=N)
    assert (found.vector_ids[:, 0] == best).mean() > 0.95


def test_first_and_skip_choose_queries(data: Data, index: Path) -> None:
    options = ["score", index, "--queries", data.queries, "--truth", data.truth, "-L", 20]
    halves = [run_json(*options, "--first", 10)[0], run_json(*options, "--skip", 10)[0]]
    whole = run_json(*options)[0]
    assert [half["n_queries"] for half in halves] == [10, QUERIES - 10]
    mean = (10 * halves[0]["recall"] + (QUERIES - 10) * halves[1]["recall"]) / QUERIES
    assert whole["recall"] == pytest.approx(mean)
    assert run(*options, "--skip", QUERIES).exit_code == 3


def test_the_table_shows_recall_and_costs(data: Data, index: Path) -> None:
    shown = run("score", index, "--queries", data.queries, "--truth", data.truth).stdout
    for text in ("policy pipeline", "recall", "@10", "95%", "P50", "P99", "KiB", "device"):
        assert text in shown


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "device.json"
    model = {"latency_us": [[0.0, 50.0], [1.0, 90.0]], "iops": 1e6}
    path.write_text(json.dumps({"kind": "indexmill-device", "version": 1, "name": "x", "model": model}))
    return path


def test_a_score_says_what_share_of_the_device_it_reached(data: Data, index: Path, profile: Path) -> None:
    options = ["score", index, "--queries", data.queries, "--truth", data.truth, "-L", 20]
    row = run_json(*options, "--device", profile)[0]
    assert row["reads_per_second"] == pytest.approx(row["pages_read"] * row["qps"])
    assert row["device_iops"] == 1e6
    assert row["device_fraction"] == pytest.approx(row["reads_per_second"] / 1e6)
    shown = run(*options, "--device", profile).stdout.splitlines()
    assert next(line for line in shown if line.split()[:1] == ["20"]).rstrip().endswith("%")


def test_a_profile_that_was_kept_for_the_index_is_found(
    data: Data, index: Path, profile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["score", index, "--queries", data.queries, "--truth", data.truth, "-L", 20]
    monkeypatch.setenv("XDG_CACHE_HOME", str(profile.parent))
    assert run_json(*options)[0]["device_fraction"] is None
    assert f"run: indexmill device {index}" in run(*options).stdout
    kept = kept_profile_path(index)
    kept.parent.mkdir(parents=True)
    kept.write_bytes(profile.read_bytes())
    assert run_json(*options)[0]["device_iops"] == 1e6
    assert "indexmill device" not in run(*options).stdout
    kept.write_text("broken")
    said = run(*options)
    assert said.exit_code == 0
    assert str(kept) in said.stdout


def test_the_share_is_of_the_depth_that_the_search_can_reach() -> None:
    times = Latency(mean=1, p50=1, p90=1, p99=1, p999=1, max=1)
    reads = [
        Reads(
            bytes=4096, depth=depth, threads=1, iops=100.0 * depth, mb_per_s=1, latency_us=times,
            quantiles_us=[1.0] * 101,
        )
        for depth in (1, 16, 128)
    ]  # fmt: skip
    model = Model(latency_us=[[0.0, 1.0], [1.0, 1.0]])
    where = Measured(date="", host="", path="", device="", direct=True, engine="", seconds=1.0, reads=reads)
    profile = DeviceProfile(name="x", model=model, measured=where)
    for threads, inflight, width, iops in ((1, 1, 1, 100), (2, 4, 2, 1600), (16, 64, 64, 12800)):
        row = {"threads": threads, "inflight": inflight, "beam_width": width, "reads_per_second": 50.0}
        assert with_device(row, profile)["device_iops"] == iops
        assert with_device(row, profile)["device_fraction"] == 50 / iops
    assert with_device(row, None)["device_fraction"] is None


def test_repeated_runs_count_by_their_medians(
    data: Data, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = indexmill.open(index)
    queries = load_queries(opened, str(data.queries), data.truth, [], K)
    delays = iter([0.0, 3.0, 0.0, 1.0, 0.0, 2.0])  # before and after each run
    clock = itertools.accumulate(delays)
    monkeypatch.setattr("indexmill.jobs.score.rows.time.perf_counter", lambda: next(clock))
    row = score(opened, queries, 20, Setting(K), repeat=3)
    assert row["qps"] == pytest.approx(QUERIES / 2)
    assert row["repeat"] == 3


def test_a_sweep_writes_a_table_and_two_plots(data: Data, index: Path, tmp_path: Path) -> None:
    rows = run_json(
        "score", index, "--queries", data.queries, "--truth", data.truth, "--sweep", "--policy", "beam,page",
        "--entry", "medoid,centroids", "-L", "40,20,20", "--out", tmp_path / "run.parquet",
    )  # fmt: skip
    assert [(row["policy"], row["entry"], row["L"]) for row in rows] == [
        (p, e, size) for p in ("beam", "page") for e in ("medoid", "centroids") for size in (20, 40)
    ]
    assert {path.name for path in tmp_path.iterdir()} == {"run.parquet", "run.png", "run.svg"}
    assert pq.read_table(tmp_path / "run.parquet").to_pylist() == rows
    said = run(
        "score",
        index,
        "--queries",
        data.queries,
        "--truth",
        data.truth,
        "--sweep",
        "--out",
        f"{tmp_path}/new/",
    )
    assert said.exit_code == 0, said.stderr
    assert "10 rows" in said.stderr
    assert f"wrote {tmp_path}/new/sweep.csv" in said.stdout
    assert len((tmp_path / "new/sweep.csv").read_text().splitlines()) == 11


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ([], 2, "--truth FILE"),
        (["--truth", "TRUTH", "--base", "BASE"], 2, "keep one of them"),
        (["--truth", "TRUTH", "-k", "50", "-L", "60"], 3, "20 neighbours a query, but k is 50"),
        (["--truth", "TRUTH", "-L", "5,x"], 2, "-L: expected positive integers"),
        (["--truth", "TRUTH", "-L", "5"], 3, "L"),
        (["--truth", "TRUTH", "--policy", ","], 2, "--policy: the list is empty"),
        (["--truth", "TRUTH", "--entry", "medoid,nowhere"], 2, "--entry: expected one of"),
        (["--truth", "TRUTH", "--sweep"], 2, "--out: missing"),
        (["--truth", "TRUTH", "--out", "x"], 2, "pass --sweep too"),
        (["--truth", "TRUTH", "--device", "none.json"], 3, "none.json: no such file"),
        (["--truth", "TRUTH", "--engine", "simulated"], 2, "simulated:PROFILE.json"),
        (["--truth", "SHORT"], 3, "neighbours of 3 queries"),
        (["--truth", "FOREIGN"], 3, f"names vector {N}"),
    ],
)
def test_a_score_that_cannot_be_is_refused(
    data: Data, index: Path, tmp_path: Path, options: list[str], code: int, said: str
) -> None:
    def truth(name: str, rows: int, largest: int) -> Path:
        ids = np.full((rows, K), largest, np.uint32)
        write_truth(tmp_path / name, Truth(ids, np.ones((rows, K), np.float32)))
        return tmp_path / name

    files = {
        "TRUTH": data.truth,
        "BASE": data.base,
        "SHORT": truth("short.gt", 3, 0),
        "FOREIGN": truth("foreign.gt", QUERIES, N),
    }
    result = run(
        "score", index, "--queries", data.queries, *(files.get(option, option) for option in options)
    )
    assert result.exit_code == code
    assert said in result.stderr


def test_sampled_queries_never_count_themselves(data: Data, index: Path) -> None:
    queries = sample_queries(indexmill.open(index), [str(data.base)], 50, K)
    assert queries.own is not None
    assert not (queries.truth_ids == queries.own[:, None]).any()
    expected, _ = brute_force(data.vectors, queries.vectors, K + 1)
    np.testing.assert_array_equal(queries.truth_ids, expected[:, 1:])


def test_compare_sweeps_all_indexes_and_writes_page_and_plot(
    data: Data, index: Path, other: Path, tmp_path: Path
) -> None:
    report, plot = tmp_path / "report", tmp_path / "plot.svg"
    said = run_json(
        "compare", other, index, "--queries", data.queries, "--truth", data.truth, "-L", "10,20,40", "--out", report,
        "--plot", plot,
    )  # fmt: skip
    assert len(said["sweep"]) == 3 * 2 * 3
    assert sum(row["again"] for row in said["sweep"]) == 2 * 3
    paths = pq.read_table(report / "paths.parquet").to_pylist()
    reads = [p for p in paths if (p["index"], p["kind"], p["query"]) == ("star", "read", 7)]
    queries = pq.read_table(report / "queries.parquet").to_pylist()
    one = next(q for q in queries if (q["index"], q["point"], q["query"]) == ("star", True, 7))
    assert len(reads) == one["pages_read"]
    results = [p for p in paths if (p["index"], p["kind"], p["query"]) == ("star", "result", 7)]
    assert sum(p["right"] for p in results) == round(K * one["recall"])
    names = ["<i>identity", "star"]
    assert [line["index"] for line in said["layout"]] == names
    assert [line["order"] for line in said["layout"]] == ["identity", "agglomerative"]
    assert {"overlap_ratio", "page_compactness"} <= said["layout"][0].keys()
    assert [line["recall"] for line in said["at_recall"]] == [0.9] * 4 + [0.95] * 4 + [0.98] * 4
    assert all(line["in_page_edges"] > 0 for line in said["layout"])
    text = (report / "index.html").read_text(encoding="utf-8")
    assert "&lt;i&gt;identity" in text
    assert "<i>identity" not in text
    assert plot.read_bytes().startswith(b"<?xml")


def test_compare_counts_units_larger_than_a_page(
    data: Data, index: Path, other: Path, tmp_path: Path
) -> None:
    asked = ["--queries", data.queries, "--truth", data.truth, "-L", "10,20,40", "--repeat", 1]
    units = ["--unit", "16KiB", "--unit", "4KiB", "--unit", 16384]
    said = run_json("compare", other, index, *asked, *units, "--out", tmp_path / "report")
    assert said["units"] == [4096, 16384]
    for row in said["sweep"]:
        assert row["units_16KiB"] < row["units_4KiB"] <= row["pages_read"]
        assert row["units_4KiB"] == row["pages_read"] or row["policy"] == "beam"
    assert {"units_16KiB", "units_16KiB_bound", "units_16KiB_ratio"} <= said["at_recall"][0].keys()
    queries = pq.read_table(tmp_path / "report" / "queries.parquet")
    assert queries["units_16KiB"].to_numpy().max() <= queries["units_4KiB"].to_numpy().max()
    assert 'id="units"' in (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    shown = run("compare", other, index, *asked, *units)
    assert "Units read at equal recall@10" in shown.stdout
    assert "### Units read at equal recall" in run("compare", index, *asked, *units, "--markdown").stdout
    assert run_json("compare", index, *asked)["units"] == []


def test_a_gate_exits_with_7_after_the_report_is_written(
    data: Data, index: Path, other: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate.toml"
    measured = [
        "--queries",
        data.queries,
        "--truth",
        data.truth,
        "-L",
        "10,20,40",
        "--policy",
        "beam",
        "--repeat",
        1,
    ]
    rows = run_json("compare", index, other, *measured)["sweep"]
    recalls = [row["recall"] for row in rows if row["index"] == "star"]
    gate.write_text("[recall]\nmax_drop = 0.5")
    passed = run("compare", index, other, *measured, "--gate", gate)
    assert passed.exit_code == 0, passed.stderr
    assert "gate passed: <i>identity, beam: recall at L" in passed.stdout
    between = (min(recalls) + max(recalls)) / 2
    gate.write_text(f"[recall]\nmax_drop = 0.5\n[page_reads]\nmax_ratio = 0.01\nat_recall = {between}")
    failed = run("compare", index, other, *measured, "--gate", gate, "--out", tmp_path / "report")
    assert failed.exit_code == 7, failed.stderr
    assert "1 of 2 tolerances are exceeded" in failed.stderr
    assert ">failed<" in (tmp_path / "report" / "index.html").read_text()
    gate.write_text(f"[page_reads]\nmax_ratio = 1\nat_recall = {min(recalls) / 2}")
    open_ = run("compare", index, other, *measured, "--gate", gate, "--out", tmp_path / "open")
    assert open_.exit_code == 2
    assert "outside the curves" in open_.stderr
    assert (tmp_path / "open" / "index.html").exists()
    gate.write_text("[qps]\nmin_ratio = 0.5")
    refused = run("compare", index, other, *measured, "--gate", gate)
    assert refused.exit_code == 2
    assert "at least 10 A/A pairs" in refused.stderr
    assert "sweep" not in refused.stderr  # before anything was measured
    alone = run("compare", index, *measured, "--gate", gate)
    assert alone.exit_code == 2
    assert "two indexes" in alone.stderr


def test_in_page_edges_are_counted_over_all_nodes_of_a_small_index(index: Path) -> None:
    with GraphFile(index / "graph.imx") as file:
        nodes, per_page = file.read_all(), file.node_format.nodes_per_page
    edges = [(v, int(w)) for v in range(N) for w in nodes.neighbours[v, : nodes.degrees[v]]]
    share = sum(v // per_page == w // per_page for v, w in edges) / len(edges)
    contender = open_contenders([index])[0]
    assert in_page_edges(contender) == pytest.approx(share, abs=1e-6)  # of the manifest
    for layout in ({}, {"in_page_edges": "most"}):
        counted = replace(contender, manifest=contender.manifest | {"layout": layout})
        assert in_page_edges(counted) == pytest.approx(share)


def test_an_index_laid_out_by_auto_fits_the_tables_of_a_comparison(
    data: Data, index: Path, tmp_path: Path
) -> None:
    laid = tmp_path / "laid"
    indexmill.lay_out(index, effort="low", out=laid)
    manifest = json.loads((laid / "manifest.json").read_text())
    assert isinstance(manifest["layout"]["choice"], dict)
    shown = run("compare", index, laid, "--queries", data.queries, "--truth", data.truth, "-L", "10,40", "--repeat", 1,
                "--out", tmp_path / "report")  # fmt: skip
    assert shown.exit_code == 0, shown.stderr
    assert "candidates" not in shown.stdout
    found = json.loads((tmp_path / "report" / "report.json").read_text())
    headings, cells = layout_cells(found["layout"])
    assert not {"choice", "parameters"} & set(headings)
    assert "work limit" in headings
    assert max(len(text) for line in cells for text in line) < 40
    assert [row["of"] for row in found["build"]] == ["build", "layout only"]


def test_the_run_again_has_a_name_of_its_own(index: Path, tmp_path: Path) -> None:
    for name in ("a", "a again"):
        (tmp_path / name).symlink_to(index)
    found = open_contenders([tmp_path / "a", tmp_path / "a again"])
    assert [one.name for one in found] == ["a", "a again", "a again again"]
    assert [one.again for one in found] == [False, False, True]


def test_compare_samples_queries_from_the_base(data: Data, index: Path, other: Path) -> None:
    said = run_json(
        "compare",
        index,
        other,
        "--sample-queries",
        30,
        "--base",
        data.base,
        "-L",
        "11,50",
        "--policy",
        "page",
    )
    assert said["setting"]["leave_one_out"]
    assert said["setting"]["queries"] == 30
    assert max(row["recall"] for row in said["sweep"]) > 0.9
    shown = run("compare", index, other, "--sample-queries", 30, "--base", data.base, "-L", "11,50")
    assert "Cost at equal recall@10" in shown.stdout


def test_compare_refuses_indexes_of_different_inputs(data: Data, index: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "few.npy", data.vectors[:300])
    few = run("build", "--input", tmp_path / "few.npy", "--out", tmp_path / "few", "-R", 12, "--pq-bytes", 6)
    assert few.exit_code == 0, few.stderr
    result = run("compare", index, tmp_path / "few", "--queries", data.queries, "--truth", data.truth)
    assert result.exit_code == 3
    assert f"300 vectors of {DIM} dimensions" in result.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--sample-queries", "5"], "needs --base"),
        (["--sample-queries", "5", "--queries", "q.npy"], "takes the place of"),
        (["--queries", "q.npy", "--out", "report.html"], "a report is a folder"),
        (["--queries", "q.npy", "--gate", "none.toml"], "no such file"),
        (["--queries", "q.npy", "--plot", "plot.gif"], ".png or .svg"),
        (["--queries", "q.npy", "-L", "5"], "at least 10"),
        (["--queries", "q.npy", "--unit", "5000"], "a multiple of the page"),
        (["--queries", "q.npy", "--unit", "big"], "--unit: 'big' is not a size"),
    ],
)
def test_a_comparison_that_cannot_be_is_refused(index: Path, options: list[str], said: str) -> None:
    result = run("compare", index, *options)
    assert result.exit_code == 2
    assert said in result.stderr


def test_json_is_all_that_stdout_holds(data: Data, index: Path) -> None:
    result = run("compare", index, "--queries", data.queries, "--truth", data.truth, "-L", "20", "--json")
    json.loads(result.stdout)
    assert "sweep" in result.stderr
