"""Jobs whose plans are held against their builds, and the sets that they read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common import generate
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import Dataset, beginning, halved
from indexmill.jobs.bench.common.parameters import SEED, THREADS
from indexmill.jobs.bench.programs.job import AMPLE, Job

#: Vectors of the generated set, whose first ones are the smaller sets.
GENERATED_ROWS = 10_000_000
_QUERIES = 1
#: Figures of a plan: what they are called, which of a measured run they foretell, and by how much they may be off.
FIGURES = {
    "peak_memory_bytes": ("memory", "peak_bytes", 0.15),
    "peak_scratch_bytes": ("scratch", "scratch_bytes", 0.05),
    "seconds": ("time", "wall_s", 0.25),
}


@dataclass(frozen=True)
class Planned:
    """A job of the grid: all vectors of a set, or the first `rows`, as they are or ``"as float16"``."""

    data: str
    rows: int | None = None
    memory: str = AMPLE
    workers: int = THREADS
    parameters: dict[str, Any] = field(default_factory=dict)


_PARTITION = {"builder": "partition"}
#: What `indexmill build --metric cosine` does: the format and the builder are left to it.
_LEFT_OPEN: dict[str, Any] = dict.fromkeys(
    ("builder", "R", "L", "alpha", "pq_bytes", "pq_rotation", "node_dtype", "order")
)
_OF_SENTENCES = {"metric": "cosine", "pq_bytes": 64}
#: Of another kind of index, which has none of the parameters of a graph.
_NO_GRAPH = _LEFT_OPEN | dict.fromkeys(("metric", "pq_bytes", "seed"))
#: Jobs of each part.
GRID = {
    "vamana": (
        Planned("sift1m", 300_000, workers=1, parameters={"builder": "vamana"}),
        Planned("sift1m", 300_000, parameters={"builder": "vamana", "R": 64, "L": 100}),
        Planned("sift1m", parameters={"builder": "vamana", "shard_vectors": 250_000}),
        Planned("embed768", 100_000, parameters={**_OF_SENTENCES, "builder": "vamana"}),
    ),
    "partition": (
        Planned("sift1m", 300_000, workers=1, parameters=_PARTITION),
        Planned("sift1m", parameters=_PARTITION),
        Planned("sift1m", parameters={**_PARTITION, "R": 64, "L": 128}),
        Planned("sift1m", parameters={**_PARTITION, "shard_vectors": 250_000}),
        Planned("generated", 3_000_000, "1GiB", parameters=_PARTITION),
    ),
    "floats": (
        Planned("embed768", parameters={**_OF_SENTENCES, **_PARTITION}),
        Planned(
            "embed768", parameters={**_OF_SENTENCES, **_PARTITION, "pq_rotation": "opq", "node_dtype": "sq8"}
        ),
        Planned("embed768", parameters={**_LEFT_OPEN, "metric": "cosine"}),
    ),
    "types": (
        Planned("embed768 as float16", 100_000, parameters={**_PARTITION, "pq_bytes": 64}),
        Planned("embed768", 100_000, parameters={**_OF_SENTENCES, **_PARTITION, "metric": "ip"}),
    ),
    "orders": (Planned("sift1m", parameters={**_PARTITION, "order": None}),),
    "kinds": (
        Planned("sift1m", parameters={**_NO_GRAPH, "kind": "ivf"}),
        Planned("sift1m", parameters={**_NO_GRAPH, "kind": "ivf", "codec": "pq"}),
        Planned("sift1m", 100_000, parameters={**_NO_GRAPH, "kind": "lsh"}),
    ),
    "large": (Planned("generated", GENERATED_ROWS, "8GiB", parameters=_PARTITION),),
}


@dataclass(frozen=True)
class Sets:
    """The run, and its sets with the generated one."""

    run: Run

    @property
    def out(self) -> Path:
        """Folder of the indexes."""
        return self.run.out

    def base(self, job: Planned) -> Path:
        """Return the file of the vectors of a job, which is written unless it is there."""
        name, _, dtype = job.data.partition(" as ")
        whole = (self._generated() if name == "generated" else self.run.sets[name]).base
        base = beginning(whole, min(job.rows or self._most, self._most), self.out / "data", name)
        return halved(base, self.out / "data") if dtype == "float16" else base

    @property
    def _most(self) -> int:
        return self.run.rows or GENERATED_ROWS

    def _generated(self) -> Dataset:
        found = Dataset(self.out / "generated")
        if not found.base.exists():
            generate.generate(found.folder, self._most, _QUERIES, SEED)
        return found

    def job(self, planned: Planned, name: str) -> Job:
        """Return the build of a job, whose index is called `name`."""
        return Job(name, self.base(planned), planned.memory, planned.workers, parameters=planned.parameters)
