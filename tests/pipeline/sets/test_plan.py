"""Plans of sets: what a build of all parts takes, before it is run."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.support.processes.memory import peak_of_command

from indexmill.formats.errors import BudgetError, ConfigError, InputError
from indexmill.formats.index.setmanifest import part_name
from indexmill.formats.sources.source import VectorSource, array_source
from indexmill.pipeline.mill.disk_space import used_bytes
from indexmill.pipeline.plan import make_plan
from indexmill.pipeline.sets.build import run_set_build
from indexmill.pipeline.sets.size import PartOf, upstream
from indexmill.pipeline.spec import BuildSpec, IvfParameters, LshParameters, Parameters

PARTS = 3
GRAPH = Parameters(R=12, L=12, pq_bytes=8, entries=16, sample_vectors=1000, navigation=0.0, order="identity")
LISTS = IvfParameters(lists=16, codec="pq", pq_bytes=8, sample_vectors=1000)


def vectors_of(n: int, dim: int, dtype: str = "float32") -> np.ndarray:
    vectors = np.random.default_rng(3).normal(size=(n, dim)) * 30 + 128
    return np.clip(vectors, 0, 255).astype(dtype)


def spec_of(out: Path, parameters: Any, **more: Any) -> BuildSpec:
    run = {"memory": 1 << 30, "parts": PARTS, "workers": 1, **more}
    return BuildSpec(input=["<array>"], out=str(out), parameters=parameters, **run)


class Watch:
    """The most bytes of a folder while it is watched."""

    def __init__(self, folder: Path) -> None:
        self.peak, self._folder, self._end = 0, folder, threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        while not self._end.wait(0.005):
            self.peak = max(self.peak, used_bytes(self._folder))

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()


@pytest.mark.parametrize(
    ("parameters", "dtype", "names", "more"),
    [
        (GRAPH, "float32", False, {}),
        (GRAPH.model_copy(update={"metric": "ip"}), "float32", True, {}),
        (GRAPH, "uint8", True, {"work": True}),
        (LISTS, "float32", False, {}),
        (LshParameters(n_functions=8, n_tables=6, n_radii=3, first_radius=60.0), "uint8", False, {}),
    ],
    ids=["graph", "ip and ids", "kept", "lists", "tables"],
)
def test_predicted_scratch_is_within_five_percent(
    tmp_path: Path, parameters: Any, dtype: str, names: bool, more: dict[str, Any]
) -> None:
    n, work = 24_000, tmp_path / ("kept" if more else "set.work")
    ids = [f"user-{i * 7919 % 100_003}" for i in range(n)] if names else None
    spec = spec_of(tmp_path / "set", parameters, **({"work": str(work)} if more else {}))
    source = array_source(vectors_of(n, 48, dtype), ids=ids)
    plan = make_plan(spec, source)
    work.mkdir()
    with Watch(work) as watch:
        run_set_build(spec, source)
    assert plan.peak_scratch_bytes == pytest.approx(watch.peak, rel=0.05)
    seconds = [
        json.loads((tmp_path / "set" / part_name(i) / "run.json").read_text())["seconds"]
        for i in range(PARTS)
    ]
    assert all(set(one) <= {*plan.stages, "publish"} for one in seconds)


def test_stages_are_those_of_all_parts_and_codes_are_trained_once(tmp_path: Path) -> None:
    source = array_source(vectors_of(9000, 32))
    whole = make_plan(spec_of(tmp_path / "ix", LISTS, parts=None), source)
    plan = make_plan(spec_of(tmp_path / "set", LISTS), source)
    assert list(plan.stages) == ["divide", "codes", *whole.stages]
    assert all(stage.seconds >= 0 for stage in plan.stages.values())
    assert sum(stage.seconds for stage in plan.stages.values()) <= plan.seconds
    assert plan.peak_memory_bytes == max(stage.memory_bytes for stage in plan.stages.values())
    flat = make_plan(spec_of(tmp_path / "set", LISTS.model_copy(update={"codec": "flat"})), source)
    assert "codes" not in flat.stages
    parts = plan.facts["parts"]
    assert (parts["n"], parts["vectors"]) == (PARTS, 3000)
    assert not list(tmp_path.iterdir())


@pytest.mark.memory
def test_predicted_memory_is_within_fifteen_percent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the whole build: the peak of its process, which divides and builds all parts."""
    monkeypatch.chdir(tmp_path)
    np.save("base.npy", vectors_of(32_000, 512))
    options: list[object] = ["--input", "base.npy", "--parts", 2, "--workers", 2, "-R", 16, "-L", 6]
    options += [
        "--pq-bytes",
        48,
        "--entries",
        16,
        "--sample-vectors",
        2000,
        "--navigation",
        0,
        "--out",
        "set",
    ]
    line = [sys.executable, "-m", "indexmill.jobs.cli.main", "plan", *map(str, options), "--json"]
    said = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    planned, shares = json.loads(said)["peak_memory_bytes"], []
    for _ in range(3):  # what threads free stays in their heaps, more of it at times
        shares.append(planned / peak_of_command(1 << 33, "build", *options))
        shutil.rmtree("set")
        if len(shares) == 2 and all(0.85 < share < 1.15 for share in shares):
            return  # as the median of three is
    assert 0.85 < statistics.median(shares) < 1.15


