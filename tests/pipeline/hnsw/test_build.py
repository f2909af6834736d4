"""Hierarchical graphs from raw vectors: faiss opens them, with their levels, and finds what brute force finds."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from tests.support.builds import ids_of, put_objects, request, rows_of
from tests.support.processes.forks import run_forked
from tests.support.progress import Stages
from tests.support.s3 import flaky_server

from indexmill.builders.partition import coded
from indexmill.builders.partition.coded import missed_by_codes
from indexmill.builders.quantize.scalar import comparable_codes
from indexmill.formats.errors import BudgetError, InputError, StorageError
from indexmill.formats.urls import retry
from indexmill.jobs.service.request import BuildRequest
from indexmill.pipeline.hnsw import run
from indexmill.pipeline.hnsw.run import Place, build_hnsw
from indexmill.pipeline.hnsw.size import check_fits, resolved
from indexmill.pipeline.hnsw.stored import raw_source, read_ids
from indexmill.pipeline.kinds.common import memory as common_memory
from indexmill.pipeline.kinds.graph import memory as needs
from indexmill.pipeline.mill.progress import Progress
from indexmill.pipeline.urls.storage import Storage

OUT = "base/path/uuid_field_seg.faiss"
SPACES = {"l2": faiss.METRIC_L2, "innerproduct": faiss.METRIC_INNER_PRODUCT}
K = 10
#: Ids that are read at a time.
BLOCK = 1 << 20


def built(
    tmp_path: Path,
    wanted: dict[str, Any],
    memory: int = 1 << 30,
    workers: int = 2,
    rows: np.ndarray | None = None,
    progress: Progress | None = None,
) -> Path:
    """Build what a request asks for, perhaps of other rows than those of its objects, and return the file."""
    folder = tmp_path / wanted["container_name"]
    put_objects(folder, wanted)
    if rows is not None:
        (folder / wanted["vector_path"]).write_bytes(rows.tobytes())
    job = BuildRequest.model_validate(wanted).job(f"file://{tmp_path}/{{container}}")
    build_hnsw(job, Place(tmp_path / "work", memory, workers), progress)
    return folder / OUT


def level_0(path: Path) -> np.ndarray:
    """The places of all vertices on level 0, (n, 2 m)."""
    index: Any = faiss.read_index(str(path))
    hnsw = faiss.downcast_index(index.index).hnsw
    starts = faiss.vector_to_array(hnsw.offsets).astype(np.int64)[:-1]
    return faiss.vector_to_array(hnsw.neighbors)[starts[:, None] + np.arange(hnsw.nb_neighbors(0))]


def recall(path: Path, wanted: dict[str, Any], rows: np.ndarray | None = None) -> float:
    """recall@10 of queries near some of the rows, by default those that the request's objects have."""
    rows = (rows_of(wanted) if rows is None else rows).astype(np.float32)
    queries = rows[:100] + np.random.default_rng(1).normal(0, 5, (100, rows.shape[1])).astype(np.float32)
    exact = faiss.IndexFlat(rows.shape[1], SPACES[wanted["index_parameters"]["space_type"]])
    exact.add(rows)
    truth = ids_of(wanted)[exact.search(queries, K)[1]]
    found = faiss.read_index(str(path)).search(queries, K)[1]
    return float(np.mean([len(set(a) & set(b)) / K for a, b in zip(truth, found, strict=True)]))


def in_regions(patch: pytest.MonkeyPatch) -> None:
    """Have graphs built region by region, although memory would do for one piece."""
    patch.setattr(common_memory, "MOST_SORT_BUFFERS", 256 << 10)
    patch.setattr(needs, "fitted_shape", lambda shape, *_: replace(shape, region_bytes=1_300_000))


