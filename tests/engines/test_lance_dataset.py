"""Indexes made in Lance datasets that exist: by fragments, on threads and on Ray, and committed once."""

from __future__ import annotations

import json
import re
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.engines.in_lance import python_path, with_lance
from tests.oracles.ivf import nearest_cells, squares
from tests.support.indexes.export import assert_same_answers
from tests.support.indexes.ivf import DIM, LISTS, build_lists, make_vectors

from indexmill.formats.ivf.index import IvfFiles

ROOT = Path(__file__).parents[2]
CLIENTS = Path(__file__).parent / "clients"
QUERIES = 200
N, FRAGMENTS = 4000, 8
CASES: dict[str, dict[str, Any]] = {
    "flat": {},
    "pq": {"codec": "pq", "pq_bytes": 6},
    "cosine": {"metric": "cosine"},
    "cosine-pq": {"metric": "cosine", "codec": "pq", "pq_bytes": 6},
}
#: Makes a dataset of the vectors in argument 1 at argument 2, with so many rows a fragment as argument 3 says.
WRITTEN = """
import sys
import lance, numpy as np, pyarrow as pa
rows = np.load(sys.argv[1])
vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])
table = pa.table({"number": np.arange(len(rows)), "vector": vectors})
lance.write_dataset(table, sys.argv[2], max_rows_per_file=int(sys.argv[3]))
"""


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    """The vectors of the datasets; models are built from every second one."""
    return make_vectors("float32", N, seed=5)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, rows: np.ndarray) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {name: build_lists(folder / name, rows[::2], **how) for name, how in CASES.items()}


@pytest.fixture
def dataset(tmp_path: Path, rows: np.ndarray) -> Path:
    return written(tmp_path / "data.lance", rows)


