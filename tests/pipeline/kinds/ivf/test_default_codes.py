"""PQ codes of lists that a job leaves open: of embeddings they are longer and rotated, and the manifest says so."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracles import products as oracle
from tests.support.cli import run, run_json
from tests.support.indexes.builds import assert_sound, correlated, data_files
from tests.support.indexes.export import assert_same_answers
from tests.support.indexes.ivf import build_lists

import indexmill
from indexmill.formats.errors import BudgetError, ConfigError, InputError
from indexmill.formats.exports.lance.library import check_codebook
from indexmill.formats.index.checked import checked_json, write_checked_json
from indexmill.formats.ivf.index import IvfFiles
from indexmill.formats.sources.source import array_source
from indexmill.pipeline.append.lists.opened import OpenedLists
from indexmill.pipeline.kinds.graph.candidates import open_formats
from indexmill.pipeline.kinds.graph.shape import GraphShape
from indexmill.pipeline.kinds.ivf.shape import IvfShape, with_codes
from indexmill.pipeline.kinds.ivf.size import IvfSize
from indexmill.pipeline.spec import BuildSpec, IvfParameters, Parameters
from indexmill.pipeline.update.rebuild import Rebuild
from indexmill.pipeline.update.source import outlined
from indexmill.pipeline.update.spec import UpdateSpec
from indexmill.reader.ivf import IvfIndex

DIM, LISTS = 256, 4
GOLDEN = Path(__file__).parents[3] / "golden"
VECTORS, QUERIES = correlated(700, DIM), correlated(30, DIM, seed=1)
PLAIN: dict[str, Any] = {"pq_bytes": 32, "pq_rotation": "none"}


def build(path: Path, vectors: Any = VECTORS, **how: Any) -> Path:
    return build_lists(path, vectors, **{"lists": LISTS, "codec": "pq", "batch_vectors": None, **how})


def size_of(vectors: Any = VECTORS, memory: int = 8 << 30, **stated: Any) -> IvfSize:
    parameters = IvfParameters(codec="pq", lists=LISTS, **stated)
    spec = BuildSpec(input=["<array>"], out="ix", parameters=parameters, memory=memory)
    return IvfSize(spec, array_source(vectors))


def coding_of(index: Path) -> list[Any]:
    stated = checked_json(index / "manifest.json")["parameters"]
    return [stated[name] for name in ("codec", "pq_bytes", "pq_rotation")]


def as_of_an_earlier_version(index: Path) -> Path:
    value = checked_json(index / "manifest.json")
    del value["digest"], value["parameters"]["pq_rotation"]
    write_checked_json(index / "manifest.json", value)
    return index


@pytest.mark.parametrize(
    ("dtype", "dim", "stated", "taken"),
    [
        ("float32", 256, {}, (64, "opq")),
        ("float16", 768, {}, (64, "opq")),
        ("float32", 255, {}, (32, "none")),
        ("uint8", 768, {}, (32, "none")),
        ("float32", 1536, {}, (64, "opq")),
        ("float32", 1537, {}, (64, "none")),
        ("float32", 768, {"pq_bytes": 32}, (32, "opq")),
        ("float32", 768, {"pq_rotation": "none"}, (64, "none")),
        ("float32", 5000, {"pq_rotation": "opq"}, (64, "opq")),
        ("uint8", 768, {"pq_rotation": "opq"}, (32, "opq")),
    ],
)
def test_codes_that_a_job_leaves_open_follow_from_the_type_and_the_components(
    dtype: str, dim: int, stated: dict[str, Any], taken: tuple[int, str]
) -> None:
    shape = IvfShape(1000, dim, np.dtype(dtype), 0.0, IvfParameters(codec="pq", **stated))
    p = with_codes(shape).parameters
    assert (p.pq_bytes, p.pq_rotation) == taken
    if "pq_bytes" not in stated:
        (of_graph,) = open_formats(GraphShape(1000, dim, np.dtype(dtype), 0.0, Parameters()))
        assert of_graph.pq_bytes == p.pq_bytes


@pytest.mark.parametrize("codec", ["flat", "sq8", "rabitq"])
def test_lists_without_product_codes_stay_as_they_are(codec: str) -> None:
    shape = IvfShape(1000, 768, np.dtype(np.float32), 0.0, IvfParameters(codec=codec))
    assert with_codes(shape) is shape


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
def test_a_build_takes_what_the_same_flags_say_and_states_it(tmp_path: Path, metric: str) -> None:
    index = build(tmp_path / "ix", metric=metric)
    stated = build(tmp_path / "stated", metric=metric, pq_bytes=64, pq_rotation="opq")
    assert data_files(index) == data_files(stated)
    assert coding_of(index) == ["pq", 64, "opq"]
    assert_sound(index)
    assert "opq, 64 bytes a vector" in run("inspect", index).stdout
    found = IvfIndex(index).search(QUERIES, 5, nprobe=LISTS)
    assert_same_answers((found.vector_ids, found.scores), oracle.search(index, QUERIES, LISTS, 5), 1e-4)


def test_a_plan_says_what_will_be_taken(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", VECTORS)
    job = ("plan", "--kind", "ivf", "--codec", "pq", "--input", tmp_path / "v.npy", "--out", tmp_path / "ix")
    plan = run_json(*job, "--lists", LISTS)["ivf"]
    assert (plan["codec"], plan["row_bytes"]) == ("opq", 64)
    assert "(opq, 64 bytes a vector)" in run(*job, "--lists", LISTS).stdout


def test_memory_space_and_time_count_a_rotation_that_nobody_named(tmp_path: Path) -> None:
    taken, stated, plain = size_of(), size_of(pq_bytes=64, pq_rotation="opq"), size_of(pq_rotation="none")
    assert taken.stage_bytes() == stated.stage_bytes()
    assert taken.stage_bytes()["centroids"] > plain.stage_bytes()["centroids"]
    assert taken.stage_files() == stated.stage_files()
    assert taken.stage_files()["emit"] - plain.stage_files()["emit"] == 4 * DIM**2
    rates = taken.timed(tmp_path)
    assert rates.decomposing > plain.timed(tmp_path).decomposing == 0
    slower = rates._replace(decomposing=rates.decomposing + 9)
    for seconds in (taken.training_seconds, lambda at: taken.seconds_at(at)["centroids"]):
        assert seconds(slower) - seconds(rates) == pytest.approx(9)


def test_a_budget_that_only_plain_codes_fit_is_refused_by_their_flag() -> None:
    vectors, memory = np.zeros((300, 1536), np.float32), 400 << 20
    with pytest.raises(BudgetError, match=r"stage centroids .*; take --pq-rotation none, lower --workers"):
        size_of(vectors, memory)
    with pytest.raises(BudgetError, match="the budget is 104,857,600; lower --workers"):
        size_of(vectors, 100 << 20, pq_rotation="none")
    assert size_of(vectors, memory, pq_rotation="none").shape.parameters.pq_bytes == 64


def test_parts_of_a_set_take_the_same_and_its_manifest_states_it(tmp_path: Path) -> None:
    how: dict[str, Any] = {"kind": "ivf", "codec": "pq", "lists": LISTS, "sample_vectors": 300}
    indexmill.build(VECTORS, tmp_path / "set", parts=2, **how)
    parts = sorted((tmp_path / "set").glob("part-*"))
    assert [coding_of(path) for path in (tmp_path / "set", *parts)] == [["pq", 64, "opq"]] * 3
    first, second = (IvfFiles(part).centroids.rotation for part in parts)
    assert first is not None
    assert np.array_equal(first, second)


def test_an_index_of_an_earlier_version_stays_plain(tmp_path: Path) -> None:
    old = as_of_an_earlier_version(build(tmp_path / "old", keep_vectors=True, **PLAIN))
    with OpenedLists(old) as opened:
        assert opened.parameters.pq_rotation == "none"
        job, source = UpdateSpec(base=[str(old)], compact=True), outlined(700, DIM, "float32", None, None)
        rebuilt = Rebuild(opened.parameters, source, job, tmp_path).size.shape.parameters
        assert (rebuilt.pq_bytes, rebuilt.pq_rotation) == (32, "none")
    new = build(tmp_path / "new", QUERIES, keep_vectors=True)
    indexmill.append(old, VECTORS[:40] + np.float32(0.01))
    indexmill.delete(old, np.arange(5), by="vector")
    indexmill.compact(old)
    indexmill.merge(old, new)
    shared = IvfFiles(old).centroids
    assert (shared.codec, shared.row_bytes, shared.n_vectors) == ("pq", 32, 700 + 40 - 5 + 30)
    assert_sound(old)


def test_the_golden_index_states_no_rotation_and_stays_plain(tmp_path: Path) -> None:
    index = Path(shutil.copytree(GOLDEN / "v1_3_ivf_pq", tmp_path / "ix"))
    assert "pq_rotation" not in checked_json(index / "manifest.json")["parameters"]
    with OpenedLists(index) as opened:
        assert opened.parameters.pq_rotation == "none"
    indexmill.delete(index, np.arange(3), by="vector")
    indexmill.compact(index)
    assert IvfFiles(index).centroids.codec == "pq"
    assert_sound(index)


def test_rotated_and_plain_codes_without_vectors_are_not_merged(tmp_path: Path) -> None:
    old, new = build(tmp_path / "old", **PLAIN), build(tmp_path / "new", VECTORS[:400] + np.float32(0.01))
    with pytest.raises(InputError, match=r"new: codec opq; expected pq as .*old, and no exact vectors"):
        indexmill.merge(old, new)


def test_lance_refuses_the_default_and_names_the_flag_that_suits(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"lance: PQ codes of rotated vectors.*build with --pq-rotation none"
    ):
        indexmill.export(build(tmp_path / "ix"), "lance", tmp_path / "out")
    check_codebook(IvfFiles(build(tmp_path / "plain", pq_rotation="none")).centroids)