def structure(space: str, m: int = 8, **numbers: int) -> dict[str, Any]:
    return {"space_type": space, "algorithm": "hnsw", "algorithm_parameters": {"m": m, **numbers}}


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("data_type", ["float", "half_float", "byte"])
def test_faiss_searches_a_graph_of_every_type_and_space(tmp_path: Path, data_type: str, space: str) -> None:
    wanted = request(data_type=data_type, index_parameters=structure(space, ef_search=77, ef_construction=55))
    path = built(tmp_path, wanted)
    opened: Any = faiss.read_index(str(path))
    graph = faiss.downcast_index(opened.index)
    storage = faiss.downcast_index(graph.storage)
    assert type(opened) is faiss.IndexIDMap
    assert type(graph) is (faiss.IndexHNSWFlat if data_type == "float" else faiss.IndexHNSWSQ)
    assert (graph.hnsw.efSearch, graph.hnsw.efConstruction) == (77, 55)
    assert graph.metric_type == storage.metric_type == SPACES[space]
    assert np.array_equal(storage.reconstruct_n(0, 2000), rows_of(wanted).astype(np.float32))
    assert np.array_equal(faiss.vector_to_array(opened.id_map), ids_of(wanted))
    assert recall(path, wanted) > 0.9


def test_the_graph_has_the_levels_of_an_hnsw(tmp_path: Path) -> None:
    opened: Any = faiss.read_index(str(built(tmp_path, request(doc_count=6000))))
    hnsw = faiss.downcast_index(opened.index).hnsw
    tops = faiss.vector_to_array(hnsw.levels) - 1
    starts = faiss.vector_to_array(hnsw.offsets).astype(np.int64)
    places = faiss.vector_to_array(hnsw.neighbors)
    assert hnsw.max_level == tops.max() >= 3
    assert tops[hnsw.entry_point] == hnsw.max_level
    assert abs((tops > 0).sum() - 6000 / 8) < 150
    for level in range(hnsw.max_level + 1):
        members = np.flatnonzero(tops >= level)
        begin, width = (0, 16) if level == 0 else (16 + 8 * (level - 1), 8)
        lists = {v: places[starts[v] + begin : starts[v] + begin + width] for v in members.tolist()}
        reached, waiting = {int(hnsw.entry_point)}, [int(hnsw.entry_point)]
        while waiting:
            near = lists[waiting.pop()]
            new = set(near[near >= 0].tolist()) - reached
            assert new <= set(lists), f"level {level} leads to vertices below it"
            reached |= new
            waiting += new
        assert len(reached) > 0.99 * len(members), level


@pytest.mark.parametrize(
    ("listed", "leaders"), [(1, 3), (55, 3), (56, 4), (100, 7), (140, 10), (2**31 - 1, 10)]
)
def test_more_is_compared_where_a_longer_list_is_asked_for(listed: int, leaders: int) -> None:
    wanted = request(index_parameters=structure("l2", ef_construction=listed))
    job = BuildRequest.model_validate(wanted).job("s3://{container}")
    size = resolved(job, job.spec(1 << 30, 2), raw_source(job, None))
    assert size.shape.fanouts == (leaders, 2)


@pytest.mark.parametrize(
    ("data_type", "space", "compiled"),
    [
        ("float", "innerproduct", ["float32", "int8"]),
        ("half_float", "l2", ["float16", "int8"]),
        ("byte", "l2", ["int8"]),
    ],
)
def test_kernels_of_vectors_and_of_their_codes_are_compiled_beforehand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data_type: str, space: str, compiled: list[str]
) -> None:
    told: list[str] = []
    monkeypatch.setattr(run, "compile_kernels", lambda spec, source, progress: told.append(source.dtype.name))
    built(tmp_path, request(data_type=data_type, doc_count=500, index_parameters=structure(space)))
    assert told == compiled


@pytest.mark.parametrize("widest", [1, 20_000])
def test_what_is_near_is_found_whether_codes_tell_it_apart_or_not(tmp_path: Path, widest: int) -> None:
    wanted = request()
    rows = rows_of(wanted)
    rows[0, 0] = 25 * widest
    assert recall(built(tmp_path, wanted, rows=rows), wanted, rows) > 0.95


