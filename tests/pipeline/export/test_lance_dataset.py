"""An index of a Lance dataset, with a dataset that stands in for pylance: groups, resuming, versions, refusals."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from tests.oracles.ivf import nearest_cells
from tests.support.cli import run as run_command
from tests.support.indexes.ivf import DIM, build_lists, make_vectors

import indexmill
from indexmill.formats.errors import ConfigError, IndexmillError, InputError, OutputExistsError
from indexmill.formats.exports.lance.dataset import Fragment, RowBatch, vector_column
from indexmill.formats.ivf.index import IvfFiles
from indexmill.pipeline.export.lance import run, tasks
from indexmill.pipeline.export.lance.tasks import GROUP_BYTES, grouped, model_of
from indexmill.pipeline.urls.storage import MIRROR_VARIABLE, open_storage

LISTS, ROWS, FRAGMENTS = 6, 50, 8


class Standing:
    """A dataset in memory, of fragments of `ROWS` rows, with the methods of `LanceDataset`."""

    def __init__(self) -> None:
        self.rows = make_vectors("float32", FRAGMENTS * ROWS, seed=5)
        self.state = {number: f"{number}" for number in range(FRAGMENTS)}
        self.latest_version = 1
        self.field_id = 0
        self.indexes: dict[str, list[dict[str, Any]]] = {}
        #: UUID of the only segment of each.
        self.committed: dict[str, str] = {}
        #: Columns of indexes that others made, by name.
        self.others: dict[str, list[str]] = {}
        self.written: list[tuple[int, ...]] = []
        #: Names of all segments that were written, and of those whose files are gone.
        self.uuids: list[str] = []
        self.deleted: set[str] = set()
        #: Those that were removed because they were merged.
        self.removed: set[str] = set()
        #: Called with the fragments of each segment before it is written.
        self.before: Callable[[Sequence[int]], None] = lambda fragments: None
        #: Called when segments are merged.
        self.merging: Callable[[], None] = lambda: None
        #: Called before an index is committed.
        self.committing: Callable[[], None] = lambda: None
        #: Called before the segments are deleted that were merged.
        self.removing: Callable[[], None] = lambda: None

    def opened(self, uri: str, version: int | None = None) -> Opened:
        return Opened(self, uri, version or self.latest_version)


class Opened:
    def __init__(self, standing: Standing, uri: str, version: int) -> None:
        self.of, self.uri, self.name, self.version = standing, uri, uri, version

    @property
    def latest_version(self) -> int:
        return self.of.latest_version

    def vector_column(self, name: str | None, dim: int) -> str:
        import pyarrow as pa

        return vector_column(pa.schema({"v": pa.list_(pa.float32(), DIM)}), self.uri, name, dim)

    def field_id(self, column: str) -> int:
        return self.of.field_id

    def segments(self, name: str) -> set[str]:
        return {uuid for other, uuid in self.of.committed.items() if other == name}

    def indexes(self) -> dict[str, list[str]]:
        return {name: ["v"] for name in self.of.indexes} | self.of.others

    def fragments(self) -> list[Fragment]:
        return [Fragment(n, n * ROWS, ROWS, state) for n, state in self.of.state.items()]

    def vectors(self, column: str, fragments: Sequence[int], first: int) -> Iterator[RowBatch]:
        for number in fragments:
            ids = np.arange(number * ROWS, (number + 1) * ROWS, dtype=np.uint64)
            yield RowBatch(first, ids, self.of.rows[ids.astype(np.int64)])
            first += ROWS

    def write_segment(
        self, column: str, fragments: Sequence[int], assigned: Any, arguments: Any, scratch: Path
    ) -> str:
        self.of.before(fragments)
        self.of.written.append(tuple(fragments))
        self.of.uuids.append(arguments["index_uuid"])
        ids, lists = (part.tolist() for part in assigned)
        return json.dumps({"uuid": arguments["index_uuid"], "ids": ids, "lists": lists})

    def are_whole(self, segments: Sequence[str]) -> list[bool]:
        return [json.loads(text)["uuid"] not in self.of.deleted | self.of.removed for text in segments]

    def merged(self, segments: Sequence[str]) -> Any:
        self.of.merging()
        parts = [json.loads(text) for text in segments]
        return SimpleNamespace(uuid=str(uuid4()), parts=parts)

    def commit(self, name: str, column: str, segment: Any) -> None:
        self.of.committing()
        self.of.indexes[name] = segment.parts
        self.of.committed[name] = segment.uuid
        self.of.latest_version += 1

    def remove_merged(self, segments: Sequence[str], kept: str) -> None:
        self.of.removing()
        self.of.removed |= {json.loads(text)["uuid"] for text in segments} - {kept}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_lists(tmp_path_factory.mktemp("model") / "ix", make_vectors("float32", 600), lists=LISTS)


@pytest.fixture
def standing(monkeypatch: pytest.MonkeyPatch) -> Standing:
    """The dataset that is indexed, a segment a fragment."""
    standing = Standing()
    for module in (run, tasks):
        monkeypatch.setattr(module, "LanceDataset", standing.opened)
    monkeypatch.setattr(run, "pylance", lambda: SimpleNamespace(__version__="14"))
    monkeypatch.setattr(tasks, "GROUP_BYTES", 1)
    return standing


def index(model: Path, folder: Path, **how: Any) -> dict[str, Any]:
    return indexmill.export(model, "lance", dataset=folder / "data.lance", **how)


def held(standing: Standing) -> list[tuple[list[int], list[int]]]:
    """Row ids and lists of every segment of the index."""
    return [(one["ids"], one["lists"]) for one in standing.indexes["v_idx"]]


def test_any_number_of_workers_writes_the_same_segments(
    model: Path, standing: Standing, tmp_path: Path
) -> None:
    found = []
    for workers in (1, 3):
        report = index(model, tmp_path, workers=workers, force=True)
        found.append(held(standing))
        assert (report["rows"], report["segments"], report["reused"]) == (FRAGMENTS * ROWS, FRAGMENTS, 0)
    assert found[0] == found[1]
    ids, lists = (np.concatenate([one[part] for one in found[0]]) for part in (0, 1))
    assert np.array_equal(ids, np.arange(FRAGMENTS * ROWS))
    assert np.array_equal(lists, nearest_cells(standing.rows, IvfFiles(model).centroids.centroids, 1)[:, 0])
    assert list(tmp_path.iterdir()) == []


def fail_at_fragment_5(model: Path, standing: Standing, folder: Path) -> None:
    """Run one worker, which fails after it wrote five segments."""

    def fail(fragments: Sequence[int]) -> None:
        if fragments[0] == 5:
            raise InputError("row 7 is null")

    standing.before = fail
    with pytest.raises(InputError, match="row 7 is null"):
        index(model, folder, workers=1)
    assert standing.indexes == {}
    standing.before = lambda fragments: None


def test_a_run_that_fails_resumes_with_the_fragments_that_are_left(
    model: Path, standing: Standing, tmp_path: Path
) -> None:
    fail_at_fragment_5(model, standing, tmp_path)
    assert index(model, tmp_path, workers=1)["reused"] == 5
    assert sorted(standing.written) == [(n,) for n in range(FRAGMENTS)]
    assert [ids[0] for ids, _ in held(standing)] == [n * ROWS for n in range(FRAGMENTS)]


def test_segments_whose_files_were_deleted_are_written_again(
    model: Path, standing: Standing, tmp_path: Path
) -> None:
    fail_at_fragment_5(model, standing, tmp_path)
    standing.deleted = {standing.uuids[standing.written.index((n,))] for n in (1, 3)}
    assert index(model, tmp_path, workers=1)["reused"] == 3
    assert standing.written[5:] == [(n,) for n in (1, 3, 5, 6, 7)]
    assert not standing.deleted & {one["uuid"] for one in standing.indexes["v_idx"]}
    assert [ids[0] for ids, _ in held(standing)] == [n * ROWS for n in range(FRAGMENTS)]


def test_segments_of_a_column_that_another_one_replaced_are_not_used(
    model: Path, standing: Standing, tmp_path: Path
) -> None:
    fail_at_fragment_5(model, standing, tmp_path)
    standing.field_id = 7  # another column was given the name, in the same files
    assert index(model, tmp_path)["reused"] == 0


def test_a_dataset_that_changed_meanwhile_is_not_committed(
    model: Path, standing: Standing, tmp_path: Path
) -> None:
    def change(fragments: Sequence[int]) -> None:
        if standing.latest_version == 1:
            standing.latest_version = 2
            standing.state[3] = "3, changed"

    standing.before = change
    with pytest.raises(InputError, match=r"version 1 was indexed, and the dataset is at version 2 now"):
        index(model, tmp_path)
    assert standing.indexes == {}
    report = index(model, tmp_path)
    assert (report["reused"], report["version"]) == (FRAGMENTS - 1, 3)
    assert standing.written[FRAGMENTS:] == [(3,)]


def test_a_dataset_that_changed_while_segments_were_merged_is_not_committed(
    model: Path, standing: Standing, tmp_path: Path
) -> None:
    def change() -> None:
        standing.latest_version = 2

    standing.merging = change
    with pytest.raises(
        InputError, match=r"dataset is at version 2 now; .*groups of fragments \(64 MiB\) that changed"
    ):
        index(model, tmp_path)
    assert standing.indexes == {}
    assert index(model, tmp_path)["reused"] == FRAGMENTS


def test_an_index_of_the_column_is_replaced_by_force_alone(
    model: Path, standing: Standing, tmp_path: Path
) -> None:
    index(model, tmp_path)
    before = [one["uuid"] for one in standing.indexes["v_idx"]]
    with pytest.raises(OutputExistsError, match=r"dataset: .*has an index 'v_idx'; add --force"):
        index(model, tmp_path)
    index(model, tmp_path, force=True)
    assert not set(before) & {one["uuid"] for one in standing.indexes["v_idx"]}


class Killed(BaseException):
    """Stands for a kill, after which nothing is cleaned up."""


def kill() -> None:
    raise Killed


def kill_after_the_commit(model: Path, standing: Standing, folder: Path) -> None:
    standing.removing = kill
    with pytest.raises(Killed):
        index(model, folder)
    standing.removing = lambda: None
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize("force", [False, True])
def test_a_run_that_was_killed_after_its_commit_is_done_when_it_is_run_again(
    model: Path, standing: Standing, tmp_path: Path, force: bool
) -> None:
    kill_after_the_commit(model, standing, tmp_path)
    committed = standing.indexes["v_idx"]
    report = index(model, tmp_path, force=force)
    assert (report["reused"], report["rows"], report["version"]) == (FRAGMENTS, FRAGMENTS * ROWS, 2)
    assert standing.indexes["v_idx"] is committed
    assert standing.removed == {one["uuid"] for one in committed}
    assert len(standing.written) == FRAGMENTS
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OutputExistsError, match="has an index 'v_idx'; add --force"):
        index(model, tmp_path, force=False)
    assert list(tmp_path.iterdir()) == []


def test_rows_that_came_after_a_commit_that_was_killed_are_not_passed_over(
    model: Path, standing: Standing, tmp_path: Path
) -> None:
    kill_after_the_commit(model, standing, tmp_path)
    standing.state[3] = "3, changed"
    with pytest.raises(OutputExistsError, match="has an index 'v_idx'; add --force"):
        index(model, tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert index(model, tmp_path, force=True)["reused"] == 0


def test_an_index_that_another_replaced_since_is_not_taken_for_that_of_a_killed_run(
    model: Path, standing: Standing, tmp_path: Path
) -> None:
    kill_after_the_commit(model, standing, tmp_path)
    standing.committed["v_idx"] = "of another"
    with pytest.raises(OutputExistsError, match="has an index 'v_idx'; add --force"):
        index(model, tmp_path)
    assert index(model, tmp_path, force=True)["reused"] == FRAGMENTS


@pytest.fixture
def on_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Goes to a machine, which mirrors storage in a place of its own."""

    def go(name: str) -> None:
        monkeypatch.setenv(MIRROR_VARIABLE, str(tmp_path / "mirrors" / name))
        open_storage.cache_clear()

    yield go
    open_storage.cache_clear()


