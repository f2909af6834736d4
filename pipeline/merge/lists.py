"""Merge of inverted lists with equal centroids and codecs: list by list, without deleted vectors, assigning nothing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import InputError
from indexmill.formats.index.manifest import seal_files
from indexmill.formats.ivf.centroids import Centroids
from indexmill.pipeline.append.addition import check_alike
from indexmill.pipeline.append.lists.drift import drift_without
from indexmill.pipeline.append.lists.opened import OpenedLists
from indexmill.pipeline.append.lists.rewritten import RewrittenLists, check_memory
from indexmill.pipeline.generations.run import GenerationRun
from indexmill.pipeline.merge.addition import AGAIN, input_facts
from indexmill.pipeline.merge.record import checked_left, largest_build, manifest_of
from indexmill.pipeline.mill.disk_space import check_free

_SHARED = (
    "build one of them again with the --centroids of the other, or append the vectors of one to the other"
)


def merge_lists(
    run: GenerationRun, indexes: Sequence[str | os.PathLike[str]], scratch: Path
) -> dict[str, Any]:
    """Publish the vectors of all `indexes` that are left, one index after the other; see `run_merge`."""
    with ExitStack() as stack:
        given = [stack.enter_context(OpenedLists(index)) for index in indexes]
        left = checked_left(given, run.options.force, _check_mergeable)
        check_memory(given, run.options.memory)
        check_free(scratch, sum(entry.bytes for index in given for entry in index.manifest.files), "merge")
        directory = scratch / "index"
        directory.mkdir()
        base, built = largest_build(given, left)
        following = RewrittenLists(given, left, given[base].most_vectors)
        with run.stage("lists", following.n, "rows") as advance:
            written = following.write(directory, advance)
        with run.task("seal"):
            build_id, files = seal_files(directory, [path.name for path in directory.iterdir()])
            others = [
                (index, len(stay))
                for index, stay in zip(given, left, strict=True)
                if index is not given[base]
            ]
            counts = (following.n, len(given[base].deleted))
            drift = drift_without(given[base], built, counts, others, written)
        made = manifest_of(given, left, base, build_id, files)
        ivf = {**given[base].manifest.ivf, "batches": following.sizes, "drift": drift}
        manifest = replaced(made, ivf=ivf)
        return run.publish(directory, manifest, given[0].manifest.build_id, {})


def _check_mergeable(first: OpenedLists, index: OpenedLists) -> None:
    """Refuse an index of another form than `first`, or with other centroids or another codec.

    Raises
    ------
    InputError
        Naming the index and the first difference.
    """
    a, b = first.files.centroids, index.files.centroids
    facts: list[tuple[str, object, object, str]] = [
        ("metric", a.metric, b.metric, AGAIN),
        *input_facts(first, index),
        ("largest norm", a.max_norm, b.max_norm, "build one index of both inputs"),
        ("exact vectors", _kept(first), _kept(index), AGAIN),
        ("codec", a.codec, b.codec, AGAIN),
        ("lists", a.n_lists, b.n_lists, _SHARED),
        ("most lists of a vector", a.copies, b.copies, AGAIN),
        ("bytes of a row", a.row_bytes, b.row_bytes, AGAIN),
    ]
    check_alike(first, str(index.name), facts)
    others, of_first = _arrays(b), _arrays(a)
    for what, array in of_first.items():
        if not np.array_equal(array, others[what]):
            raise InputError(f"{index.name}: other {what} than {first.name}; {_SHARED}")


def _kept(index: OpenedLists) -> str:
    return "none" if index.vectors is None else index.vectors.row_format.dtype


def _arrays(shared: Centroids) -> dict[str, NDArray[Any]]:
    """Return what rows of lists stand for, by its name in errors."""
    found: dict[str, NDArray[Any]] = {"centroids": shared.centroids}
    if shared.scale is not None:
        found["scale of sq8"] = shared.scale
    if shared.codebook is not None:
        found |= {"pivots of pq": shared.codebook.pivots, "chunks of pq": shared.codebook.offsets}
    if shared.rabitq is not None:
        found["rotation of rabitq"] = shared.rabitq.rotation
    return found
