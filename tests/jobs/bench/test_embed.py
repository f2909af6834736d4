"""The benchmark of embeddings: its sets, the choice among formats, and its tables, with made-up builds and searches."""

from __future__ import annotations

import itertools
import json
import re
from argparse import Namespace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.support.bench import N_QUERIES, FakeOurs, fake_row, faked

from indexmill.jobs.bench.common import tables
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.curves import value_at
from indexmill.jobs.bench.common.dataset import Dataset, read_bin, read_truth, write_bin, write_truth
from indexmill.jobs.bench.embed import default, dimensions, formats, hand, on_page, plots, sets, wide
from indexmill.jobs.bench.embed.__main__ import BENCHMARK, TARGETS
from indexmill.jobs.bench.embed.sets import Case, Embeddings, Lift
from indexmill.jobs.bench.programs import diskann, native, ours
from indexmill.jobs.bench.programs.workspace import Workspace

__all__ = ["faked"]
#: Format of an index that is built without flags.
CHOSEN = {"pq_bytes": 64, "pq_rotation": "opq", "node_dtype": "sq8", "keep_vectors": False, "max_degree": 63}
#: Parts that need no long vectors.
PARTS = (
    "build", "default", "portfolio", "former", "others", "wide", "on-page", "dimensions-384", "frontier-384",
    "dimensions-768", "frontier-768",
)  # fmt: skip


def unit_rows(n: int, dim: int, seed: int, latent: int = 6) -> Any:
    """Draw rows of length 1 that have a few coordinates of their own."""
    random = np.random.default_rng(seed)
    rows = np.tanh(
        random.standard_normal((n, latent)) @ np.random.default_rng(9).standard_normal((latent, dim))
    )
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def written(folder: Path, dim: int, suffix: str = ".fbin") -> Dataset:
    folder.mkdir()
    for name, n, seed in (("base", 300, 1), ("query", 2 * N_QUERIES, 2)):
        rows = unit_rows(n, dim, seed)
        write_bin(folder / f"{name}{suffix}", rows if suffix == ".fbin" else 100 * rows + 128)
    write_truth(Dataset(folder))
    return Dataset(folder)


class Formats(FakeOurs):
    """Searches that read more pages without a rotation, with larger nodes, and with 32 neighbours."""

    made: ClassVar[list[dict[str, Any]]] = []

    def ask(self, index: str, setting: Any, size: int, half: str, **others: Any) -> dict[str, Any]:
        one = self.made[-1]
        cost = {"sq8": 1.0, "sq16": 1.3, "same": 2.0}[one["node_dtype"]]
        cost *= (1.0 if one["pq_rotation"] == "opq" else 2.0) * (1.2 if one["max_degree"] == 32 else 1.0)
        return fake_row(size, half, cost, self.hardness)


def fake_build(
    case: Case, name: str, work: Path | None = None, base: Path | None = None, **flags: Any
) -> dict[str, Any]:
    """Stand in for `formats.build`: flags decide the format, as does the memory of searches."""
    for folder in (case.space.index(name), work):
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
    limit = flags.pop("search_memory", None)
    stated = {"max_degree" if name == "R" else name: value for name, value in flags.items()}
    chosen = CHOSEN if limit is None else CHOSEN | {"pq_bytes": int(limit.removesuffix("/vector"))}
    Formats.made.append({**chosen, **stated})
    return {"wall_s": 50.0, "cpu_s": 90.0, "peak_bytes": 1 << 30, **fake_facts(case.space.index(name))}


def fake_facts(index: Path) -> dict[str, Any]:
    return {
        "format": Formats.made[-1],
        "stage_s": {"ingest": 1.0, "format": 5.0},
        "index_bytes": 200_000_000,
        "held_bytes": 16_000_000,
        "chosen_by": None,
    }


