"""`indexmill plan INDEX`: queries a second on devices, of every kind of index, and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.cli import SMALL, run, run_json

import indexmill
from indexmill.formats.device import DeviceProfile, Measured, Model, Reads, read_profile, write_profile
from indexmill.jobs.bench.stored.throttled import Line, Throttled, place
from indexmill.jobs.devices import query_plans
from indexmill.jobs.kinds.opening import MEMORY_VARIABLE
from indexmill.pipeline.cost import device
from indexmill.pipeline.cost import model as cost
from indexmill.pipeline.cost import plan as cost_plan
from indexmill.pipeline.cost.query import QueryCost
from indexmill.pipeline.devices import profile_names, profile_path
from indexmill.pipeline.urls.cache import BYTES_VARIABLE, CACHE_VARIABLE
from indexmill.pipeline.urls.storage import MIRROR_VARIABLE

KINDS = {
    "graph": [*SMALL],
    "lsh": ["--kind", "lsh", "--n-functions", "5", "--n-tables", "4", "-w", "4"],
    "ivf": ["--kind", "ivf", "--lists", "16"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vectors, queries and an index of each kind."""
    folder = tmp_path_factory.mktemp("indexes")
    vectors = np.random.default_rng(5).normal(size=(600, 12)).astype(np.float32)
    np.save(folder / "base.npy", vectors)
    np.save(folder / "queries.npy", vectors[:40] + 0.1)
    for kind, options in KINDS.items():
        said = run("build", "--input", folder / "base.npy", "--out", folder / kind, *options)
        assert said.exit_code == 0, said.stderr
    return folder


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def measured(cpu: bool = True, large: float | None = None) -> DeviceProfile:
    """A profile with 1,000 reads a second for each in flight; one takes 8 us of the processor, 4 from depth 8 on."""
    spread = {"mean": 900.0, "p50": 900.0, "p90": 900.0, "p99": 900.0, "p999": 900.0, "max": 900.0}

    def reads(size: int, depth: int, iops: float) -> Reads:
        return Reads(
            bytes=size, depth=depth, threads=1, iops=iops, mb_per_s=iops * size / 1e6,
            cpu_us=(8.0 if depth == 1 else 4.0) if cpu else None, latency_us=spread, quantiles_us=[900.0] * 101,
        )  # fmt: skip

    all_reads = [reads(4096, depth, 1000.0 * depth) for depth in (1, 8, 64)]
    if large is not None:
        all_reads.append(reads(1 << 20, 8, large * 1e6 / (1 << 20)))
    return DeviceProfile(
        name="mine",
        model=Model(latency_us=[[0.0, 900.0], [1.0, 900.0]], iops=64_000.0),
        measured=Measured(
            date="2026-01-01", host="h", path="/p", device="/d", direct=True, engine="e", seconds=1.0, reads=all_reads
        ),
    )  # fmt: skip


def test_rates_between_measured_depths_lie_between_theirs() -> None:
    profile = measured()
    assert device.iops_at(profile, 8) == pytest.approx(8000)
    assert device.iops_at(profile, 16) == pytest.approx(16_000)
    assert device.iops_at(profile, 500) == pytest.approx(64_000)
    assert device.request_seconds(profile, 1) == pytest.approx(8e-6)
    assert device.request_seconds(profile, 100) == pytest.approx(4e-6)
    assert device.sync_read_seconds(profile, 8e-6) == pytest.approx(1e-3 - 8e-6)
    assert device.request_seconds(measured(cpu=False), 1) is None


def test_large_reads_take_the_time_of_their_bytes() -> None:
    profile = measured(large=100)
    assert device.iops_at(profile, 64, 4096) == pytest.approx(100e6 / 4096)
    assert device.iops_at(profile, 64, 1e6) == pytest.approx(100)
    model = Model(latency_us=[[0.0, 100.0], [1.0, 100.0]], iops=50_000.0, mb_per_s=100.0, request_us=1.0)
    by_hand = DeviceProfile(name="by hand", model=model)
    assert device.iops_at(by_hand, 2) == pytest.approx(20_000)  # a latency each
    assert device.iops_at(by_hand, 64, 1000) == pytest.approx(50_000)
    assert device.iops_at(by_hand, 64, 10_000) == pytest.approx(10_000)
    assert device.latency_seconds(by_hand) == pytest.approx(1e-4)


