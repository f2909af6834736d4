"""Sweeps: their sizes, their table and their figure, on rows made by hand."""

from __future__ import annotations

import csv
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from indexmill.formats.errors import ConfigError, OutputExistsError
from indexmill.jobs.console.tables import stdout_console
from indexmill.jobs.score.figure import label_ends, new_figure, spread, to_axis
from indexmill.jobs.score.plot_sweep import curves, save_sweep
from indexmill.jobs.score.sweep import default_sizes, output_paths, write_table
from indexmill.jobs.score.table import score_table


def row(size: int, recall: float, policy: str = "page", entry: str = "centroids") -> dict[str, Any]:
    return {
        "L": size, "policy": policy, "entry": entry, "beam_width": 4, "k": 10, "n_queries": 1000, "threads": 2,
        "inflight": 8, "repeat": 1, "deterministic": True, "n_allowed": None, "cache_bytes": 0,
        "recall": recall, "recall_low": recall - 0.004, "recall_high": min(recall + 0.004, 1.0),
        "qps": 30000.0 / size, "latency_us_mean": 250.0 * size,
        "latency_us_p50": 240.0 * size, "latency_us_p99": 900.0 * size, "pages_read": 1.5 * size,
        "bytes_read": 6144.0 * size, "bytes_used": 2048.0 * size, "hops": size / 4, "engine": "io_uring",
        "device_iops": None, "device_fraction": None,
    }  # fmt: skip


def sweep(*pairs: tuple[str, str]) -> list[dict[str, Any]]:
    steps = ((10, 0.7), (20, 0.9), (80, 0.99), (240, 1.0))
    return [row(size, recall, *pair) for pair in pairs for size, recall in steps]


MANY = sweep(("beam", "centroids"), ("beam", "medoid"), ("page", "centroids"), ("page", "medoid"))


def test_default_sizes_are_about_geometric_and_never_below_k() -> None:
    assert default_sizes(10) == default_sizes(1) == [10, 15, 20, 30, 40, 60, 80, 120, 160, 240]
    assert default_sizes(100)[0] == 100
    for small, large in pairwise(default_sizes(37)):
        assert 1.3 < large / small < 1.6


def test_output_names_follow_a_directory_a_prefix_or_a_suffix(tmp_path: Path) -> None:
    def names(out: str) -> list[str]:
        return [str(path.relative_to(tmp_path)) for path in output_paths(str(tmp_path / out), False).values()]

    assert names("") == ["sweep.csv", "sweep.png", "sweep.svg"]
    assert names("run.2") == ["run.2.csv", "run.2.png", "run.2.svg"]
    assert names("run.parquet") == ["run.parquet", "run.png", "run.svg"]
    assert names("run.png") == ["run.csv", "run.png", "run.svg"]
    made = output_paths(f"{tmp_path}/new/", False)
    assert made["table"] == tmp_path / "new/sweep.csv"
    assert made["table"].parent.is_dir()


def test_outputs_that_exist_are_refused_without_force(tmp_path: Path) -> None:
    (tmp_path / "run.svg").write_text("mine")
    with pytest.raises(OutputExistsError, match=r"run\.svg"):
        output_paths(str(tmp_path / "run"), False)
    assert output_paths(str(tmp_path / "run"), True)
    with pytest.raises(ConfigError, match="does not exist"):
        output_paths(str(tmp_path / "none/run"), False)


def test_the_table_on_disk_has_every_key_of_every_row(tmp_path: Path) -> None:
    write_table(MANY, tmp_path / "t.csv")
    with open(tmp_path / "t.csv", encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line.keys() for line in lines] == [row.keys() for row in MANY]
    assert [float(line["recall"]) for line in lines] == [row["recall"] for row in MANY]
    assert {line["device_iops"] for line in lines} == {""}
    write_table(MANY, tmp_path / "t.parquet")
    table = pq.read_table(tmp_path / "t.parquet")
    assert table.to_pylist() == MANY
    assert str(table.schema.field("device_iops").type) == "double"


def test_equal_rows_give_equal_files(tmp_path: Path) -> None:
    for suffix, magic in ((".png", b"\x89PNG"), (".svg", b"<?xml")):
        first, second = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
        save_sweep(MANY, "an_index$x$", first)
        save_sweep(MANY, "an_index$x$", second)
        assert first.read_bytes() == second.read_bytes()
        assert first.read_bytes().startswith(magic)


def test_a_sweep_of_one_row_can_be_drawn(tmp_path: Path) -> None:
    save_sweep([row(20, 1.0)], "index", tmp_path / "one.svg")
    assert (tmp_path / "one.svg").stat().st_size > 0


def test_curves_are_named_by_what_differs() -> None:
    assert [curve.label for curve in curves(sweep(("page", "medoid")))] == ["page"]
    assert [c.label for c in curves(sweep(("page", "medoid"), ("beam", "medoid")))] == ["page", "beam"]
    assert [c.label for c in curves(sweep(("page", "medoid"), ("page", "centroids")))] == [
        "medoid",
        "centroids",
    ]
    drawn = curves(MANY)
    assert drawn[1].label == "beam, medoid"
    assert len({(curve.colour, curve.marker) for curve in drawn}) == 4


def test_the_recall_axis_gives_each_tenfold_drop_of_misses_the_same_room() -> None:
    assert to_axis([0.9, 0.99, 0.999, 1.0], 1e-4) == pytest.approx([1, 2, 3, 4])


def test_labels_move_apart_and_keep_their_order_and_mean() -> None:
    places = [0.5, 0.1, 0.52, 0.51, 0.9]
    moved = spread(places, 0.1)
    assert (moved[1], moved[4]) == (0.1, 0.9)
    assert sorted(range(5), key=moved.__getitem__) == sorted(range(5), key=places.__getitem__)
    assert sum(moved) == pytest.approx(sum(places))
    ordered = sorted(moved)
    assert all(b - a >= 0.1 - 1e-9 for a, b in pairwise(ordered))


def test_the_printed_table_fits_a_hundred_columns(capsys: pytest.CaptureFixture[str]) -> None:
    wide = [r | {"policy": "completion", "entry": "navigation", "device_fraction": 0.934} for r in MANY[:4]]
    stdout_console().print(score_table([*MANY, *wide]))
    shown = capsys.readouterr().out
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= 100
    assert "93%" in shown
    assert "completion" in shown


def test_names_of_curves_stand_level_with_their_last_points() -> None:
    made = new_figure(4, 3)
    axes = made.subplots()
    axes.set_yscale("log")
    curves = {"low": [90.0, 12.0], "high": [1000.0, 400.0]}
    for heights in curves.values():
        axes.plot([1, 2], heights)
    label_ends(axes, [(name, "black", (2, heights[-1])) for name, heights in curves.items()], 0.05, shrink=2)
    made.draw_without_rendering()
    to_share = axes.transData + axes.transAxes.inverted()
    level = [to_share.transform((2, heights[-1]))[1] for heights in curves.values()]
    assert [text.xyann[1] for text in axes.texts] == pytest.approx(level)