def fake_diskann(space: Workspace) -> dict[str, Any]:
    space.diskann_index.mkdir()
    (space.diskann_index / "ann_disk.index").write_bytes(bytes(1000))
    return {"wall_s": 500.0, "cpu_s": 900.0, "peak_bytes": 2 << 30}


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faked: None) -> Embeddings:
    def truth(log: Path, *words: object, **options: object) -> None:
        write_truth(Dataset(Path(str(words[1])).parent))

    monkeypatch.setattr(Formats, "made", [])
    monkeypatch.setattr(ours, "Ours", Formats)
    monkeypatch.setattr(diskann, "build", fake_diskann)
    monkeypatch.setattr(diskann, "python", lambda space: None)
    monkeypatch.setattr(formats, "build", fake_build)
    monkeypatch.setattr(formats, "facts", fake_facts)
    monkeypatch.setattr(formats, "warm_up", lambda case: None)
    monkeypatch.setattr(native, "c_example", lambda space: Path("search"))
    peaks = itertools.cycle([9, 8, 30, 10, 9])
    resident = {"before": 3 * 2.0**20, "opened": 4 * 2.0**20, "searched": 7 * 2.0**20, "memory_bytes": 1.0}
    monkeypatch.setattr(native, "memory_of_search", lambda *asked: (next(peaks) * 2.0**20, 4 * 2.0**20))
    monkeypatch.setattr(native, "cost_of_opening", lambda *asked: ([1.0], resident))
    monkeypatch.setattr(
        on_page, "open_seconds",
        lambda indexes: [0.002 if index.name.endswith(on_page.NAME) else 0.001 for index in indexes],
    )  # fmt: skip
    monkeypatch.setattr(
        on_page, "pages_per_node", lambda index: 2 if index.name.endswith(on_page.NAME) else 1
    )
    monkeypatch.setattr(default, "calibration", lambda data: 20.0)
    monkeypatch.setattr(sets, "run_indexmill", truth)
    sentences = written(tmp_path / "sentences", 768)
    given = {"embed768": sentences, "text40k": sentences, "sift1m": written(tmp_path / "sift", 16, ".u8bin")}
    return Embeddings(Run("embed", given, tmp_path / "out", options=Namespace(rounds=2)), 2)


def test_every_part_is_measured_recorded_and_rendered(space: Embeddings, tmp_path: Path) -> None:
    about = {"started": "2026-01-02T03:04:05", "commit": "abc", "load_before": 0.1}
    data = [{"name": "embed768", "n_vectors": 300, "dim": 768, "dtype": "float32"}]
    record = json.loads(json.dumps({
        "data": data,
        "machine": {"cpu": "a", "cores": 2, "memory_bytes": 1 << 30, "kernel": "b"},
        "versions": {"python": "3", "peer": ["diskannpy==0.7.0"]},
        "parameters": {"R": 32, "L": 75, "pq_bytes": 64},
        "parts": {name: about | BENCHMARK.parts[name](space) for name in PARTS},
    }))  # fmt: skip
    text = BENCHMARK.render(record, "record.json")
    assert "not reached" not in text
    measured = {name.replace("-", "_"): part for name, part in record["parts"].items()}
    for target in (one for one in TARGETS if one.part in measured):
        assert target.what in text
        assert target.measured(measured) is not None, tables.part_of(target.figure)
    assert "| choice of the format / rest of the build, seconds | 0.111 | <= 0.1 | x | **no** |" in text
    assert "| embed768 | 768 | 128-byte codes, rotated, sq8 nodes, R = 63 |" in text
    assert "| the same, 384 components, one build | 0.111 | <= 0.1 | x | **no** |" in text
    assert "| reads of a node at 0.95, codes on the page / in memory | 0.500" in text
    assert "| ratio of page reads | 1.000x | 1.000x | 1.000x |" in text
    assert "holds 53,333 bytes a vector" in text
    assert "| time to open with all vectors / a quarter of them | 2.000 | <= 1.25 | x | **no** |" in text
    (quarter,) = re.findall(
        r"\| sift1m \| 75 \|.*R = 63 \| 1 \| 200 \| (\d+) \|  \| 9\.0 \| 4\.0 \| 3\.0 \| 7\.0 \|", text
    )
    assert re.search(rf"\| sift1m \| 300 \|.*R = 63 \| 2 \| 200 \| {quarter} \| 0\.9\d+ \| 9\.0 \|", text)
    assert re.search(
        r"\| sift3m \| 225 \|.*R = 63 \| 1 \| 200 \| \d+ \|  \| 9\.0 \| 4\.0 \| 3\.0 \| 7\.0 \| 1\.00 \|",
        text,
    )
    assert re.search(r"\| sift3m \| 900 \|.*R = 63 \| 2 \| 200 \| \d+ \| 0\.9\d+ \| 9\.0 \|", text)
    assert "| embed768, 64 | 64-byte codes, rotated, sq8 nodes, R = 63 |" in text
    assert '"queries": {"hits"' not in json.dumps(record), "what each query cost stays out of the record"
    assert "| R = 148 | 50.0 | 90.0 | 1.00 | 200 |" in text
    assert "| of queries a second | 1.00x | 1.00x | 1.00x |" in text
    tune = BENCHMARK.render(record, "record.json", "tune")
    assert [line.split(" | ")[:2] for line in tune.splitlines()[2:6]] == [
        ["| 384", "63"], ["| 384", "73"], ["| 768", "63"], ["| 768", "148"],
    ]  # fmt: skip
    assert (
        "With R = 148 in place of 63 a build of the vectors of 768 components took 1.00x the processor time"
        in tune
    )
    guide = BENCHMARK.render(record, "record.json", "guide")
    assert "| 384 | 256 | 256-byte codes, rotated, sq8 nodes, R = 63 |" in guide
    tables_end = [line for line in text.splitlines() if line.startswith("|") and not line.endswith("|")]
    assert tables_end == []
    plots.write_all(record, tmp_path / "images")
    assert {path.name for path in (tmp_path / "images").iterdir()} == {"embeddings.png", "embeddings.svg"}


