"""Programs of other projects: their files are DiskANN's and their own, what they print is read by its columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from subprocess import TimeoutExpired

import numpy as np
import pytest

from indexmill.jobs.bench.common.curves import Half, Row
from indexmill.jobs.bench.common.dataset import Dataset, write_bin, write_neighbours
from indexmill.jobs.bench.peers_disk import engines
from indexmill.jobs.bench.peers_disk.__main__ import SIZES, costs_of, fastest, fewest, tuning_sweep
from indexmill.jobs.bench.programs.workspace import Workspace

COLUMNS = ("L", "qps", "recall")
N_VECTORS, DIM, N_QUERIES = 400, 8, 6


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    """A small set, and files that stand for DiskANN's index of it."""
    rng = np.random.default_rng(5)
    data = Dataset(tmp_path / "data")
    data.folder.mkdir()
    for name, rows in (("base", N_VECTORS), ("query", N_QUERIES)):
        write_bin(data.folder / f"{name}.u8bin", rng.integers(0, 256, (rows, DIM)))
    write_neighbours(data.truth, np.zeros((N_QUERIES, 10)), np.zeros((N_QUERIES, 10)))
    found = Workspace(data, tmp_path / "out")
    found.diskann_index.mkdir(parents=True)
    for name in ("ann_disk.index", "ann_pq_compressed.bin", "ann_mem.index.data"):
        (found.diskann_index / name).write_bytes(name.encode())
    write_centres(found.diskann_index / "ann_pq_pivots.bin")
    return found


def write_centres(path: Path) -> list[np.ndarray]:
    """Write a file of PQ centres as DiskANN 0.7 does: an array of offsets, then three arrays from byte 4,096 on."""
    rng = np.random.default_rng(7)
    arrays = [
        rng.random((256, DIM), np.float32),
        rng.random((DIM, 1), np.float32),
        np.array([[0], [4], [DIM]], "<u4"),
    ]
    blocks = [np.array(one.shape, "<u4").tobytes() + one.tobytes() for one in arrays]
    ends = np.cumsum([4096, *(len(block) for block in blocks)]).astype("<u8")
    head = np.array([len(ends), 1], "<u4").tobytes() + ends.tobytes()
    path.write_bytes(head.ljust(4096, b"\0") + b"".join(blocks))
    return arrays


def read_arrays(path: Path) -> list[np.ndarray]:
    """Read the arrays behind the offsets of such a file; the last offset is its end."""
    n_offsets, columns = np.fromfile(path, "<u4", 2)
    assert columns == 1
    offsets = np.fromfile(path, "<u8", n_offsets, offset=8)
    assert offsets[-1] == path.stat().st_size
    found = []
    for i, offset in enumerate(offsets[:-1]):
        rows, columns = np.fromfile(path, "<u4", 2, offset=int(offset))
        dtype = "<f4" if i < 2 else "<u4"
        found.append(np.fromfile(path, dtype, rows * columns, offset=int(offset) + 8).reshape(rows, columns))
    return found


def test_the_last_lines_of_a_table_count() -> None:
    text = (
        "loading 1 2\n  L  QPS  Recall@10\n====\n 20  1500.5  93.10\n 20  1717.53  95.20\nDone searching. 3\n"
    )
    assert engines.rows_of(text, COLUMNS, 1) == [{"L": 20, "qps": 1717.53, "recall": pytest.approx(0.952)}]


def test_a_program_that_prints_no_table_is_an_error_that_shows_its_end() -> None:
    with pytest.raises(RuntimeError, match=r"3 columns L, qps, recall: .*cannot open"):
        engines.rows_of("cannot open the index 1 2", COLUMNS, 1)


def test_centres_gain_the_order_of_components_that_earlier_releases_wrote(tmp_path: Path) -> None:
    centres, mean, chunks = write_centres(tmp_path / "new")
    engines.write_pivots(tmp_path / "new", tmp_path / "old")
    found = read_arrays(tmp_path / "old")
    for array, expected in zip(found, (centres, mean, np.arange(DIM)[:, None], chunks), strict=True):
        np.testing.assert_array_equal(array, expected)


def test_a_sample_holds_one_vector_in_a_hundred_beside_its_rows(space: Workspace, tmp_path: Path) -> None:
    data, ids = engines.write_sample(space, tmp_path)
    rows = np.fromfile(ids, "<u4", offset=8)
    assert len(rows) == N_VECTORS // engines.ONE_IN
    assert tuple(np.fromfile(data, "<u4", 2)) == (len(rows), DIM)
    base = np.fromfile(space.data.base, "u1", offset=8).reshape(-1, DIM)
    np.testing.assert_array_equal(np.fromfile(data, "u1", offset=8).reshape(-1, DIM), base[rows])