def floats_of(wanted: dict[str, Any]) -> np.ndarray:
    """Vectors as sent for a request, of which codes of a byte lose a part."""
    shape = (wanted["doc_count"], wanted["dimension"])
    return np.random.default_rng(8).normal(0, 25, shape).astype(np.float32)


@pytest.mark.parametrize(("data_type", "stored"), [("float", np.float32), ("half_float", np.float16)])
def test_level_0_of_floats_in_one_piece_is_that_of_their_codes_and_finds_the_floats(
    tmp_path: Path, data_type: str, stored: type
) -> None:
    wanted = request(data_type=data_type)
    rows = floats_of(wanted)
    codes = (comparable_codes(rows.astype(stored)) ^ 0x80).view(np.int8)
    of_floats = built(tmp_path / "floats", wanted, rows=rows)
    of_codes = built(tmp_path / "codes", request(data_type="byte"), rows=codes)
    assert np.array_equal(level_0(of_floats), level_0(of_codes))
    assert recall(of_floats, wanted, rows) > 0.95


def test_level_0_of_floats_in_regions_is_built_from_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = request(doc_count=6000)
    rows = floats_of(wanted)
    of_codes = built(tmp_path / "codes", wanted, rows=rows)
    with monkeypatch.context() as patch:
        in_regions(patch)
        stages = Stages()
        of_regions = built(tmp_path / "regions", wanted, rows=rows, progress=stages)
    assert "regions" in stages.made
    monkeypatch.setattr(coded, "MOST_MISSED", -1)  # no codes are good enough
    of_floats = built(tmp_path / "floats", wanted, rows=rows)
    assert of_regions.read_bytes() == of_floats.read_bytes()
    assert not np.array_equal(level_0(of_floats), level_0(of_codes))
    assert min(recall(path, wanted, rows) for path in (of_codes, of_floats)) > 0.95


@pytest.mark.parametrize(
    ("data_type", "space", "judged"),
    [
        ("float", "l2", ["float32"]),
        ("float", "innerproduct", ["float32"]),
        ("half_float", "l2", ["float16"]),
        ("byte", "innerproduct", ["float32"]),
        ("byte", "l2", []),
    ],
)
def test_codes_of_level_0_are_judged_by_the_vectors_that_the_graph_is_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data_type: str, space: str, judged: list[str]
) -> None:
    by: list[str] = []

    def judge(vectors: np.ndarray, *others: Any) -> float:
        by.append(vectors.dtype.name)
        return missed_by_codes(vectors, *others)

    monkeypatch.setattr(coded, "missed_by_codes", judge)
    built(tmp_path, request(data_type=data_type, index_parameters=structure(space)))
    assert by == judged


@pytest.mark.parametrize(("m", "degree"), [(2, 4), (3, 6), (8, 14), (16, 28), (256, 448)])
def test_seven_eighths_of_the_places_of_level_0_rounded_up_are_used(m: int, degree: int) -> None:
    wanted = request(index_parameters=structure("l2", m))
    job = BuildRequest.model_validate(wanted).job("s3://{container}")
    assert resolved(job, job.spec(1 << 30, 2), raw_source(job, None)).shape.parameters.max_degree == degree


def test_a_graph_without_vectors_is_the_one_with_them(tmp_path: Path) -> None:
    whole = built(tmp_path / "a", request()).read_bytes()
    bare = built(tmp_path / "b", request(skip_stored_vectors=True)).read_bytes()
    tail = 8 + 8 * 2000
    begin = len(bare) - tail - 4
    assert bare[:begin] == whole[:begin]
    assert bare[begin : begin + 4] == b"null"
    assert bare[-tail:] == whole[-tail:]
    opened: Any = faiss.read_index(str(tmp_path / "b/blobs" / OUT))
    assert faiss.downcast_index(opened.index).storage is None


