"""A target refuses an index that it cannot hold before it writes; existing files survive refused and failed exports."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.oracles.files.diskann import write_disk_index
from tests.oracles.files.small_index import Aids, write_small_index
from tests.oracles.graph.vamana import reachable
from tests.support.indexes.ivf import build_lists, make_vectors
from tests.support.indexes.lsh import build_lsh, clusters
from tests.support.processes.forks import run_forked

import indexmill
from indexmill.formats.errors import ConfigError, OutputExistsError
from indexmill.formats.exports import lucene
from indexmill.formats.exports.rows import ExportedIndex
from indexmill.formats.exports.targets import TARGETS
from indexmill.formats.graph.index import IndexFiles
from indexmill.pipeline.export.opened import open_exported

#: Written by libraries or programs that are not installed here; tests/engines fills their disks.
BY_OTHERS = ("lance", "lucene", "lucene-build")
#: The greatest id of a vector in each target; the others hold every id, or none at all.
GREATEST = {
    "diskann": 2**32 - 1,
    **dict.fromkeys(("faiss", "faiss-nsg", "faiss-ivf", "faiss-ivf-disk", "faiss-lsh"), 2**63 - 1),
    **dict.fromkeys(("lucene", "lucene-build", "usearch", "pgvector"), 2**63 - 1),
}
HOLD_ANY = ("lance", "jvector", "svs", "parquet", "bulk")
#: Vertices or documents that engines number at most.
MOST_VECTORS = {
    **dict.fromkeys(("faiss", "faiss-nsg", "jvector"), 2**31 - 1),
    **dict.fromkeys(("lucene", "lucene-build"), 2**31 - 129),
}


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An index of each kind."""
    folder = tmp_path_factory.mktemp("kinds")
    write_small_index(folder / "graph", id_type="none")
    build_lists(folder / "ivf", make_vectors("float32", 600), lists=4)
    build_lsh(folder / "lsh", clusters(600, 12), n_functions=4, n_tables=2, n_radii=2)
    return {kind: folder / kind for kind in ("graph", "ivf", "lsh")}


@contextmanager
def described(indexes: dict[str, Path], target: str) -> Iterator[Any]:
    """What `target` sees of an index that it holds when it is asked whether it does."""
    with open_exported(indexes[TARGETS[target].kinds[0]], TARGETS[target], "user") as opened:
        yield opened.described()


@pytest.mark.parametrize("target", TARGETS)
def test_an_index_of_another_kind_is_refused_and_targets_for_it_are_named(
    indexes: dict[str, Path], tmp_path: Path, target: str
) -> None:
    for kind, index in indexes.items():
        if kind in TARGETS[target].kinds:
            continue
        with pytest.raises(ConfigError, match=f"is of kind {kind}; export it to one of ") as refusal:
            indexmill.export(index, target, tmp_path / "out")
        named = str(refusal.value).rsplit(" one of ", 1)[1].split(", ")
        assert named == [name for name, one in TARGETS.items() if kind in one.kinds]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_that_is_there_is_touched_without_force(
    indexes: dict[str, Path], tmp_path: Path, target: str
) -> None:
    for name, message in (("export.json", "add --force"), ("precious", "is not an export")):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text("mine")
        with pytest.raises(OutputExistsError, match=message):
            indexmill.export(indexes[TARGETS[target].kinds[0]], target, tmp_path / name)
        assert [(p.name, p.read_text()) for p in (tmp_path / name).iterdir()] == [(name, "mine")]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["export.json", "precious"]


#: No file may pass 8 KiB: the system then refuses as a full disk does.
FULL_DISK = """
import json, resource, sys
from pathlib import Path
import numpy, pyarrow.parquet
import indexmill
from indexmill.formats.errors import BudgetError
cases, out = json.loads(sys.argv[1]), Path(sys.argv[2])
indexmill.export(cases["diskann"], "diskann", out / "old")
before = {p.name: p.read_bytes() for p in (out / "old").iterdir()}
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
for target, index in cases.items():
    for name in ("new", "old"):
        try:
            indexmill.export(index, target, out / name, force=True)
        except BudgetError as error:
            assert "File too large" in str(error), error
        else:
            raise AssertionError(target)
        assert [p.name for p in out.iterdir()] == ["old"], target
        assert {p.name: p.read_bytes() for p in (out / "old").iterdir()} == before, target
    print(target)
"""


