"""The format of a job that leaves it open: what is tried, what is chosen, and what stands."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.cli import run
from tests.support.indexes.builds import assert_sound, correlated, data_files
from tests.support.tune import FORMAT_NAMES

import indexmill
from indexmill.formats.errors import BudgetError, ConfigError
from indexmill.formats.graph.codes import MAX_BYTES
from indexmill.formats.graph.nodes import NodeFormat
from indexmill.formats.index.manifest import read_manifest
from indexmill.formats.sources.source import array_source
from indexmill.pipeline.build import run_build
from indexmill.pipeline.kinds.graph.candidates import (
    LEAST_VECTORS,
    Format,
    largest,
    open_formats,
    wide_degrees,
)
from indexmill.pipeline.kinds.graph.shape import GraphShape
from indexmill.pipeline.kinds.graph.size import GraphSize
from indexmill.pipeline.plan import make_plan
from indexmill.pipeline.spec import BuildSpec, Parameters


def formats(n: int = 1_000_000, dim: int = 768, dtype: str = "float32", **settings: Any) -> list[Format]:
    return open_formats(GraphShape(n, dim, np.dtype(dtype), 0.0, Parameters(**settings)))


def spec(out: Path, **settings: Any) -> BuildSpec:
    run = {key: settings.pop(key) for key in ("workers", "memory") if key in settings}
    return BuildSpec(input=["<array>"], out=str(out), parameters=Parameters(R=16, L=30, **settings), **run)


def test_what_is_open_is_tried_with_the_smallest_nodes_first() -> None:
    assert formats() == [
        Format(64, rotation, node, degree)
        for node, degree in (("sq8", 63), ("sq16", 64), ("same", 64))
        for rotation in ("none", "opq")
    ]
    assert formats(dtype="uint8", dim=128) == [Format(32, "none", "same", 52), Format(32, "opq", "same", 52)]


def test_nodes_have_more_neighbours_where_the_index_grows_by_a_quarter_at_most() -> None:
    assert [one.max_degree for one in formats(dim=256, pq_rotation="none")[:2]] == [
        48,
        64,
    ]  # 9 and 5 nodes a page
    assert {one.max_degree for one in formats(dim=300, pq_rotation="none", node_dtype="same")} == {
        40
    }  # 3, not 2


def test_what_is_stated_stands() -> None:
    assert formats(pq_bytes=48, pq_rotation="opq", node_dtype="float16", R=24) == [
        Format(48, "opq", "float16", 24)
    ]
    assert {one.node_dtype for one in formats(node_dtype="same")} == {"same"}


def test_nodes_beside_exact_vectors_are_bytes_unless_stated() -> None:
    assert formats(keep_vectors=True) == [Format(64, "none", "sq8", 63), Format(64, "opq", "sq8", 63)]
    assert {one.node_dtype for one in formats(keep_vectors=True, node_dtype="sq16")} == {"sq16"}
    assert formats(n=LEAST_VECTORS - 1, keep_vectors=True) == [Format(64, "none", "sq8", 32)]
    beside, alone = (formats(search_memory="60MB", keep_vectors=keep)[0].pq_bytes for keep in (True, False))
    assert beside == alone - 4  # a checksum a page, and an exact vector a page


def test_small_inputs_keep_the_defaults() -> None:
    assert formats(n=LEAST_VECTORS - 1) == [Format(64, "none", "same", 32)]


@pytest.mark.parametrize(("text", "size"), [("16/vector", 16), ("200/vector", 200), ("4000/vector", 512)])
def test_a_limit_of_a_code_is_its_size(text: str, size: int) -> None:
    assert {one.pq_bytes for one in formats(search_memory=text)} == {size}


def test_a_limit_of_all_memory_leaves_less_for_rotated_codes() -> None:
    found = {(one.node_dtype, one.pq_rotation): one.pq_bytes for one in formats(search_memory="60MB")}
    for node in ("sq8", "sq16", "same"):
        assert found[node, "opq"] < found[node, "none"]
    assert found["sq8", "none"] == found["same", "none"] + 3  # four nodes a page, with one checksum


@given(
    dim=st.integers(16, 1000),
    per_vector=st.integers(20, 600),
    dtype=st.sampled_from(["float32", "float16", "uint8"]),
    degree=st.sampled_from([None, 16, 100]),
    keep=st.booleans(),
)
def test_the_codes_of_every_format_use_a_limit_up_and_do_not_exceed_it(
    dim: int, per_vector: int, dtype: str, degree: int | None, keep: bool
) -> None:
    n, limit = 1_000_000, per_vector * 1_000_000
    settings = {} if degree is None else {"R": degree}
    p = Parameters(search_memory=str(limit), keep_vectors=keep and dtype != "uint8", **settings)
    shape = GraphShape(n, dim, np.dtype(dtype), 0.0, p)

    def held(one: Format) -> int:
        return replace(shape, parameters=one.applied(p)).held_bytes

    for one in open_formats(shape):
        assert held(one) <= limit
        larger = one._replace(pq_bytes=one.pq_bytes + 1)
        assert one.pq_bytes == min(dim, MAX_BYTES) or held(larger) > limit


def test_memory_for_no_code_is_refused_with_the_least_that_works() -> None:
    with pytest.raises(
        BudgetError, match=r"search_memory: 1MB holds no codes of 1,000,000 vectors"
    ) as refused:
        formats(search_memory="1MB")
    least = int(str(refused.value).split("give at least ")[1].split(" bytes")[0].replace(",", ""))
    assert formats(search_memory=str(least))
    with pytest.raises(BudgetError):
        formats(search_memory=str(least - 1))


def test_codes_that_are_larger_than_the_limit_are_refused() -> None:
    refusal = (
        r"pq_bytes: 65 bytes, but search_memory 64/vector allows 64; lower --pq-bytes to 64, or raise --search-memory "
        "to at least 65/vector"
    )
    with pytest.raises(ConfigError, match=refusal):
        formats(pq_bytes=65, search_memory="64/vector")
    with pytest.raises(ConfigError, match="raise --search-memory to at least") as refused:
        formats(pq_bytes=70, search_memory="60MB")
    least = int(str(refused.value).split("at least ")[1].split(" bytes")[0].replace(",", ""))
    assert {one.pq_bytes for one in formats(pq_bytes=70, search_memory=str(least))} == {70}
    with pytest.raises(ConfigError):
        formats(pq_bytes=70, search_memory=str(least - 1))


@pytest.mark.parametrize("text", ["", "many", "0", "64MB/vector", "0/vector", "-1/vector"])
def test_a_limit_that_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="search_memory"):
        Parameters(search_memory=text)


@pytest.mark.parametrize("text", ["64/vec", "64 a vector", "/vector", "64MB/vector", "many"])
def test_a_refusal_of_a_limit_names_both_of_its_forms(text: str) -> None:
    with pytest.raises(ValueError, match=f"'{text}' is not a memory of searches; .* 64/vector, .* 2GB"):
        Parameters(search_memory=text)


def test_a_stated_code_is_tried_with_a_rotation_only_where_that_fits() -> None:
    most = max(one.pq_bytes for one in formats(search_memory="60MB"))
    found = formats(search_memory="60MB", pq_bytes=most)
    assert [(one.pq_rotation, one.node_dtype) for one in found] == [("none", "sq8")]
    assert formats(dim=16, pq_bytes=32, search_memory="64/vector")[0].pq_bytes == 32


@given(dim=st.integers(1, 4000), node=st.sampled_from(["sq8", "sq16", "float32"]))
def test_a_wide_degree_costs_a_page_one_node_at_most_and_fills_it(dim: int, node: str) -> None:
    shape = GraphShape(LEAST_VECTORS, dim, np.dtype(np.float32), 0.0, Parameters())

    def on_pages(degree: int) -> tuple[int, int]:
        of_degree = NodeFormat(dim, node, degree)
        return of_degree.nodes_per_page, of_degree.pages_per_node

    default, usual = on_pages(32), on_pages(48)
    usual, pages = usual if default[0] <= 1.25 * usual[0] and default[1] == usual[1] else default
    for degree in wide_degrees(shape, "same" if node == "float32" else node):
        assert 32 < degree <= 160
        assert on_pages(degree) in ((usual, pages), (usual - 1, pages))
        assert degree == 160 or on_pages(degree + 1) != on_pages(degree)
    assert wide_degrees(replace(shape, n=LEAST_VECTORS - 1), node) == []


@pytest.mark.parametrize(
    ("dtype", "dim", "expected"), [("uint8", 128, [60]), ("float32", 256, [63]), ("float32", 768, [148])]
)
def test_wide_degrees_go_on_where_a_build_ends(dtype: str, dim: int, expected: list[int]) -> None:
    shape = GraphShape(LEAST_VECTORS, dim, np.dtype(dtype), 0.0, Parameters())
    assert wide_degrees(shape, "same" if dtype == "uint8" else "sq8") == expected


def test_without_memory_for_trials_nodes_of_the_input_have_the_neighbours_that_fit_beside_them(
    tmp_path: Path,
) -> None:
    source = array_source(correlated(LEAST_VECTORS, 300))

    def size(memory: int) -> GraphSize:
        job = BuildSpec(input=["<array>"], out=str(tmp_path / "ix"), parameters=Parameters(), memory=memory)
        return GraphSize(job, source)

    assert len(size(4 << 30).formats) == 6
    assert "why" not in size(4 << 30).facts()["format"]
    short = size(400 << 20)
    assert short.formats == [Format(64, "none", "same", 40)]  # of sq16 nodes R is 53
    why = short.facts()["format"]["why"]
    least = int(re.fullmatch(r"formats are measured from ([\d,]+) MiB of memory", why)[1])
    assert len(size(least << 20).formats) > 1
    assert "why" in size((least << 20) - (1 << 20)).facts()["format"]


def test_a_build_without_memory_for_trials_says_which_would_be_enough(tmp_path: Path) -> None:
    vectors, job = correlated(LEAST_VECTORS, 300), spec(tmp_path / "ix", pq_bytes=8)
    short = job.model_copy(update={"memory": 400 << 20})
    why = GraphSize(short, array_source(vectors)).facts()["format"]["why"]
    built = run_build(short, array_source(vectors))
    assert "format" not in built["graph"]
    assert built["graph"]["format_unmeasured"] == why
    shown = run("inspect", tmp_path / "ix").stdout
    assert f"codes of 8 bytes, nodes as in the input, R=16; {why}" in " ".join(shown.split())
    indexmill.lay_out(tmp_path / "ix", order="identity", out=tmp_path / "other")
    assert read_manifest(tmp_path / "other").graph["format_unmeasured"] == why
    enough = int(re.search(r"[\d,]+", why)[0].replace(",", "")) << 20
    assert (
        "format_unmeasured"
        not in run_build(
            job.model_copy(update={"memory": enough, "out": str(tmp_path / "more")}), array_source(vectors)
        )["graph"]
    )


def test_the_largest_format_takes_as_much_as_any() -> None:
    assert largest(formats()) == Format(64, "opq", "same", 64)


def test_a_rotation_is_chosen_where_it_saves_reads_and_every_worker_chooses_alike(tmp_path: Path) -> None:
    vectors = correlated(LEAST_VECTORS)
    for workers in (1, 3):
        run_build(spec(tmp_path / str(workers), workers=workers, pq_bytes=8), array_source(vectors))
    assert data_files(tmp_path / "1") == data_files(tmp_path / "3")
    assert_sound(tmp_path / "1")
    made = read_manifest(tmp_path / "1")
    found = made.graph["format"]
    assert found["chosen"] == {name: made.parameters[name] for name in FORMAT_NAMES}
    assert found["chosen"]["pq_rotation"] == "opq"
    reads = {(one["pq_rotation"], one["node_dtype"]): one["pages_read"] for one in found["tried"]}
    assert reads["opq", "sq8"] < reads["none", "sq8"]


def test_no_rotation_is_chosen_where_it_saves_nothing(tmp_path: Path) -> None:
    vectors = np.random.default_rng(1).normal(size=(LEAST_VECTORS, 16)).astype(np.float32)
    run_build(spec(tmp_path / "index", pq_bytes=8), array_source(vectors))
    assert read_manifest(tmp_path / "index").parameters["pq_rotation"] == "none"


def test_the_plan_names_the_format_that_the_build_chooses(tmp_path: Path) -> None:
    vectors = correlated(LEAST_VECTORS)
    job = spec(tmp_path / "index", pq_bytes=8, metric="cosine")
    planned = make_plan(job, array_source(vectors))
    built = run_build(job, array_source(vectors))
    assert planned.facts["format"] == built["graph"]["format"]["chosen"]
    assert json.dumps(planned.to_dict())


def test_a_stated_format_is_built_without_a_trial(tmp_path: Path) -> None:
    vectors = correlated(LEAST_VECTORS)
    built = run_build(
        spec(tmp_path / "index", pq_bytes=8, pq_rotation="none", node_dtype="same"), array_source(vectors)
    )
    assert "format" not in built["graph"]
    assert "format" not in json.loads((tmp_path / "index" / "run.json").read_text())["seconds"]