def fake(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_a_programs_files_are_made_once_for_each_graph_and_leave_diskanns_alone(
    space: Workspace, tmp_path: Path
) -> None:
    sources, calls = tmp_path / "sources", tmp_path / "calls"
    fake(
        sources / "build/tests/build_memory_index",
        f'echo "$4" >> {calls}; echo made > "$4"; echo made > "$4.data"',
    )
    before = {path.name: path.read_bytes() for path in space.diskann_index.iterdir()}
    for _ in range(2):
        folder = engines.prepared(space, "pipeann", sources)
        assert calls.read_text().split() == [str(folder / "ann_mem.index")]
    assert (folder / "ann_disk.index").read_bytes() == b"ann_disk.index"
    (space.diskann_index / "ann_disk.index").write_bytes(b"another graph")
    assert engines.prepared(space, "pipeann", sources) == folder
    assert len(calls.read_text().split()) == 2
    after = {path.name: path.read_bytes() for path in space.diskann_index.iterdir()}
    assert after == before | {"ann_disk.index": b"another graph"}


def test_files_that_a_program_failed_to_make_are_made_again(space: Workspace, tmp_path: Path) -> None:
    sources, program = tmp_path / "sources", tmp_path / "sources/build/tests/build_memory_index"
    fake(program, "echo no memory >&2; exit 1")
    with pytest.raises(RuntimeError, match="no memory"):
        engines.prepared(space, "pipeann", sources)
    fake(program, 'echo made > "$4"')
    folder = engines.prepared(space, "pipeann", sources)
    assert (folder / "ann_mem.index").read_text() == "made\n"


@pytest.mark.parametrize(
    ("name", "program", "line", "series"),
    [
        ("pipeann", "build/tests/search_disk_index", "20 32 1500.5 900 1100 0 17.5 95.2", engines.PIPEANN_MODES),
        ("starling", "release/tests/search_disk_index", "20 4 1500.5 900 1100 17.5 0 29 29 30 95.2", ["Starling"]),
    ],
)  # fmt: skip
def test_each_setting_of_a_program_is_a_command_of_its_own(
    space: Workspace, tmp_path: Path, name: str, program: str, line: str, series: list[str]
) -> None:
    sources, calls = tmp_path / "sources", tmp_path / "calls"
    fake(sources / program, f'echo "$NO_SQPOLL" "$@" >> {calls}; echo {line}; echo {line}')
    searches = engines.PROGRAMS[name].searches(space, sources, tmp_path)
    assert list(searches) == list(series)
    settings = [sweep for one in searches.values() for sweep in one.values()]
    for sweep in settings:
        (row,) = sweep([20], "report")
        assert (row["L"], row["qps"], row["pages_read"], row["recall"]) == (
            20,
            1500.5,
            17.5,
            pytest.approx(0.952),
        )
    commands = calls.read_text().splitlines()
    assert len(set(commands)) == len(settings)
    assert all("20 20" in command for command in commands)
    assert all(f"queries-3-{N_QUERIES}.u8bin" in command for command in commands)


def test_a_setting_that_takes_too_long_has_no_rows() -> None:
    def slow(sizes: Sequence[int], half: Half) -> list[Row]:
        raise TimeoutExpired(["search"], 1)

    assert tuning_sweep(slow) == []


def test_tuning_stops_at_the_highest_recall_of_interest() -> None:
    recalls = [0.5, 0.9, 0.97, 0.99, *[1.0] * (len(SIZES) - 4)]

    def known(sizes: Sequence[int], half: Half) -> list[Row]:
        return [{"L": size, "recall": recall} for size, recall in zip(sizes, recalls, strict=True)]

    assert [row["recall"] for row in tuning_sweep(known)] == recalls[:4]


def test_the_fastest_setting_and_the_one_with_the_fewest_reads_count_unreached_ones_last() -> None:
    low, high = {"L": 10, "recall": 0.94}, {"L": 20, "recall": 0.96}
    tried = costs_of(
        {
            "a": [],
            "b": [low | {"qps": 1000.0, "pages_read": 10.0}, high | {"qps": 800.0, "pages_read": 14.0}],
            "c": [low | {"qps": 1100.0, "pages_read": 15.0}, high | {"qps": 800.0, "pages_read": 15.0}],
        }
    )
    assert tried[0] == {"setting": "a", "qps": None, "reads": None}
    assert tried[1] == {"setting": "b", "qps": pytest.approx(900), "reads": pytest.approx(12)}
    assert (fastest(tried), fewest(tried)) == ("c", "b")
