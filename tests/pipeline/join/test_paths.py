"""Workers with storage of their own: batches are copied to it once, and nothing else is read."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.cli import run
from tests.support.indexes.built import Built
from tests.support.indexes.ivf import build_lists, join, make_vectors

import indexmill
from indexmill.formats.errors import BudgetError, ConfigError, CorruptFile, StorageError
from indexmill.formats.index.manifest import parse_manifest
from indexmill.formats.ivf.batch import batch_name
from indexmill.formats.ivf.centroids import CENTROIDS_NAME
from indexmill.formats.pagefile.frame import PAGE_BYTES
from indexmill.pipeline.execution.local import LocalExecutor
from indexmill.pipeline.join.options import JoinReport
from indexmill.pipeline.join.paths import copies
from indexmill.pipeline.join.paths import run as paths_run
from indexmill.pipeline.join.paths.copies import COPIES_NAME, Place, copy_batches, needed, using
from indexmill.pipeline.join.paths.run import Paths
from indexmill.pipeline.join.platform import Costs, Worker, read_platform
from indexmill.pipeline.join.split import Share, cover, plan_split

BATCHES, SPEEDS = 12, (3.0, 2.0, 1.0)
QUERIES = make_vectors("uint8", 50, seed=9)


class Disk(NamedTuple):
    """What `shutil.disk_usage` returns."""

    total: int
    used: int
    free: int


@pytest.fixture(scope="module")
def index(built: Built) -> Path:
    return built(build_lists, make_vectors("uint8", 250 * BATCHES), batch_vectors=250)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """Run workers in this process; what a test puts into the list is called once, after the first search of any."""
    meanwhile: list[Callable[[], None]] = []
    lock = threading.Lock()

    def call(task: Any, *arguments: Any, advance: Callable[[int], None], **keywords: Any) -> Any:
        def searched(n: int) -> None:
            with lock:
                while meanwhile:
                    meanwhile.pop()()
            advance(n)

        return task(*arguments, advance=searched, **keywords)

    monkeypatch.setattr(paths_run, "call_apart", call)
    return meanwhile


def crew(folder: Path, *speeds: float) -> list[Worker]:
    """Workers of these speeds, each with a path."""
    made = []
    for i, speed in enumerate(speeds or SPEEDS):
        path = folder / f"path-{i}"
        path.mkdir(exist_ok=True)
        made.append(Worker(f"w{i}", speed, speed, overlap=i % 2 == 0, path=str(path)))
    return made


def copied(worker: Worker) -> list[str]:
    """The batches on a worker's path."""
    assert worker.path is not None
    return sorted(path.name for path in Path(worker.path).glob("batch-*.imx"))


def searched(report: JoinReport) -> list[list[str]]:
    assert report.workers is not None
    return [sorted(map(batch_name, one.batches)) for one in report.workers]


def same(a: Path, b: Path) -> bool:
    return a.read_bytes() == b.read_bytes()


def test_processes_that_read_their_own_paths_give_the_result_of_one(index: Path, tmp_path: Path) -> None:
    workers = crew(tmp_path, 2.0, 1.0)
    join(index, QUERIES, tmp_path / "a.parquet")
    report = join(index, QUERIES, tmp_path / "b.parquet", platform=workers)
    assert same(tmp_path / "a.parquet", tmp_path / "b.parquet")
    assert searched(report) == [copied(worker) for worker in workers]
    assert report.workers is not None
    assert [one.stolen for one in report.workers] == [0, 0]


def test_batches_are_copied_once_and_the_index_is_not_read_again(
    index: Path, tmp_path: Path, here: list[Any]
) -> None:
    path, workers = tmp_path / "ix", crew(tmp_path)
    shutil.copytree(index, path)
    first = join(path, QUERIES, tmp_path / "a.parquet", platform=workers)
    held = [copied(worker) for worker in workers]
    assert searched(first) == held
    assert sorted({name for names in held for name in names}) == [batch_name(i) for i in range(BATCHES)]
    files = [file for worker in workers for file in Path(str(worker.path)).glob("*.imx")]
    assert first.copied_bytes == sum(file.stat().st_size for file in files)
    others = make_vectors("uint8", 40, seed=10)
    join(path, others, tmp_path / "b.parquet", nprobe=9)
    for batch in path.glob("batch-*.imx"):
        batch.unlink()
    again = join(path, others, tmp_path / "c.parquet", nprobe=9, platform=workers)
    assert same(tmp_path / "b.parquet", tmp_path / "c.parquet")
    assert again.copied_bytes == 0
    assert [copied(worker) for worker in workers] == held