def test_a_record_of_a_part_alone_has_its_tables_and_no_picture(space: Embeddings, tmp_path: Path) -> None:
    record = {
        "data": [],
        "machine": {"cpu": "a", "cores": 2, "memory_bytes": 1 << 30, "kernel": "b"},
        "versions": {"peer": []},
        "parts": {"former": {"started": "2026", "commit": "c", "load_before": 0.1, **hand.former(space)}},
    }
    text = BENCHMARK.render(record, "r.json")
    assert "### Beside the former default" in text
    assert "### By components" not in text
    plots.write_all(record, tmp_path / "images")
    assert not (tmp_path / "images").exists()


def test_c_programs_search_reported_queries_with_the_list_that_reaches_the_recall(
    space: Embeddings, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, list[tuple[str, Any]]] = {}

    def hardness(place: Workspace) -> float:
        return {"sift1m": 6.0, sets.REPEATED: 20.0}.get(place.out.name, 11.0)

    class Unequal(Formats):
        def __init__(self, place: Workspace) -> None:
            super().__init__(place)
            self.hardness = hardness(place)

    def memory_of_search(
        program: Path, index: Path, queries: Path, options: list[str]
    ) -> tuple[float, float]:
        asked.setdefault(f"{index.parent.name}/{index.name}", []).append(
            (options[1], np.array(read_bin(queries)))
        )
        return 1.0, 1.0

    monkeypatch.setattr(ours, "Ours", Unequal)
    monkeypatch.setattr(native, "memory_of_search", memory_of_search)
    found = on_page.measure(space)
    sizes = {name: [row["size"] for row in rows] for name, rows in found["sets"].items()}
    assert sizes["sift1m"][1] < sizes["embed768"][1] < sizes["sift3m"][1]
    assert all(quarter == whole for quarter, whole in sizes.values())
    for name, rows in found["sets"].items():
        place = space.case(name).space
        recalls = [
            fake_row(rows[1]["size"] - less, "tune", 1.0, hardness(place))["recall"] for less in (1, 0)
        ]
        assert recalls[0] < 0.95 <= recalls[1]
        assert rows[1]["recall"] == fake_row(rows[1]["size"], "report", 1.0, hardness(place))["recall"]
        reported = read_bin(place.data.query)[place.halves["report"][0] :][: on_page.QUERIES]
        for row, index in zip(rows, (f"{on_page.NAME}-{on_page.QUARTER}", on_page.NAME), strict=True):
            runs = asked[f"{place.out.name}/{place.index(index).name}"]
            assert len(runs) == on_page.RUNS
            assert {size for size, _ in runs} == {f"L={row['size']}"}
            assert all(np.array_equal(queries, reported) for _, queries in runs)
    assert not list(space.run.out.rglob(f"indexmill-{on_page.NAME}*")), "their space is needed by later parts"


def test_the_least_list_that_reaches_the_recall_is_found_or_missed_by_name() -> None:
    def search(least: int) -> Any:
        return lambda size, half: {"recall": 0.95 if size >= least and half == "tune" else 0.5}

    assert [formats.least_size(search(least)) for least in (1, 10, 11, 57, 1280)] == [10, 10, 11, 57, 1280]
    with pytest.raises(RuntimeError, match=r"recall@10 is below 0\.95 with L = 1280"):
        formats.least_size(search(1281))