def test_a_device_that_was_not_measured_takes_as_many_reads_at_once_as_its_limit_asks_for() -> None:
    several = read_profile(profile_path("cssd4"))
    assert device.iops_at(several, 128) == pytest.approx(128 / 138.9e-6)
    assert device.iops_at(several, 200) == pytest.approx(1_092_000)
    assert device.most_iops(several) == pytest.approx(1_092_000)
    assert device.most_iops(measured()) == pytest.approx(64_000)


@pytest.mark.parametrize(
    ("given", "inflight", "binds"),
    [
        ({"compute_s": 1e-2}, 8, "CPU"),
        ({"compute_s": 1e-5}, 64, "device IOPS"),
        ({"compute_s": 1e-5}, 1, "reads in flight"),
        ({"compute_s": 1e-5, "read_bytes": 1e6}, 64, "bandwidth"),
    ],
)
def test_what_binds_is_said_by_name(given: dict[str, Any], inflight: int, binds: str) -> None:
    query = QueryCost(
        **{"kind": "graph", "queries": 1, "reads": 40.0, "read_bytes": 4096.0, "rounds": 20.0} | given
    )
    plan = cost_plan.plan_device("mine", query, measured(large=1000), 1, inflight)
    assert plan.binds == binds
    assert plan.depth == 2 * inflight
    assert plan.query_us >= 20 * 900  # its rounds, one after the other
    assert plan.sync_qps <= plan.qps


def test_threads_share_out_the_processor_but_not_the_device() -> None:
    query = QueryCost("lsh", 1, compute_s=1e-3, reads=200, read_bytes=512, rounds=4)
    one, two = (cost_plan.plan_queries(query, [("mine", measured())], threads, 8) for threads in (1, 2))
    assert two.memory_qps == pytest.approx(2 * one.memory_qps)
    assert two.needed_iops == pytest.approx(2 * one.needed_iops)
    assert two.needed_request_us == pytest.approx(one.needed_request_us)
    assert (
        two.devices[0].qps
        == pytest.approx(one.devices[0].qps, rel=0.01)
        == pytest.approx(64_000 / 200, rel=0.01)
    )


def test_a_target_asks_for_what_just_reaches_it() -> None:
    query = QueryCost("lsh", 1, compute_s=1e-4, reads=200, read_bytes=512, rounds=4)
    target = cost_plan.plan_queries(query, [], 2, 8, target_qps=4000).target
    assert target is not None
    assert (target.iops, target.request_us) == (pytest.approx(800_000), pytest.approx(2.0))
    assert cost.async_seconds(1e-4, 200, 2e-6, 1 / target.iops, threads=2) == pytest.approx(1 / 4000)
    assert target.sync_iops == pytest.approx(2 * 200 / 4e-4)
    assert cost.sync_seconds(1e-4, 200, 0, 2 / target.sync_iops) == pytest.approx(2 / 4000)
    beyond = cost_plan.plan_target(query, 1, 20_000)
    assert (beyond.request_us, beyond.sync_iops) == (0, None)
    assert cost_plan.plan_queries(query, [], 1, 8).target is None


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_planned_on_every_shipped_device(folder: Path, kind: str) -> None:
    options = {"graph": ["-L", 30], "lsh": ["-S", 60, "--probes", 1], "ivf": ["--nprobe", 4]}[kind]
    plan = run_json("plan", folder / kind, "--queries", folder / "queries.npy", *options)
    assert plan["cost"]["kind"] == kind
    assert plan["cost"]["queries"] == 40
    assert plan["cost"]["reads"] > 0
    assert plan["needed_iops"] == pytest.approx(plan["cost"]["reads"] * plan["memory_qps"])
    devices = {one["device"]: one for one in plan["devices"]}
    assert list(devices) == [name for name in profile_names() if kind != "lsh" or name != "s3"]
    assert (plan["stored_cost"] is None) == (kind == "lsh")
    assert devices["hdd"]["binds"] == "device IOPS"
    for slow, fast in (("hdd", "cssd"), ("cssd", "essd"), ("essd", "xlfdd")):
        assert devices[slow]["qps"] <= devices[fast]["qps"] <= plan["memory_qps"]
        assert devices[slow]["query_us"] > devices[fast]["query_us"]
    assert all(one["sync_qps"] <= one["qps"] for one in devices.values())