def test_a_note_on_a_commit_is_read_as_another_machine_replaced_it(
    model: Path, standing: Standing, tmp_path: Path, on_machine: Callable[[str], None]
) -> None:
    work = f"file://{tmp_path}/work"
    for machine, event in (("one", "committing"), ("two", "removing")):
        on_machine(machine)
        setattr(standing, event, kill)
        with pytest.raises(Killed):
            index(model, tmp_path, work=work)
        setattr(standing, event, lambda: None)
    committed = standing.indexes["v_idx"]
    on_machine("one")
    assert index(model, tmp_path, work=work)["reused"] == FRAGMENTS
    assert standing.indexes["v_idx"] is committed
    assert len(standing.written) == FRAGMENTS


def test_notes_on_segments_are_read_as_another_machine_replaced_them(
    model: Path, standing: Standing, tmp_path: Path, on_machine: Callable[[str], None]
) -> None:
    work = f"file://{tmp_path}/work"
    standing.committing = kill
    for machine in ("one", "two"):
        on_machine(machine)
        standing.deleted = set(standing.uuids)  # by a clean-up of Lance
        with pytest.raises(Killed):
            index(model, tmp_path, work=work)
    standing.committing = lambda: None
    on_machine("one")
    assert index(model, tmp_path, work=work)["reused"] == FRAGMENTS
    assert not standing.deleted & {one["uuid"] for one in standing.indexes["v_idx"]}


