"""The simulated platform has the shape of the paper's figures, and tables of joins can be written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexmill.formats.ivf.index import IvfFiles
from indexmill.jobs.bench.common.dataset import Dataset, read_bin
from indexmill.jobs.bench.common.generate import generate
from indexmill.jobs.bench.join import __main__ as joins
from indexmill.jobs.bench.join.__main__ import BENCHMARK as JOIN
from indexmill.jobs.bench.split import paper
from indexmill.jobs.bench.split.__main__ import BENCHMARK as SPLIT

PART = {"started": "2026-11-21T00:00:00+00:00", "commit": "0", "load_before": 0.1}
RECORD: dict[str, Any] = {
    "machine": {"cpu": "x", "cores": 2, "memory_bytes": 1, "kernel": "k"},
    "versions": {"peer": []},
    "data": [{"name": "d", "n_vectors": 1, "dim": 1, "dtype": "uint8"}],
}


@pytest.fixture(scope="module")
def rates() -> paper.Rates:
    return paper.fit_rates()


def test_two_ratios_of_the_paper_foretell_its_split(rates: paper.Rates) -> None:
    first, _, billion, _ = paper.hybrids(rates)
    assert first["anywhere"]["d_host"] == pytest.approx(29e6, rel=0.02)
    assert first["anywhere"]["d_drive"] == pytest.approx(2.6e6, rel=0.02)
    assert first["anywhere"]["hybrid_to_host"] == pytest.approx(1.73, rel=0.02)
    assert billion["anywhere"]["hybrid_to_host"] == pytest.approx(paper.HYBRID_8, rel=0.01)
    assert first["anywhere"]["spread"] < 0.01


def test_a_host_stops_gaining_from_drives_where_drives_go_on(rates: paper.Rates) -> None:
    found = paper.scaling(rates, 5e7)
    assert found["host"]["8"] > 1.7 * found["host"]["1"]
    assert found["host"]["24"] < 1.1 * found["host"]["8"]
    assert found["drives"]["24"] == pytest.approx(24 * found["drives"]["1"], rel=0.02)


def test_drives_that_compute_save_energy(rates: paper.Rates) -> None:
    kj = paper.energy(rates)["kj"]
    assert kj["hybrid, 24"] < kj["hybrid, 8"] < kj["host, 8 drives"] < kj["host, 1 drive"]


def test_faults_cost_more_the_slower_they_are(rates: paper.Rates) -> None:
    ratios = list(paper.virtual_memory(rates, 5e7, 0.25)["bss_to_mapped"].values())
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[1] > 8


def test_queries_are_written_again_where_another_number_is_asked_for(tmp_path: Path) -> None:
    space = joins.Joins(Dataset(tmp_path / "none"), tmp_path, 500)
    few = np.array(read_bin(space.generated(20).query))
    written = space.generated(20).base.stat().st_mtime_ns
    more = read_bin(space.generated(50).query)
    assert more.shape == (50, 128)
    np.testing.assert_array_equal(more[:20], few)
    assert space.generated(50).base.stat().st_mtime_ns == written
    assert len(read_bin(joins.Joins(space.data, tmp_path, 600).generated(20).base)) == 600


def test_parts_that_search_build_the_index_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = Dataset(tmp_path / "set")
    generate(data.folder, 300, 10, 1)
    monkeypatch.setattr(joins, "LISTS", 4)
    space = joins.Joins(data, tmp_path, 300)
    index = space.ensure()
    assert IvfFiles(index).batch_sizes() == [300]
    written = (index / "manifest.json").stat().st_mtime_ns
    assert space.ensure() == index
    assert (index / "manifest.json").stat().st_mtime_ns == written


def test_tables_tell_what_was_measured(rates: paper.Rates) -> None:
    search = {
        "recall1": 0.9,
        "recall10": 0.8,
        "seconds": [0.1],
        "faiss_seconds": [0.2],
        "to_faiss": 2.0,
        "same_ids": 1.0,
    }
    agreement = {"queries_with_other_lists": 1, "differ_in_same_lists": 0}
    parts = {
        "build": PART | {"mb_s_a_core": 5.0},
        "search": PART | {"queries": 10, "nprobe": {n: search | agreement for n in ("1", "4", "32")}},
        "beyond": PART | {
            "qps": {
                "bss": 90.0, "mapped": 10.0, "mapped-random": 5.0, "faiss-ondisk": 20.0, "faiss-ondisk-random": 9.0,
            },
            "bss_to_mapped": 9.0, "bss_to_ondisk": 4.5,
            "list_bytes": 100, "cache_bytes": 25, "nprobe": 32, "threads": 2,
        },
    }  # fmt: skip
    text = JOIN.render(RECORD | {"parts": parts}, "r.json")
    assert "| queries a second beyond memory, over the same lists mapped | 9.000 | >= 8 | x | yes |" in text
    assert "| the same lists mapped, query after query | 10 | 9.0x |" in text
    assert "faiss over bytes" not in text
    text = JOIN.render(
        RECORD | {
            "parts": parts | {
                "search-bytes": parts["search"], "beyond-1": parts["beyond"] | {"nprobe": 1, "queries": 10_000},
            }
        },
        "r.json",
    )  # fmt: skip
    assert "### Search of a batch in memory, faiss over bytes" in text
    assert "### Beyond memory, nprobe 1" in text
    assert "2 threads, 10,000 queries in the order given" in text
    simulated = PART | {
        "host_compare_m_s": rates.host, "drive_compare_m_s": rates.drive,
        "virtual_memory": paper.virtual_memory(rates, 5e7, 0.25),
        "scaling": paper.scaling(rates, 5e7), "hybrids": paper.hybrids(rates),
        "energy": paper.energy(rates),
    }  # fmt: skip
    text = SPLIT.render(RECORD | {"parts": {"simulated": simulated}}, "r.json")
    assert "Nothing here was measured" in text
    assert "Two processes" not in text
    assert "| 9a: 50M, nprobe 1 | 8 | 1.73x | 1.71x | -1.3% | 29.3 | 2.6 | 1.42x | 100% |" in text


def test_tables_tell_measured_paths_from_simulated_ones() -> None:
    times = {str(n): 6.0 / n for n in paper.DRIVES}
    common = {"queries": 10, "batches": 40, "nprobe": 32, "copied_bytes": 5_000_000, "same": True}
    parts = {
        "paths": PART | common | {
            "load_mb_s": 40.0, "compare_m_s": {"host": 200.0, "drive": 100.0},
            "seconds": {"host": 4.0, "drive": 6.5, "two": 3.25}, "host_to_one": 4.0 / 3.25, "drives_to_one": 2.0,
            "simulated": {"host": times, "drives": times},
        },
        "two-processes": PART | common | {"wall_s": {"one": 4.0, "two": 5.0}, "worker_s": 3.5},
        "ray": PART | common | {"wall_s": {"one": 8.0, "ray": 9.0}, "worker_s": 4.5},
    }  # fmt: skip
    text = SPLIT.render(RECORD | {"parts": parts}, "r.json")
    assert "| 2 | 3.25 | 3.00 | 3.25 | 3.00 | 2.00x | 2.00x |" in text
    assert "| 24 |  | 0.25 |  | 0.25 | 24.00x | 24.00x |" in text
    assert (
        "| queries a second, two drives with paths of their own over one | 2.000 | >= 1.8 | x | yes |" in text
    )
    assert "| two processes | 5.00 | 3.50 | 5 |" in text
    assert "| two nodes of Ray | 9.00 | 4.50 | 5 |" in text
    assert "| the same bytes by two processes (1: yes) | 1.000 | >= 1 |  | yes |" in text
