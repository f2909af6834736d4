"""Codes that the parts of a set have in common: one choice of format, and one codebook, from a sample of all vectors.

The stages that choose and train are those of an index, made on the sample in place of all vectors. They have the size,
and so the memory, of those of the largest part.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from indexmill.formats.pagefile.atomic import copy_file
from indexmill.formats.sources.source import VectorSource, open_source
from indexmill.pipeline.build import open_input, resolved
from indexmill.pipeline.execution.executors import make_executor
from indexmill.pipeline.kinds.common import encode, ingest
from indexmill.pipeline.kinds.common.cluster import SAMPLE_VERSION, sampled
from indexmill.pipeline.kinds.common.compute import settled
from indexmill.pipeline.kinds.common.shared import Range, Shared
from indexmill.pipeline.kinds.graph import format
from indexmill.pipeline.kinds.graph.shaped import asked
from indexmill.pipeline.kinds.ivf.tasks import CENTROIDS_VERSION
from indexmill.pipeline.kinds.registry import warm_up
from indexmill.pipeline.kinds.run import ingest_stage, make_ingest
from indexmill.pipeline.mill.progress import Progress
from indexmill.pipeline.mill.stages import Mill, Stage
from indexmill.pipeline.mill.store import MARKER, StageStore, held
from indexmill.pipeline.spec import BuildSpec

VERSION = 3
#: Versions of the stages that choose and train.
_STAGES = [
    ingest.VERSION, SAMPLE_VERSION, asked.ASKED_VERSION, asked.NEAREST_VERSION, format.VERSION, encode.VERSION,
    CENTROIDS_VERSION,
]  # fmt: skip
#: Directory of these stages while they are made, in that of the codes.
_WORK_NAME = "work"
#: The parameters that were chosen, beside the files that parts have in common.
_PARAMETERS_NAME = "parameters.json"
_SAMPLE_NAME = "sample.npy"


def codes_directory(store: StageStore, decisive: dict[str, Any], inputs: Sequence[str]) -> Path:
    """Return the directory of the codes of a set, named after all that decides them: parameters, inputs, versions."""
    return store.path("codes", store.key("codes", VERSION, {**decisive, "stages": _STAGES}, inputs))


def make_codes(
    codes: Path, part: BuildSpec, parts: int, source: VectorSource, extent: Range, store: StageStore,
    progress: Progress, checked: Callable[[], None],
) -> None:  # fmt: skip
    """Choose a format and train a codebook, unless that is done; resumes where a killed build stopped.

    Scratch space is that of the build of the part, beside a copy of the sample.

    Parameters
    ----------
    codes : Path
        See `codes_directory`.
    part : BuildSpec
        The job of the largest part, whose vectors are at least as many as those of the sample.
    parts : int
    source : VectorSource
        All vectors.
    extent : Range
        Of all vectors.
    checked : callable
        Called when the sample was read; raises if the vectors were changed meanwhile.

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
    size = resolved(part, vectors, progress).for_codes(parts)
    store.begin(codes, resume=True)
    with ExitStack() as stack:
        own = stack.enter_context(held(StageStore(codes / _WORK_NAME), keep=False))
        executor = make_executor(part.executor, part.workers, part.ray_address, part.memory, warm_up)
        stack.callback(executor.close)
        mill = Mill(own, executor, progress, keep=True)
        file = mill.make(_drawn(mill, source, n_sample, p.seed, checked)) / _SAMPLE_NAME
        own.scratch = size.scratch_limit(own) + file.stat().st_size
        sample = open_source([str(file)])
        first = ingest_stage(mill, sample, p.metric, {}, ingest.signature(sample), shared=Shared(extent))
        recipe = size.recipe(mill, first, make_ingest(mill, first))
        for stage, name in recipe.shared_files():
            copy_file(mill.make(stage) / name, codes / name)
        (codes / _PARAMETERS_NAME).write_text(json.dumps(recipe.shared_parameters()))
    store.finish(codes)


def load_codes(codes: Path, extent: Range) -> tuple[dict[str, Any], Shared]:
    """Return the parameters that `make_codes` chose, and what parts have in common."""
    files = sorted(file for file in codes.iterdir() if file.name not in (MARKER, _PARAMETERS_NAME))
    return json.loads((codes / _PARAMETERS_NAME).read_text()), Shared(extent, tuple(files))


def _drawn(mill: Mill, source: VectorSource, n_sample: int, seed: int, checked: Callable[[], None]) -> Stage:
    """Return the stage that draws the sample."""
    rows = sampled(source.n_vectors, n_sample, seed)

    def write(directory: Path) -> None:
        np.save(directory / _SAMPLE_NAME, source.read(rows))
        checked()

    key = mill.store.key("draw", VERSION, {"vectors": len(rows)}, [])
    return Stage("draw", key, mill.store.path("draw", key), (), write, steps=len(rows), unit="vectors")
