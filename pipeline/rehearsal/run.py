"""The process that compiles: it makes tiny builds, whose kernels numba keeps, and notes which these were."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.formats.kernel import used_kernels
from indexmill.formats.pagefile.atomic import write_json_atomic
from indexmill.formats.sources.source import array_source
from indexmill.pipeline.execution.local import LocalExecutor
from indexmill.pipeline.kinds.common import ingest
from indexmill.pipeline.kinds.registry import kind_of
from indexmill.pipeline.kinds.rehearsal import REHEARSED, REHEARSED_DIM, Rehearsal
from indexmill.pipeline.kinds.run import ingest_stage, make_ingest
from indexmill.pipeline.mill.progress import Silent
from indexmill.pipeline.mill.stages import Mill
from indexmill.pipeline.mill.store import StageStore
from indexmill.pipeline.spec import BuildSpec

#: Groups that the vectors lie in, as those of an input do.
_CLUSTERS = 12
#: A column of labels of a tiny build, and how many labels it has.
_LABEL, _LABELS = "label", 4


def rehearse(what: Rehearsal, folder: Path) -> None:
    """Make all stages of a tiny build.

    Parameters
    ----------
    folder : Path
        Exists; for scratch files.
    """
    vectors = _vectors(np.dtype(what.dtype), REHEARSED)
    given: dict[str, Any] = {}
    for name, n, dtype in (
        ("centroids", what.centroids, "float32"),
        ("query_sample", what.queries, what.dtype),
    ):
        if n:
            given[name] = str(folder / f"{name}.npy")
            np.save(given[name], _vectors(np.dtype(dtype), n))
    metadata = None
    if what.labels:
        metadata = pa.table({_LABEL: np.arange(REHEARSED) % _LABELS})
        given |= {"metadata_columns": [_LABEL], "label_column": _LABEL}
    spec = BuildSpec.model_validate(
        {"input": "<array>", "out": str(folder / "index"), "parameters": what.parameters, "workers": 1}
        | given
    )
    source = array_source(vectors, metadata=metadata)
    size = kind_of(spec.parameters).resolve(spec, source)
    size.shape = replace(size.shape, **what.changes)
    executor, store = LocalExecutor(spec.workers), StageStore(folder / "stages")
    mill = Mill(store, executor, Silent(), keep=False)
    first = ingest_stage(mill, source, spec.parameters.metric, {}, ingest.signature(source))
    mill.make(size.recipe(mill, first, make_ingest(mill, first)).certify)
    store.close()
    executor.close()


def _vectors(dtype: np.dtype[Any], n: int) -> NDArray[Any]:
    """Return clustered vectors, shape (n, REHEARSED_DIM)."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(_CLUSTERS, REHEARSED_DIM)) * 30
    vectors = centres[rng.integers(0, _CLUSTERS, n)] + rng.normal(size=(n, REHEARSED_DIM)) * 8
    if dtype.kind == "f":
        return vectors.astype(dtype)
    bounds = np.iinfo(dtype)
    return np.clip(vectors + 128 * (dtype.kind == "u"), bounds.min, bounds.max).astype(dtype)


def main(wanted: Mapping[str, dict[str, Any]]) -> None:
    """Make rehearsals, each of which has the path of its note as its key."""
    for note, what in wanted.items():
        with tempfile.TemporaryDirectory(prefix="indexmill-") as folder:
            rehearse(Rehearsal(**what), Path(folder))
        write_json_atomic(Path(note), used_kernels())


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
