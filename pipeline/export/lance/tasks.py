"""One segment of the index of a Lance dataset: the rows of some fragments, each in the list of its nearest centroid."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.cluster.cells import Cells
from indexmill.formats.exports.lance.dataset import Fragment, LanceDataset
from indexmill.formats.exports.lance.library import NAME, arguments_of, check_codebook, rabitq_arguments
from indexmill.formats.exports.target import cannot_hold
from indexmill.formats.ivf.centroids import Centroids
from indexmill.formats.sources.joined import VectorBatch
from indexmill.formats.sources.validate import check_batch
from indexmill.pipeline.kinds.common.metric import unit

#: Bytes of vectors in a segment at least, so that many small fragments do not make as many small segments.
GROUP_BYTES = 64 << 20
#: Lance's name of each metric.
_METRICS = {"l2": "L2", "cosine": "cosine"}
#: Lance has RaBitQ codes of vectors whose components are a multiple of so many.
_RABITQ_STEP = 8


@dataclass(frozen=True, eq=False)
class Model:
    """What decides the segments of an index, beside the rows.

    Attributes
    ----------
    centroids : float32 array, shape (n_lists, dim)
    metric : {"l2", "cosine"}
    arguments : dict
        Those of pylance: `arguments_of`.
    """

    centroids: NDArray[np.float32]
    metric: str
    arguments: dict[str, Any]


class Place(NamedTuple):
    """A column of vectors in a dataset at one version."""

    uri: str
    version: int
    column: str


class Group(NamedTuple):
    """Fragments that follow each other, whose rows make one segment.

    Attributes
    ----------
    fragments : tuple of int
        Their numbers.
    first, rows : int
        Position of their first row in the dataset, and how many rows they have.
    state : str
        SHA-256 of the states of the fragments.
    """

    fragments: tuple[int, ...]
    first: int
    rows: int
    state: str


def model_of(shared: Centroids, name: str) -> Model:
    """Return the model of an index called `name` with the centroids and the codebook of an index of ours.

    Raises
    ------
    ConfigError
        If Lance has no such lists, or no such codes.
    """
    if shared.metric not in _METRICS:
        action = "build with --metric cosine or l2"
        raise cannot_hold(
            NAME, "lists of a dataset by metric", shared.metric, "those by l2 and cosine", action
        )
    check_codebook(shared)
    centroids, codes = shared.restored(shared.centroids), {}
    if shared.rabitq is not None:
        if shared.dim % _RABITQ_STEP:
            got, holds = f"{shared.dim} components", f"those of multiples of {_RABITQ_STEP}"
            raise cannot_hold(NAME, "RaBitQ codes of", got, holds, "build with --codec pq")
        codes = rabitq_arguments(shared.dim, shared.rabitq.bits)
    arguments = arguments_of(centroids, shared.codebook, _METRICS[shared.metric], name)
    return Model(centroids, shared.metric, arguments | codes)


def grouped(fragments: Iterable[Fragment], row_bytes: int) -> list[Group]:
    """Return consecutive fragments together until they have `GROUP_BYTES` of vectors.

    The groups depend on the fragments alone, so that any number of workers writes the same segments.
    """
    groups: list[Group] = []
    waiting: list[Fragment] = []
    rows = 0
    for fragment in fragments:
        waiting.append(fragment)
        rows += fragment.rows
        if rows * row_bytes >= GROUP_BYTES:
            groups.append(_group(waiting))
            waiting, rows = [], 0
    if waiting:
        groups.append(_group(waiting))
    return groups


def _group(fragments: list[Fragment]) -> Group:
    states = "".join(one.state for one in fragments)
    return Group(
        tuple(one.number for one in fragments), fragments[0].first, sum(one.rows for one in fragments),
        hashlib.sha256(states.encode()).hexdigest(),
    )  # fmt: skip


def segment_task(place: Place, model: Model, group: Group, uuid: str, out: str) -> None:
    """Write a segment into the dataset, and its description as JSON to the file `out`.

    A segment that was written by half under the same `uuid` is written again over it.

    Memory: 12 bytes a row of the group, that of pylance (`write_segment`), and four times the centroids: a copy, and
    three times in `Cells.nearest`.

    Raises
    ------
    InputError
        On a row that is null or that *ingest* would refuse; the message names its position in the dataset.
    """
    dataset = LanceDataset(place.uri, place.version)
    cells = Cells(np.array(model.centroids), np.dtype(np.float32))  # a copy: shared values are read-only
    row_ids, lists = np.empty(group.rows, np.uint64), np.empty(group.rows, np.uint32)
    at = 0
    for batch in dataset.vectors(place.column, group.fragments, group.first):
        check_batch(
            VectorBatch(batch.first, batch.vectors, None, None, dataset.name, batch.first), model.metric
        )
        vectors = unit(batch.vectors) if model.metric == "cosine" else batch.vectors
        row_ids[at : at + len(vectors)] = batch.row_ids
        lists[at : at + len(vectors)] = cells.nearest(vectors)
        at += len(vectors)
    assert at == group.rows
    with TemporaryDirectory(prefix="indexmill-lance-") as folder:
        arguments = {**model.arguments, "index_uuid": uuid, "replace": True}
        text = dataset.write_segment(
            place.column, group.fragments, (row_ids, lists), arguments, Path(folder) / "lists.lance"
        )
    Path(out).write_text(text)


def warm_up() -> None:
    """Do nothing: a worker that calls this has imported the task."""