@pytest.mark.parametrize(
    ("kind", "said"),
    [("ivf", "this format suits it: 1.0 rounds"), ("graph", "a graph takes one a hop")],
)
def test_object_storage_is_planned_with_its_rounds_price_and_format(
    folder: Path, kind: str, said: str
) -> None:
    asked = ["plan", folder / kind, "--queries", folder / "queries.npy", "--device", "s3"]
    plan = run_json(*asked)
    (far,) = plan["devices"]
    cost = plan["cost"]
    assert far["usd_per_thousand"] == pytest.approx(cost["reads"] * 1000 * 0.4e-6)
    assert cost["rounds"] * 15_000 < far["query_us"] < cost["rounds"] * 40_000 + 1e6 * cost["reads"] / 1000
    shown = " ".join(run(*asked).stdout.split())
    assert "on s3 1,000 queries: " in shown
    assert said in shown
    assert "requests at most" not in run(*asked[:-1], "cssd").stdout


@pytest.mark.parametrize(
    ("options", "ids", "rounds", "said"),
    [
        ({}, None, 1, "suits it: 1.0 rounds"),
        ({}, "int", 2, "suits it: 2.0 rounds"),
        ({}, "text", 3, "with ids in memory (--ids memory): then 1.0 rounds of requests a query, not 3.0"),
        ({"codec": "pq", "keep_vectors": True}, None, 2, "suits it: 2.0 rounds"),
        ({"codec": "pq", "keep_vectors": True}, "int", 3, "with ids in memory (--ids memory): then 2.0"),
        ({"codec": "pq", "keep_vectors": True}, "text", 4, "with ids in memory (--ids memory): then 2.0"),
    ],
)
def test_what_suits_object_storage_follows_from_the_rounds_that_its_reader_counts(
    options: dict[str, Any], ids: str | None, rounds: int, said: str, tmp_path: Path, cold: str
) -> None:
    _check_rounds(tmp_path, cold, {"kind": "ivf", **options}, ids, [said])
    plan = run_json("plan", tmp_path / "index", "--queries", tmp_path / "queries.npy", "--device", "s3")
    assert plan["cost"]["rounds"] == rounds


@pytest.mark.parametrize("ids", [None, "int", "text", "long text"])
def test_a_graph_on_object_storage_is_planned_by_the_defaults_and_ids_that_it_has_at_a_url(
    ids: str | None, tmp_path: Path, cold: str
) -> None:
    said = [] if ids == "long text" else ["rounds decide there", "for ids, which --ids memory saves"]
    _check_rounds(tmp_path, cold, {"max_degree": 16}, ids, said)
    asked = ["plan", tmp_path / "index", "--queries", tmp_path / "queries.npy", "--device"]
    (at_url, local) = (run_json(*asked, name)["cost"] for name in ("s3", "cssd"))
    assert at_url["id_rounds"] == (2 if ids in ("text", "long text") else 1)
    assert at_url["rounds"] - at_url["id_rounds"] < local["rounds"]
    both = run_json(*asked, "s3", "--device", "cssd")
    assert both["cost"]["rounds"] == local["rounds"]
    assert both["stored_cost"]["rounds"] == at_url["rounds"]
    piped = run_json(*asked, "s3", "--policy", "pipeline")["cost"]
    assert piped["rounds"] == pytest.approx(local["rounds"] + piped["id_rounds"])


@pytest.fixture
def cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the folder of a store; nothing that is read of it is kept."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "indexes"))
    monkeypatch.setenv(BYTES_VARIABLE, "0")
    monkeypatch.setenv(MEMORY_VARIABLE, "0")
    monkeypatch.setenv(MIRROR_VARIABLE, str(tmp_path / "mirror"))
    monkeypatch.setattr(Throttled, "line", Line(1e-4))
    return str(tmp_path / "store")


