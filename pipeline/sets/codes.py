"""Codes that the parts of a set have in common: one choice of format, and one codebook, from a sample of all vectors.

The stages that choose and train are those of an index, made on the sample in place of all vectors. They have the size,
and so the memory, of those of the largest part.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from indexmill.formats.sources.source import VectorSource, open_source
from indexmill.pipeline.build import open_input, resolved
from indexmill.pipeline.execution.executors import make_executor
from indexmill.pipeline.kinds.common import ingest
from indexmill.pipeline.kinds.common.cluster import sampled
from indexmill.pipeline.kinds.common.compute import settled
from indexmill.pipeline.kinds.common.shared import Range, Shared
from indexmill.pipeline.kinds.registry import warm_up
from indexmill.pipeline.kinds.run import ingest_stage, make_ingest
from indexmill.pipeline.mill.progress import Progress
from indexmill.pipeline.mill.stages import Mill, Stage
from indexmill.pipeline.mill.store import MARKER, StageStore
from indexmill.pipeline.spec import BuildSpec

VERSION = 1
_DRAW_VERSION = 1
#: The parameters that were chosen, beside the files that parts have in common.
_PARAMETERS_NAME = "parameters.json"


def make_codes(
    codes: Path, part: BuildSpec, parts: int, source: VectorSource, extent: Range, store: StageStore,
    progress: Progress,
) -> None:  # fmt: skip
    """Choose a format and train a codebook, unless that is done; resumes where a killed build stopped.

    Parameters
    ----------
    codes : Path
        Directory of the stage in the store, named after all that decides it.
    part : BuildSpec
        The job of the largest part, whose vectors are at least as many as those of the sample.
    parts : int
    source : VectorSource
        All vectors.
    extent : Range
        Of all vectors.

    Raises
    ------
    IndexmillError
        As the build of the part.
    """
    if store.is_done(codes):
        return
    part = part.computing_on(settled(part.parameters.computes_on, part.executor))
    vectors = open_input(part)
    p: Any = part.parameters
    n_sample = min(p.sample_vectors, vectors.n_vectors)
    part = part.model_copy(update={"parameters": p.for_codes(parts, n_sample)})
    size = resolved(part, vectors, progress)
    executor = make_executor(part.executor, part.workers, part.ray_address, part.memory, warm_up)
    try:
        mill = Mill(store, executor, progress, keep=True)
        drawn = _drawn(mill, source, n_sample, p.seed, codes.name)
        sample = open_source([str(mill.make(drawn) / "sample.npy")])
        first = ingest_stage(mill, sample, p.metric, {}, ingest.signature(sample), shared=Shared(extent))
        recipe = size.recipe(mill, first, make_ingest(mill, first))
        shared = recipe.shared_files()
        for stage, _ in shared:
            mill.make(stage)
    finally:
        executor.close()
    store.begin(codes, resume=False)
    for stage, name in shared:
        shutil.copyfile(mill.read(stage) / name, codes / name)
    (codes / _PARAMETERS_NAME).write_text(json.dumps(recipe.shared_parameters()))
    store.finish(codes)


def load_codes(codes: Path, extent: Range) -> tuple[dict[str, Any], Shared]:
    """Return the parameters that `make_codes` chose, and what parts have in common."""
    files = sorted(file for file in codes.iterdir() if file.name not in (MARKER, _PARAMETERS_NAME))
    return json.loads((codes / _PARAMETERS_NAME).read_text()), Shared(extent, tuple(files))


def _drawn(mill: Mill, source: VectorSource, n_sample: int, seed: int, decisive: str) -> Stage:
    """Return the stage that draws the sample."""
    rows = sampled(source.n_vectors, n_sample, seed)

    def write(directory: Path) -> None:
        np.save(directory / "sample.npy", source.read(rows))

    key = mill.store.key("draw", _DRAW_VERSION, {"vectors": len(rows)}, [decisive])
    return Stage("draw", key, mill.store.path("draw", key), (), write, steps=len(rows), unit="vectors")
