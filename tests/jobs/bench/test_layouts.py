"""The benchmark of layouts: with made-up fits and searches, and with a small real index."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.bench import N_QUERIES, FakeOurs, fake, fake_row

from indexmill.jobs.bench.common import intervals, parameters, record, tables
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import (
    Dataset,
    count_hits,
    read_bin,
    text_set,
    write_bin,
    write_truth,
)
from indexmill.jobs.bench.embed import formats
from indexmill.jobs.bench.layouts import __main__ as layouts
from indexmill.jobs.bench.layouts import cases
from indexmill.jobs.bench.layouts import fit as layouts_fit
from indexmill.jobs.bench.layouts import log as layouts_log
from indexmill.jobs.bench.layouts import reads as layouts_reads
from indexmill.jobs.bench.layouts import units as layouts_units
from indexmill.jobs.bench.layouts import written as layouts_written
from indexmill.jobs.bench.layouts.__main__ import BENCHMARK, SHAPES, TARGETS
from indexmill.jobs.bench.layouts.cases import Case, Layouts, make_space
from indexmill.jobs.bench.layouts.reads import Views
from indexmill.jobs.bench.programs import ours
from indexmill.jobs.bench.programs.ours import lockstep
from indexmill.jobs.bench.programs.workspace import Workspace

ORDERS = ("identity", "random", "star", "gorder", "gorder-windowed", "agglomerative")
#: Page reads of the made-up orders; `gorder` is best on the tuning half, as far as page search tells.
PAGES = {
    "identity": 2.0,
    "random": 2.1,
    "star": 1.0,
    "gorder": 0.8,
    "gorder-windowed": 0.9,
    "agglomerative": 0.85,
}


def pages_of(order: str, policy: str) -> float:
    if policy == "beam":
        return 3.0
    return PAGES[order] * (0.9 if policy == "pipeline" else 1.0)


class FakeViews:
    """Stands in for views (`Index.remapped`): a view is the name of its order."""

    def __init__(self, case: Case) -> None:
        return None

    def view(self, order: str) -> str:
        return order

    def search(self, view: str, setting: Any) -> Callable[[int, str], dict[str, Any]]:
        return lambda size, half: fake_row(size, half, pages_of(view, setting.policy))

    def units(self, view: str, setting: Any, size: int, units: dict[str, int]) -> dict[str, float]:
        return {name: size * pages_of(view, setting.policy) for name in units}


class Written(FakeOurs):
    """Indexes that were written in an order, named ``ORDER-CASE``; those of options are like `agglomerative`."""

    def ask(self, index: str, setting: Any, size: int, half: str, **others: Any) -> dict[str, Any]:
        order = re.split("-sift1m|-text40k|-embed768", index)[0].removesuffix("-R48")
        order = "agglomerative" if order in ("auto", "pruned") or order.startswith("log-") else order
        return fake_row(size, half, pages_of(order, setting.policy))


def fake_fit(case: Case, name: str, folder: Path, held: bool = False) -> dict[str, Any]:
    """Costs of an order: Gorder takes long and is run once."""
    size = {"star": 24e6, "gorder": 160e6}.get(name, 30e6)
    return {
        "seconds": {"star": 2.0, "gorder": 30.0}.get(name, 5.0),
        "bytes": size + (140e6 if held else 0.0),
        "process_bytes": size + 2e8,
        "note": None,
        "work": 7,
        "metrics": {
            "overlap_ratio": 0.2,
            "in_page_edges": 0.1,
            "page_compactness": 0.6,
            "compactness_error": 0.01,
        },
    }


def raw_sets(folder: Path, rows: int, dim: int = 16) -> tuple[Path, Path]:
    """Write a set of bytes and one of floats in Parquet, each with its truth."""
    rng = np.random.default_rng(5)
    sift, text = folder / "sift", folder / "text"
    for path in (sift, text):
        path.mkdir()
    centres = rng.integers(0, 200, (20, dim))
    for name, n in (("base", rows), ("query", 2 * N_QUERIES)):
        vectors = centres[rng.integers(20, size=n)] + rng.integers(0, 50, (n, dim))
        write_bin(sift / f"{name}.u8bin", vectors)
        write_bin(text / f"{name}.fbin", vectors / 250)
        flat = pa.array(read_bin(text / f"{name}.fbin").ravel())
        column = pa.FixedSizeListArray.from_arrays(flat, dim)
        pq.write_table(pa.table({"embedding": column}), text / f"{name}.parquet")
    for path in (sift, text):
        write_truth(Dataset(path))
    return sift, text


def made_up(folder: Path, patch: pytest.MonkeyPatch) -> Layouts:
    """Cases of made-up fits and searches."""
    fake(patch)
    from indexmill.layout import portfolio

    patch.setattr(portfolio, "ORDERS", dict.fromkeys(ORDERS))
    patch.setattr(intervals, "DRAWS", 8)
    shape = {"n_vectors": 1000, "dim": 16, "R": 32, "pq_bytes": 32, "nodes_per_page": 15, "build_id": "ab"}
    for module in (layouts, layouts_fit, layouts_log, layouts_reads, layouts_units):
        patch.setattr(module, "facts", lambda case: shape)
    patch.setattr(Case, "ensure", lambda case: None)
    patch.setattr(ours, "Ours", Written)
    patch.setattr(layouts_fit, "fit_once", fake_fit)
    patch.setattr(layouts_fit, "orders", lambda case, names=ORDERS: {name: name for name in names})
    command = {"wall_s": 12.0, "growth_bytes": 25e6, "process_bytes": 110e6, "to_index": 25 / 310}
    patch.setattr(layouts_fit, "command", lambda case, order: {"order": order, **command})

    @contextmanager
    def unpacked(case: Case) -> Any:
        yield case.folder

    patch.setattr(layouts_fit, "unpacked", unpacked)
    for module in (layouts_reads, layouts_units, layouts_written):
        patch.setattr(module, "Views", FakeViews)
    packed = {"star": "identity"}, {"pages": 2.5, "units": 0.6}
    patch.setattr(layouts_units, "packed_orders", lambda case: packed)
    patch.setattr(layouts_reads, "write", lambda case, order: case.laid_out(order))
    cost = {"wall_s": 20.0, "cpu_s": 30.0, "stage_s": {}, "told_peak_bytes": 9e7}

    def lay_out(case: Case, name: str, options: dict[str, Any]) -> dict[str, Any]:
        if layouts_written.PRUNE in options:
            raise RuntimeError(
                "exit code 8 of: indexmill layout\nerror: /a/path: nothing was published: it reads more"
            )
        return cost

    patch.setattr(layouts_written, "lay_out", lay_out)
    made = {"order": "agglomerative", "overlap_ratio": 0.1, "in_page_edges": 0.1, "page_compactness": 0.1}
    made["choice"] = {"sample_vectors": 50_000, "candidates": []}
    made["query_log"] = {"chosen": "weighted", "judged_repeats": 0.2, "bundles": 4, "bundled_vectors": 240}
    patch.setattr(ours, "manifest", lambda index: {"layout": made, "graph": {"mean_degree": 32}})
    sift, text = raw_sets(folder, 300)
    sets = {"sift1m": Dataset(sift), "text40k": text_set(text, folder / "text40k"), "embed768": Dataset(text)}
    run = Run("layouts", sets, folder / "out")
    run.out.mkdir()
    return make_space(run, SHAPES)


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layouts:
    return made_up(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The record of all parts, which is not to be changed."""
    with pytest.MonkeyPatch.context() as patch:
        space = made_up(tmp_path_factory.mktemp("made-up"), patch)
        assert BENCHMARK.run(space.run) == []
        return record.load(space.run.results)


