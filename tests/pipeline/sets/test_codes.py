"""Codes that the parts of a set have in common: equal bytes, those of one index, and what becomes of other parts."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.processes.forks import run_forked
from tests.support.progress import Stages

import indexmill
from indexmill.formats.errors import BudgetError, FormatError
from indexmill.formats.graph.codes import CodesFile
from indexmill.formats.graph.file import GraphFile
from indexmill.formats.index.checked import checked_json, write_checked_json
from indexmill.formats.ivf.centroids import read_centroids
from indexmill.formats.sources.source import array_source
from indexmill.pipeline.kinds.common.shared import Range, Shared
from indexmill.pipeline.kinds.ivf.size import IvfSize
from indexmill.pipeline.sets.build import run_set_build
from indexmill.pipeline.spec import BuildSpec, IvfParameters, Parameters

RNG = np.random.default_rng(11)
CENTRES = RNG.standard_normal((20, 16)) * 4
#: Clusters of unlike size, so that parts differ.
VECTORS = (CENTRES[RNG.integers(0, 20, 3000)] + RNG.standard_normal((3000, 16))).astype(np.float32)
QUERIES = (CENTRES[RNG.integers(0, 20, 50)] + RNG.standard_normal((50, 16))).astype(np.float32)
ALL = float("inf")
#: Fewer training vectors than a part has, so that one index of all vectors trains on the same.
SMALL = {"R": 12, "L": 24, "pq_bytes": 4, "entries": 16, "sample_vectors": 600}


def graph_set(out: Path, vectors: Any = VECTORS, **more: Any) -> Any:
    return indexmill.build(vectors, out, **{"parts": 3, **SMALL, **more})


def parts_of(directory: Path) -> list[Path]:
    return sorted(directory.glob("part-*"))


def files(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != "run.json"
    }


def write_and_read(path: Path, value: dict[str, Any]) -> dict[str, Any]:
    write_checked_json(path, value)
    return checked_json(path)


def codebook(directory: Path) -> dict[str, bytes]:
    with CodesFile(directory / "codes.imx") as file:
        book = file.codebook
    return {name: b"" if value is None else value.tobytes() for name, value in vars(book).items()}


def nearest(vectors: Any, queries: Any, k: int = 10) -> Any:
    distances = np.square(queries[:, None].astype(np.float64) - vectors[None]).sum(axis=2)
    return np.argsort(distances, axis=1, kind="stable")[:, :k]


def recall(found: Any, expected: Any) -> float:
    hits = [len(set(a) & set(b)) for a, b in zip(found.ids, expected, strict=True)]
    return float(np.sum(hits) / expected.size)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("codes") / "set"
    graph_set(out, node_dtype="sq8")
    return out


@pytest.mark.parametrize("rotation", ["none", "opq"])
@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_every_part_has_the_codebook_and_the_scale_of_one_index_of_all_vectors(
    tmp_path: Path, metric: str, rotation: str
) -> None:
    more = {"metric": metric, "node_dtype": "sq8", "pq_rotation": rotation}
    graph_set(tmp_path / "set", **more)
    indexmill.build(VECTORS, tmp_path / "one", **SMALL, **more)
    expected = codebook(tmp_path / "one")
    with GraphFile(tmp_path / "one" / "graph.imx") as one:
        scale = one.scale()
    for part in parts_of(tmp_path / "set"):
        assert codebook(part) == expected
        with GraphFile(part / "graph.imx") as graph:
            assert np.array_equal(np.stack(graph.scale()), np.stack(scale))


def test_parts_of_inner_products_have_one_largest_norm_and_one_codebook(tmp_path: Path) -> None:
    opened = graph_set(tmp_path / "set", metric="ip")
    norms = []
    for part in parts_of(tmp_path / "set"):
        with GraphFile(part / "graph.imx") as graph:
            norms.append(graph.max_norm)
    assert norms == [pytest.approx(np.linalg.norm(VECTORS.astype(np.float64), axis=1).max())] * 3
    assert len({str(codebook(part)) for part in parts_of(tmp_path / "set")}) == 1
    found = opened.search(QUERIES, 10, L=200)
    products = np.sort(QUERIES.astype(np.float64) @ VECTORS.T.astype(np.float64), axis=1)[:, ::-1][:, :10]
    assert np.isclose(found.scores, products, rtol=1e-4).mean() > 0.95


@pytest.mark.parametrize("codec", ["pq", "sq8", "rabitq", "opq"])
def test_parts_of_lists_have_one_codec(tmp_path: Path, codec: str) -> None:
    how: dict[str, Any] = {"codec": "pq", "pq_rotation": "opq"} if codec == "opq" else {"codec": codec}
    opened = indexmill.build(
        VECTORS, tmp_path / "set", parts=3, kind="ivf", lists=8, pq_bytes=8, sample_vectors=600, **how
    )
    found = [read_centroids(part / "centroids.imx") for part in parts_of(tmp_path / "set")]
    assert len({one.centroids.tobytes() for one in found}) == 3, "cells are the part's own"
    for one in found:
        assert one.codec == codec
        assert (one.rotation is not None) == (codec in ("rabitq", "opq"))
        for what in ("codebook", "rabitq"):
            ours, first = (getattr(each, what) for each in (one, found[0]))
            assert (ours is None) == (first is None)
            if ours is not None:
                assert all(np.array_equal(vars(ours)[name], vars(first)[name]) for name in vars(ours))
        if codec == "sq8":
            assert np.array_equal(one.scale, found[0].scale)
    assert recall(opened.search(QUERIES, 10, margin=ALL, nprobe=8), nearest(VECTORS, QUERIES)) > 0.5
    manifest = json.loads((tmp_path / "set" / "manifest.json").read_text())
    for part in parts_of(tmp_path / "set"):
        assert json.loads((part / "manifest.json").read_text())["input"]["codes"] == manifest["codes"]


def test_flat_lists_and_hash_tables_have_nothing_in_common(tmp_path: Path) -> None:
    for name, kind in (("flat", {"kind": "ivf", "lists": 4}), ("tables", {"kind": "lsh"})):
        indexmill.build(VECTORS[:600], tmp_path / name, parts=2, **kind)
        assert "codes" not in json.loads((tmp_path / name / "manifest.json").read_text())
        for part in parts_of(tmp_path / name):
            assert "codes" not in json.loads((part / "manifest.json").read_text())["input"]


def test_one_format_is_chosen_for_all_parts_and_the_set_says_it(tmp_path: Path) -> None:
    stated = {name: value for name, value in SMALL.items() if name != "pq_bytes"}
    indexmill.build(VECTORS, tmp_path / "set", parts=3, search_memory="160000", **stated)
    keys = ("pq_bytes", "pq_rotation", "node_dtype", "max_degree")
    texts = [path / "manifest.json" for path in (tmp_path / "set", *parts_of(tmp_path / "set"))]
    formats = [[json.loads(text.read_text())["parameters"][key] for key in keys] for text in texts]
    assert formats.count(formats[0]) == 4


def test_workers_change_no_byte(tmp_path: Path, made: Path) -> None:
    graph_set(tmp_path / "set", node_dtype="sq8", workers=1)
    assert files(tmp_path / "set") == files(made)


class Stop(Exception):
    pass


@pytest.mark.parametrize("stage", ["divide", "draw", "encode", "order", "publish"])
def test_a_build_that_stops_anywhere_resumes_there(tmp_path: Path, made: Path, stage: str) -> None:
    parameters = Parameters.model_validate({**SMALL, "node_dtype": "sq8"})
    spec = BuildSpec(input=["array"], out=str(tmp_path / "set"), parts=3, parameters=parameters)

    def stop(name: str) -> None:
        if name == stage:
            raise Stop

    first, again = Stages(stop), Stages()
    with pytest.raises(Stop):
        run_set_build(spec, array_source(VECTORS), first)
    assert not (tmp_path / "set").exists()
    run_set_build(spec, array_source(VECTORS), again)
    assert again.made.count("divide") == 0
    assert again.made.count("draw") == (stage == "divide")
    assert (
        again.made.count("encode") == {"divide": 4, "draw": 4, "encode": 3, "order": 3, "publish": 2}[stage]
    )
    assert files(tmp_path / "set") == files(made)
    assert not (tmp_path / "set.work").exists()


BUILD = """
import json, sys
import indexmill
source, out, parameters = json.loads(sys.argv[1])
indexmill.build(source, out, parts=3, **parameters)
"""


@pytest.mark.kill
def test_a_build_that_is_killed_again_and_again_writes_the_same_set(tmp_path: Path, made: Path) -> None:
    np.save(tmp_path / "v.npy", VECTORS)
    out = tmp_path / "build" / "set"
    out.parent.mkdir()
    job = json.dumps([str(tmp_path / "v.npy"), str(out), {**SMALL, "node_dtype": "sq8"}])
    moments = ("divide-written", "draw-done", "encode-begun", "encode-done", "codes-written", "order-done")
    for moment in moments:  # each run gets a little further than the one before
        done = run_forked(BUILD, job, failpoint=moment)
        assert done.returncode == -signal.SIGKILL, (moment, done.stderr)
        assert not out.exists()
    done = run_forked(BUILD, job)
    assert done.returncode == 0, done.stderr
    assert files(out) == files(made)
    assert [path.name for path in out.parent.iterdir()] == ["set"]


def test_a_part_of_another_build_or_with_other_codes_is_refused_by_name(tmp_path: Path, made: Path) -> None:
    graph_set(tmp_path / "other", node_dtype="sq8", seed=2)
    copy, part = tmp_path / "set", tmp_path / "set" / "part-001"
    shutil.copytree(made, copy)
    shutil.rmtree(part)
    shutil.copytree(tmp_path / "other" / "part-001", part)
    with pytest.raises(FormatError, match="part part-001 is of another build: expected build id"):
        indexmill.open(copy)
    shutil.rmtree(part)
    shutil.copytree(made / "part-001", part)
    value = checked_json(part / "manifest.json")
    for codes, got in ((64 * "0", 16 * "0"), (None, "none of a set")):
        del value["digest"]
        value["input"]["codes"] = codes
        value = write_and_read(part / "manifest.json", value)
        with pytest.raises(
            FormatError, match=rf"part part-001 has other codes: expected [0-9a-f]{{16}}, got {got}"
        ):
            indexmill.open(copy)


def test_the_digest_of_codes_covers_the_range_and_the_facts_of_the_format(tmp_path: Path) -> None:
    file, extent = tmp_path / "format.json", Range([0.0], [1.0], 0.0)
    found = {Shared(extent).digest, Shared(extent._replace(maximum=[2.0])).digest}
    for text in ("1", "2"):
        file.write_text(text)
        found.add(Shared(extent, (file,)).digest)
    assert len(found) == 4


def test_parts_built_with_other_codes_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = Parameters.model_validate(SMALL)
    spec = BuildSpec(input=["array"], out=str(tmp_path / "set"), parts=2, parameters=parameters)

    def stop(name: str) -> None:
        if name == "publish":
            raise Stop

    with pytest.raises(Stop):
        run_set_build(spec, array_source(VECTORS), Stages(stop))
    assert list((tmp_path / "set.work").glob("parts-*/part-000/manifest.json"))
    monkeypatch.setattr("indexmill.pipeline.sets.codes.VERSION", 0)
    again = Stages()
    run_set_build(spec, array_source(VECTORS), again)
    assert (again.made.count("divide"), again.made.count("encode")) == (0, 3)
    assert not (tmp_path / "set.work").exists()


@pytest.mark.parametrize("codec", ["sq8", "rabitq"])
def test_codes_without_a_codebook_need_no_sample(tmp_path: Path, codec: str) -> None:
    parameters = IvfParameters(lists=8, codec=codec, sample_vectors=600)
    spec = BuildSpec(input=["array"], out=str(tmp_path / "set"), parts=2, parameters=parameters)
    made = Stages()
    run_set_build(spec, array_source(VECTORS), made)
    assert "draw" not in made.made
    assert made.made.count("ingest") == 2


def test_stages_of_codes_keep_to_the_scratch_space_and_are_dropped(tmp_path: Path) -> None:
    parameters = Parameters.model_validate(SMALL)
    spec = BuildSpec(
        input=["array"],
        out=str(tmp_path / "set"),
        parts=2,
        parameters=parameters,
        work=str(tmp_path / "work"),
    )
    with pytest.raises(BudgetError, match="scratch"):
        run_set_build(spec.model_copy(update={"scratch": 10_000}), array_source(VECTORS))
    run_set_build(spec, array_source(VECTORS))
    left = [path.name.partition("-")[0] for path in (tmp_path / "work").iterdir() if path.is_dir()]
    assert sorted(left) == ["codes", "divide"]
    assert not list((tmp_path / "work").rglob("sample.npy"))


def test_lists_of_codes_are_those_of_all_parts_as_far_as_half_of_the_memory_holds_them() -> None:
    source = array_source(np.zeros((100_000, 64), np.float32))
    parameters = IvfParameters(lists=1000, codec="pq", pq_bytes=8)
    for memory, lists in ((8 << 30, 3125), (360 << 20, 1000)):
        spec = BuildSpec(input=["array"], out="set", parameters=parameters, memory=memory, workers=1)
        assert IvfSize(spec, source).for_codes(4).shape.parameters.lists == lists


def test_an_appended_part_keeps_its_codebook_and_is_another_build(tmp_path: Path, made: Path) -> None:
    copy, part = tmp_path / "set", tmp_path / "part"
    shutil.copytree(made, copy)
    indexmill.append(made / "part-002", QUERIES, ids=np.arange(10_000, 10_050), out=part)
    assert codebook(part) == codebook(made / "part-002")
    assert "codes" not in json.loads((part / "manifest.json").read_text())["input"]
    shutil.rmtree(copy / "part-002")
    shutil.copytree(part, copy / "part-002")
    with pytest.raises(FormatError, match="part part-002 is of another build"):
        indexmill.open(copy)


def test_a_set_from_before_is_read(tmp_path: Path, made: Path) -> None:
    copy = tmp_path / "set"
    shutil.copytree(made, copy)
    for path in (copy, *parts_of(copy)):
        value = checked_json(path / "manifest.json")
        del value["digest"]
        value.pop("codes", None)
        value["input"].pop("codes", None)
        write_checked_json(path / "manifest.json", value)
    found, expected = (indexmill.open(path).search(QUERIES, 10) for path in (copy, made))
    assert np.array_equal(found.ids, expected.ids)


def test_recall_of_a_set_is_that_of_one_index_or_nearly(tmp_path: Path) -> None:
    truth = nearest(VECTORS, QUERIES)
    opened = graph_set(tmp_path / "set", pq_bytes=8)
    one = indexmill.build(VECTORS, tmp_path / "one", **{**SMALL, "pq_bytes": 8})
    for effort in (16, 24, 40):
        together = recall(opened.search(QUERIES, 10, L=effort, margin=ALL), truth)
        assert together >= recall(one.search(QUERIES, 10, L=effort), truth) - 0.005
