"""Drift of inverted lists: how far appended vectors took an index from a build of all its vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.ivf.batch import list_pages
from indexmill.formats.ivf.lists import ListReader
from indexmill.pipeline.append.codes import optimism
from indexmill.pipeline.append.lists.batches import NewRows, lengths
from indexmill.pipeline.append.lists.opened import OpenedLists
from indexmill.pipeline.generations.built import BuiltVectors

#: Distance of added vectors to their centroids over that of built ones, from which a rebuild is advised.
REBUILD_DISTANCE = 1.1
#: Pages of all lists over those of a build's lists, from which a rebuild is advised.
REBUILD_PAGES = 1.25
#: Rows scanned by a search of lists chosen as vectors are, over those of lists of a build, from which one is advised.
REBUILD_SCANNED = 1.25
#: Built vectors whose distance is measured, and lists that they are taken from at most.
_SAMPLE = 10_000
#: New rows measured at a time.
_BLOCK = 8192


def drift_of(
    index: OpenedLists, new: NewRows, added: int, clipped: int, kept: int, written: list[NDArray[np.int64]]
) -> dict[str, Any]:
    """Return the drift of `index` with new rows (docs/formats/ivf.md).

    Parameters
    ----------
    added, clipped : int
        New vectors, and those of them that a scale cut off.
    kept : int
        Batches that were taken over.
    written : list of int64 array, shape (n_lists,)
        Rows of the lists of each other batch.
    """
    before = index.drift
    batches = _batch_sizes(index)
    all_before = np.sum(batches, axis=0)
    batches = [*batches[:kept], *written]
    n, built = index.n + added, index.of_build
    removed = 0 if before is None else int(before.get("removed_vectors", 0))
    at_build = _built_distance(index) if before is None else float(before["distance_built"])
    scanned_built = _scanned(all_before) if before is None else float(before["scanned_built"])
    of_new = _mean_length(index, new)
    earlier = 0 if before is None else int(before["added_vectors"])
    if before is not None:
        of_new = (float(before["distance_added"] or 0) * earlier + of_new * added) / (earlier + added)
    share = round(clipped / added, 6)
    return _facts(index, built, (n, removed), (at_build, of_new), scanned_built, batches, share)


def drift_without(
    index: OpenedLists, built: BuiltVectors, counts: tuple[int, int],
    others: Sequence[tuple[OpenedLists, int]], written: Sequence[NDArray[np.int64]],
) -> dict[str, Any]:  # fmt: skip
    """Return the drift of an index without its deleted vectors, and with those of others that have its centroids.

    Parameters
    ----------
    index : OpenedLists
        As it was.
    built : BuiltVectors
        Vectors of its last build that stay, by their vector ids in the result.
    counts : tuple of int
        Vectors of the result, and those of `index` that go.
    others : sequence of (OpenedLists, int)
        The others, and how many of their vectors stay.
    written : sequence of int64 array, shape (n_lists,)
        Rows of the lists of each batch of the result.
    """
    before, (n, removed) = index.drift or {}, counts
    at_build = _built_distance(index) if not before else float(before["distance_built"])
    weights = [int(before.get("added_vectors", 0)), *(stay for _, stay in others)]
    distances = [float(before.get("distance_added") or 0), *(_built_distance(other) for other, _ in others)]
    of_new = float(np.average(distances, weights=weights)) if sum(weights) else None
    scanned = float(before.get("scanned_built") or _scanned(np.sum(_batch_sizes(index), axis=0)))
    removed += int(before.get("removed_vectors", 0))
    share = float(before.get("clipped_share", 0))
    return _facts(index, built, (n, removed), (at_build, of_new), scanned, written, share)


def _facts(
    index: OpenedLists, built: BuiltVectors, counts: tuple[int, int], distances: tuple[float, float | None],
    scanned_built: float, batches: Sequence[NDArray[np.int64]], clipped: float,
) -> dict[str, Any]:  # fmt: skip
    """Return the drift of lists that have these rows in each batch.

    Parameters
    ----------
    built : BuiltVectors
        Those of the last build.
    counts : tuple of int
        Vectors of the index, and those that compactions removed.
    distances : tuple of float
        Of built and of added vectors from their centroids; the second is None where none were added.
    """
    (n, removed), (at_build, of_new) = counts, distances
    row_bytes, sizes, fit = index.files.centroids.row_bytes, np.sum(batches, axis=0), _fit(index)
    known = of_new is not None and at_build > 0 and fit is not None
    ratio = round(of_new / at_build / fit, 6) if known else None  # type: ignore[operator]
    pages = sum(int(list_pages(each, row_bytes).sum()) for each in batches)
    count = -(-n // index.most_vectors)
    of_a_build = count * int(list_pages(-(-sizes // count), row_bytes).sum())
    scanned, share = _scanned(sizes), round(pages / of_a_build, 6)
    rebuild, advice = advise(ratio, share, scanned / scanned_built)
    return {
        **built.facts(n),
        **({"vectors_at_build": index.at_build} if index.at_build != built.n else {}),
        "added_share": round((n - built.n) / n, 6),
        **({"removed_vectors": removed} if removed else {}),
        "distance_built": _rounded(at_build),
        "distance_added": None if of_new is None else _rounded(of_new),
        "distance_ratio": ratio,
        "scanned_built": round(scanned_built, 6),
        "scanned": round(scanned, 6),
        "longest_list": int(sizes.max()),
        "pages_ratio": share,
        "clipped_share": clipped,
        "rebuild": rebuild,
        "advice": advice,
    }


def advise(distance: float | None, pages: float, scanned: float) -> tuple[bool, str]:
    """Return whether to rebuild, with the reason."""
    reasons = []
    if distance is not None and distance >= REBUILD_DISTANCE:
        reasons.append(f"added vectors lie {distance:.2f} times as far from their centroids as built ones")
    if pages >= REBUILD_PAGES:
        reasons.append(f"lists take {pages:.2f} times the pages of those of a build")
    if scanned >= REBUILD_SCANNED:
        reasons.append(f"lists are so uneven that a search scans {scanned:.2f} times the share of the build")
    if reasons:
        return True, "rebuild: " + "; ".join(reasons)
    return False, "keep: centroids and lists suit the added vectors"


def _batch_sizes(index: OpenedLists) -> list[NDArray[np.int64]]:
    """Return the rows of each list in each batch."""
    found = []
    for number in range(len(index.files.batches)):
        with index.files.open_batch(number) as batch:
            found.append(batch.list_sizes)
    return found


def _scanned(sizes: NDArray[np.int64]) -> float:
    """Return how many rows a search scans of lists that it probes as vectors fill them, over those of even lists."""
    total = float(sizes.sum())
    return len(sizes) * float((sizes.astype(np.float64) ** 2).sum()) / total**2


def _built_distance(index: OpenedLists) -> float:
    """Return the mean distance of vectors to their centroids, of a share of evenly chosen lists."""
    shared = index.files.centroids
    with ListReader(index.files) as reader:
        filled = np.flatnonzero(reader.sizes)
        chosen = filled[:: -(-len(filled) // _SAMPLE)]
        rows = int(reader.sizes[chosen].sum())
        share, total = min(1.0, _SAMPLE / rows), 0.0
        for number in chosen.tolist():
            some = reader.middle_rows(number, share)
            cells = np.full(len(some), number, np.uint32)
            total += float(lengths(shared, cells, some).mean()) * int(reader.sizes[number])
    return total / rows


def _mean_length(index: OpenedLists, new: NewRows) -> float:
    shared, total = index.files.centroids, 0.0
    for first in range(0, len(new.cells), _BLOCK):
        part = slice(first, first + _BLOCK)
        total += float(lengths(shared, new.cells[part], new.rows[part]).sum())
    return total / len(new.cells)


def _fit(index: OpenedLists) -> float | None:
    """Return how much farther other rows lie from centroids than the build's, of which some trained them.

    None where a list was trained by a single row, and distances say nothing.
    """
    trained = min(index.at_build, index.parameters.sample_vectors)
    rows = trained / index.files.centroids.n_lists
    if optimism(rows) is None:
        return None
    share, fresh = trained / index.at_build, 1 + 1 / rows
    return float(np.sqrt(fresh / (share * (1 - 1 / rows) + (1 - share) * fresh)))


def _rounded(value: float) -> float:
    return float(np.format_float_positional(value, precision=6, fractional=False))
