"""Sets of indexes: answers of all parts together, ids, equal bytes, resuming, and parts that are not what they were."""

from __future__ import annotations

import itertools
import json
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.processes.forks import run_forked
from tests.support.progress import Stages
from typer.testing import CliRunner

import indexmill
from indexmill.formats.errors import ConfigError, FormatError, InputError, OtherKind
from indexmill.formats.index import setmanifest
from indexmill.formats.index.setmanifest import (
    Part,
    SetManifest,
    check_n_parts,
    part_name,
    read_set_manifest,
    write_set_manifest,
)
from indexmill.formats.sources.source import array_source
from indexmill.jobs.cli.main import app
from indexmill.pipeline.mill.store import StageStore
from indexmill.pipeline.sets.build import run_set_build
from indexmill.pipeline.spec import BuildSpec, IvfParameters
from indexmill.reader.router import squared_distances
from indexmill.reader.set import IndexSet

RNG = np.random.default_rng(7)
VECTORS = RNG.standard_normal((600, 8)).astype(np.float32)
QUERIES = RNG.standard_normal((30, 8)).astype(np.float32)
ALL = float("inf")


def ivf_set(out: Path, vectors: Any = VECTORS, **more: Any) -> Any:
    return indexmill.build(vectors, out, **{"parts": 3, "kind": "ivf", "lists": 4, **more})


def nearest(vectors: Any = VECTORS, k: int = 10) -> Any:
    distances = np.square(QUERIES[:, None].astype(np.float64) - vectors[None]).sum(axis=2)
    return np.argsort(distances, axis=1, kind="stable")[:, :k]