def test_a_set_that_cannot_be_built_is_refused_as_its_build_refuses_it(tmp_path: Path) -> None:
    source = array_source(vectors_of(300, 16))

    def refused(error: type[Exception], message: str, **more: Any) -> None:
        for make in (make_plan, run_set_build):
            with pytest.raises(error, match=message):
                make(spec_of(tmp_path / "set", GRAPH).model_copy(update=more), source)

    refused(ConfigError, "^parts: a set is built in a local directory", out="memory://b/set")
    refused(ConfigError, "^centroids: belong to one index", centroids="c.npy")
    refused(InputError, "^parts: 300 vectors cannot make 301 parts; ask for at most 300", parts=301)
    refused(BudgetError, "^memory: the router of a set needs [0-9,]+ bytes", memory=1 << 16)
    refused(BudgetError, "^memory: .* give at least", memory=1 << 24)
    refused(BudgetError, "^scratch: this build fills", scratch=1 << 12)


def test_a_set_that_the_disk_has_no_room_for_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    source, spec = array_source(vectors_of(3000, 32)), spec_of(tmp_path / "set", GRAPH)
    need = make_plan(spec, source).peak_scratch_bytes
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=need - 1))
    with pytest.raises(BudgetError, match=f"{need:,}"):
        make_plan(spec, source)


def with_metadata(n: int, ids: list[str] | None = None) -> VectorSource:
    table = pa.table({"colour": [f"c{i % 5}" for i in range(n)]})
    return array_source(vectors_of(n, 4), ids=ids, metadata=table)


def test_a_part_has_rows_from_all_over_its_source() -> None:
    source = with_metadata(100)
    part = PartOf(source, 3)
    assert (part.n_vectors, part.dim, part.dtype, part.id_type) == (34, 4, np.float32, "int64")
    rows = np.array([0, 1, 33])
    assert np.array_equal(part.read(rows), source.read(np.array([0, 3, 99])))
    batches = list(part.batches(10))
    assert [len(batch.vectors) for batch in batches] == [10, 10, 10, 4]
    assert [len(batch.ids) for batch in batches] == [10, 10, 10, 4]
    assert [batch.metadata.num_rows for batch in batches] == [10, 10, 10, 4]
    named = PartOf(with_metadata(100, [f"i{i}" for i in range(100)]), 4)
    assert named.id_type == "string"
    assert next(iter(named.batches(100))).ids.to_pylist() == [f"i{i}" for i in range(25)]


def test_stages_that_others_need_are_found_in_their_order() -> None:
    inputs = {"a": (), "b": ("a",), "c": (), "d": ("b",), "e": ("c", "d")}
    assert upstream(inputs, {"d", ""}) == ["a", "b", "d"]
    assert upstream(inputs, {"d", "c"}) == ["a", "b", "c", "d"]
