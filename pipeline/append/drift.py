"""Drift: how far appended vectors took an index from a build of all its vectors, and when to rebuild."""

from __future__ import annotations

from typing import Any

import numpy as np

from indexmill.pipeline.append.codes import REBUILD_CODE_ERROR, coded_vectors
from indexmill.pipeline.append.files import Extended
from indexmill.pipeline.generations.built import BuiltVectors
from indexmill.pipeline.generations.opened import OpenedIndex

# Each threshold is where about 5% more page reads than those of a rebuild were measured (docs/benchmarks.md, Appends).
#: Share of vectors inserted since all lists were made from which a rebuild is advised.
REBUILD_SHARE = 0.5
#: Overlap ratio, as a share of the build's, below which a rebuild is advised.
REBUILD_OVERLAP = 0.8
#: Orders that pack pages by neighbourhood.
_BY_NEIGHBOURHOOD = ("star", "agglomerative")
#: Vectors looked at at a time.
_BLOCK = 65536


def drift_of(extended: Extended, overlap: float, order: str) -> dict[str, Any]:
    """Return the drift of an extended index (docs/formats/manifest.md).

    Parameters
    ----------
    overlap : float
        Overlap ratio of the new layout.
    order : str
        Its order.
    """
    index, graph, errors = extended.larger, extended.graph, extended.code_errors
    n, built = len(graph.vectors), index.built
    overlap_built = (index.manifest.drift or index.manifest.layout).get(
        "overlap_ratio" if index.manifest.drift is None else "overlap_ratio_built"
    )
    share = round((n - built) / n, 6)
    clipped = sum(
        int(index.space.outside(graph.vectors[first : first + _BLOCK]).any(axis=1).sum())
        for first in range(graph.present, n, _BLOCK)
    )
    laid_out = index.laid_out
    if extended.is_laid_out_anew:
        laid_out, overlap_built = n, round(overlap, 6)
    removed = (index.manifest.drift or {}).get("removed_vectors")
    linked = n if extended.built_anew else _linked(index)
    rebuild, advice = advise((n - linked) / n, errors.ratio, _share_of(overlap, overlap_built, order))
    return {
        **index.of_build.behind(extended.before).facts(n),
        **({"laid_out_vectors": laid_out} if laid_out != built else {}),
        **({"linked_vectors": linked} if linked != built else {}),
        **({"coded_vectors": errors.coded} if errors.coded != built else {}),
        "added_share": share,
        "overlap_ratio_built": overlap_built,
        "code_error_built": _rounded(errors.built),
        "code_error_added": None if errors.added is None else _rounded(errors.added),
        "code_error_ratio": errors.ratio,
        "clipped_share": round(clipped / (n - graph.present), 6),
        **({} if removed is None else {"removed_vectors": removed}),
        "rebuild": rebuild,
        "advice": advice,
    }


def drift_after_layout(index: OpenedIndex, overlap: float) -> dict[str, Any] | None:
    """Return the drift of `index` once it is laid out again with overlap ratio `overlap`; None stays None.

    All slots are settled then, and what appends did to the layout is forgotten; codes err as they did.
    """
    drift = index.manifest.drift
    if drift is None:
        return None
    share, ratio = (index.n - _linked(index)) / index.n, drift.get("code_error_ratio")
    rebuild, advice = advise(share, None if ratio is None else float(ratio), None)
    settled = {"laid_out_vectors": index.n, "overlap_ratio_built": round(overlap, 6)}
    return {**drift, **settled, "rebuild": rebuild, "advice": advice}


def drift_after_compaction(
    index: OpenedIndex, removed: int, built: BuiltVectors, overlap: float
) -> dict[str, Any]:
    """Return the drift of `index` without `removed` vectors, with those `built` that stay, laid out again.

    All slots are settled then; codes err as they did.
    """
    n, drift = index.n - removed, index.manifest.drift or {}
    share, ratio = round((n - built.n) / n, 6), drift.get("code_error_ratio")
    linked = max(built.n, _linked(index) - removed)  # as if all that were removed had been linked
    rebuild, advice = advise((n - linked) / n, None if ratio is None else float(ratio), None)
    coded = max(built.n, coded_vectors(index) - removed)
    anew = ("first_built", "laid_out_vectors", "linked_vectors", "coded_vectors")
    return {
        **{key: value for key, value in drift.items() if key not in anew},
        **built.facts(n),
        **({} if built.n == n else {"laid_out_vectors": n}),
        **({} if built.n == linked else {"linked_vectors": linked}),
        **({} if built.n == coded else {"coded_vectors": coded}),
        "added_share": share,
        "overlap_ratio_built": round(overlap, 6),
        "removed_vectors": removed + int(drift.get("removed_vectors", 0)),
        "rebuild": rebuild,
        "advice": advice,
    }


def _linked(index: OpenedIndex) -> int:
    """Return how many vectors there were when all lists were made: in the last build, or later in a merge."""
    recorded = (index.manifest.drift or {}).get("linked_vectors")
    return recorded if isinstance(recorded, int) and index.built <= recorded <= index.n else index.built


def advise(share: float, ratio: float | None, overlap: float | None) -> tuple[bool, str]:
    """Return whether to rebuild, with the reason; docs/benchmarks.md has the measurements behind the thresholds.

    `share` is of the vectors that were inserted.
    """
    reasons = []
    if share >= REBUILD_SHARE:
        reasons.append(f"{share:.0%} of the vectors were inserted since the graph was built")
    if ratio is not None and ratio >= REBUILD_CODE_ERROR:
        reasons.append(f"codes of added vectors err {ratio:.2f} times as much as those of built ones")
    if overlap is not None and overlap < REBUILD_OVERLAP:
        reasons.append(f"the overlap ratio fell to {overlap:.0%} of the build's")
    if reasons:
        return True, "rebuild: " + "; ".join(reasons)
    return False, "keep: page reads stay within a few percent of those of a build"


def _share_of(overlap: float, built: object, order: str) -> float | None:
    """Overlap ratio as a share of the build's; None where pages are not packed by neighbourhood."""
    return (
        overlap / built
        if order in _BY_NEIGHBOURHOOD and isinstance(built, (int, float)) and built > 0
        else None
    )


def _rounded(error: float) -> float:
    return float(np.format_float_positional(error, precision=6, fractional=False))