def files(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != "run.json"
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sets") / "set"
    ivf_set(out)
    return out


def test_all_parts_with_all_lists_answer_as_brute_force_does(made: Path) -> None:
    opened = indexmill.open(made)
    found = opened.search(QUERIES, 10, margin=ALL, nprobe=4)
    assert (found.ids == nearest()).all()
    assert (found.counters["parts"] == 3).all()
    assert np.isfinite(found.scores).all()
    assert (np.diff(found.scores, axis=1) >= 0).all()


def test_vectors_of_parts_are_all_vectors_once_in_parts_of_near_equal_size(made: Path) -> None:
    opened = indexmill.open(made)
    sizes = [len(part) for part in opened.parts]
    assert sum(sizes) == len(opened) == 600
    assert max(sizes) - min(sizes) <= 20
    places = opened.vector_ids_of(np.arange(600))
    assert sorted(places) == list(range(600))


def test_a_margin_of_zero_asks_one_part_and_a_wider_one_never_fewer(made: Path) -> None:
    opened = indexmill.open(made)
    counts = [opened.route(QUERIES, margin).sum(axis=1) for margin in (0.0, 0.1, 0.5, ALL)]
    assert (counts[0] == 1).all()
    assert (counts[-1] == 3).all()
    assert all((less <= more).all() for less, more in itertools.pairwise(counts))
    assert counts[1].sum() < counts[2].sum() < counts[3].sum()
    with pytest.raises(ConfigError, match="margin"):
        opened.route(QUERIES, -1)


def test_equal_scores_are_ordered_by_id(tmp_path: Path) -> None:
    points = np.array([[-1, 0], [1, 0], [0, 1], [0, -1]], np.float32)
    opened = ivf_set(tmp_path / "set", np.repeat(points, 50, axis=0), parts=2, lists=2)
    found = opened.search(np.zeros((1, 2), np.float32), 200, margin=ALL, nprobe=2)
    assert (found.ids == np.arange(200)).all()


def test_threads_change_nothing(made: Path) -> None:
    opened = indexmill.open(made)
    one, many = (opened.search(QUERIES, 5, threads=threads) for threads in (1, 6))
    assert (one.ids == many.ids).all()
    assert (one.vector_ids == many.vector_ids).all()


def test_user_ids_metadata_and_where(tmp_path: Path) -> None:
    names = [f"v{i}" for i in range(600)]
    opened = ivf_set(
        tmp_path / "set", ids=names, metadata=pa.table({"even": [i % 2 == 0 for i in range(600)]})
    )
    found = opened.search(QUERIES, 10, margin=ALL, nprobe=4)
    assert (found.ids == np.array(names, object)[nearest()]).all()
    even = opened.metadata(found.vector_ids.ravel())["even"].to_pylist()
    assert even == [int(name[1:]) % 2 == 0 for name in found.ids.ravel()]
    assert opened.where("even = true").sum() == 300


def test_a_graph_set_filters_and_recalls(tmp_path: Path) -> None:
    opened = indexmill.build(VECTORS, tmp_path / "set", parts=2, R=16, L=32)
    found = opened.search(QUERIES, 10, margin=ALL)
    assert np.mean([len(set(a) & set(b)) for a, b in zip(found.ids, nearest(), strict=True)]) > 9
    allowed = opened.vector_ids_of(np.arange(0, 600, 3))
    assert (opened.search(QUERIES, 10, margin=ALL, allow=allowed).ids % 3 == 0).all()


def test_workers_change_no_byte(tmp_path: Path, made: Path) -> None:
    ivf_set(tmp_path / "set", workers=1)
    assert files(tmp_path / "set") == files(made)


def test_a_build_that_stops_between_two_parts_resumes_there(tmp_path: Path, made: Path) -> None:
    spec = BuildSpec(
        input=["array"],
        out=str(tmp_path / "set"),
        parts=3,
        parameters=IvfParameters.model_validate({"lists": 4}),
    )

    class Stop(Exception):
        pass

    def stop(stage: str) -> None:
        if stages.made.count("publish") == 1:
            raise Stop

    stages = Stages(stop)
    with pytest.raises(Stop):
        run_set_build(spec, array_source(VECTORS), stages)
    assert not (tmp_path / "set").exists()
    again = Stages()
    run_set_build(spec, array_source(VECTORS), again)
    assert "divide" not in again.made
    assert again.made.count("publish") == 2
    assert files(tmp_path / "set") == files(made)
    assert not (tmp_path / "set.work").exists()


@pytest.mark.parametrize("damage", ["missing", "other", "manifest"])
def test_a_part_that_is_missing_or_of_another_build_is_refused_by_name(
    tmp_path: Path, made: Path, damage: str
) -> None:
    copy = tmp_path / "set"
    shutil.copytree(made, copy)
    if damage == "manifest":
        text = (copy / "part-001" / "manifest.json").read_bytes()
        (copy / "part-001" / "manifest.json").write_bytes(
            text.replace(b'"generation": 1', b'"generation": 2')
        )
    else:
        shutil.rmtree(copy / "part-001")
    if damage == "other":
        shutil.copytree(copy / "part-002", copy / "part-001")
    with pytest.raises(FormatError, match="part-001"):
        indexmill.open(copy)


def test_a_damaged_router_is_refused(tmp_path: Path, made: Path) -> None:
    copy = tmp_path / "set"
    shutil.copytree(made, copy)
    text = (copy / "manifest.json").read_bytes()
    (copy / "manifest.json").write_bytes(text.replace(b'"weights": [', b'"weights": [1.0, ', 1))
    with pytest.raises(FormatError, match="digest"):
        indexmill.open(copy)


def test_what_cannot_be_divided_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"parts: 2 vectors cannot make 3 parts"):
        ivf_set(tmp_path / "few", VECTORS[:2])
    with pytest.raises(InputError, match=r"parts: vectors are so alike"):
        ivf_set(tmp_path / "equal", np.ones((600, 8), np.float32))
    with pytest.raises(InputError, match="a"):
        ivf_set(tmp_path / "twice", ids=["a"] * 600)
    with pytest.raises(ConfigError, match="parts: a set is built in a local directory"):
        ivf_set("s3://bucket/set")
    with pytest.raises(ConfigError, match=r"parts: expected at most 997 for vectors of 2,000 components"):
        ivf_set(tmp_path / "large", np.zeros((1000, 2000), np.float32), parts=1000)


def test_the_manifest_of_the_most_parts_is_no_larger_than_a_manifest_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setmanifest, "MOST_BYTES", 2 << 20)
    dim, longest = 1000, np.float32(-1.1754944e-38)
    most = next(parts for parts in itertools.count() if not _may_have(parts + 1, dim))
    assert most > 25
    parts = tuple(Part(part_name(number), "f" * 64, 2**32 - 1) for number in range(most))
    router = np.full((most, dim), longest), np.full(most, longest)
    write_set_manifest(tmp_path, SetManifest(parts, *router, {}, {"dim": dim}, {}))
    assert 1 << 19 < (tmp_path / "manifest.json").stat().st_size < 2 << 20
    assert read_set_manifest(tmp_path).parts == parts


def _may_have(parts: int, dim: int) -> bool:
    try:
        check_n_parts(parts, dim)
    except ConfigError:
        return False
    return True


def test_verbs_of_one_index_refuse_a_set_by_name(made: Path) -> None:
    with pytest.raises(OtherKind, match="got a set of indexes"):
        indexmill.delete(made, [1])
    with pytest.raises(OtherKind, match="got a set of indexes"):
        indexmill.lay_out(made)