def test_indexes_whose_time_to_open_is_compared_are_opened_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("indexmill.reader.index.Index", lambda path, engine: opened.append(path.name))
    assert len(on_page.open_seconds([Path("quarter"), Path("whole")])) == 2
    assert opened == on_page.OPENED * ["quarter", "whole"]


def test_reads_below_those_of_the_shortest_list_are_told_as_at_most_these(space: Embeddings) -> None:
    found = dimensions.measure(space, 768)
    found["pages_read"] |= {"0.90": None, "0.98": None}
    found["rows"] = [
        {"L": 10, "recall": 0.93, "pages_read": 12.34},
        {"L": 14, "recall": 0.97, "pages_read": 14.0},
    ]
    parts = {"dimensions-768": {"started": "2026", "commit": "c", "load_before": 0.1, **found}}
    record = {
        "data": [],
        "machine": {"cpu": "a", "cores": 2, "memory_bytes": 1 << 30, "kernel": "b"},
        "versions": {"peer": []},
        "parts": parts,
    }
    (row,) = [
        line
        for line in BENCHMARK.render(record, "r.json").splitlines()
        if line.startswith("| embed768 | 768 |")
    ]
    assert row.split(" | ")[3] == "at most 12.3"
    assert row.split(" | ")[5] == "not reached"


def test_flags_by_hand_are_tried_one_after_the_other_from_the_best_so_far(space: Embeddings) -> None:
    case = space.case("embed768")
    found = hand.by_hand(case, 64, (32, 63), case.space.out / "work")
    flags = [(one.flags["pq_rotation"], one.flags["R"], one.flags["node_dtype"]) for one in found]
    assert flags == [
        ("none", 32, "sq8"), ("none", 63, "sq8"), ("opq", 32, "sq8"), ("opq", 63, "sq8"), ("opq", 148, "sq8"),
        ("opq", 63, "sq16"), ("opq", 63, "same"), ("opq", 63, "sq8"),
    ]  # fmt: skip
    assert [one.flags.get("keep_vectors", False) for one in found] == [False] * 7 + [True]
    assert formats.best(found) is found[3]
    assert not case.space.index("tried").exists()
    of_bytes = hand.by_hand(space.case("sift1m"), 32, (32,), case.space.out / "work")
    assert {one.flags["node_dtype"] for one in of_bytes} == {"same"}


def test_the_default_is_held_against_the_best_by_hand_on_the_reported_queries(
    space: Embeddings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CHOSEN, "pq_rotation", "none")
    found = hand.beside_hand(space.case("embed768"), {}, space.run.out / "work")
    assert found["best"]["flags"]["pq_rotation"] == "opq"
    assert found["ratio"] == {"value": pytest.approx(2), "low": pytest.approx(2), "high": pytest.approx(2)}
    assert found["recall"] == 0.95
    assert found["reads"]["default"]["value"] == pytest.approx(2 * found["reads"]["best"]["value"])


def test_formats_are_compared_above_the_recall_of_the_shortest_lists(
    space: Embeddings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Formats, "hardness", 4.0)
    found = hand.beside_hand(space.case("embed768"), {}, space.run.out / "work")
    least = min(row["recall"] for row in found["default"]["rows"])
    assert found["recall"] == least > 0.95
    assert found["ratio"]["value"] == pytest.approx(1)
    assert value_at(found["default"]["rows"], "pages_read", least) is not None


def test_more_neighbours_leave_as_many_nodes_on_a_page_where_they_fit(space: Embeddings) -> None:
    def wide_degree(dim: int, degree: int) -> int:
        return wide.wide_degree(dim, {"node_dtype": "sq8", "max_degree": degree})

    assert [wide_degree(384, 49), wide_degree(768, 63), wide_degree(1536, 64)] == [73, 148, 127]


def test_the_metric_is_what_a_user_of_the_vectors_gives(space: Embeddings) -> None:
    assert space.case("sift1m").metric is None
    assert space.case("text40k").metric == "cosine"
    assert space.case("embed768").space.out == space.run.out
    assert space.case("text40k").space.out == space.run.out / "text40k"