def test_segments_that_cannot_be_deleted_after_the_commit_are_told_in_a_warning(
    model: Path, standing: Standing, tmp_path: Path
) -> None:
    def refuse() -> None:
        raise PermissionError(13, "Permission denied", "_indices/0123")

    standing.removing = refuse
    with pytest.warns(
        UserWarning, match=r"is committed, but _indices/0123 cannot be deleted \(Permission denied\)"
    ):
        assert index(model, tmp_path)["segments"] == FRAGMENTS
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(("name", "column"), [("mine", "v"), ("v_idx", "w")])
def test_an_index_of_the_column_by_another_name_or_of_another_column_by_this_name_is_refused(
    model: Path, standing: Standing, tmp_path: Path, name: str, column: str, force: bool
) -> None:
    standing.others = {"w_idx": ["w"], name: [column]}
    with pytest.raises(InputError, match=rf"index '{name}' of {column}; .*dataset\.drop_index\('{name}'\)"):
        index(model, tmp_path, force=force)
    assert standing.written == []
    del standing.others[name]
    assert index(model, tmp_path, force=force)["index"] == "v_idx"


@pytest.mark.parametrize(
    ("value", "metric", "message"),
    [(np.nan, "l2", "row 123: component 0 is nan"), (0, "cosine", "row 123: zero vector")],
)
def test_a_row_without_distances_is_named_by_its_position(
    standing: Standing, tmp_path: Path, value: float, metric: str, message: str
) -> None:
    model = build_lists(tmp_path / "ix", make_vectors("float32", 600), lists=LISTS, metric=metric)
    standing.rows[123] = value
    with pytest.raises(InputError, match=message):
        index(model, tmp_path)