def written(place: Path, rows: np.ndarray) -> Path:
    """Write a dataset of `FRAGMENTS` fragments."""
    np.save(place.with_suffix(".npy"), rows)
    with_lance("-c", WRITTEN, place.with_suffix(".npy"), place, len(rows) // FRAGMENTS)
    return place


def indexed(
    model: Path, place: Path, nprobe: int = 4, code: int = 0, environment: Any = None, **how: Any
) -> Any:
    """Index a dataset, and return the report, what Lance answers, and what its index holds."""
    asked, answer = place.with_suffix(".asked.npy"), place.with_suffix(".npz")
    np.save(asked, queries_of(np.load(place.with_suffix(".npy"))))
    options = json.dumps({"nprobe": nprobe, "run": {"workers": 2}, **how})
    said = with_lance(
        CLIENTS / "lance_dataset.py", model, place, asked, answer, options, code=code, environment=environment
    )
    if code:
        return said
    found = dict(np.load(answer))
    return found | {"report": json.loads(str(found["report"])), "said": said}


def queries_of(rows: np.ndarray) -> np.ndarray:
    """Return vectors near some of the rows."""
    noise = np.random.default_rng(9).normal(size=(QUERIES, rows.shape[1]))
    near: np.ndarray = rows[:: len(rows) // QUERIES] + noise
    return near.astype(np.float32)


def stored(rows: np.ndarray, model: Path) -> tuple[np.ndarray, np.ndarray, Any]:
    """Return the rows as Lance compares them, the list of each, and what the model shares."""
    shared = IvfFiles(model).centroids
    if shared.metric == "cosine":
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    lists = nearest_cells(rows, shared.centroids, 1)[:, 0]
    return rows, lists, shared


@pytest.mark.parametrize("name", CASES)
def test_rows_lie_in_the_list_of_their_nearest_centroid(
    models: dict[str, Path], dataset: Path, rows: np.ndarray, name: str
) -> None:
    found = indexed(models[name], dataset, nprobe=LISTS)
    report = found["report"]
    assert {key: report[key] for key in ("rows", "fragments", "segments", "reused", "lists", "version")} == {
        "rows": N, "fragments": FRAGMENTS, "segments": FRAGMENTS, "reused": 0, "lists": LISTS, "version": 2,
    }  # fmt: skip
    assert report["type"] == ("IVF_PQ" if "pq" in name else "IVF_FLAT")
    compared, lists, shared = stored(rows, models[name])
    assert np.array_equal(found["centroids"], shared.centroids)
    number, place = np.divmod(found["rows"], np.uint64(1 << 32))
    at = (number * np.uint64(N // FRAGMENTS) + place).astype(np.int64)
    order = np.argsort(lists, kind="stable")
    assert np.array_equal(found["sizes"], np.bincount(lists, minlength=LISTS))
    assert np.array_equal(at, order)
    if shared.codebook is not None:
        assert (
            found["codes"] == codes_of(compared - shared.centroids[lists], shared.codebook)[order]
        ).mean() > 0.999
    else:
        queries = queries_of(rows)
        assert_same_answers((found["found"], found["distances"]), nearest(rows, queries, shared.metric), 1e-5)
    assert len(list((dataset / "_indices").iterdir())) == 1
    assert [path.name for path in dataset.parent.iterdir() if path.name.startswith(".")] == []


def codes_of(residuals: np.ndarray, codebook: Any) -> np.ndarray:
    """Return the nearest centre of every chunk."""
    cuts = zip(codebook.offsets[:-1], codebook.offsets[1:], strict=True)
    return np.column_stack(
        [
            squares(residuals[:, a:b].astype(np.float64), codebook.pivots[:, a:b].astype(np.float64)).argmin(
                1
            )
            for a, b in cuts
        ]
    )


def nearest(rows: np.ndarray, queries: np.ndarray, metric: str, k: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Return the true neighbours, and distances as Lance gives them."""
    if metric == "cosine":
        rows, queries = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (rows, queries))
    away = squares(queries.astype(np.float64), rows.astype(np.float64))
    ids = np.argsort(away, axis=1, kind="stable")[:, :k]
    return ids, np.take_along_axis(away, ids, 1) / (2 if metric == "cosine" else 1)


@pytest.mark.parametrize("name", ["flat", "pq", "cosine-pq"])
def test_recall_is_near_that_of_lances_own_index_with_as_many_lists(
    tmp_path: Path, rows: np.ndarray, name: str
) -> None:
    model = build_lists(tmp_path / "model", rows, **CASES[name])
    metric = IvfFiles(model).centroids.metric
    own = {"index_type": "IVF_FLAT", "num_partitions": LISTS, "metric": metric}
    if "pq" in name:
        own |= {"index_type": "IVF_PQ", "num_sub_vectors": 6}
    ours = indexed(model, written(tmp_path / "ours.lance", rows), nprobe=2)
    theirs = indexed(model, written(tmp_path / "theirs.lance", rows), nprobe=2, own=own)
    assert_as_good(ours, theirs, nearest(rows, queries_of(rows), metric)[0])


def assert_as_good(ours: Any, theirs: Any, true: np.ndarray) -> None:
    """Our recall@10 is at most 0.03 below that of Lance's own index, whose k-means differs in each run."""
    recall = [
        np.mean([len(set(a) & set(b)) / 10 for a, b in zip(one["found"], true, strict=True)])
        for one in (ours, theirs)
    ]
    print(f"recall@10 {recall[0]:.3f}, Lance's own {recall[1]:.3f}")
    assert recall[0] > recall[1] - 0.03


def test_rabitq_codes_of_lance_are_the_same_in_every_run(tmp_path: Path, rows: np.ndarray) -> None:
    rows = np.column_stack([rows, rows[:, :4]])  # Lance wants a multiple of 8 components
    model = build_lists(tmp_path / "model", rows[::2], codec="rabitq", code_bits=4)
    one, other = (
        indexed(model, written(tmp_path / f"{workers}.lance", rows), run={"workers": workers})
        for workers in (1, 2)
    )
    assert one["report"]["type"] == "IVF_RQ"
    same = ("centroids", "sizes", "rows", "found", "distances")
    assert [key for key in same if not np.array_equal(one[key], other[key])] == []
    shared = IvfFiles(model).centroids
    lists = nearest_cells(rows, shared.centroids @ shared.rabitq.rotation.T, 1)[:, 0]
    assert np.array_equal(one["sizes"], np.bincount(lists, minlength=LISTS))
    own = {"index_type": "IVF_RQ", "num_partitions": LISTS, "num_bits": 4}
    theirs = indexed(model, written(tmp_path / "theirs.lance", rows), own=own)
    assert_as_good(one, theirs, nearest(rows, queries_of(rows), "l2")[0])


@pytest.mark.parametrize("name", ["flat", "pq"])
def test_a_worker_of_ray_that_is_lost_changes_nothing(
    models: dict[str, Path], tmp_path: Path, rows: np.ndarray, name: str
) -> None:
    alone = indexed(models[name], written(tmp_path / "alone.lance", rows), run={"workers": 1})
    marker = tmp_path / "died"
    environment = {"LANCE_DYING": str(marker), "PYTHONPATH": python_path(CLIENTS)}
    lost = indexed(
        models[name], written(tmp_path / "lost.lance", rows), die=True, environment=environment,
        run={"workers": 2, "executor": "ray"},
    )  # fmt: skip
    assert marker.exists()
    same = ("centroids", "sizes", "rows", "found", "distances", *(["codes"] if name == "pq" else []))
    assert [key for key in same if not np.array_equal(alone[key], lost[key])] == []


def test_a_killed_run_resumes_with_the_fragments_that_are_left(
    models: dict[str, Path], tmp_path: Path, rows: np.ndarray
) -> None:
    place = written(tmp_path / "killed.lance", rows)
    killed = {"INDEXMILL_FAILPOINT": "task-done:3"}
    indexed(models["pq"], place, code=-9, environment=killed, run={"workers": 1})
    assert len(list((place / "_indices").iterdir())) == 3
    found = indexed(models["pq"], place, run={"workers": 1})
    assert (found["report"]["segments"], found["report"]["reused"]) == (FRAGMENTS, 3)
    whole = indexed(models["pq"], written(tmp_path / "whole.lance", rows), run={"workers": 1})
    same = ("centroids", "sizes", "rows", "codes", "found", "distances")
    assert [key for key in same if not np.array_equal(found[key], whole[key])] == []


@pytest.mark.parametrize(
    ("how", "n_left"),
    [({"die_removing": True}, FRAGMENTS), ({"environment": {"INDEXMILL_FAILPOINT": "segments-dropping"}}, 1)],
    ids=["while it deletes segments", "before it deletes notes"],
)
def test_a_run_that_was_killed_after_its_commit_is_done_when_it_is_run_again(
    models: dict[str, Path], dataset: Path, how: dict[str, Any], n_left: int
) -> None:
    indexed(models["pq"], dataset, code=-9, **how)
    assert len(list((dataset / "_indices").iterdir())) == n_left
    left = dataset.parent / ".data.lance.indexmill-lance"
    assert left.exists()
    found = indexed(models["pq"], dataset)
    assert {key: found["report"][key] for key in ("rows", "reused", "version")} == {
        "rows": N, "reused": FRAGMENTS, "version": 2,
    }  # fmt: skip
    assert len(list((dataset / "_indices").iterdir())) == 1
    assert not left.exists()


#: Indexes a dataset with a null component, does what the message says, and indexes it again.
NULL_COMPONENT = """
import re, sys
import lance, pyarrow as pa
import indexmill
from indexmill.formats.errors import InputError
model, place = sys.argv[1:]
table = lance.dataset(place).to_table()
vectors = table["vector"].to_pylist()
vectors[1234][2] = None
kind = table.schema.field("vector").type
holes = pa.table({"vector": pa.array(vectors, kind)})
dataset = lance.write_dataset(holes, place, mode="overwrite", max_rows_per_file=500)
try:
    indexmill.export(model, "lance", dataset=place)
except InputError as error:
    print(error)
    exec(re.search(r"dataset[.]delete.*?[)]", str(error))[0])
print(indexmill.export(model, "lance", dataset=place)["rows"])
"""


def test_the_advice_about_a_null_component_deletes_its_row(models: dict[str, Path], dataset: Path) -> None:
    said, rows = with_lance("-c", NULL_COMPONENT, models["flat"], dataset).splitlines()
    assert re.search(r"row 1234: null in component 2 in column 'vector'", said)
    assert int(rows) == N - 1


def test_a_file_that_cannot_be_written_is_told_in_a_line(models: dict[str, Path], dataset: Path) -> None:
    code = "import sys, indexmill; indexmill.export(sys.argv[1], 'lance', dataset=sys.argv[2], workers=1)"
    most = 20_000  # less than the vectors of a fragment take

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    said = with_lance("-c", code, models["flat"], dataset, code=1, limit=limit).splitlines()[-1]
    assert re.search(
        r"InputError: .*data.lance: a segment of its index cannot be written \(.*File too large.*\); if the disk is",
        said,
    )


def test_a_dataset_that_changed_is_not_committed_and_its_other_fragments_are_kept(
    models: dict[str, Path], dataset: Path
) -> None:
    found = indexed(models["flat"], dataset, append=100)
    assert "version 1 was indexed, and the dataset is at version 2 now" in found["said"]
    assert {key: found["report"][key] for key in ("rows", "segments", "reused", "version")} == {
        "rows": N + 100, "segments": FRAGMENTS + 1, "reused": FRAGMENTS, "version": 3,
    }  # fmt: skip
    assert found["sizes"].sum() == N + 100


#: Makes a function of a dataset that writes all segments, and fails to commit them.
UNCOMMITTED = """
import sys
import lance
import indexmill
from indexmill.formats.errors import InputError
from indexmill.formats.exports.lance.dataset import LanceDataset

def write_uncommitted(model, place, **how):
    def refuse(*arguments):
        raise InputError("not committed")

    commit, LanceDataset.commit = LanceDataset.commit, refuse
    try:
        indexmill.export(model, "lance", dataset=place, **how)
    except InputError as error:
        assert str(error) == "not committed", error
    LanceDataset.commit = commit
"""
#: Has Lance remove the only segment before its index is committed, indexes the dataset again, and searches it.
CLEANED = """
from datetime import timedelta
from pathlib import Path
model, place = sys.argv[1:]
write_uncommitted(model, place)
written = len(list(Path(place, "_indices").iterdir()))
lance.dataset(place).cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
left = len(list(Path(place, "_indices").glob("*/*")))
report = indexmill.export(model, "lance", dataset=place)
exec(report["open"])
print(written, left, report["segments"], report["reused"], table.stats.index_stats("vector_idx")["num_indexed_rows"])
"""


def test_the_only_segment_is_written_again_if_lance_removed_it(
    models: dict[str, Path], dataset: Path
) -> None:
    said = with_lance("-c", UNCOMMITTED + CLEANED, models["pq"], dataset)
    assert said.splitlines()[-1].split() == ["1", "0", "1", "0", str(N)]


#: Overwrites a dataset right before its index is committed, after the last look at its version; indexes it again.
OVERWRITTEN = """
import sys
import lance
import indexmill
from indexmill.formats.errors import InputError
from indexmill.formats.exports.lance.dataset import LanceDataset
model, place = sys.argv[1:]
merged, latest = LanceDataset.merged, LanceDataset.latest_version

def overwriting(self, segments):
    found = merged(self, segments)
    lance.write_dataset(lance.dataset(place).to_table(), place, mode="overwrite")
    return found

LanceDataset.merged, LanceDataset.latest_version = overwriting, LanceDataset.version
try:
    indexmill.export(model, "lance", dataset=place)
except InputError as error:
    print(error)
LanceDataset.merged, LanceDataset.latest_version = merged, latest
print(lance.dataset(place).describe_indices(), indexmill.export(model, "lance", dataset=place)["version"])
"""


def test_a_commit_that_another_transaction_forbids_is_told_in_a_line(
    models: dict[str, Path], dataset: Path
) -> None:
    failed, after = with_lance("-c", OVERWRITTEN, models["flat"], dataset).splitlines()
    assert re.search(
        r"data.lance: the index cannot be committed \(.*incompatible.* Overwrite at version 2", failed
    )
    assert after == "[] 3"


#: Indexes a dataset on a server of S3, with notes there, too.
ON_S3 = """
import os, sys
import numpy as np
from tests.support.s3 import FlakyServer
server = FlakyServer()
host = server.url.partition("endpoint_override=")[2].partition("&")[0]
os.environ |= {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
os.environ |= {"AWS_ENDPOINT": f"http://{host}", "AWS_ALLOW_HTTP": "true"}
import lance, pyarrow as pa
import indexmill
rows = np.load(sys.argv[2])
table = pa.table({"vector": pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])})
place = "s3://bucket/data.lance"
lance.write_dataset(table, place, max_rows_per_file=500)
how = {"dataset": place, "work": server.url}
write_uncommitted(sys.argv[1], place, work=server.url)
from lance.file import LanceFileSession
files = LanceFileSession(place)
files.delete_file(files.list("_indices")[0])
reports = [indexmill.export(sys.argv[1], "lance", **how)]
write_uncommitted(sys.argv[1], place, work=server.url, force=True)
reports.append(indexmill.export(sys.argv[1], "lance", force=True, **how))
held = lance.dataset(place).stats.index_stats("vector_idx")
print(reports[0]["dataset"], held["num_indexed_rows"], held["num_unindexed_rows"])
print(*((report["version"], report["reused"]) for report in reports))
os._exit(0)  # the server runs on
"""


def test_a_dataset_at_a_url_is_indexed_with_notes_at_a_url(
    models: dict[str, Path], tmp_path: Path, rows: np.ndarray
) -> None:
    np.save(tmp_path / "rows.npy", rows)
    environment = {"PYTHONPATH": python_path(ROOT), "INDEXMILL_MIRROR": str(tmp_path / "mirror")}
    code = f"import sys; sys.stdout.reconfigure(line_buffering=True)\n{UNCOMMITTED}{ON_S3}"
    said = with_lance("-c", code, models["pq"], tmp_path / "rows.npy", environment=environment)
    assert said.splitlines() == [f"s3://bucket/data.lance {N} 0", "(2, 0) (3, 1)"]


#: Tries what is refused, and prints the message of each.
REFUSED = """
import sys
import lance, numpy as np, pyarrow as pa
import indexmill
from indexmill.formats.errors import IndexmillError
model, place = sys.argv[1:]

def said(dataset, **how):
    try:
        print(indexmill.export(model, "lance", dataset=dataset, **how)["version"])
    except IndexmillError as error:
        print(f"{type(error).__name__}: {error}")

said(place, column="vectors")
said(place, column="number")
said(place + "x")
said(place)
said(place)
said(place, force=True)
named = lance.dataset(place)
named.drop_index("vector_idx")
named.create_index("vector", "IVF_FLAT", name="mine", num_partitions=2)
said(place, force=True)
table = lance.dataset(place).to_table()
vectors = table["vector"].to_pylist()
vectors[1234] = None
kind = table.schema.field("vector").type
holes = pa.table({"number": table["number"], "vector": pa.array(vectors, kind)})
lance.write_dataset(holes, place + ".holes", max_rows_per_file=500)
said(place + ".holes")
vectors[1234] = [float("nan")] * kind.list_size
odd = pa.table({"number": table["number"], "vector": pa.array(vectors, kind)})
lance.write_dataset(odd, place + ".odd", max_rows_per_file=500)
said(place + ".odd")
short = pa.table({"vector": pa.array([[1.0, 2.0]] * 9, pa.list_(pa.float32(), 2))})
lance.write_dataset(short, place + ".short")
said(place + ".short", column="vector")
print(lance.dataset(place + ".holes").describe_indices())
"""


def test_what_cannot_be_indexed_is_refused_and_named(models: dict[str, Path], dataset: Path) -> None:
    lines = with_lance("-c", REFUSED, models["flat"], dataset).splitlines()
    wanted = (
        "InputError: .*no column 'vectors'; expected one of number, vector",
        f"InputError: .*column 'number' is of type int64; expected fixed_size_list<item: float>.{DIM}.",
        "InputError: .*data.lancex: cannot be opened as a Lance dataset",
        "2",
        "OutputExistsError: dataset: .* has an index 'vector_idx'; add --force",
        "3",
        r"InputError: .*has an index 'mine' of vector; .*drop it with dataset.drop_index\('mine'\)",
        "InputError: .*holes: row 1234: null in column 'vector'",
        "InputError: .*odd: row 1234: component 0 is nan",
        "InputError: .*column 'vector' is of type fixed_size_list<item: float>.2.; expected .*",
        r"\[\]",
    )
    assert len(lines) == len(wanted), lines
    for line, pattern in zip(lines, wanted, strict=True):
        assert re.match(pattern, line), line


def test_the_command_indexes_what_was_not_deleted_and_its_snippet_runs(
    models: dict[str, Path], dataset: Path
) -> None:
    with_lance("-c", "import lance, sys; lance.dataset(sys.argv[1]).delete('number % 3 = 0')", dataset)
    command = ["-m", "indexmill.jobs.cli.main", "export", models["pq"], "--to", "lance", "--dataset", dataset]
    report = json.loads(with_lance(*command, "--column", "vector", "--json"))
    assert (report["rows"], report["fragments"], report["segments"]) == (N - -(-N // 3), FRAGMENTS, 1)
    assert "_distance" in with_lance("-c", report["open"])
    code = (
        "import lance, numpy as np, sys; t = lance.dataset(sys.argv[1]); "
        "s = t.stats.index_stats('vector_idx'); print(s['num_indexed_rows'], s['num_unindexed_rows'])"
    )
    assert with_lance("-c", code, dataset).split() == [str(report["rows"]), "0"]
    again = with_lance(*command, code=5)
    assert "--dataset: " in again
    assert "add --force" in again