def test_halves_have_length_one_and_truth_of_their_own(space: Embeddings) -> None:
    data = space.case("embed384").space.data
    source = space.run.sets["embed768"]
    rows, whole = read_bin(data.base), read_bin(source.base)
    assert rows.shape == (300, 384)
    assert np.linalg.norm(rows, axis=1) == pytest.approx(1, abs=1e-6)
    assert np.allclose(
        rows * np.linalg.norm(whole[:, :384], axis=1, keepdims=True), whole[:, :384], atol=1e-6
    )
    ids, distances = read_truth(data.truth)
    exact = ((read_bin(data.query)[:, None] - rows[ids[:, 0]][:, None]) ** 2).sum(axis=2)[:, 0]
    assert np.allclose(distances[:, 0], exact, atol=1e-5)
    assert 0.5 < sets.likeness(data, source)["same_neighbours"] < 1
    assert sets.likeness(source, source)["same_neighbours"] == 1


def test_lifted_vectors_have_the_neighbours_of_the_vectors_that_they_are_made_of(tmp_path: Path) -> None:
    source = written(tmp_path / "source", 64)
    made = Dataset(tmp_path / "made")
    made.folder.mkdir()
    sets.write_changed(source, made.folder, 512, Lift(64, 512))
    write_truth(made)
    rows = read_bin(made.base)
    assert rows.shape == (300, 512)
    assert np.linalg.norm(rows, axis=1) == pytest.approx(1, abs=1e-5)
    assert 0.8 < sets.likeness(made, source)["same_neighbours"] <= 1
    assert np.linalg.matrix_rank(np.asarray(rows, np.float64)) > 64, (
        "they fill more than the source's components"
    )
    again = Lift(64, 512)(np.asarray(read_bin(source.base)))
    assert np.allclose(again, rows, atol=1e-6)


def test_rows_are_changed_block_by_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = written(tmp_path / "source", 8)
    for rows in (7, 1000):
        monkeypatch.setattr(sets, "ROWS", rows)
        folder = tmp_path / str(rows)
        folder.mkdir()
        sets.write_changed(source, folder, 4, sets.half)
    assert (tmp_path / "7" / "base.fbin").read_bytes() == (tmp_path / "1000" / "base.fbin").read_bytes()


def test_repeated_vectors_are_near_those_that_they_repeat(space: Embeddings) -> None:
    case, source = space.case(sets.REPEATED), np.array(read_bin(space.run.sets["sift1m"].base), np.int64)
    rows = np.array(read_bin(case.space.data.base), np.int64)
    assert (rows.shape, case.metric) == ((sets.TIMES * 300, 16), None)
    first, *others = np.split(rows, sets.TIMES)
    assert np.array_equal(first, source)
    for copy in others:
        assert 0 < np.abs(copy - source).max() <= sets.NOISE
    assert not np.array_equal(*others)
    assert read_truth(case.space.data.truth)[0].max() > 300


def test_words_that_are_asked_for_are_not_in_the_base(tmp_path: Path) -> None:
    sets.write_words(tmp_path, None)
    base, queries = (np.array(read_bin(tmp_path / f"{name}.fbin")) for name in ("base", "query"))
    assert (len(base), len(queries)) == (18_000, 2_000)
    rows = {row.tobytes() for row in base}
    assert sum(row.tobytes() in rows for row in queries) < 20, "some words have equal vectors"
    sets.write_words(tmp_path, 500)
    assert np.array_equal(read_bin(tmp_path / "base.fbin"), base[:500])


def test_the_choice_of_a_format_is_told_as_a_share_of_the_rest() -> None:
    assert default.added_by_format({"wall_s": 55.0, "stage_s": {"format": 5.0}}) == pytest.approx(0.1)
    assert default.added_by_format({"wall_s": 55.0, "stage_s": {"build": 5.0}}) == 0


def test_points_of_the_picture_are_the_formats_that_reach_the_recall() -> None:
    def row(n_bytes: int, pages: float | None) -> dict[str, Any]:
        found = None if pages is None else {"value": pages, "low": pages, "high": pages}
        return {"format": {"pq_bytes": n_bytes}, "pages_read": {"0.95": found}}

    parts = {"dimensions-384": row(64, 20.0), "frontier-384": {"rows": [row(16, None), row(256, 10.0)]}}
    assert [one["format"]["pq_bytes"] for one in dimensions.by_bytes(parts, 384)] == [16, 64, 256]
    assert plots.frontier(parts, 384) == [(64.0, 20.0), (256.0, 10.0)]
    assert plots.frontier(parts, 768) == []