def test_a_worker_without_a_path_reads_the_index(index: Path, tmp_path: Path, here: list[Any]) -> None:
    workers = [Worker("host", 6.0, 6.0), *crew(tmp_path, 1.0, 1.0)]
    join(index, QUERIES, tmp_path / "a.parquet")
    report = join(index, QUERIES, tmp_path / "b.parquet", platform=workers)
    assert same(tmp_path / "a.parquet", tmp_path / "b.parquet")
    host, *drives = searched(report)
    assert len(host) >= 8
    assert drives == [copied(worker) for worker in workers[1:]]


def test_rates_that_are_not_stated_are_measured(index: Path, tmp_path: Path, here: list[Any]) -> None:
    path, workers = tmp_path / "ix", [Worker(one.name, path=one.path) for one in crew(tmp_path)]
    shutil.copytree(index, path)
    join(path, QUERIES, tmp_path / "a.parquet")
    join(path, QUERIES, tmp_path / "b.parquet", platform=workers)
    assert same(tmp_path / "a.parquet", tmp_path / "b.parquet")
    for batch in path.glob("batch-*.imx"):  # they are measured from the paths
        batch.unlink()
    others = make_vectors("uint8", 40, seed=10)
    join(path, others, tmp_path / "c.parquet", platform=workers)
    join(index, others, tmp_path / "d.parquet")
    assert same(tmp_path / "c.parquet", tmp_path / "d.parquet")


def test_workers_without_rates_may_be_more_than_batches(tmp_path: Path, here: list[Any]) -> None:
    path = build_lists(tmp_path / "ix", make_vectors("uint8"), batch_vectors=1 << 20)
    workers = [Worker("host"), *(Worker(one.name, path=one.path) for one in crew(tmp_path))]
    join(path, QUERIES, tmp_path / "a.parquet")
    for name in ("b", "c"):
        join(path, QUERIES, tmp_path / f"{name}.parquet", platform=workers)
        assert same(tmp_path / "a.parquet", tmp_path / f"{name}.parquet")


