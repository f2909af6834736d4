"""The stages of a hierarchical graph behind those of level 0: *levels*, *ids* and *file*."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.exports.hnsw import HnswShape
from indexmill.formats.exports.opensearch import KnnFile, write_knn_file
from indexmill.pipeline.hnsw.levels import VERSION as LEVELS_VERSION
from indexmill.pipeline.hnsw.levels import levels_task, load_levels
from indexmill.pipeline.hnsw.parameters import ID_DTYPE, HnswJob
from indexmill.pipeline.hnsw.stored import check_unchanged, read_ids
from indexmill.pipeline.kinds.graph.recipe import GraphRecipe
from indexmill.pipeline.kinds.graph.tasks import load_graph
from indexmill.pipeline.mill.stages import Mill, Stage
from indexmill.pipeline.urls.storage import Storage

#: The finished file, in the directory of its stage.
FILE_NAME = "index.faiss"
_IDS_VERSION = _FILE_VERSION = 1
_IDS_NAME = "ids.npy"
#: Bytes of vectors, or of neighbours, written at a time.
_BLOCK_BYTES = 8 << 20


def file_stage(job: HnswJob, level_0: GraphRecipe, objects: list[str], storage: Storage | None) -> Stage:
    """Return stage *file*, the last one, with the stages of all that it reads.

    Parameters
    ----------
    level_0 : GraphRecipe
    objects : list of str
        Text that tells the objects of the job from others.
    storage : Storage, optional
        Of the container; without it the stages can be made on paper alone.
    """
    mill, graph, ingest = level_0.mill, level_0.graph, level_0.ingest
    levels, ids = _levels_stage(job, level_0), _ids_stage(job, mill, objects, storage)
    inputs = [graph, levels, ids, ingest]
    what = {"add_list": job.add_list, "search_list": job.search_list, "vectors": job.has_vectors}
    key = mill.store.key("file", _FILE_VERSION, what, [stage.key for stage in inputs])

    def write(directory: Path) -> None:
        upper, entry = load_levels(mill.read(levels))
        lowest = load_graph(mill.read(graph))
        shape = HnswShape(
            job.n, 2 * job.m, job.m, lowest.entry if entry is None else entry, job.add_list, job.search_list
        )
        rows = np.load(level_0.vectors, mmap_mode="r")[:, : job.dim]
        numbers = np.load(mill.read(ids) / _IDS_NAME, mmap_mode="r")
        list_bytes = lowest.neighbours[0].nbytes
        lists = zip(_blocks(lowest.neighbours, list_bytes), _blocks(lowest.degrees, list_bytes), strict=True)
        with open(directory / FILE_NAME, "xb") as file:
            write_knn_file(
                KnnFile(job.dim, job.metric, job.component, job.has_vectors), shape, (lists, upper),
                _blocks(rows, rows[0].nbytes), _blocks(numbers, numbers.itemsize), file, mill.progress.advance,
            )  # fmt: skip

    steps = (1 + job.has_vectors) * job.n
    path = mill.store.path("file", key)
    return Stage("file", key, path, inputs, write, steps=steps, unit="vectors", pinned=True)


def _levels_stage(job: HnswJob, level_0: GraphRecipe) -> Stage:
    mill, arguments = level_0.mill, level_0.build_arguments._replace(max_degree=job.m)
    key = mill.store.key("levels", LEVELS_VERSION, arguments._asdict(), [level_0.ingest.key])

    def write(directory: Path) -> None:
        task = (levels_task, [level_0.vectors, arguments])
        mill.call(directory, *task, by_step=False, memory=level_0.memory)

    return Stage("levels", key, mill.store.path("levels", key), [level_0.ingest], write)


def _ids_stage(job: HnswJob, mill: Mill, objects: list[str], storage: Storage | None) -> Stage:
    key = mill.store.key("ids", _IDS_VERSION, {"n": job.n}, objects)

    def write(directory: Path) -> None:
        assert storage is not None
        with open(directory / _IDS_NAME, "xb") as file:
            np.lib.format.write_array_header_1_0(
                file, {"descr": ID_DTYPE.str, "fortran_order": False, "shape": (job.n,)}
            )
            for block in read_ids(job, storage):
                file.write(block.data)
                mill.progress.advance(len(block))
        check_unchanged(job, storage, objects)

    return Stage("ids", key, mill.store.path("ids", key), (), write, steps=job.n, unit="ids")


def _blocks(rows: NDArray[Any], row_bytes: int) -> Iterator[NDArray[Any]]:
    """Yield consecutive rows of a mapped array, as many at a time as rows of `row_bytes` fit a block."""
    step = max(1, _BLOCK_BYTES // row_bytes)
    for first in range(0, len(rows), step):
        yield rows[first : first + step]