def test_a_dataset_without_rows_is_refused(model: Path, standing: Standing, tmp_path: Path) -> None:
    standing.state = {}
    with pytest.raises(InputError, match="no rows; expected at least one"):
        index(model, tmp_path)


def test_small_fragments_share_a_segment_and_large_ones_have_their_own() -> None:
    row_bytes = -(-GROUP_BYTES // 100)
    sizes = [60, 30, 20, 150, 100, 5]
    starts = np.cumsum([0, *sizes])
    fragments = [Fragment(i + 3, int(starts[i]), n, f"state {i}") for i, n in enumerate(sizes)]
    groups = grouped(fragments, row_bytes)
    assert [group.fragments for group in groups] == [(3, 4, 5), (6,), (7,), (8,)]
    assert [(group.first, group.rows) for group in groups] == [(0, 110), (110, 150), (260, 100), (360, 5)]
    changed = grouped([fragments[0]._replace(state="other"), *fragments[1:]], row_bytes)
    assert [a.state == b.state for a, b in zip(groups, changed, strict=True)] == [False, True, True, True]
    assert grouped([], row_bytes) == []


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (
            {"metric": "ip"},
            "lists of a dataset by metric ip, but lance holds those by l2 and cosine; build with",
        ),
        (
            {"codec": "rabitq"},
            "RaBitQ codes of 12 components, but lance holds those of multiples of 8; build with",
        ),
        ({"codec": "pq", "pq_bytes": 5}, "chunks of 2 and 3 components"),
        (
            {"codec": "pq", "pq_bytes": 4, "pq_rotation": "opq"},
            "PQ codes of rotated vectors, but lance holds those of vectors as they are; build with --pq-rotation none",
        ),
    ],
)
def test_a_model_that_lance_cannot_be_given_is_refused(
    tmp_path: Path, how: dict[str, Any], message: str
) -> None:
    path = build_lists(tmp_path / "ix", make_vectors("float32", 600), lists=LISTS, **how)
    with pytest.raises(ConfigError, match=message):
        model_of(IvfFiles(path).centroids, "v_idx")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--to", "faiss-ivf", "--dataset", "d"), "--to: faiss-ivf cannot index a dataset"),
        (("--to", "lance", "--dataset", "d", "--out", "o"), "--out: is not written with --dataset"),
        (
            ("--to", "lance", "--dataset", "d", "--ids", "slot"),
            "--ids: an existing dataset keeps its columns",
        ),
        (("--to", "lance", "--dataset", "d", "--executor", "rey"), "did you mean 'ray'"),
        (("--to", "lance", "--dataset", "d", "--workers", "0"), "--workers: expected 1 to 1024, got 0"),
        (("--to", "lance", "--dataset", "d", "--memory", "1GiB"), "--memory: bounds a compaction"),
        (("--to", "lance", "--out", "o", "--workers", "0"), "--workers: expected 1 to 1024, got 0"),
        (("--to", "lance", "--out", "o", "--work", "s3://b/w"), "--work: s3://b/w is a URL"),
        (("--to", "lance", "--out", "o", "--column", "v"), "--column: goes with --dataset only"),
    ],
)
def test_options_that_do_not_go_together_are_named(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run_command("export", model, *arguments)
    assert (result.exit_code, message in result.stderr) == (2, True), result.stderr
    assert list(tmp_path.iterdir()) == []


def test_python_names_what_a_call_misses(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="out: missing; name the directory"):
        indexmill.export(model, "lance")
    with pytest.raises(ConfigError, match="dataset: missing; column, executor: go with a dataset only"):
        indexmill.export(model, "lance", tmp_path / "out", column="v", executor="local", workers=3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'threads'"):
        indexmill.export(model, "lance", dataset=tmp_path, threads=3)  # type: ignore[call-arg]
    with pytest.raises(IndexmillError, match="no such index"):
        indexmill.export(tmp_path / "nothing", "lance", dataset=tmp_path / "d")