@pytest.mark.parametrize("count", [5, 6, 17])
def test_the_least_numbers_of_documents_are_built(tmp_path: Path, count: int) -> None:
    wanted = request(doc_count=count)
    found = faiss.read_index(str(built(tmp_path, wanted))).search(rows_of(wanted).astype(np.float32), count)[
        1
    ]
    assert np.array_equal(np.sort(found, axis=1), np.tile(ids_of(wanted), (count, 1)))


def test_vectors_that_are_all_equal_are_built(tmp_path: Path) -> None:
    path = built(tmp_path, request(), rows=np.zeros((2000, 16), np.float32))
    assert faiss.read_index(str(path)).ntotal == 2000


def test_bytes_do_not_depend_on_the_number_of_threads(tmp_path: Path) -> None:
    one, two = (built(tmp_path / str(n), request(), workers=n).read_bytes() for n in (1, 2))
    assert one == two


def test_a_build_that_failed_anywhere_writes_the_same_bytes_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = built(tmp_path / "whole", request()).read_bytes()
    begun = []

    def stop(point: str, detail: str = "") -> None:
        if point in ("stage-begun", "stage-done") and (point, detail) not in begun:
            begun.append((point, detail))
            raise KeyboardInterrupt

    monkeypatch.setattr("indexmill.pipeline.mill.stages.failpoint", stop)
    put_objects(tmp_path / "blobs", request())
    job, tries = BuildRequest.model_validate(request()).job(f"file://{tmp_path}/{{container}}"), 0
    while True:
        tries += 1
        try:
            build_hnsw(job, Place(tmp_path / "work", 1 << 30, 2))
            break
        except KeyboardInterrupt:
            assert not (tmp_path / "blobs" / OUT).exists()
    assert {detail for _, detail in begun} >= {"ingest", "build", "levels", "ids", "file"}
    assert tries == len(begun) + 1
    assert (tmp_path / "blobs" / OUT).read_bytes() == whole


#: Builds what a request asks for, below a folder.
BUILD = """
import sys
from pathlib import Path
from indexmill.jobs.service.request import BuildRequest
from indexmill.pipeline.hnsw import run
from indexmill.pipeline.hnsw.run import Place, build_hnsw
asked, folder = sys.argv[1:]
job = BuildRequest.model_validate_json(asked).job(f"file://{folder}/{{container}}")
build_hnsw(job, Place(Path(folder, "work"), 1 << 30, 2))
"""