def _check_rounds(
    folder: Path, store: str, options: dict[str, Any], ids: str | None, said: list[str]
) -> None:
    """Build an index, search it at a URL, and compare rounds and reads with its plan."""
    vectors = np.random.default_rng(5).normal(size=(600, 16)).astype(np.float32)
    queries = vectors[:6] + np.float32(0.05)
    np.save(folder / "queries.npy", queries)
    width = 3000 if ids == "long text" else 1
    of_type = {None: None, "int": np.arange(600) * 3}
    given = of_type[ids] if ids in of_type else [f"{i:0{width}}" for i in range(600)]
    indexmill.build(vectors, folder / "index", ids=given, **options)
    k = 100 if ids == "long text" else 10
    asked = ["plan", folder / "index", "--queries", folder / "queries.npy", "--device", "s3", "-k", k]
    cost = run_json(*asked)["cost"]
    far = indexmill.open(place(folder / "index", Path(store)), engine="ranges")
    found = [far.search(query, k).counters for query in queries]
    exact = 0.4 if ids == "long text" else 1e-6  # so many pages come in rounds as their answers do
    assert cost["rounds"] == pytest.approx(np.mean([one["rounds"][0] for one in found]), rel=exact)
    names = (
        ("pages_read", "id_pages_read") if far.kind == "graph" else ("reads", "vector_reads", "id_pages_read")
    )
    assert cost["reads"] == pytest.approx(np.mean([sum(one[name][0] for name in names) for one in found]))
    shown = " ".join(run(*asked).stdout.split())
    assert all(part in shown for part in said)


def test_hash_tables_are_not_planned_on_object_storage(folder: Path) -> None:
    asked = ["plan", folder / "lsh", "--queries", folder / "queries.npy"]
    refused = run(*asked, "--device", "cssd", "--device", "s3")
    assert refused.exit_code == 2
    assert (
        "--device: s3 is object storage, where searches by ranges do not take an index of kind lsh"
        in " ".join(refused.stderr.split())
    )
    said = " ".join(run(*asked).stdout.split())
    assert "left out: s3 is object storage" in said


def test_a_round_takes_as_long_as_its_slowest_read() -> None:
    far = read_profile(profile_path("s3"))
    assert (
        device.round_seconds(far, 1) == pytest.approx(device.latency_seconds(far)) == pytest.approx(27.5e-3)
    )
    assert device.round_seconds(far, 3) == pytest.approx(15e-3 + 25e-3 * 3 / 4)
    shares = np.sort(np.random.default_rng(1).random((20_000, 8)), axis=1)[:, -1]
    model = Model(latency_us=[[0.0, 10.0], [0.9, 20.0], [1.0, 400.0]], request_us=1.0)
    points = np.array(model.latency_us)
    assert device.round_seconds(DeviceProfile(name="x", model=model), 8) == pytest.approx(
        np.interp(shares, *points.T).mean() / 1e6, rel=0.02
    )


def test_more_lists_and_candidates_cost_more(folder: Path) -> None:
    def reads(kind: str, *options: object) -> float:
        plan = run_json(
            "plan", folder / kind, "--queries", folder / "queries.npy", "--device", "cssd", *options
        )
        return float(plan["cost"]["reads"])

    assert reads("ivf", "--nprobe", 8) == pytest.approx(2 * reads("ivf", "--nprobe", 4))
    assert reads("graph", "-L", 60) > reads("graph", "-L", 12)
    assert reads("lsh", "--probes", 2) > reads("lsh", "--probes", 0)


def test_the_table_has_memory_first_and_says_how_to_measure_the_device(folder: Path) -> None:
    said = run("plan", folder / "lsh", "--queries", folder / "queries.npy")
    assert said.exit_code == 0, said.stderr
    assert "in memory; needs" in said.stdout
    assert all(name in said.stdout for name in profile_names())
    assert f"run: indexmill device {folder / 'lsh'}" in said.stdout


