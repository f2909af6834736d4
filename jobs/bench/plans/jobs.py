"""Jobs whose plans are held against their builds, and the sets that they read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from indexmill.jobs.bench.common import generate
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import Dataset, beginning, halved, read_bin
from indexmill.jobs.bench.common.parameters import SEED, THREADS
from indexmill.jobs.bench.programs.job import AMPLE, Job

#: Vectors of the generated set, whose first ones are the smaller sets.
GENERATED_ROWS = 10_000_000
_QUERIES = 1
#: What may follow the name of a set: vectors that are converted; a column of labels, within which edges stay; a sample
#: of queries, which shapes the graph.
_HALVED, _LABELLED, _ASKED = "as float16", "with labels", "with queries"
#: The column of labels, and its different values, which are drawn.
_LABEL, _LABELS = "label", 10


@dataclass(frozen=True)
class Planned:
    """A job of the grid: all vectors of a set, or the first `rows`, as they are or as `_HALVED` and the others say."""

    data: str
    rows: int | None = None
    memory: str = AMPLE
    workers: int = THREADS
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def set(self) -> str:
        """Name of the set."""
        return self.data.partition(" ")[0]

    @property
    def how(self) -> str:
        """What follows the name of the set, or nothing."""
        return self.data.partition(" ")[2]


_PARTITION = {"builder": "partition"}
#: What `indexmill build --metric cosine` does: the format and the builder are left to it.
_LEFT_OPEN: dict[str, Any] = dict.fromkeys(
    ("builder", "R", "L", "alpha", "pq_bytes", "pq_rotation", "node_dtype", "order")
)
_ON_PAGE = _LEFT_OPEN | {"metric": "cosine", "codes_on_page": True}
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
    "paths": (
        Planned("embed768", memory="640MiB", parameters={**_OF_SENTENCES, **_PARTITION}),
        Planned("embed768", 100_000, parameters={**_OF_SENTENCES, **_PARTITION, "shard_vectors": 25_000}),
        Planned("embed768", 100_000, parameters=_ON_PAGE),
        Planned("embed768 with labels", 100_000, parameters=_ON_PAGE),
        Planned("embed768 with queries", 100_000, parameters={**_OF_SENTENCES, **_PARTITION}),
        Planned("embed768", 100_000, parameters={**_OF_SENTENCES, "builder": "vamana", "passes": 2}),
        Planned("embed768", 100_000, parameters={**_OF_SENTENCES, "builder": "vamana", "build_codes": "sq8"}),
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

    def vectors(self, job: Planned) -> Path:
        """Return a big-ann file of the vectors of a job, which is written unless it is there."""
        whole = (self._generated() if job.set == "generated" else self.run.sets[job.set]).base
        base = beginning(whole, min(job.rows or self._most, self._most), self.out / "data", job.set)
        return halved(base, self.out / "data") if job.how == _HALVED else base

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
        base = self.vectors(planned)
        beside: dict[str, Any] = {}
        if planned.how == _LABELLED:
            base = labelled(base, self.out / "data")
            beside = {"metadata_columns": [_LABEL], "label_column": _LABEL}
        elif planned.how == _ASKED:
            beside = {"query_sample": self.run.sets[planned.set].query}
        return Job(name, base, planned.memory, planned.workers, parameters=planned.parameters, beside=beside)


def labelled(base: Path, folder: Path) -> Path:
    """Return a Parquet file of the vectors of `base` with a column of labels, written once into `folder`."""
    path = folder / f"{base.stem}-labels.parquet"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        vectors = read_bin(base)
        labels = np.random.default_rng(SEED).integers(0, _LABELS, len(vectors)).astype(str)
        rows = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
        pq.write_table(pa.table({"embedding": rows, _LABEL: labels}), path)
    return path