@pytest.mark.kill
def test_what_a_build_left_that_was_killed_while_it_put_its_file_goes_with_the_next_try(
    tmp_path: Path,
) -> None:
    whole = built(tmp_path / "whole", request()).read_bytes()
    put_objects(tmp_path / "blobs", request())
    out = tmp_path / "blobs" / OUT
    for _ in range(2):  # each try has a name of its own, and takes away that of the one before
        killed = run_forked(BUILD, json.dumps(request()), tmp_path, failpoint="put-written")
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert not out.exists()
        assert len(list(out.parent.glob("*.tmp"))) == 1
    done = run_forked(BUILD, json.dumps(request()), tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert out.read_bytes() == whole
    assert list(out.parent.glob("*.tmp")) == []


def test_a_build_in_little_memory_is_as_good(tmp_path: Path) -> None:
    wanted = request(doc_count=60_000, index_parameters=structure("l2", 16))
    assert recall(built(tmp_path, wanted, memory=400 << 20), wanted) > 0.9


def test_a_graph_of_bytes_in_regions_is_the_one_in_one_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = request(doc_count=6000, data_type="byte")
    whole = built(tmp_path / "whole", wanted).read_bytes()
    in_regions(monkeypatch)
    stages = Stages()
    path = built(tmp_path, wanted, progress=stages)
    assert {"carve", "regions", "leaves"} <= set(stages.made)
    assert path.read_bytes() == whole


def test_a_build_that_does_not_fit_says_what_would(tmp_path: Path) -> None:
    job = BuildRequest.model_validate(request(doc_count=10_000_000, dimension=8)).job("s3://{container}")
    with pytest.raises(BudgetError, match=r"memory: .* give at least [0-9,]+"):
        check_fits(job, 300 << 20, 2, tmp_path)
    huge = BuildRequest.model_validate(request(doc_count=2**31 - 1, dimension=16_000)).job("s3://{container}")
    began = time.process_time()
    with pytest.raises(BudgetError, match=r"scratch: .* needs 275,[0-9,]+ bytes there"):
        check_fits(huge, 1 << 40, 2, tmp_path)
    assert time.process_time() - began < 1  # or a few such requests would keep the service busy


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"doc_count": 1999},
            r"seg\.knnvec: 128,000 bytes; expected 1,999 vectors of 16 x 4 bytes, 127,936 bytes",
        ),
        ({"doc_count": 2001}, r"seg\.knnvec: 128,000 bytes; expected 2,001 vectors"),
        ({"dimension": 17}, r"seg\.knnvec: 128,000 bytes; expected 2,000 vectors of 17 x 4 bytes"),
        ({"data_type": "byte"}, r"seg\.knnvec: 128,000 bytes; expected 2,000 vectors of 16 x 1 bytes"),
        ({"dimension": 8, "doc_count": 4000}, r"seg\.knndid: 8,000 bytes; expected 4,000 ids"),
        ({"vector_path": "base/other.knnvec"}, r"base/other\.knnvec: not found"),
        ({"doc_id_path": "base/none.knndid"}, r"base/none\.knndid: not found"),
    ],
)
def test_a_request_that_lies_is_refused_before_anything_is_read(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    put_objects(tmp_path / "blobs", request())
    job = BuildRequest.model_validate(request(**change)).job(f"file://{tmp_path}/{{container}}")
    with pytest.raises(InputError, match=said):
        build_hnsw(job, Place(tmp_path / "work", 1 << 30, 2))
    assert not list((tmp_path / "blobs").rglob("*.faiss"))
    assert not (tmp_path / "work/stages").exists()


@pytest.mark.parametrize(
    ("name", "value", "data_type", "said"),
    [
        ("vector_path", np.nan, "float", r"seg\.knnvec: row 3: component 5"),
        ("vector_path", np.inf, "half_float", r"seg\.knnvec: row 3: component 5"),
        ("vector_path", 1e6, "half_float", r"row 3: component 5 is 1e\+06, which overflows float16"),
        (
            "doc_id_path",
            -7,
            "float",
            r"seg\.knndid: id 3 is -7, after 5; expected ids from 0 on, each larger",
        ),
        ("doc_id_path", 5, "float", r"seg\.knndid: id 3 is 5, after 5; expected"),
        ("doc_id_path", 4, "byte", r"seg\.knndid: id 3 is 4, after 5; expected"),
        ("doc_id_path", 2**31 - 1, "float", r"seg\.knndid: id 4 is 9, after 2,147,483,647; expected"),
    ],
)
def test_objects_with_bad_values_are_refused(
    tmp_path: Path, name: str, value: float, data_type: str, said: str
) -> None:
    wanted = request(data_type=data_type)
    put_objects(tmp_path / "blobs", wanted)
    path = tmp_path / "blobs" / wanted[name]
    values = np.fromfile(path, "<f4" if name == "vector_path" else "<i4")
    values[3 * 16 + 5 if name == "vector_path" else 3] = value
    path.write_bytes(values.tobytes())
    job = BuildRequest.model_validate(wanted).job(f"file://{tmp_path}/{{container}}")
    with pytest.raises(InputError, match=said):
        build_hnsw(job, Place(tmp_path / "work", 1 << 30, 2))
    assert not list((tmp_path / "blobs").rglob("*.faiss"))


@pytest.mark.parametrize(("row", "value"), [(0, -1), (BLOCK, BLOCK - 1), (BLOCK, -(2**31)), (BLOCK + 4, 0)])
def test_an_id_that_does_not_grow_is_named_in_every_block(tmp_path: Path, row: int, value: int) -> None:
    ids = np.arange(BLOCK + 5, dtype="<i4")
    storage = Storage(f"file://{tmp_path}", str(tmp_path / "mirror"))
    job = BuildRequest.model_validate(request(doc_count=len(ids))).job("")
    (tmp_path / job.ids).parent.mkdir(parents=True)
    (tmp_path / job.ids).write_bytes(ids.tobytes())
    assert np.array_equal(np.concatenate(list(read_ids(job, storage))), ids)
    before, ids[row] = ids[row - 1], value
    (tmp_path / job.ids).write_bytes(ids.tobytes())
    after = f", after {before:,}" if row else ""
    with pytest.raises(
        InputError, match=f"id {row} is {value:,}{after}; expected ids from 0 on, each larger"
    ):
        list(read_ids(job, storage))


@pytest.mark.parametrize(("stage", "name"), [("ingest", "vector_path"), ("ids", "doc_id_path")])
def test_objects_replaced_while_they_are_read_are_refused(tmp_path: Path, stage: str, name: str) -> None:
    wanted = request()
    put_objects(tmp_path / "blobs", wanted)
    path = tmp_path / "blobs" / wanted[name]

    class Replaced(Stages):
        def advance(self, steps: int) -> None:
            if self.at_work == stage:
                path.write_bytes(path.read_bytes())
                os.utime(path, ns=(1, 1))

    job = BuildRequest.model_validate(wanted).job(f"file://{tmp_path}/{{container}}")
    with pytest.raises(InputError, match=f"{wanted[name]}: replaced in .* while it was read"):
        build_hnsw(job, Place(tmp_path / "work", 1 << 30, 2), Replaced())
    assert not (tmp_path / "blobs" / OUT).exists()


def test_vectors_replaced_on_s3_by_others_of_their_size_are_refused(tmp_path: Path) -> None:
    wanted = request()
    put_objects(tmp_path / "blobs", wanted)
    others = tmp_path / "others"
    others.write_bytes(rows_of(wanted)[::-1].tobytes())
    with flaky_server() as server:
        url = server.url.replace("/work?", "?")
        put_on(url, tmp_path / "blobs")
        storage = Storage(url, str(tmp_path / "mirror"))
        storage.delete(OUT)  # of another test: servers of a process share what they hold

        class Replaced(Stages):
            def advance(self, steps: int) -> None:
                if self.at_work == "ingest":
                    storage.put(others, wanted["vector_path"])

        with pytest.raises(InputError, match=r"seg\.knnvec: replaced in s3://bucket while it was read"):
            build_hnsw(
                BuildRequest.model_validate(wanted).job(url), Place(tmp_path / "work", 1 << 30, 2), Replaced()
            )
        assert read_from(url, OUT) is None


def test_object_storage_that_refuses_now_and_then_is_asked_again(tmp_path: Path) -> None:
    whole = built(tmp_path, request()).read_bytes()
    with flaky_server() as server:
        url = server.url.replace("/work?", "?")
        put_on(url, tmp_path / "blobs")
        server.failing = lambda number: number % 3 == 0
        build_hnsw(BuildRequest.model_validate(request()).job(url), Place(tmp_path / "s3", 1 << 30, 2))
        server.failing = lambda number: False
        assert server.failed > 0
        assert read_from(url, OUT) == whole


def test_object_storage_that_is_away_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "TRIES", 2)
    with flaky_server() as server:
        server.failing = lambda number: True
        job = BuildRequest.model_validate(request()).job(server.url.replace("/work?", "?"))
        with pytest.raises(
            StorageError, match=r"s3://bucket/base/path/uuid_field_seg\.knnvec: failed 2 times"
        ):
            build_hnsw(job, Place(tmp_path / "work", 1 << 30, 2))


def put_on(url: str, folder: Path) -> None:
    storage = Storage(url, str(folder.parent / "mirror"))
    for path in folder.rglob("*.knn*"):
        storage.put(path, path.relative_to(folder).as_posix())


def read_from(url: str, name: str) -> bytes | None:
    return Storage(url).read(name)
