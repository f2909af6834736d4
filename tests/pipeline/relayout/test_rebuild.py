"""`explain --rebuild`: the format that a build would choose, measured on vectors of the index's own nodes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.cli import run, run_json
from tests.support.indexes.append import points
from tests.support.indexes.builds import build, correlated, data_files
from tests.support.indexes.trials import TrialCurves
from tests.support.tune import FORMAT_NAMES

import indexmill
from indexmill.formats.errors import BudgetError
from indexmill.formats.graph.file import GraphFile
from indexmill.formats.index.manifest import read_manifest
from indexmill.formats.sources.source import array_source
from indexmill.pipeline.build import run_build
from indexmill.pipeline.generations.run import RunOptions
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES
from indexmill.pipeline.kinds.graph.candidates import LEAST_TRIAL, LEAST_VECTORS, QUERIES, Format
from indexmill.pipeline.kinds.graph.format import Tried
from indexmill.pipeline.relayout.explained import rebuild
from indexmill.pipeline.relayout.explained.rebuild import Rebuild, run_rebuild
from indexmill.pipeline.spec import BuildSpec, Parameters


def format_of(one: dict[str, Any]) -> dict[str, Any]:
    return {name: one[name] for name in FORMAT_NAMES}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index whose job stated its format."""
    format_ = {"pq_bytes": 8, "pq_rotation": "none", "node_dtype": "same", "R": 16}
    return build(tmp_path_factory.mktemp("plain") / "ix", correlated(LEAST_VECTORS), **format_)


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same vectors, with the format that a build chooses for codes of as many bytes."""
    out = tmp_path_factory.mktemp("rebuilt") / "ix"
    p = Parameters(L=30, search_memory="8/vector")
    run_build(
        BuildSpec(input=["<array>"], out=str(out), parameters=p), array_source(correlated(LEAST_VECTORS))
    )
    return out


def test_it_says_what_a_build_chooses_and_what_both_read(plain: Path, rebuilt: Path) -> None:
    before = data_files(plain)
    found, made = run_json("explain", plain, "--rebuild")["rebuild"], read_manifest(rebuilt).graph["format"]
    assert (found["search_memory"], found["decoded"], found["vectors"]) == (
        "8/vector",
        False,
        made["vectors"],
    )
    assert found["codes_on_page"] is False
    assert format_of(found["chosen"]) == made["chosen"]
    tried = next(one for one in made["tried"] if format_of(one) == made["chosen"])
    assert found["chosen"]["pages_read"] == pytest.approx(tried["pages_read"], rel=0.03)
    assert format_of(found["now"]) == Format(8, "none", "same", 16)._asdict()
    reads = found["chosen"]["pages_read"] / found["now"]["pages_read"]
    assert found["saves"] == pytest.approx(1 - reads, abs=1e-3)
    assert found["worthwhile"]
    assert reads < 1
    assert data_files(plain) == before
    assert [path.name for path in plain.parent.iterdir()] == ["ix"]


def test_it_says_so_in_words(plain: Path) -> None:
    text = run("explain", plain, "--rebuild").stdout
    assert re.search(
        r"A build would choose codes of 8 bytes \(opq\), nodes sq8, R=34, in place of codes of 8 bytes, nodes as in "
        r"the input, R=16: [\d.]+ page reads a query instead of [\d.]+ \(\d+% fewer\), at recall@10 0\.9\d+ on a "
        r"sample of 2,000 of its vectors\. Build again with --search-memory 8/vector, without --pq-bytes,",
        text,
    )


def test_a_build_of_the_same_format_is_told_so(rebuilt: Path) -> None:
    found = run("explain", rebuilt, "--rebuild").stdout
    assert "A build would choose the same format, codes of 8 bytes (opq), nodes sq8, R=34" in found
    assert "decoded from its nodes" in found


def test_codes_that_are_on_the_page_stay_there(tmp_path: Path) -> None:
    how = {"codes_on_page": True, "pq_bytes": 4, "pq_rotation": "none", "node_dtype": "same", "R": 4}
    index = build(tmp_path / "ix", correlated(LEAST_VECTORS, 16), **how)
    assert re.search(
        r"A build would choose codes of 4 bytes( \(opq\))? on the page, nodes .*, in place of codes of 4 bytes on the "
        r"page, nodes as in the input, R=4: .* Build again with --codes-on-page and --search-memory 4/vector, without "
        r"--pq-bytes, --pq-rotation, --node-dtype and -R\.",
        run("explain", index, "--rebuild").stdout,
    )


def test_a_build_that_saves_nothing_is_advised_against(rebuilt: Path) -> None:
    command = ("explain", rebuilt, "--rebuild", "--search-memory", "3/vector")
    found, text = run_json(*command)["rebuild"], run(*command).stdout
    assert found["saves"] < 0
    assert not found["worthwhile"]
    assert found["chosen"]["pages_read"] > found["now"]["pages_read"]
    assert "That is no gain: keep the index." in text
    assert "Build again" not in text


def test_a_recall_that_only_a_build_reaches_is_worth_reads() -> None:
    def found(now: tuple[float, float], chosen: tuple[float, float], recall: float = 0.95) -> bool:
        tried = (Tried(Format(8, "none", "same", 16), *one) for one in (now, chosen))
        return Rebuild("8/vector", False, {}, recall, False, *tried).is_worthwhile

    assert found((30, 0.9), (40, 0.95))
    assert found((30, 0.95), (29, 0.95))
    assert found((30, 0.97), (20, 0.97), 0.97)
    assert not found((30, 0.95), (29.5, 0.95))
    assert not found((30, 0.95), (20, 0.94))
    assert not found((30, 0.9), (30, 0.9), 0.9)


def test_both_are_compared_at_the_recall_of_the_better_shortest_list(
    plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 0.95 the index and the build read alike, with the shortest lists."""
    of_kind = {("none", "same"): [(0.955, 10.0), (0.99, 30.0)], ("opq", "sq8"): [(0.98, 10.0), (0.99, 12.0)]}
    tries = TrialCurves(lambda p: of_kind.get((p.pq_rotation, p.node_dtype), [(0.5, 90.0)]))
    monkeypatch.setattr(rebuild, "trial_indexes", tries.opened)
    found = run_json("explain", plain, "--rebuild")["rebuild"]
    assert found["recall"] == found["now"]["recall"] == found["chosen"]["recall"] == 0.98
    assert found["saves"] == pytest.approx(1 - 10 / (10 + 20 * 25 / 35), abs=1e-3)
    assert found["worthwhile"]


