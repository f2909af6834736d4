"""`--label-column`: edges that stay within a label, which searches for one label walk along."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError
from tests.support.cli import run as command
from tests.support.indexes.builds import assert_sound, data_files

import indexmill
from indexmill.builders.lists.exact import exact_neighbours
from indexmill.builders.vamana.labels import LEAST_VECTORS
from indexmill.formats.errors import BudgetError, ConfigError
from indexmill.formats.index import metadata
from indexmill.formats.sources.source import array_source
from indexmill.layout.order import Adjacency
from indexmill.pipeline.generations.opened import OpenedIndex
from indexmill.pipeline.kinds.common import memory as common_memory
from indexmill.pipeline.kinds.graph import memory as needs
from indexmill.pipeline.kinds.graph.shape import GraphShape
from indexmill.pipeline.kinds.graph.shaped import labels as stages
from indexmill.pipeline.kinds.graph.shaped.labels import LEAST_DEGREE, checked_labels, label_places
from indexmill.pipeline.plan import make_plan
from indexmill.pipeline.relayout.record import manifest_of
from indexmill.pipeline.spec import BuildSpec, Parameters
from indexmill.reader.index import Index
from indexmill.reader.trace import times_expanded

N, DIM, K, RARE = 4000, 24, 10, 40
HOW: dict[str, Any] = {"R": 32, "L": 50, "pq_bytes": 12, "codes_on_page": True, "pq_rotation": "none"}
RANDOM = np.random.default_rng(7)
VECTORS = RANDOM.standard_normal((N, DIM)).astype(np.float32)
QUERIES = RANDOM.standard_normal((60, DIM)).astype(np.float32)
#: Ten labels drawn whatever the vector is, one of them of few vectors, and vectors without a label.
NAMES = RANDOM.choice([f"l{i}" for i in range(10)], N).astype(object)
NAMES[NAMES == "l0"] = None
NAMES[:RARE] = "rare"


def built(
    out: Path, labels: Any = NAMES, column: str | None = "label", vectors: Any = VECTORS, **how: Any
) -> Path:
    given = {} if column is None else {"label_column": column}
    metadata = pa.table({"label": labels, "other": np.arange(len(vectors)) % 3})
    indexmill.build(vectors, out, metadata=metadata, **{**HOW, **given, **how})
    return out


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("plain") / "ix", column=None)


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("labelled") / "ix", workers=1)


def graph_of(index: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((index / "manifest.json").read_text())["graph"]
    return found


def searched(index: Path, allow: Any, allowed: Any, size: int, vectors: Any = VECTORS) -> tuple[float, float]:
    """Recall and page reads of a query among the `allowed` vectors."""
    rows = np.flatnonzero(allowed)
    truth = rows[exact_neighbours(vectors[rows], QUERIES, K)[0]]
    opened = Index(index)
    found = opened.search(QUERIES, K, L=size, allow=opened.filter(allow))
    hits = [len(set(a) & set(b)) for a, b in zip(found.vector_ids.tolist(), truth.tolist(), strict=True)]
    assert all(allowed[one] for row in found.vector_ids for one in row if one >= 0)
    return float(np.mean(hits)) / K, float(found.counters["pages_read"].mean())


def reads_at_recall(index: Path, allow: Any, allowed: Any) -> float:
    """Page reads of a query with the first list size that reaches recall 0.95."""
    for size in range(K, 400, 2):
        recall, reads = searched(index, allow, allowed, size)
        if recall >= 0.95:
            return reads
    raise AssertionError("recall 0.95 not reached")


@pytest.mark.parametrize("builder", ["partition", "vamana"])
def test_searches_of_a_label_find_more_and_read_fewer_pages(
    tmp_path: Path, plain: Path, builder: str
) -> None:
    with_edges = built(tmp_path / "ix", builder=builder)
    assert_sound(with_edges)
    for name in ("l3", "l7"):
        mine = np.equal(NAMES, name)
        condition = f"label = '{name}'"
        today, within = reads_at_recall(plain, mine, mine), reads_at_recall(with_edges, condition, mine)
        assert within < 0.85 * today
        assert searched(with_edges, condition, mine, 80)[0] >= searched(plain, mine, mine, 80)[0] - 0.005


def test_one_value_of_a_list_is_a_label_and_several_are_as_today(labelled: Path) -> None:
    index = Index(labelled)

    def reads(allow: Any) -> float:
        return float(index.search(QUERIES, K, L=40, allow=allow).counters["pages_read"].mean())

    alone = reads("label = 'l3'")
    assert reads("label in ('l3')") == reads("label = 'l3' or label = 'l3'") == alone
    assert reads(index.where("label = 'l3'")) > 1.2 * alone  # a mask may be of anything
    for condition in (
        "label in ('l3', 'l4')",
        "label = 'l3' and other = 1",
        "label is null",
        "label = 'rare'",
    ):
        found = index.search(QUERIES, K, L=40, allow=condition)
        same = index.search(QUERIES, K, L=40, allow=index.where(condition))
        np.testing.assert_array_equal(found.vector_ids, same.vector_ids)
        np.testing.assert_array_equal(found.counters["pages_read"], same.counters["pages_read"])


def test_a_list_of_all_vectors_of_a_label_finds_each_of_them(labelled: Path) -> None:
    index, mine = Index(labelled), np.flatnonzero(np.equal(NAMES, "l5"))
    found = index.search(QUERIES[:5], len(mine), L=len(mine) - 1 + K, allow="label = 'l5'")
    assert all(set(row.tolist()) - {-1} == set(mine.tolist()) for row in found.vector_ids)
    walked = index.search(QUERIES[:5], K, L=len(mine) - 1, allow="label = 'l5'")
    truth = mine[exact_neighbours(VECTORS[mine], QUERIES[:5], K)[0]]
    assert [set(row) for row in walked.vector_ids.tolist()] == [set(row) for row in truth.tolist()]


def test_other_searches_read_hardly_more(plain: Path, labelled: Path) -> None:
    everything = np.ones(N, np.bool_)
    today, now = (searched(index, everything, everything, 60) for index in (plain, labelled))
    assert now[0] > today[0] - 0.05
    assert now[1] < 1.1 * today[1]


def test_workers_do_not_change_the_bytes(tmp_path: Path, labelled: Path) -> None:
    assert data_files(built(tmp_path / "three", workers=3)) == data_files(labelled)


def test_regions_make_the_same_index_as_one_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = built(tmp_path / "whole", builder="partition")
    monkeypatch.setattr(common_memory, "MOST_SORT_BUFFERS", 256 << 10)
    monkeypatch.setattr(needs, "fitted_shape", lambda shape, *_: replace(shape, region_bytes=3_000_000))
    assert data_files(built(tmp_path / "regions", builder="partition")) == data_files(whole)


def test_shards_get_edges_too(tmp_path: Path) -> None:
    index = built(tmp_path / "shards", builder="vamana", shard_vectors=2200)
    assert_sound(index)
    assert len(graph_of(index)["shards"]) > 1
    assert graph_of(index)["labels"]["edges"] > 0


@pytest.mark.parametrize(
    ("metric", "dtype"),
    [("ip", "float32"), ("cosine", "float32"), ("l2", "uint8"), ("l2", "int8"), ("l2", "float16")],
)
def test_metrics_and_types(tmp_path: Path, metric: str, dtype: str) -> None:
    middle = 128 if dtype == "uint8" else 0
    scale = 30 if dtype in ("uint8", "int8") else 1
    vectors = np.clip(VECTORS * scale + middle, middle - 128, middle + 127).astype(dtype)
    how = {"node_dtype": "same"} if scale > 1 else {}
    index = built(tmp_path / "ix", vectors=vectors, metric=metric, **how)
    assert_sound(index)
    assert graph_of(index)["labels"]["edges"] > 0
    mine = np.flatnonzero(np.equal(NAMES, "l4"))
    asked = Index(index).search(vectors[mine[:20]], 1, L=80, allow="label = 'l4'")
    assert np.isin(asked.vector_ids, mine).all()
    if metric != "ip":  # by which a vector need not be its own nearest one
        assert np.mean(asked.vector_ids[:, 0] == mine[:20]) > 0.9


def test_a_label_column_where_searches_would_not_use_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"label_column: goes with --codes-on-page.* add that"):
        built(tmp_path / "a", codes_on_page=False)
    with pytest.raises(ConfigError, match=r"label_column: lists of 13 neighbours have no room.* give -R 14"):
        built(tmp_path / "b", R=13)
    assert not list(tmp_path.iterdir())
    assert label_places(LEAST_DEGREE, LEAST_VECTORS) == 4
    assert graph_of(built(tmp_path / "c", R=LEAST_DEGREE))["labels"]["edges"] > 0


def test_a_build_that_was_killed_while_labels_got_edges_resumes(
    tmp_path: Path, labelled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = {"work": str(tmp_path / "work"), "workers": 1}
    task = stages.labels_task

    def killed(*arguments: Any, **how: Any) -> None:
        task(*arguments, **how)
        neighbours = next((tmp_path / "work").rglob("labels-*/neighbours.npy"))
        neighbours.write_bytes(neighbours.read_bytes()[:5000])  # as if it had not got further
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(stages, "labels_task", killed)
        with pytest.raises(KeyboardInterrupt):
            built(tmp_path / "ix", **work)
    assert not (tmp_path / "ix").exists()
    assert data_files(built(tmp_path / "ix", **work)) == data_files(labelled)


def test_a_sample_of_queries_and_a_column_of_labels_shape_one_graph(tmp_path: Path) -> None:
    asked = 6 * np.random.default_rng(8).standard_normal((300, DIM)).astype(np.float32)
    np.save(tmp_path / "asked.npy", asked)
    given = {"query_sample": str(tmp_path / "asked.npy")}
    bridged, both = built(tmp_path / "bridged", column=None, **given), built(tmp_path / "both", **given)
    assert_sound(both)
    said = graph_of(both)
    assert said["query_sample"] == graph_of(bridged)["query_sample"]
    assert said["labels"]["edges"] > 0
    mine = np.equal(NAMES, "l3")
    assert searched(both, "label = 'l3'", mine, 60)[0] > 0.9

    def found(index: Path) -> float:
        rows = Index(index).search(asked, K, L=60).vector_ids.tolist()
        truth = exact_neighbours(VECTORS, asked, K)[0].tolist()
        return float(np.mean([len(set(a) & set(b)) for a, b in zip(rows, truth, strict=True)])) / K

    assert found(both) > found(bridged) - 0.05


@pytest.mark.parametrize("builder", ["partition", "vamana"])
def test_a_label_of_two_distant_groups_is_found_in_both(tmp_path: Path, builder: str) -> None:
    rng = np.random.default_rng(9)
    side = np.arange(3000) % 2
    vectors = (rng.standard_normal((3000, DIM)) + 100 * side[:, None]).astype(np.float32)
    labels = np.where(np.arange(3000) < 600, "both", "first")
    labels[(side == 1) & (labels == "first")] = "second"
    index = Index(built(tmp_path / "ix", labels=labels, vectors=vectors, builder=builder, entries=1))
    mine = np.flatnonzero(labels == "both")
    queries = vectors[600:640] + np.float32(0.1)
    truth = mine[exact_neighbours(vectors[mine], queries, K)[0]]
    found = index.search(queries, K, L=60, allow="label = 'both'").vector_ids
    hits = [len(set(a) & set(b)) for a, b in zip(found.tolist(), truth.tolist(), strict=True)]
    assert np.mean(hits) > 0.9 * K
    most = len(mine) - 1  # one more would be read without a walk
    whole = index.search(queries[:4], most, L=most, allow="label = 'both'").vector_ids
    assert all(len(set(row)) == most and set(row) <= set(mine.tolist()) for row in whole.tolist())


def test_labels_of_equal_vectors_are_found(tmp_path: Path) -> None:
    vectors = VECTORS[:1500].copy()
    vectors[:300] = vectors[0]
    labels = np.repeat([f"l{i}" for i in range(5)], 300)
    index = Index(built(tmp_path / "ix", labels=labels, vectors=vectors))
    found = index.search(vectors[:1], 299, L=299, allow="label = 'l0'").vector_ids[0]
    assert set(found.tolist()) <= set(range(300))
    assert len(set(found.tolist())) == 299


def test_larger_labels_get_more_places_up_to_half_of_a_list() -> None:
    given = [label_places(109, n) for n in (0, 256, 2_000, 5_000, 20_000, 79_000, 10**6, 2**31)]
    assert given == [33, 33, 33, 33, 44, 54, 54, 54]
    assert all(2 <= label_places(degree, 10**6) < degree for degree in range(LEAST_DEGREE, 513))


@pytest.mark.parametrize("share", [1, 40])
def test_values_of_dictionaries_count_once(share: int) -> None:
    """A slice of a dictionary holds all its values; rows that share few long ones hold few."""
    n = 20_000
    text = [f"{'long ' * 20}{i // share}" for i in range(n)]
    plain = pa.array(text)
    size = len(text[0])
    for labels in (plain, plain.dictionary_encode()):
        source = array_source(np.zeros((n, 2), np.float32), metadata=pa.table({"label": labels}))
        found = checked_labels(source, "label")
        assert size / share <= found.row_bytes < 1.3 * size / share + 1
        assert found.share == pytest.approx(share / 1024, rel=0.05)


@pytest.mark.parametrize(
    "labels",
    [
        pa.array([f"l{i * i % 977}" if i % 5 else None for i in range(3000)]),
        pa.array([f"l{i * i % 977}" if i % 5 else None for i in range(3000)]).dictionary_encode(),
        pa.array([i * i % 977 if i % 5 else None for i in range(3000)], pa.uint16()),
        pa.array([i % 3 == 0 if i % 5 else None for i in range(3000)]),
        pa.array([i % 9 if i % 5 else None for i in range(3000)], pa.int32()).cast(pa.date32()),
        pa.array(["x", "y", None] * 1000, pa.large_string()),
    ],
    ids=["text", "dictionary", "numbers", "booleans", "dates", "large"],
)
def test_labels_are_numbered_alike_in_all_parts_of_the_file(
    tmp_path: Path, labels: pa.Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "ROWS_AT_ONCE", 70)
    pq.write_table(pa.table({"label": labels}), tmp_path / "m.parquet", row_group_size=1000)
    numbers = stages.read_labels(tmp_path / "m.parquet", "label")
    values = labels.to_pylist()
    pairs = set(zip(values, numbers.tolist(), strict=True))
    assert len(pairs) == len(set(values)) == len(set(numbers.tolist()))
    assert (None, -1) in pairs
    assert numbers.min() == -1
    assert numbers.max() == len(pairs) - 2


def test_the_manifest_tells_of_the_labels(plain: Path, labelled: Path) -> None:
    assert "labels" not in graph_of(plain)
    counts = Counter(NAMES.tolist())
    frequent = [name for name, n in counts.items() if name is not None and n >= LEAST_VECTORS]
    said = graph_of(labelled)["labels"]
    assert said.pop("edges") > N
    assert said == {
        "column": "label",
        "least": LEAST_VECTORS,
        "most": N // 2,
        "places": label_places(32, max(counts[name] for name in frequent)),
        "labels": len(frequent),
        "vectors": sum(counts[name] for name in frequent),
    }
    done = " ".join(command("inspect", str(labelled)).stdout.split())
    assert f"edges within {len(frequent)} values of 'label'" in done


def test_a_million_labels_are_told_apart(tmp_path: Path) -> None:
    drawn = np.random.default_rng(8).permutation(1_000_000)
    pq.write_table(pa.table({"label": pa.array(drawn).cast(pa.string())}), tmp_path / "m.parquet")
    numbers = stages.read_labels(tmp_path / "m.parquet", "label")
    assert np.array_equal(np.sort(numbers), np.arange(len(drawn)))


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        (["all"] * 1000, "no value of 'label' has 256 to 500 vectors"),
        (list(range(1000)), "no value of 'label' has 256 to 500 vectors"),
        (pa.nulls(1000, pa.string()), "no value of 'label' has 256 to 500 vectors"),
    ],
)
def test_columns_that_help_no_search_add_no_edges_and_say_so(tmp_path: Path, labels: Any, why: str) -> None:
    index = built(tmp_path / "ix", labels=labels, vectors=VECTORS[:1000])
    said = graph_of(index)["labels"]
    assert (said["labels"], said["vectors"], said["edges"]) == (0, 0, 0)
    assert why in " ".join(command("inspect", str(index)).stdout.split())
    bare = built(tmp_path / "bare", labels=labels, vectors=VECTORS[:1000], column=None)
    mine, theirs = data_files(index), data_files(bare)
    assert {**mine, "manifest.json": b""} == {**theirs, "manifest.json": b""}


@pytest.mark.parametrize(
    "labels",
    [
        pa.array(NAMES).dictionary_encode(),
        pa.array([None if one is None else ord(one[-1]) for one in NAMES], pa.uint8()),
        pa.array([None if one is None else one in ("l1", "l2", "l3") for one in NAMES]),
        pa.array([None if one is None else ord(one[-1]) for one in NAMES], pa.int32()).cast(pa.date32()),
    ],
    ids=["dictionary", "numbers", "booleans", "dates"],
)
def test_labels_are_of_any_type_whose_equal_values_are_one(tmp_path: Path, labels: pa.Array) -> None:
    path = built(tmp_path / "ix", labels=labels)
    assert graph_of(path)["labels"]["edges"] > 0
    index, values = Index(path), np.array(labels.to_pylist(), object)
    for value in set(values[NAMES == "l3"]):
        mine = np.equal(values, value)
        text = str(value) if isinstance(value, bool | int) else f"'{value}'"
        found = index.search(QUERIES, K, L=40, allow=f"label = {text}", trace=True)
        assert found.trace is not None
        everything = index.search(QUERIES[:1], N, L=N)  # which slots have the label
        slots = everything.slots[0][mine[everything.vector_ids[0]]]
        assert set(np.flatnonzero(times_expanded(found.trace, N)).tolist()) <= set(slots.tolist())
        assert mine[found.vector_ids].all()


def test_a_column_is_found_by_its_whole_name(tmp_path: Path) -> None:
    """Parquet reads the fields of a structure by names with a dot, too."""
    pq.write_table(pa.table({"a": [{"b": 1}] * 9, "a.b": ["x", "y", "z"] * 3}), tmp_path / "m.parquet")
    assert stages.read_labels(tmp_path / "m.parquet", "a.b").tolist() == [0, 1, 2] * 3


def test_columns_that_hold_no_labels_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"label_column: 'nowhere' is no metadata column .* keeps label, other"
    ):
        built(tmp_path / "a", column="nowhere")
    with pytest.raises(ConfigError, match=r"label_column: 'label' is no metadata column .* keeps none"):
        indexmill.build(VECTORS, tmp_path / "b", label_column="label", **HOW)
    with pytest.raises(ConfigError, match=r"label_column: 'label' holds double; expected text"):
        built(tmp_path / "c", labels=np.arange(N) / 2)
    with pytest.raises(ValidationError, match="label_column: goes with kind graph, not with ivf"):
        BuildSpec(input=["a.npy"], out="b", label_column="x", parameters={"kind": "ivf"})
    assert not list(tmp_path.iterdir())


def test_another_column_makes_another_index_in_the_same_work_directory(tmp_path: Path) -> None:
    work = {"work": str(tmp_path / "work")}
    indexes = [built(tmp_path / name, column=column, **work) for name, column in
               (("a", "label"), ("b", "other"), ("c", None))]  # fmt: skip
    assert len({tuple(sorted(data_files(index).items())) for index in indexes}) == 3


def test_the_plan_counts_the_stage(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", VECTORS)
    table = tmp_path / "v.parquet"
    rows = pa.FixedSizeListArray.from_arrays(VECTORS.ravel(), DIM)
    pq.write_table(pa.table({"vector": rows, "label": pa.array(NAMES)}), table)
    spec = BuildSpec(
        input=[str(table)],
        out=str(tmp_path / "ix"),
        metadata_columns=["label"],
        label_column="label",
        parameters=HOW,
    )
    plan, without = make_plan(spec), make_plan(spec.model_copy(update={"label_column": None}))
    assert plan.stages["labels"].seconds > 0
    assert "labels" not in without.stages


def test_a_budget_that_does_not_hold_a_label_is_refused() -> None:
    p = Parameters(builder="partition", R=32)
    shape = GraphShape(4_000_000, 256, np.dtype(np.float32), 0, p, label_column="label")
    memory = 2 << 30
    with pytest.raises(BudgetError, match=r"stage labels .*leave --label-column out") as refused:
        needs.check_memory(needs.fit_shards(shape, memory, "local", 2), memory, "local", 2, shape)
    assert "at least" in str(refused.value)
    needs.check_memory(needs.fit_shards(shape, 16 << 30, "local", 2), 16 << 30, "local", 2, shape)


def test_the_command_builds_and_searches_within_a_label(tmp_path: Path, labelled: Path) -> None:
    rows = pa.FixedSizeListArray.from_arrays(VECTORS.ravel(), DIM)
    other = np.arange(N) % 3
    pq.write_table(
        pa.table({"vector": rows, "label": pa.array(NAMES), "other": other}), tmp_path / "v.parquet"
    )
    np.save(tmp_path / "q.npy", QUERIES)
    flags = ["-R", "32", "-L", "50"]
    built_by = command(
        "build", "--input", str(tmp_path / "v.parquet"), "--out", str(tmp_path / "ix"), *flags, "--codes-on-page",
        "--pq-bytes", "12", "--pq-rotation", "none", "--metadata-columns", "label,other", "--label-column", "label",
    )  # fmt: skip
    assert built_by.exit_code == 0, built_by.output
    found = command(
        "search", str(tmp_path / "ix"), "--queries", str(tmp_path / "q.npy"), "-k", str(K), "-L", "40", "--json",
        "--where", "label = 'l3'",
    )  # fmt: skip
    assert found.exit_code == 0, found.output
    want = Index(labelled).search(QUERIES, K, L=40, allow="label = 'l3'")
    rows_found = json.loads(found.stdout)
    assert [row["vector_id"] for row in rows_found] == want.vector_ids.ravel().tolist()


def test_merges_say_that_labels_have_no_edges_any_more(tmp_path: Path, labelled: Path) -> None:
    other = built(
        tmp_path / "other", labels=["l3"] * 500, column=None, vectors=VECTORS[:500] + np.float32(0.01)
    )
    indexmill.merge(labelled, other, out=tmp_path / "both")
    assert "labels" not in graph_of(tmp_path / "both")
    assert graph_of(tmp_path / "both")["labels_lost"] == "label"


@pytest.mark.parametrize("first", ["plain", "labelled"])
def test_merges_into_a_larger_index_without_labels_say_so_too(
    tmp_path: Path, plain: Path, first: str
) -> None:
    few = built(
        tmp_path / "few", labels=["l3"] * 400 + ["l4"] * 800, vectors=VECTORS[:1200] + np.float32(0.01)
    )
    given = (plain, few) if first == "plain" else (few, plain)
    indexmill.merge(*given, out=tmp_path / "both")
    assert "labels" not in graph_of(tmp_path / "both")
    assert graph_of(tmp_path / "both")["labels_lost"] == "label"


def test_deleted_vectors_are_not_found_and_lead_on(tmp_path: Path) -> None:
    index = built(tmp_path / "ix")
    gone = np.flatnonzero(np.equal(NAMES, "l6"))[::3]
    indexmill.delete(index, gone, by="vector")
    stay = np.equal(NAMES, "l6") & ~np.isin(np.arange(N), gone)
    recall, _ = searched(index, "label = 'l6'", stay, 60)
    assert recall > 0.9
    assert graph_of(index)["labels"]["edges"] > 0


def test_parts_of_a_set_have_edges_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fours = np.arange(N) % 4
    work = {"work": str(tmp_path / "work"), "parts": 2}
    built(tmp_path / "plain", labels=fours, column=None, **work)
    paths = [path.parent for path in built(tmp_path / "ix", labels=fours, **work).glob("*/manifest.json")]
    assert [graph_of(path)["labels"]["labels"] for path in paths] == [4, 4]
    opened, rows = indexmill.open(tmp_path / "ix"), np.arange(3, N, 4)
    found = opened.search(QUERIES, K, L=60, margin=np.inf, allow="label = 3")
    truth = rows[exact_neighbours(VECTORS[rows], QUERIES, K)[0]]
    hits = [len(set(a) & set(b)) for a, b in zip(found.ids.tolist(), truth.tolist(), strict=True)]
    assert np.mean(hits) > 0.9 * K
    read: list[Any] = []
    chosen_rows = metadata.chosen_rows

    def counted(file: Any, path: Path, *condition: Any) -> Any:
        read.append(path)
        return chosen_rows(file, path, *condition)

    monkeypatch.setattr(metadata, "chosen_rows", counted)
    opened.search(QUERIES, K, L=60, margin=np.inf, allow="label = 3")
    assert len(read) == len(set(read)) == 2
    few = opened.search(QUERIES, K, L=60, margin=np.inf, allow="label = 7")
    assert (few.ids == -1).all()


def test_a_layout_keeps_the_labels(tmp_path: Path, labelled: Path) -> None:
    indexmill.lay_out(labelled, "breadth-first", out=tmp_path / "ix")
    assert graph_of(tmp_path / "ix")["labels"] == graph_of(labelled)["labels"]
    before = searched(labelled, "label = 'l3'", np.equal(NAMES, "l3"), 40)
    assert searched(tmp_path / "ix", "label = 'l3'", np.equal(NAMES, "l3"), 40)[0] == pytest.approx(
        before[0], abs=0.02
    )


def test_lists_that_are_chosen_anew_have_no_edges_within_labels(labelled: Path) -> None:
    with OpenedIndex(labelled) as opened:
        lists = Adjacency(np.zeros((N, 32), np.uint32), np.ones(N, np.int32))
        kept, anew = (
            manifest_of(opened, {"overlap_ratio": 0.5}, "ab" * 32, (), given).graph for given in (None, lists)
        )
    assert kept["labels"]["column"] == "label"
    assert "labels" not in anew
    assert (anew["labels_lost"], anew["mean_degree"]) == ("label", 1.0)


def test_appends_and_compactions_say_that_labels_have_no_edges_any_more(tmp_path: Path) -> None:
    index = built(tmp_path / "ix")
    more = VECTORS[:300] + np.float32(0.01)
    indexmill.append(index, more, metadata=pa.table({"label": ["l3"] * 300, "other": [0] * 300}))
    assert "labels" not in graph_of(index)
    assert graph_of(index)["labels_lost"] == "label"
    assert "build again for them" in " ".join(command("inspect", str(index)).stdout.split())
    vectors, names = np.concatenate([VECTORS, more]), np.concatenate([NAMES, np.full(300, "l3", object)])
    opened = Index(index)
    found = opened.search(QUERIES, K, L=40, allow="label = 'l3'")
    same = opened.search(QUERIES, K, L=40, allow=opened.where("label = 'l3'"))
    np.testing.assert_array_equal(found.vector_ids, same.vector_ids)
    assert searched(index, "label = 'l3'", names == "l3", 60, vectors)[0] > 0.9
    indexmill.delete(index, [1, 2, 3], by="vector")
    indexmill.compact(index)
    assert graph_of(index)["labels_lost"] == "label"
    assert "labels" not in graph_of(index)