def test_a_target_is_told_with_what_it_takes(folder: Path) -> None:
    asked = ["plan", folder / "lsh", "--queries", folder / "queries.npy", "--device", "hdd", "--target"]
    plan = run_json(*asked, 50)
    assert plan["target"]["iops"] == pytest.approx(50 * plan["cost"]["reads"])
    assert "the target  50.0 queries/s: " in run(*asked, 50).stdout
    assert "no device reaches it" in run(*asked, 1e9).stdout


def test_a_measured_profile_counts_by_its_file(folder: Path, tmp_path: Path) -> None:
    write_profile(tmp_path / "mine.json", measured())
    plan = run_json(
        "plan", folder / "graph", "--queries", folder / "queries.npy", "--device", tmp_path / "mine.json"
    )
    assert [one["device"] for one in plan["devices"]] == [str(tmp_path / "mine.json")]
    assert 4 <= plan["devices"][0]["request_us"] <= 8
    write_profile(tmp_path / "old.json", measured(cpu=False))
    said = run(
        "plan", folder / "graph", "--queries", folder / "queries.npy", "--device", tmp_path / "old.json"
    )
    assert said.exit_code == 2
    assert "does not say how much processor time a read takes" in said.stderr


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("graph", ["--device", "csd"], "one of cssd, cssd4, essd, hdd, s3, xlfdd, xlfdd12, got 'csd'"),
        ("graph", ["--nprobe", "3"], "--nprobe: for an index of kind ivf, and this one is of kind graph"),
        ("lsh", ["-L", "50"], "-L: for an index of kind graph, and this one is of kind lsh"),
        ("ivf", ["--probes", "1"], "--probes: for an index of kind lsh, and this one is of kind ivf"),
        ("ivf", ["--nprobe", "17"], "nprobe"),
        ("graph", ["--memory", "1GiB"], "--memory: for the plan of a build"),
        ("graph", ["--navigation", "0"], "--navigation: for the plan of a build"),
        ("graph", ["--overlap", "0"], "--overlap: for the plan of a build"),
        ("graph", ["--no-saturate"], "--saturate: for the plan of a build"),
        ("graph", ["--force"], "--force: for the plan of a build"),
        ("graph", ["--probes", "0"], "--probes: for an index of kind lsh"),
        ("graph", ["--policy", "page2"], "--policy: expected one of"),
    ],
)
def test_what_does_not_go_with_an_index_is_refused(
    folder: Path, kind: str, options: list[str], message: str
) -> None:
    said = run("plan", folder / kind, "--queries", folder / "queries.npy", *options)
    assert said.exit_code in (2, 3)
    assert message in " ".join(said.stderr.split())


def test_queries_and_an_index_must_be_there(folder: Path, tmp_path: Path) -> None:
    assert "--queries: missing" in run("plan", folder / "graph").stderr
    assert "no manifest.json" in run("plan", tmp_path, "--queries", folder / "queries.npy").stderr
    job = ["--input", folder / "base.npy", "--out", tmp_path / "ix", *SMALL]
    asked = (
        ["--device", "cssd"], ["--target", 9], ["--queries", "q.npy"], ["-k", 3], ["--nprobe", 5],
        ["--policy", "nonsense"], ["--beam-width", 3], ["--threads", 9], ["--inflight", 2],
    )  # fmt: skip
    for flag, value in asked:
        said = run("plan", *job, flag, value)
        assert said.exit_code == 2
        assert f"{flag}: for the plan of an index; name the directory of one" in said.stderr


def test_a_kept_profile_from_before_processor_time_is_left_out_and_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("indexmill.jobs.devices.profiles.find_profile", lambda _: measured(cpu=False))
    named, hints = query_plans.profiles([], folder / "graph")
    assert [name for name, _ in named] == profile_names()
    assert "measured before" in hints[0]
    monkeypatch.setattr("indexmill.jobs.devices.profiles.find_profile", lambda _: measured())
    named, hints = query_plans.profiles([], folder / "graph")
    assert len(named) == len(profile_names()) + 1
    assert hints == []