def test_commands_search_inspect_and_verify_a_set(tmp_path: Path, made: Path) -> None:
    np.save(tmp_path / "q.npy", QUERIES)
    found = tmp_path / "found.parquet"
    command(
        "search", made, "--queries", tmp_path / "q.npy", "--margin", "inf", "--nprobe", "4", "--out", found
    )
    assert (pq.read_table(found)["id"].to_numpy().reshape(30, 10) == nearest()).all()
    assert json.loads(command("inspect", made, "--json"))["manifest"]["kind"] == "set"
    assert json.loads(command("verify", made, "--json"))["sound"]
    copy = tmp_path / "set"
    shutil.copytree(made, copy)
    shutil.rmtree(copy / "part-002")
    refused = CliRunner().invoke(app, ["verify", str(copy), "--json"])
    assert refused.exit_code == 6
    assert "part-002" in refused.output


def command(*words: Any) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_own_part_is_needed_at_every_margin(made: Path) -> None:
    opened = indexmill.open(made)
    assert (opened.route(QUERIES, 0).sum(axis=1) == 1).all()
    for margin in (8e307, 9e307, 1e308, np.finfo(np.float64).max):
        assert opened.route(QUERIES, margin).all()


class PartOfMany:
    """What a router asks of a part."""

    kind, dim, metric, n_deleted = "ivf", 256, "l2", 0

    class native:
        query_dtype, id_type = "float32", "none"

    def __len__(self) -> int:
        return 10


def test_memory_of_a_route_does_not_grow_with_pairs_of_parts() -> None:
    n = 300
    parts = tuple(Part(f"part-{number:03d}", "0" * 64, 10) for number in range(n))
    sites = RNG.random((n, 256)).astype(np.float32)
    opened = IndexSet("x", SetManifest(parts, sites, np.zeros(n, np.float32), {}, {}, {}), [PartOfMany()] * n)
    rows = sites.astype(np.float64)
    for number in (0, 17, 299):
        assert np.allclose(squared_distances(sites)[number], np.square(rows - rows[number]).sum(axis=1))
    queries = RNG.random((1, 256)).astype(np.float32)
    tracemalloc.start()
    opened.route(queries)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


@pytest.mark.parametrize("ids", [None, "text"])
def test_merging_part_by_part_keeps_the_nearest_with_ties_by_id(tmp_path: Path, ids: str | None) -> None:
    vectors = np.repeat(RNG.integers(0, 3, (60, 8)).astype(np.float32), 5, axis=0)
    names = None if ids is None else [f"{number:03d}" for number in range(len(vectors))]
    opened = ivf_set(tmp_path / "set", vectors, parts=4, lists=2, **({} if names is None else {"ids": names}))
    found = opened.search(QUERIES, 12, margin=ALL, nprobe=2)
    positions = np.array([[int(each) for each in row] for row in found.ids])
    assert (positions == nearest(vectors, 12)).all()
    assert found.ids.shape == (len(QUERIES), 12)


def test_a_changed_sample_of_queries_or_memory_makes_other_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: list[str] = []
    key = StageStore.key

    def noting(self: StageStore, stage: str, *facts: Any) -> str:
        made = key(self, stage, *facts)
        if stage == "parts":
            keys.append(made)
        return made

    monkeypatch.setattr(StageStore, "key", noting)
    np.save(tmp_path / "base.npy", VECTORS)
    sample = f"memory://{tmp_path.name}/sample.npy"
    for number, (rows, memory) in enumerate([(100, "1GiB"), (100, "1GiB"), (200, "1GiB"), (200, "2GiB")]):
        with fsspec.open(sample, "wb") as file:
            np.save(file, VECTORS[:rows])
        indexmill.build(
            str(tmp_path / "base.npy"), tmp_path / f"set-{number}", parts=2, max_degree=8, memory=memory,
            query_sample=sample,
        )  # fmt: skip
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


def test_a_part_for_each_open_file_raises_the_limit(tmp_path: Path) -> None:
    code = """
import resource, sys
import numpy as np
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
from pathlib import Path
from indexmill.formats.sources.source import array_source
from indexmill.pipeline.mill.progress import Silent
from indexmill.pipeline.sets.divide import divide
vectors = np.random.default_rng(1).standard_normal((900, 4)).astype(np.float32)
divide(array_source(vectors), "l2", 90, 0, 1 << 30, Path(sys.argv[1]), Silent())
print(len(list(Path(sys.argv[1]).glob("*.arrow"))))
"""
    done = run_forked(code, tmp_path)
    assert done.stdout.strip() == "90", done.stderr