def test_copies_for_measuring_do_not_divide_the_batches(
    index: Path, tmp_path: Path, here: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = [Worker("host", 1.0, 1.0), *(Worker(one.name, path=one.path) for one in crew(tmp_path))]

    def fill(*given: Any) -> int:
        raise BudgetError("no room")

    with monkeypatch.context() as patched:
        patched.setattr(Paths, "fill", fill)
        with pytest.raises(BudgetError, match="no room"):
            join(index, QUERIES, tmp_path / "b.parquet", platform=workers)
    assert [len(copied(worker)) for worker in workers[1:]] == [1, 1, 1]
    assert Paths.look(workers, parse_manifest(index), LocalExecutor(1)).windows(BATCHES) is None
    join(index, QUERIES, tmp_path / "a.parquet")
    join(index, QUERIES, tmp_path / "b.parquet", platform=workers)
    assert same(tmp_path / "a.parquet", tmp_path / "b.parquet")


def test_deletions_are_copied_alone(tmp_path: Path, here: list[Any]) -> None:
    vectors = make_vectors("uint8")
    path, workers = build_lists(tmp_path / "ix", vectors, batch_vectors=500), crew(tmp_path)
    join(path, QUERIES, tmp_path / "r.parquet", platform=workers)
    indexmill.delete(path, range(0, len(vectors), 3), by="vector")
    manifest = parse_manifest(path)
    assert manifest.deleted is not None
    (small,) = (entry.bytes for entry in manifest.files if entry.name == manifest.deleted["file"])
    join(path, QUERIES, tmp_path / "a.parquet")
    report = join(path, QUERIES, tmp_path / "b.parquet", platform=workers)
    assert report.copied_bytes == len(workers) * small
    assert same(tmp_path / "a.parquet", tmp_path / "b.parquet")


def test_paths_follow_an_append(tmp_path: Path, here: list[Any]) -> None:
    path, workers = build_lists(tmp_path / "ix", make_vectors("uint8"), batch_vectors=500), crew(tmp_path)
    join(path, QUERIES, tmp_path / "r.parquet", platform=workers)
    np.save(tmp_path / "more.npy", make_vectors("uint8", 300, seed=4))
    indexmill.append(path, tmp_path / "more.npy")
    join(path, QUERIES, tmp_path / "a.parquet")
    join(path, QUERIES, tmp_path / "b.parquet", platform=workers)
    assert same(tmp_path / "a.parquet", tmp_path / "b.parquet")


def test_a_copy_for_measuring_that_was_cut_short_leaves_no_earlier_version(
    tmp_path: Path, here: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, workers = build_lists(tmp_path / "ix", make_vectors("uint8"), batch_vectors=500), crew(tmp_path)
    join(path, QUERIES, tmp_path / "r.parquet", platform=workers)
    np.save(tmp_path / "more.npy", make_vectors("uint8", 300, seed=4))
    indexmill.append(path, tmp_path / "more.npy")
    manifest, place = parse_manifest(path), Place("w0", str(workers[0].path))
    copy, now = place.folder / CENTROIDS_NAME, path / CENTROIDS_NAME
    assert copy.stat().st_size == now.stat().st_size
    assert not same(copy, now)

    def fail(*given: Any) -> None:
        raise StorageError("no more")

    monkeypatch.setattr(copies, "atomic_write", fail)
    with pytest.raises(StorageError, match="no more"):
        copies.copy_one(place, str(path), manifest, 0)
    assert CENTROIDS_NAME not in copies.look(place, manifest).usable


def test_copies_that_a_killed_join_left_are_completed(index: Path, tmp_path: Path, here: list[Any]) -> None:
    workers = crew(tmp_path)
    join(index, QUERIES, tmp_path / "a.parquet", platform=workers)
    folder = Path(str(workers[0].path))
    missing = folder / copied(workers[0])[-1]
    size = missing.stat().st_size
    missing.unlink()
    (folder / f".{missing.name}.0123.tmp").write_bytes(b"half of it")
    held = [copied(worker) for worker in workers[1:]]
    report = join(index, QUERIES, tmp_path / "b.parquet", platform=workers)
    assert report.copied_bytes == size
    assert [copied(worker) for worker in workers[1:]] == held
    assert same(tmp_path / "a.parquet", tmp_path / "b.parquet")
    assert not list(folder.glob(".*.tmp"))


def test_a_path_that_vanishes_gives_one_error_and_loses_nothing(
    index: Path, tmp_path: Path, here: list[Any]
) -> None:
    workers = crew(tmp_path)
    join(index, QUERIES, tmp_path / "a.parquet", platform=workers)
    path, aside = Path(str(workers[1].path)), tmp_path / "aside"
    here.append(lambda: path.rename(aside))
    with pytest.raises(StorageError) as caught:
        join(index, QUERIES, tmp_path / "b.parquet", nprobe=9, platform=workers)
    assert str(caught.value).startswith(f"platform: worker w1: {path}: gone since the join began")
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match=f"platform: worker w1: {path}: no such folder; mount it"):
        join(index, QUERIES, tmp_path / "b.parquet", nprobe=9, platform=workers)
    aside.rename(path)
    report = join(index, QUERIES, tmp_path / "b.parquet", nprobe=9, platform=workers)
    assert report.reused > 0
    assert report.copied_bytes == 0
    join(index, QUERIES, tmp_path / "c.parquet", nprobe=9)
    assert same(tmp_path / "b.parquet", tmp_path / "c.parquet")


def test_a_damaged_copy_is_named_removed_and_made_anew(index: Path, tmp_path: Path, here: list[Any]) -> None:
    workers = crew(tmp_path)
    join(index, QUERIES, tmp_path / "a.parquet", platform=workers)
    file = Path(str(workers[2].path)) / copied(workers[2])[-1]
    good = file.read_bytes()
    bad = bytearray(good)
    for at in range(2 * PAGE_BYTES, len(good) - 2 * PAGE_BYTES, PAGE_BYTES):
        bad[at] ^= 1
    file.write_bytes(bad)
    with pytest.raises(
        CorruptFile, match=rf"(?s)1 of {BATCHES} batches cannot be read:\n.*{file}.*are copied anew"
    ):
        join(index, QUERIES, tmp_path / "b.parquet", nprobe=9, platform=workers)
    assert not file.exists()
    report = join(index, QUERIES, tmp_path / "b.parquet", nprobe=9, platform=workers)
    assert (report.reused, report.copied_bytes) == (BATCHES - 1, len(good))
    assert file.read_bytes() == good
    join(index, QUERIES, tmp_path / "c.parquet", nprobe=9)
    assert same(tmp_path / "b.parquet", tmp_path / "c.parquet")


def test_damaged_centroids_are_copied_anew(index: Path, tmp_path: Path, here: list[Any]) -> None:
    workers = crew(tmp_path)
    join(index, QUERIES, tmp_path / "a.parquet", platform=workers)
    file = Path(str(workers[1].path)) / "centroids.imx"
    good = file.read_bytes()
    file.write_bytes(good[:PAGE_BYTES] + bytes([good[PAGE_BYTES] ^ 1]) + good[PAGE_BYTES + 1 :])
    with pytest.raises(ConfigError, match=rf"run again to join what is there now \({file}: page 1"):
        join(index, QUERIES, tmp_path / "b.parquet", platform=workers)
    assert join(index, QUERIES, tmp_path / "b.parquet", platform=workers).copied_bytes == len(good)
    assert same(tmp_path / "a.parquet", tmp_path / "b.parquet")


def test_a_damaged_batch_of_the_index_is_not_copied(index: Path, tmp_path: Path, here: list[Any]) -> None:
    path, workers = tmp_path / "ix", crew(tmp_path)
    shutil.copytree(index, path)
    file = path / batch_name(0)
    data = bytearray(file.read_bytes())
    data[-PAGE_BYTES - 1] ^= 1
    file.write_bytes(data)
    with pytest.raises(CorruptFile, match=rf"{file}: SHA-256"):
        join(path, QUERIES, tmp_path / "r.parquet", platform=workers)
    assert batch_name(0) not in copied(workers[0])


def test_a_disk_without_room_is_refused_by_name_before_anything_is_copied(
    index: Path, tmp_path: Path, here: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = crew(tmp_path)
    join(index, QUERIES, tmp_path / "a.parquet", platform=workers)
    sizes = [sum(file.stat().st_size for file in Path(str(one.path)).glob("*.imx")) for one in workers]
    for one in workers:
        shutil.rmtree(str(one.path))
    crew(tmp_path)
    for free in (0, sum(sizes) - 1):  # each has room then, all together have not
        monkeypatch.setattr(copies.shutil, "disk_usage", lambda path, free=free: Disk(1 << 40, 0, free))
        with pytest.raises(
            BudgetError, match=rf"platform: worker w0 \(.*w2.*take [\d,]+ bytes more, {free:,} are"
        ):
            join(index, QUERIES, tmp_path / "b.parquet", platform=workers)
        assert [list(Path(str(one.path)).iterdir()) for one in workers] == [[], [], []]
    monkeypatch.setattr(copies.shutil, "disk_usage", lambda path: Disk(1 << 40, 0, sum(sizes)))
    join(index, QUERIES, tmp_path / "b.parquet", platform=workers)
    monkeypatch.setattr(copies.shutil, "disk_usage", lambda path: Disk(1 << 40, 0, 0))
    join(index, QUERIES, tmp_path / "c.parquet", nprobe=9, platform=workers)  # nothing is missing


def test_paths_of_another_index_or_of_other_files_are_refused_by_name(
    index: Path, tmp_path: Path, here: list[Any]
) -> None:
    workers = crew(tmp_path)
    other = build_lists(tmp_path / "other", make_vectors("uint8", 400, seed=5), batch_vectors=100)
    join(other, QUERIES, tmp_path / "o.parquet", platform=workers)
    message = rf"platform: worker w0: {workers[0].path}: holds batches of another index, {other} \(build id"
    with pytest.raises(ConfigError, match=message):
        join(index, QUERIES, tmp_path / "r.parquet", platform=workers)
    (Path(str(workers[0].path)) / COPIES_NAME).unlink()
    with pytest.raises(ConfigError, match=r"worker w0: .*: holds other files, such as batch-"):
        join(index, QUERIES, tmp_path / "r.parquet", platform=workers)
    with pytest.raises(ConfigError, match="holds other files"):
        join(index, QUERIES, tmp_path / "r.parquet", platform=[Worker("w", 1.0, 1.0, path=str(index))])
    (Path(str(workers[1].path)) / COPIES_NAME).write_text("{}")
    with pytest.raises(CorruptFile, match=r"platform: worker w1: .*; empty the folder"):
        join(index, QUERIES, tmp_path / "r.parquet", platform=workers[1:])


def test_workers_with_one_folder_are_refused(index: Path, tmp_path: Path) -> None:
    (one,) = crew(tmp_path, 1.0)
    (tmp_path / "link").symlink_to(str(one.path))
    two = Worker("twin", 1.0, 1.0, path=str(tmp_path / "link"))
    with pytest.raises(ConfigError, match=r"platform: workers w0 and twin: .*link is one folder"):
        join(index, QUERIES, tmp_path / "r.parquet", platform=[one, two])


def test_copies_in_use_are_not_changed(index: Path, tmp_path: Path, here: list[Any]) -> None:
    workers = crew(tmp_path)
    join(index, QUERIES, tmp_path / "a.parquet", platform=workers)
    more = [*workers, *crew(tmp_path, *SPEEDS, 6.0)[3:]]  # needs another division
    with using(Place("w0", str(workers[0].path))):
        with pytest.raises(ConfigError, match=r"platform: worker w0: .*another join uses it"):
            join(index, QUERIES, tmp_path / "b.parquet", platform=more)
        join(index, QUERIES, tmp_path / "b.parquet", platform=workers)
    report = join(index, QUERIES, tmp_path / "c.parquet", platform=more)
    assert all(set(a) <= set(copied(b)) for a, b in zip(searched(report), more, strict=True))
    assert same(tmp_path / "a.parquet", tmp_path / "c.parquet")


def test_copies_that_another_join_removes_before_the_lock_is_taken_are_made_anew(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, (worker,) = parse_manifest(index), crew(tmp_path, 1.0)
    place = Place(worker.name, str(worker.path))
    copy_batches(place, str(index), manifest, range(4))

    @contextmanager
    def slow(place: Place, *, alone: bool = False) -> Iterator[None]:
        monkeypatch.setattr(copies, "using", using)
        copy_batches(place, str(index), manifest, range(8, 10))
        with using(place, alone=alone):
            yield

    monkeypatch.setattr(copies, "using", slow)
    n_bytes = copy_batches(place, str(index), manifest, range(2, 6))
    assert copied(worker) == [batch_name(i) for i in range(2, 6)]
    assert n_bytes == sum(
        entry.bytes for entry in needed(manifest, range(2, 6)) if entry.name in copied(worker)
    )
    assert copy_batches(place, str(index), manifest, range(2, 6)) == 0


def test_copies_that_another_join_changes_before_they_are_searched_are_missed_by_name(
    index: Path, tmp_path: Path, here: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, workers = parse_manifest(index), crew(tmp_path, 1.0, 1.0)
    place, fill = Place("w1", str(workers[1].path)), Paths.fill

    def filled(self: Paths, *arguments: Any) -> int:
        n_bytes = fill(self, *arguments)
        copy_batches(place, str(index), manifest, range(2))
        return n_bytes

    with monkeypatch.context() as patch:
        patch.setattr(Paths, "fill", filled)
        with pytest.raises(
            StorageError,
            match=rf"^platform: worker w1: {place.path}: batch-.*another join changed the copies",
        ):
            join(index, QUERIES, tmp_path / "a.parquet", platform=workers)
    assert copied(workers[1]) == [batch_name(0), batch_name(1)], "the copies of the other join are kept"
    report = join(index, QUERIES, tmp_path / "a.parquet", platform=workers)
    assert report.reused > 0
    join(index, QUERIES, tmp_path / "b.parquet")
    assert same(tmp_path / "a.parquet", tmp_path / "b.parquet")


def test_the_memory_of_all_processes_is_counted(index: Path, tmp_path: Path, here: list[Any]) -> None:
    workers, memory = crew(tmp_path), 600 << 20
    join(index, QUERIES, tmp_path / "r.parquet", memory=memory)
    with pytest.raises(BudgetError, match="memory: two batches of"):
        join(index, QUERIES, tmp_path / "r.parquet", memory=memory, platform=workers)


def test_a_file_names_paths(index: Path, tmp_path: Path, here: list[Any]) -> None:
    np.save(tmp_path / "q.npy", QUERIES)
    crew(tmp_path, 1.0, 1.0)
    text = f'[[worker]]\nname = "drive"\ncount = 2\nload_mb_s = 1\ncompare_m_s = 1\npath = "{tmp_path}/path-{{}}"\n'
    (tmp_path / "p.toml").write_text(text)
    workers = read_platform(tmp_path / "p.toml")
    assert [one.path for one in workers] == [f"{tmp_path}/path-0", f"{tmp_path}/path-1"]
    done = run(
        "join", tmp_path / "q.npy", index, "--nprobe", 4, "--platform", tmp_path / "p.toml",
        "--out", tmp_path / "r.parquet",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "bytes were copied to the paths of workers" in done.output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('path = "data"', r"\(a\): path: expected the absolute path of a folder, got 'data'"),
        ('path = "s3://bucket/a"', "path: expected the absolute path of a folder"),
        (
            'path = "/data"\ncount = 2',
            "path: /data is one folder, for 2 workers; write {} where their number",
        ),
    ],
)
def test_a_path_that_cannot_be_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "p.toml").write_text(f'[[worker]]\nname = "a"\n{text}')
    with pytest.raises(ConfigError, match=message):
        read_platform(tmp_path / "p.toml")


def test_windows_cover_batches_only_without_a_gap() -> None:
    assert cover([range(3), range(2, 6)], 6)
    assert cover([range(6), range(2, 4), range(0)], 6)
    assert not cover([range(3), range(4, 6)], 6)
    assert not cover([range(3), range(3, 5)], 6)
    assert not cover([range(3, 6), range(3)], 6)  # workers take batches in their order


def divided(workers: list[Worker], costs: Costs, windows: Sequence[range]) -> list[Share]:
    """Divide lists among filled paths: each worker gets only what its path holds, and all get every list once."""
    shares = plan_split(workers, costs, windows)
    for share, window in zip(shares, windows, strict=True):
        assert {piece.span.batch for piece in share.pieces} <= set(window)
    pieces = [piece.span for share in shares for piece in share.pieces]
    assert [(b, i) for b, first, last in pieces for i in range(first, last)] == [
        (b, i) for b, begin, end in costs.spans.tolist() for i in range(begin, end)
    ]
    return shares


@pytest.mark.parametrize(
    ("rates", "windows", "lists"),
    [
        pytest.param(
            [1.0, 1.0], [range(3), range(3, 4)], [(0, 1e5), (1, 7e5), (2, 3e5), (3, 1e4)],
            id="sums-of-pieces-round-otherwise",
        ),
        pytest.param(
            [1.0, 1e-6, 1.0], [range(2), range(0), range(1, 2)], [(0, 1e8), (1, 1e4), (1, 5e7), (1, 5e7)],
            id="a-worker-without-batches-after-a-sliver",
        ),
        pytest.param(
            [1.0, 1.0], [range(2), range(0)], [(0, 1e5), (1, 0.0)],
            id="a-worker-without-batches-after-lists-without-vectors",
        ),
    ],
)  # fmt: skip
def test_workers_get_only_what_their_paths_hold(
    rates: list[float], windows: list[range], lists: list[tuple[int, float]]
) -> None:
    batches, n_bytes = zip(*lists, strict=True)
    spans = np.array(
        [(b, batches[:i].count(b), batches[:i].count(b) + 1) for i, b in enumerate(batches)], np.int64
    )
    compares = np.minimum(n_bytes, 1e5)
    costs = Costs(spans, np.array(n_bytes), compares, compares)
    workers = [Worker(f"w{i}", rate, rate, overlap=False) for i, rate in enumerate(rates)]
    divided(workers, costs, windows)


@given(
    seed=st.integers(0, 2**32 - 1), batches=st.integers(1, 12), lists=st.integers(1, 30), n=st.integers(1, 9),
    overlap=st.booleans(),
)  # fmt: skip
@settings(deadline=None, derandomize=True)
def test_a_division_among_filled_paths_is_of_what_they_hold_and_no_slower_than_the_one_they_were_filled_by(
    seed: int, batches: int, lists: int, n: int, overlap: bool
) -> None:
    rng = np.random.default_rng(seed)
    spans = np.array([(b, i, i + 1) for b in range(batches) for i in range(lists)], np.int64)
    costs = [Costs(spans, *rng.lognormal(0, 1, (3, len(spans))) * 1e5) for _ in range(2)]
    workers = [Worker(f"w{i}", *rng.lognormal(0, 1, 2), overlap=overlap) for i in range(n)]
    first = plan_split(workers, costs[0])
    windows = [
        range(share.pieces[0].span.batch, share.pieces[-1].span.batch + 1) if share.pieces else range(0)
        for share in first
    ]
    assert cover(windows, batches)
    refilled = divided(workers, costs[0], windows)
    assert max(one.seconds for one in refilled) <= 1.01 * max(one.seconds for one in first)
    divided(workers, costs[1], windows)
