"""The first build on a machine: a rehearsal uses every kernel of it, and it takes the memory of any later build."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.indexes.builds import clustered
from tests.support.processes.forks import run_forked

from indexmill.formats.sources.source import array_source
from indexmill.pipeline.plan import make_plan
from indexmill.pipeline.spec import BuildSpec

MIB = 1 << 20
#: Half of what a process that compiled such a build holds at least, and more than two equal builds differ by.
COMPILER_BYTES = 100 * MIB
#: Rehearses a job and runs it, and prints the kernels that are loaded or compiled only by the second.
_AFTER_REHEARSAL = """
import json, sys
from pathlib import Path
from indexmill.formats.kernel import CacheFiles, used_kernels
from indexmill.formats.sources.source import open_source
from indexmill.pipeline import build
from indexmill.pipeline.kinds.registry import kind_of
from indexmill.pipeline.rehearsal.run import rehearse
from indexmill.pipeline.spec import BuildSpec

assert used_kernels() == {}
build.compile_kernels = lambda *_: None  # which would rehearse in another process
spec, folder = BuildSpec.model_validate_json(sys.argv[1]), Path(sys.argv[2])
for number, what in enumerate(kind_of(spec.parameters).size().rehearsals(spec, open_source(spec.input))):
    (folder / str(number)).mkdir()
    rehearse(what, folder / str(number))
missed, load = [], CacheFiles.load

def noted(self, key):
    missed.append((Path(self._index_path).name, str(key[0])))
    return load(self, key)

CacheFiles.load = noted
build.run_build(spec)
print(json.dumps(missed))
"""


def job(folder: Path, vectors: np.ndarray, memory: int, **parameters: Any) -> BuildSpec:
    np.save(folder / "vectors.npy", vectors)
    return BuildSpec(
        input=[str(folder / "vectors.npy")],
        out=str(folder / "index"),
        memory=memory,
        workers=1,
        parameters=parameters,
    )


SMALL = {"L": 20, "pq_bytes": 8, "sample_vectors": 3000, "entries": 16}


@pytest.mark.parametrize(
    ("n", "dtype", "memory", "parameters"),
    [
        (30_000, "uint8", 285, {"builder": "partition", "R": 48, "navigation": 0.0, **SMALL}),
        (6000, "float32", 2048, {"builder": "partition", "metric": "cosine", **SMALL}),
        (6000, "float32", 2048, {"builder": "vamana", "build_codes": "sq8", "shard_vectors": 3000, **SMALL}),
        (6000, "float16", 2048, {"builder": "vamana", "passes": 2, "entries": 2100, "L": 20}),
        (6000, "float32", 2048, {"kind": "ivf", "lists": 100, "codec": "rabitq", "copies": 2}),
        (6000, "uint8", 2048, {"kind": "ivf", "lists": 100, "codec": "pq", "pq_rotation": "opq"}),
        (6000, "uint8", 2048, {"kind": "ivf", "lists": 2100, "codec": "pq"}),
        (6000, "float32", 2048, {"kind": "lsh", "probes": 4}),
    ],
    ids=["regions", "partition", "shards", "vamana", "rabitq", "opq", "many lists", "lsh"],
)
def test_a_rehearsal_uses_all_kernels_of_a_build(
    tmp_path: Path, n: int, dtype: str, memory: int, parameters: dict[str, Any]
) -> None:
    spec = job(tmp_path, clustered(n, 64, dtype), memory * MIB, **parameters)
    assert missed(spec, tmp_path) == []


def test_a_rehearsal_uses_all_kernels_of_a_build_with_a_sample_of_queries(tmp_path: Path) -> None:
    spec = job(tmp_path, clustered(6000, 64), 2048 * MIB, builder="partition", metric="cosine", **SMALL)
    np.save(tmp_path / "asked.npy", clustered(500, 64)[::-1])
    assert missed(spec.model_copy(update={"query_sample": str(tmp_path / "asked.npy")}), tmp_path) == []


def missed(spec: BuildSpec, folder: Path) -> Any:
    """Return the kernels of a build that its rehearsal has not used."""
    done = run_forked(_AFTER_REHEARSAL, spec.model_dump_json(), folder, cold=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


#: Builds; the names of stages are written to stderr.
_BUILD = """
import sys
from indexmill.jobs.console.progress import Lines
from indexmill.pipeline.build import run_build
from indexmill.pipeline.spec import BuildSpec

run_build(BuildSpec.model_validate_json(sys.argv[1]), progress=Lines())
"""


@pytest.mark.memory
def test_the_first_build_takes_what_is_planned_and_the_second_starts_nothing(tmp_path: Path) -> None:
    vectors = clustered(24_000, 64, "uint8")
    spec = job(tmp_path, vectors, 700 * MIB, builder="vamana", order="identity", **SMALL)
    cache = tmp_path / "cache"
    peaks, told, notes = [], [], []
    for force in (False, True):
        forced = spec.model_copy(update={"force": force}).model_dump_json()
        done = subprocess.run(
            [sys.executable, "-c", _BUILD, forced],
            capture_output=True, text=True, env=os.environ | {"NUMBA_CACHE_DIR": str(cache)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        peaks.append(json.loads((tmp_path / "index/run.json").read_text())["peak_memory_bytes"])
        told.append("compiling kernels (once)" in done.stderr)
        notes.append({path: path.stat().st_mtime_ns for path in cache.rglob("rehearsed-*.json")})
    assert peaks[0] < peaks[1] + COMPILER_BYTES
    assert peaks[0] < make_plan(spec, array_source(vectors)).peak_memory_bytes + COMPILER_BYTES
    assert told == [True, False]
    assert notes[0] == notes[1] != {}