def test_every_part_is_measured_recorded_and_rendered(
    space: Layouts, measured: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = copy.deepcopy(measured)
    record.save(found, space.run.results)
    assert list(found["parts"]) == list(BENCHMARK.parts)
    assert [one["name"] for one in found["data"]] == ["sift1m", "text40k", "embed768"]
    assert '"queries": {"hits"' not in json.dumps(found), "what each query cost stays out of the record"
    text = BENCHMARK.render(found, "record.json")
    context = {name.replace("-", "_"): part for name, part in found["parts"].items()}
    for target in TARGETS:
        assert target.what in text
        assert target.measured(context) is not None
    for title in (
        "sift1m-R48",
        "text40k-R32",
        "Larger reads of sift1m-R32",
        "What auto chooses",
        "The default order",
        "Orders from queries",
        "The best order beside DiskANN",
        "Beside the paper",
    ):
        assert f"### {title}" in text
    assert "kept none: it reads more |" in text
    page = space.run.out / "page.md"
    assert "| embed768 | 190 | 20% | weighted |" in BENCHMARK.render(found, "record.json", "log")
    for template in ("tables", "guide"):
        page.write_text("before\n<!-- layouts: begin -->\nold\n<!-- layouts: end -->\nafter\n")
        shown = BENCHMARK.render(found, "record.json", template)
        tables.write_into(page, shown, "layouts")
        assert shown in page.read_text()
        assert "\nold\n" not in page.read_text()
    assert "| agglomerative | 5.0 | 30 |" in page.read_text()
    assert (
        "| order | 4 KiB | 64 KiB | 1 MiB |\n| --- | ---: | ---: | ---: |\n| identity | " in page.read_text()
    )
    assert re.search(r"\n\| star \| ([\d.]+) \| \1 \([\d.]+\) \| \1 \([\d.]+\) \|\n", page.read_text())
    monkeypatch.setattr(
        layouts_written, "lay_out", lambda case, name, options: {"wall_s": 20.0, "cpu_s": 30.0}
    )
    pruned = BENCHMARK.parts["prune-sift1m-R32"](space)
    # In `Written` a pruned index reads what `agglomerative` reads; it is laid out as the best order is.
    assert pruned["order"] == "gorder"
    assert pruned["policies"]["page"]["to_order"]["0.95"]["value"] == pytest.approx(0.85 / 0.8)
    found["parts"]["prune-sift1m-R32"] |= pruned
    assert "| sift1m-R32 | gorder |" in BENCHMARK.render(found, "record.json")


def test_figures_are_those_of_the_searches_and_fits(measured: dict[str, Any]) -> None:
    found = measured["parts"]
    reads, fit, speed = found["reads-sift1m-R32"], found["fit-sift1m-R32"], found["speed"]
    assert reads["best"] == speed["best"] == "gorder"
    for policy in ("page", "pipeline"):
        for entry in ("navigation", "centroids"):
            ratios = reads["ratios"][f"{policy} {entry}"]
            assert ratios["star / identity"]["0.95"]["value"] == pytest.approx(0.5)
            assert ratios["best / star"]["0.98"]["value"] == pytest.approx(0.8)
    assert reads["written"]["worst"] == 0
    assert all(row["same_pages_each"] for row in reads["written"]["rows"])
    assert fit["gorder_to_star_s"] == pytest.approx(15)
    assert fit["star_to_gorder_bytes"] == pytest.approx(24 / 160)
    assert fit["star_to_gorder_held_bytes"] == pytest.approx(24 / 300)
    assert len(fit["orders"]["star"]["runs"]) == layouts_fit.REPEATS
    assert len(fit["orders"]["gorder"]["runs"]) == 1
    assert speed["pages_ratio"]["page"]["0.95"]["value"] == pytest.approx(0.8 / 3)
    assert speed["ratio"]["gorder page"]["0.95"]["value"] == pytest.approx(3 / 0.8)
    assert speed["to_identity"]["star page"]["0.95"]["value"] == pytest.approx(2)
    default = found["default-embed768"]
    assert default["order"] == "agglomerative"
    for policy in ("page", "pipeline"):
        assert default["policies"][policy]["to_star"]["0.95"]["value"] == pytest.approx(0.85)
    assert [found[f"command{of}-sift1m-R48"]["order"] for of in ("", "-default")] == ["star", "agglomerative"]
    assert found["auto-text40k-R32"]["policies"]["page"]["to_star"]["0.95"]["value"] == pytest.approx(0.85)


def test_of_a_log_and_of_what_judges_it_the_same_share_repeats() -> None:
    queries = np.random.default_rng(1).integers(0, 256, (400, 16), np.uint8)
    for share in layouts_log.SHARES:
        both = layouts_log.repeating(queries, share, 4.0)
        assert both.dtype == np.uint8
        distances = np.abs(both[:, None].astype(np.int64) - queries).max(axis=2)
        nearest = distances.argmin(axis=1)
        assert (distances.min(axis=1) < 40).all()
        log, judging = np.split(nearest, 2)
        popular = np.setdiff1d(np.arange(400), np.random.default_rng(parameters.SEED).permutation(400)[20:])
        for part in (log, judging):
            assert np.isin(part, popular).sum() == round(share * 190)
        distinct = nearest[~np.isin(nearest, popular)]
        assert len(np.unique(distinct)) == len(distinct), "no other query is there twice"


def test_a_near_copy_lies_at_a_seventh_of_the_distance_of_the_tenth_neighbour(tmp_path: Path) -> None:
    for folder in raw_sets(tmp_path, 300):
        data = Dataset(folder)
        queries = np.asarray(read_bin(data.query), np.float64)
        distances = ((queries[:, None] - np.asarray(read_bin(data.base), np.float64)) ** 2).sum(axis=2)
        tenth = np.sqrt(np.median(np.sort(distances, axis=1)[:, 9]))
        noise = np.random.default_rng(1).normal(0, layouts_log.noise_of(data), queries.shape)
        assert np.linalg.norm(noise, axis=1).mean() == pytest.approx(tenth / 7, rel=0.05)


def test_the_index_of_embeddings_has_the_format_that_a_build_chooses(
    space: Layouts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    built: list[Any] = []
    monkeypatch.setattr(formats, "ensure", lambda case, name, **flags: built.append((case, name, flags)))
    case = space.cases["embed768"]
    case.ensure()
    assert [(case.metric, name, flags) for case, name, flags in built] == [
        ("cosine", "identity", {"order": "identity"})
    ]
    assert case.index == space.run.out / "embed768" / "indexmill-identity"


def test_the_best_order_is_chosen_by_the_tuning_queries_alone(
    space: Layouts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def search(self: FakeViews, view: str, setting: Any) -> Callable[[int, str], dict[str, Any]]:
        worse = {"tune": 1.0, "report": 3.0 if view == "gorder" else 1.0}
        return lambda size, half: fake_row(size, half, worse[half] * pages_of(view, setting.policy))

    monkeypatch.setattr(FakeViews, "search", search)
    found = layouts_reads.measure(space.cases["sift1m-R32"])
    assert found["best"] == "gorder"
    assert found["ratios"]["page navigation"]["best / star"]["0.95"]["value"] == pytest.approx(2.4)
    assert found["written"]["worst"] == pytest.approx(2), "a view that is off its index is told"


def test_an_order_that_does_not_reach_the_recall_is_not_the_best() -> None:
    rows = [{"L": 10, "recall": 0.9, "pages_read": 1.0}, {"L": 20, "recall": 0.97, "pages_read": 2.0}]
    short = [{"L": 10, "recall": 0.8, "pages_read": 0.1}]
    assert layouts_reads.choose({"star page": rows, "random page": short}, ["random", "star"]) == "star"
    with pytest.raises(ValueError, match="longer lists"):
        layouts_reads.choose({"random page": short}, ["random"])


def test_speed_without_page_reads_names_the_part_to_run(space: Layouts) -> None:
    with pytest.raises(FileNotFoundError, match="--parts reads-sift1m-R32"):
        BENCHMARK.parts["speed"](space)


def test_answers_are_counted_alike_for_bytes_and_floats(tmp_path: Path) -> None:
    sift, text = raw_sets(tmp_path, 200)
    for folder in (sift, text):
        data = Dataset(folder)
        base, queries = (np.asarray(read_bin(path), np.float64) for path in (data.base, data.query))
        ids = ((queries[:, None] - base) ** 2).sum(axis=2).argsort(axis=1, kind="stable")[:, :10]
        truth = np.take_along_axis(((queries[:, None] - base) ** 2).sum(axis=2), ids, 1)
        assert data.base.suffix == {"sift": ".u8bin", "text": ".fbin"}[folder.name]
        assert (
            count_hits(ids, read_bin(data.base), read_bin(data.query), truth.astype(np.float32)) == 10
        ).all()


def test_a_real_index_is_fitted_searched_written_and_laid_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from indexmill.layout import portfolio

    some = {name: portfolio.ORDERS[name] for name in ("identity", "star", "gorder")}
    monkeypatch.setattr(portfolio, "ORDERS", some)
    sift, _ = raw_sets(tmp_path, 1500)
    space = Workspace(Dataset(sift), tmp_path)
    shape = ours.Shape("identity", pq_bytes=4)
    case = Case("sift1m-R32", space, shape, (10, 14, 20, 28, 40), tmp_path / "case")
    case.folder.mkdir()
    case.ensure()
    monkeypatch.setattr(layouts_fit, "REPEATS", 1)
    fit = layouts_fit.measure(case)
    assert fit["index"]["nodes_per_page"] == cases.nodes_per_page(case)
    assert (
        fit["orders"]["star"]["metrics"]["overlap_ratio"]
        > fit["orders"]["identity"]["metrics"]["overlap_ratio"]
    )
    command = layouts_fit.command(case, "star")
    assert 0 < command["growth_bytes"] < command["process_bytes"]
    orders = layouts_fit.orders(case)
    views = Views(case)
    setting = lockstep("page", "navigation")
    written = layouts_reads.write(case, "star")
    view = views.search(views.view(orders["star"]), setting)(20, "report")
    with ours.Ours(space) as searcher:
        real = searcher.ask(written, setting, 20, "report", engine="pread")
    assert view["queries"]["pages_read"] == real["queries"]["pages_read"]
    assert view["queries"]["hits"] == real["queries"]["hits"]
    packed, seconds = layouts_units.packed_orders(case)
    assert sorted(packed) == ["gorder", "star"]
    assert sorted(packed["star"].tolist()) == list(range(1500))
    assert min(seconds.values()) > 0
    counted = views.units(views.view(orders["star"]), setting, 20, layouts_units.UNITS)
    assert counted["4 KiB"] == pytest.approx(view["pages_read"])
    assert counted["4 KiB"] > counted["64 KiB"] > counted["1 MiB"] >= 1
    plain = views.search(views.view(np.arange(1500)), setting)(20, "report")
    assert plain["pages_read"] > view["pages_read"]
    queries, truth = case.tuning_files()
    assert np.array_equal(read_bin(queries), read_bin(space.data.query)[:N_QUERIES])
    assert truth.stat().st_size == 8 + 8 * N_QUERIES * 100
