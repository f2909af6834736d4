"""Drift: how far appended vectors took an index from a build of all its vectors, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from indexmill.pipeline.append.codes import REBUILD_CODE_ERROR, coded_vectors
from indexmill.pipeline.append.files import Extended
from indexmill.pipeline.generations.built import BuiltVectors
from indexmill.pipeline.generations.opened import OpenedIndex

#: Overlap ratio, as a share of that after all vectors were laid out last, below which another layout is advised: about
#: 5% more page reads than those of a rebuild were measured there (docs/benchmarks.md, Appends). No rebuild is advised:
#: of an index that was laid out again, with most of its vectors inserted, searches read what they read of a rebuild
#: (Indexes that live).
LAYOUT_OVERLAP = 0.8
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
    clipped = sum(
        int(index.space.outside(graph.vectors[first : first + _BLOCK]).any(axis=1).sum())
        for first in range(graph.present, n, _BLOCK)
    )
    laid_out = index.laid_out
    if extended.is_laid_out_anew:
        laid_out, overlap_built = n, round(overlap, 6)
    removed = (index.manifest.drift or {}).get("removed_vectors")
    rebuild, advice = advise(errors.ratio, _share_of(overlap, overlap_built, order))
    return {
        **index.of_build.behind(extended.before).facts(n),
        **({"laid_out_vectors": laid_out} if laid_out != built else {}),
        **({"coded_vectors": errors.coded} if errors.coded != built else {}),
        "added_share": round((n - built) / n, 6),
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
    rebuild, advice = advise(_code_error_ratio(drift), None)
    settled = {"laid_out_vectors": index.n, "overlap_ratio_built": round(overlap, 6)}
    return {**drift, **settled, "rebuild": rebuild, "advice": advice}


def drift_after_compaction(
    index: OpenedIndex, removed: int, built: BuiltVectors, overlap: float
) -> dict[str, Any]:
    """Return the drift of `index` without `removed` vectors, with those `built` that stay, laid out again.

    All slots are settled then; codes err as they did.
    """
    n, drift = index.n - removed, index.manifest.drift or {}
    rebuild, advice = advise(_code_error_ratio(drift), None)
    coded = max(built.n, coded_vectors(index) - removed)  # as if all that were removed had been coded
    anew = ("first_built", "laid_out_vectors", "coded_vectors")
    return {
        **{key: value for key, value in drift.items() if key not in anew},
        **built.facts(n),
        **({} if built.n == n else {"laid_out_vectors": n}),
        **({} if built.n == coded else {"coded_vectors": coded}),
        "added_share": round((n - built.n) / n, 6),
        "overlap_ratio_built": round(overlap, 6),
        "removed_vectors": removed + int(drift.get("removed_vectors", 0)),
        "rebuild": rebuild,
        "advice": advice,
    }


def advise(ratio: float | None, overlap: float | None) -> tuple[bool, str]:
    """Return whether to rebuild, and the advice; docs/benchmarks.md has the measurements behind the thresholds.

    Parameters
    ----------
    ratio : float or None
        Error of added vectors' codes over that of built ones' (`CodeErrors.ratio`).
    overlap : float or None
        Overlap ratio as a share of that after all vectors were laid out last; None where all were laid out just now,
        and where it tells nothing.
    """
    if ratio is not None and ratio >= REBUILD_CODE_ERROR:
        return True, f"rebuild: codes of added vectors err {ratio:.2f} times as much as those of built ones"
    if overlap is not None and overlap < LAYOUT_OVERLAP:
        fell = f"the overlap ratio fell to {overlap:.0%} of that of the last layout"
        return False, f"layout: {fell}; `compact` lays all vectors out again, and `layout` if none is deleted"
    return False, "keep: no figure asks for a rebuild or a layout"


def _code_error_ratio(drift: Mapping[str, Any]) -> float | None:
    """Return the ratio of code errors in the drift of an index; a layout and a compaction do not change it."""
    ratio = drift.get("code_error_ratio")
    return None if ratio is None else float(ratio)


def _share_of(overlap: float, built: object, order: str) -> float | None:
    """Overlap ratio as a share of the earlier one; None where pages are not packed by neighbourhood."""
    return (
        overlap / built
        if order in _BY_NEIGHBOURHOOD and isinstance(built, (int, float)) and built > 0
        else None
    )


def _rounded(error: float) -> float:
    return float(np.format_float_positional(error, precision=6, fractional=False))