def test_a_build_that_alone_reaches_the_recall_is_advised(
    plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small nodes do not reach it, so larger ones were tried at what small ones reach."""
    of_kind = {
        ("none", "same"): [(0.85, 5.0), (0.9, 10.0)],
        ("opq", "sq8"): [(0.9, 10.0), (0.93, 20.0)],
        ("opq", "same"): [(0.9, 10.0), (0.97, 20.0)],
    }
    tries = TrialCurves(lambda p: of_kind.get((p.pq_rotation, p.node_dtype), [(0.5, 90.0)]))
    monkeypatch.setattr(rebuild, "trial_indexes", tries.opened)
    found = run_json("explain", plain, "--rebuild")["rebuild"]
    assert (found["now"]["recall"], found["recall"]) == (0.9, 0.95)
    assert found["worthwhile"]


def test_only_an_index_whose_format_was_not_measured_is_told_of_it(plain: Path, rebuilt: Path) -> None:
    told = "not measured by a build: indexmill explain"
    assert f"{told} {plain} --rebuild says what another would read" in run("explain", plain).stdout
    assert told not in run("explain", rebuilt).stdout


def test_codes_are_as_large_as_the_memory_that_is_given(plain: Path) -> None:
    assert (
        run_json("explain", plain, "--rebuild", "--search-memory", "4/vector")["rebuild"]["chosen"][
            "pq_bytes"
        ]
        == 4
    )
    done = run("explain", plain, "--rebuild", "--search-memory", "1KiB")
    assert done.exit_code == 4
    assert "--search-memory: 1KiB holds no codes of 10,000 vectors; give at least" in done.stderr


def test_a_limit_of_the_index_is_that_of_the_build(tmp_path: Path) -> None:
    index = build(tmp_path / "ix", correlated(LEAST_VECTORS, 16), search_memory="2MB", pq_bytes=4)
    found = run_rebuild(index, RunOptions())
    assert found is not None
    assert found.search_memory == "2MB"
    assert found.chosen.format.pq_bytes == 16


def test_the_least_memory_that_a_refusal_names_is_enough(plain: Path) -> None:
    done = run("explain", plain, "--rebuild", "--memory", "1MiB")
    assert done.exit_code == 4
    assert "--memory: comparing formats takes" in done.stderr
    least = re.search(r"give at least ([\d,]+) bytes", done.stderr)[1].replace(",", "")
    assert run("explain", plain, "--rebuild", "--memory", least, "--workers", "64").exit_code == 0


def test_only_nodes_of_the_sample_are_read(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, asked = GraphFile.read_nodes, list[int]()

    def look(self: GraphFile, first: int, count: int) -> Any:
        asked.append(count)
        return read(self, first, count)

    monkeypatch.setattr(GraphFile, "read_nodes", look)
    assert run_rebuild(plain, RunOptions()) is not None
    assert sum(asked) == LEAST_TRIAL + QUERIES


@pytest.mark.parametrize(
    ("dtype", "metric", "node"),
    [
        ("uint8", "l2", "same"), ("int8", "l2", "same"), ("float16", "l2", "same"), ("float32", "cosine", "float16"),
        ("float32", "ip", "sq16"),
    ],
)  # fmt: skip
def test_every_type_and_metric_is_compared(dtype: str, metric: str, node: str, tmp_path: Path) -> None:
    rows = correlated(LEAST_VECTORS, 16) * 4
    vectors = np.rint(rows + 128 * (dtype == "uint8")).astype(dtype) if "int" in dtype else rows.astype(dtype)
    index = build(tmp_path / "ix", vectors, metric=metric, node_dtype=node, pq_rotation="none")
    found = run_rebuild(index, RunOptions())
    assert found is not None
    assert (found.now.format.node_dtype, found.decoded) == (node, node != "same")
    for one in (found.now, found.chosen):
        assert one.recall > 0.9


def test_workers_do_not_change_what_is_measured(plain: Path) -> None:
    one, three = (run_rebuild(plain, RunOptions(workers=workers)) for workers in (1, 3))
    assert one is not None
    assert one == three


def test_exact_vectors_stand_for_those_of_the_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = build(tmp_path / "ix", correlated(LEAST_VECTORS, 16), keep_vectors=True, pq_rotation="none")
    monkeypatch.setattr(GraphFile, "read_nodes", lambda *_: pytest.fail("read nodes"))
    found = run_rebuild(index, RunOptions())
    assert found is not None
    assert not found.decoded
    assert {found.now.format.node_dtype, found.chosen.format.node_dtype} == {"sq8"}
    assert found.chosen.highest_recall > 0.995


def test_an_index_is_compared_with_the_only_format_that_a_build_has(tmp_path: Path) -> None:
    vectors = np.rint(correlated(LEAST_VECTORS, 16) * 4 + 128).astype(np.uint8)
    index = build(tmp_path / "ix", vectors, pq_bytes=4, pq_rotation="none")
    refused = run("explain", index, "--rebuild", "--search-memory", "1KiB").stderr
    least = re.search(r"give at least ([\d,]+) bytes", refused)[1].replace(
        ",", ""
    )  # of codes without a rotation
    found = run_rebuild(index, RunOptions(), least)
    assert found is not None
    assert found.chosen.format == Format(1, "none", "same", found.chosen.format.max_degree)
    assert found.chosen.pages_read > found.now.pages_read


def test_user_ids_count_in_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, ids = correlated(LEAST_VECTORS, 16), [f"{'x' * 100}{i}" for i in range(LEAST_VECTORS)]
    job = BuildSpec(input=["<array>"], out=str(tmp_path / "ix"), parameters=Parameters(pq_rotation="none"))
    run_build(job, array_source(vectors, ids=ids))
    ids_bytes = (tmp_path / "ix" / "ids.imx").stat().st_size
    assert ids_bytes > LEAST_VECTORS * 100
    monkeypatch.setattr(rebuild, "choosing_bytes", lambda *_: 0)
    with pytest.raises(BudgetError, match="comparing formats takes") as refused:
        run_rebuild(tmp_path / "ix", RunOptions(memory=1 << 20))
    need = int(re.search(r"give at least ([\d,]+) bytes", str(refused.value))[1].replace(",", ""))
    assert need == FIXED_BYTES + ids_bytes + 10 * LEAST_VECTORS


def test_of_few_vectors_it_says_that_any_format_is_fast(tmp_path: Path) -> None:
    index = build(tmp_path / "ix", points(500, 1))
    assert run_json("explain", index, "--rebuild")["rebuild"] is None
    assert "A build of so few vectors measures no formats" in run("explain", index, "--rebuild").stdout
    assert "--rebuild" not in run("explain", index).stdout


def test_it_is_for_graphs(tmp_path: Path) -> None:
    indexmill.build(points(500, 1), tmp_path / "ix", kind="ivf", memory="1GiB")
    done = run("explain", tmp_path / "ix", "--rebuild")
    assert done.exit_code == 2
    assert "--rebuild: compares formats of graphs, and this index is of kind ivf; leave it out" in done.stderr


@pytest.mark.parametrize("text", ["many", "0/vector", "64MB/vector"])
def test_a_memory_of_searches_that_is_none_is_refused_alike_by_all_commands(
    text: str, tmp_path: Path
) -> None:
    np.save(tmp_path / "base.npy", points(500, 1))
    index = build(tmp_path / "ix", points(500, 1))
    job = ("--input", tmp_path / "base.npy", "--out", tmp_path / "new")
    commands = (("build", *job), ("plan", *job), ("tune", tmp_path / "base.npy"), ("explain", index))
    done = [run(*command, "--search-memory", text) for command in commands]
    assert {one.exit_code for one in done} == {2}
    assert len({one.stderr for one in done}) == 1
    assert f"--search-memory: '{text}'" in done[0].stderr