@pytest.mark.kill
def test_a_full_disk_leaves_no_half_written_directory_of_any_target(
    indexes: dict[str, Path], tmp_path: Path
) -> None:
    import json

    cases = {name: str(indexes[one.kinds[0]]) for name, one in TARGETS.items() if name not in BY_OTHERS}
    done = run_forked(FULL_DISK, json.dumps(cases), tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == list(cases)


@pytest.mark.parametrize("target", GREATEST)
def test_ids_beyond_the_greatest_are_refused_unless_slots_will_do(
    indexes: dict[str, Path], monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    monkeypatch.setattr(lucene, "check_tools", lambda name: None)
    check, most = TARGETS[target].check, GREATEST[target]

    def named(seen: ExportedIndex, last: int) -> ExportedIndex:
        return replace(seen, user_ids=pa.array(np.arange(last - seen.n + 1, last + 1, dtype=np.uint64)))

    with described(indexes, target) as seen:
        check(named(seen, most))
        with pytest.raises(ConfigError) as refusal:
            check(named(seen, most + 1))
        assert f"ids: {most + 1:,} of vector " in str(refusal.value)
        assert f"but {target} holds ids from 0 to {most:,}; give --ids slot" in str(refusal.value)
        check(replace(named(seen, most + 1), ids="slot"))


def test_the_other_targets_hold_every_id(indexes: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lance", ModuleType("lance"))  # the check imports it, and no more
    assert set(GREATEST) | set(HOLD_ANY) == set(TARGETS)
    for target in HOLD_ANY:
        with described(indexes, target) as seen:
            most = np.arange(seen.n, dtype=np.uint64) + np.uint64(2**64 - seen.n)
            TARGETS[target].check(replace(seen, user_ids=pa.array(most)))


@pytest.mark.parametrize("target", ["lucene", "lucene-build"])
def test_an_id_longer_than_a_term_is_refused(indexes: dict[str, Path], target: str) -> None:
    with described(indexes, target) as seen:
        names = pa.array(["x" * 32_767, *(f"{i}" for i in range(1, seen.n))])
        with pytest.raises(
            ConfigError, match=f"ids of 32,767 bytes, but {target} holds up to 32,766; give --ids"
        ):
            TARGETS[target].check(replace(seen, user_ids=names))


@pytest.mark.parametrize("target", MOST_VECTORS)
def test_more_vectors_than_an_engine_numbers_are_refused(
    indexes: dict[str, Path], monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    monkeypatch.setattr(lucene, "check_tools", lambda name: None)
    most = MOST_VECTORS[target]
    with described(indexes, target) as seen:
        TARGETS[target].check(replace(seen, vector_ids=np.broadcast_to(np.uint32(0), most)))
        with pytest.raises(
            ConfigError, match=f"vectors: {most + 1:,}, but {target} holds up to {most:,}; export"
        ):
            TARGETS[target].check(replace(seen, vector_ids=np.broadcast_to(np.uint32(0), most + 1)))


@pytest.mark.parametrize("target", ["pgvector", "bulk"])
def test_vectors_that_are_too_long_for_a_column_are_refused(tmp_path: Path, target: str) -> None:
    for dim in (16_000, 16_001):
        write_small_index(
            tmp_path / f"{dim}",
            n=3,
            dim=dim,
            dtype="uint8",
            R=2,
            id_type="none",
            aids=Aids(n_entries=1, n_navigation=0),
        )
    indexmill.export(tmp_path / "16000", target, tmp_path / "fits")
    with pytest.raises(ConfigError, match=rf"vectors of 16,001 components, but {target} holds up to 16,000"):
        indexmill.export(tmp_path / "16001", target, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def reached(index: Path) -> int:
    """Return the number of vertices to which paths from the medoid lead."""
    with IndexFiles(index) as files:
        nodes = files.graph.read_all()
        return len(reachable(nodes.neighbours, nodes.degrees, files.entries.medoid))


def test_a_graph_with_unreachable_vertices_is_refused_by_every_target_that_keeps_it(tmp_path: Path) -> None:
    rows = np.random.default_rng(1).integers(0, 256, (60, 12)).astype(np.uint8)
    lists = [[(v + 1) % 50] if v < 50 else [50 + (v + 1) % 10] for v in range(60)]
    write_disk_index(tmp_path / "ring_disk.index", rows, lists, 0, 3)
    for repair, out in ((True, "whole"), (False, "parts")):
        indexmill.import_index(tmp_path / "ring", tmp_path / out, dtype="uint8", pq_bytes=4, repair=repair)
    keep = [name for name, one in TARGETS.items() if "graph" in one.kinds and one.keeps["graph"] != "no"]
    assert len(keep) == 8
    assert (reached(tmp_path / "whole"), reached(tmp_path / "parts")) == (60, 50)
    remedy = "import it with --repair, or delete one of its vectors and run `indexmill compact`"
    for target in keep:
        with pytest.raises(ConfigError, match=f"10 vertices cannot be reached.*{remedy}"):
            indexmill.export(tmp_path / "parts", target, tmp_path / "out")
        assert not (tmp_path / "out").exists()
    indexmill.export(tmp_path / "whole", "diskann", tmp_path / "out")
    indexmill.export(tmp_path / "parts", "pgvector", tmp_path / "rows")  # which has no graph
    indexmill.delete(tmp_path / "parts", [0], by="vector")
    with pytest.raises(ConfigError, match=r"10 vertices cannot be reached"):
        indexmill.export(tmp_path / "parts", "parquet", tmp_path / "out")
    indexmill.export(tmp_path / "parts", "diskann", tmp_path / "compacted", workers=1)  # which links them
    indexmill.compact(tmp_path / "parts", workers=1)
    assert reached(tmp_path / "parts") == 59
    indexmill.export(tmp_path / "parts", "diskann", tmp_path / "after")
