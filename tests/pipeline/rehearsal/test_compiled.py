"""Kernels are compiled before a build, by a process of its own, once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.support.indexes.builds import clustered

from indexmill.formats.kernel import are_kept, cache_folder, kernel, used_kernels
from indexmill.formats.sources.source import array_source
from indexmill.pipeline.kinds.graph.shaped.asked import LEAST_QUERIES
from indexmill.pipeline.kinds.registry import kind_of
from indexmill.pipeline.mill.progress import Silent
from indexmill.pipeline.rehearsal import compiled
from indexmill.pipeline.rehearsal.run import rehearse
from indexmill.pipeline.spec import BuildSpec

MIB = 1 << 20
#: A build that is compiled for beforehand although it has few vectors.
LITTLE = 700 * MIB


def spec_of(memory: int = LITTLE, **parameters: Any) -> BuildSpec:
    return BuildSpec(
        input=["<array>"], out="<out>", memory=memory, workers=1, parameters={"kind": "ivf", **parameters}
    )


@kernel
def _one() -> int:
    return 1


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[dict[str, Any]]:
    """What each process was asked to rehearse; none is started, and its notes are those of a kernel of this module."""
    found: list[dict[str, Any]] = []
    _one()
    used = {index: source for index, source in used_kernels().items() if "_one" in index}
    assert len(used) == 1

    class Child:
        returncode = 0

        def __init__(self, command: list[str], **_: Any) -> None:
            found.append(json.loads(command[-1]))
            for note in found[-1]:
                Path(note).write_text(json.dumps(used))

        def __enter__(self) -> Child:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def communicate(self, timeout: float | None = None) -> tuple[None, str]:
            return None, ""

        def kill(self) -> None:
            pass

    monkeypatch.setattr(subprocess, "Popen", Child)
    monkeypatch.setattr(compiled, "cache_folder", lambda: tmp_path)
    return found


def test_jobs_that_use_the_same_kernels_are_rehearsed_once(
    started: list[dict[str, Any]], tmp_path: Path
) -> None:
    bytes_, floats = array_source(clustered(300, 8, "uint8")), array_source(clustered(300, 12))
    for source, job in [
        (bytes_, spec_of()),
        (bytes_, spec_of(lists=3000, seed=7, sample_vectors=1000)),
        (bytes_, spec_of(memory=LITTLE + MIB)),
        (floats, spec_of()),
        (floats, spec_of(codec="pq")),
        (floats, spec_of(codec="pq", pq_bytes=2)),
    ]:
        compiled.compile_kernels(job, source, Silent())
    assert [[(what["dtype"], what["parameters"]["codec"]) for what in one.values()] for one in started] == [
        [("uint8", "flat")],
        [("float32", "flat")],
        [("float32", "pq")],
    ]
    (note,) = started[1]
    Path(note).write_text("not whole")
    compiled.compile_kernels(spec_of(), floats, Silent())
    assert list(started[3]) == [note]


def test_a_small_build_with_room_for_the_compiler_is_not_rehearsed(started: list[dict[str, Any]]) -> None:
    few, many = array_source(clustered(300, 8)), array_source(np.zeros((20_001, 2), np.float32))
    compiled.compile_kernels(spec_of(memory=1 << 30), few, Silent())
    assert started == []
    compiled.compile_kernels(spec_of(memory=1 << 30), many, Silent())
    compiled.compile_kernels(spec_of(codec="sq8"), few, Silent())
    assert len(started) == 2


def test_a_graph_is_rehearsed_as_it_will_be_cut() -> None:
    source = array_source(clustered(30_000, 64, "uint8"))
    rehearsals = kind_of(spec_of(kind="graph").parameters).size().rehearsals

    def cut(memory: int, **parameters: Any) -> tuple[str, bool, bool]:
        job = spec_of(memory, kind="graph", R=48, pq_bytes=8, entries=16, sample_vectors=1000, **parameters)
        (what,) = rehearsals(job, source)
        p = what.parameters
        return p["builder"], p["shard_vectors"] is not None, "region_bytes" in what.changes

    assert cut(2 << 30) == ("partition", False, False)
    assert cut(285 * MIB, builder="partition") == ("partition", False, True)
    assert cut(2 << 30, builder="vamana", shard_vectors=9000) == ("vamana", True, False)


def test_a_graph_with_a_sample_of_queries_is_rehearsed_with_one(tmp_path: Path) -> None:
    np.save(tmp_path / "asked.npy", clustered(300, 12))
    plain = spec_of(kind="graph", R=8, pq_bytes=4, entries=16)
    asked = plain.model_copy(update={"query_sample": str(tmp_path / "asked.npy")})
    rehearsals = kind_of(plain.parameters).size().rehearsals
    source = array_source(clustered(2000, 12))
    found = [rehearsals(job, source)[0] for job in (plain, asked)]
    assert found[0].queries == 0
    assert found[1].queries == LEAST_QUERIES


def test_a_graph_with_labels_is_rehearsed_with_some(tmp_path: Path) -> None:
    plain = spec_of(kind="graph", R=16, pq_bytes=4, entries=16, codes_on_page=True)
    named = plain.model_copy(update={"label_column": "label"})
    rehearsals = kind_of(plain.parameters).size().rehearsals
    source = array_source(clustered(2000, 12), metadata=pa.table({"label": np.arange(2000) % 5}))
    found = [rehearsals(job, source)[0] for job in (plain, named)]
    assert [one.labels for one in found] == [False, True]
    rehearse(found[1], tmp_path)


def test_a_build_goes_on_where_kernels_cannot_be_compiled_beforehand(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(compiled, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.warns(UserWarning, match=r"could not be compiled beforehand \(exit status 1\)") as told:
        compiled.compile_kernels(spec_of(), array_source(clustered(300, 8)), Silent())
    assert len(told) == 1


def test_a_build_goes_on_where_no_process_can_be_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(compiled, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no python"))
    with pytest.warns(
        UserWarning, match=r"beforehand \(.*No such file or directory.*\): the build comp"
    ) as told:
        compiled.compile_kernels(spec_of(), array_source(clustered(300, 8)), Silent())
    assert len(told) == 1


@pytest.mark.parametrize("changed", ["version", "source"])
def test_another_version_is_rehearsed_again(
    started: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, changed: str
) -> None:
    """Its builds may use kernels that the one before had not, which no note of that one names."""
    package = SimpleNamespace(__name__="builders", __path__=[str(tmp_path)])
    (tmp_path / "kernels.py").write_text("one")
    monkeypatch.setattr(compiled, "KERNEL_PACKAGES", (package,))
    source = array_source(clustered(300, 8))
    compiled.sources_digest.cache_clear()
    for number in range(4):
        if number == 2 and changed == "version":
            monkeypatch.setattr(compiled, "__version__", "9.9")
        if number == 2 and changed == "source":
            (tmp_path / "kernels.py").write_text("another")
            compiled.sources_digest.cache_clear()
        compiled.compile_kernels(spec_of(), source, Silent())
    compiled.sources_digest.cache_clear()
    assert len(started) == 2


def test_kernels_are_missed_with_their_machine_code_or_another_source(tmp_path: Path) -> None:
    source, index = tmp_path / "a.py", tmp_path / "a.nbi"
    source.write_text("one")
    index.touch()
    status = source.stat()
    used = {str(index): [str(source), status.st_mtime_ns, status.st_size]}
    assert are_kept(used)
    source.write_text("other")
    assert not are_kept(used)
    source.write_text("one")
    os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert are_kept(used)
    index.unlink()
    assert not are_kept(used)
    source.unlink()
    assert not are_kept({str(tmp_path): used[str(index)]})


_UNCACHED = """
import warnings
with warnings.catch_warnings(record=True) as told:
    import indexmill.builders.distances, indexmill.builders.vamana.greedy
    from indexmill.formats.kernel import cache_folder, kernel
print([str(one.message)[:30] for one in told if "kernels" in str(one.message)], cache_folder())
print(kernel(lambda x: x + 1)(2))
"""


def test_kernels_are_compiled_where_no_folder_can_be_written() -> None:
    assert cache_folder() is not None
    nowhere = {"NUMBA_CACHE_DIR": "/dev/null/x", "NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator"}
    done = subprocess.run(
        [sys.executable, "-c", _UNCACHED],
        env=os.environ | nowhere,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "['no folder for compiled kernels'] None\n3\n"
